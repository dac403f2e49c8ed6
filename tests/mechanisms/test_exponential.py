"""The exponential mechanism and top-k against enumeration of small databases, quadrature and 50-digit sums."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from cases import quick
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf  # type: ignore[import-untyped]

from privcalc.composition.curve import Curve, worst_epsilon
from privcalc.composition.tradeoff import beta
from privcalc.errors import PrivcalcError
from privcalc.mechanisms.exponential import BoundedRangePair, ExponentialMechanism, TopK, log_multiplicity
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.numerics.routes import contour
from privcalc.numerics.special import gdp_profile
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, ZERO_OUT, Relation

Law = list[mpf]
ENDS = [1e-12, 1e-3, 1.0, 50.0, 600.0]


def two_atoms(a: mpf, t: mpf) -> tuple[Law, Law]:
    """P and Q with losses t and t − a: Q(up)·e^t + (1 − Q(up))·e^{t − a} = 1."""
    up, down = mp.exp(t), mp.exp(t - a)
    q = (1 - down) / (up - down)
    return [q * up, (1 - q) * down], [q, 1 - q]


def delta_of(p: Sequence[mpf], q: Sequence[mpf], epsilon: mpf) -> mpf:
    return mp.fsum(max(x - mp.exp(epsilon) * y, mpf(0)) for x, y in zip(p, q, strict=True))


def softmax(scores: Sequence[mpf]) -> Law:
    weights = [mp.exp(mpf(s)) for s in scores]
    total = mp.fsum(weights)
    return [w / total for w in weights]


# --- the pair -------------------------------------------------------------------------------------


@pytest.mark.parametrize("a", ENDS)
def test_profile_is_the_worst_two_point_pair(a: float) -> None:
    pair = BoundedRangePair(a)
    epsilons = a * np.array([0.0, 1e-3, 0.3, 0.5, 0.9, 0.999, 1 - 1e-9, 1.0, 1.5])
    delta, tail, error = pair.profile(epsilons)
    with mp.workdps(600):
        for e, d, slope, err in zip(epsilons, delta, tail, error, strict=True):
            if e > a:
                assert d == 0 == slope
                continue
            x = mpf(float(e))
            grid = [mpf(a) * k / 64 for k in range(1, 64)] + [(mpf(a) + x) / 2]
            values = [delta_of(*two_atoms(mpf(a), t), x) for t in grid if t < a]
            worst = max(values, default=mpf(0))
            assert abs(mpf(float(d)) - worst) <= err
            assert err <= 1e-14 * d + 1e-305
            exact = -mp.diff(lambda y: (1 - mp.exp((y - a) / 2)) ** 2 / (1 - mp.exp(-mpf(a))), x) if 0 < x < a else None
            if exact is not None:
                assert abs(mpf(float(slope)) - exact) <= 1e-13 * exact
            # a member attains it, in this library's own words too
            if 0 < e < a * (1 - 1e-6):
                member = pair.member(0.5 * (a + float(e))).profile(np.array([e]))[0][0]
                assert member == pytest.approx(d, rel=1e-9)


@given(st.floats(-3, 3).map(math.exp), st.lists(st.floats(0, 1), min_size=2, max_size=6), st.data())
def test_bounded_range_is_dominated(a: float, levels: list[float], data: st.DataObject) -> None:
    """Any pair whose loss lies in [t − a, t]: random ratios, normalised."""
    size = len(levels)
    weights = np.array(data.draw(st.lists(st.floats(1e-3, 1), min_size=size, max_size=size)))
    q = weights / weights.sum()
    p = q * np.exp(a * np.array(levels))
    p /= p.sum()
    losses = np.linspace(0, a, 9)
    truth = np.maximum(p - np.exp(losses)[:, None] * q, 0).sum(axis=1)
    delta, _, error = BoundedRangePair(a).profile(losses)
    assert np.all(truth <= delta + error + 1e-13)
    # and its Rényi divergence obeys zCDP: log E_P[e^{cL}] ≤ ρc(c + 1)
    for c in (1e-3, 0.5, 1.0, 4.0, 30.0):
        assert math.log(float(np.sum(p * (p / q) ** c))) <= BoundedRangePair(a).zcdp * c * (c + 1) + 1e-12


@pytest.mark.parametrize("a", [1e-6, 0.1, 1.0, 8.0, 30.0])
def test_zcdp_and_gdp_of_members(a: float) -> None:
    pair = BoundedRangePair(a)
    mu = pair.gdp_bounds[1]
    with mp.workdps(60):
        for share in (0.01, 0.2, 0.5, 0.7, 0.999):
            p, q = two_atoms(mpf(a), mpf(a) * share)
            for c in (1e-9, 1e-2, 1.0, 5.0, 1e4):
                moment = mp.fsum(x * (x / y) ** mpf(c) for x, y in zip(p, q, strict=True))
                assert mp.log(moment) <= pair.zcdp * mpf(c) * (c + 1)
            quantile = [
                mp.findroot(lambda z, v=v: mp.ncdf(z) - v, mp.sqrt(2) * mp.erfinv(2 * v - 1)) for v in (p[0], q[0])
            ]
            needed = quantile[0] - quantile[1]
            assert needed <= mu
            if share == 0.5:
                assert mu <= needed * (1 + mpf(10) ** -11)
    losses = np.linspace(0, a, 200)
    assert np.all(pair.profile(losses)[0] <= gdp_profile(mu, losses)[0] * (1 + 1e-10))


RANGES, ORDERS = (1e-4, 0.3, 1.0, 12.0), (1e-3, 0.6, 3.0, 40.0)


@pytest.mark.parametrize(("a", "c"), quick(itertools.product(RANGES, ORDERS), 0, 2, 5, 7, 8, 11, 13, 14))
def test_transform_against_quadrature(a: float, c: float) -> None:
    """M(s) = 1 + s(s + 1)∫ e^{sε}(δ(ε) − (1 − e^ε)_+) dε over |ε| ≤ a, with δ as the worst two-point pair has it."""
    part = BoundedRangePair(a).transform
    prepared = part.prepare(c, 1, 0.0, cut=False)
    step = 0.9 / a
    with mp.workdps(40):

        def delta(e: mpf) -> mpf:
            return (1 - mp.exp((e - a) / 2)) ** 2 / (1 - mp.exp(-mpf(a)))

        def moment(s: object) -> object:
            left = mp.quad(lambda e: mp.exp(s * e) * (delta(e) - (1 - mp.exp(e))), [-mpf(a), -mpf(a) / 2, 0])
            right = mp.quad(lambda e: mp.exp(s * e) * delta(e), [0, mpf(a) / 2, mpf(a)])
            return 1 + s * (s + 1) * (left + right)

        real = moment(mpf(c))
        value, error = prepared.log_real(np.array([c]))
        assert abs(mp.log(real) - mpf(float(value[0]))) <= error[0] + mpf(10) ** -25
        nodes, slack = prepared.log_nodes(c, step, 8)
        decay = prepared.log_decay(c, step * np.arange(8))
        for k in range(8):
            ratio = moment(mp.mpc(c, float(k * step))) / real
            got = mp.exp(mp.mpc(complex(nodes[k])))
            assert abs(got - ratio) <= abs(got) * mp.expm1(float(slack[k])) + mpf(10) ** -25
            assert mp.log(abs(ratio)) <= decay[k] + 1e-12
        assert np.all(np.diff(decay) <= 0)


def test_rounding_of_the_transform_far_out() -> None:
    """Against sinh((s + ½)a)/((2s + 1) sinh(a/2)) at 60 digits."""
    with mp.workdps(60):
        for a, c, step in ((1e-6, 1e5, 1e4), (600.0, 3.0, 0.01), (1e-3, 1.0, 3e4), (1.0, 0.01, 500.0)):
            part = BoundedRangePair(a).transform.prepare(c, 1, 0.0, cut=False)

            def moment(s: object, a: float = a) -> object:
                return mp.sinh((s + 0.5) * a) / ((2 * s + 1) * mp.sinh(mpf(a) / 2))

            value, error = part.log_real(np.array([c]))
            assert abs(mp.log(moment(mpf(c))) - mpf(float(value[0]))) <= error[0]
            nodes, slack = part.log_nodes(c, step, 50)
            for k in range(50):
                got = mp.exp(mp.mpc(complex(nodes[k])))
                assert abs(got - moment(mp.mpc(c, float(k * step))) / moment(mpf(c))) <= abs(got) * mp.expm1(
                    float(slack[k])
                )


# --- the mechanism on small databases -------------------------------------------------------------


def worst(
    epsilon: float, level: float, candidates: int, values: Sequence[float], relation: Relation
) -> tuple[float, float]:
    """δ(ε) and largest loss, all databases of up to two records, each moving candidates by Δ·(one of ``values``)."""
    records = list(itertools.product(values, repeat=candidates))
    offsets = [
        (0.0,) * candidates,
        (0.0,) * (candidates - 1) + (0.5 / level,),
        (0.0,) * (candidates - 1) + (-0.7 / level,),
    ]
    found, loss = mpf(0), mpf(0)
    for offset, rest in itertools.product(offsets, [(0.0,) * candidates, records[1], records[-1]]):
        base = [x + y for x, y in zip(offset, rest, strict=True)]
        null = (0.0,) * candidates
        pairs = itertools.permutations(records, 2) if relation is REPLACE_ONE else [(r, null) for r in records]
        for one, other in pairs:
            for x, y in ((one, other), (other, one)):
                p, q = (softmax([level * (b + v) for b, v in zip(base, move, strict=True)]) for move in (x, y))
                found = max(found, delta_of(p, q, mpf(epsilon)))
                loss = max(loss, *(mp.log(s / t) for s, t in zip(p, q, strict=True)))
    return float(found), float(loss)


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(("monotone", "candidates"), [(True, 2), (True, 3), (False, 2), (False, 3)])
def test_enumerated_choices(relation: Relation, monotone: bool, candidates: int) -> None:
    level, epsilon = 0.8, 0.35
    mechanism = ExponentialMechanism(level, monotone=monotone)
    values = (0.0, 1.0) if monotone else (-1.0, 0.0, 1.0)
    found, loss = worst(epsilon, level, candidates, values, relation)
    pair = mechanism.pairs(relation).forward
    delta, _, error = pair.profile(np.array([epsilon]))
    assert found <= delta[0] + error[0] + 1e-15
    assert loss <= pair.max_loss
    # No smaller range would do: the balanced choice between two candidates comes within a factor of its bound.
    assert found > BoundedRangePair(0.75 * pair.max_loss).profile(np.array([epsilon]))[0][0]


def test_two_candidates_attain_every_member() -> None:
    """One candidate ahead by a public offset, one record that lifts it: the pair (t, t − a) with any t in (0, a)."""
    a = 1.3
    with mp.workdps(40):
        for offset in (-5.0, -1.3, -0.65, 0.0, 4.0):
            p, q = softmax([offset + a, 0.0]), softmax([offset, 0.0])
            up = mp.log(p[0] / q[0])
            member = BoundedRangePair(a).member(float(up))
            assert abs(mp.log(p[1] / q[1]) - (up - mpf(a))) < 1e-15
            assert abs(p[0] - member.masses()[0]) < 1e-12
        # the pair that the mechanism names as attained, from either side
        p, q = softmax([a / 2, 0.0]), softmax([-a / 2, 0.0])
        pairs = ExponentialMechanism(a).pairs(ADD_OR_REMOVE_ONE)
        assert pairs.attained is not None
        for e in (0.0, 0.3, 0.6):
            for member in pairs.attained:
                assert abs(delta_of(p, q, mpf(e)) - float(member.profile(np.array([e]))[0][0])) < 1e-15


def test_ranges() -> None:
    for monotone, relation, moves in (
        (True, ADD_OR_REMOVE_ONE, 1), (True, ZERO_OUT, 1), (True, REPLACE_ONE, 2),
        (False, ADD_OR_REMOVE_ONE, 2), (False, ZERO_OUT, 2), (False, REPLACE_ONE, 4),
    ):  # fmt: skip
        pairs = ExponentialMechanism(1.5, monotone=monotone).pairs(relation)
        assert pairs.forward == pairs.backward == BoundedRangePair(1.5 * moves)
        assert pairs.attained_alone
    assert BoundedRangePair(1.0).zcdp == pytest.approx(1 / 8, rel=1e-12)
    assert BoundedRangePair(40.0).zcdp == pytest.approx(40.0, rel=1e-12)


def test_description_and_refusals() -> None:
    assert repr(ExponentialMechanism(epsilon=1.0)) == "ExponentialMechanism(epsilon=1.0, monotone=True)"
    assert repr(TopK(epsilon=1.0, k=3)) == "TopK(epsilon=1.0, k=3)"
    with pytest.raises(PrivcalcError, match="epsilon"):
        ExponentialMechanism(0.0)
    with pytest.raises(PrivcalcError, match="monotone"):
        ExponentialMechanism(1.0, monotone=1)  # type: ignore[arg-type]
    with pytest.raises(PrivcalcError, match="k = 0"):
        TopK(1.0, 0)
    for rank in (0, 1.5, math.nan):
        with pytest.raises(PrivcalcError, match="rank"):
            log_multiplicity(rank, 1)


# --- top-k ----------------------------------------------------------------------------------------


def rank_law(utilities: Sequence[float], k: int, level: float, *, printed: bool) -> dict[frozenset[int], mpf]:
    """The law over k-sets when the worst rank is drawn first; ``printed`` with the paper's C(y, k)."""
    order = sorted(range(len(utilities)), key=lambda i: (-utilities[i], i))
    weights = []
    for y in range(k, len(order) + 1):
        sets = math.comb(y, k) if printed else math.comb(y - 1, k - 1)
        weights.append((y, sets * mp.exp(level * mpf(utilities[order[y - 1]]) / 2)))
    total = mp.fsum(w for _, w in weights)
    law = {}
    for y, w in weights:
        for others in itertools.combinations(order[: y - 1], k - 1):
            law[frozenset((*others, order[y - 1]))] = w / total / math.comb(y - 1, k - 1)
    return law


def test_number_of_sets_by_worst_rank() -> None:
    for n, k in ((5, 1), (6, 3), (7, 7)):
        worst_ranks = [max(s) for s in itertools.combinations(range(1, n + 1), k)]
        counted = [worst_ranks.count(y) for y in range(1, n + 1)]
        assert np.exp(log_multiplicity(np.arange(1, n + 1), k)) == pytest.approx(counted, rel=1e-12)
    with mp.workdps(50):
        for rank, k in ((1_280_000, 50), (10**9, 3), (1000, 999)):
            truth = mp.loggamma(rank) - mp.loggamma(k) - mp.loggamma(rank - k + 1)
            assert float(log_multiplicity(rank, k)) == pytest.approx(float(truth), rel=1e-11)


@pytest.mark.parametrize(
    ("n", "k", "relation"),
    [
        *((n, k, r) for n, k in ((3, 1), (4, 2), (4, 3)) for r in (ADD_OR_REMOVE_ONE, REPLACE_ONE)),
        (5, 2, ADD_OR_REMOVE_ONE),
    ],
)
def test_top_k_on_all_neighbouring_utilities(n: int, k: int, relation: Relation) -> None:
    """One record adds 0 or 1 to each utility (Δ = 1). The corrected count keeps the range, the printed one does not."""
    level, e = 0.1, 0.02
    pair = TopK(level, k).pairs(relation).forward
    bound = float(sum(x[0] for x in pair.profile(np.array([e]))[::2]))
    broken = mpf(0)
    with mp.workdps(30):
        for base in itertools.product((0, 1), repeat=n):
            laws = []
            moves = list(itertools.product((0, 1), repeat=n))
            for move in moves:
                utilities = [x + y for x, y in zip(base, move, strict=True)]
                laws.append([rank_law(utilities, k, level, printed=printed) for printed in (False, True)])
            others = laws if relation is REPLACE_ONE else laws[:1]
            for (p, p_printed), (q, q_printed) in itertools.product(laws, others):
                assert len(p) == math.comb(n, k)
                losses = [mp.log(p[s] / q[s]) for s in p]
                assert max(losses) - min(losses) <= pair.max_loss * (1 + mpf(10) ** -15)
                for one, two in ((p, q), (q, p)):
                    assert delta_of(list(one.values()), [two[s] for s in one], mpf(e)) <= bound + mpf(10) ** -20
                broken = max(broken, *(abs(mp.log(p_printed[s] / q_printed[s])) for s in p))
    # The paper claims level·(1 or 2 under replace-one); the printed count pays about log(n/k) whatever the level.
    claimed = level * (2 if relation is REPLACE_ONE else 1)
    assert broken > max(claimed, 0.5 * math.log(n / k))


def test_lower_ends_use_the_best_offset() -> None:
    """Few uses at a small δ: a choice that is rarely tipped loses more."""
    run = ExponentialMechanism(1.0) * 10
    answer = run.epsilon(delta=1e-6)
    assert answer.lower >= 0.94 * answer.upper
    for share in (0.5, 0.6, 0.7, 0.8, 0.9):
        occurs = worst_epsilon([Curve(((BoundedRangePair(1.0).member(share), 10),))], 1e-6)
        assert occurs.lower <= answer.lower
    mixed = run + Gaussian(5.0) * 10
    assert max(answer.lower, 8.4) <= mixed.epsilon(delta=1e-6).lower
    occurs = beta(
        [Curve(((pair, 10),)) for pair in (BoundedRangePair(1.0).member(0.8), BoundedRangePair(1.0).member(0.2))], 0.01
    )
    assert run.beta(alpha=0.01).upper <= occurs.upper


@pytest.mark.parametrize(("level", "count", "epsilon"), quick([(0.02, 4000, 8.0), (0.1, 400, 12.0)], 1))
def test_what_occurs_lies_between_ends_of_different_pairs(level: float, count: int, epsilon: float) -> None:
    """The upper end may be that of zCDP, below the δ of the composed logistic pair, of which zCDP does not hold."""
    found = (ExponentialMechanism(level) * count).delta(epsilon=epsilon)
    truths = []
    for tenths in (5, 7, 9):
        with mp.workdps(50):
            # Two candidates: losses up and up − a.
            a, up = mpf(level), mpf(level) * tenths / 10
            p = -mp.expm1(up - a) / -mp.expm1(-a)
            losses = [k * up - (count - k) * (a - up) for k in range(count + 1)]
            masses = [mp.binomial(count, k) * p**k * (1 - p) ** (count - k) for k in range(count + 1)]
            truths.append(
                mp.fsum(-m * mp.expm1(epsilon - loss) for m, loss in zip(masses, losses, strict=True) if loss > epsilon)
            )
    assert float(max(truths)) * (1 - 1e-9) <= found.lower  # offsets that depend on what came before do better
    logistic = BoundedRangePair(level)
    value, error = logistic.transform.log_real(np.array([1.0]))
    assert value[0] - error[0] > 2 * logistic.zcdp
    of_itself, _ = contour.build([(logistic.transform, count)], epsilon=epsilon)
    assert of_itself.bounds(epsilon)[0] > found.upper


@pytest.mark.parametrize("epsilon", [0.36, 0.4, 0.8, 2.0])
def test_beyond_its_own_largest_loss_the_choice_still_counts(epsilon: float) -> None:
    """With Gaussian noise beside it, the lower end is at least that of the offset with the largest loss."""
    run = Gaussian(5.0) + ExponentialMechanism(0.4)
    with mp.workdps(40):
        mu, (p, _) = mpf(1) / 5, two_atoms(mpf("0.4"), mpf("0.36"))

        def gaussian(e: mpf) -> mpf:
            return mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu)

        truth = p[0] * gaussian(epsilon - mpf("0.36")) + p[1] * gaussian(epsilon + mpf("0.04"))
    found = run.delta(epsilon=epsilon)
    assert truth * (1 - mpf(10) ** -6) <= found.lower
    assert truth <= found.upper
