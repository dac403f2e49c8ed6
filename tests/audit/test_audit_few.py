"""Records whose loss few steps carry: closed form, engine pattern by pattern, every error bound of the panels."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from cases import SLOW, quick
from mpmath import mp
from scipy.optimize import brentq
from scipy.special import ndtr

import privcalc as pc
from benchmarks import audits as benchmark_audit
from privcalc.audit import panels, polynomial, sampled
from privcalc.audit.contour import Contour, weights
from privcalc.audit.panels import Law, Sheet
from privcalc.audit.polynomial import Line, NormTable
from privcalc.audit.sums import KEEP, MOMENTS, Bank, Moments, round_up

DELTA = 1e-5


def one_step(mu, q, delta):
    """ε of one sampled step: δ(ε) = q·δ_μ(log(1 + (e^ε − 1)/q))."""

    def excess(epsilon):
        e = math.log1p(math.expm1(epsilon) / q)
        return q * (ndtr(mu / 2 - e / mu) - math.exp(e) * ndtr(-mu / 2 - e / mu)) - delta

    return brentq(excess, 0.0, 60.0, xtol=1e-13) if excess(0.0) > 0 else 0.0


@pytest.mark.parametrize("delta", [1e-5, pytest.param(1e-9, marks=pytest.mark.slow)])
def test_one_step_is_within_the_target(delta):
    ratios = np.array([0.05, 0.3, 0.6, 0.95] if SLOW else [0.3, 0.95])
    losses = pc.RealisedLosses(ratios.size, 0.8, 0.5)
    losses.update(ratios)
    for r, e in zip(ratios, np.asarray(losses.epsilon(delta)), strict=True):
        truth = one_step(r / 0.8, 0.5, delta)
        assert truth - 1e-12 <= e <= truth * (1 + 1e-4) + 1e-6


@pytest.mark.parametrize("rate", quick([1e-5, 1e-3, 0.3, 1.0], 1, 3))
def test_one_step_has_a_closed_form(rate):
    ratios = np.array([0.0, 1e-3, 0.2, 0.5, 0.8, 1.0]) if SLOW else np.array([0.0, 0.2, 1.0])
    losses = pc.RealisedLosses(ratios.size, 0.8, rate)
    losses.update(ratios)
    found = np.asarray(losses.epsilon(1e-6))
    assert found[0] == 0
    for ratio, epsilon in zip(ratios[1:], found[1:], strict=True):
        truth = pc.PoissonSampled(pc.Gaussian(0.8 / ratio), rate).epsilon(delta=1e-6)  # both orders
        assert truth.lower <= epsilon <= truth.upper * (1 + 1e-4) + 1e-6


def run(noise, rate, steps, delta):
    """ε, the truth and the error over the target, of all patterns."""
    found = benchmark_audit.patterns(noise, rate, steps, delta)
    for name, (value, truth) in found.items():
        assert value >= truth.lower, name
    return {name: (value - truth.lower) / (1e-4 * truth.upper + 1e-6) for name, (value, truth) in found.items()}


@pytest.mark.parametrize("steps", quick([12, 6], 1))
def test_patterns_are_within_the_target(steps):
    assert max(run(1.0, 0.3, steps, DELTA).values()) <= 1


@pytest.mark.slow
def test_rare_jumps_are_within_the_target():
    assert max(run(0.8, 0.003, 10, DELTA).values()) <= 1


def test_many_records_are_not_asked_again_unless_patient(monkeypatch):
    """Jumps so rare that nothing falls along the line need all nodes of it."""
    first = sampled.TRIES[2]._replace(nodes=256)
    monkeypatch.setattr(sampled, "TRIES", [first, first._replace(nodes=2048, most=0)])
    losses = pc.RealisedLosses(2, 0.8, 0.003)
    losses.update([0.5, 1.0], steps=2)
    losses.update([0.5, 0.1])
    truth = (pc.PoissonSampled(pc.Gaussian(1.6), 0.003) * 3).epsilon(delta=DELTA)
    quick, slow = (float(np.asarray(losses.epsilon(DELTA, patient=patient))[0]) for patient in (False, True))
    assert truth.lower <= slow <= truth.upper * (1 + 1e-4) + 1e-6
    assert quick - truth.upper > 4 * (slow - truth.upper)


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "rate", "steps"), benchmark_audit.designed())
def test_the_designed_set(noise, rate, steps):
    """At a rate of 0.001 one large step among small ones is a rare jump: within 0.1 % of ε."""
    most = 10 if rate < 0.01 else 1
    assert max(run(noise, rate, steps, DELTA).values()) <= most


def one_step_delta(mu, q, epsilon, add):
    """δ(ε) of one sampled step, ε ≥ 0, in closed form; add: of (without, with)."""
    if add:
        left_out = -math.expm1(-epsilon) / q  # r < 1 − this
        if left_out >= 1:
            return 0.0
        t = mu / 2 + math.log1p(-left_out) / mu
        return ndtr(t) - math.exp(epsilon) * ((1 - q) * ndtr(t) + q * ndtr(t - mu))
    e = math.log1p(math.expm1(epsilon) / q)
    return q * (ndtr(mu / 2 - e / mu) - math.exp(e) * ndtr(-mu / 2 - e / mu))


def periodic(c, period, x):
    """Σ_m f(x + mP) for 0 ≤ x ≤ P, f = e^{−cx} − e^{−(c + 1)x} for x > 0."""
    return np.exp(-c * x) / -np.expm1(-c * period) - np.exp(-(c + 1) * x) / -np.expm1(-(c + 1) * period)


@pytest.mark.parametrize(
    ("c", "period", "size"), [(2.0, 1.0, 50), (9.0, 0.7, 400), (0.5, 3.0, 16), (3.0, 3.0, 10), (0.01, 40.0, 99)]
)
def test_the_weights_are_of_a_majorant(c, period, size):
    step = 2 * math.pi / period
    omega, rounding, deficit = weights(c, step, size)
    x = np.linspace(0, period, 40 * size + 1)
    above = np.real(omega @ np.exp(1j * np.outer(step * np.arange(size), x))) - periodic(c, period, x)
    assert -deficit < above.min() < -deficit / 100  # both: it is a majorant, and only with the deficit
    assert np.abs(above[20::40]).max() <= 2 * deficit  # touches half-way between multiples of the resolution
    assert weights(c, step, max(int(period * (2 * c + 1.5) / 3) - 1, 1))[2] == math.inf or period * (2 * c + 1.5) < 3
    resolution = period / size
    assert above[:-1].mean() * period == pytest.approx(resolution**2 / 24, abs=period * deficit)
    with mp.workdps(50):
        for k in {0, 1, size // 3, size // 2, size - 1}:

            def half(s):
                turn = resolution * s / (2j * mp.pi)
                return (1 - turn) / (2j * mp.sin(mp.pi * turn))

            # The double precision step and resolution are what is meant.
            s = mp.mpc(c, 2 * mp.pi * k / (mp.mpf(resolution) * size))
            truth = (half(s) - half(s + 1)) * (2 if k else 1) / size
            assert abs(complex(truth) - omega[k]) <= rounding[k]


def exact_step(q, add, mu, left, period, nodes):
    """The contour of one step that is kept exactly."""
    sheet = Sheet.of(Law(q, add, 1), Line(left / period, 2 * math.pi / period, nodes), mu**2 * (1 + 1e-9))
    alone = Bank(q, mu**2, np.zeros((1, MOMENTS)), np.zeros(1), np.zeros(1), 1, np.array([[mu**2]]))
    return Contour.of([alone], {q: sheet}, [None])


@pytest.mark.parametrize(
    ("q", "left", "add"),
    quick(itertools.product([0.003, 0.2], [0.3, 2.5, 12.0], [False, True]), 1, 6, 10),
)
def test_what_aliases_from_the_left_is_subtracted(q, left, add):
    """By Poisson's formula, however small c·P: what remains of δ(ε − mP), m ≥ 1, is e^{ε − mP}δ*(mP − ε)."""
    mu, period = 0.9, 3.0
    contour = exact_step(q, add, mu, left, period, 6144)
    for epsilon in np.linspace(0.0, 2.99, 20):
        found, truth = math.exp(contour.excess(np.array([epsilon]), 1.0)[0]), one_step_delta(mu, q, epsilon, add)
        assert found >= truth - 1e-15
        right = sum(math.exp(k * left) * one_step_delta(mu, q, epsilon + k * period, add) for k in range(1, 12))
        rest = sum(
            math.exp(epsilon - m * (left + period)) * one_step_delta(mu, q, m * period - epsilon, not add)
            for m in range(1, 12)
        )
        assert found == pytest.approx(truth + right + rest, rel=2e-3, abs=1e-8)  # the majorant costs 0.13 % at ε = 0


@pytest.mark.parametrize("add", [False, True])
def test_few_nodes_are_enough_for_a_bound(add):
    q, mu = 0.2, 0.9
    contour = exact_step(q, add, mu, 2.5, 3.0, 32)
    epsilon = np.linspace(0.0, 2.9, 200)
    truth = np.array([one_step_delta(mu, q, e, add) for e in epsilon])
    assert (np.exp(contour.excess(epsilon, 1.0)) >= truth).all()
    # Fourier's own weights, without a bound of what they leave out, say too little.
    line = contour.line
    plain = (line.step / math.pi) / (line.s * (line.s + 1)) * np.where(np.arange(32) > 0, 1, 0.5)
    bare = replace(contour, fixed=0 * contour.fixed, f=contour.f * plain / weights(line.c, line.step, 32)[0])
    assert (np.exp(bare.excess(epsilon, 1.0)) < truth).any()


def test_what_the_polynomial_misses_counts_with_its_sign(monkeypatch):
    """With 0 for a polynomial, the gap is all of log M."""
    monkeypatch.setattr(
        polynomial, "_interpolate", lambda _, origin, *__: np.zeros((MOMENTS, origin.size), dtype=complex)
    )
    q, mu, steps, period = 0.003, 0.3, 12, 0.06
    domain = mu**2 * (1 + 1e-6)
    way = Moments.empty(1, q, domain)
    way.add(np.array([mu]), 1.0, steps, None, 0.0)
    way.settle()
    way.count = steps
    bank = way.bank(np.zeros(1, dtype=bool), domain)
    run_ = pc.PoissonSampled(pc.Gaussian(1 / mu), q) * steps
    contours = []
    for add in (False, True):
        sheet = Sheet.of(Law(q, add, steps), Line(2.5 / period, 2 * math.pi / period, 1536), domain)
        table = sheet.rest(bank.reach[0], domain, mu**2)
        contours.append(Contour.of([bank], {q: sheet}, [table]))
    for epsilon in (0.001, 0.003, 0.005):
        truth = run_.delta(epsilon=epsilon)
        at = np.array([epsilon])
        found = max(math.exp(contour.excess(at, 1.0)[0]) for contour in contours)
        without = max(math.exp(contour._log(contour._sums(at)[0].real + contour.fixed, at)[0]) for contour in contours)
        assert without < truth.lower <= found <= 1.2 * truth.upper


def test_each_step_is_charged_the_error_of_its_side():
    """The polynomial is 0, f = low below the split and vague above it: then K itself is what is missed."""
    low, vague, split = 3.0, 0.1, 0.25
    one, none = np.ones(1), np.zeros((0, 1, 1), complex)
    table = NormTable(
        np.zeros((MOMENTS, 1), complex),
        none,
        np.zeros(0),
        vague * one,
        vague * one,
        low * one,
        low * split * one,
        split,
        one,
    )
    for x in (np.full(5, 0.24), np.full(9, 1e-3), np.full(4, 0.5), np.array([0.24, 0.2, 0.9, 1.0])):
        missed = float(np.sum(x * np.where(x < split, low, vague)))
        found = table.missed(np.array([x.sum()]), np.array([1e-9]), x.size)[0, 0]
        most = missed + 1e-9 + vague * x.sum() + low * x[x >= split].sum() + 1e-12
        assert missed + 1e-9 * (1 - 1e-9) <= found <= most


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize(("q", "c", "step"), [(0.01, 200.0, 90.0), (0.3, 4.0, 1.0)])
def test_values_are_within_their_errors(q, c, step, add):
    """Also where w^{c + 1} moves φ by 20 standard deviations, so that what is cut off must be told."""
    line, x = Line(c, step, 32), np.array([1e-6, 1e-3, 1e-2])
    found, error = panels._values(panels.Law(q, add, 20), line, x, np.zeros((3, 1)))
    assert (error < 1e-9 * np.abs(found[:, 0]).max()).all()
    with mp.workdps(30):
        for i, k in ((0, 31), (1, 5), (2, 9)):
            mu, s = mp.sqrt(mp.mpf(x[i])), mp.mpc(c, k * mp.mpf(step))
            power = -s if add else s + 1
            ends = mp.linspace(-14, 14 + (0 if add else power.real * mu), 40)
            truth = mp.quad(lambda t: (1 + q * mp.expm1(mu * t - mu * mu / 2)) ** power * mp.npdf(t), ends)
            assert abs(complex(truth) - found[i, k]) <= error[k]


@pytest.mark.parametrize("domain", [1.6, 0.6])
@pytest.mark.parametrize("add", [False, True])
def test_panels_are_within_their_errors(add, domain):
    q, c, step, size, top = 0.1, 3.0, 0.9, 64, 1.5
    sheet = Sheet.of(Law(q, add, 100), Line(c, step, size), top)
    s = c + 1j * step * np.arange(size)
    t = np.linspace(-12, 22, 8001)
    reach = top / 2
    table = sheet.rest(reach, domain, 0.1)  # the second domain ends inside a panel
    for x in [*np.geomspace(top / 1e5, top, 14), reach]:
        log = np.log1p(q * np.expm1(math.sqrt(x) * t - x / 2))
        weights = np.exp(-t * t / 2) * (t[1] - t[0]) / math.sqrt(2 * math.pi)
        m = np.exp(np.multiply.outer(-s if add else s + 1, log)) @ weights
        k, product, missed = sheet.product(np.array([[x]]), size)
        assert k[0] == pytest.approx(math.log(m[0].real), abs=1e-9)
        assert (np.abs(product[0] - m / m[0].real) <= missed[0] + 1e-12).all()
        if x > min(reach, domain):
            continue
        basis = np.polynomial.chebyshev.chebvander(np.array([2 * x / domain - 1]), MOMENTS - 1)[0]
        value = x * (basis @ table.coefficients)
        known = np.minimum(x * table.vague, table.steady)
        bound = known + x * table.sizes() if x >= table.split else np.minimum(table.near, x * table.low)
        gap = np.abs(np.exp(value) / m[: bound.size] - 1)
        assert (gap <= np.expm1(bound) + 1e-11).all()
        if x >= table.split:
            i = int(np.searchsorted(table.ends, x * (1 - 1e-12)))
            a, b = (table.split, *table.ends)[i : i + 2]
            value += x * np.polynomial.chebyshev.chebval((2 * x - a - b) / (b - a), table.gap[i])
            gap = np.abs(np.exp(value) / m[: bound.size] - 1)
            assert (gap <= np.expm1(known) + 1e-11).all()
            assert (gap < 1e-7).any()
    assert missed.max() < 1e-8
    assert table.known > 10


def test_the_largest_are_kept():
    rng = np.random.default_rng(1)
    x = rng.random((40, 9))
    ways = [Moments.empty(9, 0.5, 1.0) for _ in range(2)]
    for row in x:
        ways[0].add(np.sqrt(row), 1.0, 1, None, 0.0)
        order = rng.permutation(9)
        ways[1].add(np.sqrt(row[order]), 1.0, 1, order, 0.0)
    for way in ways:
        way.settle()
        over = way.largest.T / np.sort(x, axis=0)[-KEEP:] - 1
        assert -1e-14 <= over.min() <= over.max() <= 3e-7
        assert way.sums[:, 0] == pytest.approx(np.sort(x, axis=0)[:-KEEP].sum(axis=0), rel=1e-6)
    many = Moments.empty(1, 0.5, 1.0)
    many.add(np.array([0.5]), 1.0, KEEP + 3, np.array([0]), 0.0)
    many.add(np.array([1.0]), 1.0, 2, None, 0.0)
    many.settle()
    assert many.largest[0] == pytest.approx([0.25] * (KEEP - 2) + [1, 1])
    assert many.sums[0, 0] == pytest.approx(0.25 * 5)


def test_steps_that_were_rounded_away_are_reached():
    """−1 + 1e-17 + 1 = 0: the record's steps beyond the kept ones are known only by the bound of roundings."""
    way = Moments.empty(1, 0.5, 1.0)
    for _ in range(KEEP + 4):
        way.share(1.0, 1)
        way.add(np.array([3e-9]), 1.0, 1, np.array([0]), 1.0)
    way.count = KEEP + 4
    bank = way.bank(np.zeros(1, dtype=bool), 1.0)
    assert bank.moments[0, 0] == 0
    assert bank.reach[0] >= 9e-18
    assert bank.unit * bank.scale[0] >= 4 * 9e-18


def test_single_precision_is_never_below():
    x = np.geomspace(1e-44, 1e38, 5001)  # from numbers that single precision holds to few digits
    for part in (x, np.array([0.0, 1e-300, 1e-45, 2e-45])):
        assert (round_up(part).astype(np.float64) >= part).all()
    assert (round_up(x[x > 2e-38]) <= x[x > 2e-38] * (1 + 2.0**-22)).all()


@pytest.mark.parametrize(("noise", "delta"), [pytest.param(0.01, 1e-5, marks=pytest.mark.slow), (1.0, 1e-300)])
def test_large_losses_overflow_nothing(noise, delta, monkeypatch):
    if not SLOW:  # the lines furthest to the left and to the right
        monkeypatch.setattr(sampled, "TRIES", (sampled.TRIES[0], sampled.TRIES[3]))
    losses = pc.RealisedLosses(2, noise, 0.1)
    losses.update([1.0, 0.5])
    for ratio, e in zip((1.0, 0.5), np.asarray(losses.epsilon(delta)), strict=True):
        truth = pc.PoissonSampled(pc.Gaussian(noise / ratio), 0.1).epsilon(delta=delta)
        assert truth.lower <= e <= losses.worst_case.epsilon(delta=delta).upper


def test_unseen_steps_survive_a_merge(monkeypatch):
    monkeypatch.setattr(sampled, "TRIES", sampled.TRIES[: None if SLOW else 2])
    shards = []
    for ratio in (0.1, 0.2):
        shard = pc.RealisedLosses(1, 1.0, 0.3)
        for t in range(12):
            shard.update([ratio] if t % 2 else [], indices=[0] if t % 2 else [])
        shards.append(shard)
    whole = shards[0].merge(shards[1], disjoint=True)
    for ratio, e in zip((0.1, 0.2), np.asarray(whole.epsilon(DELTA)), strict=True):
        truth = pc.Run.of(pc.PoissonSampled(pc.Gaussian(1.0 / r), 0.3) * 6 for r in (1.0, ratio)).epsilon(delta=DELTA)
        assert truth.lower <= e <= whole.worst_case.epsilon(delta=DELTA).upper


def test_older_files_are_refused(tmp_path):
    losses = pc.RealisedLosses(2, 1.0, 0.1)
    losses.update([0.5, 0.1])
    losses.save(tmp_path / "new.npz")
    with np.load(tmp_path / "new.npz") as file:
        arrays = dict(file)
    header = json.loads(str(arrays["header"]))
    header["format"] = "privcalc realised losses 1"
    arrays["header"] = np.array(json.dumps(header))
    np.savez(tmp_path / "old.npz", **arrays)
    with pytest.raises(pc.PrivcalcError, match="older"):
        pc.RealisedLosses.load(tmp_path / "old.npz")
    assert np.asarray(pc.RealisedLosses.load(tmp_path / "new.npz")._tally.mu()) == pytest.approx(losses._tally.mu())


@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_changed_files_are_refused(tmp_path, rate):
    """Negative sums would say ε = 0; a step count of 0 would drop the allowance for roundings."""
    losses = pc.RealisedLosses(2, 1.0, rate)
    losses.update([0.5, 0.1])
    losses.save(tmp_path / "whole.npz")
    with np.load(tmp_path / "whole.npz") as file:
        arrays = dict(file)
    header = json.loads(str(arrays["header"]))
    header["banks"][0][2] = 0
    for name, value in (
        ("sums0", -arrays["sums0"]),
        ("header", np.array(json.dumps(header))),
        ("seen", arrays["seen"] + 1),
    ):
        np.savez(tmp_path / "changed.npz", **{**arrays, name: value})
        with pytest.raises(pc.PrivcalcError, match="changed"):
            pc.RealisedLosses.load(tmp_path / "changed.npz")
    content = (tmp_path / "whole.npz").read_bytes()
    for end in range(0, len(content), 97):
        (tmp_path / "cut.npz").write_bytes(content[:end])
        with pytest.raises(pc.PrivcalcError):
            pc.RealisedLosses.load(tmp_path / "cut.npz")


@pytest.mark.parametrize("add", [False, True])
def test_what_is_not_evaluated_is_bounded(add):
    """|M(s; x)| ≤ M(c; x)e^{−βx} at every node, and the sum over all steps by a record's sums."""
    q, c, step, size, top = 0.1, 3.0, 0.9, 64, 1.5
    sheet = Sheet.of(Law(q, add, 100), Line(c, step, size), top)
    s, t = c + 1j * step * np.arange(size), np.linspace(-12, 22, 8001)
    x = np.geomspace(top / 1e5, top * (1 - 1e-9), 23)
    log = np.log1p(q * np.expm1(np.sqrt(x)[:, None] * t - x[:, None] / 2))
    density = np.exp(-t * t / 2)
    moduli = np.array([np.abs(np.exp(np.multiply.outer(-s if add else s + 1, row)) @ density) for row in log])
    falls = -np.log(moduli / moduli[:, :1])
    own = sheet.falls[sheet._place(x)]
    assert (own * x[:, None] <= falls + 1e-9).all()
    assert np.median(own[:, 1:] * x[:, None] / falls[:, 1:]) > 0.3
    way = Moments.empty(1, q, 1.6)
    for value in x:
        way.add(np.sqrt([value]), 1.0, 1, None, 0.0)
    way.settle()
    way.count = x.size
    bank = way.bank(np.zeros(1, dtype=bool), 1.6)
    for part in (bank, bank.folded()):
        bound = sheet.fall(part, top)[0]
        assert (bound <= falls.sum(axis=0).reshape(-1, panels.BLOCK).min(axis=1) + 1e-9).all()
        assert bound[1] > 0.5
