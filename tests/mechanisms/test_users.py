"""Persons with several records: law, pair and transform by mpmath, runs by quadrature, vectors in the plane."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
from cases import SLOW, quick
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from numpy.typing import NDArray

import privcalc as pc
from privcalc.composition.curve import Curve
from privcalc.composition.sides import Group
from privcalc.numerics.floats import UNIT
from privcalc.numerics.gaussian_mixture import Counts
from privcalc.numerics.routes import lattice
from privcalc.pairs import gaussian_mixture
from privcalc.pairs.gaussian_mixture import UsersPair, UsersTransform

LAWS = [
    Counts(8, 0.01, 8),
    Counts(8, 1e-9, 8),
    Counts(30, 0.3, 30),
    Counts(20, 0.4, 5),
    Counts(1, 0.1, 1),
    Counts(50, 0.9, 50),
]


@functools.cache
def masses(law: Counts | None) -> list[mpf]:
    """P(J = j) in many digits."""
    if law is None:
        return [mpf(1)]
    q = mpf(law.rate)
    with mp.workdps(60):
        all_ = [mp.binomial(law.records, j) * q**j * (1 - q) ** (law.records - j) for j in range(law.records + 1)]
        return [*all_[: law.most], mp.fsum(all_[law.most :])]


def ratio(law: Counts | None, mu: float, z: mp.mpc) -> mp.mpc:
    """w at a complex point."""
    mu = mpf(mu)
    return mp.fsum(p * mp.exp(j * mu * z - j * j * mu * mu / 2) for j, p in enumerate(masses(law)))


def turned(law: Counts, mu: float, t: float, angle: float) -> mp.mpc:
    """log w at t + i·angle/μ, continued from the real line in small steps."""
    value, turn = mp.log(ratio(law, mu, mpf(t))), mpf(0)
    for k in range(1, 41):
        now = mp.log(ratio(law, mu, mp.mpc(t, mpf(angle) * k / 40 / mpf(mu))))
        step = now.imag - value.imag
        turn += step - 2 * mp.pi * mp.nint(step / (2 * mp.pi))
        value = now
    return mp.mpc(value.real, turn)


@pytest.mark.parametrize(("law", "mu"), quick(itertools.product(LAWS, [0.05, 0.5, 1.0, 3.0]), 0, 7, 10, 13, 19, 20))
def test_the_logarithm_of_the_ratio(law: Counts, mu: float) -> None:
    """On and off the real line, within 8 units of what it says, and on the right branch."""
    t = np.array([-9.0, -0.3, 0.4, 3.0, 0.7 * min(law.most * mu, 60) + 2])
    most = min(1.5, 2 * mu) / (law.most if law.most < law.records else 1)
    with mp.workdps(50):
        real = law.log_ratio(mu, t)
        for i, x in enumerate(t.tolist()):
            assert abs(mpf(float(real.value[i])) - mp.log(ratio(law, mu, mpf(x)))) <= 8 * UNIT * real.size[i]
        for angle in (1e-6, 0.4 * most, most):
            found = law.turned_log_ratio(mu, t, angle)
            for i, x in enumerate(t.tolist()):
                assert abs(mp.mpc(complex(found.value[i])) - turned(law, mu, x, angle)) <= 8 * UNIT * found.size[i]


@pytest.mark.parametrize("law", [*LAWS, Counts(40, 0.1, 2)], ids=str)
def test_zeros_and_the_least_modulus(law: Counts) -> None:
    """What a rotated line relies on, at every turn it takes: no zero, an argument that rises, |w| ≥ (cos ½α)^m w."""
    capped = law.most < law.records
    for mu in (0.3, 1.0, 3.0):
        transform = UsersTransform(mu, None, law)
        angle = np.linspace(0.01, 3.0 if capped else min(1.5, 2 * mu), 24)
        t = np.linspace(-4 - mu * law.most, 6, 200)
        found = transform.turned(t, angle[:, None]).loss
        assert np.all(np.diff(found.imag, axis=0)[angle[1:] <= 0.5 * math.pi] >= -1e-12)
        assert np.all(found.imag >= -1e-12)
        assert np.all(found.real <= transform.logs(t).loss + transform.log_kappa(angle, 1.0)[:, None] + 1e-12)


def both(pair: UsersPair, t: mpf) -> tuple[mpf, mpf]:
    """P and Q of {x > t}."""
    mu = mpf(pair.mu)
    p = mp.fsum(m * mp.ncdf(j * mu - t) for j, m in enumerate(masses(pair.up)))
    return p, mp.fsum(m * mp.ncdf(-j * mu - t) for j, m in enumerate(masses(pair.down)))


def exact(pair: UsersPair, epsilon: float) -> mpf:
    """δ(ε), the threshold by bisection."""

    def loss(t: mpf) -> mpf:
        return mp.log(ratio(pair.up, pair.mu, t)) - mp.log(ratio(pair.down, pair.mu, -t))

    low, high = mpf(-60), mpf(60) + 60 * pair.mu
    if loss(high) < epsilon:
        return mpf(0)
    for _ in range(150):
        middle = (low + high) / 2
        low, high = (middle, high) if loss(middle) < epsilon else (low, middle)
    p, q = both(pair, low)
    return p - mp.exp(mpf(epsilon)) * q


PAIRS = [
    UsersPair(1.0, Counts(8, 0.01, 8), None),
    UsersPair(1.0, None, Counts(8, 0.01, 8)),
    UsersPair(0.3, Counts(5, 0.2, 5), Counts(3, 0.2, 3)),
    UsersPair(2.0, Counts(20, 0.1, 3), None),
    UsersPair(0.7, Counts(20, 0.1, 4), Counts(20, 0.1, 4)),
    UsersPair(0.01, Counts(30, 1e-6, 30), None),
    UsersPair(0.5, Counts(40, 0.1, 2), None),  # w has zeros that are not real
    UsersPair(0.5, None, Counts(40, 0.1, 2)),
    UsersPair(0.1, Counts(200, 0.1, 12), None),
]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_profiles(pair: UsersPair) -> None:
    losses = np.array([0.0, 1e-9, 0.01, 0.08, 0.5, 1.0, 4.0, 20.0])
    delta, _, error = pair.profile(losses)
    with mp.workdps(40):
        for epsilon, value, off in zip(losses.tolist(), delta, error, strict=True):
            truth = exact(pair, epsilon)
            assert abs(mpf(float(value)) - truth) <= off
            assert off <= 1e-9 * truth + 1e-13


@pytest.mark.parametrize("off", [-1e-2, -1e-6, 1e-2])
def test_a_threshold_beside_the_best_is_paid_for(off: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any event is a test: what it misses is in the error, on either side."""
    near = gaussian_mixture._thresholds
    monkeypatch.setattr(gaussian_mixture, "_thresholds", lambda pair, epsilon: near(pair, epsilon) + off)
    for pair in PAIRS[:4]:
        delta, _, error = pair.profile(np.array([0.05, 1.0]))
        with mp.workdps(40):
            for epsilon, value, missed in zip((0.05, 1.0), delta, error, strict=True):
                assert abs(mpf(float(value)) - exact(pair, epsilon)) <= missed


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_transforms(pair: UsersPair) -> None:
    """M(c + iu) by a trapezoid sum in 25 digits on the real line, within the bounds; and the bound of its decay."""
    prepared = pair.transform.prepare(3.0, 1, -60.0, cut=False)
    with mp.workdps(25):
        step = mpf(1) / 12
        points = [
            step * k for k in range(-14 * 12, round((14 + 4 * pair.mu * (pair.up.largest if pair.up else 0)) * 12))
        ]
        up = [mp.log(ratio(pair.up, pair.mu, t)) for t in points]
        loss = [a - mp.log(ratio(pair.down, pair.mu, -t)) for a, t in zip(up, points, strict=True)]
        weights = [mp.log(step * mp.npdf(t)) + a for a, t in zip(up, points, strict=True)]

        def moment(s: mp.mpc) -> mp.mpc:
            return mp.fsum(mp.exp(w + s * x) for w, x in zip(weights, loss, strict=True))

        for c in (0.7, 3.0):
            value, error = prepared.log_real(np.array([c]))
            truth = moment(mpf(c))
            assert abs(mpf(float(value[0])) - mp.log(truth)) <= error[0] + 1e-18
            assert error[0] <= 1e-9
            log_m, slack = prepared.log_nodes(c, 2.5, 3)
            for k in (1, 2):
                at, found = moment(mp.mpc(c, 2.5 * k)) / truth, mp.exp(mp.mpc(complex(log_m[k])))
                assert abs(found - at) <= math.expm1(slack[k]) * abs(found)
                assert math.log(float(abs(at))) <= prepared.log_decay(c, np.array([2.5 * k]))[0] + 1e-12


def steps_of(law: list[float], mu: float, sign: int, steps: int) -> NDArray[np.float64]:
    """Masses of the mixture, ``steps`` times."""
    t = np.linspace(-9 - 3 * mu, 9 + 3 * mu, 601 if steps == 2 else 8001)
    density = sum(w * np.exp(-0.5 * (t - sign * j * mu) ** 2) for j, w in enumerate(law))
    one = np.asarray(density) * (t[1] - t[0]) / math.sqrt(2 * math.pi)
    return one if steps == 1 else np.outer(one, one)


def binomial(k: int, q: float, most: int | None = None) -> list[float]:
    law = [math.comb(k, j) * q**j * (1 - q) ** (k - j) for j in range(k + 1)]
    return law if most is None else [*law[:most], sum(law[most:])]


@pytest.mark.parametrize(
    ("rate", "records", "sigma", "steps"), [(0.3, 2, 1.0, 1), (0.05, 3, 0.8, 1), (0.5, 3, 2.0, 1), (0.3, 2, 1.0, 2)]
)
def test_groups_by_quadrature(rate: float, records: int, sigma: float, steps: int) -> None:
    """Removed, added and mixed: the worst of these is what is answered, from both sides."""
    run = pc.PoissonSampled(pc.Gaussian(sigma), rate) * steps
    for relation in pc.Relation:
        ways = [(records, records)] if relation is pc.REPLACE_ONE else [(i, records - i) for i in range(records + 1)]
        for epsilon in (0.0, 0.4, 1.5)[::steps]:
            truth = 0.0
            for up, down in ways:
                p, q = (steps_of(binomial(n, rate), 1 / sigma, sign, steps) for n, sign in ((up, 1), (down, -1)))
                truth = max(
                    truth, *(float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in ((p, q), (q, p)))
                )
            found = run.delta(epsilon=epsilon, relation=relation, group_size=records)
            assert found.lower * (1 - 2e-3) - 1e-6 <= truth <= found.upper * (1 + 2e-3) + 1e-6
            assert found.width <= 1e-6 * found.upper


@pytest.mark.parametrize("most", [1, 2])
def test_capped_persons_by_quadrature(most: int) -> None:
    """At most ``most`` of three sampled records count."""
    run = pc.UserSampled(pc.Gaussian(1.0), 0.2, records=3, counted=most) * 2
    p, q = steps_of(binomial(3, 0.2, most), 1.0, 1, 2), steps_of([1.0], 1.0, 1, 2)
    for epsilon in (0.1, 1.0):
        truth = max(float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in ((p, q), (q, p)))
        found = run.delta(epsilon=epsilon)
        assert found.lower * (1 - 2e-3) <= truth <= found.upper * (1 + 2e-3)


def test_what_others_print() -> None:
    """dp-accounting's mixture of Gaussians says 23.08 for eight records, 2.983 for three (removed, pessimistic)."""
    eight = (pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 1000).epsilon(delta=1e-6, group_size=8)
    assert f"{eight.upper:.2f}" == "23.08"
    assert eight.width <= 1e-9 * eight.upper
    three = (pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 100).epsilon(delta=1e-6, group_size=3)
    assert f"{three.upper:.3f}" == "2.983"


def test_a_group_that_rarely_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """dp-accounting's mixture says 1.75341: six digits with no lattice (wider here), nor for mixed groups beside it."""
    monkeypatch.setattr(lattice, "invert", lambda *_: pytest.fail("a lattice"))
    run = pc.PoissonSampled(pc.Gaussian(1.0), 0.001) * 1000
    found = run.epsilon(delta=1e-6, group_size=8)
    assert found.upper == pytest.approx(1.75341, rel=1e-5)
    assert found.width <= 1e-6 * found.upper
    at = run.delta(epsilon=1.75341, group_size=8)
    assert at.upper == pytest.approx(1e-6, rel=2e-4)
    assert at.width <= 1e-6 * at.upper


@settings(max_examples=12 if SLOW else 6)
@given(st.floats(0.5, 20.0), st.floats(1e-3, 0.5), st.integers(20, 2000), st.sampled_from(list(pc.Relation)))
def test_one_record_is_poisson_sampling(noise: float, rate: float, steps: int, relation: pc.Relation) -> None:
    """The mixture of two is on the sampled Gaussian's own code; so is a person of whom one record counts."""
    plain = (pc.PoissonSampled(pc.Gaussian(noise), rate) * steps).epsilon(delta=1e-6, relation=relation)
    one = (pc.UserSampled(pc.Gaussian(noise), rate, records=1) * steps).epsilon(delta=1e-6, relation=relation)
    assert one.lower <= plain.upper
    assert plain.lower <= one.upper
    some = pc.PoissonSampled(pc.Gaussian(noise), 1 - (1 - rate) ** 3) * steps
    counted = pc.UserSampled(pc.Gaussian(noise), rate, records=3, counted=1) * steps
    a, b = (run.epsilon(delta=1e-6, relation=relation) for run in (some, counted))
    assert a.upper == pytest.approx(b.upper, rel=1e-6)


@settings(max_examples=10 if SLOW else 5)
@given(st.floats(0.5, 20.0), st.floats(1e-3, 0.5), st.integers(20, 1000), st.integers(2, 9))
def test_persons_are_no_worse_than_groups(noise: float, rate: float, steps: int, records: int) -> None:
    """A person is a group that is not mixed; a cap helps, and a person sampled as one with all records costs more."""
    run = pc.PoissonSampled(pc.Gaussian(noise), rate) * steps
    group = run.epsilon(delta=1e-5, group_size=records)
    person = (pc.UserSampled(pc.Gaussian(noise), rate, records) * steps).epsilon(delta=1e-5)
    capped = (pc.UserSampled(pc.Gaussian(noise), rate, records, counted=records - 1) * steps).epsilon(delta=1e-5)
    assert person.lower <= group.upper
    assert capped.lower <= person.upper
    assert person.lower <= (pc.PoissonSampled(pc.Gaussian(noise / records), rate) * steps).epsilon(delta=1e-5).upper
    assert run.epsilon(delta=1e-5).lower <= person.upper


@pytest.mark.parametrize("seed", range(5))
def test_vectors_in_the_plane(seed: int) -> None:
    """Two records removed and two added, of any direction and length, coins of each."""
    rng = np.random.default_rng(seed)
    t = np.linspace(-7, 7, 281)
    plane = np.stack(np.meshgrid(t, t), axis=-1)
    rate, mu = 0.3, 0.9

    def mixture(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        total: NDArray[np.float64] = np.zeros(plane.shape[:2])
        for inside in range(2 ** len(vectors)):
            chosen = [v for i, v in enumerate(vectors) if inside >> i & 1]
            weight = rate ** len(chosen) * (1 - rate) ** (len(vectors) - len(chosen))
            total += weight * np.exp(-0.5 * ((plane - sum(chosen, np.zeros(2))) ** 2).sum(axis=-1))
        return np.asarray(total * (t[1] - t[0]) ** 2 / (2 * math.pi))

    angle, norm = rng.uniform(0, 2 * math.pi, 4), mu * rng.choice([1.0, 1.0, 0.5], 4)
    vectors = np.stack([norm * np.cos(angle), norm * np.sin(angle)], axis=-1)
    step = pc.PoissonSampled(pc.Gaussian(1 / mu), rate)
    for up, down, relation, records in (
        (vectors[:2], vectors[:0], pc.ZERO_OUT, 2),
        (vectors[:2], vectors[2:], pc.REPLACE_ONE, 2),
        (vectors[:2], vectors[2:], pc.ADD_OR_REMOVE_ONE, 4),
    ):
        p, q = mixture(up), mixture(down)
        for epsilon in (0.0, 0.3, 1.0, 2.0):
            bound = step.delta(epsilon=epsilon, relation=relation, group_size=records).upper
            assert (
                max(float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in ((p, q), (q, p))) <= bound + 1e-5
            )


def test_every_case_of_a_mixed_group_counts() -> None:
    """At ε = 0, too, where the two orders of one case agree but the cases do not; an enormous group is an interval."""
    run = pc.PoissonSampled(pc.Gaussian(1.0), 0.2) * 3
    found = run.delta(epsilon=0.0, group_size=3)
    for up, down in ((3, None), (2, 1)):
        pair = UsersPair(1.0, Counts(up, 0.2, up), None if down is None else Counts(down, 0.2, down))
        assert Curve(((pair, 3),)).delta(0.0).lower <= found.upper
    for relation, least in ((pc.ADD_OR_REMOVE_ONE, 70), (pc.REPLACE_ONE, 140)):
        asked = Group(70, run._group).sides(relation)
        assert asked is not None
        laws = [(pair.up, pair.down) for ((pair, _),) in asked.upper]  # type: ignore[attr-defined]
        sizes = {tuple(law.records if law else 0 for law in both) for both in laws}
        for i in range(71) if least == 70 else [70]:
            added = least - i
            assert any(up >= i and down >= added for up, down in sizes), (i, added)
    many = (pc.PoissonSampled(pc.Gaussian(30.0), 0.01) * 100).epsilon(delta=1e-6, group_size=35)
    alone = (pc.UserSampled(pc.Gaussian(30.0), 0.01, records=35) * 100).epsilon(delta=1e-6)
    assert many.lower <= alone.upper <= many.upper * (1 + 1e-9)


def test_where_none_takes_part_almost_never() -> None:
    """The chance of none underflows: all in from above, fewer records from below."""
    found = pc.UserSampled(pc.Gaussian(500.0), 0.9, records=1000).epsilon(delta=1e-5)
    fewer = pc.UserSampled(pc.Gaussian(500.0), 0.9, records=200).epsilon(delta=1e-5)
    assert "unsampled" in found.route
    assert fewer.lower <= found.upper
    assert found.upper <= pc.Gaussian(0.5).epsilon(delta=1e-5).upper * (1 + 1e-9)


def test_mixed_runs_and_other_mechanisms() -> None:
    """A run of Gaussians, sampled or not, is exact, also with Laplace noise; where that is sampled, the rule holds."""
    run = pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 200 + pc.Gaussian(8.0)
    found = run.epsilon(delta=1e-6, group_size=3)
    assert found.width <= 1e-8 * found.upper
    assert found.upper >= pc.Gaussian(8.0).epsilon(delta=1e-6, group_size=3).upper
    beside = (run + pc.Laplace(30.0)).epsilon(delta=1e-6, group_size=3)
    assert beside.width <= 1e-8 * beside.upper
    assert beside.lower > found.upper
    chance = pc.PoissonSampled(pc.Laplace(30.0), 0.1)
    assert (run + chance).epsilon(delta=1e-6, group_size=3).route.endswith("group rule")


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("records = 0", {"records": 0}),
        ("records = 1001", {"records": 1001}),
        ("counted = 4", {"records": 3, "counted": 4}),
        ("counted", {"records": 3, "counted": 0}),
        ("rate", {"records": 3, "rate": 0.0}),
        ("not itself sampled", {"records": 3, "mechanism": pc.PoissonSampled(pc.Gaussian(1.0), 0.1)}),
    ],
)
def test_bad_input(message: str, arguments: dict[str, object]) -> None:
    with pytest.raises(pc.PrivcalcError, match=message):
        pc.UserSampled(**({"mechanism": pc.Gaussian(1.0), "rate": 0.1} | arguments))  # type: ignore[arg-type]


def test_other_noise_is_refused_by_name() -> None:
    with pytest.raises(pc.PrivcalcError, match=r"Laplace.*must be Gaussian or GDP in UserSampled"):
        pc.UserSampled(pc.Laplace(1.0), 0.1, records=2).epsilon(delta=1e-5)
