"""Two processes with a part of the records each: the same batches, noise and model as one process with all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privcalc as pc

torch = pytest.importorskip("torch")
if not torch.distributed.is_available():
    pytest.skip("torch without torch.distributed", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as multi  # noqa: E402

from examples.train_on_shards import train  # noqa: E402
from learners import DPSGD  # noqa: E402

ROOT = Path(__file__).parents[2]
WORLD, FIRST, SIZE = 2, 130, 200
"""The first process has 130 of 200 records."""

pytestmark = pytest.mark.service  # two processes that talk


def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((SIZE, 6))
    return torch.from_numpy(x / np.linalg.norm(x, axis=1, keepdims=True)), torch.from_numpy(
        (x[:, 0] > 0).astype(np.int64)
    )


def process(rank: int, folder: str) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=WORLD)
    (x, y), own = data(), slice(0, FIRST) if rank == 0 else slice(FIRST, None)
    torch.save(train(x[own], y[own], None, steps=6, seed=5), f"{folder}/{rank}.pt")
    dist.barrier()
    os._exit(0)  # all is said: the threads of gloo may abort a process that ends by tearing them down


def test_two_processes_are_one(tmp_path: Path) -> None:
    """Sums are exact: the same bytes."""
    multi.spawn(process, args=(str(tmp_path),), nprocs=WORLD)
    x, y = data()
    alone = DPSGD(classes=[0, 1], epsilon=1.0, delta=1e-5, sample_rate=0.1, steps=6, records=SIZE, seed=5).fit(x, y)
    for rank in range(WORLD):
        assert torch.equal(torch.load(tmp_path / f"{rank}.pt"), alone.weights_)


def test_torchrun(tmp_path: Path) -> None:
    """The worked example."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "examples.train_on_shards", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=ROOT, timeout=300)
    assert done.stdout.count("(1, 1e-05)-DP under add-or-remove-one") == 1
    assert min(float(line.split("accuracy ")[1]) for line in done.stdout.splitlines() if "accuracy" in line) > 0.75
    first, second = (torch.load(tmp_path / f"model-{rank}.pt") for rank in range(2))
    assert torch.equal(first, second)
    certificate = pc.Certificate.load(tmp_path / "run.cert.json")
    assert certificate.final
    assert certificate.document["ledgers"] == pc.certify(tmp_path / "run.jsonl", delta=1e-5).document["ledgers"]
