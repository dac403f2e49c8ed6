"""``prove``: verdicts on known runs, and every error term of the rigorous route where it dominates."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from cases import PRINTED, SLOW, opposite_once, opposite_twice, quick
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from reference import steps as reference

import privcalc as pc
from privcalc.mechanisms.discrete_gaussian import unit_mu
from privcalc.proof import prove_certificate
from privcalc.rigorous import balls, contour, proof, rotation
from privcalc.rigorous.allocation import Allocated, Sketch, Transform, allocated
from privcalc.rigorous.balls import acb, arb, lower, precision, upper
from privcalc.rigorous.contour import Bounds, Contour, Place
from privcalc.rigorous.direction import exact, silent
from privcalc.rigorous.discrete_gaussian import Integers
from privcalc.rigorous.factors import Atoms, Factor, Laplace, Logistic, Normal
from privcalc.rigorous.rotation import Grid
from privcalc.rigorous.sampled import Opposite, Sampled
from privcalc.run import Run

flint = pytest.importorskip("flint")


ORDERS: tuple[reference.Direction, ...] = ("remove", "add", "replace")


@pytest.fixture(autouse=True)
def checks(checks_here: None) -> None:
    """All claims are confirmed and proved."""


def factor_of(order: str, count: int, mu: Fraction, rate: Fraction) -> Sampled | Opposite:
    return Opposite(count, mu, rate) if order == "replace" else Sampled(count, mu, rate, order == "add")


def steps(rate: float, z: float, count: int) -> Run:
    return pc.PoissonSampled(pc.Gaussian(z), rate) * count


def judged(run: Run, delta: float, relation: pc.Relation = pc.ADD_OR_REMOVE_ONE, *, tight: bool = True) -> None:
    """The engine's upper end is proved and what lies below its lower end is not; both enclosures of δ meet."""
    found = run.epsilon(delta=delta, relation=relation)
    assert math.isfinite(found.upper)
    at = pc.prove(run, epsilon=found.upper, delta=delta, relation=relation)
    assert at.verdict == "proved", str(at)
    there = run.delta(epsilon=found.upper, relation=relation)
    assert at.lower <= there.upper, str(at)
    assert at.upper >= there.lower, str(at)
    if found.lower > 0:
        below = pc.prove(run, epsilon=found.lower * (1 - 1e-6), delta=delta, relation=relation)
        assert below.verdict == ("refuted" if tight else below.verdict), str(below)
        assert below.verdict != "proved", str(below)


# --- verdicts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "z", "count", "delta", "printed"), quick(PRINTED, 0, 5))
def test_printed_values(rate: float, z: float, count: int, delta: float, printed: str) -> None:
    epsilon, run = float(printed), steps(rate, z, count)
    assert pc.prove(run, epsilon=epsilon * (1 + 1e-9), delta=delta).verdict == "proved"
    for share in (1e-9, 1e-6, 0.1):
        assert pc.prove(run, epsilon=epsilon * (1 - share), delta=delta).verdict == "refuted"


def test_many_rare_steps() -> None:
    """The ends of the engine's answer, which takes longer than the proof."""
    run = steps(1e-5, 0.8, 3_000_000)
    assert pc.prove(run, epsilon=0.15861162974459941, delta=1e-8)
    assert pc.prove(run, epsilon=0.15861129220269393, delta=1e-8).verdict == "refuted"


RUNS: list[tuple[Run, float, pc.Relation]] = [
    (
        steps(0.01, 1.0, 1_000) + steps(0.02, 2.0, 500) + pc.Gaussian(5.0) * 3 + pc.Laplace(scale=4.0) * 2,
        1e-6,
        pc.ADD_OR_REMOVE_ONE,
    ),
    (pc.PureDP(epsilon=0.1) * 100 + pc.RandomizedResponse(1.0, categories=4) * 5, 1e-6, pc.ADD_OR_REMOVE_ONE),
    (pc.Laplace(scale=2.0) * 30 + pc.RandomizedResponse(0.5) * 2, 1e-6, pc.ADD_OR_REMOVE_ONE),
    (pc.PoissonSampled(pc.RandomizedResponse(1.0, categories=3), 0.1) * 12, 1e-4, pc.ADD_OR_REMOVE_ONE),
    (pc.ApproxDP(epsilon=0.1, delta=1e-8) * 100 + pc.Gaussian(4.0), 1e-5, pc.ADD_OR_REMOVE_ONE),
    (pc.ExponentialMechanism(0.5).run, 1e-2, pc.ADD_OR_REMOVE_ONE),
    (pc.PoissonSampled(pc.Gaussian(1.0), 0.1) + pc.PureDP(epsilon=0.2) * 3, 1e-3, pc.ADD_OR_REMOVE_ONE),
    (steps(0.5, 0.7, 3) + pc.Gaussian(3.0) * 2, 1e-6, pc.REPLACE_ONE),
    (steps(0.02, 3.0, 2_000) + steps(0.1, 2.0, 50), 1e-8, pc.REPLACE_ONE),
    (steps(0.3, 2.0, 1), 1e-3, pc.REPLACE_ONE),
]


@pytest.mark.parametrize(("run", "delta", "relation"), RUNS)
def test_exact_runs(run: Run, delta: float, relation: pc.Relation) -> None:
    judged(run, delta, relation)


@pytest.mark.parametrize(
    ("run", "delta"),
    [
        (pc.ZCDP(rho=0.5) + steps(0.01, 1.0, 100), 1e-5),
        (pc.RDP(orders=[2, 4, 8, 16], epsilons=[1, 2, 4, 8]) * 2, 1e-5),
        (pc.PoissonSampled(pc.ApproxDP(1.0, 1e-9), 0.1) * 300, 1e-6),
    ],
)
def test_bounded_runs(run: Run, delta: float) -> None:
    judged(run, delta, tight=False)


@pytest.mark.parametrize(
    ("run", "delta", "known", "verdict"),  # the ε that the logistic pair or zCDP gives
    [
        (pc.ExponentialMechanism(1.0) * 6, 1e-6, 5.99, "proved"),
        (pc.ExponentialMechanism(0.1) * 100 + pc.Gaussian(5.0) * 10, 1e-6, 4.09, "undecided"),
        (pc.TopK(epsilon=0.5, k=2) * 3, 1e-5, 0.7, "proved"),
    ],
)
def test_choices_are_played(run: Run, delta: float, known: float, verdict: str) -> None:
    """The game of choices alone; beside other mechanisms what it saves is neither proved nor refuted."""
    found = run.epsilon(delta=delta)
    assert found.upper < known
    assert pc.prove(run, epsilon=known, delta=delta).verdict == "proved"
    assert pc.prove(run, epsilon=found.upper * (1 + 1e-6), delta=delta).verdict == verdict
    assert pc.prove(run, epsilon=0.5 * found.lower, delta=delta).verdict == "refuted"


@pytest.mark.parametrize(("a", "epsilon"), [(1.0, 0.5), (0.125, 0.1), (4.0, 5.5)])
def test_a_game_in_integers(a: float, epsilon: float) -> None:
    """Two choices by maximisation in 30 digits: the value is below the bound, by little."""
    bound, _ = proof.game(Fraction(a), 2, Fraction(epsilon), 1e-2, silent)
    with mp.workdps(30):
        width, top = mpf(a), mpf(epsilon)

        def last(x: mpf) -> mpf:
            if abs(x) >= width:
                return max(-mp.expm1(x), mpf(0))
            return (1 - mp.exp((x - width) / 2)) ** 2 / -mp.expm1(-width)

        def first(t: mpf) -> mpf:
            p = mp.expm1(t - width) / mp.expm1(-width)
            return p * last(top - t) + (1 - p) * last(top + width - t)

        low, high = mpf(0), width
        for _ in range(100):  # the value is unimodal in t
            left, right = (2 * low + high) / 3, (low + 2 * high) / 3
            low, high = (left, high) if first(left) < first(right) else (low, right)
        truth = first(low)
    assert truth <= bound <= truth * (1 + 1e-5)


def test_replace_one() -> None:
    judged(pc.Gaussian(1.0).run, 1e-5, pc.REPLACE_ONE)
    judged(pc.Laplace(3.0) * 4, 1e-3, pc.REPLACE_ONE)
    run = pc.PoissonSampled(pc.RandomizedResponse(1.0), 0.1) * 12  # by the group rule
    found = run.epsilon(delta=1e-4, relation=pc.REPLACE_ONE)
    assert pc.prove(run, epsilon=1.1 * found.upper + 1, delta=1e-4, relation=pc.REPLACE_ONE).verdict == "proved"
    assert pc.prove(run, epsilon=found.lower, delta=1e-4, relation=pc.REPLACE_ONE).verdict == "undecided"


TWICE = [(1.0, 0.1, 0.3), (0.5, 0.01, 2.0), (3.0, 0.5, 0.1), (1.0, 0.9, 4.0)]


@pytest.mark.parametrize(("noise", "rate", "epsilon"), quick(TWICE, 0, 2, 3))
def test_opposite_records_by_nested_quadrature(noise: float, rate: float, epsilon: float) -> None:
    for count, truth in ((1, opposite_once(noise, rate, epsilon)), (2, opposite_twice(noise, rate, epsilon))):
        found = pc.prove(steps(rate, noise, count), epsilon=epsilon, delta=truth, relation=pc.REPLACE_ONE)
        assert found.lower <= truth * (1 + 1e-8), str(found)
        assert found.upper >= truth * (1 - 1e-8), str(found)
        assert found.upper <= found.lower * (1 + 1e-7), str(found)


def test_one_use_of_opposite_records_at_every_epsilon() -> None:
    """Also below 0, where δ(−ε) = 1 − e^{−ε} + e^{−ε}δ(ε); by the root finder of the reference, too."""
    with precision(256), mp.workdps(60):
        for mu, rate in ((0.5, 0.9), (2.0, 0.01)):
            factor = Opposite(1, Fraction(mu), Fraction(rate))
            for epsilon in (0.0, 0.01, 1.0, 5.0):
                there, back = factor.profile(arb(epsilon)), factor.profile(arb(-epsilon))
                assert (back - 1 + arb(-epsilon).exp() * (1 - there)).contains(0)
                truth = reference.one_step_delta(1 / mu, rate, epsilon, "replace")
                assert abs(there - flint.arb(mp.nstr(truth, 40))) < 1e-30
                assert float(truth) == pytest.approx(opposite_once(1 / mu, rate, epsilon), rel=1e-9)


def test_delta_zero_and_the_largest_loss() -> None:
    run = pc.PureDP(epsilon=0.125) * 8
    assert pc.prove(run, epsilon=1.0, delta=0.0).verdict == "proved"
    assert pc.prove(run, epsilon=math.nextafter(1.0, 0.0), delta=0.0).verdict == "refuted"
    assert pc.prove(pc.Gaussian(1e3), epsilon=1e3, delta=0.0).verdict == "refuted"
    assert pc.prove(Run(), epsilon=0.0, delta=0.0).verdict == "proved"
    assert pc.prove(pc.ApproxDP(1.0, 1e-6), epsilon=2.0, delta=0.0).verdict == "refuted"
    assert pc.prove(pc.ZCDP(rho=1.0), epsilon=2.0, delta=0.0).verdict != "proved"


@pytest.mark.parametrize("relation", list(pc.Relation))
@pytest.mark.parametrize("sigma", [0.5, 3.0])
def test_integer_vectors(sigma: float, relation: pc.Relation) -> None:
    """Above the normal pair, which does not occur, below coordinates that do; they are all where norms are below 2."""
    for norm, sure in ((1.5, 1e-9), (2.5, 0.02)):
        mechanism = pc.DiscreteGaussian(sigma, norm, norm=2)
        delta = mechanism.delta(epsilon=4.0, relation=relation)
        assert pc.prove(mechanism, epsilon=4.0, delta=delta.upper * (1 + sure), relation=relation).verdict == "proved"
        below = pc.prove(mechanism, epsilon=4.0, delta=0.99 * delta.lower, relation=relation)
        assert below.lower == pytest.approx(delta.lower, rel=1e-9)
        assert below.verdict == "refuted"


@pytest.mark.parametrize("relation", [pc.ADD_OR_REMOVE_ONE, pc.REPLACE_ONE])
def test_sampled_integer_vectors(relation: pc.Relation) -> None:
    """By the normal pair; nothing from below."""
    mechanism = pc.PoissonSampled(pc.DiscreteGaussian(3.0, 1, 2), 0.1)
    normal = pc.PoissonSampled(pc.GDP(unit_mu(3.0)), 0.1).delta(epsilon=4.0, relation=relation)
    found = pc.prove(mechanism, epsilon=4.0, delta=normal.upper * 1.001, relation=relation)
    assert found.verdict == "proved"
    assert found.lower == 0
    if SLOW:  # a minute
        assert pc.prove(mechanism, epsilon=4.0, delta=0.9 * normal.lower, relation=relation).verdict == "undecided"


def integers(sigma: float, shift: int, count: int, epsilon: float) -> mpf:
    """δ of so many discrete Gaussians moved by ``shift``, all outcomes written out."""
    s2, reach = mpf(sigma) ** 2, math.ceil(sigma * 17) + 2
    one = [mp.exp(-mpf(y * y) / (2 * s2)) for y in range(-reach, reach + 1)]
    law = [mpf(1)]
    for _ in range(count):
        law = [
            sum(law[i - j] * one[j] for j in range(max(0, i - len(law) + 1), min(i, 2 * reach) + 1))
            for i in range(len(law) + 2 * reach)
        ]
    losses = [shift / s2 * (y + mpf(count * shift) / 2) for y in range(-count * reach, count * reach + 1)]
    return sum(p * max(0, -mp.expm1(epsilon - x)) for p, x in zip(law, losses, strict=True)) / sum(law)


@pytest.mark.parametrize(
    ("sigma", "shift", "count", "epsilon"),
    quick([(0.3, 1, 2, 9.0), (2.0, 3, 3, 5.0), (4.5, 1, 3, 0.3), (0.5, 2, 1, 3.0), (6.0, 2, 1, 1.0)], 0, 1, 2),
)
def test_integers_of_one_norm(sigma: float, shift: int, count: int, epsilon: float) -> None:
    run = pc.DiscreteGaussian(sigma / shift, shift) * count
    with mp.workdps(40):
        truth = integers(float(Fraction(sigma / shift) * shift), shift, count, epsilon)
        assert pc.prove(run, epsilon=epsilon, delta=float(truth * (1 + mpf("1e-12")))).verdict == "proved"
        assert pc.prove(run, epsilon=epsilon, delta=float(truth * (1 - mpf("1e-12")))).verdict == "refuted"


@pytest.mark.parametrize(("sigma", "shift"), [(0.4, 1), (0.9, 3), (1.0, 2), (7.0, 2)])
def test_the_transform_of_integers(sigma: float, shift: int) -> None:
    with precision(192), mp.workdps(50):
        factor, s2 = Integers(1, Fraction(sigma) ** 2, shift), mpf(sigma) ** 2
        for c, u in ((0.75, 0.0), (3.5, 1.25), (0.5, 40.0)):
            s, reach = mp.mpc(c, u), math.ceil(sigma * 16 + (c + 2) * shift) + 2
            terms = [
                (mp.exp(-mpf(y * y) / (2 * s2)), shift / s2 * (y + mpf(shift) / 2)) for y in range(-reach, reach + 1)
            ]
            truth = sum(p * mp.exp(s * x) for p, x in terms) / sum(p for p, _ in terms)
            (ratio,) = factor.line(c, u, 60.0).ratios(1, 1)
            found = ratio * factor.log_moment(c).exp()
            gap = found - flint.acb(flint.arb(mp.nstr(truth.real, 45)), flint.arb(mp.nstr(truth.imag, 45)))
            assert gap.contains(0) or abs(gap) < flint.arb(mp.nstr(abs(truth) + mpf("1e-9"), 9)) * 1e-38
            assert found.rel_accuracy_bits() > 100 or abs(truth) < 1e-20


def test_what_is_not_covered_is_named() -> None:
    for mechanism in (
        pc.PoissonSampled(pc.DiscreteGaussian(2.0), 0.1),
        pc.PoissonSampled(pc.Laplace(2.0), 0.1),
        pc.FixedSizeSampled(pc.Laplace(1.0), 5, 100),
        pc.RandomTrials(pc.Gaussian(1.0), mean=2.0, distribution="geometric"),
    ):
        found = pc.prove(mechanism, epsilon=100.0, delta=1e-2)
        assert found.verdict == "undecided"
        assert type(mechanism).__name__ in str(found)
        assert not found


@pytest.mark.parametrize(
    "run",
    [
        pc.Gaussian(1e100) * 3,
        pc.Gaussian(1e-100).run,
        steps(0.5, 1e-100, 3),
        steps(1e-100, 1e100, 3),
        steps(0.5, 1e-3, 3),
        pc.Laplace(1e-100) * 2,
        pc.Laplace(1e100) * 2,
        pc.ExponentialMechanism(1e100) * 2,
        pc.ExponentialMechanism(1e-100) * 2,
        pc.DiscreteGaussian(1e-50) * 2,
        pc.DiscreteGaussian(1e4, 3) * 10**3,
        pc.PureDP(epsilon=1e100) * 2,
        pc.PureDP(epsilon=1e-100) * 2,
        pc.PureDP(epsilon=0.01) * 10**9,
        pc.ZCDP(rho=1e100) * 2,
        steps(1e-9, 1.0, 2) + steps(1e-9, 2.0, 1),
    ],
)
def test_extremes_end_and_do_not_lie(run: Run) -> None:
    assert pc.prove(run, epsilon=1e-3, delta=1e-6).verdict in {"proved", "refuted", "undecided"}
    if run.delta(epsilon=1e-3).lower > 1e-6:
        assert not pc.prove(run, epsilon=1e-3, delta=1e-6)


def test_arguments() -> None:
    run = pc.Gaussian(1.0)
    with pytest.raises(pc.PrivcalcError, match="epsilon = -1"):
        pc.prove(run, epsilon=-1.0, delta=1e-5)
    with pytest.raises(pc.PrivcalcError, match="delta = nan"):
        pc.prove(run, epsilon=1.0, delta=math.nan)
    with pytest.raises(pc.PrivcalcError, match="run = 3"):
        pc.prove(3, epsilon=1.0, delta=1e-5)  # type: ignore[arg-type]
    with pytest.raises(pc.PrivcalcError, match="was given for"):
        pc.prove(pc.PureDP(1.0), epsilon=1.0, delta=1e-5, relation=pc.REPLACE_ONE)


def test_certificate() -> None:
    document = pc.certify(steps(0.01, 1.0, 1_000), delta=1e-5).document
    lines: list[str] = []
    proofs = prove_certificate(document, lines.append)
    assert len(proofs) == 7
    assert all(proofs)
    assert lines
    assert "poisson.md" in proofs[0].pages
    assert "rigorous.md" in proofs[0].pages


# --- the sums without an integral -------------------------------------------------------------------


def enumerated(law: list[tuple[mpf, mpf]], count: int, epsilon: float) -> mpf:
    total = mpf(0)
    for parts in itertools.product(law, repeat=count):
        loss = mp.fsum(x for x, _ in parts)
        total += mp.fprod(p for _, p in parts) * max(mpf(0), -mp.expm1(epsilon - loss))
    return total


def holds(found: Bounds | None, truth: mpf, width: float = 1e-12) -> None:
    assert found is not None
    assert found.low <= truth * (1 + mpf(10) ** -25) + mpf(10) ** -320
    assert found.high >= truth * (1 - mpf(10) ** -25)
    assert found.high - found.low <= width * found.high


@pytest.mark.parametrize("neutral", [0, 1, 3])
@pytest.mark.parametrize("rate", [1.0, 0.25])
@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.3])
def test_atoms_by_enumeration(neutral: int, rate: float, add: bool, epsilon: float) -> None:
    with mp.workdps(40):
        one = 1 / (1 + (neutral + 1) * mp.exp(-1))
        p = [one, neutral * one * mp.exp(-1), one * mp.exp(-1)]
        q = p[::-1]
        mixed = [(1 - rate) * y + rate * x for x, y in zip(p, q, strict=True)]
        top, bottom = (q, mixed) if add else (mixed, q)
        law = [(mp.log(x / y), x) for x, y in zip(top, bottom, strict=True) if x]
        factor = Atoms(5, Fraction(1), neutral, Fraction(rate), add)
        holds(exact([factor], Fraction(epsilon)), enumerated(law, 5, epsilon))


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 0.45, 1.1])
def test_laplace_pieces(count: int, epsilon: float) -> None:
    truth = reference.laplace_composition_delta(2.0, count, epsilon)
    holds(exact([Laplace(count, Fraction(1, 2))], Fraction(epsilon)), truth)


def test_logistic_pieces() -> None:
    """Two uses with different ranges, and one Laplace use, by quadrature over the density e^{t/2} of the losses."""
    with mp.workdps(30):
        a, b, epsilon = mpf(1) / 2, mpf(3) / 4, mpf(1) / 4

        def one(e: mpf) -> mpf:
            if e >= b:
                return mpf(0)
            return (1 - mp.exp((e - b) / 2)) ** 2 / (1 - mp.exp(-b)) if e > -b else -mp.expm1(e)

        points = [-a, epsilon - b, epsilon + b, a]
        inside = sorted(x for x in points if -a <= x <= a)
        truth = mp.quad(lambda t: mp.exp(t / 2) / (4 * mp.sinh(a / 2)) * one(epsilon - t), inside)
        holds(exact([Logistic(1, Fraction(1, 2)), Logistic(1, Fraction(3, 4))], Fraction(1, 4)), truth)
        truth = mp.exp(-a) / 2 * one(epsilon + a) + one(epsilon - a) / 2
        truth += mp.quad(lambda t: mp.exp((t - a) / 2) / 4 * one(epsilon - t), inside)
        holds(exact([Laplace(1, Fraction(1, 2)), Logistic(1, Fraction(3, 4))], Fraction(1, 4)), truth)


def test_atoms_and_a_gaussian() -> None:
    with mp.workdps(40):
        p = 1 / (1 + mp.exp(-1))
        truth = p * reference.gaussian_delta(0.5, -0.5) + (1 - p) * reference.gaussian_delta(0.5, 1.5)
        holds(exact([Atoms(1, Fraction(1)), Normal(1, Fraction(1, 4))], Fraction(1, 2)), truth)


# --- the contour: each error term where it dominates -------------------------------------------------


def spoiled(
    monkeypatch: pytest.MonkeyPatch, factors: list[Factor], epsilon: float, truth: float, width: tuple[float, float]
) -> Bounds:
    """Bounds that contain the truth although something was chosen badly; their relative width shows that it was."""
    with precision(192):
        found = Contour(factors).bounds(arb(epsilon), math.log(truth * 1e-15), lambda line: None)
    monkeypatch.undo()
    assert isinstance(found, Bounds)
    assert found.low <= truth <= found.high
    assert width[0] < (found.high - found.low) / truth < width[1]
    return found


def gaussian_truth(epsilon: float) -> float:
    found = exact([Normal(1, Fraction(1))], Fraction(epsilon))
    assert found is not None
    return found.high


LONG = [(0.01, 1.0, 1_000, 1.5), (0.25, 2.0, 60, 2.0), (1e-3, 30.0, 10**6, 0.125)]


@pytest.mark.parametrize(("direction", "case"), quick(itertools.product(ORDERS, LONG), 1, 3, 8))
def test_twenty_digits(direction: reference.Direction, case: tuple[float, float, int, float]) -> None:
    """The enclosure in balls, before it becomes floats, against the uncertified reference."""
    rate, z, count, epsilon = case
    truth = reference.run_delta([(z, rate, count)], epsilon, direction, digits=25)
    with mp.workdps(40):
        text = mp.nstr(truth, 30)
    factor = factor_of(direction, count, 1 / Fraction(z), Fraction(rate))
    seen: list[balls.Ball] = []
    keep = contour.upper

    def watch(ball: balls.Ball) -> float:
        seen.append(ball)
        return keep(ball)

    with precision(256), pytest.MonkeyPatch.context() as patch:
        patch.setattr(contour, "upper", watch)
        found = Contour([factor]).bounds(arb(epsilon), math.log(float(truth) * 1e-19), lambda line: None)
        assert isinstance(found, Bounds)
        assert abs(seen[-1] - flint.arb(text)) < 1e-18 * flint.arb(text)
    assert found.low <= float(truth) <= found.high
    assert found.high <= found.low * (1 + 1e-15)


def test_truncation(monkeypatch: pytest.MonkeyPatch) -> None:
    for nodes in (2, 3, 5, 8, 12):
        monkeypatch.setattr(Contour, "_size", lambda self, lines, place, small, n=nodes: n)
        spoiled(monkeypatch, [Normal(1, Fraction(1))], 2.0, gaussian_truth(2.0), (1e-15, 1e3))


def test_truncation_with_a_slow_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = exact([Laplace(3, Fraction(1))], Fraction(1))
    assert truth is not None
    monkeypatch.setattr(Contour, "_size", lambda *_: 400)
    spoiled(monkeypatch, [Laplace(3, Fraction(1))], 1.0, truth.high, (1e-4, 1.0))


def test_truncation_blocks_leave_no_gap() -> None:
    """Where |M| does not fall, what is left out sums to at most 1/U."""
    with precision(128):
        found = Contour._tail([(Atoms(1, Fraction(1)).line(1.0, 1.0, 40.0), 1)], arb(8))
        assert 1 / 8 * (1 - 1e-15) <= lower(found) <= upper(found) <= 1 / 8 * (1 + 1e-15)


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_aliases(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    """A step that is too long: the upper end stays above, the lower one below, on either side of the saddle."""
    plan = Contour._place

    def long(self: Contour, epsilon: object, log_small: float) -> Place | None:
        place = plan(self, epsilon, log_small)
        assert place is not None
        return Place(share * place.c, 4 * place.h, place.nats, place.log_scale)

    for epsilon in (0.25, 2.0, 5.0):
        monkeypatch.setattr(Contour, "_place", long)
        spoiled(monkeypatch, [Normal(1, Fraction(1))], epsilon, gaussian_truth(epsilon), (1e-14, 1e6))


SPOILT: dict[str, Callable[[Grid], Grid]] = {
    "left": lambda g: Grid(g.height, g.step, round(0.35 * g.first), g.last),
    "right": lambda g: Grid(g.height, g.step, g.first, round(0.55 * g.last)),
}


@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_quadrature_against_closed_moments(monkeypatch: pytest.MonkeyPatch, how: str, order: str, mu: float) -> None:
    """Ends cut too early: F(3) = Σ C(3, k)(1 − q)^{3−k}q^k e^{(k² − k)μ²/2}; in other orders against a whole grid."""
    factor, q, c = factor_of(order, 1, Fraction(mu), Fraction(3, 10)), mpf("0.3"), 2.0
    q = mpf(3) / 10
    with precision(256), mp.workdps(60):
        if order != "remove":
            truth = factor.log_moment(c)
            assert lower(truth) > upper(truth) * (1 - 1e-15)
        else:
            terms = (
                math.comb(3, k) * (1 - q) ** (3 - k) * q**k * mp.exp((k * k - k) * mpf(mu) ** 2 / 2) for k in range(4)
            )
            truth = arb(float(mp.log(mp.fsum(terms)))) + balls.error(arb(1e-15))
        plan = rotation.Mixture._grid
        monkeypatch.setattr(
            rotation.Mixture, "_grid", lambda self, c, nats, real: SPOILT[how](plan(self, c, nats, real=real))
        )
        for found in (factor.log_moment(c), factor.line(c, 0.5, 60.0).log_peak):
            if found.is_finite():  # or too wide to say anything
                assert found.overlaps(truth)
            assert not found.is_finite() or upper(found) - lower(found) > 1e-12


@pytest.mark.parametrize("step", [1.0, 1.2, 1.4])
def test_quadrature_with_a_long_step(monkeypatch: pytest.MonkeyPatch, step: float) -> None:
    """F(3) again, with steps at which the rule itself is off, and the strip that is best for them."""
    q, c, mu = mpf(3) / 10, 2.0, 0.5
    with precision(256), mp.workdps(60):
        terms = (math.comb(3, k) * (1 - q) ** (3 - k) * q**k * mp.exp((k * k - k) * mpf(mu) ** 2 / 2) for k in range(4))
        truth = mp.log(mp.fsum(terms))
        for real, height in ((True, 2 * math.pi / step), (False, 0.5 * math.pi / step)):
            grid = Grid(min(height, 6.0), step, -40, 40)
            monkeypatch.setattr(Sampled, "_grid", lambda self, c, nats, real, g=grid: g)
            factor = Sampled(1, Fraction(mu), Fraction(3, 10), False)
            if real:
                found = factor.log_moment(c)
            else:
                with pytest.MonkeyPatch.context() as other:
                    other.setattr(rotation, "_Sketch", lambda *_: None)
                    found = factor.line(c, 0.5, 60.0).log_peak
            exactly = flint.arb(mp.nstr(truth, 50))
            assert found.is_finite()
            assert found.overlaps(exactly)
            assert upper(abs(found.mid() - exactly)) > 1e-10  # the rule alone would be wrong


@given(
    x=st.floats(1e-3, 1.0),
    y=st.floats(1e-3, 1e3),
    angle=st.floats(0.01, 3.0),
    c=st.floats(0.1, 30.0),
    share=st.floats(-1.0, 1.0),
)
def test_kappa(x: float, y: float, angle: float, c: float, share: float) -> None:
    """|x + ye^{iα}|^p ≤ κ(x + y)^p, for p = −c and p = c + 1."""
    with precision(128):
        for order in ORDERS:
            factor = factor_of(order, 1, Fraction(1), Fraction(1, 2))
            size = abs(arb(x) + arb(y) * acb(0, share * angle).exp())
            power = arb(c) + 1 if order == "remove" else -arb(c)
            assert not size**power > factor.kappa(arb(angle), c) * (arb(x) + arb(y)) ** power


@pytest.mark.parametrize("order", ORDERS)
def test_nodes_against_certified_integrals(order: str) -> None:
    """M(c + iu) by flint's integration, with the branch cut of the power kept out by the analyticity flag."""
    mu, rate, c, h = Fraction(5, 4), Fraction(1, 100), 3.0, 1.5
    with precision(160):
        line = factor_of(order, 1, mu, rate).line(c, h, 60.0)
        found = [ratio * line.log_peak.exp() for ratio in line.ratios(0, 9)]
        for k in (0, 1, 4, 8):
            s = acb(c, k * h)
            powers = {"remove": (s + 1, acb(0, 0)), "add": (-s, acb(0, 0)), "replace": (s + 1, -s)}[order]

            def integrand(t: Any, analytic: bool, powers: Any = powers) -> Any:
                total = -t * t / 2
                for power, way in zip(powers, (t, -t), strict=True):
                    base = 1 - arb(rate) + arb(rate) * (way * arb(mu) - arb(mu) ** 2 / 2).exp()
                    if analytic and not base.real > 0 and base.imag.contains(0):
                        return acb(math.nan, math.nan)
                    total += power * base.log()
                return total.exp()

            whole = (
                flint.acb.integral(integrand, acb(-30, 0), acb(40, 0), rel_tol=arb(2) ** -80) / (2 * balls.pi()).sqrt()
            )
            gap = abs(whole - found[k])
            assert upper(gap) < 1e-15 * abs(float(whole.real)) + 1e-15


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("mu", "rate"), [(0.5, 0.9), (1.25, 1e-3), (4.0, 0.05)])
def test_decay_bounds_every_later_node(order: str, mu: float, rate: float) -> None:
    with precision(160):
        line = factor_of(order, 10, Fraction(mu), Fraction(rate)).line(1.5, 2.0, 60.0)
        sizes = [lower(abs(ratio)) for ratio in line.ratios(0, 200)]
        for k in (0, 1, 5, 20, 60):
            assert upper(line.decay(2.0 * k)) >= max(sizes[k:])
        assert upper(line.decay(2.0)) < 1 + 1e-12


@pytest.mark.parametrize("theta", [0.01, 0.3, 1.1])
@pytest.mark.parametrize("order", ORDERS)
def test_rotated_bound(theta: float, order: str) -> None:
    """G_θ(u) against M itself: at u = 0 it is no smaller, and nodes that died out are paid for."""
    with precision(160):
        line = factor_of(order, 1, Fraction(1), Fraction(1, 5)).line(2.0, 3.0, 60.0)
        assert isinstance(line, rotation.RotatedLine)
        sizes = [lower(abs(ratio * line.peak)) for ratio in line.ratios(0, 40)]
        for k in (0, 2, 10, 30):
            for nats in (45.0, 6.0, 1.0, -1.0):  # the last ones: a step that is too long
                assert upper(line._rotated(theta, 3.0 * k, nats)) >= max(sizes[k:])
        before = line.ratios(5, 4)
        line.little = line.peak / 50
        for exactly, blurred in zip(before, line.ratios(5, 4), strict=True):
            assert blurred.overlaps(exactly)
            assert upper(abs(blurred.mid() - exactly)) > 1e-12  # something did die out
        line.little = line.slack
        other = line.factor.line(2.0, 60_000.0, 40.0)
        assert line.ratios(20_000, 3)[0].overlaps(other.ratios(1, 1)[0])


def test_leaks() -> None:
    """One (ε, δ) use and another: all coins by hand."""
    run = pc.ApproxDP(1.0, 0.125) + pc.ApproxDP(0.5, 0.25)
    with mp.workdps(40):
        laws = []
        for level in (mpf(1), mpf(1) / 2):
            p = 1 / (1 + mp.exp(-level))
            laws.append([(level, p), (-level, 1 - p)])
        rest = mpf(0)
        for (x, p), (y, r) in itertools.product(*laws):
            rest += p * r * max(mpf(0), -mp.expm1(mpf("0.75") - x - y))
        truth = 1 - mpf(7) / 8 * 3 / 4 * (1 - rest)
    found = pc.prove(run, epsilon=0.75, delta=float(truth) + 1e-15)
    assert found
    assert found.lower <= float(truth) <= found.upper
    assert pc.prove(run, epsilon=0.75, delta=float(truth) - 1e-15).verdict == "refuted"


# --- laws -------------------------------------------------------------------------------------------


@given(
    rate=st.floats(0.001, 0.9),
    z=st.floats(0.5, 20.0),
    count=st.integers(5, 100_000),
    share=st.floats(-1e-5, 1e-5).filter(lambda x: abs(x) > 1e-7),
)
@settings(max_examples=300 if SLOW else 10)
def test_a_verdict_is_on_the_right_side(rate: float, z: float, count: int, share: float) -> None:
    run = steps(rate, z, count)
    found = run.epsilon(delta=1e-6)
    if found.lower > 1e-9 and found.upper <= found.lower * (1 + 1e-8) and found.upper < 1e4:
        verdict = pc.prove(run, epsilon=found.upper * (1 + share), delta=1e-6).verdict
        assert verdict == ("proved" if share > 0 else "refuted")


def random_run(seed: int) -> tuple[Run, float]:
    draw = random.Random(seed)
    parts: list[Run] = []
    for _ in range(draw.randint(1, 3)):
        rate, z = 10 ** draw.uniform(-3.5, -0.5), 10 ** draw.uniform(-0.25, 1.5)
        parts.append(steps(rate, z, int(10 ** draw.uniform(2, 6))))
    extra: list[Run] = [
        pc.Gaussian(10 ** draw.uniform(0.3, 1.0)) * draw.randint(1, 9),
        pc.Laplace(10 ** draw.uniform(0.3, 1.0)) * draw.randint(1, 9),
        pc.RandomizedResponse(draw.uniform(0.05, 0.5), draw.randint(2, 5)) * draw.randint(1, 9),
        pc.ApproxDP(draw.uniform(0.05, 0.5), 1e-15) * draw.randint(1, 9),
    ]
    parts += draw.sample(extra, draw.randint(0, 2))
    return Run.of(parts), 10 ** draw.uniform(-9, -4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_random_runs(seed: int) -> None:
    judged(*random_run(seed))


@pytest.mark.parametrize(
    ("step", "count"),
    [
        (pc.UserSampled(pc.Gaussian(2.0), 0.01, 2), 100),
        pytest.param(pc.UserSampled(pc.Gaussian(1.0), 0.1, 4, counted=2), 10, marks=pytest.mark.slow),
        pytest.param(pc.UserSampled(pc.Gaussian(1.0), 0.01, 8), 1000, marks=pytest.mark.slow),
    ],
    ids=["two records", "two of four counted", "eight records"],
)
def test_persons(step: pc.UserSampled, count: int) -> None:
    """The engine's ends, by another route; and below the lower one the claim is refuted."""
    epsilon = (step * count).epsilon(delta=1e-5)
    assert pc.prove(step * count, epsilon=epsilon.upper, delta=1e-5).verdict == "proved"
    assert pc.prove(step * count, epsilon=epsilon.lower * (1 - 1e-5), delta=1e-5).verdict == "refuted"


@pytest.mark.parametrize(
    "epoch",
    [
        pc.RandomAllocation(pc.Gaussian(1.0), steps=100),
        pytest.param(pc.RandomAllocation(pc.Gaussian(1.4), steps=1000, epochs=2), marks=pytest.mark.slow),
        pytest.param(pc.RandomAllocation(pc.GDP(1.0), steps=10**6), marks=pytest.mark.slow),
    ],
    ids=["a hundred steps", "two passes", "a million steps"],
)
def test_allocation(epoch: pc.RandomAllocation) -> None:
    """The engine's ends, by another route; and below the lower one the claim is refuted."""
    epsilon = epoch.epsilon(delta=1e-5)
    assert pc.prove(epoch, epsilon=epsilon.upper, delta=1e-5).verdict == "proved"
    assert pc.prove(epoch, epsilon=epsilon.lower * (1 - 1e-8), delta=1e-5).verdict == "refuted"


@functools.cache
def two_slots(mu: float, epsilon: float, *, add: bool) -> mpf:
    """δ of an allocation to two steps, by quadrature over one of them."""

    def call(k: mpf) -> mpf:
        """E(r − k)_+."""
        if k <= 0:
            return 1 - k
        d = (mp.log(k) + mpf(mu) ** 2 / 2) / mu
        return mp.ncdf(mu - d) - k * mp.ncdf(-d)

    with mp.workdps(25):
        level = 2 * mp.exp(-epsilon if add else epsilon)
        edge = (mp.log(level) + mpf(mu) ** 2 / 2) / mu
        points = [
            -14,
            -4,
            0,
            *(edge - mpf(2) ** -j for j in range(0, 40, 3) if edge - mpf(2) ** -j > 0),
            edge,
            edge + 2,
            edge + 14,
        ]
        over = mp.quad(lambda x: mp.npdf(x) * call(level - mp.exp(mu * x - mpf(mu) ** 2 / 2)), sorted(points))
        return mp.exp(epsilon) / 2 * (over + level - 2) if add else over / 2


@pytest.mark.parametrize(("mu", "epsilon"), quick([(0.5, 0.7), (0.5, 0.0), (1.0, 1.0)], 0))
@pytest.mark.parametrize("add", [False, True])
def test_two_slots_by_quadrature(mu: float, epsilon: float, add: bool) -> None:
    found = allocated([Allocated(1, Fraction(mu) ** 2, 2, add)], Fraction(epsilon), -30.0, lambda _: None)
    truth = two_slots(mu, epsilon, add=add)
    assert isinstance(found, Bounds)
    assert found.high - found.low <= 1e-11
    assert found.low <= truth * (1 + mpf(10) ** -15)
    assert found.high >= truth * (1 - mpf(10) ** -15)


@pytest.mark.parametrize(("noise", "steps", "epsilon"), quick([(10.0, 2, 0.2), (20.0, 10, 0.05)], 1))
def test_little_shift_in_few_steps(noise: float, steps: int, epsilon: float) -> None:
    """Far out the bound of |φ| rests on φ where that is less than its error."""
    run = pc.RandomAllocation(pc.Gaussian(noise), steps)
    truth = run.delta(epsilon=epsilon)
    assert pc.prove(run, epsilon=epsilon, delta=1.01 * truth.upper).verdict == "proved"
    assert pc.prove(run, epsilon=epsilon, delta=0.99 * truth.lower).verdict == "refuted"


@pytest.mark.parametrize("nats", quick([9.0, 3.0, 40.0], 1))
def test_the_transform_of_a_lognormal(nats: float) -> None:
    """By quadrature, at a precision where the rule's own error shows; and its decay."""
    mu, c, h = 1.0, 0.25, 0.5
    with precision(128):
        transform = Transform(Fraction(1), nats)
        found = transform.along(c, h, 40)
        bounds = [float(transform.decay(c, u).mid()) for u in (0.5, 4.0, 16.0)]
    slack = float(transform.slack.mid())
    assert slack <= 30 * math.exp(-nats)
    sizes = []
    for k in (0, 1, 2, 9, 33):
        s = mp.mpc(c, k * h)
        turn = mp.mpc(0, -1 if k else 0)
        truth = mp.quad(
            lambda x, s=s, turn=turn: mp.npdf(x + turn) * mp.exp(-s * mp.exp(mu * (x + turn) - 0.5)),
            [-9, -4, -2, 0, 2, 4, 9],
        )
        sizes.append((k * h, abs(truth)))
        assert abs(mp.mpc(float(found[k].real.mid()), float(found[k].imag.mid())) - truth) <= slack + 1e-13
    for u, bound in zip((0.5, 4.0, 16.0), bounds, strict=True):
        assert all(size <= bound + 1e-13 for at, size in sizes if at >= u)


def test_too_short_a_sum_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that are left out, and other periods, count as errors: wider, and around the truth."""
    one, truth = Allocated(1, Fraction(1, 4), 2, False), two_slots(0.5, 0.7, add=False)
    right = allocated([one], Fraction(0.7), -30.0, lambda _: None)
    monkeypatch.setattr(Sketch, "best", lambda _, c, u: (-1.5 * u, 0.9))  # as if |φ| fell faster
    short = allocated([one], Fraction(0.7), -30.0, lambda _: None)
    assert isinstance(right, Bounds)
    assert isinstance(short, Bounds)
    assert short.high - short.low > 100 * (right.high - right.low)
    assert short.low <= truth <= short.high


@pytest.mark.parametrize("noise", [1e-100, 0.01, 1e100])
def test_allocations_that_are_not_proved(noise: float) -> None:
    found = pc.prove(pc.RandomAllocation(pc.Gaussian(noise), steps=10), epsilon=0.5, delta=1e-6)
    assert found.verdict == ("proved" if noise > 1 else "undecided")
    assert (
        pc.prove(pc.RandomAllocation(pc.Gaussian(1.0), steps=10, choices=2), epsilon=0.5, delta=1e-6).verdict
        == "undecided"
    )
