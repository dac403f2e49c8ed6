"""Mechanisms, runs, relations and levels for property tests: extreme values among ordinary ones."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import hypothesis
from cases import SLOW
from hypothesis import assume
from hypothesis import strategies as st
from made_up import MadeUpNoise, MadeUpSampled

import privcalc as pc
from privcalc.composition.direction import Direction, merge


def _log_uniform(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(math.log(low), math.log(high)).map(lambda x: min(max(math.exp(x), low), high))


def _mixed(extreme: list[float], low: float, high: float) -> st.SearchStrategy[float]:
    return st.one_of(st.sampled_from(extreme), _log_uniform(low, high), _log_uniform(low, high))


noises = _mixed([1e-3, 0.05, 0.3, 1.0, 100.0, 1e4], 0.3, 50.0)
rates = _mixed([1e-9, 1e-6, 1e-4, 0.5, 0.999, 1.0], 1e-4, 0.9)
deltas = _mixed([1e-300, 1e-100, 1e-20, 0.1, 0.5], 1e-12, 1e-2)
most = 1e5 if SLOW else 200  # in between, a question about two kinds of choices may take half a minute
counts = st.one_of(st.sampled_from([1, 1, 2, 10**6, 10**9]), st.integers(1, 12), _log_uniform(1, most).map(round))
epsilons = _mixed([0.0, 1e-9, 50.0, 700.0], 1e-3, 20.0)
relations = st.sampled_from(list(pc.Relation))

gaussians = noises.map(pc.Gaussian)
laplaces = noises.map(pc.Laplace)
levels = _mixed([1e-6, 0.1, 1.0, 30.0], 1e-3, 5.0)
responses = st.builds(pc.RandomizedResponse, levels, st.sampled_from([2, 3, 10]))
exponentials = levels.map(pc.ExponentialMechanism)
selections = st.one_of(
    st.builds(pc.PermuteAndFlip, levels, monotone=st.booleans()),
    st.builds(pc.NoisyMax, levels, noise=st.sampled_from(["exponential", "gumbel", "laplace"])),
)
discrete = st.builds(pc.DiscreteGaussian, _mixed([0.3, 1.0, 50.0], 0.3, 30.0), st.integers(1, 3))
vectors = st.builds(pc.DiscreteGaussian, _mixed([0.02, 0.3, 1.0, 1e6], 0.3, 30.0), _log_uniform(1.0, 100.0), st.just(2))
plain = st.one_of(gaussians, laplaces, responses, exponentials, selections, discrete, vectors)
sampled = st.builds(pc.PoissonSampled, plain, rates)

# Batches drawn in other ways. Random allocation has no pair under replace-one, and is slow: it has laws of its own.
sizes = st.integers(2, 60)
cut = st.builds(
    lambda base, rate, most, size: pc.TruncatedPoissonSampled(base, rate, min(most, size), size),
    st.one_of(gaussians, laplaces), rates, sizes, sizes,
)  # fmt: skip
redrawn = st.builds(pc.WithReplacementSampled, gaussians, st.integers(1, 12), sizes)
persons = st.builds(pc.UserSampled, gaussians, rates, st.integers(1, 6))
correlated = st.builds(
    lambda noise, steps, apart: pc.CorrelatedGaussian(
        noise, pc.strategies.SquareRoot(steps), pc.strategies.MinSeparation(apart)),
    noises, st.integers(1, 12), st.integers(1, 12),
)  # fmt: skip
bands = st.sampled_from([(1.0,), (1.0, 0.5)])
binned = st.builds(
    lambda noise, c, steps, bins: pc.CorrelatedGaussian(
        noise, pc.strategies.Toeplitz(c, steps), pc.strategies.BallsInBins(bins)),
    noises, bands, st.integers(2, 12), st.integers(2, 6),
)  # fmt: skip
samplers = st.one_of(cut, redrawn, persons, correlated) if SLOW else st.one_of(cut, correlated)
slots = st.integers(1, 12).flatmap(lambda t: st.tuples(st.just(t), st.integers(1, 3), st.integers(1, t)))
allocations = st.builds(
    lambda base, slot: pc.RandomAllocation(base, slot[0], slot[1], slot[2]),
    st.one_of(gaussians, noises.map(pc.GDP)),
    slots,
)
made_up = st.one_of(noises.map(MadeUpNoise), st.builds(MadeUpSampled, noises.map(MadeUpNoise), st.integers(1, 30)))
mechanisms = st.one_of(plain, sampled, samplers, made_up)
entries = st.tuples(mechanisms, counts)
runs = st.lists(entries, min_size=1, max_size=2).map(lambda parts: pc.Run(tuple(parts)))

# Where the engine is meant to be sharp: used by laws that compare numbers closely.
ordinary_noises = _log_uniform(0.6, 20.0)
ordinary_rates = _log_uniform(1e-3, 0.5)
ordinary_counts = st.integers(20, 3_000)
ordinary_deltas = _log_uniform(1e-10, 1e-2)
ordinary = st.one_of(
    ordinary_noises.map(pc.Gaussian),
    st.builds(pc.PoissonSampled, ordinary_noises.map(pc.Gaussian), ordinary_rates),
    ordinary_noises.map(pc.Laplace),
)


# Each class at least once: JSON, certificates and their assumptions are tested of all.
EXAMPLES = [
    pc.Gaussian(2.0),
    pc.GDP(0.5),
    pc.Laplace(3.0),
    pc.DiscreteGaussian(2.0, 3),
    pc.DiscreteGaussian(2.0, 3.5, norm=2),
    pc.RandomizedResponse(0.5),
    pc.PureDP(0.3),
    pc.ApproxDP(0.3, 1e-12),
    pc.ExponentialMechanism(0.4, monotone=False),
    pc.TopK(0.8, 3),
    pc.PermuteAndFlip(0.4),
    pc.AboveThreshold(threshold_scale=9.0, query_scale=20.0, monotone=True),
    pc.ThresholdedCounts(noise="laplace", scale=2.0, threshold=50.0, keys=2),
    pc.NoisyMax(0.3, noise="laplace", monotone=False),
    pc.ZCDP(0.1),
    pc.RDP([2.0, 8.0, math.inf], [0.1, 0.3, 2.0]),
    pc.CustomMechanism.from_probabilities([0.7, 0.2, 0.1], [0.2, 0.7, 0.1]),
    pc.PoissonSampled(pc.Gaussian(1.0), 0.1),
    pc.UserSampled(pc.Gaussian(1.0), 0.1, records=4),
    pc.UserSampled(pc.Gaussian(1.0), 0.1, records=4, counted=2),
    pc.RandomAllocation(pc.Gaussian(1.0), steps=20, epochs=2),
    pc.FixedSizeSampled(pc.Gaussian(2.0), 3, 30),
    pc.TruncatedPoissonSampled(pc.Gaussian(2.0), 0.1, 8, 30),
    pc.WithReplacementSampled(pc.Gaussian(2.0), 3, 30),
    pc.ShuffledEpoch(pc.Gaussian(2.0)),
    pc.CorrelatedGaussian(4.0, pc.strategies.Toeplitz([1, 0.5], 9), pc.strategies.MinSeparation(3)),
    pc.LastIterate(4.0, 30, 0.9, capped=True),
    pc.Parallel([pc.Gaussian(2.0), pc.Laplace(3.0)]),
    pc.RandomTrials(pc.Gaussian(3.0) * 2, mean=3, distribution="geometric"),
]


def refuses(run: pc.Mechanism | pc.Run, relation: pc.Relation) -> bool:
    """Whether a part of it has no guarantee under the relation, and says so: then no law is about it."""
    try:
        for mechanism, _ in run.run.entries:
            mechanism.turns(relation)
    except pc.PrivcalcError as error:
        if str(error).startswith(f"relation = {relation}: "):
            return True
        raise
    return False


def given(*drawn: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As Hypothesis has it, for laws of runs under relations: what has no guarantee there is no example."""

    def of(law: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(law)
        def asked(**values: Any) -> None:
            relations = [value for value in values.values() if isinstance(value, pc.Relation)]
            for value in values.values():
                for run in value if isinstance(value, list) else [value]:
                    if isinstance(run, (pc.Mechanism, pc.Run)):
                        assume(not any(refuses(run, relation) for relation in relations))
            law(**values)

        return hypothesis.given(*drawn)(asked)

    return of


def directions(run: pc.Run, relation: pc.Relation) -> list[Direction]:
    """The composed directions that dominate a run, as the routes take them."""
    return [merge(direction) for direction in run._sides(relation).upper]
