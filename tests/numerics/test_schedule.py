"""Transforms of many sampled Gaussians on one grid: proofs/schedule.md."""

import math
import random

import mpmath as mp
import numpy as np
import pytest
from cases import SLOW, quick
from hypothesis import example, given, settings
from hypothesis import strategies as st

import privcalc as pc
from privcalc.composition import uses
from privcalc.composition.uses import grouped
from privcalc.numerics.elementary import fan_less_one
from privcalc.numerics.normal_loss import PreparedNormalLoss
from privcalc.numerics.sampled_gaussian import SampledGaussianTransform
from privcalc.numerics.schedule import ScheduleTransform


def transforms(seed, *, mu, q, add, count=1, number=5, spread=0.3):
    """Entries near (μ, q), with counts up to ``count``."""
    source = random.Random(seed)
    return [
        (
            SampledGaussianTransform(
                mu * math.exp(source.uniform(0, spread)),
                min(q * math.exp(source.uniform(-spread, spread) * min(mu, 1)), 1 - 1e-9),
                add,
            ),
            source.randint(1, count),
        )
        for _ in range(number)
    ]


def one(entries):
    """The only transform of a group."""
    ((found, count),) = grouped(entries)
    assert isinstance(found, ScheduleTransform)
    assert count == 1
    return found


def truth(entries, s, end=None):
    """K(s) in many digits, without what lies beyond the cut: ``end`` is its place in log odds of q r."""
    total = mp.mpf(0)
    for t, n in entries:
        mu, q = mp.mpf(t.mu), mp.mpf(t.q)
        power = -s if t.add else s + 1
        centre = mu * mp.re(power) if mu < 2 else 0
        far = mp.inf if end is None else (mp.log((1 - q) / q) + mu * mu / 2 + end) / mu
        points = [x for x in (-14, -4, 0, 4, centre, 9, 14) if x < far]
        points = sorted({-mp.inf, *points, far})

        def term(x, mu=mu, q=q, power=power):
            return mp.npdf(x) * (1 - q + q * mp.exp(mu * x - mu * mu / 2)) ** power

        total += n * mp.log(mp.quad(term, points))
    return total


@pytest.mark.parametrize(
    ("mu", "q", "add", "c"),
    quick([(1.0, 0.01, False, 4.0), (1.0, 0.01, True, 9.0), (0.02, 0.3, False, 60.0), (0.7, 0.7, True, 3.0)], 2, 3),
)
def test_against_many_digits(mu, q, add, c):
    entries = transforms(1, mu=mu, q=q, add=add, count=3, number=4)
    prepared = one(entries).prepare(c, 1, -300.0, cut=False)
    assert prepared.lost < 1e-60
    real, step = prepared.log_real(np.array([c])), 0.3 / (mu * q * math.sqrt(8))
    nodes = prepared.log_nodes(c, step, 12)
    with mp.workdps(30):
        at = truth(entries, mp.mpf(c))
        assert abs(at - mp.mpf(float(real.value[0]))) <= real.error[0] < 1e-11
        for k in (1, 11):
            exact = mp.exp(truth(entries, mp.mpc(c, k * step)) - at)
            found = mp.exp(mp.mpc(complex(nodes.log_m[k])))
            assert abs(found - exact) <= abs(found) * mp.expm1(mp.mpf(float(nodes.slack[k])))
            assert nodes.slack[k] < 1e-10


def test_the_cut_is_at_one_place():
    """What is left out is left out of the same law that ``lost`` and the enclosure speak of."""
    entries = transforms(2, mu=1.0, q=0.01, add=False, number=4)
    prepared = one(entries).prepare(1.0, 1, -12.0, cut=True)
    assert prepared.lost > 1e-8
    found = prepared.log_real(np.array([1.0]))
    with mp.workdps(30):
        reference = mp.mpf(prepared.of.reference)
        exact = truth(entries, mp.mpf(1), prepared._end + mp.log(reference / (1 - reference)))
        assert abs(exact - mp.mpf(float(found.value[0]))) <= found.error[0]
        assert abs(exact - truth(entries, mp.mpf(1))) > 1e-9
        lost = sum(
            n * (1 - mp.ncdf((prepared._end - d) / t.mu) * (1 - t.q) - t.q * mp.ncdf((prepared._end - d) / t.mu - t.mu))
            for (t, n), d in zip(sorted_as(prepared, entries), prepared.of.mean.tolist(), strict=True)
        )
        assert abs(lost / prepared.lost - 1) < 1e-8


def sorted_as(prepared, entries):
    """The entries in the order of the grid."""
    known = {(t.mu, t.q): (t, n) for t, n in entries}
    return [known[key] for key in zip(prepared.of.mu.tolist(), prepared.of.q.tolist(), strict=True)]


logs = st.floats(0, 1)


@settings(deadline=None, max_examples=60 if SLOW else 20)
@given(st.integers(0, 2**20), logs, logs, logs, st.booleans(), st.sampled_from([1, 1, 7, 10_000]))
@example(3, 0.0, 0.0, 1.0, True, 10_000)  # little noise, rare
@example(4, 1.0, 0.0, 0.5, False, 1)
@example(5, 0.0, 1.0, 0.0, True, 1)  # nearly everybody, nearly no information
@example(5, 0.0, 1.0, 1.0, False, 10_000)
@example(6, 1.0, 1.0, 1.0, True, 7)
def test_as_one_by_one(seed, mu_at, q_at, c_at, add, count):
    mu, q, c = 1e-4 * (4e4**mu_at), 1e-8 * (0.9e8**q_at), 0.01 * 1e4**c_at
    entries = transforms(seed, mu=mu, q=q, add=add, count=count, number=6)
    parts = grouped(entries)
    assert len(parts) < 6
    try:
        alone = [(t.prepare(c, n, -690.0, cut=False), n) for t, n in entries]
        together = [(t.prepare(c, n, -690.0, cut=False), n) for t, n in parts]
    except OverflowError:
        return
    points = c * np.array([0.01, 0.3, 1.0])
    for at in (points, points[-1:]):
        values, errors = zip(*(sums(each, at) for each in (alone, together)), strict=True)
        assert np.all(np.abs(values[0] - values[1]) <= errors[0] + errors[1])
    # Steps of a fraction of what the tilted sum of losses deviates, and far out.
    square = sum(n * (t.q * t.mu) ** 2 * math.exp(min(t.mu**2, 3.0)) for t, n in entries)
    step = 0.2 / math.sqrt(square)
    nodes = [[(part.log_nodes(c, step, 150), n) for part, n in each] for each in (alone, together)]
    logs_m = [sum(n * node.log_m for node, n in each) for each in nodes]
    slacks = [sum(n * node.slack for node, n in each) for each in nodes]
    sure = (slacks[0] < 0.1) & (slacks[1] < 0.1)
    apart = np.abs(np.expm1(logs_m[1][sure] - logs_m[0][sure]))
    assert np.all(apart <= 1.2 * (slacks[0] + slacks[1])[sure])
    # No later node is above the bound of the decay.
    u = step * np.array([0.5, 3.0, 20.0, 80.0])
    for bound, first in zip(sum(part.log_decay(c, u) for part, _ in together).tolist(), (1, 3, 20, 80), strict=True):
        later = (logs_m[0].real - slacks[0])[first:][sure[first:]]
        assert np.all(later <= bound + 1e-9)


def sums(prepared, c):
    """Σ n K(c) and its error."""
    found = [(part.log_real(c), n) for part, n in prepared]
    return sum(n * real.value for real, n in found), sum(n * real.error for real, n in found)


def test_terms_are_counted():
    """With each error set to zero some enclosure fails: a bound that could be dropped would not be tested."""
    entries = transforms(7, mu=0.5, q=0.05, add=False, number=4)
    transform = one(entries)
    prepared = transform.prepare(3.0, 1, -300.0, cut=False)
    coarse = type(prepared)(transform, prepared.counts, 3 * prepared.step, prepared.theta, prepared.y[::3], 1e-3)
    with mp.workdps(30):
        exact = truth(entries, mp.mpf(3))
    found = coarse.log_real(np.array([3.0]))
    assert abs(float(exact) - found.value[0]) <= found.error[0]
    sharp = type(prepared)(transform, prepared.counts, coarse.step, prepared.theta, coarse.y, 0.0).log_real(
        np.array([3.0])
    )
    assert not abs(float(exact) - sharp.value[0]) <= sharp.error[0]


def test_a_thousand_steps_on_one_grid():
    run = pc.Run.of(pc.PoissonSampled(pc.Gaussian(1 + k / 1000), 0.005 * (1 + k / 1000)) for k in range(1000))
    found = uses.Uses(run._sides(pc.ADD_OR_REMOVE_ONE).upper[0]).transforms
    assert len(found) <= 3
    answer = run.epsilon(delta=1e-6)
    assert answer.upper - answer.lower <= 1e-8 * answer.upper


def test_what_is_not_alike_stays_alone():
    few = transforms(1, mu=1.0, q=0.1, add=False, number=3)
    assert grouped(few) == few
    apart = [(SampledGaussianTransform(mu, 0.1, False), 1) for mu in (0.01, 0.1, 1.0, 4.0)]
    assert sorted(t.mu for t, _ in grouped(apart)) == [0.01, 0.1, 1.0, 4.0]
    rates = [(SampledGaussianTransform(0.01, q, False), 1) for q in (1e-6, 1e-4, 1e-2, 0.5)]
    assert len(grouped(rates)) == 4
    both = [*transforms(2, mu=1.0, q=0.1, add=True), *transforms(2, mu=1.0, q=0.1, add=False)]
    assert sorted(t.add for t, _ in grouped(both)) == [False, True]
    assert isinstance(few[0][0].prepare(1.0, 1, -50.0, cut=True), PreparedNormalLoss)


def test_fan_less_one():
    log = np.array([1e-9 + 1e-10j, 0.3 + 0.2j, 2.0 + 0.0j])
    found = fan_less_one(log, 0.7, 500, 20)
    with mp.workdps(40):
        for j, value in enumerate(log.tolist()):
            for k in (0, 1, 57, 499):
                z = mp.mpc(0, mp.mpf(0.7) * (20 + k)) * mp.mpc(value)
                assert abs(mp.expm1(z) - mp.mpc(complex(found[j, k]))) <= 40 * 2.0**-53 * abs(z)
