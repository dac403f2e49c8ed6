"""Levels and budgets that are no numbers are refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import privcalc as pc
from privcalc.audit import RealisedLosses


@pytest.mark.parametrize("bad", [2.0, [float("nan")], [[1], [1, 2]], "abc", None, {}, np.ones(2) * 1j, [[[0.5]]]], ids=repr)
def test_quantile_levels_are_checked(bad: Any) -> None:
    losses = RealisedLosses(2, 1.0)
    losses.update([0.5, 0.5])
    with pytest.raises(pc.PrivcalcError, match="levels"):
        losses.quantiles(1e-5, bad)


def test_renyi_budgets_are_checked() -> None:
    with pytest.raises(pc.PrivcalcError, match="epsilons"):
        pc.RDP([2.0], [[1], [1, 2]])
