"""Levels and budgets that are no numbers are refused by name."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import privcalc as pc
from privcalc import files
from privcalc.audit import RealisedLosses, norms


@pytest.mark.parametrize(
    "bad", [2.0, [float("nan")], [[1], [1, 2]], "abc", None, {}, np.ones(2) * 1j, [[[0.5]]]], ids=repr
)
def test_quantile_levels_are_checked(bad: Any) -> None:
    losses = RealisedLosses(2, 1.0)
    losses.update([0.5, 0.5])
    with pytest.raises(pc.PrivcalcError, match="levels"):
        losses.quantiles(1e-5, bad)


def test_renyi_budgets_are_checked() -> None:
    with pytest.raises(pc.PrivcalcError, match="epsilons"):
        pc.RDP([2.0], [[1], [1, 2]])


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    """A few kilobytes of deflated zeros are megabytes: refused by what the archive says, before it is unpacked."""
    np.savez_compressed(tmp_path / "norms.npz", norm_ratio=np.zeros((1000, 1000)))
    assert (tmp_path / "norms.npz").stat().st_size < 20_000
    assert norms.read_norms(tmp_path / "norms.npz", 1.0, 1.0)[2] == 1000
    monkeypatch.setattr(norms, "archive", functools.partial(files.archive, limit=1_000_000))
    with pytest.raises(pc.PrivcalcError, match="must unpack to at most 1,000,000 bytes"):
        norms.read_norms(tmp_path / "norms.npz", 1.0, 1.0)
    for name in ("losses.npz", "text.npz"):
        (tmp_path / name).write_bytes(b"no archive")
        with pytest.raises(pc.PrivcalcError, match="path"):
            pc.RealisedLosses.load(tmp_path / name)
