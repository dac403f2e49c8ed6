"""Opacus in two processes, a ledger in the first one: batches, noise and model of one process with all of it."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest

import privcalc as pc

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")
if not torch.distributed.is_available():
    pytest.skip("torch without torch.distributed", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as multi  # noqa: E402
from opacus import PrivacyEngine  # noqa: E402
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel as Distributed  # noqa: E402
from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from privcalc.interop import opacus as adapter  # noqa: E402

WORLD, RECORDS, STEPS = 2, 120, 8
OPTIONS: dict[str, dict[str, Any]] = {
    "hooks": {},
    "pieces": {},
    "per layer": {"clipping": "per_layer", "max_grad_norm": [0.5] * 4},
    "ghost": {"grad_sample_mode": "ghost"},
    "sharded": {"grad_sample_mode": "ghost_fsdp"},
    "almost empty": {},
}
pytestmark = pytest.mark.service  # two processes that talk


def private(name: str, several: bool) -> tuple[Any, ...]:
    """Module, optimizer, criterion and loader."""
    torch.manual_seed(1)
    x = torch.randn(RECORDS, 5)
    module: Any = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))
    options = dict(OPTIONS[name])
    if several and name == "sharded":
        fully_shard(module, mesh=dist.device_mesh.init_device_mesh("cpu", (WORLD,)))
    elif several:
        module = Distributed(module)
    elif name == "sharded":
        options["grad_sample_mode"] = "ghost"
    made = PrivacyEngine(accountant="rdp").make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.5),
        criterion=nn.CrossEntropyLoss(),
        data_loader=DataLoader(
            TensorDataset(x, (x[:, 0] > 0).long()), batch_size=1 if name == "almost empty" else RECORDS // 4
        ),
        noise_multiplier=1.0,
        **{"max_grad_norm": 1.0} | options,
    )
    return made[0], made[1], made[2] if len(made) == 4 else None, made[-1]


def train(name: str, *, several: bool) -> tuple[list[Any], str]:
    """What is learned, and what is said when the plan is used up."""
    model, optimizer, criterion, loader = private(name, several)
    step = adapter.step_of(optimizer, loader)
    ledger = pc.Ledger(None, plan=step * STEPS, seed=3) if not several or dist.get_rank() == 0 else None
    kept = adapter.keep_ledger(optimizer, loader, ledger, start="random", criterion=criterion)
    optimizer, loader = kept[0], kept[-1]
    loss = nn.functional.cross_entropy if criterion is None else kept[1]
    try:
        while True:
            batches: Any = loader
            if name == "pieces":
                batches = BatchMemoryManager(
                    data_loader=loader, max_physical_batch_size=4, optimizer=optimizer
                ).__enter__()
            for x, y in batches:
                optimizer.zero_grad()
                loss(model(x), y).backward()
                optimizer.step()
    except pc.BudgetExceeded as error:
        said = str(error)
    if ledger is not None:
        assert ledger.spent == ledger.terms.plan
    return [getattr(p, "full_tensor", lambda p=p: p)().detach() for p in model.parameters()], said


def process(rank: int, folder: str, names: list[str]) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=WORLD)
    for name in names:
        torch.save(train(name, several=True), f"{folder}/{name}-{rank}.pt")
    dist.barrier()
    os._exit(0)  # all is said: the threads of gloo may abort a process that ends by tearing them down


@pytest.mark.filterwarnings("ignore")
def test_two_processes_are_one(tmp_path: Path) -> None:
    """With the same bits: batches and noise are the same, and sums but for the order of their terms."""
    multi.spawn(process, args=(str(tmp_path), list(OPTIONS)), nprocs=WORLD)
    for name in OPTIONS:
        alone, said = train(name, several=False)
        for rank in range(WORLD):
            found, told = torch.load(tmp_path / f"{name}-{rank}.pt")
            assert "step_of(optimizer" in told
            assert told == said
            assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, alone, strict=True)), name
