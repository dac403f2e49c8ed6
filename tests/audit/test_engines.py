"""Engines: this process, two processes and a cluster of dask give the same bytes, also where some are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import privcalc as pc
from privcalc import bulk, parts
from privcalc.audit.blocks import epsilons

pytestmark = pytest.mark.service  # processes of their own

ENGINES = [parts.Engine("processes", workers=2), parts.Engine("dask", workers=2)]
WORKERS = pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)


@pytest.fixture
def norms(tmp_path):
    """Two files of 200 records over 8 steps, in row groups that no block follows."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rng, (step, record) = np.random.default_rng(0), np.divmod(np.arange(1600), 200)
    found = pa.table({"record": record, "step": step, "norm_ratio": rng.random(1600).astype(np.float32)})
    (tmp_path / "norms").mkdir()
    for half in range(2):
        parquet.write_table(found.slice(half * 850, 850), tmp_path / "norms" / f"{half}.parquet", row_group_size=33)
    return tmp_path / "norms"


def test_the_same_bytes_from_all_engines(norms, tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        engines = [parts.LOCAL, *ENGINES, parts.Engine("dask", scheduler=cluster.scheduler_address)]
        found = []
        for engine in engines:
            told = []
            asked = {"engine": engine, "progress": told.append, "size": 50}
            (values, _, _), work = epsilons(norms, 4.0, 1e-5, out=tmp_path / "parts", **asked)
            table = bulk.epsilons(np.arange(20.0, 40.0), 1.0, 1, 1e-5, engine=engine)
            found.append((np.asarray(values).tobytes(), [work.path(k).read_bytes() for k in range(4)], table.tobytes()))
            assert "4 of 4 parts" in told[-1]
            assert float(told[-1].split("at most ")[1].split(" MB")[0]) > 20  # a process with NumPy has more
            work.remove()
    assert all(other == found[0] for other in found[1:])


@dataclass(frozen=True)
class Deadly:
    """Work of which part 3 kills whoever computes it: so many times, each of which leaves a mark."""

    marks: Path
    times: int

    def __call__(self, number):
        with (self.marks / "log").open("a") as file:
            file.write(f"{number}\n")
        if number == 3 and len(list(self.marks.glob("mark*"))) < self.times:
            (self.marks / f"mark{time.monotonic_ns()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"square": np.array([number * number])}


class Wrong:
    """Work that refuses part 1."""

    def __call__(self, number):
        if number == 1:
            raise pc.PrivcalcError("part = 1: must be another")
        return {"number": np.array([number])}


@WORKERS
def test_a_worker_that_is_killed_loses_nothing(engine, tmp_path):
    if engine.name == "dask":
        pytest.importorskip("distributed")
    work = parts.Parts(Deadly(tmp_path, 2), 6, tmp_path / "parts", "squares")
    assert [int(part["square"][0]) for part in work.compute(engine)] == [0, 1, 4, 9, 16, 25]
    done = [int(line) for line in (tmp_path / "log").read_text().split()]
    assert done.count(3) == 3
    assert set(done) == set(range(6))
    assert len(done) <= 6 + 2 * 2  # whoever was at work beside it


@WORKERS
def test_a_part_that_kills_again_and_again_is_told_of(engine, tmp_path):
    if engine.name == "dask":
        pytest.importorskip("distributed")
    work = parts.Parts(Deadly(tmp_path, 100), 4, tmp_path / "parts", "squares")
    with pytest.raises(pc.PrivcalcError, match="perhaps for want of memory"):
        work.compute(engine)
    assert [number for number in range(4) if work.has(number)] == [0, 1, 2]  # what was finished


def test_an_error_in_a_worker_is_told_as_it_is(tmp_path):
    work = parts.Parts(Wrong(), 3, tmp_path / "parts", "wrong")
    with pytest.raises(pc.PrivcalcError, match="part = 1: must be another"):
        work.compute(parts.Engine("processes", workers=2))
    assert not work.has(1)


def test_a_command_that_is_killed_goes_on(norms, tmp_path):
    """With its processes, while some blocks are done: the next one computes the others."""
    command = [
        sys.executable,
        "-m",
        "privcalc",
        "bulk",
        "in.csv",
        "--out",
        "out.csv",
        "--engine",
        "processes",
        "--workers",
        "2",
    ]
    lines = [f"{1 + k / 4000!r},0.01,1000,1e-5" for k in range(1100)]
    (tmp_path / "in.csv").write_text("\n".join(["noise_multiplier,sample_rate,steps,delta", *lines]))
    first = subprocess.Popen(command, cwd=tmp_path, start_new_session=True, stderr=subprocess.DEVNULL)
    parted = tmp_path / "out.csv.parts"
    for _ in range(6000):
        if done := {path: path.stat().st_mtime_ns for path in parted.glob("*.npz")}:
            break
        time.sleep(0.01)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert len(done) < 3
    assert not (tmp_path / "out.csv").exists()
    terminal, end = os.openpty()  # progress is for a terminal
    subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL, stderr=end)
    assert b"of 3 parts were there" in os.read(terminal, 2**16)
    os.close(end)
    os.close(terminal)
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 1101
    assert not parted.exists()


def test_a_cluster_that_is_not_there(norms, tmp_path):
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=0, dashboard_address=":0") as cluster:
        gone = cluster.scheduler_address
    patience = dask.config.set({"distributed.comm.timeouts.connect": "1s"})
    with (
        patience,
        pytest.raises(pc.PrivcalcError, match=r"scheduler = 'tcp://.*: must be the address of a dask cluster"),
    ):
        epsilons(norms, 4.0, 1e-5, out=tmp_path / "parts", engine=parts.Engine("dask", scheduler=gone), size=50)
