"""The adapter for dp-accounting: that package's own tests of accountants, its answers, and events in and out."""

from __future__ import annotations

import math
from typing import Any

import pytest

import privcalc as pc

pytest.importorskip("dp_accounting")

import attr
import dp_accounting as dpa
import mpmath as mp
import reference as ref
from dp_accounting import dp_event, privacy_accountant_test
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld

from privcalc.interop import dp_accounting as adapter
from privcalc.interop.dp_accounting.accountant import RELATIONS
from privcalc.interop.dp_accounting.pld import _laws
from privcalc.strategies import MinSeparation, Tree

RELATION = dpa.NeighboringRelation
GAUSS = dpa.GaussianDpEvent(2.0)


class ConformanceTest(privacy_accountant_test.PrivacyAccountantTest):  # type: ignore[misc]
    """dp-accounting's abstract tests, run by pytest as unittest does."""

    def _make_test_accountants(self) -> list[Any]:
        return [adapter.PrivcalcAccountant(relation) for relation in RELATION]


def epsilon(event: Any, relation: Any = RELATION.ADD_OR_REMOVE_ONE, delta: float = 1e-5) -> float:
    return float(adapter.PrivcalcAccountant(relation).compose(event).get_epsilon(delta))


EVENTS = [
    (GAUSS, pc.Gaussian(2.0)),
    (dpa.LaplaceDpEvent(3.0), pc.Laplace(3.0)),
    (dpa.PoissonSampledDpEvent(0.1, GAUSS), pc.PoissonSampled(pc.Gaussian(2.0), 0.1)),
    (dpa.PoissonSampledDpEvent(0.1, dpa.LaplaceDpEvent(1.0)), pc.PoissonSampled(pc.Laplace(1.0), 0.1)),
    (dpa.SampledWithoutReplacementDpEvent(100, 10, GAUSS), pc.FixedSizeSampled(pc.Gaussian(2.0), 10, 100)),
    (dpa.SampledWithReplacementDpEvent(8, 2, GAUSS), pc.WithReplacementSampled(pc.Gaussian(2.0), 2, 8)),
    (
        dpa.TruncatedSubsampledGaussianDpEvent(100, 0.1, 20, 2.0),
        pc.TruncatedPoissonSampled(pc.Gaussian(2.0), 0.1, 20, 100),
    ),
    (dpa.SelfComposedDpEvent(GAUSS, 7), pc.Gaussian(2.0) * 7),
    (dpa.ComposedDpEvent([GAUSS, dpa.LaplaceDpEvent(3.0), GAUSS]), pc.Gaussian(2.0) * 2 + pc.Laplace(3.0)),
    (dpa.SelfComposedDpEvent(dpa.ComposedDpEvent([GAUSS, dpa.NoOpDpEvent()]), 3), pc.Gaussian(2.0) * 3),
    (
        dp_event.RepeatAndSelectDpEvent(GAUSS, 5.0, 1),
        pc.RandomTrials(pc.Gaussian(2.0), mean=5, distribution="geometric"),
    ),
    (dp_event.RepeatAndSelectDpEvent(GAUSS, 5.0, 0.5), pc.RandomTrials(pc.Gaussian(2.0), mean=5, distribution=0.5)),
    (dpa.NoOpDpEvent(), pc.Run()),
]


@pytest.mark.parametrize("relation", list(RELATION), ids=str)
@pytest.mark.parametrize(("event", "run"), EVENTS, ids=str)
@pytest.mark.usefixtures("asked_once")
def test_events_become_runs_and_runs_events(event: Any, run: pc.Run, relation: Any) -> None:
    ours = RELATIONS[relation]
    assert adapter.from_event(event, relation=ours) == run.run
    again = adapter.to_event(run, relation=ours)
    assert adapter.from_event(again, relation=ours) == run.run
    accountant = adapter.PrivcalcAccountant(relation).compose(event, 2)
    assert accountant.run == run * 2
    assert accountant.get_epsilon(1e-5) == (run * 2).epsilon(delta=1e-5, relation=ours).upper
    assert accountant.get_delta(0.5) == (run * 2).delta(epsilon=0.5, relation=ours).upper
    assert accountant.ledger is not None


@pytest.mark.parametrize("relation", [RELATION.ADD_OR_REMOVE_ONE, RELATION.REPLACE_SPECIAL], ids=str)
@pytest.mark.parametrize(
    "event",
    [
        GAUSS,
        dpa.LaplaceDpEvent(1.0),
        dp_event.DiscreteLaplaceDpEvent(0.7, 1),
        dp_event.DiscreteLaplaceDpEvent(0.3, 4),
        dpa.PoissonSampledDpEvent(0.05, dpa.GaussianDpEvent(0.8)),
        dpa.PoissonSampledDpEvent(0.1, dpa.LaplaceDpEvent(1.0)),
    ],
    ids=str,
)
def test_close_below_their_own_accountant(event: Any, relation: Any) -> None:
    for count, delta in ((1, 0.01), (10, 1e-5)):
        ours = adapter.PrivcalcAccountant(relation).compose(event, count)
        theirs = dpa.pld.PLDAccountant(relation).compose(event, count).get_epsilon(delta)
        assert 0.999 * theirs - 1e-3 <= ours.get_epsilon(delta) <= theirs + 1e-6
        lower = ours.run.epsilon(delta=delta, relation=ours.relation).lower
        assert lower <= theirs + 1e-9


@pytest.mark.parametrize("relation", [RELATION.REPLACE_ONE, RELATION.REPLACE_SPECIAL], ids=str)
@pytest.mark.parametrize(("p", "k"), [(0.5, 2), (0.2, 5), (0.9, 3)])
def test_randomized_response_is_theirs(p: float, k: int, relation: Any) -> None:
    event = dpa.RandomizedResponseDpEvent(p, k)
    for count in (1, 20):
        their = dpa.pld.PLDAccountant(relation)
        for _ in range(count):
            their.compose(event)
        ours = adapter.PrivcalcAccountant(relation).compose(event, count).get_epsilon(1e-6)
        assert ours == pytest.approx(their.get_epsilon(1e-6), rel=1e-3, abs=1e-3)
    if relation is RELATION.REPLACE_ONE:
        again = adapter.to_event(adapter.from_event(event, relation=pc.REPLACE_ONE), relation=pc.REPLACE_ONE)
        assert again.noise_parameter == pytest.approx(p, rel=1e-12)


def test_randomized_response_at_its_edges() -> None:
    with pytest.raises(dpa.UnsupportedEventError, match="absent record"):
        epsilon(dpa.RandomizedResponseDpEvent(0.5, 2))
    assert epsilon(dpa.RandomizedResponseDpEvent(0.0, 2), RELATION.REPLACE_ONE) == math.inf
    assert epsilon(dpa.RandomizedResponseDpEvent(0.0, 1), RELATION.REPLACE_ONE) == 0
    assert epsilon(dpa.RandomizedResponseDpEvent(1.0, 4), RELATION.REPLACE_ONE) == 0


@pytest.mark.parametrize("relation", list(RELATION), ids=str)
def test_zcdp_is_tighter_than_their_grid_of_orders(relation: Any) -> None:
    event = dpa.ZCDpEvent(0.3, 0.1)
    theirs = dpa.rdp.RdpAccountant(neighboring_relation=relation).compose(event, 3).get_epsilon(1e-6)
    ours = adapter.PrivcalcAccountant(relation).compose(event, 3).get_epsilon(1e-6)
    assert 0.95 * theirs <= ours <= theirs
    assert adapter.to_event(adapter.from_event(event)) == event
    assert epsilon(dpa.ZCDpEvent(0.0)) == 0
    assert epsilon(dpa.ZCDpEvent(math.inf)) == math.inf
    assert epsilon(dpa.ZCDpEvent(0.0, 0.5), delta=0.0) == pytest.approx(0.5)


def test_discrete_laplace_doubles_under_replace_one() -> None:
    one = dp_event.DiscreteLaplaceDpEvent(0.5, 2)
    assert epsilon(one, RELATION.REPLACE_ONE, 1e-3) == epsilon(dp_event.DiscreteLaplaceDpEvent(0.5, 4), delta=1e-3)
    assert epsilon(one, delta=0.0) == pytest.approx(1.0, rel=1e-12)
    with pytest.raises(dpa.UnsupportedEventError, match="sensitivity"):
        epsilon(dp_event.DiscreteLaplaceDpEvent(1.0, 20_000))


def test_discrete_laplace_in_coordinates_is_dominated() -> None:
    whole = adapter.from_event(dp_event.DiscreteLaplaceDpEvent(0.4, 5))
    parts = adapter.from_event(
        dpa.ComposedDpEvent([dp_event.DiscreteLaplaceDpEvent(0.4, 2), dp_event.DiscreteLaplaceDpEvent(0.4, 3)])
    )
    for level in (0.0, 0.3, 0.9, 1.4, 1.9):
        assert parts.delta(epsilon=level).lower <= whole.delta(epsilon=level).upper


def test_several_gaussians_on_one_sample_are_one() -> None:
    event = dpa.PoissonSampledDpEvent(0.1, dpa.ComposedDpEvent([dpa.GaussianDpEvent(3.0), dpa.GaussianDpEvent(4.0)]))
    merged = pc.PoissonSampled(pc.Gaussian(1 / math.sqrt(1 / 9 + 1 / 16)), 0.1)
    assert epsilon(event) == pytest.approx(merged.epsilon(delta=1e-5).upper, rel=1e-12)
    mixed = dpa.PoissonSampledDpEvent(0.1, dpa.ComposedDpEvent([GAUSS, dpa.LaplaceDpEvent(1.0)]))
    with pytest.raises(dpa.UnsupportedEventError, match="single release"):
        epsilon(mixed)


@pytest.mark.parametrize("once", [iter, lambda events: (event for event in events)], ids=["iterator", "generator"])
def test_events_that_can_be_read_once_are_refused(once: Any) -> None:
    """An accountant reads an event twice, and what is read once is nothing the second time: ε was 0."""
    accountant = adapter.PrivcalcAccountant()
    with pytest.raises(dpa.UnsupportedEventError, match="events must be a list"):
        accountant.compose(dpa.ComposedDpEvent(once([GAUSS, GAUSS])))
    with pytest.raises(pc.PrivcalcError, match="events must be a list"):
        adapter.from_event(dpa.SelfComposedDpEvent(dpa.ComposedDpEvent(once([GAUSS])), 3))
    assert accountant.compose(dpa.ComposedDpEvent((GAUSS, GAUSS))).run == pc.Gaussian(2.0) * 2


@pytest.mark.parametrize(
    "event",
    [
        dpa.SampledWithReplacementDpEvent(1, 10, GAUSS),
        dpa.SampledWithReplacementDpEvent(100, 10, dpa.LaplaceDpEvent(1.0)),
        dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0, 2.0], [0.5, 0.3, 0.2]),
        dpa.TruncatedSubsampledGaussianDpEvent(100, 1.1, 20, 1.0),
        dp_event.RepeatAndSelectDpEvent(GAUSS, 5.0, -1.0),
        dpa.PoissonSampledDpEvent(0.1, dpa.ZCDpEvent(1.0)),
        dpa.PoissonSampledDpEvent(1.5, GAUSS),
        dpa.GaussianDpEvent(-1.0),
        dpa.SampledWithoutReplacementDpEvent(10, 20, GAUSS),
        dpa.ComposedDpEvent([dpa.NonPrivateDpEvent(), dpa.UnsupportedDpEvent()]),
    ],
    ids=str,
)
def test_what_is_not_supported_is_refused(event: Any) -> None:
    accountant = adapter.PrivcalcAccountant()
    assert not accountant.supports(event)
    with pytest.raises(dpa.UnsupportedEventError, match="caused by"):
        accountant.compose(event)
    with pytest.raises(pc.PrivcalcError):
        adapter.from_event(event)
    assert accountant.run == pc.Run()


@pytest.mark.parametrize("relation", list(RELATION), ids=str)
def test_no_noise_is_no_privacy_and_no_sample_no_loss(relation: Any) -> None:
    assert epsilon(dpa.GaussianDpEvent(0.0), relation) == math.inf
    assert epsilon(dpa.PoissonSampledDpEvent(0.5, dpa.GaussianDpEvent(0.0)), relation) == math.inf
    assert epsilon(dpa.PoissonSampledDpEvent(0.0, dpa.GaussianDpEvent(0.0)), relation) == 0
    assert epsilon(dpa.SampledWithoutReplacementDpEvent(9, 0, GAUSS), relation) == 0
    assert epsilon(dpa.SampledWithReplacementDpEvent(9, 0, GAUSS), relation) == 0
    for fields in ((0, 0.1, 5, 1.0), (9, 0.0, 5, 1.0), (9, 0.1, 0, 0.0)):
        assert epsilon(dpa.TruncatedSubsampledGaussianDpEvent(*fields), relation) == 0
    assert epsilon(dpa.TruncatedSubsampledGaussianDpEvent(9, 0.1, 5, 0.0), relation) == math.inf
    whole = dpa.TruncatedSubsampledGaussianDpEvent(9, 0.1, 12, 2.0)  # nothing is cut
    assert (
        adapter.from_event(whole, relation=RELATIONS[relation])
        == pc.TruncatedPoissonSampled(pc.Gaussian(2.0), 0.1, 9, 9).run
    )
    with pytest.raises(pc.PrivcalcError, match="not private"):
        adapter.from_event(dpa.NonPrivateDpEvent())


def test_bad_targets_are_refused() -> None:
    accountant = adapter.PrivcalcAccountant().compose(GAUSS)
    for wrong in (-0.1, 1.1, math.nan):
        with pytest.raises(pc.PrivcalcError, match="target_delta"):
            accountant.get_epsilon(wrong)
    with pytest.raises(pc.PrivcalcError, match="target_epsilon"):
        accountant.get_delta(math.nan)
    assert accountant.get_delta(math.inf) < 1e-300
    with pytest.raises(pc.PrivcalcError, match="neighboring_relation"):
        adapter.PrivcalcAccountant("add")


# --- events that only newer versions have, by their names -----------------------------------------


@attr.s(frozen=True, auto_attribs=True)
class EpsilonDeltaDpEvent(dp_event.DpEvent):  # type: ignore[misc]
    epsilon: float
    delta: float


@attr.s(frozen=True, auto_attribs=True)
class ExponentialMechanismDpEvent(dp_event.DpEvent):  # type: ignore[misc]
    epsilon: float


@attr.s(frozen=True, auto_attribs=True)
class DiscreteGaussianDpEvent(dp_event.DpEvent):  # type: ignore[misc]
    sigma: float
    sensitivity: float = 1.0
    dimension: int = 1


NEWER = {kind.__name__: kind for kind in (EpsilonDeltaDpEvent, ExponentialMechanismDpEvent, DiscreteGaussianDpEvent)}


def test_events_of_newer_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    for relation in RELATION:
        ours = RELATIONS[relation]
        accountant = (
            adapter.PrivcalcAccountant(relation)
            .compose(EpsilonDeltaDpEvent(0.5, 1e-7))
            .compose(EpsilonDeltaDpEvent(0, 0))
        )
        assert accountant.run == pc.ApproxDP(0.5, 1e-7, relation=ours).run
        assert epsilon(ExponentialMechanismDpEvent(0.8), relation, 0.0) == pytest.approx(0.8, rel=1e-12)
        discrete = pc.DiscreteGaussian(1.5, 2).epsilon(delta=1e-5, relation=ours).upper
        assert epsilon(DiscreteGaussianDpEvent(3.0, 2), relation) == pytest.approx(discrete, rel=1e-9)
    assert epsilon(EpsilonDeltaDpEvent(math.inf, 0.0)) == epsilon(EpsilonDeltaDpEvent(0.0, 1.0)) == math.inf
    for wrong in (DiscreteGaussianDpEvent(3.0, 1, 2), DiscreteGaussianDpEvent(3.0, 1.5)):
        assert not adapter.PrivcalcAccountant().supports(wrong)
    runs = [pc.ApproxDP(0.5, 1e-7), pc.ExponentialMechanism(0.5), pc.DiscreteGaussian(2.0)]
    for run in runs:
        if not hasattr(dp_event, "EpsilonDeltaDpEvent"):
            with pytest.raises(pc.PrivcalcError, match="installed dp-accounting"):
                adapter.to_event(run)
    for name, kind in NEWER.items():
        monkeypatch.setattr(dp_event, name, kind, raising=False)
    for run in runs:
        again = adapter.from_event(adapter.to_event(run))
        assert again.epsilon(delta=1e-5).upper == pytest.approx(run.epsilon(delta=1e-5).upper, rel=1e-9)
    with pytest.raises(pc.PrivcalcError, match="no event"):
        adapter.to_event(pc.TopK(1.0, 3))
    with pytest.raises(pc.PrivcalcError, match=r"norm=2.*no event"):
        adapter.to_event(pc.DiscreteGaussian(2.0, 2, norm=2))
    for unknown in (pc.RandomAllocation(pc.Gaussian(1.0), 10), pc.TruncatedPoissonSampled(pc.Laplace(1.0), 0.1, 5, 50)):
        with pytest.raises(pc.PrivcalcError, match="no event"):
            adapter.to_event(unknown)


# --- calibration, distributions -------------------------------------------------------------


def test_their_calibration_works_with_it() -> None:
    found = dpa.calibrate_dp_mechanism(
        adapter.PrivcalcAccountant,
        lambda z: dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(0.01, dpa.GaussianDpEvent(z)), 1000),
        1.0,
        1e-5,
        bracket_interval=dpa.LowerEndpointAndGuess(0.0, 1.0),
        tol=1e-7,
    )
    exact = pc.noise_multiplier(epsilon=1.0, delta=1e-5, sample_rate=0.01, steps=1000)
    assert exact <= found <= exact + 1e-6


@pytest.mark.parametrize(
    "run", [pc.Gaussian(1.0), pc.PoissonSampled(pc.Gaussian(1.0), 0.2), pc.ApproxDP(0.5, 1e-4)], ids=str
)
def test_their_distribution_of_a_run_dominates_it(run: pc.Run) -> None:
    made = adapter.to_pld(run, spacing=0.02)
    for level in (0.0, 0.25, 1.0, 3.0):
        exact = run.delta(epsilon=level)
        found = made.get_delta_for_epsilon(level)
        assert exact.lower <= found * (1 + 1e-9)
        assert found <= exact.upper * 1.02 + 1e-9


@pytest.mark.parametrize(
    "made",
    [
        pld.from_gaussian_mechanism(2.0, value_discretization_interval=0.05),
        pld.from_gaussian_mechanism(1.0, sampling_prob=0.2, value_discretization_interval=0.05),
        pld.from_privacy_parameters(
            pld.common.DifferentialPrivacyParameters(0.5, 1e-4), value_discretization_interval=0.05
        ),
    ],
    ids=["symmetric", "sampled", "leak"],
)
def test_their_distributions_are_taken_as_they_are(made: Any) -> None:
    one = adapter.from_pld(made)
    for level in (0.0, 0.3, 1.0, 2.0):
        assert one.delta(epsilon=level).upper == pytest.approx(made.get_delta_for_epsilon(level), rel=1e-6, abs=1e-9)
        assert one.delta(epsilon=level).lower == 0
    two = made.compose(made)
    assert (one * 2).delta(epsilon=0.5).upper == pytest.approx(two.get_delta_for_epsilon(0.5), rel=1e-4)
    with pytest.raises(pc.PrivcalcError, match="made for"):
        one.epsilon(delta=1e-5, relation=pc.ZERO_OUT)


@pytest.mark.parametrize(
    ("noise", "uses"),
    [(3.0, 1), pytest.param(0.3, 1, marks=pytest.mark.slow), pytest.param(1.0, 4, marks=pytest.mark.slow)],
)
def test_their_default_gaussian_is_taken_with_its_rounding(noise: float, uses: int) -> None:
    """Sums of 1 + 6e-8 and, of the second law, 10⁵: nothing of it may make δ smaller than the truth, or their own."""
    made = pld.from_gaussian_mechanism(noise)
    made = made.self_compose(uses) if uses > 1 else made
    one = adapter.from_pld(made)
    for level in (0.0, 0.5, 3.0):
        found = one.delta(epsilon=level).upper
        truth = ref.gaussian_delta(mp.sqrt(uses) / mp.mpf(noise), level)
        assert max(truth, made.get_delta_for_epsilon(level) * (1 - 1e-12)) <= found <= truth * (1 + 1e-6)
    twice = (one * 2).delta(epsilon=1.0).upper
    assert ref.gaussian_delta(mp.sqrt(2 * uses) / mp.mpf(noise), 1.0) <= twice * (1 + 1e-12)


@pytest.mark.parametrize(
    "masses",
    [
        {-3: 0.3, -1: 0.3, 0: 0.2, 2: 0.2 + 1e-7},
        {-40: 1e-6, -2: 0.5, 1: 0.4, 3: 0.1 - 2e-7},
        {-5: 0.2, -4: 0.2, 5: 0.6},
    ],
)
def test_a_law_is_never_below_the_curve_that_it_is_made_of(masses: dict[int, float]) -> None:
    """Masses that fit no second law (their Q would sum to more than 1), at losses of any sign, two uses included."""
    step, infinite = 0.5, 1e-9
    pmf = pld_pmf.create_pmf(masses, step, infinite, True)
    law = _laws("made", pmf)
    assert math.fsum(law.p) == pytest.approx(1, abs=1e-12)
    assert math.fsum(law.q) == pytest.approx(1, abs=1e-12)

    def curve(x: float) -> float:
        """The least convex bound that the masses claim: their curve where ε ≥ 0, and 1 at x = 0."""
        return infinite + math.fsum(
            p * (1 - x * math.exp(-step * i)) for i, p in masses.items() if x < math.exp(step * i)
        )

    for x in (1.0, 1.2, 2.0, 4.0):
        found = math.fsum(max(p - x * q, 0.0) for p, q in zip(law.p, law.q, strict=True))
        assert found >= curve(x) * (1 - 1e-12)


def test_a_tree_is_as_deep_as_a_record_is_in() -> None:
    for steps in (1, 2, 7, 8, 4096, 4097, 10**6):
        event = dpa.SingleEpochTreeAggregationDpEvent(5.0, [steps, 3, 0])
        depth = max(math.ceil(math.log2(max(steps, 3) + 1)), 1)
        for relation, moves in ((pc.ADD_OR_REMOVE_ONE, 1), (pc.ZERO_OUT, 1), (pc.REPLACE_ONE, 2)):
            found = adapter.from_event(event, relation=relation).delta(epsilon=0.5, relation=relation)
            truth = ref.gaussian_delta(moves * mp.sqrt(depth) / 5, 0.5)
            assert found.lower <= truth * (1 + 1e-12)
            assert truth <= found.upper <= truth * (1 + 1e-9)
    assert adapter.from_event(dpa.SingleEpochTreeAggregationDpEvent(5.0, 0)) == pc.Run()
    ours = pc.CorrelatedGaussian(5.0, Tree(20), MinSeparation(1, most=1))
    assert adapter.to_event(ours) == dpa.SingleEpochTreeAggregationDpEvent(5.0, 20)
    assert adapter.from_event(adapter.to_event(ours)).delta(epsilon=1.0).upper == pytest.approx(
        ours.delta(epsilon=1.0).upper, rel=1e-12
    )
    rdp = dpa.rdp.RdpAccountant(neighboring_relation=RELATION.REPLACE_SPECIAL)
    theirs = rdp.compose(dpa.SingleEpochTreeAggregationDpEvent(5.0, [100, 50])).get_epsilon(1e-5)
    assert (
        0.7 * theirs
        <= epsilon(dpa.SingleEpochTreeAggregationDpEvent(5.0, [100, 50]), RELATION.REPLACE_SPECIAL)
        <= theirs
    )
    with pytest.raises(pc.PrivcalcError, match="step_counts"):
        adapter.from_event(dpa.SingleEpochTreeAggregationDpEvent(5.0, [-1]))


def test_distributions_that_prove_nothing_are_refused() -> None:
    with pytest.raises(pc.PrivcalcError, match="pessimistic"):
        adapter.from_pld(
            pld.from_gaussian_mechanism(2.0, pessimistic_estimate=False, value_discretization_interval=0.05)
        )
    lopsided = pld.from_gaussian_mechanism(1.0, sampling_prob=0.2, value_discretization_interval=0.05)
    with pytest.raises(pc.PrivcalcError, match="symmetric"):
        adapter.from_pld(lopsided, relation=pc.REPLACE_ONE)


# --- mixtures of Gaussians: one coin, and a coin for each of a person's records --------------------


def mixture(deviation: float, law: list[float], unit: float = 1.0) -> Any:
    return dp_event.MixtureOfGaussiansDpEvent(deviation, [unit * j for j in range(len(law))], law)


def binomial(records: int, rate: float) -> list[float]:
    return [
        float(math.comb(records, j) * mp.mpf(rate) ** j * (1 - mp.mpf(rate)) ** (records - j))
        for j in range(records + 1)
    ]


@pytest.mark.parametrize("relation", [pc.ADD_OR_REMOVE_ONE, pc.ZERO_OUT])
def test_a_mixture_of_one_coin_is_poisson_sampling(relation: pc.Relation) -> None:
    event = dp_event.MixtureOfGaussiansDpEvent(3.0, [0.0, 1.5], [0.75, 0.25])
    ours, theirs = adapter.from_event(event, relation=relation), pc.PoissonSampled(pc.Gaussian(2.0), 0.25)
    assert ours.epsilon(delta=1e-5, relation=relation).upper == pytest.approx(
        theirs.epsilon(delta=1e-5, relation=relation).upper, rel=1e-9
    )
    always = adapter.from_event(dp_event.MixtureOfGaussiansDpEvent(3.0, [1.5, 1.5], [0.5, 0.5]), relation=relation)
    assert always.epsilon(delta=1e-5).upper == pytest.approx(pc.Gaussian(2.0).epsilon(delta=1e-5).upper, rel=1e-9)


@pytest.mark.parametrize(
    "step",
    [
        pc.UserSampled(pc.Gaussian(1.0), 0.01, records=8),
        pc.UserSampled(pc.Gaussian(2.0), 0.5, records=3),
        pc.UserSampled(pc.Gaussian(1.0), 1e-9, records=4),
        pc.UserSampled(pc.Gaussian(1.0), 0.1, records=9, counted=2),
        pc.UserSampled(pc.Gaussian(1.0), 0.03, records=40, counted=5),
        pc.UserSampled(pc.Gaussian(5.0), 0.02, records=200),
        pc.UserSampled(pc.Gaussian(5.0), 0.9, records=100),
        pc.UserSampled(pc.Gaussian(5.0), 1.0, records=7, counted=3),
        pc.UserSampled(pc.Gaussian(1.0), 0.1, records=9, counted=1),
    ],
    ids=str,
)
def test_persons_become_mixtures_and_mixtures_persons(step: pc.UserSampled) -> None:
    for relation in (pc.ADD_OR_REMOVE_ONE, pc.ZERO_OUT):
        again = adapter.from_event(adapter.to_event(step, relation=relation), relation=relation)
        ((found, count),) = again.entries
        assert count == 1
        if step.rate < 1 and step.counted != 1 and step.records < 200:
            assert (found.records, found.counted) == (step.records, step.counted)
            assert found.rate == pytest.approx(step.rate, rel=1e-9)
        mine, theirs = (one.epsilon(delta=1e-6, relation=relation) for one in (step, again))
        assert theirs.upper >= mine.lower
        assert theirs.upper == pytest.approx(mine.upper, rel=1e-6, abs=1e-9)
    with pytest.raises(pc.PrivcalcError, match="no event"):
        adapter.to_event(step, relation=pc.REPLACE_ONE)
    if step.rate < 1:
        with pytest.raises(pc.PrivcalcError, match="no event"):
            adapter.to_event(pc.UserSampled(pc.GDP(1.0), step.rate, step.records, step.counted))


def test_what_is_read_has_at_least_the_probabilities_of_the_event() -> None:
    """In 50 digits; the event's own are rounded."""
    for records, rate in ((2, 0.3), (5, 0.011), (30, 0.25), (12, 1e-7)):
        law = binomial(records, rate)
        (one,) = (part for part, _ in adapter.from_event(mixture(2.0, law)).entries)
        mine = [
            math.comb(records, j) * mp.mpf(one.rate) ** j * (1 - mp.mpf(one.rate)) ** (records - j)
            for j in range(records + 1)
        ]
        for j in range(1, records + 1):
            assert mp.fsum(mine[j:]) >= mp.fsum(map(mp.mpf, law[j:])) / mp.fsum(map(mp.mpf, law))


def test_close_to_their_accountant_of_mixtures() -> None:
    event = mixture(1.0, binomial(4, 0.05))
    theirs = dpa.pld.PLDAccountant(value_discretization_interval=0.05).compose(event, 5).get_epsilon(1e-5)
    assert theirs * 0.98 <= epsilon(dpa.SelfComposedDpEvent(event, 5)) <= theirs + 1e-6


def test_mixtures_at_their_edges() -> None:
    assert epsilon(mixture(0.0, [0.5, 0.5])) == math.inf
    assert epsilon(mixture(0.0, [1.0])) == 0
    assert epsilon(mixture(1.0, [1.0, 0.0])) == 0
    third = dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0, 0.1, 0.2, 0.3], binomial(3, 0.2))  # 0.3 is not 3·0.1
    assert isinstance(adapter.from_event(third).entries[0][0], pc.UserSampled)
    for wrong in (
        mixture(1.0, [0.5, 0.3, 0.2]),
        mixture(1.0, [0.0, 0.5, 0.5]),
        dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0, 3.0], binomial(2, 0.5)),
        mixture(1.0, [0.5, 0.6]),
        mixture(1.0, [1.5, -0.5]),
        mixture(1.0, [0.5, 0.5], unit=-1.0),
        mixture(1.0, [0.5, 0.5], unit=math.inf),
        mixture(1.0, [0.5, math.nan]),
        dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [1.0]),
        mixture(-1.0, [0.5, 0.5]),
    ):
        with pytest.raises(pc.PrivcalcError, match=r"sampling_probs|sensitivities|standard_deviation"):
            adapter.from_event(wrong)
    with pytest.raises(pc.PrivcalcError, match="one mixture, not two"):
        adapter.from_event(mixture(1.0, [0.5, 0.5]), relation=pc.REPLACE_ONE)
