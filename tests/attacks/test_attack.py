"""The likelihood-ratio attack on simulated runs never beats the certified curve, and comes close where it should.

For a threshold t on the privacy loss, P(L > t) − e^ε Q(L > t) ≤ δ(ε) for every ε (Neyman, Pearson 1933; Kairouz, Oh,
Viswanath 2015). Both probabilities are bounded by Clopper and Pearson's intervals (1934) at a total error of 1e-6 over
all thresholds, so a sound accountant is refuted with probability at most 1e-6. Seeds are fixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

import privcalc as pc
from privcalc.attacks import at_least, at_most

ERROR = 1e-6
THRESHOLDS = 40
Floats = np.ndarray
Draw = Callable[[np.random.Generator, int], Floats]


class Attack(NamedTuple):
    """Per threshold, one-sided bounds: P(L > t) is at least ``power``, Q(L > t) at most ``false``."""

    power: Floats
    false: Floats

    def delta(self, epsilon: float) -> float:
        """A lower bound of δ(ε)."""
        return float(np.max(self.power - math.exp(epsilon) * self.false))

    def epsilon(self, delta: float) -> float:
        """A lower bound of ε(δ)."""
        return max(0.0, float(np.max(np.log(np.maximum(self.power - delta, 1e-300) / self.false))))


def attack(loss_p: Floats, loss_q: Floats) -> Attack:
    """Count both samples above thresholds that were fixed from the first tenth of them, which is then set aside."""
    tenth = loss_p.size // 10
    grid = np.quantile(loss_p[:tenth], np.linspace(0.0, 0.999, THRESHOLDS))
    size = loss_p.size - tenth
    hits, misses = ((loss[tenth:, None] > grid).sum(axis=0) for loss in (loss_p, loss_q))
    level = ERROR / (2 * THRESHOLDS)
    return Attack(at_least(hits, size, level), at_most(misses, size, level))


class Game(NamedTuple):
    """A run, the same run for an accountant that believes in half the sensitivity, and samples of the two worlds."""

    run: pc.Run
    half: pc.Run
    with_it: Draw  # samples of the loss log dP/dQ in the world with the record
    without: Draw  # the same loss in the world without


def gaussian_game(z: float, steps: int) -> Game:
    def loss(rng: np.random.Generator, size: int, shift: float) -> Floats:
        total = np.zeros(size)
        for _ in range(steps):
            x = shift + z * rng.standard_normal(size)
            total += (2 * x - 1) / (2 * z * z)
        return total

    return Game(
        pc.Gaussian(z) * steps,
        pc.Gaussian(2 * z) * steps,
        lambda rng, n: loss(rng, n, 1.0),
        lambda rng, n: loss(rng, n, 0.0),
    )


def sampled_game(z: float, q: float, steps: int) -> Game:
    def loss(rng: np.random.Generator, size: int, present: bool) -> Floats:
        total = np.zeros(size)
        for _ in range(steps):
            x = z * rng.standard_normal(size)
            if present:
                x += rng.random(size) < q
            total += np.log1p(q * np.expm1((2 * x - 1) / (2 * z * z)))
        return total

    def run(noise: float) -> pc.Run:
        return pc.PoissonSampled(pc.Gaussian(noise), q) * steps

    return Game(run(z), run(2 * z), lambda rng, n: loss(rng, n, True), lambda rng, n: loss(rng, n, False))


def laplace_game(scale: float, steps: int) -> Game:
    def loss(rng: np.random.Generator, size: int, shift: float) -> Floats:
        total = np.zeros(size)
        for _ in range(steps):
            x = shift + rng.laplace(0.0, scale, size)
            total += (np.abs(x) - np.abs(x - 1)) / scale
        return total + 1e-9 * rng.standard_normal(size)  # blurs the atoms: post-processing

    run, half = pc.Laplace(scale) * steps, pc.Laplace(2 * scale) * steps
    return Game(run, half, lambda rng, n: loss(rng, n, 1.0), lambda rng, n: loss(rng, n, 0.0))


GAMES = {
    "Gaussian": (gaussian_game(1.0, 1), 400_000),
    "Gaussian, 10 steps": (gaussian_game(4.0, 10), 150_000),
    "sampled Gaussian, 20 steps": (sampled_game(0.8, 0.2, 20), 150_000),
    "Laplace": (laplace_game(0.7, 1), 300_000),
    "Laplace, 5 steps": (laplace_game(2.0, 5), 200_000),
}


@pytest.fixture(scope="module", params=list(GAMES))
def played(request: pytest.FixtureRequest) -> tuple[Game, list[Attack]]:
    """The attacks in both directions: tell "with" from "without", and the reverse."""
    game, size = GAMES[request.param]
    rng = np.random.default_rng(20240229)
    present, absent = game.with_it(rng, size), game.without(rng, size)
    return game, [attack(present, absent), attack(-absent, -present)]


DELTAS = (1e-4, 1e-3, 0.01, 0.05, 0.2)


def beaten(run: pc.Run, attacks: list[Attack]) -> bool:
    """Whether an attack shows more than the certified curve allows."""
    for delta in DELTAS:
        certified = run.epsilon(delta=delta).upper
        if any(found.epsilon(delta) > certified or found.delta(certified) > delta for found in attacks):
            return True
    return False


def test_no_attack_beats_the_certified_curve(played: tuple[Game, list[Attack]]) -> None:
    game, attacks = played
    assert not beaten(game.run, attacks)
    certified = game.run.advantage().upper
    assert all(found.delta(0.0) <= certified for found in attacks)
    for alpha in (0.01, 0.1, 0.4):
        beta = game.run.beta(alpha=alpha).lower
        for found in attacks:
            small = found.false <= alpha
            # A test with false positives ≤ α for sure has power at most 1 − β(α).
            assert not small.any() or found.power[small].max() <= 1 - beta


def test_the_attack_catches_half_the_sensitivity(played: tuple[Game, list[Attack]]) -> None:
    game, attacks = played
    assert beaten(game.half, attacks)


def test_the_attack_has_power(played: tuple[Game, list[Attack]]) -> None:
    game, attacks = played
    best = max(found.epsilon(0.05) / game.run.epsilon(delta=0.05).lower for found in attacks)
    assert best >= 0.7


def test_the_gaussian_certificate_is_nearly_reached() -> None:
    game = gaussian_game(1.0, 1)
    rng = np.random.default_rng(7)
    size = 1_000_000
    found = attack(game.with_it(rng, size), game.without(rng, size))
    assert 0.85 * game.run.epsilon(delta=0.01).upper <= found.epsilon(0.01) <= game.run.epsilon(delta=0.01).upper


def test_replace_one_needs_its_own_certificate() -> None:
    # Two opposite records differ by twice the clip norm: the add-or-remove number does not hold for them.
    rng = np.random.default_rng(11)
    size, z = 300_000, 2.0
    losses = [2 * (shift + z * rng.standard_normal(size)) / (z * z) for shift in (1.0, -1.0)]
    found = attack(*losses)
    run = pc.Gaussian(z)
    assert found.epsilon(0.01) <= run.epsilon(delta=0.01, relation=pc.REPLACE_ONE).upper
    assert found.epsilon(0.01) > run.epsilon(delta=0.01).upper


def test_sampled_replace_one_is_not_beaten_by_opposite_records() -> None:
    rng = np.random.default_rng(13)
    size, z, q, steps = 100_000, 0.8, 0.2, 20

    def losses(value: float) -> Floats:
        total = np.zeros(size)
        for _ in range(steps):
            x = value * (rng.random(size) < q) + z * rng.standard_normal(size)
            up, down = (q * np.exp((2 * s * x - 1) / (2 * z * z)) for s in (1, -1))
            total += np.log((1 - q + up) / (1 - q + down))
        return total

    found = attack(losses(1.0), losses(-1.0))
    run = pc.PoissonSampled(pc.Gaussian(z), q) * steps
    for delta in DELTAS[1:]:
        assert found.epsilon(delta) <= run.epsilon(delta=delta, relation=pc.REPLACE_ONE).upper
    assert found.epsilon(0.05) > run.epsilon(delta=0.05).upper
