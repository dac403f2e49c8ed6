"""Two processes with half of the records each: the same model, noise, ledger and certificate as one process with all of them."""

from __future__ import annotations

import os
import pickle
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

from learners import DOPESGD, DPLS, DPSGD, PDADPMD, PILLAR, AdaMix, DPPLMean, DPPLPublic, NoisyGD, WhitenedGD  # noqa: E402
from learners.distributed import ShardedLedger, Shards  # noqa: E402

ROOT = Path(__file__).parents[2]
WORLD, FIRST = 2, 130
"""The first process has 130 of 200 records."""


pytestmark = pytest.mark.service  # two processes that talk


def data() -> tuple[Any, list[int]]:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((200, 6))
    return x / np.linalg.norm(x, axis=1, keepdims=True), (x[:, 0] > 0).astype(int).tolist()


TARGET = {"classes": [0, 1], "delta": 1e-5, "epsilon": 2.0}
STEPS = {**TARGET, "steps": 6, "records": 200}
MAKE: dict[str, Any] = {
    "NoisyGD": lambda **options: NoisyGD(**STEPS, **options),
    "replace-one": lambda **options: NoisyGD(**TARGET, steps=6, relation=pc.REPLACE_ONE, **options),
    "DPSGD": lambda **options: DPSGD(**STEPS, sample_rate=0.3, momentum=0.5, **options),
    "fixed size": lambda **options: DPSGD(**STEPS, sample_rate=0.3, sampler="fixed", **options),
    "network": lambda **options: DPSGD(**STEPS, sample_rate=0.3, model=network, **options),
    "PILLAR": lambda **options: PILLAR(**STEPS, k=3, sample_rate=0.3, basis="jl", **options),
    "DPPLMean": lambda **options: DPPLMean(**TARGET, **options),
    "DPPLPublic": lambda **options: DPPLPublic(classes=[0, 1], epsilon=2.0, **options),
    "DPLS": lambda **options: DPLS(**TARGET, **options),
    "AdaMix": lambda **options: AdaMix(**STEPS, **options),
    "WhitenedGD": lambda **options: WhitenedGD(**STEPS, **options),
    "DOPESGD": lambda **options: DOPESGD(**STEPS, sample_rate=0.3, **options),
    "PDADPMD": lambda **options: PDADPMD(**STEPS, sample_rate=0.3, **options),
}


def network() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))


def public(name: str) -> tuple[Any, ...]:
    """Public records, for those who want them."""
    wanted = ("DPPLPublic", "AdaMix", "DOPESGD", "PDADPMD", "WhitenedGD")
    return (np.eye(6), [1, 0, 1, 0, 1, 0]) if name in wanted else ()


def part(rank: int) -> slice:
    return slice(0, FIRST) if rank == 0 else slice(FIRST, None)


def train_all(rank: int, folder: Path) -> dict[str, Any]:
    """Every learner, with a seed, on this process's records; what is seen of it from outside."""
    x, y = data()
    found: dict[str, Any] = {}
    for name, make in MAKE.items():
        model = make(seed=5).fit(x[part(rank)], y[part(rank)], *public(name), shards=Shards())
        found[name] = model.weights_.numpy(), dict(model.certificate_.document), model.ledger_ is None
    for name in ("NoisyGD", "DPSGD"):
        model = MAKE[name](seed=5).fit(x[part(rank)], y[part(rank)], norms_every=1, shards=Shards())
        found[f"{name} audited"] = np.asarray(model.losses_.epsilon(delta=1e-5))
    secret = MAKE["network"](ledger=folder / "run.jsonl").fit(x[part(rank)], y[part(rank)], shards=Shards())
    found["secret"] = secret.weights_.numpy(), dict(secret.certificate_.document)
    return found


def errors_all(rank: int, folder: Path) -> dict[str, Any]:
    """What goes wrong goes wrong everywhere, and nothing is left that waits."""
    x, y = data()
    shards, found = Shards(), {}
    step = pc.Gaussian(1.0)
    sampled = pc.PoissonSampled(step, 0.5)

    def told(call: Any) -> str:
        try:
            call()
        except (pc.PrivcalcError, OSError) as error:
            return str(error)
        return ""

    def ledger(plan: Any) -> ShardedLedger:
        return ShardedLedger(shards, lambda: pc.Ledger(None, plan=plan))

    one = ledger(step * 2)
    zeros = torch.zeros(3, dtype=torch.float64)
    found["clip norm"] = told(lambda: one.gaussian(zeros, step, clip_norm=1.0 + rank))
    found["shape"] = told(lambda: one.gaussian(zeros[rank:], step, clip_norm=1.0))
    found["not finite"] = told(lambda: one.gaussian(zeros + float("nan") * rank, step, clip_norm=1.0))
    found["nothing was charged"] = told(lambda: [one.gaussian(zeros, step, clip_norm=1.0) for _ in range(2)])
    found["plan"] = told(lambda: one.gaussian(zeros, step, clip_norm=1.0))
    other = ledger(sampled * 2)
    old = other.batch(sampled, records=5)
    other.gaussian(zeros, sampled, clip_norm=1.0, batch=old)
    other.batch(sampled, records=5)
    found["batch"] = told(lambda: other.gaussian(zeros, sampled, clip_norm=1.0, batch=old))
    found["no batch"] = told(lambda: other.gaussian(zeros, sampled, clip_norm=1.0))
    found["settings"] = told(lambda: NoisyGD(**{**STEPS, "steps": 6 + rank}).fit(x, y, shards=shards))
    found["target"] = told(lambda: ShardedLedger(shards, lambda: pc.Ledger(folder / "none" / "x", plan=step)))
    return found


def meet(rank: int, folder: str, world: int) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)


def process(rank: int, folder: str) -> None:
    meet(rank, folder, WORLD)
    found = train_all(rank, Path(folder)) | {"errors": errors_all(rank, Path(folder))}
    (Path(folder) / f"{rank}.pickle").write_bytes(pickle.dumps(found))
    dist.barrier()
    os._exit(0)  # all is said: the threads of gloo may abort a process that ends by tearing them down


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("shards")
    multi.spawn(process, args=(str(folder),), nprocs=WORLD)
    return [pickle.loads((folder / f"{rank}.pickle").read_bytes()) for rank in range(WORLD)]


@pytest.mark.parametrize("name", MAKE)
def test_two_processes_are_one(name: str, trained: list[dict[str, Any]]) -> None:
    x, y = data()
    alone = MAKE[name](seed=5).fit(x, y, *public(name))
    for rank, found in enumerate(trained):
        weights, document, without_ledger = found[name]
        if name == "network":
            assert weights == pytest.approx(alone.weights_.numpy(), rel=1e-9, abs=1e-5)
        else:  # sums are exact: the same bytes
            assert np.array_equal(weights, alone.weights_.numpy())
        assert document == alone.certificate_.document  # the ledger's hash and all
        assert without_ledger == (rank > 0)
    assert np.array_equal(trained[0][name][0], trained[1][name][0])


ENDS = (0, 1, 30, 31, 77, 120, 121, 199, 200)
"""Of the records of eight processes; some have one."""


OF_EIGHT = {name: MAKE[name] for name in ("NoisyGD", "replace-one", "DPPLMean", "DPPLPublic", "DPLS", "AdaMix")} | {
    "DPSGD": lambda **options: DPSGD(
        **{k: v for k, v in STEPS.items() if k != "epsilon"}, noise_multiplier=1.0, sample_rate=0.3, **options
    )
}


def one_of_eight(rank: int, folder: str) -> None:
    """The learners whose sums are exact, each with a seed: weights."""
    meet(rank, folder, 8)
    (x, y), own = data(), slice(ENDS[rank], ENDS[rank + 1])
    found = {
        name: make(seed=5).fit(x[own], y[own], *public(name), shards=Shards()).weights_.numpy() for name, make in OF_EIGHT.items()
    }
    (Path(folder) / f"{rank}.pickle").write_bytes(pickle.dumps(found))
    dist.barrier()
    os._exit(0)


@pytest.mark.slow
def test_eight_processes_are_one(tmp_path: Path) -> None:
    multi.spawn(one_of_eight, args=(str(tmp_path),), nprocs=8)
    x, y = data()
    parts = [pickle.loads((tmp_path / f"{rank}.pickle").read_bytes()) for rank in range(8)]
    for name in parts[0]:
        alone = OF_EIGHT[name](seed=5).fit(x, y, *public(name)).weights_.numpy()
        assert all(np.array_equal(found[name], alone) for found in parts), name


@pytest.mark.parametrize("name", ["NoisyGD", "DPSGD"])
def test_each_process_audits_its_own_records(name: str, trained: list[dict[str, Any]]) -> None:
    x, y = data()
    alone = MAKE[name](seed=5).fit(x, y, norms_every=1).losses_
    found = np.concatenate([one[f"{name} audited"] for one in trained])
    # Records share a grid: with others beside it one is found elsewhere, within the audit's 1e-4.
    assert found == pytest.approx(np.asarray(alone.epsilon(delta=1e-5)), rel=2e-5)


def test_without_a_seed_all_have_one_model_and_one_certificate(trained: list[dict[str, Any]]) -> None:
    (weights, document), (others, same) = (one["secret"] for one in trained)
    assert np.array_equal(weights, others)
    assert not np.allclose(weights, trained[0]["network"][0])
    assert document == same
    assert not document["seeded"]
    assert document["public"]["records"] == 200
    assert str(FIRST) not in str({k: v for k, v in document.items() if k not in {"hash", "ledgers", "curve", "beta"}})


def test_what_goes_wrong_does_so_in_every_process(trained: list[dict[str, Any]]) -> None:
    one, two = (found["errors"] for found in trained)
    assert one.keys() == two.keys()
    for found in (one, two):
        for name in ("clip norm", "shape", "settings"):
            assert "all processes must do the same" in found[name]
        assert "finite" in found["not finite"]
        assert found["nothing was charged"] == ""
        assert "0 more of it" in found["plan"]
        assert "drawn last" in found["batch"]
        assert "batch" in found["no batch"]
    assert "process 0 stopped" in two["target"]


def test_without_processes() -> None:
    with pytest.raises(pc.PrivcalcError, match="init_process_group"):
        Shards()


def test_torchrun(tmp_path: Path) -> None:
    """The worked example."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    script = str(ROOT / "examples" / "train_on_shards.py")
    done = subprocess.run(
        [*command, script, str(tmp_path)], capture_output=True, text=True, check=True, env=environment, timeout=300
    )
    assert done.stdout.count("(1, 1e-05)-DP under add-or-remove-one") == 2
    first, second = (torch.load(tmp_path / f"model-{rank}.pt") for rank in range(2))
    assert torch.equal(first, second)
    certificate = pc.Certificate.load(tmp_path / "run.cert.json")
    assert certificate.final
    assert certificate.document["ledgers"] == pc.certify(tmp_path / "run.jsonl", delta=1e-5).document["ledgers"]
