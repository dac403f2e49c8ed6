"""The aligned worst case (proofs/aligned.md) by quadrature: vectors in the plane, adaptive ones, any pattern law."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

Grid = tuple[NDArray[np.float64], float]
Pattern = tuple[tuple[int, ...], ...]
"""For each step, the records that take part."""

EPSILONS = (-1.5, -0.3, 0.0, 0.4, 1.0, 2.5)


def line(reach: float, points: int) -> Grid:
    """A grid and its step."""
    t = np.linspace(-reach, reach, points)
    return t, float(t[1] - t[0])


def deltas(p: NDArray[np.float64], q: NDArray[np.float64]) -> list[float]:
    """D_ε of two lists of masses, in both orders."""
    return [float(np.maximum(a - math.exp(e) * b, 0.0).sum()) for e in EPSILONS for a, b in ((p, q), (q, p))]


def laws(rng: np.random.Generator, records: int, steps: int) -> dict[Pattern, float]:
    """A random law on all patterns of these records, with some left out."""
    some = [c for n in range(records + 1) for c in itertools.combinations(range(records), n)]
    patterns = list(itertools.product(some, repeat=steps))
    weights = rng.dirichlet(np.full(len(patterns), 0.3))
    return dict(zip(patterns, weights.tolist(), strict=True))


def aligned(law: dict[Pattern, float], sizes: NDArray[np.float64], sign: int) -> NDArray[np.float64]:
    """Masses of Σ p_S N(±m_S, I) for two steps."""
    t, step = line(9.0, 361)
    total = np.zeros((t.size, t.size))
    for pattern, weight in law.items():
        one, two = (np.exp(-0.5 * (t - sign * sum(sizes[i] for i in group)) ** 2) for group in pattern)
        total += weight * np.outer(one, two) * step**2 / (2 * math.pi)
    return total


def adaptive(law: dict[Pattern, float], first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Masses on the plane of step 1 times step 2's, whose vectors ``second[region]`` depend on where step 1 fell."""
    t, step = line(6.5, 33)
    plane = np.stack(np.meshgrid(t, t, indexing="ij"), axis=-1).reshape(-1, 2)
    regions = (plane[:, 0] > 0).astype(int) + 2 * (plane[:, 1] > 0.3)

    def normal(mean: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.exp(-0.5 * ((plane - mean) ** 2).sum(axis=1)) * step**2 / (2 * math.pi))

    total = np.zeros((plane.shape[0], plane.shape[0]))
    for pattern, weight in law.items():
        one = weight * normal(sum((first[i] for i in pattern[0]), np.zeros(2)))
        for region in range(4):
            two = normal(sum((second[region, i] for i in pattern[1]), np.zeros(2)))
            total += np.outer(np.where(regions == region, one, 0.0), two)
    return total


def vectors(rng: np.random.Generator, sizes: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Vectors of the plane, most of full norm."""
    angle = rng.choice([0.0, 0.2, 1.5, 3.0, 5.0], size=(*shape, sizes.size)) + rng.normal(0, 0.1, (*shape, sizes.size))
    norm = sizes * rng.choice([1.0, 1.0, 1.0, 0.3], size=(*shape, sizes.size))
    return np.stack([norm * np.cos(angle), norm * np.sin(angle)], axis=-1)


@pytest.mark.parametrize("seed", range(6))
def test_two_records_in_the_plane_adaptively(seed: int) -> None:
    """Two records removed; the vectors of the second step depend on the first release."""
    rng = np.random.default_rng(seed)
    sizes = rng.uniform(0.3, 1.3, 2)
    law = laws(rng, 2, 2)
    first = vectors(rng, sizes, ())
    run = adaptive(law, first, vectors(rng, sizes, (4,)))
    nobody: dict[Pattern, float] = {((), ()): 1.0}
    found = deltas(run, adaptive(nobody, first, first[None].repeat(4, axis=0)))
    claimed = deltas(aligned(law, sizes, 1), aligned(nobody, sizes, 1))
    for value, bound in zip(found, claimed, strict=True):
        assert value <= bound * (1 + 5e-3) + 1e-4


@pytest.mark.parametrize("seed", range(6))
def test_one_removed_and_another_added_adaptively(seed: int) -> None:
    """Mixed groups: each person has a law of patterns of their own."""
    rng = np.random.default_rng(100 + seed)
    up, down = rng.uniform(0.3, 1.2, 1), rng.uniform(0.3, 1.2, 1)
    law, other = laws(rng, 1, 2), laws(rng, 1, 2)
    p = adaptive(law, vectors(rng, up, ()), vectors(rng, up, (4,)))
    q = adaptive(other, vectors(rng, down, ()), vectors(rng, down, (4,)))
    claimed = deltas(aligned(law, up, 1), aligned(other, down, -1))
    for value, bound in zip(deltas(p, q), claimed, strict=True):
        assert value <= bound * (1 + 5e-3) + 1e-4


def test_aligned_vectors_attain_it() -> None:
    """The grids agree, so the tests above compare the same quantity; shorter vectors do not attain it."""
    rng = np.random.default_rng(5)
    sizes = np.array([0.8, 1.1])
    nobody: dict[Pattern, float] = {((), ()): 1.0}
    law = laws(rng, 2, 2)
    same = np.stack([sizes, np.zeros(2)], axis=-1)
    claimed = deltas(aligned(law, sizes, 1), aligned(nobody, sizes, 1))
    none = adaptive(nobody, same, same[None].repeat(4, axis=0))
    for value, bound in zip(deltas(adaptive(law, same, same[None].repeat(4, axis=0)), none), claimed, strict=True):
        assert value == pytest.approx(bound, rel=1e-2, abs=1e-4)
    short = deltas(adaptive(law, 0.8 * same, (0.8 * same)[None].repeat(4, axis=0)), none)
    assert max(bound - value for value, bound in zip(short, claimed, strict=True)) > 1e-2


@pytest.mark.parametrize(("rate", "size"), [(0.3, 1.0), (0.9, 0.6)])
def test_thinned_coins(rate: float, size: float) -> None:
    """A coin in each of two steps, the second counts only if the first did not come up: less than two samples."""
    none: tuple[int, ...] = ()
    one = (0,)
    thinned: dict[Pattern, float] = {(one, none): rate, (none, one): (1 - rate) * rate, (none, none): (1 - rate) ** 2}
    coins: dict[Pattern, float] = {
        (a, b): (rate if a else 1 - rate) * (rate if b else 1 - rate) for a in (none, one) for b in (none, one)
    }
    sizes = np.array([size])
    without = aligned({(none, none): 1.0}, sizes, 1)
    less, more = (deltas(aligned(law, sizes, 1), without) for law in (thinned, coins))
    assert all(a <= b + 1e-12 for a, b in zip(less, more, strict=True))
    assert less[4] > 0.3 * more[4]


@pytest.mark.parametrize("seed", range(8))
def test_the_lemma_with_covariances_of_both_signs(seed: int) -> None:
    """E(ΣaN − ΣbN')_+ grows with the covariances within either group, and falls with those between them."""
    rng = np.random.default_rng(seed)
    t, step = line(8.0, 201)
    x, y = np.meshgrid(t, t)
    weight = np.exp(-0.5 * (x * x + y * y)) * step**2 / (2 * math.pi)
    sizes, others = rng.uniform(0, 1.2, 3), rng.uniform(0, 1.2, 2)
    a, b = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(2)) * rng.uniform(0.3, 3)

    def mean(angles: NDArray[np.float64], against: NDArray[np.float64]) -> float:
        total = np.zeros_like(x)
        for weights, norms, turned, sign in ((a, sizes, angles, 1), (b, others, against, -1)):
            for w, n, angle in zip(weights, norms, turned, strict=True):
                total += sign * w * np.exp(n * (math.cos(angle) * x + math.sin(angle) * y) - 0.5 * n * n)
        return float((np.maximum(total, 0.0) * weight).sum())

    worst = mean(np.zeros(3), np.full(2, math.pi))
    for _ in range(10):
        assert mean(rng.uniform(0, 2 * math.pi, 3), rng.uniform(0, 2 * math.pi, 2)) <= worst * (1 + 1e-4) + 1e-9


def test_places_that_tell_of_each_other_are_not_covered() -> None:
    """Two records, two slots, one in each; the record +1 is nulled, the other one is −1: 0.0196, not 0.0047 (ε = 2)."""
    t, step = line(9.0, 1201)

    def masses(*means: tuple[float, float]) -> NDArray[np.float64]:
        parts = [np.outer(np.exp(-0.5 * (t - a) ** 2), np.exp(-0.5 * (t - b) ** 2)) for a, b in means]
        return np.asarray(sum(parts) / len(parts) * step**2 / (2 * math.pi))

    def delta(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
        return float(np.maximum(p - math.exp(2.0) * q, 0.0).sum())

    other = -1.0
    whole, nulled = masses((1.0, other), (other, 1.0)), masses((0.0, other), (other, 0.0))
    one, nobody = masses((1.0, 0.0), (0.0, 1.0)), masses((0.0, 0.0))
    assert max(delta(whole, nulled), delta(nulled, whole)) == pytest.approx(0.0196, abs=5e-5)
    assert max(delta(one, nobody), delta(nobody, one)) == pytest.approx(0.0047, abs=5e-5)
