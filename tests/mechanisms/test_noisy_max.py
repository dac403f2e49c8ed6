"""Noisy max and permute-and-flip against enumeration of all coins, quadrature, and the random draws themselves."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from cases import SLOW
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf  # type: ignore[import-untyped]
from scipy import stats
from scipy.integrate import quad

import privcalc as pc
from privcalc.noise import selection
from privcalc.noise.bits import Bits, SeededBits, Uniform
from privcalc.serial import mechanism_from_json, mechanism_to_json

ALARM = 1e-6 / 10
ADD, SWAP, NULL = pc.ADD_OR_REMOVE_ONE, pc.REPLACE_ONE, pc.ZERO_OUT
Law = list[mpf]


def flipped(scores: list[float]) -> Law:
    """Permute-and-flip, by enumeration of which of the others show heads."""
    coins = [mp.exp(mpf(s) - mpf(max(scores))) for s in scores]
    found = []
    for i, mine in enumerate(coins):
        others, total = coins[:i] + coins[i + 1 :], mpf(0)
        for heads in itertools.product([0, 1], repeat=len(others)):
            weight = mp.fprod(c if h else 1 - c for c, h in zip(others, heads, strict=True))
            total += weight / (1 + sum(heads))
        found.append(mine * total)
    return found


def noisy(scores: list[float], kind: str) -> list[float]:
    """The law of the largest, by quadrature over its value."""
    law = {"laplace": stats.laplace, "exponential": stats.expon, "gumbel": stats.gumbel_r}[kind]

    def winner(x: float, i: int) -> float:
        return float(law.pdf(x - scores[i]) * np.prod([law.cdf(x - s) for j, s in enumerate(scores) if j != i]))

    ends = sorted({min(scores) - 40, *scores, max(scores) + 45})
    return [sum(quad(winner, low, high, args=(i,), epsabs=1e-13)[0] for low, high in itertools.pairwise(ends))
            for i in range(len(scores))]  # fmt: skip


def worst(p: list, q: list, epsilon: float):
    return sum(max(x - mp.exp(mpf(epsilon)) * y, mpf(0)) for x, y in zip(p, q, strict=True))


SCORES = st.lists(st.floats(-4, 4), min_size=2, max_size=4)


@given(SCORES, st.data(), st.floats(0, 3))
@example([-0.5, 0.0], None, 0.0)
@settings(max_examples=30 if SLOW else 12, deadline=None)
def test_no_neighbours_of_permute_and_flip_are_worse(scores, data, epsilon):
    """Monotone and general moves, both orders; the first moves alone are the worst of two candidates."""
    level = 1.0
    for monotone in (True, False):
        low = 0.0 if monotone else -level
        moves = [level, *[low] * (len(scores) - 1)]
        if data is not None:
            moves = [data.draw(st.floats(low, level)) for _ in scores]
        p, q = flipped([s + m for s, m in zip(scores, moves, strict=True)]), flipped(scores)
        assert abs(mp.fsum(p) - 1) < 1e-12
        bound = pc.PermuteAndFlip(level, monotone=monotone).delta(epsilon=epsilon).upper
        assert max(worst(p, q, epsilon), worst(q, p, epsilon)) <= bound * (1 + 1e-12) + 1e-14


@pytest.mark.parametrize("a", [1e-6, 0.3, 1.0, 5.0])
@pytest.mark.parametrize("relation", [ADD, SWAP, NULL])
def test_two_candidates_attain_it(a, relation):
    mechanism = pc.PermuteAndFlip(a / (2 if relation is SWAP else 1))
    for share in (0.0, 0.3, 0.7):
        with mp.workdps(40):
            lead = (mpf(share) - 1) * mpf(a) / 2
            p, q = flipped([lead + mpf(a), 0]), flipped([lead, 0])
            exact = max(worst(p, q, share * a), worst(q, p, share * a))
        found = mechanism.delta(epsilon=share * a, relation=relation)
        assert found.lower * (1 - 1e-9) <= exact <= found.upper * (1 + 1e-9)
        assert found.upper - found.lower <= 1e-12 * found.upper


@given(SCORES, st.data(), st.floats(0, 1.5), st.sampled_from(["laplace", "gumbel", "exponential"]))
@settings(max_examples=80 if SLOW else 4, deadline=None)
def test_no_neighbours_of_noisy_max_are_worse(scores, data, epsilon, kind):
    moves = [data.draw(st.floats(0, 1)) for _ in scores]
    p, q = noisy([s + m for s, m in zip(scores, moves, strict=True)], kind), noisy(scores, kind)
    assert sum(p) == pytest.approx(1, abs=1e-9)
    bound = pc.NoisyMax(1.0, noise=kind).delta(epsilon=epsilon).upper
    assert max(worst(p, q, epsilon), worst(q, p, epsilon)) <= bound + 1e-9


def against(n: int, t: float) -> tuple[float, float]:
    """With Laplace noise: the probability that one candidate, ahead by t, wins against n; and its slope."""
    law, points = stats.laplace, [-40.0, 0.0, t, 60.0]
    found = []
    for slope in (False, True):

        def beyond(x, slope=slope):
            mine = law.pdf(x - t) if slope else law.sf(x - t)
            return mine * n * law.pdf(x) * law.cdf(x) ** (n - 1)

        found.append(sum(quad(beyond, low, high, epsabs=1e-12)[0] for low, high in itertools.pairwise(sorted(points))))
    return found[0], found[1]


def test_laplace_noise_has_no_bounded_range():
    """The odds move faster than those of a range do: one candidate against five."""
    wins, slope = against(5, 0.0)
    assert slope / (wins * (1 - wins)) > 1.16
    wins, slope = against(1, 0.0)
    assert slope / (wins * (1 - wins)) == pytest.approx(1, rel=1e-8)
    reached = against(5, 0.2)[0] - math.exp(0.27) * against(5, -0.2)[0]
    mechanism = pc.NoisyMax(0.4, noise="laplace")
    assert pc.ExponentialMechanism(0.4).delta(epsilon=0.27).upper < reached < mechanism.delta(epsilon=0.27).upper


def test_a_fourth_of_rho_is_too_little():
    """OpenDP's issue 2911: exponential noise, scores (0, 0) and (1, −1), scale 1, charged ρ = ε²/8 with ε = 2."""
    p, q = flipped([1, -1]), flipped([0, 0])
    for order in (1.01, 2.0):
        divergence = mp.log(mp.fsum(x**order * y ** (1 - order) for x, y in zip(p, q, strict=True))) / (order - 1)
        ours = pc.PermuteAndFlip(1.0, monotone=False).rdp([order])[0]
        assert divergence <= ours
    small = mpf("0.01")  # where the factor is four
    p, q = flipped([small / 2, 0]), flipped([-small / 2, 0])
    divergence = mp.fsum(x * mp.log(x / y) for x, y in zip(p, q, strict=True))
    assert divergence > 3.9 * small**2 / 8
    rho = pc.PermuteAndFlip(float(small)).zcdp()[0]
    assert divergence <= rho <= 1.02 * divergence
    assert pc.NoisyMax(float(small), noise="gumbel").zcdp()[0] == pytest.approx(float(small**2 / 8), rel=1e-12)


def test_kinds_of_noise_are_mechanisms_that_exist():
    for relation in pc.Relation:
        for monotone in (True, False):
            one = pc.NoisyMax(0.7, noise="exponential", monotone=monotone).pairs(relation)
            assert one == pc.PermuteAndFlip(0.7, monotone=monotone).pairs(relation)
            other = pc.NoisyMax(0.7, noise="gumbel", monotone=monotone).pairs(relation)
            assert other == pc.ExponentialMechanism(0.7, monotone=monotone).pairs(relation)
    assert pc.NoisyMax(0.7, noise="laplace").opposites(0.1) == pc.ExponentialMechanism(0.7).opposites(0.1)


@pytest.mark.parametrize("relation", list(pc.Relation))
@pytest.mark.parametrize("count", [3, pytest.param(30, marks=pytest.mark.slow)])
def test_several_uses_are_between_what_occurs_and_laplace(relation, count):
    mechanism, level = pc.PermuteAndFlip(0.2), 0.4 if relation is SWAP else 0.2
    found = (mechanism * count).epsilon(delta=1e-3, relation=relation)
    noise = (pc.Laplace(1 / level) * count).epsilon(delta=1e-3)
    assert found.upper == pytest.approx(noise.upper, rel=1e-6)
    assert 0.7 * found.upper < found.lower <= found.upper
    sampled = pc.PoissonSampled(mechanism, 0.1) * count
    assert (
        0 < sampled.epsilon(delta=1e-4, relation=relation).lower <= sampled.epsilon(delta=1e-4, relation=relation).upper
    )


def test_a_member_is_no_more_than_occurs():
    """Both losses, in 50 digits, from 1e-90 to 1e3."""
    with mp.workdps(400):
        for a in (1e-90, 1e-9, 0.3, 40.0, 1e3):
            for forward, _ in pc.PermuteAndFlip(a).pairs(ADD).also:
                known = False
                for share in (0.6, 0.7, 0.8, 0.9, 1.0):
                    x, y = mpf(share * a), mpf((1 - share) * a)
                    exact = x + mp.log(2 - mp.exp(-y)), y + mp.log(2 - mp.exp(-x))
                    known |= all(
                        e * (1 - mpf("1e-14")) <= loss <= e
                        for e, loss in zip(exact, (forward.up, forward.down), strict=True)
                    )
                assert known


# --- drawing --------------------------------------------------------------------------------------


def test_the_laws_that_are_drawn():
    bits, scores, size = SeededBits(5), np.array([0.25, 1.0, -2.0, 0.875]), 6000 if SLOW else 2000
    for draw, law in (
        (selection.permute_and_flip, [float(x) for x in flipped((2 * scores).tolist())]),
        (selection.laplace_max, noisy((2 * scores).tolist(), "laplace")),
    ):
        found = Counter(draw(bits, scores, Fraction(2)) for _ in range(size))
        assert stats.chisquare([found[i] for i in range(4)], size * np.array(law) / sum(law)).pvalue > ALARM
    numbers = [selection.exponential(bits) for _ in range(size)]
    values = [whole + float(place.low) for whole, place in numbers]
    assert stats.kstest(values, "expon").pvalue > ALARM


class Words(Bits):
    """Given words, and no others."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def words(self, size: int):
        found, self.left = self.left[:size], self.left[size:]
        return np.array(found, dtype=np.uint64)


@given(st.floats(0, 800), st.booleans())
@example(0.0, False)
@example(5e-324, True)
@settings(deadline=None)
def test_coins_next_to_their_probability(q, below):
    """A uniform number 2⁻¹²⁸⁰ from e^{−q}, in 500 digits."""
    with mp.workdps(500):
        at = int(mp.floor(mp.exp(-mpf(q)) * mpf(2) ** 1280)) + (-1 if below else 1)
    if at >= 2**1280:
        return
    words = [(at >> (64 * i)) & (2**64 - 1) for i in range(19, -1, -1)]
    uniform = Uniform(Words(*words[1:], *[0] * 60), words[0], 64)
    assert selection._heads(uniform, Fraction(q)) == (below or q == 0)


def test_doubles_decide_only_what_they_can_tell(monkeypatch):
    """The same winner with integers alone."""
    rng = np.random.default_rng(1)
    for seed in range(60):
        scores, factor = rng.normal(size=9) * 10.0 ** rng.integers(-2, 3), Fraction(float(10.0 ** rng.integers(-2, 3)))
        found = selection.permute_and_flip(SeededBits(seed), scores, factor)
        monkeypatch.setattr(selection, "ERROR", 1e9)
        assert selection.permute_and_flip(SeededBits(seed), scores, factor) == found
        monkeypatch.undo()


def test_candidates_far_behind_and_overflow():
    for scores in ([1e300, -1e300], [0.0, -1e6], [3.0]):
        assert selection.permute_and_flip(SeededBits(0), np.array(scores), Fraction(1e10)) == 0
        assert selection.laplace_max(SeededBits(0), np.array(scores), Fraction(1e10)) == 0
    equal = Counter(selection.permute_and_flip(SeededBits(s), np.zeros(3), Fraction(1)) for s in range(900))
    assert min(equal.values()) > 200


# --- the ledger -----------------------------------------------------------------------------------

EACH = [
    pc.PermuteAndFlip(1.0), *(pc.NoisyMax(1.0, noise=kind) for kind in ("exponential", "gumbel", "laplace")),
]  # fmt: skip


@pytest.mark.parametrize(
    "mechanism", [EACH[2], *(pytest.param(each, marks=pytest.mark.slow) for each in (*EACH[:2], EACH[3]))], ids=str
)
def test_a_ledger_draws_and_charges(mechanism):
    general = mechanism_from_json(mechanism_to_json(mechanism) | {"monotone": False})
    ledger = pc.Ledger(None, plan=mechanism * 5 + general, seed=1)
    scores = np.array([0.0, 50.0, 1.0])
    assert ledger.select(scores, mechanism, sensitivity=1.0, monotone=True) == 1
    assert ledger.select(np.tile(scores, (2, 1)), mechanism, sensitivity=1.0, monotone=True).tolist() == [1, 1]
    assert (
        ledger.select(np.tile(scores, (9, 1)), mechanism, sensitivity=1.0, monotone=True, joint=True).tolist()
        == [1] * 9
    )
    assert ledger.select(scores, mechanism, sensitivity=1.0) == 1
    assert ledger.spent == mechanism * 4 + general
    with pytest.raises(pc.BudgetExceeded, match="monotone=True"):
        ledger.select(scores, mechanism, sensitivity=1.0)
    ledger.close()
    certificate = pc.certify(ledger, delta=1e-6)
    assert certificate.guarantee.epsilon.upper == (mechanism * 5 + general).epsilon(delta=1e-6).upper
    needed = {entry["name"] for entry in certificate.document["assumptions"]["needed"]}
    assert "candidates" in needed


def test_a_joint_choice_costs_what_one_does():
    """Two rows that move by ½ each, against the bound of one that moves by 1."""
    for epsilon in (0.0, 0.3, 0.9):
        row = [flipped([lead / 2 - 0.25, 0]) for lead in (0, 1)]
        p, q = ([x * y for x in law for y in law] for law in row[::-1])
        assert worst(p, q, epsilon) <= pc.PermuteAndFlip(1.0).delta(epsilon=epsilon).upper


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: pc.PermuteAndFlip(0.0), "epsilon = 0.0: must be a finite number > 0"),
        (lambda: pc.PermuteAndFlip(math.nan), "epsilon = nan"),
        (lambda: pc.PermuteAndFlip(1.0, monotone=1), "monotone = 1: must be True or False"),
        (lambda: pc.NoisyMax(1.0, noise="gaussian"),
         "noise = 'gaussian': must be 'exponential', 'gumbel' or 'laplace'"),
        (lambda: pc.NoisyMax(-1.0, noise="gumbel"), "epsilon = -1.0"),
        (lambda: pc.Ledger(None, plan=EACH[0]).select([1.0], pc.Gaussian(1.0), sensitivity=1.0),
         "PermuteAndFlip or NoisyMax"),
    ],
)  # fmt: skip
def test_what_is_refused(wrong, words):
    with pytest.raises(pc.PrivcalcError, match=words):
        wrong()
