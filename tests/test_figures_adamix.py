"""Figures of the AdaMix paper: they run on small data, and what they measure is right by other means."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

import privcalc as pc

torch = pytest.importorskip("torch")
pytest.importorskip("matplotlib")

from learners.data import Data  # noqa: E402
from learners.figures import FIGURES, adamix_error, adamix_losses, adamix_noise, adamix_size, adamix_subspace, figure  # noqa: E402
from learners.figures.figure import Given  # noqa: E402
from learners.grid import FASHION_MIXED, MIXED, Source, task_of  # noqa: E402
from learners.linear import SoftmaxGradient  # noqa: E402
from learners.methods import METHODS  # noqa: E402


def blobs(size, seed=0, dimension=8, noise=0.5):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, size)
    return Data((3 * np.eye(dimension)[y] + noise * rng.standard_normal((size, dimension)) + 1).astype(np.float32), y)


@pytest.fixture
def toy(monkeypatch):
    """Small sources under the names of the real ones, and few points."""
    made = {
        name: (lambda seed=seed: Source(blobs(2_300, seed), blobs(200, seed + 9), blobs(50).X))
        for seed, name in enumerate(("fashion", "news", "digits"))
    }
    monkeypatch.setattr(figure, "sources", lambda *_: made)
    monkeypatch.setattr(adamix_error, "LEVELS", (0.3, 3.0))
    monkeypatch.setattr(adamix_losses, "LEVELS", (0.3, 3.0))
    monkeypatch.setattr(adamix_losses, "optdigits", lambda: blobs(300, 5))
    monkeypatch.setattr(adamix_noise, "NOISES", (5.0, 10.0))
    monkeypatch.setattr(adamix_size, "PER_CLASS", (5, 50))
    monkeypatch.setattr(adamix_size, "PUBLIC", (20, 200))
    return Given(None, None, "cpu", 2)


@pytest.mark.parametrize("name", [name for name in FIGURES if name.startswith("adamix")])
def test_each_figure_is_made(toy, name, tmp_path):
    made = FIGURES[name]
    rows = json.loads(json.dumps(made.run(toy), allow_nan=False))
    assert {row["seed"] for row in rows} == {0, 1}
    made.draw(rows).savefig(tmp_path / "figure.png")
    page = made.page(rows)
    assert "**Found:**" in page
    assert "nan" not in page
    assert "{" not in page
