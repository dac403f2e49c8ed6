"""What the benchmark asks: families of questions from easy to extreme, none chosen after looking at an answer."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

import privcalc as pc
from privcalc.peers import Question

NOISE, RATE = (0.3, 0.8, 2.0, 15.0, 100.0), (1e-6, 1e-4, 1e-2, 0.1, 1.0)
STEPS, DELTA = (1, 30, 1_000, 30_000, 1_000_000), (1e-3, 1e-5, 1e-7, 1e-9, 1e-12)
KNOWN = (  # (rate, noise multiplier, steps, δ)
    (0.01, 1.0, 1_000, 1e-5),
    (0.01, 1.0, 10_000, 1e-5),
    (0.001, 0.6, 100_000, 1e-6),
    (0.01, 10.0, 1_000, 1e-5),
    (0.02, 2.0, 2_000, 1e-12),
    (0.01, 1.0, 2_000, 1e-20),
    (1e-4, 0.8, 1_000_000, 1e-8),
    (0.01, 100.0, 10_000, 1e-6),
)
SIGMA = (  # (ε, rate, steps, δ)
    (1.0, 0.01, 1_000, 1e-5),
    (3.0, 0.01, 10_000, 1e-5),
    (8.0, 0.001, 100_000, 1e-9),
    (0.1, 0.001, 10_000, 1e-6),
    (0.01, 0.01, 1_000, 1e-5),
    (50.0, 1.0, 100, 1e-10),
)
ALLOCATED = (  # (quick, steps of an epoch, noise multiplier, epochs, δ)
    (True, 100, 1.0, 1, 1e-5),
    (False, 1_000, 1.0, 1, 1e-5),
    (False, 100, 1.0, 10, 1e-6),
    (False, 1_000, 0.8, 4, 1e-6),
    (False, 10_000, 1.0, 10, 1e-6),
    (False, 1_000_000, 1.0, 10, 1e-6),
    (False, 100, 2.0, 100, 1e-8),
)
SEVERAL = (  # (quick, steps of an epoch, of which each record takes part in, epochs, δ)
    (True, 100, 10, 1, 1e-6),
    (False, 1_000, 10, 1, 1e-6),
    (False, 1_000, 10, 10, 1e-6),
)
PERSONS = (  # (quick, records of a person, rate, noise multiplier, steps, δ)
    (True, 2, 0.01, 2.0, 100, 1e-5),
    (False, 8, 0.01, 1.0, 1_000, 1e-6),
    (False, 4, 0.001, 1.0, 10_000, 1e-6),
    (False, 32, 0.001, 4.0, 1_000, 1e-5),
    (False, 100, 0.01, 50.0, 1_000, 1e-8),
)
CUT = (  # (quick, rate, batch size, data set size, noise multiplier, steps, δ)
    (True, 0.01, 150, 10_000, 1.0, 100, 1e-5),
    (False, 0.01, 150, 10_000, 1.0, 1_000, 1e-5),
    (False, 0.01, 125, 10_000, 2.0, 1_000, 1e-6),
    (False, 0.001, 1_200, 1_000_000, 0.8, 10_000, 1e-8),
)
COARSER = (100.0, 10.0, 1.0, 0.1)
FAMILIES = {
    "usual": "Poisson-sampled Gaussians, settings met in practice and a few beyond",
    "grid": "Poisson-sampled Gaussians from easy to extreme: every pair of two parameters' levels once",
    "entries": "Schedules of distinct (σ, q): noise from 1 to 2, rate from 0.005 to 0.01, one step each, δ = 1e-6",
    "pure": "Compositions of ε-DP, the exponential mechanism, Laplace noise, randomised response",
    "replace": "Replace-one: a replaced record moves a sum by up to twice the clip norm",
    "groups": "Groups: neighbours differ in up to k records",
    "allocation": "Random allocation: each record in one of t steps of an epoch, drawn anew in each epoch",
    "several": "Random allocation to k of t steps",
    "users": "Persons with several records, each with a coin of its own",
    "truncated": "Poisson samples cut at a largest size",
    "batches": "Batches drawn otherwise: with replacement, of one size, a shuffled epoch",
    "sigma": "Calibration: the noise multiplier for a target ε",
    "attack": "Attack rates of q = 0.01, σ = 1, T = 1000: advantage, power at 1 % false positives, μ of Gaussian DP",
    "steps": "Cost in T: q = 0.01, σ = 1, δ = 1e-5",
    "precision": "Cost in the precision asked: q = 0.01, σ = 1, T = 1000, δ = 1e-5, the peer's grid times a factor",
}


class Case(NamedTuple):
    """A question with its family and name; ``quick`` if the quick form asks it."""

    family: str
    name: str
    quick: bool
    question: Question

    @property
    def key(self) -> str:
        """What it is called in a file."""
        return f"{self.family}: {self.name}"


def sampled(rate: float, noise: float, steps: int) -> pc.Run:
    """Poisson-sampled Gaussians."""
    return pc.PoissonSampled(pc.Gaussian(noise), rate) * steps


@functools.cache
def entries(count: int) -> pc.Run:
    """``count`` steps, each with its own noise multiplier and rate."""
    parts = ((1 + k / count, 0.005 * (1 + k / count)) for k in range(count))
    return pc.Run.of(pc.PoissonSampled(pc.Gaussian(noise), rate) for noise, rate in parts)


def cases() -> Iterator[Case]:
    """Every case, in the order in which they are asked."""
    for i, (rate, noise, steps, delta) in enumerate(KNOWN):
        name = f"q={rate:g} σ={noise:g} T={steps:g} δ={delta:g}"
        yield Case("usual", name, i in (0, 4, 5), Question(sampled(rate, noise, steps), delta))
    for i, rate in enumerate(RATE):
        for j, noise in enumerate(NOISE):
            steps, delta = STEPS[(i + j) % 5], DELTA[(i + 2 * j) % 5]
            name = f"q={rate:g} σ={noise:g} T={steps:g} δ={delta:g}"
            yield Case("grid", name, i == j == 2, Question(sampled(rate, noise, steps), delta))
    for count in (1, 40, 1_000, 10_000):
        yield Case("entries", f"{count} distinct", count == 1, Question(entries(count), 1e-6))
    for quick, run, delta, relation in pure():
        at = "" if relation is pc.ADD_OR_REMOVE_ONE else f", {relation}"
        yield Case("pure", f"{brief(run)}, δ={delta:g}{at}", quick, Question(run, delta, relation))
    for quick, run, delta in replaced():
        question = Question(run, delta, pc.REPLACE_ONE)
        yield Case("replace", f"{brief(run)}, δ={delta:g}", quick, question)
    for quick, run, delta, records in groups():
        yield Case("groups", f"{brief(run)}, k={records}, δ={delta:g}", quick, Question(run, delta, group_size=records))
    for quick, steps, noise, epochs, delta in ALLOCATED:
        question = Question(pc.RandomAllocation(pc.Gaussian(noise), steps) * epochs, delta)
        yield Case("allocation", f"t={steps:g} σ={noise:g} E={epochs} δ={delta:g}", quick, question)
    for quick, steps, choices, epochs, delta in SEVERAL:
        question = Question(pc.RandomAllocation(pc.Gaussian(1.0), steps, choices=choices) * epochs, delta)
        yield Case("several", f"k={choices} of t={steps:g} σ=1 E={epochs} δ={delta:g}", quick, question)
    for quick, records, rate, noise, steps, delta in PERSONS:
        question = Question(pc.UserSampled(pc.Gaussian(noise), rate, records) * steps, delta)
        yield Case("users", f"{records} records, q={rate:g} σ={noise:g} T={steps:g} δ={delta:g}", quick, question)
    for quick, rate, batch, size, noise, steps, delta in CUT:
        question = Question(pc.TruncatedPoissonSampled(pc.Gaussian(noise), rate, batch, size) * steps, delta)
        yield Case("truncated", f"q={rate:g} B={batch} N={size:g} σ={noise:g} T={steps:g} δ={delta:g}", quick, question)
    for quick, name, run, delta, relation in drawn():
        yield Case("batches", f"{name} δ={delta:g}, {relation}", quick, Question(run, delta, relation))
    for i, (epsilon, rate, steps, delta) in enumerate(SIGMA):
        name = f"ε={epsilon:g} q={rate:g} T={steps:g} δ={delta:g}"
        yield Case("sigma", name, i == 0, Question(sampled(rate, 1.0, steps), delta, asks="sigma", target=epsilon))
    for asks in ("advantage", "power"):  # gdpnum's μ is for error rates above 1e-10, which is another question
        yield Case("attack", asks, asks == "power", Question(sampled(0.01, 1.0, 1_000), 1e-5, asks=asks))
    for steps in (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000):
        yield Case("steps", f"T={steps:g}", steps == 10, Question(sampled(0.01, 1.0, steps), 1e-5))
    for factor in COARSER:
        yield Case("precision", f"×{factor:g}", factor == 10, Question(sampled(0.01, 1.0, 1_000), 1e-5, coarser=factor))


def pure() -> Iterator[tuple[bool, pc.Run, float, pc.Relation]]:
    """(quick, run, δ, relation) of what is not Gaussian, or not only."""
    add = pc.ADD_OR_REMOVE_ONE
    yield True, pc.PureDP(0.1) * 100, 1e-6, add
    yield False, pc.PureDP(1.0) * 10, 1e-12, add
    yield False, pc.PureDP(0.01) * 10_000, 1e-9, add
    yield True, pc.ExponentialMechanism(0.1) * 100, 1e-6, add
    yield False, pc.ExponentialMechanism(1.0) * 10, 1e-6, add
    yield False, pc.Laplace(1.0) * 3, 1e-5, add
    yield False, pc.Laplace(10.0) * 200, 1e-6, add
    yield False, pc.RandomizedResponse(1.0) * 20, 1e-5, pc.REPLACE_ONE
    yield False, pc.RandomizedResponse(0.1) * 1_000, 1e-9, pc.REPLACE_ONE
    yield False, sampled(0.01, 1.0, 1_000) + pc.Laplace(20.0) * 10 + pc.PureDP(0.05), 1e-6, add


def replaced() -> Iterator[tuple[bool, pc.Run, float]]:
    """(quick, run, δ) under replace-one."""
    yield True, pc.Gaussian(1.0) * 1, 1e-5
    yield False, pc.Gaussian(4.0) * 100, 1e-6
    yield False, pc.Gaussian(0.5) * 1, 1e-12
    yield False, pc.Gaussian(100.0) * 30_000, 1e-7
    yield False, pc.Laplace(1.0) * 3, 1e-5
    yield False, pc.Laplace(20.0) * 200, 1e-6
    yield False, sampled(0.01, 1.0, 1_000), 1e-5
    yield False, sampled(0.1, 2.0, 100), 1e-9
    yield False, pc.FixedSizeSampled(pc.Gaussian(2.0), 100, 10_000) * 1_000, 1e-5
    yield False, pc.FixedSizeSampled(pc.Gaussian(4.0), 250, 1_000) * 100, 1e-6


def drawn() -> Iterator[tuple[bool, str, pc.Run, float, pc.Relation]]:
    """(quick, name, run, δ, relation) of other samplers."""
    noise, add = pc.Gaussian(2.0), pc.ADD_OR_REMOVE_ONE
    yield (
        False,
        "100 of 10000 with replacement, σ=2 T=1000",
        pc.WithReplacementSampled(noise, 100, 10_000) * 1_000,
        1e-5,
        add,
    )
    yield False, "100 of 10000, σ=2 T=1000", pc.FixedSizeSampled(noise, 100, 10_000) * 1_000, 1e-5, add
    yield True, "shuffled, σ=2 E=10", pc.ShuffledEpoch(noise) * 10, 1e-5, pc.ZERO_OUT


def groups() -> Iterator[tuple[bool, pc.Run, float, int]]:
    """(quick, run, δ, k) for groups of k records."""
    yield True, pc.Gaussian(4.0) * 10, 1e-5, 2
    yield False, pc.Gaussian(20.0) * 100, 1e-6, 10
    yield False, pc.Gaussian(100.0) * 1_000, 1e-9, 50
    yield False, pc.Laplace(20.0) * 10, 1e-5, 4
    yield False, pc.Laplace(10.0) * 100, 1e-6, 2
    yield False, pc.ExponentialMechanism(0.1) * 100, 1e-6, 2
    yield False, pc.RandomizedResponse(0.1) * 100, 1e-6, 2
    yield False, pc.PermuteAndFlip(0.1) * 100, 1e-6, 2
    yield False, pc.Laplace(10.0) * 10 + pc.Gaussian(5.0) * 10 + pc.ExponentialMechanism(0.1) * 10, 1e-6, 2
    yield False, sampled(0.01, 2.0, 100), 1e-5, 2
    yield False, sampled(0.001, 1.0, 1_000), 1e-6, 8
    yield False, sampled(0.01, 1.0, 1_000), 1e-6, 8
    yield False, sampled(0.1, 20.0, 300), 1e-6, 30


def brief(run: pc.Run) -> str:
    """The run, with numbers only.

    Example:
        >>> brief(pc.Laplace(10.0) * 200)
        '200 × Laplace(10)'
    """
    parts = []
    for mechanism, count in run.entries:
        inner = mechanism.mechanism if isinstance(mechanism, pc.PoissonSampled | pc.FixedSizeSampled) else mechanism
        number = next(value for value in vars(inner).values() if isinstance(value, float))
        text = f"{type(inner).__name__}({number:g})"
        if isinstance(mechanism, pc.PoissonSampled):
            text += f" at q={mechanism.rate:g}"
        elif isinstance(mechanism, pc.FixedSizeSampled):
            text += f" on {mechanism.batch_size} of {mechanism.dataset_size}"
        parts.append(f"{count} × {text}")
    return " + ".join(parts)
