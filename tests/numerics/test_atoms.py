"""Runs with atoms: enumeration and the smoothed contour against exact sums in 50 digits, safeguards, widths."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterable

import numpy as np
import pytest
from cases import SLOW
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf  # type: ignore[import-untyped]
from strategies import directions

import privcalc as pc
from privcalc.mechanisms.custom import DiscretePair
from privcalc.numerics.routes import atoms, contour, lattice, smoothing
from privcalc.numerics.routes.atoms import Atoms, enumerate_sums
from privcalc.numerics.transforms import DiscreteTransform, GaussianTransform
from privcalc.pairs.pair import Pair
from privcalc.pairs.poisson import SampledPair
from privcalc.pairs.two_point import TwoPointPair

Exact = dict[mpf, mpf]
"""Losses and their probabilities under P."""


def two_points(level: float, neutral: int = 0) -> Exact:
    """Randomised response with 2 + neutral categories."""
    p = 1 / (1 + (1 + neutral) * mp.e ** -mpf(level))
    found = {mpf(level): p, -mpf(level): p * mp.e ** -mpf(level)}
    return found | {mpf(0): neutral * p * mp.e ** -mpf(level)} if neutral else found


def outcomes(p: Iterable[float], q: Iterable[float]) -> Exact:
    found: Exact = {}
    p, q = list(map(mpf, p)), list(map(mpf, q))
    for x, y in zip(p, q, strict=True):
        loss = mp.log((x / mp.fsum(p)) / (y / mp.fsum(q)))
        found[loss] = found.get(loss, mpf(0)) + x / mp.fsum(p)
    return found


def exact_sum(parts: Iterable[tuple[Exact, int]]) -> Exact:
    """Every value of the sum: equal ones are merged to 40 digits."""
    total = {mpf(0): mpf(1)}
    for law, count in parts:
        for _ in range(count):
            new: dict[str, tuple[mpf, mpf]] = {}
            for a, x in total.items():
                for b, y in law.items():
                    key = mp.nstr(a + b, 40)
                    new[key] = (a + b, new[key][1] + x * y if key in new else x * y)
            total = dict(new.values())
    return total


def exact_delta(law: Exact, epsilon: mpf) -> mpf:
    return mp.fsum(p * (1 - mp.e ** (mpf(epsilon) - loss)) for loss, p in law.items() if loss > epsilon)


P3, Q3 = [0.5, 0.3, 0.2], [0.45, 0.33, 0.22]
P4, Q4 = [0.1, 0.2, 0.3, 0.4], [0.15, 0.2, 0.25, 0.4]

with mp.workdps(50):
    CASES: dict[str, tuple[pc.Run, Exact]] = {
        "three levels": (
            pc.PureDP(0.3) * 3 + pc.PureDP(0.5) * 4 + pc.PureDP(1.1) * 5,
            exact_sum([(two_points(0.3), 3), (two_points(0.5), 4), (two_points(1.1), 5)]),
        ),
        "responses": (
            pc.RandomizedResponse(0.5, 2) * 3 + pc.RandomizedResponse(1.7, 4) * 2 + pc.RandomizedResponse(0.2, 10) * 5,
            exact_sum([(two_points(0.5), 3), (two_points(1.7, 2), 2), (two_points(0.2, 8), 5)]),
        ),
        "outcomes": (
            pc.CustomMechanism.from_probabilities(P3, Q3) * 9 + pc.PureDP(0.25),
            exact_sum([(outcomes(P3, Q3), 9), (two_points(0.25), 1)]),
        ),
        "few outcomes": (
            pc.CustomMechanism.from_probabilities(P4, Q4) * 4 + pc.CustomMechanism.from_probabilities(P3, Q3) * 2,
            exact_sum([(outcomes(P4, Q4), 4), (outcomes(P3, Q3), 2)]),
        ),
        "tiny": (
            pc.PureDP(0.011) * 12 + pc.PureDP(math.sqrt(2) * 0.01) * 10,
            exact_sum([(two_points(0.011), 12), (two_points(math.sqrt(2) * 0.01), 10)]),
        ),
    }


def forward(run: pc.Run) -> list[tuple[Pair, int]]:
    return list(directions(run, pc.ADD_OR_REMOVE_ONE)[0])


def smoothed(entries: list[tuple[Pair, int]], epsilon: float, rtol: float = 1e-6) -> smoothing.Smoothed:
    transforms = [(pair.transform, count) for pair, count in entries]
    return smoothing.build([(t, n) for t, n in transforms if t is not None], epsilon=epsilon, rtol=rtol)[0]


def losses_of_interest(law: Exact) -> list[float]:
    """Between atoms, at them, and next to them."""
    high = sorted((x for x in law if x > 0), reverse=True)
    found = [float(high[i]) for i in np.linspace(0, len(high) - 1, 7).astype(int)]
    return [0.0, *found, *(math.nextafter(x, 0) for x in found[:3]), *(0.7310585 * x for x in found), 1.1 * found[0]]


@pytest.mark.parametrize("name", CASES)
def test_enumeration(name: str) -> None:
    run, truth = CASES[name]
    law = enumerate_sums((pair.atoms, count) for pair, count in forward(run))
    with mp.workdps(50):
        # As many values as there are: equal sums met in different orders are one, up to a few split cells.
        number = len({round(float(loss), 12) for loss in truth})
        assert number <= law.losses.size <= 1.2 * number + 4
        assert law.shift < 1e-10 * law.reach
        for epsilon in losses_of_interest(truth):
            exact = exact_delta(truth, epsilon)
            lower, upper = law.bounds(epsilon)
            assert lower <= exact <= upper
            near = mp.fsum(p for loss, p in truth.items() if loss >= epsilon - 1e-9)
            assert upper - lower <= 1e-9 * exact + 1e-9 * law.reach * near + 1e-290


@pytest.mark.parametrize("delta", [1e-30, 1e-6, 1e-3, 0.1])
@pytest.mark.parametrize("name", CASES)
def test_answers(name: str, delta: float) -> None:
    """ε from the library: just below its upper end δ is too small, just above its lower end too large."""
    run, truth = CASES[name]
    answer = run.epsilon(delta=delta)
    with mp.workdps(50):
        back = {-loss: p * mp.e**-loss for loss, p in truth.items()}
        worst = [max(exact_delta(law, mpf(end)) for law in (truth, back)) for end in (answer.lower, answer.upper)]
    assert answer.upper == 0 or worst[1] <= delta
    assert answer.lower == 0 or worst[0] >= delta
    assert answer.width <= 1e-9 * answer.upper


@pytest.mark.parametrize("name", CASES)
def test_smoothing_encloses(name: str) -> None:
    run, truth = CASES[name]
    entries = forward(run)
    met = 0
    with mp.workdps(50):
        for epsilon in losses_of_interest(truth)[:-1]:
            exact = exact_delta(truth, epsilon)
            if not 1e-12 < exact < 0.9:
                continue
            try:
                built = smoothed(entries, epsilon)
            except contour.RouteFailed:
                continue
            lower, upper = built.bounds(epsilon)
            assert lower <= exact <= upper
            met += 1
    assert met >= 4


def test_smoothing_needs_its_excess() -> None:
    """At an atom the smoothed profile is larger, by nearly all that the bound allows; elsewhere by next to nothing."""
    run, truth = CASES["three levels"]
    epsilon = 2.6  # 2·0.3 + 4·0.5 etc.: an atom
    built = smoothed(forward(run), epsilon, rtol=1e-5)
    atom = min(truth, key=lambda x: abs(x - epsilon))
    with mp.workdps(50):
        assert abs(atom - epsilon) < 1e-14
        exact = exact_delta(truth, epsilon)
    lower, upper = built.contour.bounds(epsilon)
    assert lower > exact
    assert upper - exact < built.excess(epsilon) < 1.01 * float(upper - exact)
    assert built.bounds(epsilon)[0] <= exact
    assert built.excess(epsilon + 8 * built.eta) < 1e-6 * built.excess(epsilon)


def test_smoothing_needs_its_tail() -> None:
    """Too few nodes, so that most of the density lies beyond: the tail bounds what is missing of both integrals."""
    run, truth = CASES["three levels"]
    epsilon, eta = 2.6, 0.02
    entries = [(pair.transform, count) for pair, count in forward(run)]
    failed = 0
    for reach in (0.3, 0.7, 1.2, 2.0):
        precision = contour.Precision(-math.log(0.05 * eta * math.exp(-0.5 * reach**2)), square=eta**2)
        built, _ = contour.build([*entries, (GaussianTransform(eta), 1)], epsilon=epsilon, precision=precision)
        found = smoothing.Smoothed(built, eta)
        with mp.workdps(50):
            exact = exact_delta(truth, epsilon)
            smooth = mp.fsum(p * smooth_payoff(loss - epsilon, eta) for loss, p in truth.items())
        assert found.bounds(epsilon)[0] <= exact <= found.bounds(epsilon)[1]
        assert smooth - exact <= found.excess(epsilon)
        bare = smoothing.Smoothed(dataclasses.replace(built, tail=0.0), eta)
        failed += bare.excess(epsilon) < smooth - exact
    assert failed >= 2


def smooth_payoff(t: mpf, eta: float) -> mpf:
    """E(1 − e^{−t−Y})_+, Y ~ N(η²/2, η²)."""
    x, half = t / mpf(eta), mpf(eta) / 2
    return mp.ncdf(x + half) - mp.e**-t * mp.ncdf(x - half)


@pytest.mark.parametrize("eta", [1e-4, 0.03, 0.5, 2.0])
def test_time_value_is_below_the_density(eta: float) -> None:
    """proofs/smoothing.md: 0 ≤ w(t) ≤ η² e^{η²/8} × density of Y at −t, for all t; at 0 nothing smaller would do."""
    with mp.workdps(60):
        for x in [0, *np.geomspace(1e-6, 12, 40)]:
            for t in (mpf(x) * eta, -mpf(x) * eta):
                w = smooth_payoff(t, eta) - max(1 - mp.e**-t, mpf(0))
                density = mp.npdf(-t, mpf(eta) ** 2 / 2, mpf(eta))
                assert 0 <= w <= mpf(eta) ** 2 * mp.e ** (mpf(eta) ** 2 / 8) * density
        w = smooth_payoff(mpf(0), eta)
        assert w > (1 - mpf(eta) ** 2 / 6 - 1e-9) * mpf(eta) ** 2 * mp.npdf(0, mpf(eta) ** 2 / 2, mpf(eta))


def test_laplace_and_atoms() -> None:
    """One Laplace release and some responses: a sum of closed forms over the atoms of the rest."""
    scale, level, count = 1.7, 0.4, 6
    run = pc.Laplace(scale) + pc.PureDP(level) * count
    a = 1 / mpf(scale)
    with mp.workdps(50):
        rest = exact_sum([(two_points(level), count)])

        def laplace(e: mpf) -> mpf:
            if e >= a:
                return mpf(0)
            return 1 - mp.e ** ((e - a) / 2) if e > -a else 1 - mp.e**e

        for epsilon in (0.0, 0.2, 0.8, 1.3, 2.4, 2.4 + 1 / scale - 1e-4, 2.9):
            exact = mp.fsum(p * laplace(mpf(epsilon) - loss) for loss, p in rest.items())
            answer = run.delta(epsilon=epsilon)
            assert answer.lower <= exact <= answer.upper
            assert answer.width <= 3e-6 * answer.upper


def exact_shift(law: Atoms, truth: Exact) -> float:
    """How far the values really are from the exact ones."""
    values = np.array(sorted(map(float, truth)))
    at = np.clip(np.searchsorted(values, law.losses), 1, values.size - 1)
    return float(np.max(np.minimum(np.abs(law.losses - values[at]), np.abs(law.losses - values[at - 1]))))


def test_enumeration_with_wide_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells that merge different values: the shift covers that, and without it the bounds are wrong."""
    run, truth = CASES["tiny"]
    failed = 0
    for gap in (2.0**-9, 2.0**-7, 2.0**-5):
        monkeypatch.setattr(atoms, "GAP", gap)
        law = enumerate_sums((pair.atoms, count) for pair, count in forward(run))
        assert law.losses.size < len(truth)
        assert law.shift >= exact_shift(law, truth)
        bare = dataclasses.replace(law, shift=0.0)
        with mp.workdps(50):
            for epsilon in np.linspace(0.0, 0.2, 9):
                exact = exact_delta(truth, epsilon)
                assert law.bounds(epsilon)[0] <= exact <= law.bounds(epsilon)[1]
                failed += not bare.bounds(epsilon)[0] <= exact <= bare.bounds(epsilon)[1]
    assert failed >= 15


def test_what_is_left_out_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    run, truth = CASES["three levels"]
    monkeypatch.setattr(atoms, "_CUT", 2e-2)
    law = enumerate_sums((pair.atoms, count) for pair, count in forward(run))
    bare = dataclasses.replace(law, missing=0.0)
    with mp.workdps(50):
        for epsilon in (4.0, 5.0, 7.0):
            exact = exact_delta(truth, epsilon)
            assert law.bounds(epsilon)[0] <= exact <= law.bounds(epsilon)[1]
            assert bare.bounds(epsilon)[1] < exact


def sampled_law(law: Exact, rate: float, *, add: bool) -> Exact:
    found: Exact = {}
    for loss, p in law.items():
        new = mp.log(1 - mpf(rate) + mpf(rate) * mp.e**loss)
        found[-new if add else new] = p * mp.e**-loss * (1 if add else mp.e**new)
    return found


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("rate", [1e-9, 0.01, 0.5, 0.999])
def test_sampled_atoms(rate: float, add: bool) -> None:
    """Responses with rare and with large losses, and outcomes: losses and masses within the stated errors."""
    cases: list[tuple[Pair, Exact]] = []
    with mp.workdps(60):
        for level, neutral in ((0.3, 0), (2.0, 8), (40.0, 1), (250.0, 0)):
            cases.append((TwoPointPair(level, level, neutral), two_points(level, neutral)))
        cases.append((DiscretePair(tuple(P4), tuple(Q4), 0.0), outcomes(P4, Q4)))
        for base, law in cases:
            found = SampledPair(base, rate, add).atoms
            truth = sampled_law(law, rate, add=add)
            assert found is not None
            assert len(truth) <= found.losses.size
            assert np.all(np.diff(found.losses) >= 0)
            total: Exact = dict.fromkeys(truth, mpf(0))
            for loss, mass in zip(found.losses.tolist(), found.masses.tolist(), strict=True):
                near = min(truth, key=lambda x, loss=loss: abs(x - loss))
                assert abs(near - loss) <= found.shift
                total[near] += mpf(mass)
            assert all(abs(total[x] - p) <= found.relative * p + found.missing for x, p in truth.items())
            assert found.relative < 1e-12


def test_sampled_leaks_have_no_atoms() -> None:
    """Mass of Q where P has none would be left out."""
    assert SampledPair(DiscretePair((0.5, 0.5), (0.4, 0.5), 0.1), 0.1, False).atoms is None
    assert SampledPair(TwoPointPair(800.0, 800.0), 0.1, False).atoms is None


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0])
def test_sampled_responses(epsilon: float) -> None:
    run = pc.PoissonSampled(pc.RandomizedResponse(1.0, 3), 0.2) * 6 + pc.PoissonSampled(pc.PureDP(0.5), 0.5) * 5
    with mp.workdps(50):
        exact = mpf(0)
        for add in (False, True):
            parts = [
                (sampled_law(two_points(1.0, 1), 0.2, add=add), 6),
                (sampled_law(two_points(0.5), 0.5, add=add), 5),
            ]
            exact = max(exact, exact_delta(exact_sum(parts), epsilon))
    answer = run.delta(epsilon=epsilon)
    assert answer.lower <= exact <= answer.upper
    assert answer.width <= 1e-9 * answer.upper


def test_discrete_gaussians_and_responses() -> None:
    sigma, epsilon = 0.8, 3.0
    run = pc.DiscreteGaussian(sigma) * 3 + pc.PureDP(0.3) * 4
    with mp.workdps(40):
        weights = {y: mp.e ** (-(mpf(y) ** 2) / (2 * mpf(sigma) ** 2)) for y in range(-12, 13)}
        total = mp.fsum(weights.values())
        noise = {(2 * y + 1) / (2 * mpf(sigma) ** 2): w / total for y, w in weights.items()}
        exact = exact_delta(exact_sum([(noise, 3), (two_points(0.3), 4)]), epsilon)
    answer = run.delta(epsilon=epsilon)
    assert answer.lower * (1 - 1e-14) <= exact <= answer.upper * (1 + 1e-14)
    assert answer.width <= 1e-9 * answer.upper
    entries = forward(run)
    lower, upper = smoothed(entries, epsilon, rtol=1e-4).bounds(epsilon)
    assert lower <= exact <= upper


def test_small_masses_left_out_of_a_transform() -> None:
    """They are counted as lost: with a share of δ left out, the upper bound needs it."""
    pair = TwoPointPair(1.0, 1.0)
    rare = DiscretePair((0.5, 0.5 - 1e-7, 1e-7), (0.4, 0.6 - 1e-10, 1e-10), 0.0)
    transform = rare.transform
    assert isinstance(transform, DiscreteTransform)
    cut = transform.prepare(5.0, 1, math.log(1e-6), cut=True)
    assert isinstance(cut, DiscreteTransform)
    assert cut.masses.size == 2
    assert 1e-7 <= cut.lost <= 1.1e-7
    assert pair.transform is not None
    law = {**outcomes([0.5, 0.5 - 1e-7, 1e-7], [0.4, 0.6 - 1e-10, 1e-10])}
    k, error = cut.log_real(np.array([2.0]))
    with mp.workdps(30):
        kept = mp.log(mp.fsum(p * mp.e ** (2 * loss) for loss, p in law.items() if p > 1e-5))
        assert abs(kept - float(k[0])) <= float(error[0])
        assert abs(kept - float(k[0])) > 1e-8  # the sum near 1 misses what is lost


def test_subnormal_masses_are_left_out() -> None:
    """A table that reaches down to e^{−745}: its last masses have no digits, and the tilt once gave them weight.

    The truth is by convolution of laws tilted by e^{36L}, with tables that reach farther (a separate program).
    """
    run = pc.DiscreteGaussian(50.0) * 9 + pc.DiscreteGaussian(1.0003520508108528, sensitivity=2)
    answer = run.delta(epsilon=37.52074661602805)
    assert answer.lower <= 1.298805172204e-300 <= answer.upper
    epsilon = run.epsilon(delta=1e-300)
    assert epsilon.lower > 37.5207467
    for transform in (
        pair.transform for pair, _ in forward(pc.DiscreteGaussian(0.97) + pc.DiscreteGaussian(0.4, sensitivity=2))
    ):
        assert isinstance(transform, DiscreteTransform)
        assert float(transform.masses.min()) >= 2.3e-308


def test_too_large_a_smoothing_is_refused() -> None:
    """η would be 136: e^{η²/8} overflows."""
    run = pc.ExponentialMechanism(0.017244087753990386) + pc.DiscreteGaussian(0.3781070775506447) * 10**9
    assert run.epsilon(delta=1e-4).upper < math.inf


def test_too_many_values() -> None:
    for entries in ([(TwoPointPair(0.1 * k**0.5, 0.1 * k**0.5).atoms, 1) for k in range(1, 30)], [(None, 1)]):
        with pytest.raises(contour.RouteFailed):
            enumerate_sums(entries)


@pytest.mark.parametrize("c", [0.3, 4.0, 60.0])
def test_discrete_transform(c: float) -> None:
    p, q = [0.2, 0.5, 0.3 - 1e-5, 1e-5], [0.25, 0.45, 0.2, 0.1]
    pair = DiscretePair(tuple(p), tuple(q), 0.0)
    transform = pair.transform
    assert isinstance(transform, DiscreteTransform)
    size, step = 40, 2.3
    log_m, slack = transform.log_nodes(c, step, size)
    k, error = transform.log_real(np.array([c]))
    with mp.workdps(40):
        law = outcomes(p, q)
        real = mp.fsum(x * mp.e ** (c * loss) for loss, x in law.items())
        assert abs(mp.log(real) - float(k[0])) <= float(error[0]) < 1e-12 * (1 + c)
        for j in (0, 1, 7, 39):
            s = mp.mpc(c, mpf(step) * j)
            exact = mp.fsum(x * mp.e ** (s * loss) for loss, x in law.items())
            found = mp.e ** (mp.mpc(complex(log_m[j])) + float(k[0]))
            assert abs(found - exact) <= abs(exact) * mp.expm1(float(slack[j]))
            assert slack[j] < 1e-8


@pytest.mark.parametrize("c", [0.3, 4.0])
def test_discrete_transform_of_inexact_losses(c: float) -> None:
    """Losses and masses that are off by the blur, the worst way: an angle is off by u times that."""
    masses, losses, blur = (0.4, 0.25, 0.35), (0.3, -0.1, -0.4), 1e-4
    size, step = 64, 5.0
    log_m, slack = DiscreteTransform(np.array(masses), np.array(losses), blur).log_nodes(c, step, size)
    k, _ = DiscreteTransform(np.array(masses), np.array(losses), blur).log_real(np.array([c]))
    needed = 0
    with mp.workdps(30):
        p = [mpf(x) * (1 + sign * mpf(blur)) for x, sign in zip(masses, (1, -1, 1), strict=True)]
        at = [mpf(x) + sign * mpf(blur) for x, sign in zip(losses, (1, -1, -1), strict=True)]
        for j in range(1, size):
            s = mp.mpc(c, mpf(step) * j)
            exact = mp.fsum(x * mp.e ** (s * loss) for x, loss in zip(p, at, strict=True))
            found = mp.e ** (mp.mpc(complex(log_m[j])) + float(k[0]))
            assert abs(found - exact) <= abs(exact) * mp.expm1(float(slack[j]))
            needed += abs(found - exact) > abs(exact) * 2 * blur * (1 + c)
    assert needed > size // 2


@pytest.mark.parametrize("pair", [TwoPointPair(0.3, 0.3), TwoPointPair(1.7, 0.4), TwoPointPair(0.01, 0.01, 3)])
def test_error_at_the_crossing_point_is_counted(pair: TwoPointPair) -> None:
    """M(c + iu)/M(c) is evaluated without K(c), whose own error belongs to every node's."""
    transform = pair.transform
    assert transform is not None
    prepared = transform.prepare(8.0, 1, -800.0, cut=True)
    with mp.workdps(40):
        up, down, small = mpf(pair.up), mpf(pair.down), mp.e ** -mpf(pair.up)
        p = (1 - mp.e**-down) / (1 - mp.e ** (-up - down)) if not pair.neutral else 1 / (1 + (pair.neutral + 1) * small)
        low, zero = (1 - p, mpf(0)) if not pair.neutral else (p * small, pair.neutral * p * small)
        for c in (0.1, 0.37, 1.3, 7.7):
            exact = mp.log(p * mp.e ** (c * up) + zero + low * mp.e ** (-c * down))
            found = float(prepared.log_real(np.array([c]))[0][0])
            assert abs(exact - found) <= float(prepared.log_nodes(c, 1.0, 2)[1][0])


# --- widths, and agreement of the routes -------------------------------------------------------------


def of(parts: Iterable[tuple[pc.Mechanism, int]]) -> pc.Run:
    return pc.Run(tuple(parts))


WIDTHS = {
    "8 levels with a common step": of((pc.PureDP(0.01 * i), 1250) for i in range(1, 9)),
    "8 levels without": of((pc.PureDP(0.01 * math.sqrt(i)), 1250) for i in range(1, 9)),
    "large levels": of((pc.PureDP(0.1 * i**0.7), 1250) for i in range(1, 9)),
    "few large atoms": pc.PureDP(0.3) * 20 + pc.PureDP(0.5) * 7 + pc.PureDP(1.1),
    "three outcomes": pc.CustomMechanism.from_probabilities(P3, Q3) * 100,
    "many outcomes": pc.CustomMechanism.from_probabilities(P4, Q4) * 1000,
    "tiny Laplace": of((pc.Laplace(1 / (0.0003 * i)), 1250) for i in range(1, 9)),
    "Laplace": of((pc.Laplace(1 / (0.01 * i)), 100) for i in range(1, 9)),
    "atoms and Laplace": of(
        [(pc.PureDP(0.3 * i), 5) for i in range(1, 5)] + [(pc.Laplace(1 / (0.2 * i)), 5) for i in range(1, 5)]
    ),
    "leaks": pc.ApproxDP(0.1, 1e-9) * 100 + pc.ApproxDP(0.25, 1e-8) * 30,
    "responses": pc.RandomizedResponse(0.5, 2) * 30
    + pc.RandomizedResponse(0.7, 4) * 20
    + pc.RandomizedResponse(0.2, 10) * 100,
    "with a Gaussian": pc.PureDP(0.2) * 20 + pc.PureDP(0.3) * 20 + pc.Gaussian(400.0) * 3,
    "sampled atoms": pc.PoissonSampled(pc.RandomizedResponse(1.0, 2), 0.1) * 100
    + pc.PoissonSampled(pc.RandomizedResponse(2.0, 4), 0.01) * 1000,
    "discrete Gaussians": pc.DiscreteGaussian(3.0) * 100 + pc.Laplace(2.0) * 10,
    "with samples": pc.PureDP(0.5) * 5 + pc.Laplace(3.0) * 5 + pc.PoissonSampled(pc.Gaussian(0.8), 0.001) * 10_000,
}


@pytest.mark.parametrize("delta", [1e-5, pytest.param(1e-6, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", WIDTHS)
def test_width(name: str, delta: float) -> None:
    answer = WIDTHS[name].epsilon(delta=delta)
    assert answer.width <= 1e-6 * answer.upper


levels = st.floats(math.log(5e-3), math.log(2.0)).map(math.exp)
discrete = st.one_of(
    levels.map(pc.PureDP),
    st.builds(pc.RandomizedResponse, levels, st.sampled_from([2, 3, 10])),
    st.lists(st.tuples(st.floats(0.2, 1.0), st.floats(0.2, 1.0)), min_size=2, max_size=4).map(
        lambda rows: pc.CustomMechanism.from_probabilities(
            [a / sum(x for x, _ in rows) for a, _ in rows], [b / sum(y for _, y in rows) for _, b in rows]
        )
    ),
)
with_density = st.one_of(discrete, levels.map(lambda x: pc.Laplace(1 / x)))


@given(
    st.lists(st.tuples(with_density, st.integers(1, 60)), min_size=1, max_size=4),
    st.floats(-8.0, -1.0).map(lambda x: 10**x),
)
@settings(max_examples=200 if SLOW else 6)
def test_routes_overlap(parts: list[tuple[pc.Mechanism, int]], delta: float) -> None:
    """Enumeration, smoothed contour and lattice, at an ε where δ is about the given one."""
    run = of(parts)
    for direction in directions(run, pc.ADD_OR_REMOVE_ONE):
        entries = list(direction)
        if not entries:
            continue
        epsilon = run.epsilon(delta=delta).upper
        routes = {
            "enumeration": lambda: enumerate_sums((pair.atoms, n) for pair, n in entries),
            "smoothing": lambda: smoothed(entries, epsilon),
            "lattice": lambda: lattice.build(entries, epsilon=epsilon)[0],
        }
        found = {}
        for name, build in routes.items():
            with contextlib.suppress(contour.RouteFailed):
                found[name] = build().bounds(epsilon)
        assert max((low for low, _ in found.values()), default=0.0) <= min(
            (high for _, high in found.values()), default=1.0
        ), found
