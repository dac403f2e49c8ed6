"""Runs of several processes, and killed runs that go on: one plan, charged before it is drawn, and never twice."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import warnings
from pathlib import Path
from typing import Any

import pytest

import privcalc as pc

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

import torch.distributed as dist  # noqa: E402
from opacus import PrivacyEngine  # noqa: E402
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel  # noqa: E402
from opacus.utils.fsdp_utils import FSDP2Wrapper  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from privcalc.interop import opacus as adapter  # noqa: E402
from privcalc.interop.torch import loader as plain_loader  # noqa: E402

pytestmark = pytest.mark.service  # processes of their own

RECORDS, BATCH, STEPS, KILLED = 60, 15, 12, 5
adapter.register()
FORK = multiprocessing.get_context("fork")


def private(module: Any, mode: str = "hooks") -> tuple[Any, ...]:
    """Engine, module, optimizer, criterion and loader."""
    x = torch.randn(RECORDS, 5, generator=torch.Generator().manual_seed(1))
    engine = PrivacyEngine(accountant="privcalc")
    options = {"criterion": torch.nn.CrossEntropyLoss()} if mode != "hooks" else {}
    module, optimizer, *criterion, loader = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.5),
        data_loader=DataLoader(TensorDataset(x, (x.sum(dim=1) > 0).long()), batch_size=BATCH),
        noise_multiplier=2.0,
        max_grad_norm=1.0,
        grad_sample_mode=mode,
        **options,
    )
    return engine, module, optimizer, (criterion or [torch.nn.functional.cross_entropy])[0], loader


def small() -> Any:
    torch.seed()
    return torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))


def lives(target: Any, *args: Any, world: int = 1) -> list[int | None]:
    """Processes to their end; how each ended."""
    all_of_them = [FORK.Process(target=target, args=(*args, rank)) for rank in range(world)]
    for each in all_of_them:
        each.start()
    for each in all_of_them:
        each.join(120)
    return [each.exitcode for each in all_of_them]


def seen(path: Path) -> list[str]:
    """What was written before the end came, by all lives."""
    return path.read_text().splitlines() if path.exists() else []


def write(path: Path, text: str) -> None:
    with path.open("a") as file:
        print(text, file=file, flush=True)


# --- killed, and gone on with ---


def by_opacus(folder: Path, draws: bool, rank: int) -> None:
    """Train until the plan is used up; the first life ends after KILLED steps, some not in the last checkpoint."""
    warnings.simplefilter("error", pc.PrivcalcWarning)
    torch.set_num_threads(1)
    engine, module, optimizer, criterion, loader = private(small())
    first = not (folder / "run.pt").exists()
    if not first:
        engine.load_checkpoint(path=folder / "run.pt", module=module, optimizer=optimizer)
    plan = adapter.step_of(optimizer, loader, draws=draws) * STEPS
    ledger = pc.Ledger(folder / "run.jsonl", plan=plan, public={"records": RECORDS})
    optimizer, loader = adapter.keep_ledger(optimizer, loader, ledger, start="random", draws=draws, ahead=2)
    try:
        while True:
            for x, y in loader:
                optimizer.zero_grad()
                criterion(module(x), y).backward()
                optimizer.step()
                write(folder / "steps", "step")
                if len(seen(folder / "steps")) in (2, KILLED - 1):
                    engine.save_checkpoint(path=folder / "run.pt", module=module, optimizer=optimizer)
                if first and len(seen(folder / "steps")) == KILLED:
                    os.kill(os.getpid(), signal.SIGKILL)
    except pc.BudgetExceeded:
        ledger.close()
    os._exit(0)


def by_hand(folder: Path, _: bool, rank: int) -> None:
    """The same by the loader for plain PyTorch."""
    torch.set_num_threads(1)
    step, theta = pc.PoissonSampled(pc.Gaussian(2.0), 0.25), torch.zeros(5)
    first = not seen(folder / "steps")
    with pc.Ledger(folder / "run.jsonl", plan=step * STEPS, public={"records": RECORDS}) as ledger:
        for batch in plain_loader(
            ledger, TensorDataset(torch.ones(RECORDS, 5)), step, like=theta, clip_norm=1.0, start="random", at_most=4
        ):
            for piece in batch:
                piece.add(piece.records[0])
            theta = theta + batch.release()
            write(folder / "steps", "step")
            if first and len(seen(folder / "steps")) == KILLED:
                os.kill(os.getpid(), signal.SIGKILL)
    os._exit(0)


@pytest.mark.parametrize(
    ("train", "draws"),
    [(by_opacus, False), (by_opacus, True), (by_hand, True)],
    ids=["opacus", "opacus, ledger", "plain"],
)
def test_a_run_that_was_killed_goes_on_within_its_plan(train: Any, draws: bool, tmp_path: Path) -> None:
    assert lives(train, tmp_path, draws) == [-signal.SIGKILL]
    middle = pc.certify(tmp_path / "run.jsonl", delta=1e-5)
    assert not middle.final
    assert pc.Run.of([middle.run]).entries[0][1] == STEPS  # the whole plan, whatever ran
    assert lives(train, tmp_path, draws) == [0]
    found = pc.certify(tmp_path / "run.jsonl", delta=1e-5)
    assert found.final
    assert found.guarantee == middle.guarantee
    (recorded,) = found.document["recorded"]
    steps = len(seen(tmp_path / "steps"))
    assert KILLED < steps <= recorded["count"] <= STEPS  # what a crash had reserved is lost, and counts
    assert found.verify(tmp_path / "run.jsonl", seconds=float("inf"))


# --- several processes ---


def meet(folder: Path, world: int, rank: int) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)


def told(call: Any) -> str:
    try:
        call()
    except pc.PrivcalcError as error:
        return str(error)
    return ""


WRAPPED = {
    "FSDPOptimizerFastGradientClipping": (FSDP2Wrapper, "ghost_fsdp"),
    "DistributedDPOptimizer": (DifferentiallyPrivateDistributedDataParallel, "hooks"),
    "DistributedDPOptimizerFastGradientClipping": (DifferentiallyPrivateDistributedDataParallel, "ghost"),
}


def distributed_opacus(folder: Path, rank: int) -> None:
    meet(folder, 1, rank)
    found: dict[str, Any] = {}
    for name, (wrap, mode) in WRAPPED.items():
        _, module, optimizer, criterion, loader = private(wrap(small()), mode)
        before = [p.detach().clone() for p in module.parameters()]

        def step(
            module: Any = module, optimizer: Any = optimizer, criterion: Any = criterion, loader: Any = loader
        ) -> None:
            x, y = next(iter(loader))
            optimizer.zero_grad()
            criterion(module(x), y).backward()
            optimizer.step()

        refusal = told(step)
        same = all(
            torch.equal(torch.as_tensor(a), torch.as_tensor(b))
            for a, b in zip(before, module.parameters(), strict=True)
        )
        found[name] = refusal, same
    (folder / "found.json").write_text(json.dumps(found))
    os._exit(0)


def test_distributed_training_under_opacus_without_a_ledger_is_refused_by_name(tmp_path: Path) -> None:
    assert lives(distributed_opacus, tmp_path) == [0]
    found = json.loads((tmp_path / "found.json").read_text())
    assert list(found) == list(WRAPPED)
    for name, (step, same) in found.items():  # under a ledger it is supported: test_opacus_processes.py
        assert step.endswith("or a ledger must draw batches and noise (keep_ledger)")
        assert step.startswith(f"optimizer = {name}, whose loader leaves out empty batches: must be one of DPOptimizer")
        assert same


PLAN = pc.PoissonSampled(pc.Gaussian(2.0), 0.25)


def two_at_one_ledger(folder: Path, rank: int) -> None:
    """One of two has the ledger; the first life ends in the middle, in both."""
    meet(folder, 2, rank)
    first = not seen(folder / "steps-0")
    ledger = pc.Ledger(folder / "run.jsonl", plan=PLAN * STEPS) if rank == 0 else None
    dist.barrier()
    if rank == 0:
        alone = pc.Ledger(None, plan=PLAN)
        how = {"like": torch.zeros(1), "clip_norm": 1.0, "start": "random"}
        write(folder / "said", told(lambda: plain_loader(alone, [1, 2], PLAN, **how)))
    else:
        write(folder / "said", told(lambda: pc.Ledger(folder / "run.jsonl", plan=PLAN * STEPS)))

    def of_first(value):
        found = [value]
        dist.broadcast_object_list(found, src=0)
        return found[0]

    while of_first(ledger and ledger.has_batch(PLAN)):
        batch = ledger and ledger.batch(PLAN, records=RECORDS)
        indices = of_first(batch and batch.indices)
        total = torch.full((3,), float((indices % 2 == rank).sum()), dtype=torch.float64)  # every second record is here
        dist.reduce(total, dst=0)
        noisy = of_first(ledger and ledger.gaussian(total, PLAN, clip_norm=1.0, batch=batch))
        write(folder / f"steps-{rank}", f"{noisy.tolist()}")
        if first and len(seen(folder / f"steps-{rank}")) == KILLED:
            dist.barrier()
            os.kill(os.getpid(), signal.SIGKILL)
    if ledger:
        ledger.__exit__(None, None, None)
    dist.barrier()
    os._exit(0)


def test_two_processes_share_one_plan_also_after_both_were_killed(tmp_path: Path) -> None:
    assert lives(two_at_one_ledger, tmp_path, world=2) == [-signal.SIGKILL] * 2
    (tmp_path / "meet").unlink()
    assert lives(two_at_one_ledger, tmp_path, world=2) == [0, 0]
    one, other = seen(tmp_path / "steps-0"), seen(tmp_path / "steps-1")
    assert one == other  # both have what was released, and its noise once
    assert len(set(one)) == len(one)
    found = pc.certify(tmp_path / "run.jsonl", delta=1e-5)
    (recorded,) = found.document["recorded"]
    assert KILLED < len(one) <= recorded["count"] <= STEPS
    said = seen(tmp_path / "said")
    assert sorted(text.partition(":")[0] for text in said) == [
        "loader",
        "loader",
        *[f"path = {str(tmp_path / 'run.jsonl')!r}"] * 2,
    ]
    assert all("another writer" in text for text in said if text.startswith("path"))
