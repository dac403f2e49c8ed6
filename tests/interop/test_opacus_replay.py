"""Loops under Opacus, replayed: right ones show nothing, and what is wrong with others is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import privcalc as pc
from privcalc.attacks.replay import replay

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from opacus import PrivacyEngine  # noqa: E402

from privcalc.interop.opacus import keep_ledger, step_of  # noqa: E402

rng = np.random.default_rng(0)
X = rng.standard_normal((24, 4)).astype(np.float32)
Y = (X.sum(axis=1) > 0).astype(np.int64)


class ByBatch(torch.nn.Module):  # type: ignore[misc]
    """As a batch norm that Opacus does not know."""

    def forward(self, x: Any) -> Any:
        """Centred by the batch."""
        return x - x.mean(dim=0) if len(x) else x


def training(bug: str = "", mode: str = "hooks", draws: Any = True) -> Any:
    """Three steps, whose batches and noise are a ledger's; it asks for a look at the first one."""

    def train(data: Any) -> Any:
        torch.manual_seed(1)
        x, y = (torch.as_tensor(each) for each in data)
        x = torch.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0).clamp(-1e3, 1e3)
        model: Any = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
        if bug == "batches":
            model.insert(0, ByBatch())
        if bug == "standardised":
            x = (x - x.mean(dim=0)) / x.std(dim=0)
        made = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5),
            data_loader=torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8),
            criterion=torch.nn.CrossEntropyLoss(),
            noise_multiplier=1.0,
            max_grad_norm=10.0 if bug == "sums" else 0.1,
            grad_sample_mode=mode,
        )
        model, optimizer, criterion, loader = made[0], made[1], made[2] if mode == "ghost" else None, made[-1]
        optimizer.expected_batch_size = 8 if bug != "divides by the batch" else len(x)
        ledger = pc.Ledger(None, plan=step_of(optimizer, loader, draws=draws) * 3)
        optimizer, *criteria, loader = keep_ledger(
            optimizer, loader, ledger, start="random", criterion=criterion, draws=draws, look=(train, data)
        )
        loss_of = criteria[0] if criteria else torch.nn.CrossEntropyLoss(reduction="sum" if bug == "sums" else "mean")
        total = 0.0
        for _, (features, labels) in zip(range(3), loader, strict=False):
            optimizer.zero_grad()
            loss = loss_of(model(features), labels)
            total += float(loss.item())
            if bug == "skips what is far" and features.abs().max() > 100:
                continue
            loss.backward()
            optimizer.step()
        state = [p.detach().numpy().copy() for p in model.parameters()]
        return (state, total) if bug == "tells the loss" else state

    return train


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_a_right_loop_shows_nothing(mode: str) -> None:
    report = replay(training(mode=mode), (X, Y), doors=pc.Ledger)
    assert report.findings == (), str(report)
    assert report.releases == 3
    assert 0.5 < report.largest <= 1


@pytest.mark.parametrize(("bug", "shown"), [("", "nothing found"), ("sums", "sensitivity"), ("batches", "interaction")])
def test_a_look_comes_before_the_first_step(bug: str, shown: str, capsys: Any) -> None:
    training(bug)((X, Y))
    assert shown in capsys.readouterr().err


@pytest.mark.parametrize("draws", [False, "noise"])
def test_a_look_is_where_a_ledger_draws(draws: Any) -> None:
    with pytest.raises(pc.PrivcalcError, match="look: is for one process and draws=True"):
        training(draws=draws)((X, Y))


@pytest.mark.parametrize(
    ("bug", "kind"),
    [
        ("standardised", "sensitivity"),
        ("sums", "sensitivity"),
        ("divides by the batch", "output"),
        ("tells the loss", "output"),
        ("skips what is far", "refusal"),
    ],
)
def test_what_is_wrong_is_found(bug: str, kind: str) -> None:
    report = replay(training(bug), (X, Y), doors=pc.Ledger, search=5)
    assert kind in report.kinds, str(report)


def test_a_rate_of_the_private_number_is_found() -> None:
    """One record more makes it another: ⌈n/8⌉ batches. Opacus takes n as public."""
    more = np.concatenate([X, X[:1]]), np.concatenate([Y, Y[:1]])
    assert "control flow" in replay(training(), more, doors=pc.Ledger).kinds
    assert replay(training(), more, doors=pc.Ledger, relation=pc.REPLACE_ONE).kinds == ()
