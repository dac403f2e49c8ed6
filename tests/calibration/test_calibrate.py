"""Calibration: what it returns meets the target, and a little less privacy does not."""

from __future__ import annotations

import copy
import functools
import math
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cases import SLOW
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf  # type: ignore[import-untyped]
from reference import steps as ref
from strategies import relations

import privcalc as pc
from privcalc.calibration import plans
from privcalc.calibration.dpsgd import schedule
from privcalc.numerics.solve import crossing

few = settings(max_examples=100 if SLOW else 6)
targets = st.floats(-3, 3).map(math.exp)
levels = st.floats(-30, -3).map(math.exp)


def meets(run: pc.Run, epsilon: float, delta: float, relation: pc.Relation = pc.ADD_OR_REMOVE_ONE) -> bool:
    return run.run.epsilon(delta=delta, relation=relation).upper <= epsilon


# --- noise_multiplier -----------------------------------------------------------------------------


@given(targets, levels, st.sampled_from([1e-3, 0.01, 0.1, 1.0]), st.sampled_from([1, 30, 1_000, 10**5]))
@few
def test_noise_multiplier_just_meets_the_target(epsilon: float, delta: float, rate: float, steps: int) -> None:
    z = pc.noise_multiplier(epsilon=epsilon, delta=delta, sample_rate=rate, steps=steps)
    assert meets(pc.PoissonSampled(pc.Gaussian(z), rate) * steps, epsilon, delta)
    assert not meets(pc.PoissonSampled(pc.Gaussian(z * (1 - 1e-3)), rate) * steps, epsilon, delta)


@pytest.mark.parametrize("relation", list(pc.Relation), ids=str)
@pytest.mark.parametrize(
    ("epsilon", "delta", "steps"), [(1e-4, 1e-5, 1), (3.0, 1e-5, 7), (500.0, 1e-100, 1000), (1e4, 1e-8, 1)]
)
def test_plain_gaussians_against_the_closed_form(
    epsilon: float, delta: float, steps: int, relation: pc.Relation
) -> None:
    z = pc.noise_multiplier(epsilon=epsilon, delta=delta, steps=steps, relation=relation)
    with mp.workdps(60):
        mu = mp.sqrt(steps) / mpf(z) * (2 if relation is pc.REPLACE_ONE else 1)
        assert ref.gaussian_delta(mu, epsilon) <= delta
        assert ref.gaussian_delta(mu * (1 + mpf("1e-8")), epsilon) > delta


@pytest.mark.parametrize(
    ("epsilon", "rate", "steps", "delta"),
    [(3.0, 0.01, 10_000, 1e-5), (0.5, 0.01, 1_000, 1e-6), (8.0, 0.05, 500, 1e-20)],
)
def test_sampled_gaussians_against_the_reference(epsilon: float, rate: float, steps: int, delta: float) -> None:
    z = pc.noise_multiplier(epsilon=epsilon, delta=delta, sample_rate=rate, steps=steps)
    assert epsilon * (1 - 1e-6) <= ref.sampled_gaussian_epsilon(z, rate, steps, delta) <= epsilon


def test_ways_to_say_the_same_schedule() -> None:
    one = pc.noise_multiplier(epsilon=3.0, delta=1e-5, sample_rate=0.01, steps=1_000)
    assert one == pc.noise_multiplier(epsilon=3.0, delta=1e-5, batch_size=600, dataset_size=60_000, epochs=10)
    assert one == pc.noise_multiplier(epsilon=3.0, delta=1e-5, batch_size=600, dataset_size=60_000, steps=1_000)
    assert one == pc.noise_multiplier(epsilon=3.0, delta=1e-5, sample_rate=0.01, epochs=10)
    # Passes are rounded up: nine and a half steps are ten.
    assert pc.noise_multiplier(epsilon=3.0, delta=1e-5, sample_rate=0.1, epochs=0.95) == pc.noise_multiplier(
        epsilon=3.0, delta=1e-5, sample_rate=0.1, steps=10
    )


@pytest.mark.parametrize(
    "sampled", [{"sample_rate": 0.01}, {"sample_rate": 1.0}, {"batch_size": 10, "dataset_size": 1000}]
)
def test_a_sampling_rate_without_steps_is_refused(sampled):
    """A forgotten number of steps would give the noise of one: .78 where 1,000 steps need 1.34."""
    with pytest.raises(pc.PrivcalcError, match="steps"):
        pc.noise_multiplier(epsilon=2.0, delta=1e-5, **sampled)
    assert pc.noise_multiplier(epsilon=2.0, delta=1e-5, steps=1, **sampled) > 0
    assert pc.noise_multiplier(epsilon=2.0, delta=1e-5) > 0  # one release


@pytest.mark.parametrize(
    ("epochs", "rate", "count"), [(1e4, 1e-9, 10**13), (1.0, 2.0**-50, 2**50), (0.7, 0.1, 7), (0.75, 0.1, 8)]
)
def test_no_step_of_many_is_left_out(epochs: float, rate: float, count: int) -> None:
    """10⁴/10⁻⁹ steps were taken to be ten less."""
    assert schedule(rate, None, None, None, epochs) == (rate, count)


def test_numbers_at_the_ends_of_the_range() -> None:
    """A guess that underflowed, and epochs of more steps than numbers, ended in tracebacks; 3·5e-324 was too little."""
    for epsilon, delta in ((1e-300, 1e-300), *([(1.0, 5e-324)] if SLOW else [])):  # the last takes long
        with pytest.raises(pc.PrivcalcError):
            pc.noise_multiplier(epsilon=epsilon, delta=delta)
    assert pc.noise_multiplier(epsilon=1e300, delta=1e-5, sample_rate=1e-100, steps=1) > 0
    with pytest.raises(pc.PrivcalcError, match="epochs"):
        pc.noise_multiplier(epsilon=1.0, delta=1e-5, sample_rate=1e-100, epochs=1e300)
    with pytest.raises(pc.PrivcalcError, match="sensitivity"):
        pc.noise_std(epsilon=1.0, delta=1e-5, sensitivity=5e-324)


@pytest.mark.parametrize("relation", list(pc.Relation), ids=str)
def test_sampled_noise_under_every_relation(relation: pc.Relation) -> None:
    z = pc.noise_multiplier(epsilon=2.0, delta=1e-5, sample_rate=0.05, steps=200, relation=relation)
    assert meets(pc.PoissonSampled(pc.Gaussian(z), 0.05) * 200, 2.0, 1e-5, relation)
    assert not meets(pc.PoissonSampled(pc.Gaussian(z * 0.99), 0.05) * 200, 2.0, 1e-5, relation)


# --- noise_std, steps -----------------------------------------------------------------------------


def test_noise_std_scales_with_the_sensitivity() -> None:
    one = pc.noise_std(epsilon=1.0, delta=1e-5, sensitivity=1.0)
    for sensitivity in (1e-6, 3.0, 1e9):
        assert pc.noise_std(epsilon=1.0, delta=1e-5, sensitivity=sensitivity) == pytest.approx(
            sensitivity * one, rel=1e-13
        )
    assert ref.gaussian_delta(1 / mpf(one), 1.0) <= 1e-5
    many = pc.noise_std(epsilon=1.0, delta=1e-5, sensitivity=1.0, steps=100)
    assert many == pytest.approx(10 * one, rel=1e-9)


@pytest.mark.parametrize(
    ("relation", "moves"), [(pc.ADD_OR_REMOVE_ONE, 1), (pc.ZERO_OUT, 1), (pc.REPLACE_ONE, 2)], ids=str
)
def test_noise_std_of_clipped_sums(relation: pc.Relation, moves: int) -> None:
    """Under replace-one a sensitivity may mean C or 2C, and half the noise is too little: C is asked for."""
    found = pc.noise_std(epsilon=1.0, delta=1e-5, clip_norm=0.5, relation=relation)
    assert ref.gaussian_delta(moves * mpf(0.5) / mpf(found), 1.0) <= 1e-5
    assert ref.gaussian_delta(moves * mpf(0.5) / mpf(found) * 1.001, 1.0) > 1e-5
    if moves == 2:
        with pytest.raises(pc.PrivcalcError, match=r"sensitivity = 0\.5: may be meant as .* clip_norm=C"):
            pc.noise_std(epsilon=1.0, delta=1e-5, sensitivity=0.5, relation=relation)
    for both in ({}, {"sensitivity": 1.0, "clip_norm": 1.0}):
        with pytest.raises(pc.PrivcalcError, match="exactly one of them"):
            pc.noise_std(epsilon=1.0, delta=1e-5, relation=relation, **both)


@pytest.mark.parametrize("relation", [pc.ADD_OR_REMOVE_ONE, pc.REPLACE_ONE], ids=str)
@pytest.mark.parametrize(
    ("z", "rate", "epsilon", "delta"), [(20.0, 1.0, 3.0, 1e-5), (1.0, 0.01, 0.5, 1e-5), (8.0, 0.5, 1.0, 1e-10)]
)
def test_steps(z: float, rate: float, epsilon: float, delta: float, relation: pc.Relation) -> None:
    found = pc.steps(epsilon=epsilon, delta=delta, noise_multiplier=z, sample_rate=rate, relation=relation)
    step = pc.PoissonSampled(pc.Gaussian(z), rate)
    assert isinstance(found, int)
    assert meets(step * found, epsilon, delta, relation)
    assert not meets(step * (found + 1), epsilon, delta, relation)


def test_steps_against_the_reference() -> None:
    found = pc.steps(epsilon=2.0, delta=1e-5, noise_multiplier=1.0, sample_rate=0.01)
    assert (
        ref.sampled_gaussian_epsilon(1.0, 0.01, found, 1e-5)
        <= 2
        < ref.sampled_gaussian_epsilon(1.0, 0.01, found + 1, 1e-5)
    )


def test_no_step_at_all() -> None:
    assert pc.steps(epsilon=0.5, delta=1e-5, noise_multiplier=1.0) == 0


# --- calibrate ------------------------------------------------------------------------------------

SAMPLED = pc.PoissonSampled(pc.Gaussian(1.0), 0.01)
# name: the maker, the target (ε, δ), what worsens privacy slightly
MAKERS: dict[str, tuple[Callable[[Any], pc.Run], float, float, Callable[[float], float]]] = {
    "noise": (lambda z: pc.PoissonSampled(pc.Gaussian(z), 0.01) * 1_000, 2.0, 1e-5, lambda z: z * (1 - 1e-4)),
    "rate": (lambda q: pc.PoissonSampled(pc.Gaussian(1.0), q) * 500, 2.0, 1e-5, lambda q: q * (1 + 1e-4)),
    "scale": (lambda b: pc.Laplace(b) * 10, 2.0, 1e-5, lambda b: b * (1 - 1e-3)),
    "common scale": (
        lambda z: pc.Gaussian(z) * 10 + pc.Gaussian(3 * z) + SAMPLED * 100,
        3.0,
        1e-5,
        lambda z: z * (1 - 1e-4),
    ),
    "several mechanisms": (lambda z: pc.Gaussian(z) * 3 + pc.Laplace(2 * z), 3.0, 1e-5, lambda z: z * (1 - 1e-3)),
}


@pytest.mark.parametrize("name", list(MAKERS))
def test_real_parameters(name: str) -> None:
    make, epsilon, delta, worse = MAKERS[name]
    found = pc.calibrate(make, epsilon=epsilon, delta=delta)
    assert found.run == make(found.parameter)
    assert float(found) == found.parameter
    assert meets(found.run, epsilon, delta)
    assert not meets(make(worse(found.parameter)), epsilon, delta)
    assert found.guarantee.delta == delta
    assert found.guarantee.relation is pc.ADD_OR_REMOVE_ONE
    assert found.guarantee.epsilon == found.run.epsilon(delta=delta)
    assert epsilon * (1 - 1e-3) <= found.guarantee.epsilon <= epsilon


def test_pure_targets() -> None:
    found = pc.calibrate(lambda b: pc.Laplace(b) * 4, epsilon=1.0, delta=0.0)
    assert found.parameter == pytest.approx(4.0, rel=1e-9)
    assert found.guarantee.epsilon <= 1.0
    doubled = pc.calibrate(lambda b: pc.Laplace(b) * 4, epsilon=1.0, delta=0.0, relation=pc.REPLACE_ONE)
    assert doubled.parameter == pytest.approx(8.0, rel=1e-9)


@given(st.floats(0.3, 30.0), targets, levels, relations)
@few
def test_calibrate_then_account(z: float, epsilon: float, delta: float, relation: pc.Relation) -> None:
    found = pc.calibrate(
        lambda x: pc.Gaussian(x) + pc.Gaussian(z * x) * 4, epsilon=epsilon, delta=delta, relation=relation
    )
    assert meets(found.run, epsilon, delta, relation)
    less = found.parameter * (1 - 1e-6)
    assert not meets(pc.Gaussian(less) + pc.Gaussian(z * less) * 4, epsilon, delta, relation)
    assert found.guarantee.relation is relation


@pytest.mark.parametrize("spent", [None, pc.Gaussian(5.0) * 3, SAMPLED * 200], ids=str)
def test_counts_with_and_without_what_was_spent(spent: pc.Run | None) -> None:
    found = pc.calibrate(lambda n: SAMPLED * n, epsilon=2.0, delta=1e-5, integer=True, spent=spent)
    before = pc.Run() if spent is None else spent.run
    assert isinstance(found.parameter, int)
    assert found.run == SAMPLED * found.parameter
    assert meets(found.run + before, 2.0, 1e-5)
    assert not meets(SAMPLED * (found.parameter + 1) + before, 2.0, 1e-5)
    assert found.guarantee.epsilon == (found.run + before).epsilon(delta=1e-5)


def test_spent_pays_from_the_same_budget() -> None:
    alone = pc.calibrate(pc.Gaussian, mu=1.0)
    after = pc.calibrate(pc.Gaussian, mu=1.0, spent=pc.Gaussian(2.0))
    assert alone.parameter == pytest.approx(1.0, rel=1e-12)
    assert after.parameter == pytest.approx(1 / math.sqrt(0.75), rel=1e-9)
    assert after.run == pc.Gaussian(after.parameter) * 1
    assert after.guarantee.mu <= 1.0


@pytest.mark.parametrize("relation", list(pc.Relation), ids=str)
def test_mu_and_rho(relation: pc.Relation) -> None:
    shift = 2.0 if relation is pc.REPLACE_ONE else 1.0
    by_mu = pc.calibrate(lambda z: pc.Gaussian(z) * 9, mu=0.5, relation=relation)
    assert by_mu.parameter == pytest.approx(shift * 3 / 0.5, rel=1e-9)
    assert by_mu.guarantee.mu <= 0.5
    by_rho = pc.calibrate(lambda z: pc.Gaussian(z) * 9, rho=0.5, relation=relation)
    assert by_rho.parameter == pytest.approx(shift * 3, rel=1e-9)  # ρ = 9·shift²/2z²
    assert by_rho.guarantee.rho <= 0.5
    assert by_rho.guarantee.relation is relation
    count = pc.calibrate(lambda n: pc.Gaussian(10.0 * shift) * n, rho=0.5 + 1e-9, relation=relation, integer=True)
    assert count.parameter == 100


def test_bounds_are_kept() -> None:
    inside = pc.calibrate(pc.Gaussian, epsilon=1.0, delta=1e-5, bounds=(1.0, 10.0))
    assert inside.parameter == pytest.approx(pc.noise_multiplier(epsilon=1.0, delta=1e-5), rel=1e-9)
    capped = pc.calibrate(lambda n: pc.Gaussian(20.0) * n, epsilon=3.0, delta=1e-5, integer=True, bounds=(0, 100))
    assert capped.parameter == 100
    full = pc.calibrate(lambda q: pc.PoissonSampled(pc.Gaussian(50.0), q) * 10, epsilon=3.0, delta=1e-5)
    assert full.parameter == 1.0  # the edge of the domain meets the target
    rate = pc.calibrate(
        lambda q: pc.PoissonSampled(pc.Gaussian(1.0), q) * 10, epsilon=1.0, delta=1e-5, bounds=(1e-6, 0.5)
    )
    assert 1e-6 <= rate.parameter <= 0.5


def test_the_target_epsilon_zero() -> None:
    # (0, δ)-DP is a bound on the total variation: 2Φ(μ/2) − 1 = δ.
    found = pc.calibrate(pc.Gaussian, epsilon=0.0, delta=0.01)
    assert found.run.advantage().upper <= 0.01
    with mp.workdps(30):
        assert float(2 * mp.ncdf(1 / (2 * mpf(found.parameter))) - 1) == pytest.approx(0.01, rel=1e-9)
    assert found.guarantee.epsilon == 0.0
    many = pc.calibrate(lambda z: pc.PoissonSampled(pc.Gaussian(z), 0.1) * 100, epsilon=0.0, delta=0.1)
    assert many.run.advantage().upper <= 0.1
    assert (pc.PoissonSampled(pc.Gaussian(many.parameter * (1 - 1e-3)), 0.1) * 100).advantage().upper > 0.1


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-6, 1e-10), (1e-3, 0.3), (1e5, 1e-300)])
def test_no_bracket_is_too_far(epsilon: float, delta: float) -> None:
    found = pc.calibrate(pc.Gaussian, epsilon=epsilon, delta=delta)
    with mp.workdps(60):
        assert ref.gaussian_delta(1 / mpf(found.parameter), epsilon) <= delta
        assert ref.gaussian_delta(1 / (mpf(found.parameter) * (1 - mpf("1e-6"))), epsilon) > delta


@pytest.mark.parametrize("integer", [False, True])
def test_a_domain_is_found_by_its_errors(integer: bool) -> None:
    def make(x: float) -> pc.Run:
        if not 3 <= x <= 40:
            raise pc.PrivcalcError(f"x = {x!r}: must be in [3, 40]")
        return pc.Gaussian(30.0) * 4 + pc.PoissonSampled(pc.Gaussian(2.0), x / 100) * 5

    found = pc.calibrate(make, epsilon=1.5, delta=1e-5, integer=integer, bounds=(3, 40))
    assert 3 <= found.parameter <= 40
    assert meets(found.run, 1.5, 1e-5)
    assert found.parameter == 40 or not meets(make(found.parameter + (1 if integer else 1e-3)), 1.5, 1e-5)


@pytest.mark.parametrize("guess", ["noise_multiplier", "sigma", "value", "x", "epsilon", "steps"])
def test_a_wrong_guess_is_told_the_name(guess: str) -> None:
    found = pc.calibrate(pc.Gaussian, mu=1.0)
    with pytest.raises(AttributeError, match=r"what was found is its \.parameter"):
        getattr(found, guess)
    assert not hasattr(found, guess)
    assert copy.deepcopy(found) == found == pickle.loads(pickle.dumps(found))
    assert found.parameter == float(found)


def test_a_delta_of_one_over_the_records_is_warned_of() -> None:
    """To publish a record at random is (0, 1/n)-DP."""
    asked: list[Callable[[float], object]] = [
        lambda delta: pc.noise_multiplier(epsilon=1.0, delta=delta, batch_size=10, dataset_size=100, epochs=1),
        lambda delta: pc.calibrate(lambda z: pc.FixedSizeSampled(pc.Gaussian(z), 10, 100), epsilon=1.0, delta=delta),
        lambda delta: plans.plan(records=100, epsilon=1.0, delta=delta, epochs=[1], batch_sizes=[10]),
    ]
    for ask in asked:
        for delta in (0.01, 0.02):
            with pytest.warns(pc.PrivcalcWarning, match=r"delta = 0\.0[12]: is not below 1/100") as found:
                ask(delta)
            assert {Path(one.filename) for one in found} == {Path(__file__)}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ask(0.0099)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pc.noise_multiplier(epsilon=1.0, delta=0.5)


@pytest.mark.parametrize(
    ("answer", "kind"), [(lambda z: pc.Gaussian(z).epsilon(delta=1e-5), "Enclosure"), (float, "float")]
)
@pytest.mark.parametrize("integer", [False, True])
def test_a_function_that_gives_no_run_is_told_so(answer: Callable[[float], Any], kind: str, integer: bool) -> None:
    with pytest.raises(pc.PrivcalcError, match=f"make: the function must return a mechanism or run, not {kind}"):
        pc.calibrate(answer, epsilon=1.0, delta=1e-5, integer=integer)


@pytest.mark.parametrize(
    "ask", [pc.noise_multiplier, functools.partial(pc.calibrate, pc.Gaussian)], ids=["noise", "calibrate"]
)
def test_epsilon_and_delta_that_may_be_swapped(ask: Callable[..., Any]) -> None:
    with pytest.warns(pc.PrivcalcWarning, match=r"epsilon = 1e-05, delta = 0\.9: δ is the larger.* are they swapped"):
        ask(epsilon=1e-5, delta=0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ask(epsilon=0.5, delta=0.1)


def test_a_function_that_is_refused_everywhere_says_why() -> None:
    with pytest.raises(pc.PrivcalcError, match="gives a run; at 1: rate = 100: must be a probability"):
        pc.calibrate(lambda z: pc.PoissonSampled(pc.Gaussian(z), rate=100), epsilon=1.0, delta=1e-5)


@pytest.mark.slow
def test_a_delta_that_alone_meets_the_target_is_warned_of() -> None:
    """Ten coins of 1 %: who is drawn at all, 9.6 %, may be published as they are."""
    sampled = {"sample_rate": 0.01, "steps": 10}
    with pytest.warns(pc.PrivcalcWarning, match="met with next to no noise"):
        pc.noise_multiplier(epsilon=3.0, delta=0.1, **sampled)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pc.noise_multiplier(epsilon=3.0, delta=0.09, **sampled)
        pc.noise_multiplier(epsilon=3.0, delta=1e-5, sample_rate=1e-4, steps=1)


def test_a_delta_that_alone_meets_the_target_of_batches_of_fixed_size_is_warned_of() -> None:
    """One record of a hundred, published as it is."""

    def fixed(z: float) -> pc.Mechanism:
        return pc.FixedSizeSampled(pc.Gaussian(z), batch_size=1, dataset_size=100)

    with pytest.warns(pc.PrivcalcWarning, match="met with next to no noise"):
        pc.calibrate(fixed, epsilon=3.0, delta=0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pc.calibrate(fixed, epsilon=3.0, delta=0.009)


def test_a_wide_enclosure_is_searched_in_few_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digits beyond its width are not searched, nothing is asked twice; next to nothing of the target is left over."""
    asked: list[str] = []
    ask = pc.Run.epsilon

    def counted(run: pc.Run, **arguments: Any) -> pc.Enclosure:
        asked.append(repr(run))
        return ask(run, **arguments)

    monkeypatch.setattr(pc.Run, "epsilon", counted)
    found = pc.calibrate(lambda z: pc.RandomAllocation(pc.Gaussian(z), steps=10), epsilon=1.5, delta=1e-8)
    assert 1.5 * (1 - 1e-7) <= float(found.guarantee.epsilon or 0) <= 1.5
    assert len(asked) <= 10
    assert len(asked) - len(set(asked)) <= 1  # the guarantee
    left, right = crossing(
        lambda x: (math.exp(-x) * (1 - 1e-5), math.exp(-x)), 0.5, 2.0, 0.0, math.inf, both=False, above=True
    )
    assert left == 0
    assert math.log(2) <= right <= math.log(2) * (1 + 1e-7)
