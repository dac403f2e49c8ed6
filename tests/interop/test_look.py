"""``look=`` of the torch loader: what is wrong with a first step is shown before it, kept nowhere and never charged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import privcalc as pc
from privcalc.attacks.replay import look_first

torch = pytest.importorskip("torch")

from privcalc.interop.torch import RecordGradients, loader  # noqa: E402

rng = np.random.default_rng(0)
X = rng.standard_normal((24, 4)).astype(np.float32)
Y = (X.sum(axis=1) > 0).astype(np.int64)
STEP = pc.PoissonSampled(pc.Gaussian(noise_multiplier=1.0), rate=0.25)


def rows_of(weights: Any, x: Any, y: Any, bug: str) -> Any:
    """What a user takes for the gradient of each record."""
    gaps = torch.tanh(x @ weights) - y
    if bug == "loss mixes":
        gaps = gaps - gaps.mean()
    return gaps[:, None] * x


def training(bug: str = "", *, owned: bool = False, always: Any = None) -> Any:
    """Two steps, which ask for a look at the first one."""

    def train(data: Any, path: Any = always) -> Any:
        x, y = (torch.as_tensor(each) for each in data)
        x = (x - x.mean(dim=0)) / (x.std(dim=0) + 1) if bug == "normalised" else x.clamp(-1e3, 1e3)
        gradients: Any = RecordGradients(torch.nn.Linear(4, 2), torch.nn.functional.cross_entropy) if owned else None
        how: Any = {"like": gradients or torch.zeros(4), "clip_norm": 5.0, "start": "random", "look": (train, data)}
        weights = torch.zeros(4)
        with pc.Ledger(path, plan=STEP * 2) as ledger:
            for batch in loader(ledger, torch.utils.data.TensorDataset(x, y), STEP, **how):
                for piece in () if owned else batch:
                    piece.add(rows_of(weights, *piece.records, bug))
                weights = weights - batch.release().flatten()[:4] / 6
        return ledger

    return train


@pytest.mark.parametrize("owned", [False, True])
def test_a_right_script_is_charged_for_its_own_steps_alone(owned: bool, capsys: Any, tmp_path: Any) -> None:
    ledger = training(owned=owned)((X, Y), tmp_path / "run.jsonl")
    out, err = capsys.readouterr()
    assert (out, err.count("nothing found")) == ("", 1)
    assert ledger.spent == STEP * 2


@pytest.mark.parametrize(("bug", "kind"), [("normalised", "sensitivity"), ("loss mixes", "interaction")])
def test_what_is_found_is_shown_and_kept_nowhere(bug: str, kind: str, capsys: Any, tmp_path: Any) -> None:
    ledger = training(bug)((X, Y), tmp_path / "run.jsonl")
    assert f"{kind}: release 1" in capsys.readouterr().err
    kept = (tmp_path / "run.jsonl").read_text(encoding="utf-8") + str(pc.certify(ledger, delta=1e-5).document)
    assert not any(word in kept for word in ("moved by", "last record", "replay"))


def test_a_look_cannot_charge_the_ledger_of_the_run(tmp_path: Any) -> None:
    path = tmp_path / "run.jsonl"
    with pytest.raises(pc.PrivcalcError, match="open"):
        training(always=path)((X, Y))
    assert pc.Ledger(path, plan=STEP * 2).spent.entries == ()


def test_generators_go_on_as_if_nobody_had_looked() -> None:
    before = torch.get_rng_state()
    look_first((training(), (X, Y)), pc.Ledger, relation=pc.ADD_OR_REMOVE_ONE)
    assert before.equal(torch.get_rng_state())


@pytest.mark.parametrize("look", [len, (len,), (1, X)])
def test_what_is_no_training_and_data_is_refused(look: Any) -> None:
    ledger, data = pc.Ledger(None, plan=STEP), torch.utils.data.TensorDataset(torch.ones(9, 1))
    with pytest.raises(pc.PrivcalcError, match=r"look|process"):
        loader(ledger, data, STEP, like=torch.zeros(1), clip_norm=1.0, start="random", look=look)
