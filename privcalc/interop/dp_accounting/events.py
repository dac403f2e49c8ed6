"""dp-accounting's ``DpEvent`` trees, in and out.

Events are read by the name of their class, so that newer versions' events for (ε, δ), the exponential mechanism and the
discrete Gaussian are known, too. What an event leaves open is read as that package reads it; what is not supported is
refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dp_accounting import dp_event

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.interop.dp_accounting.mixtures import from_mixture, to_mixture
from privcalc.mechanisms.correlated import CorrelatedGaussian
from privcalc.mechanisms.custom import CustomMechanism
from privcalc.mechanisms.discrete_gaussian import DiscreteGaussian
from privcalc.mechanisms.exponential import ExponentialMechanism
from privcalc.mechanisms.fixed_size import FixedSizeSampled, WithReplacementSampled
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.guarantees import ZCDP, ApproxDP, PureDP
from privcalc.mechanisms.laplace import Laplace
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.mechanisms.random_trials import RandomTrials
from privcalc.mechanisms.randomized_response import RandomizedResponse
from privcalc.mechanisms.truncated_poisson import TruncatedPoissonSampled
from privcalc.mechanisms.user_sampling import UserSampled
from privcalc.numerics.floats import UNIT
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, ZERO_OUT, Relation, check_relation
from privcalc.run import Mechanism, Run
from privcalc.strategies.matrices import Tree
from privcalc.strategies.participation import MinSeparation

Parts = dict[Mechanism, int]
UP = 1 + 4 * UNIT
ONCE = MinSeparation(separation=1, most=1)
"""A record is in one step of a tree."""


class Refused(Exception):
    """What cannot be read: the event, and why."""

    def __init__(self, event: Any, why: str) -> None:
        super().__init__(why)
        self.event = event


class NonPrivate(Exception):
    """An event after which nothing is private."""


def from_event(event: Any, *, relation: Relation = ADD_OR_REMOVE_ONE) -> Run:
    """The run that an event describes.

    Args:
        event: a ``DpEvent`` tree.
        relation: the relation it is read for.

    Raises:
        PrivcalcError: if a part is not supported under the relation, or not private.
    """
    parts: Parts = {}
    try:
        read(event, 1, check_relation(relation), parts)
    except Refused as refused:
        raise PrivcalcError(f"event = {refused.event}: {refused}") from refused
    except NonPrivate as error:
        raise PrivcalcError(f"event = {event}: is not private, no run has its ε of ∞") from error
    return Run(tuple(parts.items()))


def to_event(run: Mechanism | Run, *, relation: Relation = ADD_OR_REMOVE_ONE) -> Any:
    """A ``DpEvent`` for a run; numbers are rounded to doubles.

    Args:
        run: a run or mechanism.
        relation: the relation that the event will be asked under.

    Raises:
        PrivcalcError: if the installed dp-accounting has no event for a part, or the part does not hold under the
            relation.
    """
    entries = [(_write(mechanism, check_relation(relation)), count) for mechanism, count in run.run.entries]
    events = [event if count == 1 else dp_event.SelfComposedDpEvent(event, count) for event, count in entries]
    if len(events) == 1:
        return events[0]
    return dp_event.ComposedDpEvent(events) if events else dp_event.NoOpDpEvent()


# --- reading --------------------------------------------------------------------------------------


def read(event: Any, count: int, relation: Relation, parts: Parts) -> None:
    """Add ``count`` uses of an event.

    All of it is read, so that what is refused is found behind what is not private.
    """
    name = type(event).__name__
    if name == "SelfComposedDpEvent":
        read(event.event, count * _count(event, "count"), relation, parts)
    elif name == "ComposedDpEvent":
        if not isinstance(event.events, (list, tuple)):  # what can be read once only has no events the second time
            raise Refused(event, f"events must be a list, not {type(event.events).__name__}")
        private = True
        for part in event.events:
            try:
                read(part, count, relation, parts)
            except NonPrivate:
                private = False
        if not private:
            raise NonPrivate
    else:
        mechanism = _mechanism(event, relation)
        if mechanism is not None and count:
            parts[mechanism] = parts.get(mechanism, 0) + count


def _count(event: Any, name: str) -> int:
    try:
        return errors.count(name, getattr(event, name))
    except PrivcalcError as error:
        raise Refused(event, str(error)) from error


def _mechanism(event: Any, relation: Relation) -> Mechanism | None:
    """One event; None if it does nothing."""
    name = type(event).__name__
    if name == "NoOpDpEvent":
        return None
    if name == "NonPrivateDpEvent":
        raise NonPrivate
    reader = _READERS.get(name)
    if reader is None:
        known = ", ".join(sorted([*_READERS, "ComposedDpEvent", "SelfComposedDpEvent"]))
        raise Refused(event, f"Unsupported event {name}; supported are {known}.")
    try:
        mechanism = reader(event, relation)
        if mechanism is not None:
            mechanism.pairs(relation)
    except PrivcalcError as error:
        raise Refused(event, str(error)) from error
    return mechanism


def _noise(value: float) -> float:
    if value == 0:
        raise NonPrivate
    return value


def _inside(event: Any, relation: Relation) -> Mechanism | None:
    """What runs on a sample: one release, or several Gaussian ones, which are together one of less noise."""
    parts: Parts = {}
    read(event.event, 1, relation, parts)
    if all(isinstance(mechanism, Gaussian) for mechanism in parts) and sum(parts.values()) > 1:
        total = math.fsum(n / m.noise_multiplier**2 for m, n in parts.items() if isinstance(m, Gaussian))
        return Gaussian(1 / math.sqrt(total) / UP)
    if sum(parts.values()) > 1:
        raise PrivcalcError(f"event = {event.event}: on a sample must be a single release, or Gaussian ones")
    return next(iter(parts), None)


def _poisson(event: Any, relation: Relation) -> Mechanism | None:
    inner = _inside(event, relation) if event.sampling_probability else None
    return None if inner is None else PoissonSampled(inner, event.sampling_probability)


def _fixed_size(event: Any, relation: Relation) -> Mechanism | None:
    inner = _inside(event, relation) if event.sample_size else None
    return None if inner is None else FixedSizeSampled(inner, event.sample_size, event.source_dataset_size)


def _with_replacement(event: Any, relation: Relation) -> Mechanism | None:
    inner = _inside(event, relation) if event.sample_size else None
    return None if inner is None else WithReplacementSampled(inner, event.sample_size, event.source_dataset_size)


def _truncated(event: Any, _: Relation) -> Mechanism | None:
    """A batch is never larger than the data set, so that a larger limit does not cut."""
    size, limit = (errors.count(name, getattr(event, name)) for name in ("dataset_size", "truncated_batch_size"))
    if not (size and limit and event.sampling_probability):
        return None
    return TruncatedPoissonSampled(
        Gaussian(_noise(event.noise_multiplier)), event.sampling_probability, min(limit, size), size
    )


def _mixture(event: Any, relation: Relation) -> Mechanism | None:
    """Between one data set and the other only: what replaces the record, that event does not say."""
    if relation is REPLACE_ONE:
        raise PrivcalcError(
            f"relation = {relation}: must be add-or-remove-one or zero-out; the event has one mixture, not two"
        )
    deviation = float(event.standard_deviation)
    found = from_mixture(deviation or 1.0, event.sensitivities, event.sampling_probs)
    if found is not None:
        _noise(deviation)
    return found


def _randomized_response(event: Any, relation: Relation) -> Mechanism | None:
    """Under zero-out the nulled record's report is uniform, as dp-accounting has it."""
    k = errors.count("num_buckets", event.num_buckets, least=1)
    p = errors.real("noise_parameter", event.noise_parameter, "a probability in [0, 1]", low=0.0, high=1.0)
    if relation is ADD_OR_REMOVE_ONE:
        raise PrivcalcError(
            f"relation = {relation}: must be replace-one or zero-out, because an absent record sends no report"
        )
    if k == 1 or p == 1:
        return None
    _noise(p)
    if relation is ZERO_OUT:
        return CustomMechanism.from_probabilities(
            [1 - p + p / k, (k - 1) * p / k], [1 / k, (k - 1) / k], relation=relation
        )
    return RandomizedResponse(math.log1p(k * (1 - p) / p) * UP, k)


def _discrete_laplace(event: Any, relation: Relation) -> Mechanism:
    """The law of the loss of a shift s: outcomes ≤ 0, 1 … s − 1, ≥ s (``proofs/laplace.md``)."""
    a = errors.positive("noise_parameter", _infinite(event.noise_parameter))
    s = errors.count("sensitivity", event.sensitivity, least=1) * (2 if relation is REPLACE_ONE else 1)
    if s > 10_000 or a * s > 600:
        raise PrivcalcError(
            f"sensitivity = {event.sensitivity}: must be at most 10000, and with noise_parameter a loss of at most 600"
        )
    law = [
        1 / (1 + math.exp(-a)),
        *(math.tanh(a / 2) * math.exp(-a * x) for x in range(1, s)),
        math.exp(-a * s) / (1 + math.exp(-a)),
    ]
    return CustomMechanism.from_probabilities(law, law[::-1], relation=relation)


def _infinite(value: float) -> float:
    """Parameters that are larger for less noise: 0 is no privacy at all in dp-accounting's reading, as is ∞."""
    if value in (0, math.inf):
        raise NonPrivate
    return value


def _zcdp(event: Any, relation: Relation) -> Mechanism | None:
    if math.inf in (event.rho, event.xi):
        raise NonPrivate
    if event.rho == 0:
        return PureDP(event.xi, relation=relation) if event.xi else None
    return ZCDP(event.rho, event.xi, relation=relation)


def _epsilon_delta(event: Any, relation: Relation) -> Mechanism | None:
    if event.epsilon == math.inf or event.delta == 1:
        raise NonPrivate
    if event.epsilon == 0 and event.delta == 0:
        return None
    return ApproxDP(event.epsilon, event.delta, relation=relation)


def _exponential(event: Any, relation: Relation) -> Mechanism | None:
    """A loss of range ε under the relation asked for."""
    if event.epsilon == math.inf:
        raise NonPrivate
    moves = 2 if relation is REPLACE_ONE else 1
    return ExponentialMechanism(event.epsilon / moves) if event.epsilon else None


def _discrete_gaussian(event: Any, _: Relation) -> Mechanism:
    if getattr(event, "dimension", 1) != 1:
        raise PrivcalcError(f"dimension = {event.dimension}: must be 1")
    sensitivity = getattr(event, "sensitivity", 1)
    if sensitivity != int(sensitivity):
        raise PrivcalcError(f"sensitivity = {sensitivity}: must be a whole number")
    return DiscreteGaussian(_noise(event.sigma) / sensitivity / UP, int(sensitivity))


def _tree(event: Any, _: Relation) -> Mechanism | None:
    """Trees of which a record is in one only, once: the largest counts (``proofs/interop.md``, §5)."""
    given = event.step_counts
    sizes = [errors.count("step_counts", size) for size in (given if isinstance(given, (list, tuple)) else [given])]
    if not any(sizes):
        return None
    return Gaussian(_noise(event.noise_multiplier) / math.sqrt(max(sizes).bit_length()) / UP)


def _trials(event: Any, relation: Relation) -> Mechanism | None:
    parts: Parts = {}
    read(event.event, 1, relation, parts)
    return RandomTrials(Run(tuple(parts.items())), mean=event.mean, distribution=event.shape) if parts else None


_READERS: dict[str, Callable[[Any, Relation], Mechanism | None]] = {
    "GaussianDpEvent": lambda event, _: Gaussian(_noise(event.noise_multiplier)),
    "LaplaceDpEvent": lambda event, _: Laplace(_noise(event.noise_multiplier)),
    "DiscreteLaplaceDpEvent": _discrete_laplace,
    "DiscreteGaussianDpEvent": _discrete_gaussian,
    "RandomizedResponseDpEvent": _randomized_response,
    "ZCDpEvent": _zcdp,
    "EpsilonDeltaDpEvent": _epsilon_delta,
    "ExponentialMechanismDpEvent": _exponential,
    "PoissonSampledDpEvent": _poisson,
    "SampledWithoutReplacementDpEvent": _fixed_size,
    "MixtureOfGaussiansDpEvent": _mixture,
    "SampledWithReplacementDpEvent": _with_replacement,
    "TruncatedSubsampledGaussianDpEvent": _truncated,
    "RepeatAndSelectDpEvent": _trials,
    "SingleEpochTreeAggregationDpEvent": _tree,
}


# --- writing --------------------------------------------------------------------------------------


def _write(mechanism: Mechanism, relation: Relation) -> Any:
    mechanism.turns(relation)
    moves = 2 if relation is REPLACE_ONE else 1
    match mechanism:
        case Gaussian():
            return _event(mechanism, "GaussianDpEvent", mechanism.noise_multiplier)
        case Laplace():
            return _event(mechanism, "LaplaceDpEvent", mechanism.scale)
        case PoissonSampled():
            return _event(mechanism, "PoissonSampledDpEvent", mechanism.rate, _write(mechanism.mechanism, relation))
        case FixedSizeSampled():
            inner = _write(mechanism.mechanism, relation)
            return _event(
                mechanism, "SampledWithoutReplacementDpEvent", mechanism.dataset_size, mechanism.batch_size, inner
            )
        case WithReplacementSampled():
            inner = _write(mechanism.mechanism, relation)
            return _event(
                mechanism, "SampledWithReplacementDpEvent", mechanism.dataset_size, mechanism.batch_size, inner
            )
        case TruncatedPoissonSampled() if isinstance(mechanism.mechanism, Gaussian):
            fields = mechanism.dataset_size, mechanism.rate, mechanism.batch_size, mechanism.mechanism.noise_multiplier
            return _event(mechanism, "TruncatedSubsampledGaussianDpEvent", *fields)
        case UserSampled() if relation is not REPLACE_ONE and (mixture := to_mixture(mechanism)) is not None:
            return _event(mechanism, "MixtureOfGaussiansDpEvent", *mixture)
        case RandomizedResponse() if relation is REPLACE_ONE:
            k = mechanism.categories
            return _event(mechanism, "RandomizedResponseDpEvent", k / (math.expm1(mechanism.level) + k), k)
        case ZCDP():
            return _event(mechanism, "ZCDpEvent", mechanism.rho, mechanism.xi)
        case ApproxDP():
            return _event(mechanism, "EpsilonDeltaDpEvent", mechanism.level, mechanism.failure)
        case PureDP():
            return _event(mechanism, "EpsilonDeltaDpEvent", mechanism.level, 0.0)
        case ExponentialMechanism():
            return _event(
                mechanism, "ExponentialMechanismDpEvent", mechanism.level * moves * (1 if mechanism.monotone else 2)
            )
        case DiscreteGaussian(norm=1):
            return _event(mechanism, "DiscreteGaussianDpEvent", mechanism.sigma, mechanism.sensitivity)
        case CorrelatedGaussian(strategy=Tree() as tree) if mechanism.participation == ONCE:
            return _event(mechanism, "SingleEpochTreeAggregationDpEvent", mechanism.noise_multiplier, tree.steps)
        case CorrelatedGaussian():
            return to_event(mechanism.simpler(), relation=relation)
        case RandomTrials() if (shape := mechanism.shape) is not None:
            return _event(
                mechanism, "RepeatAndSelectDpEvent", to_event(mechanism.base, relation=relation), mechanism.mean, shape
            )
    raise PrivcalcError(f"mechanism = {mechanism}: dp-accounting has no event for it under {relation}")


def _event(mechanism: Mechanism, name: str, *fields: Any) -> Any:
    kind = getattr(dp_event, name, None)
    if kind is None:
        raise PrivcalcError(f"mechanism = {mechanism}: the installed dp-accounting has no {name}")
    return kind(*fields)
