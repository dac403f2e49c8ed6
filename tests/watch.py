"""What a ledger adds and draws, watched; and whether that is noise and coins as promised."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import kstest, pearsonr

import privcalc as pc


def ledgers(monkeypatch):
    """Two lists: (clean sum, noisy sum, mechanism, clip norm) of every release; the indices of every batch."""
    seen, batches = [], []
    gaussian, draw = pc.Ledger.gaussian, pc.Ledger.batch

    def spy(self, values, mechanism, *, clip_norm, **options):
        noisy = gaussian(self, values.double(), mechanism, clip_norm=clip_norm, **options)
        seen.append((values.numpy().copy(), noisy.numpy().copy(), mechanism, clip_norm))
        return noisy.to(values.dtype)

    def spy_batch(self, *arguments, **options):
        batch = draw(self, *arguments, **options)
        batches.append(batch.indices)
        return batch

    monkeypatch.setattr(pc.Ledger, "gaussian", spy)
    monkeypatch.setattr(pc.Ledger, "batch", spy_batch)
    return seen, batches


def check_noise(noise):
    """Steps × rows × columns of independent standard normal numbers; wrong alarms in 1e-6 of cases or less."""
    steps, rows, columns = noise.shape
    assert kstest(noise.ravel(), "norm").pvalue > 1e-8
    flat = noise.reshape(steps, rows * columns)
    for i, j in itertools.combinations(range(rows * columns), 2):
        assert pearsonr(flat[:, i], flat[:, j]).pvalue > 1e-9  # over coordinates
    for lag in (1, 2, 5):
        assert pearsonr(flat[:-lag].ravel(), flat[lag:].ravel()).pvalue > 1e-9  # over steps
    assert len(np.unique(noise)) == noise.size


def check_coins(batches, records, rate):
    """Each record in each step, independently."""
    coins = np.zeros((len(batches), records))
    for row, batch in zip(coins, batches, strict=True):
        row[batch] = 1
    size, variance = coins.size, rate * (1 - rate)
    assert abs(coins.mean() - rate) < 5.5 * math.sqrt(variance / size)
    assert np.abs(coins.mean(axis=0) - rate).max() < 5.5 * math.sqrt(variance / len(batches))
    # batch sizes are binomial, and consecutive batches have nothing to do with each other
    spread = coins.sum(axis=1).var() / (records * variance)
    assert abs(spread - 1) < 5.5 * math.sqrt(2 / len(batches))
    overlap = ((coins[1:] - rate) * (coins[:-1] - rate)).mean() / variance
    assert abs(overlap) < 5.5 / math.sqrt(size)


class Spy:
    """Notes what is drawn, and draws it."""

    def __init__(self, ledger):
        self.drawn, self._noise = [], ledger._noise
        ledger._noise = self

    def __getattr__(self, name):
        def draw(*arguments):
            self.drawn.append(name)
            return getattr(self._noise, name)(*arguments)

        return draw


def spied(**arguments):
    ledger = pc.Ledger(None, **arguments)
    return ledger, Spy(ledger)


BEYOND = r"has \d+ more|is not in the plan|the plan|would exceed|\d+ rows"
"""What is said where a plan, cap or budget has too little left, and nowhere else."""


def refused(spy, match, attempt):
    """Refused, and nothing was drawn or charged."""
    ledger, drawn = attempt.__defaults__[0] if attempt.__defaults__ else None, list(spy.drawn)
    spent = None if ledger is None else ledger.spent
    with pytest.raises(pc.PrivcalcError, match=match) as caught:
        attempt()
    assert isinstance(caught.value, pc.BudgetExceeded) == bool(re.match(BEYOND, match))
    assert spy.drawn == drawn
    if ledger is not None:
        assert ledger.spent == spent


class Records(NamedTuple):
    """Features and labels."""

    features: Any
    labels: Any

    def at(self, indices):
        return Records(self.features[indices], self.labels[indices])
