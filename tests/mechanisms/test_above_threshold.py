"""The sparse vector technique against quadrature of the laws of all replies, and what a ledger's gate replies."""

from __future__ import annotations

import copy
import itertools
import math
import os
import pickle

import numpy as np
import pytest
from cases import SLOW, quick
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf  # type: ignore[import-untyped]
from scipy import stats

import privcalc as pc
from privcalc.mechanisms import above_threshold
from privcalc.serial import mechanism_from_json, mechanism_to_json

ADD, SWAP, NULL = pc.ADD_OR_REMOVE_ONE, pc.REPLACE_ONE, pc.ZERO_OUT
ALARM = 1e-6 / 10


def laws(values: list[float], threshold_scale: float, query_scale: float, answers: int, *, quiet: bool = False) -> dict:
    """The probability of each sequence of replies to questions with threshold 0: a fine sum over the noise on it."""
    half = 30 * threshold_scale
    kinks = np.array([0.0, *values])
    x = np.unique(np.concatenate([np.linspace(-half, half, 40_001), kinks]))
    density = stats.laplace.pdf(x, scale=threshold_scale)
    below = [(stats.laplace.cdf(x - v, scale=query_scale) if not quiet else (x > v).astype(float)) for v in values]
    found = {}
    for replies in itertools.product([False, True], repeat=len(values)):
        ends = [i for i in range(len(replies)) if sum(replies[: i + 1]) == answers]
        used = replies[: ends[0] + 1] if ends else replies
        factors = [1 - below[i] if above else below[i] for i, above in enumerate(used)]
        found[used] = float(np.trapezoid(density * np.prod(factors, axis=0), x))
    return found


def worst(p: dict, q: dict, epsilon: float) -> float:
    return sum(max(p[r] - math.exp(epsilon) * q[r], 0.0) for r in p)


VALUES = st.lists(st.floats(-3, 3), min_size=1, max_size=4)


@given(
    VALUES, st.data(), st.sampled_from([0.7, 1.5, 3.0]), st.sampled_from([0.7, 2.0]), st.integers(1, 2), st.booleans()
)
@settings(max_examples=25 if SLOW else 12, deadline=None)
def test_no_neighbours_are_worse(values, data, one, two, answers, monotone):
    moves = [data.draw(st.sampled_from([0.0, 1.0]) if monotone else st.sampled_from([-1.0, 1.0])) for _ in values]
    p = laws([v + m for v, m in zip(values, moves, strict=True)], one, two, answers)
    q = laws(values, one, two, answers)
    assert sum(p.values()) == pytest.approx(1, abs=1e-5)
    gate = pc.AboveThreshold(threshold_scale=one, query_scale=two, answers=answers, monotone=monotone)
    forward, backward = gate.pairs(ADD).upper()
    top = gate.epsilon(delta=0.0).upper
    for epsilon in (0.0, 0.3 * top, 0.8 * top, top):
        for (x, y), pair in (((p, q), forward), ((q, p), backward)):
            assert worst(x, y, epsilon) <= pair.bounds(epsilon)[1] + 1e-5
    losses = [math.log(p[r] / q[r]) for r in p if p[r] > 1e-6]
    assert -backward.max_loss - 1e-4 <= min(losses)
    assert max(losses) <= forward.max_loss + 1e-4


@pytest.mark.parametrize("monotone", [True, False])
@pytest.mark.parametrize("answers", [1, 3])
def test_pure_epsilon(monotone, answers):
    """In all relations, as Lyu, Su and Li print it."""
    a, b = 0.4, 0.15
    gate = pc.AboveThreshold(threshold_scale=1 / a, query_scale=1 / b, answers=answers, monotone=monotone)
    one, two = a + answers * b, a + 2 * answers * b
    for relation, exact in (
        (ADD, one if monotone else two),
        (NULL, one if monotone else two),
        (SWAP, two if monotone else 2 * two),
    ):
        assert gate.epsilon(delta=0.0, relation=relation).upper == pytest.approx(exact, rel=1e-13)
    again = pc.AboveThreshold.of(epsilon=one if monotone else two, answers=answers, monotone=monotone)
    assert again.epsilon(delta=0.0).upper == pytest.approx(one if monotone else two, rel=1e-13)
    # no other split has less variance
    n = answers * (1 if monotone else 2)
    least = again.threshold_scale**2 + again.query_scale**2
    level = 1 / again.threshold_scale + n / again.query_scale
    for share in np.linspace(0.02, 0.98, 97):
        assert least <= (1 / (share * level)) ** 2 + (n / ((1 - share) * level)) ** 2 + 1e-9


@pytest.mark.parametrize(
    ("one", "two"),
    [
        *((1.0, 3.0), (3.0, 1.0), (2.0, 2.0), (2.0, 2.0001), (2.0, 2.001), (1e-3, 1.0), (50.0, 1e4)),
        *(
            (0.016, 0.0159968),
            (0.02, 0.020004),
            (0.0139, 0.004633333333333333),
            (1e-3, 1e-3),
            (1e-100, 1e100),
            (1e100, 1e-100),
        ),
    ],
)
def test_the_lower_end_is_one_question(one, two):
    """The difference of two Laplace numbers, in 500 digits: of strong privacy, weak privacy, and both at once."""
    with mp.workdps(500):
        b, d, y = mpf(one), mpf(two), mpf("0.5")

        def between(b, d):
            if b == d:
                return (2 - (2 + y / b) * mp.exp(-y / b)) / 4
            return (b**2 * (1 - mp.exp(-y / b)) - d**2 * (1 - mp.exp(-y / d))) / (2 * (b**2 - d**2))

        rest = 1 - 2 * between(b, d)
        exact = mp.log((2 - rest) / rest)
    pair = pc.AboveThreshold(threshold_scale=one, query_scale=two).pairs(ADD).lower()[0]
    assert exact * (1 - mpf("1e-4")) <= pair.up <= exact
    if abs(one - two) > 1e-3 or one == two:
        assert pair.up >= exact * (1 - mpf("1e-10"))
    if exact > 10 or max(one, two) > 1e4:
        return
    law = laws([0.5], one, two, 1), laws([-0.5], one, two, 1)
    assert law[0][True,] == pytest.approx(0.5 + math.tanh(float(exact) / 2) / 2, abs=1e-4)


def test_a_broken_variant_breaks_the_claim():
    """Without noise on questions (Lyu, Su, Li 2017, algorithm 5) some replies have probability 0 for a neighbour."""
    p, q = (laws(values, 2.0, 4.0, 2, quiet=True) for values in ([0.0, 1.0], [1.0, 0.0]))
    claim = pc.AboveThreshold(threshold_scale=2.0, query_scale=4.0, answers=2)
    assert p[False, True] > 0.15
    assert q[False, True] < 1e-3
    assert worst(p, q, claim.epsilon(delta=0.0).upper) > 0.15
    p, q = (laws(values, 2.0, 4.0, 2) for values in ([0.0, 1.0], [1.0, 0.0]))
    assert worst(p, q, claim.epsilon(delta=0.0).upper) < 1e-6


def both_streams(log_tail, scale, s, a, b, move):
    """All of m far questions below, one of k others above: with ρ ~ N(0, 1), without the record, and with it."""
    x = np.linspace(-12, 12, 24_001)
    density = stats.norm.pdf(x)
    log_m, log_k = -log_tail((s + a) / scale), -log_tail((s + b) / scale)
    found = []
    for moved in (0.0, 1.0):
        quiet = -np.exp(np.minimum(log_m + log_tail((x + s - moved) / scale), 700))
        heard = -np.exp(np.minimum(log_k + log_tail((x + s + move * moved) / scale), 700))
        found.append(float(np.trapezoid(density * np.exp(quiet) * -np.expm1(heard), x)))
    return (*found, math.exp(log_m) + math.exp(log_k))


def test_normal_noise_has_no_guarantee():
    """However large ε, δ nears what the threshold's noise has within Δ or 2Δ; with Laplace questions it does not."""
    p, q, questions = both_streams(stats.norm.logsf, 1.0, 3.0, -0.75, 0.896, 1.0)
    assert questions < 20_600
    assert p - math.e * q > 0.47
    for move, reach in ((0.0, 2 * stats.norm.cdf(0.5) - 1), (1.0, 2 * stats.norm.cdf(1.0) - 1)):
        width, gaps = 1 + move, []
        for s in (10.0, 20.0, 30.0):
            p, q, _ = both_streams(stats.norm.logsf, 1.0, s, 0.3 - width / 2, width / 2 - 0.3, move)
            assert p - math.exp(8.0) * q > 0
            assert p < reach
            p, q, _ = both_streams(stats.norm.logsf, 1.0, s, 0.1 - width / 2, width / 2 - 0.1, move)
            gaps.append(reach - (p - math.e * q))
        assert gaps[2] < gaps[1] < gaps[0]
        assert gaps[2] < 0.13
    for a, epsilon in itertools.product((-1.5, -0.7, 0.0, 0.7), (2.0, 2.5, 3.0)):
        p, q, _ = both_streams(stats.laplace.logsf, 1.0, 30.0, a, a + 1.5, 1.0)
        assert (
            p - math.exp(epsilon) * q <= pc.Gaussian(1.0).delta(epsilon=epsilon - 2).upper
        )  # the normal threshold alone


@pytest.mark.parametrize("relation", list(pc.Relation))
def test_several_gates_and_sampling(relation):
    gate = pc.AboveThreshold.of(epsilon=0.2, monotone=True)
    found = (gate * 20).epsilon(delta=1e-5, relation=relation)
    assert 0 < found.lower <= found.upper <= 20 * gate.epsilon(delta=0.0, relation=relation).upper * 0.9
    sampled = pc.PoissonSampled(gate, 0.1).epsilon(delta=1e-6, relation=relation)
    assert 0 < sampled.lower <= sampled.upper <= gate.epsilon(delta=1e-6, relation=relation).upper
    assert ("sparse vector" if relation is not SWAP else "group rule") in found.route


# --- the ledger -----------------------------------------------------------------------------------


def test_what_a_gate_replies():
    """The law of replies to three questions, thresholds that differ, at a sensitivity of 2."""
    step, times = pc.AboveThreshold(threshold_scale=1.5, query_scale=2.0, answers=2), 3000 if SLOW else 1000
    ledger = pc.Ledger(None, plan=step * times, seed=8)
    values, found = [1.0, -2.0, 0.5], {}
    for _ in range(times):
        gate = ledger.above(step, sensitivity=2.0)
        replies = []
        while gate.left and len(replies) < 3:
            replies.append(gate.ask(values[len(replies)] + 7, threshold=7))
        found[tuple(replies)] = found.get(tuple(replies), 0) + 1
    law = laws(values, 3.0, 4.0, 2)
    total = sum(law.values())
    assert set(found) <= set(law)
    assert stats.chisquare([found.get(r, 0) for r in law], [times * p / total for p in law.values()]).pvalue > ALARM
    assert ledger.spent == step * times


@pytest.mark.parametrize("beside", quick([0, 2], 0))
def test_a_gate_is_charged_once_and_closes(beside):
    step = pc.AboveThreshold.of(epsilon=1.0, answers=2, monotone=True)
    with pc.Ledger(None, plan=sum([pc.Laplace(3.0)] * beside, step.run)) as ledger:
        gate = ledger.above(step, sensitivity=1.0, label="alarms")
        for value, expected in ((-1e6, False), (1e6, True), (-1e300, False), (1e300, True)):
            assert gate.ask(value, threshold=10) is expected
        assert gate.left == 0
        with pytest.raises(pc.PrivcalcError, match="all its answers were given"):
            gate.ask(0.0, threshold=0)
        assert ledger.spent == step.run
        with pytest.raises(pc.BudgetExceeded):
            ledger.above(step, sensitivity=1.0)
    certificate = pc.certify(ledger, delta=1e-6)
    assert certificate.document["guarantee"]["epsilon"]["upper"] <= 1 + beside / 3
    assert "sparse_vector.md" in certificate.document["proofs"]
    assert mechanism_from_json(mechanism_to_json(step)) == step
    assert eval(repr(step), dict(vars(pc))) == step


@pytest.mark.parametrize("scale", [0.02, 0.0135, 0.012, 1e-3, 1e-100])
@pytest.mark.parametrize("ratio", [1.0, 1.5])
def test_hardly_any_noise(scale, ratio):
    """The lower end is below one question's loss, 2·atanh(2P(0 < X < ½)), to 60 digits; it was an error below 0.013."""
    step = pc.AboveThreshold(threshold_scale=scale, query_scale=ratio * scale)
    with mp.workdps(60):
        b, d = mpf(scale), mpf(ratio * scale)
        if ratio == 1:
            gap = (2 - 2 * mp.exp(-1 / (2 * b)) - mp.exp(-1 / (2 * b)) / (2 * b)) / 4
        else:
            gap = (b * b * (1 - mp.exp(-1 / (2 * b))) - d * d * (1 - mp.exp(-1 / (2 * d)))) / (2 * (b * b - d * d))
        loss = 2 * mp.atanh(2 * gap) if 2 * gap < 1 else mp.inf
    [one, _] = step.pairs(pc.ADD_OR_REMOVE_ONE).lower()
    assert 10 < one.max_loss <= loss
    assert step.epsilon(delta=0.0).upper >= 1 / scale


def test_there_is_one_gate():
    """A copy, or that of a fork, would have answers of its own, which nobody paid for."""
    step = pc.AboveThreshold.of(epsilon=1.0)
    with pc.Ledger(None, plan=step) as ledger:
        gate = ledger.above(step, sensitivity=1.0)
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(pc.PrivcalcError, match="a Gate cannot be copied"):
                copied(gate)
        assert gate.left == 1
    with pytest.raises(pc.PrivcalcError, match="the ledger is closed"):
        gate.ask(1e6, threshold=0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_asks_no_gate():
    step = pc.AboveThreshold.of(epsilon=1.0)
    ledger = pc.Ledger(None, plan=step)
    gate = ledger.above(step, sensitivity=1.0)
    child = os.fork()
    if not child:
        status = 1
        try:
            gate.ask(1e6, threshold=0)
        except pc.PrivcalcError as error:
            status = 0 if "another process" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert gate.ask(1e6, threshold=0)


@pytest.mark.parametrize("kind", [int, np.int64, np.uint64])
def test_counts_beyond_doubles_move_by_no_more(kind):
    """Two neighbours' counts that lie between the same doubles, or between others, are as far apart as they are."""
    gate = pc.Ledger(None, plan=(step := pc.AboveThreshold(threshold_scale=2.0, query_scale=3.0)), seed=1).above(
        step, sensitivity=1.0
    )
    gate._noise.laplace = lambda size, scale: np.zeros(size, dtype=np.int64)
    gate._threshold, gate._left = 0, 100
    count = 2**62 + 2**9  # halfway between two doubles, to the even one of which it would be rounded
    assert [gate.ask(kind(count + more), threshold=2**62 + 1024) for more in (0, 1, 511, 512)] == [
        False,
        False,
        False,
        True,
    ]


@given(st.floats(1e-3, 1e3), st.floats(-1e6, 1e6), st.floats(0, 1))
@example(1.0, 0.1, 1.0)
@settings(max_examples=30 if SLOW else 12, deadline=None)
def test_snapping_is_paid_for(sensitivity, value, share):
    """Whole numbers neighbours are snapped to differ by no more than the noise was drawn for, upwards if they rise."""
    step = pc.AboveThreshold(threshold_scale=2.0, query_scale=3.0)
    gate = pc.Ledger(None, plan=step, seed=1).above(step, sensitivity=sensitivity)
    other = value + share * sensitivity
    if other - value > sensitivity:  # rounded
        return
    moved = gate._whole(other) - gate._whole(value)
    assert moved >= 0
    assert mpf(moved) * 3 <= mpf(gate._scale) * (1 + mpf("1e-30"))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"threshold_scale": 0.0}, "threshold_scale = 0.0"),
        ({"query_scale": math.inf}, "query_scale = inf"),
        ({"answers": 0}, "answers = 0"),
        ({"answers": 1.5}, "answers = 1.5"),
        ({"monotone": None}, "monotone = None: must be True or False"),
    ],
)
def test_arguments_that_are_refused(wrong, words):
    with pytest.raises(pc.PrivcalcError, match=words):
        pc.AboveThreshold(**({"threshold_scale": 1.0, "query_scale": 1.0} | wrong))
    with pytest.raises(pc.PrivcalcError, match="epsilon = -1"):
        pc.AboveThreshold.of(epsilon=-1)


def test_calls_that_are_refused():
    step = pc.AboveThreshold(threshold_scale=1.0, query_scale=2.0)
    uneven = pc.AboveThreshold(threshold_scale=1.0, query_scale=2.0**15)
    ledger = pc.Ledger(None, plan=step + uneven)
    for mechanism, sensitivity, words in (
        (pc.Laplace(1.0), 1.0, "must be AboveThreshold"),
        (step, 0.0, "sensitivity = 0.0"),
        (uneven, 1.0, "differ by a factor of at most"),
    ):
        with pytest.raises(pc.PrivcalcError, match=words):
            ledger.above(mechanism, sensitivity=sensitivity)
    assert not ledger.spent.entries
    gate = ledger.above(step, sensitivity=1.0)
    for value in (math.nan, math.inf, "12345"):
        with pytest.raises(pc.PrivcalcError, match=r"^value: must be") as caught:
            gate.ask(value, threshold=0)
        assert "12345" not in str(caught.value)
    with pytest.raises(pc.PrivcalcError, match="threshold = nan"):
        gate.ask(0.0, threshold=math.nan)


def test_no_more_replies_are_had_by_setting_how_many_are_left():
    """It was an attribute: fifty replies "above" on a use that has one."""
    step = pc.AboveThreshold.of(epsilon=1.0, monotone=True)
    gate = pc.Ledger(None, plan=step).above(step, sensitivity=1.0)
    assert gate.left == 1
    with pytest.raises(AttributeError):
        gate.left = 50
    assert gate.ask(1e9, threshold=0.0)
    assert gate.left == 0
    with pytest.raises(pc.PrivcalcError, match="all its answers were given"):
        gate.ask(1e9, threshold=0.0)


@pytest.mark.parametrize(
    ("one", "two", "answers", "first", "then", "t", "tau"),
    [(2.0, 4.0, 1, 1, 1, 9.0, 0.1), (2.0, 4.0, 5, 1, 1, 8.0, 2.0), (10.0, 3.0, 3, 0, 1, 0.0, 5.0)],
)
def test_a_stream_of_many_questions(one, two, answers, first, then, t, tau):
    """Both integrals against the laws of a million questions a part, binomial numbers of answers, by quadrature."""
    a, b, n = 1 / one, 1 / two, 10**6
    x = np.unique(np.concatenate([np.linspace(-45 / a, 45 / a, 200_001), np.linspace(-60 / b, 60 / b, 200_001)]))
    density = 0.5 * a * np.exp(-a * np.abs(x))

    def part(ratio):
        """The chance of each of n questions to be above."""
        return np.minimum(ratio / n * np.exp(-b * x), 0.5)

    def event(quiet, loud):
        none = np.exp(n * np.log1p(-part(quiet)))
        return float(np.trapezoid(density * none * stats.binom.sf(answers - 1, n, part(loud)), x))

    quiet, loud = (t, t * math.exp(b * first)), (tau, tau * math.exp(-b * then))
    p, q = event(quiet[0], loud[0]), event(quiet[1], loud[1])
    low, high = above_threshold._event(40_000, a, b, answers, quiet, loud)
    assert low <= p * (1 + 1e-4) <= low * 1.02
    assert high * (1 + 1e-4) >= q >= high / 1.02


def test_streams_reach_most_of_the_bound_and_never_more():
    for monotone in (False, True):
        gate = pc.AboveThreshold(threshold_scale=2.0, query_scale=4.0, answers=2, monotone=monotone)
        for relation in (ADD, SWAP):
            pairs = gate.pairs(relation)
            assert len(pairs.also) >= 4
            for forward, backward in pairs.also:
                assert forward.max_loss <= pairs.forward.max_loss
                assert backward.max_loss <= pairs.backward.max_loss
            for delta in (0.0, 1e-6, 1e-3, 0.1):
                found = gate.epsilon(delta=delta, relation=relation)
                assert found.lower <= found.upper
                assert delta > 1e-6 or found.lower >= 0.8 * found.upper
