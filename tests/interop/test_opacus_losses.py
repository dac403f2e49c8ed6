"""Losses under Opacus that are no mean, or sum, of one loss for each record: warned of; and those that are: not."""

from __future__ import annotations

import copy
import itertools
import pickle
import re
import warnings
from typing import Any

import pytest

import privcalc as pc

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from opacus.grad_sample import GradSampleModule  # noqa: E402
from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: E402
from private_runs import BATCH, Setting  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from privcalc.interop.opacus.losses import Losses  # noqa: E402

pytestmark = pytest.mark.service  # an engine of its own

loss_of = F.cross_entropy
WEIGHTS = torch.tensor([1.0, 3.0])


def told(loss: Any, *, physical: int | None = None, module: Any = None, gradient: Any = None, **options: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = Setting(module=module, **options)
        for _ in range(3):
            with BatchMemoryManager(
                data_loader=run.loader, max_physical_batch_size=physical or 60, optimizer=run.optimizer
            ) as batches:
                for x, y in batches:
                    run.optimizer.zero_grad()
                    found = loss(run.model(x), y)
                    found.backward(None if gradient is None else torch.full_like(found, gradient))
                    run.optimizer.step()
        run.ledger.close()
    return [str(each.message) for each in caught if issubclass(each.category, pc.PrivcalcWarning)]


def spread(out: Any, y: Any) -> Any:
    out = F.normalize(out, dim=1)
    return loss_of(out @ out.T / 0.5, torch.arange(len(y))) if len(y) else out.sum()


WRONG: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "a sum": (lambda out, y: loss_of(out, y, reduction="sum"), "a mean", {}),
    "a sum by the ledger": (lambda out, y: loss_of(out, y, reduction="sum"), "a mean", {"draws": True}),
    "a sum by expanded weights": (lambda out, y: loss_of(out, y, reduction="sum"), "a mean", {"mode": "ew"}),
    "a sum of pieces": (lambda out, y: loss_of(out, y, reduction="none").sum(), "a mean", {"physical": 6}),
    "a sum over the expected size": (lambda out, y: (loss_of(out, y, reduction="none") / BATCH).sum(), "a mean", {}),
    "a sum of squares": (lambda out, y: 0.5 * ((out[:, 0] - y) ** 2).sum(), "a mean", {}),
    "a sum by its gradient": (lambda out, y: loss_of(out, y, reduction="none"), "a mean", {"gradient": 1.0}),
    "a mean": (loss_of, "a sum", {"loss_reduction": "sum"}),
    "a mean by weights": (lambda out, y: loss_of(out, y, weight=WEIGHTS), "weights", {}),
    "a mean of some": (lambda out, y: loss_of(out, torch.where(out[:, 0] > 0, -100, y)), "weights", {}),
    "a root of a mean": (lambda out, y: F.mse_loss(out[:, 0], y.float()).sqrt(), "pairs", {}),
    "a square of a mean": (lambda out, y: loss_of(out, y) ** 2, "pairs", {}),
    "a norm": (lambda out, y: (out[:, 0] - y).norm(), "pairs", {}),
    "a largest loss, smoothly": (lambda out, y: loss_of(out, y, reduction="none").logsumexp(dim=0), "pairs", {}),
    "outputs that are centred": (lambda out, y: loss_of(out - out.mean(dim=0), y), "pairs", {}),
    "outputs that are compared": (spread, "pairs", {}),
    "one mean that is to be small": (lambda out, y: loss_of(out, y) + out.mean(dim=0).pow(2).sum(), "pairs", {}),
    "labels of all": (lambda out, y: ((out - y) ** 2).mean(), "pairs", {"module": nn.Linear(5, 1)}),
}
SAYS = {
    "a mean": "^loss_reduction = 'mean': the loss is no mean over the records",
    "a sum": "^loss_reduction = 'sum': the loss is no sum over the records",
    "weights": "^criterion: a mean by weight=, or with ignore_index",
    "pairs": "^criterion: the gradient of one record follows from the outputs of others",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_loss_that_is_not_of_each_record_is_warned_of(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loss, what, options = WRONG[name]
    monkeypatch.setattr(Setting, "draws", options.get("draws", False))
    said = told(loss, **{key: value for key, value in options.items() if key != "draws"})
    assert any(re.match(SAYS[what], text) for text in said)


def looped(out: Any, y: Any) -> Any:
    return sum((loss_of(out[i : i + 1], y[i : i + 1]) for i in range(len(y))), 0 * out.sum()) / max(len(y), 1)


STEPS = itertools.count(1)


class Encoder(nn.Module):
    """Of whose outputs one is made of the other."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(5, 4), nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        middle, width = self.encoder(x).chunk(2, dim=1)
        return self.decoder(middle + torch.randn_like(middle) * width.exp()), middle, width


def variational(outs: Any, y: Any) -> Any:
    out, middle, width = outs
    return (loss_of(out, y, reduction="none") + 0.5 * (middle**2 + (2 * width).exp() - 2 * width).sum(dim=1)).mean()


class Twice(nn.Module):
    """Rows of a record beside those of others, of which its own loss may have several."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, 6)

    def forward(self, x: Any) -> Any:
        return self.head(x).reshape(-1, 2)


def within(out: Any, y: Any) -> Any:
    mine = out.reshape(-1, 3, 2)
    return loss_of((mine - mine.mean(dim=1, keepdim=True)).transpose(1, 2), y[:, None].expand(-1, 3))


RIGHT: dict[str, tuple[Any, dict[str, Any]]] = {
    "a mean": (loss_of, {}),
    "a mean, by a ghost": (loss_of, {"mode": "ghost"}),
    "a mean by expanded weights": (loss_of, {"mode": "ew"}),
    "a sum": (lambda out, y: loss_of(out, y, reduction="sum"), {"loss_reduction": "sum"}),
    "a sum over the size": (lambda out, y: loss_of(out, y, reduction="sum") / max(len(y), 1), {}),
    "a sum of parts": (lambda out, y: (loss_of(out, y, reduction="none") / max(len(y), 1)).sum(), {}),
    "a product of vectors": (lambda out, y: loss_of(out, y, reduction="none") @ torch.full((len(y),), 1 / max(len(y), 1)), {}),
    "a loop": (looped, {}),
    "weights of one size": (lambda out, y: loss_of(out, y, weight=3 * torch.ones(2)), {}),
    "weights of records": (lambda out, y: loss_of(out, y, weight=WEIGHTS, reduction="none").mean(), {}),
    "smooth labels": (lambda out, y: loss_of(out, y, label_smoothing=0.1), {}),
    "a public schedule": (lambda out, y: loss_of(out, y) / next(STEPS), {}),
    "a divergence": (lambda out, y: F.kl_div(out.log_softmax(1), F.one_hot(y, 2) * 0.8 + 0.1, reduction="batchmean"), {}),
    "a mean, then a sum": (lambda out, y: ((out - F.one_hot(y, 2)) ** 2).mean(dim=0).sum(), {}),
    "focus": (lambda out, y: ((1 - (-(c := loss_of(out, y, reduction="none"))).exp()) ** 2 * c).mean(), {}),
    "a root of each": (lambda out, y: ((out - F.one_hot(y, 2)) ** 2).sum(dim=1).sqrt().mean(), {}),
    "one output": (lambda out, y: F.mse_loss(out, y.float()[:, None]), {"module": nn.Linear(5, 1)}),
    "outputs of outputs": (variational, {"module": Encoder()}),
    "rows of one record": (within, {"module": Twice()}),
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("physical", [None, 6])
def test_a_loss_of_each_record_is_not_warned_of(name: str, physical: int | None) -> None:
    loss, options = RIGHT[name]
    options = {**options, "module": copy.deepcopy(options["module"])} if "module" in options else options
    if options.get("mode") == "ghost":
        with warnings.catch_warnings():
            warnings.simplefilter("error", pc.PrivcalcWarning)
            run = Setting(**options)
            for _ in range(3):
                run.epoch()
    else:
        assert told(loss, physical=physical, **options) == []


def test_what_is_remembered_of_losses_is_not_copied() -> None:
    """It has sizes of batches."""
    losses = Losses()
    losses.note(0, 17, 1.0, None)
    assert vars(copy.deepcopy(losses)) == vars(Losses())
    assert vars(pickle.loads(pickle.dumps(losses))) == vars(Losses())


@pytest.mark.parametrize(("loss", "least"), [(torch.sqrt, 1.3), (lambda mean: mean, 0.0)])
def test_a_root_of_a_mean_moves_sums_by_more_than_the_clip_norm(loss: Any, least: float) -> None:
    """Nine records with a small loss, and one with a large one that makes their gradients short: without it all are clipped."""
    private = GradSampleModule(nn.Linear(1, 1, bias=False))
    nn.init.zeros_(private._module.weight)

    def total(y: Any) -> Any:
        private.zero_grad()
        loss((private(torch.ones(len(y), 1))[:, 0] - y).pow(2).mean()).backward()
        rows = private._module.weight.grad_sample.flatten().double()
        return float(rows.clamp(-1.0, 1.0).sum())

    y = torch.tensor([1.0] * 9 + [-1000.0])
    moved = abs(total(y) - total(y[:9]))
    assert moved >= least
    assert (moved <= 1 + 1e-6) == (least == 0.0)
