"""Losses with few atoms and a density: each part against quadrature in many digits, and runs of two uses as a whole."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases import quick
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

import privcalc as pc
from privcalc.composition.direction import merge
from privcalc.composition.uses import Uses
from privcalc.numerics.interfaces import RouteFailed, SplitTransform
from privcalc.numerics.routes import apart, lattice
from privcalc.numerics.sampled_laplace import SampledLaplaceTransform
from privcalc.numerics.transforms import LaplaceTransform, middle_profile

KINDS = [
    (1.0, 1.0, False),
    (1.0, 0.1, False),
    (1.0, 0.1, True),
    (0.2, 0.01, False),
    (3.0, 0.01, True),
    (6.0, 1.0, False),
    (4.0, 0.5, True),
]


def transform(a: float, q: float, add: bool) -> SplitTransform:
    return LaplaceTransform(a) if q == 1 else SampledLaplaceTransform(a, q, add)


def loss(x: mpf, q: mpf, add: bool) -> mpf:
    """Of an output whose own loss is x."""
    value = mp.log(1 - q + q * mp.exp(x))
    return -value if add else value


def weight(x: mpf, q: mpf, add: bool) -> mpf:
    """P over the law without the record."""
    return mpf(1) if add else 1 - q + q * mp.exp(x)


def where(epsilon: mpf, a: mpf, q: mpf, add: bool) -> list[mpf]:
    """The ends of the middle, and between them where the loss is ε."""
    inner = 1 + mp.expm1(-epsilon if add else epsilon) / q
    at = mp.log(inner) if inner > 0 else -a
    return [-a, at, a] if -a < at < a else [-a, a]


def profile(epsilon: mpf, a: mpf, q: mpf, add: bool, *, atoms: bool) -> mpf:
    """E (1 − e^{ε − L})_+ by quadrature, with the atoms or without."""

    def gain(x: mpf) -> mpf:
        return weight(x, q, add) * max(0, -mp.expm1(epsilon - loss(x, q, add)))

    total = mp.quad(lambda x: mp.exp(-(x + a) / 2) / 4 * gain(x), where(epsilon, a, q, add))
    return total + (mp.exp(-a) / 2 * gain(a) + gain(-a) / 2 if atoms else 0)


@pytest.mark.parametrize(("a", "q", "add"), KINDS)
def test_profile_of_the_rest(a: float, q: float, add: bool) -> None:
    of = transform(a, q, add)
    low, high = of.points.losses
    epsilon = np.array([low - 2.0, low, low + 1e-9, 0.7 * low, 0.0, 0.3 * high, high - 1e-7, high, high + 0.1])
    with mp.workdps(40):
        for x, value, error in zip(epsilon.tolist(), *of.rest_profile(epsilon), strict=True):
            truth = profile(mpf(x), mpf(a), mpf(q), add, atoms=False)
            assert abs(mpf(float(value)) - truth) <= mpf(float(error))
            assert error <= 1e-12


@pytest.mark.parametrize(("a", "q", "add"), quick(KINDS, 0, 4))
def test_the_two_parts_of_the_transform(a: float, q: float, add: bool) -> None:
    c, step = 7.0 / max(abs(float(x)) for x in transform(a, q, add).points.losses), 30.0
    of = transform(a, q, add).prepare(c, 10, -80.0, cut=False)
    assert isinstance(of, SplitTransform)
    found, bound = of.split_nodes(c, step, 8), of.rest_decay(c, step * np.arange(1, 8))
    assert np.all(np.diff(bound) <= 0)
    with mp.workdps(20):
        scale = mp.exp(mpf(float(of.log_real(np.array([c])).value[0])))
        losses, masses = ([mpf(float(x)) for x in part] for part in of.points[:2])
        for k in (1, 7):
            s = mp.mpc(c, k * step)
            atoms = sum(p * mp.exp(s * x) for x, p in zip(losses, masses, strict=True)) / scale
            panels = mp.linspace(-a, a, 24)
            rest = mp.quad(
                lambda x: mp.exp(-(x + a) / 2) / 4 * weight(x, mpf(q), add) * mp.exp(s * loss(x, mpf(q), add)), panels
            )
            assert abs(mp.mpc(complex(found.atoms[k])) - atoms) <= 3 * found.error[k]
            assert abs(mp.mpc(complex(found.rest[k])) - rest / scale) <= found.error[k]
            assert abs(rest / scale) <= float(bound[k - 1])
    assert np.all(found.error < 1e-10)


def two_uses(epsilon: float, first: tuple[float, float, bool], second: tuple[float, float, bool]) -> mpf:
    """δ of two uses of any two kinds, by quadrature over the first one's output."""
    a, q, add = mpf(first[0]), mpf(first[1]), first[2]

    def rest(x: mpf) -> mpf:
        return weight(x, q, add) * profile(
            mpf(epsilon) - loss(x, q, add), mpf(second[0]), mpf(second[1]), second[2], atoms=True
        )

    bends = {-a, a}
    for end in (-second[0], second[0]):
        bends.update(where(mpf(epsilon) - loss(mpf(end), mpf(second[1]), second[2]), a, q, add))
    middle = mp.quad(lambda x: mp.exp(-(x + a) / 2) / 4 * rest(x), sorted(bends), maxdegree=5)
    return middle + mp.exp(-a) / 2 * rest(a) + rest(-a) / 2


@pytest.mark.parametrize(
    ("first", "second", "share"),
    quick(
        [
            ((1.0, 1.0, False), (1.0, 1.0, False), 0.6),
            ((1.0, 0.01, False), (1.0, 0.01, False), 0.7),
            ((1.0, 0.1, True), (1.0, 0.1, True), 0.3),
            ((2.0, 1.0, False), (0.5, 0.2, False), 0.9),
            ((3.0, 0.05, False), (0.3, 0.5, False), 0.2),
        ],
        *(1, 3),
    ),
)
def test_two_uses(first: tuple[float, float, bool], second: tuple[float, float, bool], share: float) -> None:
    ofs = [transform(*first), transform(*second)]
    epsilon = share * sum(float(of.points.losses[1]) for of in ofs)
    entries = [(ofs[0], 2)] if first == second else [(of, 1) for of in ofs]
    built, _ = apart.build(entries, epsilon=epsilon)
    low, high = built.bounds(epsilon)
    with mp.workdps(15):
        truth = float(two_uses(epsilon, first, second))
    assert low * (1 - 1e-11) <= truth <= high * (1 + 1e-11)
    assert high - low < 1e-6 * high


def test_beyond_the_largest_loss() -> None:
    """The upper end was negative there."""
    run = (
        pc.Laplace(0.7763615838582174) * 7 + pc.PoissonSampled(pc.Laplace(0.43580311629824187), 0.04457322147657841) * 2
    )
    for direction in run._sides(pc.ADD_OR_REMOVE_ONE).upper:
        uses = Uses(direction)
        built, _ = apart.build(uses.transforms or [], delta=6.5e-12)
        for epsilon in (uses.top, uses.top + 1e-9, 1.1 * uses.top):
            low, high = built.bounds(epsilon)
            assert 0 <= low <= high < 1e-12


@pytest.mark.slow
@given(
    a=st.floats(0.01, 3.0),
    q=st.floats(1e-3, 1.0),
    count=st.integers(2, 8),
    log_delta=st.floats(-12.0, -1.5),
    beside=st.integers(0, 3),
)
def test_the_lattice_agrees(a: float, q: float, count: int, log_delta: float, beside: int) -> None:
    part = pc.Laplace(1 / a) if q == 1 else pc.PoissonSampled(pc.Laplace(1 / a), q)
    run = part * count + pc.Laplace(1.5) * beside
    for direction in run._sides(pc.ADD_OR_REMOVE_ONE).upper:
        try:
            built, epsilon = apart.build(Uses(direction).transforms or [], delta=10**log_delta)
            law, _ = lattice.build(list(merge(direction)), delta=10**log_delta)
        except RouteFailed:
            continue
        for x in (0.98 * epsilon, epsilon, 1.02 * epsilon):
            (low, high), (least, most) = built.bounds(x), law.bounds(x)
            assert 0 <= low <= most
            assert least <= high


@pytest.mark.parametrize(
    ("scale", "rate", "uses"),
    quick([(1.0, 1.0, 3), (0.5, 1.0, 3), (1.0, 0.01, 2), (1.0, 0.01, 10), (1.0, 0.1, 10), (5.0, 0.5, 30)], 0, 3, 4),
)
def test_nine_digits(scale: float, rate: float, uses: int) -> None:
    """Were 1e-5 wide; peers were tighter by 1e-9 and, under replace-one, 4e-7."""
    part = pc.Laplace(scale) if rate == 1 else pc.PoissonSampled(pc.Laplace(scale), rate)
    found = (part * uses).epsilon(delta=1e-5)
    assert found.upper - found.lower < 1e-9 * found.upper
    if uses == 3:  # by the largest loss: P(all three at the top) = 1/8, and what is next to it
        assert found.upper == pytest.approx(3 / scale + math.log1p(-8e-5), abs=1e-3)


def test_a_part_left_out_would_be_seen() -> None:
    """Planted: the rest alone, or without the first-order term, is no bound of two uses."""
    built, _ = apart.build([(LaplaceTransform(1.0), 2)], epsilon=1.2)
    high = built.bounds(1.2)[1]
    parts = [built.atoms.bounds(1.2)[0], built.rest.bounds(1.2)[0]]
    value = middle_profile(1.0, 1.0, 1.2 - built.others[0].losses, add=False)[0]
    parts.append(2 * float(value @ built.others[0].masses))
    assert all(part > 0.01 * high for part in parts)
    assert sum(parts) == pytest.approx(high, rel=1e-9)
