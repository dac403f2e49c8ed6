"""Audits by blocks: the same bytes whatever files, row groups and parts; nothing is lost, or trusted blindly."""

from __future__ import annotations

import json
import math
import os
import warnings

import numpy as np
import pytest
from cases import SLOW
from hypothesis import given, settings
from hypothesis import strategies as st

import privcalc as pc
from privcalc import parts
from privcalc.audit import blocks
from privcalc.audit.blocks import epsilons
from privcalc.audit.sensitive import FILLED, FULL
from privcalc.cli import main

pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
DELTA = 1e-5


def table(norms, **more):
    """All norms, shape (steps, records), sorted by step and record."""
    steps, records = norms.shape
    record, step = np.tile(np.arange(records), steps), np.repeat(np.arange(steps), records)
    return pa.table({"record": record, "step": step, "norm_ratio": norms.ravel(), **more})


def written(folder, table, rows=7, files=1, **more):
    """A folder of files that have the table's rows in turn, so many rows in a group."""
    folder.mkdir(exist_ok=True)
    for number in range(files):
        own = table.take(np.arange(number, len(table), files))
        parquet.write_table(own, folder / f"{number}.parquet", row_group_size=rows, **more)
    return folder


def audited(norms, out, *, noise=20.0, delta=DELTA, size=5, **more):
    """ε of every record, and what else is known; no parts are left."""
    (found, groups, steps), work = epsilons(norms, noise, delta, out=out, size=size, **more)
    work.remove()
    assert not out.exists()
    return found, groups, steps


@pytest.fixture
def norms():
    return np.random.default_rng(0).random((6, 12))


@given(data=st.data())
@settings(max_examples=60 if SLOW else 8, deadline=None)
def test_any_order_of_rows_in_any_files(tmp_path_factory, data):
    """Rows that are missing cost the clip norm; a record is μ-GDP, μ² = Σ(r/z)²."""
    records, length = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 4))
    every = [(t, i) for t in range(length) for i in range(records)]
    rows = data.draw(st.permutations(every))[: data.draw(st.integers(1, len(every)))]
    step, record = (np.array([row[k] for row in rows]) for k in (0, 1))
    ratio = np.array([data.draw(st.floats(0, 1)) for _ in rows])
    made = pa.table({"record": record, "step": step, "norm_ratio": ratio, "group": [f"{i}" for i in record]})
    base = tmp_path_factory.mktemp("blocks")
    more = {name: data.draw(st.integers(1, most)) for name, most in (("rows", 9), ("files", 3))}
    more["write_statistics"] = data.draw(st.booleans())
    size = data.draw(st.integers(1, 10))
    found, groups, steps = audited(written(base / "any", made, **more), base / "out", size=size, steps=length)
    plain = written(base / "plain", made.sort_by([("step", "ascending"), ("record", "ascending")]), rows=1000)
    assert np.asarray(found).tobytes() == np.asarray(audited(plain, base / "out", size=size, steps=length)[0]).tobytes()
    full = np.ones((length, record.max() + 1))
    full[step, record] = ratio
    mu = np.sqrt((full**2).sum(axis=0)) / 20
    truth = [pc.GDP(float(x)).epsilon(delta=DELTA).lower if x > 0 else 0.0 for x in mu]
    assert (np.asarray(found) >= np.array(truth) * (1 - 1e-12)).all()
    assert np.asarray(found) == pytest.approx(truth, rel=1e-6, abs=1e-6)
    assert (steps, found.grade) == (length, FULL if len(rows) == length * (record.max() + 1) else FILLED)
    assert list(groups) == [f"{i}" if i in record else "" for i in range(record.max() + 1)]


def test_a_command_writes_what_it_writes_without_an_engine(norms, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("privcalc.pictures.realised", lambda *_, **__: None)
    monkeypatch.setattr("privcalc.pictures.save", lambda *_, **__: None)
    parquet.write_table(table(norms, group=["a", "b"] * 36), "norms.parquet", row_group_size=7)
    found = []
    for more in ([], ["--engine", "local"]):
        assert (
            main(["audit", "norms.parquet", "--noise-multiplier", "20", "--delta", "1e-5", "--out", "out", *more]) == 0
        )
        found.append({path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()})
        assert parquet.read_schema("out/epsilon.parquet").metadata[b"warning"].startswith(b"SENSITIVE")
    assert found[0] == found[1]  # the parts are gone, too
    assert capsys.readouterr().err == ""  # progress is for a terminal
    assert (
        main(
            ["audit", "norms.parquet", "--noise-multiplier", "20", "--delta", "1e-5", "--out", "out", "--workers", "0"]
        )
        == 2
    )
    assert "workers = 0: must be" in capsys.readouterr().err


def test_who_goes_on_does_no_block_again(norms, tmp_path, monkeypatch):
    """Killed in the third of three blocks, as of a full disk."""
    path, out, done = written(tmp_path / "in", table(norms)), tmp_path / "parts", []
    first = np.asarray(audited(path, out)[0])
    compute = blocks.Blocks.__call__

    def counted(self, block):
        done.append(block)
        if len(done) == 3:
            raise OSError("no space left on device")
        return compute(self, block)

    monkeypatch.setattr(blocks.Blocks, "__call__", counted)
    with pytest.raises(OSError, match="no space"):
        epsilons(path, 20.0, DELTA, out=out, size=5)
    assert len(list(out.iterdir())) == 2
    assert all(part.stat().st_mode & 0o077 == 0 for part in out.iterdir())  # sensitive
    told = []
    (again, _, _), _ = epsilons(path, 20.0, DELTA, out=out, size=5, progress=told.append)
    assert np.asarray(again).tobytes() == first.tobytes()
    assert done == [0, 1, 2, 2]
    assert told[0] == "2 of 3 parts were there"


def halved(path, _):
    """Every ε in a valid archive."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    arrays["epsilon"] = arrays["epsilon"] / 2
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    "change",
    [
        lambda path, _: path.write_bytes(path.read_bytes()[:-30]),
        lambda path, _: path.write_bytes(b""),
        halved,
        lambda path, other: path.write_bytes(other.read_bytes()),
    ],
    ids=["cut", "empty", "halved", "another"],
)
def test_a_part_that_is_not_as_it_was_written_is_computed_again(change, norms, tmp_path):
    path, out = written(tmp_path / "in", table(norms)), tmp_path / "parts"
    (first, _, _), work = epsilons(path, 20.0, DELTA, out=out, size=5)
    change(work.path(1), work.path(0))
    with pytest.raises(pc.PrivcalcError, match="must be a part as it was written"):
        work.read(1)
    with pytest.warns(pc.PrivcalcWarning, match=r"must be a part as it was written.* it is computed again"):
        (again, _, _), _ = epsilons(path, 20.0, DELTA, out=out, size=5)
    assert np.asarray(again).tobytes() == np.asarray(first).tobytes()


@pytest.mark.parametrize("change", ["noise", "size", "file"])
def test_parts_of_another_question_are_not_used(change, norms, tmp_path):
    path, out = written(tmp_path / "in", table(norms)), tmp_path / "parts"
    epsilons(path, 20.0, DELTA, out=out, size=5)
    before = set(out.iterdir())
    asked = {"noise": 10.0 if change == "noise" else 20.0, "size": 4 if change == "size" else 5}
    if change == "file":
        written(path, table(1 - norms / 2))
    (found, _, _), _ = epsilons(path, asked["noise"], DELTA, out=out, size=asked["size"])
    assert len(set(out.iterdir()) - before) == 3
    fresh = audited(path, tmp_path / "fresh", **asked)[0]
    assert np.asarray(found).tobytes() == np.asarray(fresh).tobytes()


def columns(**change):
    """Two steps of two records, with a column changed."""
    plain = {"record": [0, 1, 0, 1], "step": [0, 0, 1, 1], "norm_ratio": [0.5, 0.5, 0.5, 1.0]}
    return pa.table({name: value for name, value in (plain | change).items() if value is not None})


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (columns(norm_ratio=[0.5, math.nan, 0.5, 0.5]), "norms = .nan"),
        (columns(norm_ratio=[0.5, None, 0.5, 0.5]), "norms = .nan"),
        (columns(norm_ratio=[0.5, -0.1, 0.5, 0.5]), "norms = .-0.1"),
        (columns(norm_ratio=[0.5, 1.1, 0.5, 0.5]), "norms = .*1.1"),
        (columns(norm_ratio=["0.5"] * 4), "norm_ratio: must be numbers, not string"),
        (columns(norm_ratio=[[0.5]] * 4), "norm_ratio: must be numbers, not list"),
        (columns(norm_ratio=[True] * 4), "norm_ratio: must be numbers, not bool"),
        (columns(record=[0.0, 1.0, 0.0, 1.0]), "record: must be whole numbers, not double"),
        (columns(record=[0, None, 0, 1]), "record: must be whole numbers, none missing"),
        (columns(step=["0", "0", "1", "1"]), "step: must be whole numbers, not string"),
        (columns(record=[-1, 1, 0, 1]), r"record = \[-1 … .*\]: must be numbers from 0"),
        (columns(record=[0, 2**60, 0, 1]), "record = .*: must be numbers from 0"),
        (columns(record=[0, 1, 1, 1]), "record = 1: must not have two rows in step 1"),
        (columns(step=[0, 0, 1, 5]), "step below 4"),
        (columns(step=None), r"\['step'\] missing"),
        (columns().slice(0, 0), "must have rows"),
    ],
    ids=[
        *("nan", "null", "negative", "above 1", "text", "list", "truth", "float record", "null record", "text step"),
        *("record -1", "hash", "twice", "long", "no step", "empty"),
    ],
)
@pytest.mark.parametrize("rows", [1, 4])
def test_what_is_no_run_is_refused(made, words, rows, tmp_path):
    """Also over row groups."""
    with pytest.raises(pc.PrivcalcError, match=words):
        epsilons(written(tmp_path / "in", made, rows=rows), 20.0, DELTA, out=tmp_path / "out", steps=4)


def test_a_record_twice_in_two_files(norms, tmp_path):
    path = written(tmp_path / "in", table(norms))
    parquet.write_table(table(norms).slice(40, 1), path / "more.parquet")
    with pytest.raises(pc.PrivcalcError, match="record = 4: must not have two rows in step 3"):
        epsilons(path, 20.0, DELTA, out=tmp_path / "out")


def test_empty_row_groups_and_files_change_nothing(norms, tmp_path):
    path = written(tmp_path / "in", table(norms), rows=72)
    first = np.asarray(audited(path, tmp_path / "out")[0])
    parquet.write_table(table(norms).slice(0, 0), path / "empty.parquet")
    with parquet.ParquetWriter(path / "0.parquet", table(norms).schema) as file:
        for start in range(0, 72, 24):
            file.write_table(table(norms).slice(start, 24))
            file.write_table(table(norms).slice(0, 0))
    assert np.asarray(audited(path, tmp_path / "out")[0]).tobytes() == first.tobytes()


def test_files_that_are_none(norms, tmp_path):
    path = written(tmp_path / "in", table(norms)) / "0.parquet"
    (tmp_path / "nothing").mkdir()
    for wrong in (tmp_path / "nothing", tmp_path / "norms.arrow"):
        with pytest.raises(pc.PrivcalcError, match=r"must be a Parquet file .* or a folder"):
            epsilons(wrong, 20.0, DELTA, out=tmp_path / "out")
    data = path.read_bytes()
    for part in (data[:-9], data[:3], b"", b"PAR1" + 40 * b"x" + b"PAR1"):
        path.write_bytes(part)
        with pytest.raises(pc.PrivcalcError, match="must be a whole Parquet file"):
            epsilons(path, 20.0, DELTA, out=tmp_path / "out")


def test_files_that_change_while_they_are_read(norms, tmp_path, monkeypatch):
    path, out = written(tmp_path / "in", table(norms)), tmp_path / "out"
    compute = pc.RealisedLosses.epsilon

    def epsilon(self, *asked, **more):
        os.utime(path / "0.parquet")
        return compute(self, *asked, **more)

    monkeypatch.setattr(pc.RealisedLosses, "epsilon", epsilon)
    with pytest.raises(pc.PrivcalcError, match="must not change while they are read"):
        epsilons(path, 20.0, DELTA, out=out)
    assert not list(out.iterdir())


def test_rows_that_do_not_fit_are_refused_in_time(norms, tmp_path, monkeypatch):
    """Sorted by record, all steps of a block are open at once; sorted by step, one."""
    monkeypatch.setattr(blocks, "WAITING", 12)
    by_record = table(norms).sort_by("record")
    with pytest.raises(pc.PrivcalcError, match="sort by step, then record"):
        epsilons(written(tmp_path / "by_record", by_record), 20.0, DELTA, out=tmp_path / "out", size=6)
    audited(written(tmp_path / "by_step", table(norms)), tmp_path / "out", size=6)


def warned(path, out, **more):
    """The beginnings of what is warned of."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        audited(path, out, noise=2.0, **more)
    return [str(one.message)[:40] for one in found]


def test_warnings_are_about_all_blocks(tmp_path):
    """One block whose norms reach the clip norm speaks for the others; batches of one size are seen over blocks."""
    rng = np.random.default_rng(1)
    norms = np.minimum(rng.random((6, 60)), 0.9)
    path = written(tmp_path / "in", table(norms), rows=1000)
    assert warned(path, tmp_path / "out", size=20) == []
    rows = [(t, i) for t in range(30) for i in rng.permutation(400)[:100].tolist()]
    step, record = np.array(rows).T
    path = written(
        tmp_path / "fixed", pa.table({"record": record, "step": step, "norm_ratio": np.ones(3000)}), rows=1000
    )
    assert warned(path, tmp_path / "out", size=200, rate=0.25, delta=0.0)[0].startswith("batches: ")


def test_parts_say_what_they_are_of(norms, tmp_path):
    _, work = epsilons(written(tmp_path / "in", table(norms)), 20.0, DELTA, out=tmp_path / "out", size=5)
    header, _, whole = parts.read_arrays(work.path(2))
    assert whole
    assert header["part"] == 2
    assert json.loads(header["key"])["warning"].startswith("SENSITIVE")


@pytest.mark.slow
def test_poisson_samples_in_any_files(tmp_path):
    """Contours are shared within blocks alone: the same bytes for all files, close to the engine's ε of each record."""
    norms = np.random.default_rng(2).random((30, 40)).round(3)
    first = audited(written(tmp_path / "one", table(norms), rows=2000), tmp_path / "out", noise=1.0, rate=0.1, size=20)[
        0
    ]
    other = written(tmp_path / "two", table(norms).sort_by("record"), rows=9, files=3)
    found = np.asarray(audited(other, tmp_path / "out", noise=1.0, rate=0.1, size=20)[0])
    assert found.tobytes() == np.asarray(first).tobytes()
    for i in (0, 19, 20, 39):
        run = pc.Run.of(pc.PoissonSampled(pc.Gaussian(1 / r), 0.1) for r in norms[:, i].tolist() if r > 0)
        truth = run.epsilon(delta=DELTA)
        assert truth.lower * (1 - 1e-9) <= found[i] <= truth.upper * (1 + 1e-3) + 1e-5
