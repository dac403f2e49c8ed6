"""The transform of a sampled Laplace pair: against quadrature in many digits, and what it makes of runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases import quick
from mpmath import mp, mpf

import privcalc as pc
from privcalc.composition.direction import merge
from privcalc.numerics.elementary import fan
from privcalc.numerics.routes import lattice
from privcalc.numerics.sampled_laplace import SampledLaplaceTransform


def moment(of: SampledLaplaceTransform, s: mp.mpc) -> mp.mpc:
    """E w^{s+1}, or E w^{−s}, from the three pieces of the line."""
    a, q, power = mpf(of.a), mpf(of.q), (-s if of.add else s + 1)

    def grown(loss: mpf) -> mp.mpc:
        return (1 + q * mp.expm1(loss)) ** power

    panels = mp.linspace(-a, a, 2 * math.ceil(of.a) + 3)
    inside = mp.quad(lambda loss: mp.exp(-(loss + a) / 2) / 4 * grown(loss), panels)
    return mp.exp(-a) / 2 * grown(a) + grown(-a) / 2 + inside


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize(
    ("a", "q", "c"),
    quick([(1.0, 0.1, 0.5), (1.0, 0.1, 200.0), (1.0, 1e-9, 200.0), (3.0, 0.5, 10.0), (0.01, 0.01, 10.0),
           (12.0, 1e-3, 10.0),
           (1.0, 0.99, 3.0)], 0, 1, 2, 3, 4, 6),
)  # fmt: skip
def test_the_transform_on_the_axis_and_on_a_line(a: float, q: float, c: float, add: bool) -> None:
    transform = SampledLaplaceTransform(a, q, add).prepare(c, 10**6, -80.0, cut=True)
    u = 3.0 / q / max(1.0, math.exp(a - 3))
    with mp.workdps(40):
        real, error = transform.log_real(np.array([c]))
        truth = mp.log(moment(transform, mpf(c)))
        assert abs(mpf(float(real[0])) - truth) <= float(error[0])
        assert float(error[0]) < 1e-8 * (1 + abs(float(truth)))
        nodes = transform.log_nodes(c, u / 3, 4)
        decay = transform.log_decay(c, u / 3 * np.arange(1, 4))
        for k in (1, 3):
            value = moment(transform, mp.mpc(c, k * u / 3)) / mp.exp(mpf(float(real[0])))
            assert abs(value / mp.exp(mp.mpc(complex(nodes.log_m[k]))) - 1) <= math.expm1(float(nodes.slack[k]))
            assert mp.log(abs(value)) <= float(decay[k - 1])
    assert np.all(np.diff(decay) <= 0)


def test_the_decay_bounds_everything_beyond() -> None:
    transform = SampledLaplaceTransform(1.0, 0.1, False)
    u = np.linspace(0.1, 400.0, 4000)
    step = float(u[1] - u[0])
    modulus = transform.log_nodes(2.0, step, 4001).log_m.real[1:]
    bound = transform.log_decay(2.0, step * np.arange(1, 4001))
    assert np.all(modulus <= bound + 1e-12)
    assert np.all(np.diff(bound) <= 0)
    assert bound[-1] < -0.2


@pytest.mark.parametrize(("scale", "rate", "uses"), [(1.0, 0.1, 100), (1.0, 0.01, 1000), (0.3, 0.05, 500)])
def test_both_routes_agree(scale: float, rate: float, uses: int) -> None:
    run = pc.PoissonSampled(pc.Laplace(scale), rate) * uses
    found = run.epsilon(delta=1e-6)
    assert found.upper - found.lower < 1e-7 * found.upper
    for direction in run._sides(pc.ADD_OR_REMOVE_ONE).upper:
        law, _ = lattice.build(list(merge(direction)), delta=1e-6)
        assert law.bounds(found.upper)[0] <= 1e-6
    assert any(
        law.bounds(found.lower)[1] >= 1e-6
        for law, _ in (lattice.build(list(merge(d)), delta=1e-6) for d in run._sides(pc.ADD_OR_REMOVE_ONE).upper)
    )


def test_very_many_uses_are_answered() -> None:
    """Before, all that was known of these was [0, 1718]."""
    found = (pc.PoissonSampled(pc.Laplace(1.0), 1e-9) * 10**12).epsilon(delta=1e-6)
    assert 0.00249 < found.lower <= found.upper < 0.0025
    assert found.upper - found.lower < 1e-6 * found.upper


def _sums(base, log, step, nodes):
    with mp.workdps(40):
        terms = [(mpf(b), mpf(step) * mpf(x)) for b, x in zip(base, log, strict=True)]
        return [complex(mp.fsum(b * mp.expj(int(k) * angle) for b, angle in terms)) for k in nodes]


@pytest.mark.parametrize(("size", "scale"), [(3000, 1.0), (100_000, 0.2), (500, 40.0), (7, 1e-9)])
def test_many_terms_on_a_grid_err_by_no_more_than_a_product(size, scale):
    rng = np.random.default_rng(size)
    base, log, step = rng.random(4500) ** 4 - 0.1, rng.normal(size=4500) * scale, 0.3
    nodes = [0, 1, size // 2, size - 1]
    found, truth = fan(base, log, step, size), _sums(base, log, step, nodes)
    unit, moduli = 2.0**-53, np.abs(base).sum()
    for k, value in zip(nodes, truth, strict=True):
        angles = 8 * unit * k * step * float(np.abs(base) @ np.abs(log))
        assert abs(found[k] - value) <= (2 * base.size + 60) * unit * moduli + angles
