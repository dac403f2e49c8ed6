"""Simulated attacks on every mechanism: own samplers, neighbouring data sets, and an attacker who learns from samples.

The attacker knows nothing but samples of the two worlds. From the first half it learns the log-likelihood ratio of each
output in each step (by counting cells), adds them up, and chooses one threshold per ε. The second half is counted: P(S)
− e^ε Q(S) ≤ δ(ε) and P(S) ≤ 1 − β(Q(S)) for every event S, both probabilities by Clopper and Pearson's bounds (1934) at
a total error of 1e-6 over the file. Where the certified pair occurs, a claim of 30 % more noise must be refuted by the
same attack, at the same seed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
from scipy.optimize import brentq

import privcalc as pc
from privcalc import attacks
from privcalc.strategies import BLT, BallsInBins, CyclicPoisson, Dense, MinSeparation, Toeplitz

Array = np.ndarray
Rng = np.random.Generator
Release = Callable[[Rng, Array], Array]
Draw = Callable[[Rng, int], Array]

ADD, SWAP, NULL = pc.ADD_OR_REMOVE_ONE, pc.REPLACE_ONE, pc.ZERO_OUT
DELTAS = (0.2, 0.05, 0.01, 1e-3)
SIZE = 320_000
MORE = 1.3
"""30 % more noise."""


# --- samplers: what is released, given the sum of the contributions that take part ---


def gaussian(z: float) -> Release:
    return lambda rng, sums: sums + z * rng.standard_normal(sums.shape)


def laplace(scale: float) -> Release:
    """As the difference of two exponentials."""
    return lambda rng, sums: (
        sums + scale * (rng.standard_exponential(sums.shape) - rng.standard_exponential(sums.shape))
    )


def discrete_gaussian(sigma: float) -> Release:
    """Masses e^{−x²/2σ²} on a table of integers, by inversion."""
    table = np.arange(-math.ceil(12 * sigma), math.ceil(12 * sigma) + 1)
    below = np.cumsum(np.exp(-0.5 * (table / sigma) ** 2))
    return lambda rng, sums: sums + table[np.searchsorted(below / below[-1], rng.random(sums.shape))]


def response(level: float, k: int) -> Release:
    """The category, kept with probability e^ε/(e^ε + k − 1), else another one. An absent record has category 0."""

    def release(rng: Rng, categories: Array) -> Array:
        lie = rng.random(categories.shape) >= math.exp(level) / (math.exp(level) + k - 1)
        return np.where(lie, (categories + rng.integers(1, k, categories.shape)) % k, categories)

    return release


def mirrored(level: float, leak: float) -> Release:
    """A level: uniform; with a record e^ε-fold up to (1 − δ)/(1 + e^ε), e^{−ε}-fold to 1 − δ, δ outside; mirrored."""
    end = (1 - leak) / (1 + math.exp(level))

    def release(rng: Rng, records: Array) -> Array:
        u = rng.random(records.shape) - leak
        there = np.where(
            u < end * math.exp(level), u * math.exp(-level), end + (u - end * math.exp(level)) * math.exp(level)
        )
        there = np.where(u < 0, -1.0, there)
        tau = np.where(records == 0, rng.random(records.shape), np.where(records > 0, there, 1 - there))
        return np.digitize(tau, [0.0, leak, end, 1 - end, 1 - leak, 1.0])

    return release


def choice(level: float, moves: list[float], public: list[float], noise: str = "gumbel") -> Release:
    """Noise on level·scores; a record moves the score of each candidate by ``moves``. Releases the winner."""

    def release(rng: Rng, present: Array) -> Array:
        draw = getattr(rng, noise)
        noisy = [
            level * (base + move * present) + draw(size=present.shape) for base, move in zip(public, moves, strict=True)
        ]
        return np.argmax(noisy, axis=0)

    return release


def top_k(level: float, k: int, moves: list[int], public: list[float]) -> Release:
    """Draw the worst's rank y by weight C(y − 1, k − 1)e^{εu_(y)/2}, the others uniform from above; release the set."""

    def draw(rng: Rng, utilities: Array, size: int) -> Array:
        order = np.array(sorted(range(utilities.size), key=lambda i: (-utilities[i], i)))
        ranks = np.arange(k, utilities.size + 1)
        weights = np.array([math.comb(y - 1, k - 1) for y in ranks]) * np.exp(0.5 * level * utilities[order[ranks - 1]])
        worst = rng.choice(ranks, size=size, p=weights / weights.sum())
        keys = rng.random((size, utilities.size))
        keys[np.arange(utilities.size) >= worst[:, None] - 1] = 2.0
        above = order[np.argsort(keys, axis=1)[:, : k - 1]]
        return np.sum(2**above, axis=1) + 2 ** order[worst - 1]

    def release(rng: Rng, present: Array) -> Array:
        found = np.zeros(present.shape, dtype=np.int64)
        for value in np.unique(present):
            where = present == value
            found[where] = draw(rng, np.add(public, value * np.array(moves)), int(where.sum()))
        return found

    return release


# --- which contributions take part ---


def whole(value: float, release: Release, steps: int = 1) -> Draw:
    return lambda rng, size: np.stack([release(rng, np.full(size, value)) for _ in range(steps)])


def poisson(value: float, rate: float, release: Release, steps: int = 1) -> Draw:
    return lambda rng, size: np.stack([release(rng, value * (rng.random(size) < rate)) for _ in range(steps)])


def fixed(records: list[float], batch: int, release: Release, steps: int = 1) -> Draw:
    """The sum over a uniformly random subset: the records with the smallest of independent keys."""

    def draw(rng: Rng, size: int) -> Array:
        chosen = np.argsort(rng.random((size, len(records))), axis=1)[:, :batch]
        return release(rng, np.array(records)[chosen].sum(axis=1))

    return lambda rng, size: np.stack([draw(rng, size) for _ in range(steps)])


def truncated(records: list[float], rate: float, most: int, release: Release, steps: int) -> Draw:
    """Coins, and of more than ``most`` records that come up those with the smallest of independent keys."""

    def draw(rng: Rng, size: int) -> Array:
        keys = np.where(rng.random((size, len(records))) < rate, rng.random((size, len(records))), np.inf)
        kept = (keys < np.inf) & (np.argsort(np.argsort(keys, axis=1), axis=1) < most)
        return release(rng, kept.astype(float) @ np.array(records))

    return lambda rng, size: np.stack([draw(rng, size) for _ in range(steps)])


def redrawn(records: list[float], draws: int, release: Release, steps: int) -> Draw:
    """The sum of draws with replacement."""

    def draw(rng: Rng, size: int) -> Array:
        return release(rng, np.array(records)[rng.integers(len(records), size=(size, draws))].sum(axis=1))

    return lambda rng, size: np.stack([draw(rng, size) for _ in range(steps)])


def shuffled(records: list[float], batches: int, release: Release) -> Draw:
    """One pass: all batches are released."""

    def draw(rng: Rng, size: int) -> Array:
        order = np.array(records)[np.argsort(rng.random((size, len(records))), axis=1)]
        return np.stack([release(rng, part.sum(axis=1)) for part in np.array_split(order, batches, axis=1)])

    return draw


def vector(values: list[float], release: Release) -> Draw:
    return lambda rng, size: np.stack([release(rng, np.full(size, value)) for value in values])


def best_of(draw: Draw, number: Callable[[Rng, int], Array]) -> Draw:
    """The largest of K outputs; −99 if there is none."""

    def best(rng: Rng, size: int) -> Array:
        counts = number(rng, size)
        ends = np.cumsum(counts)
        outputs = draw(rng, int(ends[-1]))[0]
        found = np.full(size, -99.0)
        some = counts > 0
        found[some] = np.maximum.reduceat(outputs, (ends - counts)[some])
        return found[None]

    return best


def number(distribution: str, mean: float) -> Callable[[Rng, int], Array]:
    """Draws K. P(K = k) ∝ p^k/k has mean −p/((1 − p)·log(1 − p))."""
    if distribution == "poisson":
        return lambda rng, n: rng.poisson(mean, n)
    if distribution == "geometric":
        return lambda rng, n: rng.geometric(1 / mean, n)
    p = brentq(lambda p: -p / ((1 - p) * math.log1p(-p)) - mean, 1e-9, 1 - 1e-9)
    return lambda rng, n: rng.logseries(p, n)


# --- adaptive runs under a filter: noise chosen, and the run ended, by looking at the outputs ---


@functools.cache
def fits_mu(spent: int, noise: float) -> bool:
    """Whether a budget of μ = 1 has room after ``spent``/16 of it."""
    budget = pc.Filter(mu=1.0)
    if spent:
        budget.charge(pc.Gaussian(4.0) * spent)
    return not budget.would_exceed(pc.Gaussian(noise))


@functools.cache
def fits_epsilon(spent: int, scale: float) -> bool:
    """Whether a budget of ε = 1.5 has room after ``spent`` quarters."""
    budget = pc.Filter(epsilon=1.5)
    if spent:
        budget.charge(pc.Laplace(4.0) * spent)
    return not budget.would_exceed(pc.Laplace(scale))


def adaptive(
    value: float, fits: Callable[[int, float], bool], noises: dict[float, int], *, normal: bool, leave: bool
) -> Draw:
    """The first noise after a large output if it fits, else the second while it fits; with ``leave`` some end early.

    Returns the loss, which an attacker who sees all outputs computes.
    """

    def draw(rng: Rng, size: int) -> Array:
        loss, spent, last = np.zeros(size), np.zeros(size, dtype=int), np.ones(size)
        running = np.ones(size, dtype=bool)
        first, second = noises
        while running.any():
            rows = np.flatnonzero(running)
            room = {noise: np.array([fits(s, noise) for s in range(spent.max() + 1)])[spent[rows]] for noise in noises}
            wish = np.where((last[rows] > 0.5) & room[first], first, second)
            running[rows[~room[second]]] = False  # the second is the cheaper one
            rows, wish = rows[room[second]], wish[room[second]]
            output = (gaussian(1.0) if normal else laplace(1.0))(rng, np.zeros(rows.size)) * wish + value
            loss[rows] += (2 * output - 1) / (2 * wish**2) if normal else (np.abs(output) - np.abs(output - 1)) / wish
            spent[rows] += np.select([wish == n for n in noises], list(noises.values()))
            last[rows] = output
            if leave:
                running[rows[output < -wish]] = False
        return loss[None]

    return draw


# --- games ---


class Claim(NamedTuple):
    run: pc.Run | pc.Mechanism
    relation: pc.Relation


@dataclass(frozen=True)
class Game:
    """A true claim and the two worlds; a false claim to refute; the share of some certified δ(ε) that is reached."""

    true: Claim
    present: Draw
    absent: Draw
    false: Claim | None = None
    near: float = 0.0
    at: float = 0.0  # an ε to look at


def offset(level: float, epsilon: float) -> float:
    """A candidate's public lead for which lifting it by ``level`` gives losses t and t − level, t = (level + ε)/2."""
    up = (level + epsilon) / 2
    q = math.expm1(up - level) / (math.exp(up) * math.expm1(-level))  # q·e^up + (1 − q)e^{up − level} = 1
    return math.log(q / (1 - q)) / level


GAMES: dict[str, Game] = {}


def add(
    name: str,
    make: Callable[[float], pc.Run | pc.Mechanism],
    relation: pc.Relation,
    present: Draw,
    absent: Draw,
    at: float = 0,
) -> None:
    """A game whose certified pair occurs: ``make`` takes the factor on the noise."""
    GAMES[name] = Game(Claim(make(1.0), relation), present, absent, Claim(make(MORE), relation), 0.7, at)


def whole_data() -> None:
    # Laplace
    add("Laplace", lambda m: pc.Laplace(0.8 * m), ADD, whole(1, laplace(0.8)), whole(0, laplace(0.8)))
    add("Laplace, opposite", lambda m: pc.Laplace(1.5 * m), SWAP, whole(1, laplace(1.5)), whole(-1, laplace(1.5)))
    add("Laplace, 6 steps", lambda m: pc.Laplace(3 * m) * 6, NULL, whole(1, laplace(3), 6), whole(0, laplace(3), 6))
    GAMES["Laplace, 3 coordinates"] = Game(
        Claim(pc.Laplace(0.8), ADD), vector([0.5, -0.2, 0.3], laplace(0.8)),
        vector([0, 0, 0], laplace(0.8)))  # fmt: skip

    # randomised response: less noise is a larger ε
    for k, steps in ((2, 1), (5, 1), (2, 8), (5, 8)):
        for relation in (ADD, SWAP):
            present, absent = (
                whole(value, response(0.7, k), steps) for value in (k - 1, 0 if relation is ADD else k - 2)
            )
            add(f"response of {k}, {steps} times, {relation}",
                lambda m, k=k, n=steps: pc.RandomizedResponse(0.7 / m, k) * n, relation, present, absent)  # fmt: skip

    # exponential mechanism: two candidates, the worst public lead for a given ε
    for monotone, relation, moves, other in (
        (True, ADD, [1, 0], [0, 0]), (True, SWAP, [1, 0], [0, 1]), (True, NULL, [0, 1], [0, 0]),
        (False, ADD, [1, -1], [0, 0]), (False, SWAP, [1, -1], [-1, 1]),
    ):  # fmt: skip
        a = float((moves[0] - moves[1]) - (other[0] - other[1]))  # the range, in units of the level
        level = 0.9
        for at in (0.0, 0.4):
            lead = math.copysign(1, a) * offset(abs(a) * level, at) * abs(a) - (other[0] - other[1])
            one, two = (whole(1, choice(level, list(map(float, m)), [lead, 0.0])) for m in (moves, other))
            add(f"choice, {'monotone' if monotone else 'both ways'}, {relation}, for {at}",
                lambda m, f=monotone: pc.ExponentialMechanism(0.9 / m, monotone=f), relation, one, two, at)  # fmt: skip
    one, two = (whole(value, choice(0.9, [1.0, 0.0, 0.5], [-0.5, 0.0, 0.2]), 6) for value in (1, 0))
    GAMES["choice of three, 6 times"] = Game(Claim(pc.ExponentialMechanism(0.9) * 6, ADD), one, two)

    # noisy max: two candidates, the worst lead for ε = 0
    for monotone, relation, one, two, a in (
        (True, ADD, [1.0, 0.0], [0.0, 0.0], 1), (True, SWAP, [1.0, 0.0], [0.0, 1.0], 2),
        (False, NULL, [1.0, -1.0], [0.0, 0.0], 2), (False, SWAP, [1.0, -1.0], [-1.0, 1.0], 4),
    ):  # fmt: skip
        lead = [-0.5 * (one[0] - one[1] + two[0] - two[1]), 0.0]
        add(f"permute and flip, {'monotone' if monotone else 'both ways'}, {relation}",
            lambda m, f=monotone: pc.PermuteAndFlip(0.6 / m, monotone=f), relation,
            *(whole(1, choice(0.6, moves, lead, "exponential")) for moves in (one, two)))  # fmt: skip
        GAMES[f"Laplace noise, {a}, {relation}"] = Game(
            Claim(pc.NoisyMax(0.6, noise="laplace", monotone=monotone), relation),
            *(whole(1, choice(0.6, moves, lead, "laplace")) for moves in (one, two)))  # fmt: skip

    # thresholded counts: a common key, and with it a new one
    for noise, release in (("laplace", laplace(2.0)), ("gaussian", gaussian(2.0))):

        def seen(count: int, release: Release = release) -> Release:
            return lambda rng, present: np.where(
                (noisy := release(rng, present + float(count))) * (present + count > 0) >= 5, noisy, 0)  # fmt: skip

        def counts(m: float, keys: int = 1, noise: str = noise) -> pc.ThresholdedCounts:
            return pc.ThresholdedCounts(noise=noise, scale=2.0 * m, threshold=1 + 4 * m, keys=keys)

        add(f"thresholded, {noise}", counts, ADD, whole(1, seen(20)), whole(0, seen(20)))
        one, two = (
            lambda rng, n, v=v, s=seen: np.stack([s(c)(rng, np.full(n, v)) for c in (20, 0)]) for v in (1.0, 0.0)
        )
        GAMES[f"thresholded, {noise}, new"] = Game(Claim(counts(1.0, 2), ADD), one, two, Claim(counts(1.0), ADD))

    # sparse vector: twelve questions below, then one above; the first reply "above" is released
    def first_above(monotone: bool) -> Release:
        def release(rng: Rng, present: Array) -> Array:
            moves = np.array([1.0] * 12 + [1.0 if monotone else -1.0])[:, None] * present
            values = np.array([-3.0] * 12 + [1.0])[:, None] + moves + 2.0 * rng.laplace(size=(13, present.size))
            above = values >= rng.laplace(size=present.size)
            return np.where(above.any(axis=0), np.argmax(above, axis=0), 13)

        return release

    for monotone, relation, other in ((True, ADD, 0), (False, ADD, 0), (False, SWAP, -1)):
        GAMES[f"above a threshold, {monotone}, {relation}"] = Game(
            Claim(pc.AboveThreshold(threshold_scale=1.0, query_scale=2.0, monotone=monotone), relation),
            whole(1, first_above(monotone)), whole(other, first_above(monotone)))  # fmt: skip

    # top-k: the record lifts the first k; all other sets keep utility 0
    for n, k in ((2, 1), (5, 2), (5, 3)):
        lead = math.log(math.comb(n, k) - 1) / 0.8 - 0.5  # so that the set has probability about 1/2
        public, lift = [lead] * k + [0.0] * (n - k), [1] * k + [0] * (n - k)
        one, two = (whole(value, top_k(1.6, k, lift, public)) for value in (1, 0))
        add(f"top {k} of {n}", lambda m, k=k: pc.TopK(1.6 / m, k), ADD, one, two)
    one, two = (whole(1, top_k(1.6, 2, lift, [0.0, 0.3, 0.0, 0.1, 0.5])) for lift in ([1, 0, 1, 0, 0], [0, 1, 0, 1, 1]))
    GAMES["top 2 of 5, replaced"] = Game(Claim(pc.TopK(1.6, 2), SWAP), one, two)

    # discrete Gaussian
    for sigma, size, relation in ((1.0, 1, ADD), (2.4, 3, NULL), (1.7, 1, SWAP)):
        one, two = (whole(value, discrete_gaussian(sigma), 3) for value in (size, -size if relation is SWAP else 0))
        add(f"discrete Gaussian, {size}, {relation}",
            lambda m, s=sigma, n=size: pc.DiscreteGaussian(m * s / n, n) * 3, relation, one, two)  # fmt: skip


def samples() -> None:
    # Poisson sampling of each
    lead = offset(1.5, 0.0)
    inner: dict[str, tuple[Callable[[float], pc.Mechanism], Release]] = {
        "Gaussian": (lambda m: pc.Gaussian(0.7 * m), gaussian(0.7)),
        "Laplace": (lambda m: pc.Laplace(0.6 * m), laplace(0.6)),
        "discrete Gaussian": (lambda m: pc.DiscreteGaussian(0.7 * m), discrete_gaussian(0.7)),
        "response": (lambda m: pc.RandomizedResponse(2.0 / m, 3), response(2.0, 3)),
        "choice": (lambda m: pc.ExponentialMechanism(1.5 / m), choice(1.5, [1.0, 0.0], [lead, 0.0])),
        "top 1 of 2": (lambda m: pc.TopK(3.0 / m, 1), top_k(3.0, 1, [1, 0], [lead, 0.0])),
    }
    for name, (make, release) in inner.items():
        for steps in (1, 8) if name in ("Gaussian", "Laplace", "response") else (1,):
            add(f"sampled {name}, {steps}", lambda m, f=make, n=steps: pc.PoissonSampled(f(m), 0.4) * n, ADD,
                poisson(1, 0.4, release, steps), poisson(0, 0.4, release, steps))  # fmt: skip
    for name, n in (("Gaussian", 2), ("Laplace", 3), ("discrete Gaussian", 1)):
        make, release = inner[name]
        step = pc.PoissonSampled(make(1.0), 0.4) * n
        one, two = (poisson(value, 0.4, release, n) for value in (1, -1))
        GAMES[f"sampled {name}, opposite"] = Game(Claim(step, SWAP), one, two, Claim(step, ADD))
        add(f"sampled {name}, two opposite", lambda m, f=make, n=n: pc.PoissonSampled(f(m), 0.4) * n, SWAP, one, two)
    # the release that attains a stated ε, mirrored for the other record
    for level, leak in ((1.5, 0.0), (1.0, 0.05)):
        one, two = (poisson(value, 0.4, mirrored(level, leak), 2) for value in (1, -1))
        add(f"sampled, stated {level} and {leak}",
            lambda m, e=level, d=leak: pc.PoissonSampled(pc.ApproxDP(e / m, d / m), 0.4) * 2, SWAP,
            one, two)  # fmt: skip

    # fixed size: two of six records, the others at −1
    rest = [-1.0] * 5
    for name in ("Gaussian", "Laplace", "discrete Gaussian"):
        make, release = inner[name]
        one = fixed([*rest, 1.0], 2, release)
        for relation, other in ((ADD, rest), (SWAP, [*rest, -1.0])):
            add(f"fixed size, {name}, {relation}", lambda m, f=make: pc.FixedSizeSampled(f(m), 2, 6), relation, one,
                fixed(other, 2, release))  # fmt: skip
        GAMES[f"fixed size, {name}, {NULL}"] = Game(
            Claim(pc.FixedSizeSampled(make(1.0), 2, 6), NULL), one, fixed([*rest, 0.0], 2, release))  # fmt: skip
    add("fixed size, 6 steps", lambda m: pc.FixedSizeSampled(pc.Gaussian(1.5 * m), 2, 6) * 6, ADD,
        fixed([*rest, 1.0], 2, gaussian(1.5), 6), fixed(rest, 2, gaussian(1.5), 6))  # fmt: skip
    GAMES["fixed size, 6 steps, replaced"] = Game(
        Claim(pc.FixedSizeSampled(pc.Gaussian(1.5), 2, 6) * 6, SWAP),
        fixed([*rest, 1.0], 2, gaussian(1.5), 6), fixed([*rest, -1.0], 2, gaussian(1.5), 6))  # fmt: skip

    # Poisson samples that are cut to one record of two: the other one tells. What is certified of it is not met.
    one = truncated([-1.0, 1.0], 0.9, 1, gaussian(0.8), 1)
    for relation, other in ((ADD, [-1.0]), (SWAP, [-1.0, -1.0]), (NULL, [-1.0, 0.0])):
        false = Claim(pc.PoissonSampled(pc.Gaussian(0.8), 0.9) * 1, ADD)
        GAMES[f"cut, {relation}"] = Game(
            Claim(pc.TruncatedPoissonSampled(pc.Gaussian(0.8), 0.9, 1, 2) * 1, relation), one,
            truncated(other, 0.9, 1, gaussian(0.8), 1), false if relation is ADD else None, -math.inf, 1.0)  # fmt: skip
    # three draws from four records, with replacement
    rest = [-1.0] * 3
    one = redrawn([*rest, 1.0], 3, gaussian(2.0), 4)
    add("with replacement", lambda m: pc.WithReplacementSampled(pc.Gaussian(2.0 * m), 3, 4) * 4, ADD, one,
        redrawn(rest, 3, gaussian(2.0), 4))  # fmt: skip
    for relation, value in ((SWAP, -1.0), (NULL, 0.0)):
        GAMES[f"with replacement, {relation}"] = Game(
            Claim(pc.WithReplacementSampled(pc.Gaussian(2.0), 3, 4) * 4, relation), one,
            redrawn([*rest, value], 3, gaussian(2.0), 4))  # fmt: skip

    # shuffled epochs
    for relation, value in ((SWAP, -1.0), (NULL, 0.0)):
        add(f"one batch, {relation}", lambda m: pc.ShuffledEpoch(pc.Gaussian(1.2 * m)), relation,
            shuffled([0.5, -1.0, 1.0], 1, gaussian(1.2)), shuffled([0.5, -1.0, value], 1, gaussian(1.2)))  # fmt: skip
        GAMES[f"two batches, {relation}"] = Game(
            Claim(pc.ShuffledEpoch(pc.Gaussian(1.2)), relation),
            shuffled([-1.0] * 3 + [1.0], 2, gaussian(1.2)),
            shuffled([-1.0] * 3 + [value], 2, gaussian(1.2)))  # fmt: skip


def combinations() -> None:
    # disjoint parts: the outputs of both are seen, the record is in one
    def parts(first: float, second: float) -> Draw:
        return lambda rng, n: np.stack([gaussian(1.0)(rng, np.full(n, first)), laplace(1.0)(rng, np.full(n, second))])

    for name, record in (("first", (1, 0)), ("second", (0, 1))):
        add(f"parallel, {name} part", lambda m: pc.Parallel([pc.Gaussian(m), pc.Laplace(m)]), ADD,
            parts(0.5 + record[0], 0.2 + record[1]), parts(0.5, 0.2))  # fmt: skip

    # the best of K: what one trial costs must not be enough
    for distribution, mean, base, release, at in (
        ("poisson", 6, pc.Gaussian(1.5), gaussian(1.5), 0.0), ("geometric", 6, pc.Gaussian(1.5), gaussian(1.5), 0.0),
        ("logarithmic", 6, pc.Gaussian(1.5), gaussian(1.5), 0.5),
        ("poisson", 2, pc.RandomizedResponse(0.7, 2), response(0.7, 2), 0.5),
        ("geometric", 2, pc.RandomizedResponse(0.7, 2), response(0.7, 2), 0.5),
        ("logarithmic", 2, pc.RandomizedResponse(0.7, 2), response(0.7, 2), 0.5),
    ):  # fmt: skip
        one, two = (best_of(whole(value, release), number(distribution, mean)) for value in (1, 0))
        tuned = pc.RandomTrials(base, mean=mean, distribution=distribution)
        GAMES[f"best of {mean}, {distribution}, {base}"] = Game(Claim(tuned, ADD), one, two, Claim(base, ADD), at=at)

    # filters
    for leave in (False, True):
        one, two = (adaptive(value, fits_mu, {2.0: 4, 4.0: 1}, normal=True, leave=leave) for value in (1, 0))
        true = Claim(pc.Filter(mu=1.0).mechanism, ADD)
        GAMES[f"adaptive, mu{', left' * leave}"] = Game(
            true, one, two, None if leave else Claim(pc.GDP(1 / MORE), ADD), 0.7 * (not leave)
        )
        one, two = (adaptive(value, fits_epsilon, {2.0: 2, 4.0: 1}, normal=False, leave=leave) for value in (1, 0))
        GAMES[f"adaptive, epsilon{', left' * leave}"] = Game(Claim(pc.Filter(epsilon=1.5).mechanism, ADD), one, two)


def persons() -> None:
    """Three records of a person, a coin for each; all that were drawn are counted, or at most two."""

    def person(value: int, most: int) -> Draw:
        release = gaussian(1.2)
        return lambda rng, n: np.stack(
            [release(rng, value * np.minimum(rng.binomial(3, 0.3, n), most).astype(float)) for _ in range(3)]
        )

    for most in (3, 2):
        add(f"a person, {most} counted",
            lambda m, b=most: pc.UserSampled(pc.Gaussian(1.2 * m), 0.3, records=3, counted=b) * 3, ADD,
            person(1, most), person(0, most))  # fmt: skip
        GAMES[f"a person replaced, {most} counted"] = Game(
            Claim(pc.UserSampled(pc.Gaussian(1.2), 0.3, records=3, counted=most) * 3, SWAP), person(1, most),
            person(-1, most),
            Claim(pc.UserSampled(pc.Gaussian(1.2), 0.3, records=3, counted=most) * 3, ADD))  # fmt: skip


def streams() -> None:
    """Three steps, of which the record is in two; it looks at what was released before its second contribution."""
    matrix = np.array([[1.0, 0, 0], [0.5, 1, 0], [0.4, 0.5, 1]])
    strategy, participation = Dense(matrix), MinSeparation(separation=2)

    def stream(record: float) -> Draw:
        def draw(rng: np.random.Generator, n: int) -> Array:
            x, rows = np.zeros((3, n)), []
            for t in range(3):
                others = np.where(rows[-1] > 0, 0.3, -0.4) if rows else 0.2  # adapts
                x[t] = others + (record if t in (0, 2) else 0)
                rows.append(matrix[t] @ x + rng.normal(0, 2.0, n))
            known = np.stack(rows)
            known[1] -= matrix[1, 1] * np.where(known[0] > 0, 0.3, -0.4)  # what everybody can work out
            known[2] -= matrix[2, 1] * np.where(known[0] > 0, 0.3, -0.4) + np.where(rows[1] > 0, 0.3, -0.4)
            return (matrix[:, [0, 2]].sum(axis=1) @ known)[None]

        return draw

    add(
        "correlated noise", lambda m: pc.CorrelatedGaussian(2.0 * m, strategy, participation), ADD, stream(1), stream(0)
    )
    add(
        "correlated noise, replaced",
        lambda m: pc.CorrelatedGaussian(2.0 * m, strategy, participation),
        SWAP,
        stream(1),
        stream(-1),
    )

    # two bands, two classes of records, a coin for each turn
    bands = Toeplitz([1.0, 0.75], 4)

    def turns(record: float) -> Draw:
        def draw(rng: np.random.Generator, n: int) -> Array:
            x = np.zeros((4, n))
            x[0::2] = record * (rng.random((2, n)) < 0.4)
            rows = bands.matrix() @ x + rng.normal(0, 1.25, (4, n))
            return np.stack([rows[0] + 0.75 * rows[1], rows[2] + 0.75 * rows[3]])

        return draw

    def banded(m: float) -> pc.CorrelatedGaussian:
        return pc.CorrelatedGaussian(1.25 * m, bands, CyclicPoisson(2, 0.4))

    add("bands, cyclic coins", banded, ADD, turns(1), turns(0))
    add("bands, cyclic coins, replaced", banded, SWAP, turns(1), turns(-1))

    # buffers, as a ledger draws and publishes them: every coordinate is a run of its own;
    # the record is in the steps 0 and 3
    buffers, apart = BLT([0.25, 0.5], [0.875, 0.5], 6), MinSeparation(3)

    def published(record: float) -> Draw:
        def draw(rng: np.random.Generator, n: int) -> Array:
            run = pc.CorrelatedGaussian(2.0, buffers, apart)
            with pc.Ledger(None, plan=run, seed=int(rng.integers(2**31))) as ledger:
                stream = ledger.correlated(run, coordinates=n, clip_norm=1.0)
                found = np.array([stream.release(np.full(n, record if t in (0, 3) else 0.0)) for t in range(6)])
            matrix = buffers.matrix()
            return (matrix[:, [0, 3]].sum(axis=1) @ matrix @ found)[None]

        return draw

    add("buffers, published", lambda m: pc.CorrelatedGaussian(2.0 * m, buffers, apart), ADD, published(1), published(0))

    # two bands, four bins, two epochs: certified up to bins that share no row, so that attacks stay further below
    shifts = Toeplitz([1.0, 0.5], 8).matrix().reshape(8, 2, 4).sum(axis=1)

    def thrown(record: float) -> Draw:
        def draw(rng: np.random.Generator, n: int) -> Array:
            rows = record * shifts[:, rng.integers(0, 4, n)] + rng.normal(0, 1.5, (8, n))
            return np.logaddexp.reduce((shifts.T @ rows - 0.5 * (shifts**2).sum(axis=0)[:, None]) / 1.5**2, axis=0)[
                None
            ]

        return draw

    bins = pc.CorrelatedGaussian(1.5, Toeplitz([1.0, 0.5], 8), BallsInBins(4))
    GAMES["bands, balls in bins"] = Game(Claim(bins, ADD), thrown(1), thrown(0), near=0.3)


def allocations() -> None:
    """Each record in one step of four, drawn by itself; likewise in each of two epochs, anew or in the same step."""

    def ratio(sums: Array) -> Array:
        """The logarithm of the likelihood ratio, up to a constant."""
        return np.asarray(np.logaddexp.reduce(sums / 0.64, axis=0))

    def allocated(value: float, epochs: int) -> Draw:
        release = gaussian(0.8)

        def draw(rng: Rng, n: int) -> Array:
            slots = rng.integers(0, 4, (epochs, n))
            return np.array([ratio(release(rng, value * (slots[e] == np.arange(4)[:, None]))) for e in range(epochs)])

        return draw

    def pairs(value: float) -> Draw:
        """Two of four steps; the likelihood ratio is Σ_{i<j} r_i r_j."""
        release = gaussian(1.2)

        def draw(rng: Rng, n: int) -> Array:
            takes = value * (np.argsort(rng.random((4, n)), axis=0) < 2)
            r = np.exp(release(rng, takes) / 1.44)
            return np.log(r.sum(axis=0) ** 2 - (r**2).sum(axis=0))[None, :]

        return draw

    def same(value: float) -> Draw:
        release = gaussian(1.0)

        def draw(rng: Rng, n: int) -> Array:
            takes = value * (rng.integers(0, 4, n) == np.arange(4)[:, None])
            return np.logaddexp.reduce(release(rng, takes) + release(rng, takes), axis=0)[None, :]

        return draw

    for epochs in (1, 2):
        add(f"allocation, {epochs} epochs",
            lambda m, e=epochs: pc.RandomAllocation(pc.Gaussian(0.8 * m), steps=4) * e, ADD,
            allocated(1, epochs), allocated(0, epochs))  # fmt: skip
    # Its certified pair does not occur; and a claim of one step of four for each is false.
    GAMES["allocation, two of four"] = Game(
        Claim(pc.RandomAllocation(pc.Gaussian(1.2), steps=4, choices=2), ADD), pairs(1), pairs(0),
        Claim(pc.RandomAllocation(pc.Gaussian(1.2), steps=4), ADD), 0.7,
    )  # fmt: skip
    add("allocation, the same step", lambda m: pc.RandomAllocation(pc.Gaussian(1.0 * m), steps=4, epochs=2), NULL,
        same(1), same(0))  # fmt: skip


whole_data()
samples()
streams()
combinations()
persons()
allocations()
LEVEL = 1e-6 / (2 * 2 * (len(DELTAS) + 1) * len(GAMES) + 8)
"""Error of a Clopper–Pearson bound: two per event, an event per ε and order of worlds. Eight more for the last test."""


# --- the attack ---


class Event(NamedTuple):
    """P(S) is at least ``power`` and Q(S) at most ``false``, for an S chosen with this ε in mind."""

    epsilon: float
    power: float
    false: float

    @property
    def delta(self) -> float:
        return self.power - math.exp(self.epsilon) * self.false


def ratios(p: Array, q: Array) -> Callable[[Array], Array]:
    """An output's log-likelihood ratio, learnt by counting cells: whole numbers by value, real ones between quantiles.

    Real ones are rounded: the last bits of floating-point noise would tell the worlds apart (Mironov 2012).
    """
    if p.dtype.kind == "i":
        edges = np.union1d(p, q)
    else:
        edges = np.round(np.quantile(np.concatenate([p[::8], q[::8]]), np.linspace(0, 1, 151)[1:-1]), 9) + 5e-10

    def cells(x: Array) -> Array:
        return np.searchsorted(edges, x if x.dtype.kind == "i" else np.round(x, 9))

    with_it, without = (np.bincount(cells(x), minlength=edges.size + 1) for x in (p, q))
    learnt = np.log((with_it + 0.5) / (without + 0.5))
    return lambda x: learnt[cells(x)]


def at_least(hits: int, trials: int) -> float:
    return float(attacks.at_least(hits, trials, LEVEL))


def at_most(hits: int, trials: int) -> float:
    return float(attacks.at_most(hits, trials, LEVEL))


def attack(game: Game, epsilons: list[float], seed: int) -> list[Event]:
    """The events, for each order of the worlds and each ε; the halves are independent samples."""
    rng = np.random.default_rng(seed)
    half = SIZE // 2
    worlds = [draw(rng, SIZE) for draw in (game.present, game.absent)]
    tables = [ratios(p[:half], q[:half]) for p, q in zip(*worlds, strict=True)]
    scores = [sum(table(row) for table, row in zip(tables, world, strict=True)) for world in worlds]
    events = []
    for p, q in (scores, [-s for s in scores[::-1]]):
        thresholds = np.unique(np.quantile(p[:half], np.linspace(0, 0.9999, 300)))
        below_p, below_q = (np.searchsorted(np.sort(x[:half]), thresholds) / half for x in (p, q))
        for epsilon in epsilons:
            best = np.argmax((1 - below_p) - math.exp(epsilon) * (1 - below_q))
            hits, misses = (int((x[half:] >= thresholds[best]).sum()) for x in (p, q))
            events.append(Event(epsilon, at_least(hits, half), at_most(misses, half)))
    return events


LONG = {
    "sampled Laplace, 8",
    "sampled Laplace, opposite",
    "allocation, 2 epochs",
    "allocation, the same step",
    "allocation, two of four",
    "bands, balls in bins",
    "buffers, published",
    "with replacement, zero-out",
    "fixed size, 6 steps",
    "bands, cyclic coins",
    "fixed size, Laplace, zero-out",
    "fixed size, Gaussian, zero-out",
    "fixed size, discrete Gaussian, zero-out",
    "cut, zero-out",
    "two batches, zero-out",
    "a person, 3 counted",
    "a person replaced, 3 counted",
    "response of 5, 8 times, replace-one",
    "above a threshold, True, add-or-remove-one",
    "sampled Gaussian, 8",
}
"""The certified ε of the first takes seconds; "sampled Laplace, two opposite" and "allocation, 1 epochs" are like
them. The other relations, units and numbers of the rest are played."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in GAMES]
)
def test_certificates_against_attacks(name: str) -> None:
    game = GAMES[name]
    run, relation = game.true
    single = sum(count for _, count in run.run.entries) == 1
    certified = {
        run.epsilon(delta=delta, relation=relation).upper: delta for delta in (DELTAS if single else DELTAS[:2])
    }
    certified.pop(math.inf, None)  # below a leak
    if single:
        certified[game.at] = run.delta(epsilon=game.at, relation=relation).upper
    events = attack(game, list(certified), list(GAMES).index(name))
    assert all(event.delta <= certified[event.epsilon] for event in events)
    assert max(event.delta / certified[event.epsilon] for event in events) >= game.near
    if single:  # the trade-off curve, at the best event of each order
        for half in (events[: len(certified)], events[len(certified) :]):
            best = max(half, key=lambda event: event.delta)
            assert best.power <= 1 - run.beta(alpha=best.false, relation=relation).lower
    if game.false is not None:
        run, relation = game.false
        assert any(event.delta > run.delta(epsilon=event.epsilon, relation=relation).upper for event in events)


def test_gumbel_noise_is_the_exponential_mechanism_in_law() -> None:
    """Equal laws: no event learnt on one half tells the noisy winner from a draw of e^{score}/Σ on the other half."""
    scores = np.array([0.3, 1.0, -0.4, 0.0])
    weights = np.exp(0.9 * scores)
    noisy = whole(1, choice(0.9, scores.tolist(), [0.0] * 4))

    def drawn(p: Array) -> Draw:
        return lambda rng, size: rng.choice(4, size=(1, size), p=p / p.sum())

    claim = Claim(pc.ExponentialMechanism(0.9), ADD)
    assert attack(Game(claim, noisy, drawn(weights)), [0.0], 99)[0].delta <= 0
    assert attack(Game(claim, noisy, drawn(weights[::-1])), [0.0], 99)[0].delta > 0.05
