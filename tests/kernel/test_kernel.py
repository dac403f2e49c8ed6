"""The kernel of whole numbers: against 80-digit numbers, exact fractions and the engine; attacked with odd settings."""

import ast
import math
import sys
from fractions import Fraction
from pathlib import Path

import mpmath as mp
import pytest
from cases import SLOW
from hypothesis import example, given, settings
from hypothesis import strategies as st

import privcalc as pc
from privcalc import kernel
from privcalc.cli import main as command
from privcalc.kernel import curve
from privcalc.kernel import tables as fixed
from privcalc.kernel.curve import Curve, Settings
from privcalc.kernel.tables import tables
from privcalc.serial import run_to_json

SAMPLED = pc.PoissonSampled(pc.Gaussian(noise_multiplier=1.0), rate=0.01)


def composed(run, delta=1e-5, most=256):
    return kernel.composed(kernel.read(run_to_json(run), "add-or-remove-one"), delta, most=most)


def test_it_imports_the_standard_library_only():
    for path in Path(kernel.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert all(name.split(".")[0] in sys.stdlib_module_names or "kernel" in name for name in names)


@given(st.integers(40, 400), st.floats(-25, 25), st.integers(1, 10**40), st.integers(1, 10**40))
@example(64, 0.0, 1, 1)
@example(300, -24.9, 10**40, 1)
def test_enclosures_hold(bits, t, num, den):
    with mp.workdps(260):
        unit, whole = mp.mpf(2) ** bits, int(Fraction(t) * 2**bits)
        at = mp.mpf(whole) / unit
        for (low, high), true, width in [
            (fixed.log(num, den, bits), mp.log(mp.mpf(num) / den), 1e6),
            (fixed.normal(whole, bits), mp.ncdf(at), 30),
            (fixed.density(whole, bits), mp.exp(-at * at / 2), 1e6),
            (fixed.root(bits), 1 / mp.sqrt(2 * mp.pi), 4),
        ]:
            assert low <= true * unit <= high
            assert high - low <= width


@pytest.mark.parametrize(("sigma", "rate"), [(1.0, 1.0), (0.3, 1.0), (1.0, 0.01), (0.5, 0.9), (4.0, 1e-6), (30.0, 0.5)])
def test_tables_are_above_the_truth(sigma, rate):
    s = Settings(bits=100, grid=5, cut=1 << 60, most=1000)
    sides = tables(s, Fraction(sigma), Fraction(rate))

    def removed(gamma):
        inner = (gamma - 1 + mp.mpf(rate)) / rate
        if inner <= 0:
            return 1 - gamma
        a = 1 / mp.mpf(2 * sigma) - sigma * mp.log(inner)
        return rate * (mp.ncdf(a) - inner * mp.ncdf(a - 1 / mp.mpf(sigma)))

    with mp.workdps(80):
        x = 1 + mp.mpf(2) ** -5
        for (low, table), delta in zip(sides, [removed, lambda g: 1 - g + g * removed(1 / g)], strict=True):
            for i, found in enumerate(table):
                true = delta(x ** (low + i)) * 2**100
                assert true - 1e-6 <= found <= true + 3


def line(c, u, v, s):
    """F(u, v) in exact fractions."""
    x = Fraction((1 << s.grid) + 1, 1 << s.grid) ** 2**c.level
    return (sum(w * max(u - v / x ** (c.low + i), 0) for i, w in enumerate(c.mass)) + c.leak * u) / Fraction(
        1 << s.bits
    )


CURVES = st.builds(
    Curve,
    st.integers(0, 1),
    st.integers(-6, 6),
    st.lists(st.integers(0, 1 << 20), min_size=1, max_size=9).map(tuple),
    st.integers(0, 1 << 12),
)


@given(CURVES, CURVES, st.fractions(0, 3), st.fractions(0, 3), st.integers(0, 1 << 21))
def test_operations_dominate(a, b, u, v, cut):
    s = Settings(bits=20, grid=3, cut=cut, most=4)
    assert curve.convolution(a.mass, b.mass) == [
        sum(a.mass[j] * b.mass[i - j] for j in range(len(a.mass)) if 0 <= i - j < len(b.mass))
        for i in range(len(a.mass) + len(b.mass) - 1)
    ]
    for made in (curve.trim(s, a), curve.coarsen(s, a)):
        assert line(made, u, v, s) >= line(a, u, v, s)
    x, both = Fraction(9, 8) ** 2**a.level, curve.product(s, a, b)
    outcomes = [(Fraction(a.leak), Fraction(0)), *((Fraction(w), w / x ** (a.low + i)) for i, w in enumerate(a.mass))]
    assert line(both, u, v, s) >= sum(line(b, u * p, v * q, s) for p, q in outcomes) / (1 << s.bits)


def test_coarser_grids_lose_no_mass_and_little_else():
    s = Settings(bits=60, grid=6, cut=0, most=100)
    fine = Curve(0, -5, tuple(1 << 50 for _ in range(11)), 0)
    coarse = curve.coarsen(s, fine)
    assert 0 <= sum(coarse.mass) - sum(fine.mass) <= 11
    assert line(coarse, 1, 1, s) < line(fine, 1, 1, s) * Fraction(105, 100)


@pytest.mark.parametrize(
    ("run", "delta", "width"),
    [
        (pc.Gaussian(noise_multiplier=4.0) * 10, 1e-5, 0.02),
        (SAMPLED * 1000, 1e-5, 0.03),
        (SAMPLED * 3 + pc.Gaussian(noise_multiplier=2.0) + pc.Gaussian(noise_multiplier=3.0) * 2, 1e-6, 0.02),
        (pc.PoissonSampled(pc.Gaussian(noise_multiplier=5.0), rate=0.9) * 77, 1e-30, 0.03),
        pytest.param(pc.Gaussian(noise_multiplier=0.1) * 1, 1e-5, 0.05, marks=pytest.mark.slow),
        pytest.param(pc.Gaussian(noise_multiplier=4.0) * 1, 1e-50, 0.05, marks=pytest.mark.slow),
        (pc.PoissonSampled(pc.Gaussian(noise_multiplier=100.0), rate=1e-9) * 10**9, 1e-5, 9.0),
    ],
)
def test_never_below_the_engine(run, delta, width):
    found, true = composed(run, delta, most=512).epsilon(delta), run.epsilon(delta=delta)
    assert true.lower <= found <= true.upper * (1 + width) + 0.02 * width


@given(
    st.integers(30, 120),
    st.integers(2, 9 if SLOW else 6),
    st.integers(0, 1 << 20),
    st.integers(2, 60),
    st.integers(1, 9),
    st.booleans(),
)
@settings(max_examples=300 if SLOW else 3)
def test_any_settings_are_safe(bits, grid, cut, most, count, sampled):
    """The window, the cut and the number of masses are choices: bad ones are wide, and none is wrong."""
    run = (SAMPLED if sampled else pc.Gaussian(noise_multiplier=2.0)) * count
    s = Settings(bits, min(grid, bits), cut, most)
    ((sigma, rate, _),) = kernel.read(run_to_json(run), "add-or-remove-one")
    exact = run.delta(epsilon=0.5).lower
    worst = 0
    for low, table in tables(s, sigma, rate):
        found = curve.composed(s, [(low, table, count)])
        n = next(n for n in range(10**4, -1, -1) if n * math.log1p(2.0**-s.grid) * 2**found.level <= 0.5)
        assert not curve.reaches(s, found, n + 1, int(Fraction(1, 2) * (1 << bits)))
        worst = max(worst, curve.delta(s, found, n))
    assert worst / (1 << bits) >= exact


def test_composing_more_or_at_a_smaller_delta_costs_more():
    few, many = (composed(SAMPLED * count) for count in (100, 200))
    assert few.epsilon(1e-5) < many.epsilon(1e-5) < many.epsilon(1e-6)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (pc.Laplace(scale=2.0), "Laplace"),
        (pc.PoissonSampled(pc.Laplace(scale=2.0), rate=0.1), "Laplace"),
        (pc.Gaussian(noise_multiplier=1e-2), "out of range"),
        (sum((pc.Gaussian(noise_multiplier=1.0 + i) for i in range(65)), pc.Run()), "65 entries"),
    ],
)
def test_the_rest_is_refused_by_name(run, said):
    with pytest.raises(ValueError, match=said):
        kernel.read(run_to_json(run if isinstance(run, pc.Run) else run * 1), "add-or-remove-one")


def test_other_relations_and_deltas_are_refused():
    run = run_to_json(SAMPLED * 10)
    with pytest.raises(ValueError, match="relation = 'replace-one'"):
        kernel.read(run, "replace-one")
    with pytest.raises(ValueError, match=r"delta = 0\.0"):
        kernel.composed(kernel.read(run, "add-or-remove-one"), 0.0)
    with pytest.raises(ValueError, match="too large for 4 masses"):
        kernel.composed(
            kernel.read(run_to_json(pc.Gaussian(noise_multiplier=0.1) * 1), "add-or-remove-one"), 1e-5, most=4
        )


@pytest.mark.parametrize(
    "change",
    [
        *({"noise_multiplier": value} for value in (math.inf, math.nan, 10**400, "1/0", "4", None, True, 0.05)),
        *({"count": value} for value in (1.5, "3", True, 0, -1, 10**10)),
        {"sensitivity": 5},
        {"mechanism": "x"},
    ],
    ids=str,
)
def test_what_is_malformed_is_a_sentence(change):
    mechanism = {"kind": "Gaussian", "noise_multiplier": change.get("noise_multiplier", 4.0)}
    entry = {"mechanism": mechanism, "count": 1} | {k: v for k, v in change.items() if k != "noise_multiplier"}
    document = {"run": [entry], "relation": "add-or-remove-one", "guarantee": {"delta": 1e-5}}
    assert "nothing is known to them" in kernel.said(document)
    assert "nothing is known to them" in kernel.said({"guarantee": {"delta": "abc"}})


def test_the_command(tmp_path, capsys):
    path, other, coq, described = (tmp_path / name for name in ("a.json", "b.json", "Run.v", "run.json"))
    run = pc.Gaussian(noise_multiplier=4.0) * 10
    pc.certify(run, delta=1e-5).save(path)
    pc.certify(pc.Laplace(scale=2.0) * 2, delta=1e-5).save(other)
    assert command(["verify", str(path), "--kernel"]) == 0
    epsilon = float(capsys.readouterr().out.partition("whole numbers: ε ≤ ")[2].split()[0])
    true = run.epsilon(delta=1e-5)
    assert true.lower <= epsilon < true.upper * 1.03
    assert command(["verify", str(other), "--kernel"]) == 0
    assert "nothing is known to them of this run (Laplace" in capsys.readouterr().out
    described.write_text(
        '{"format": "privcalc run", "version": 1, "relation": "add-or-remove-one", "unit": "one record", '
        '"run": [{"mechanism": {"kind": "Gaussian", "noise_multiplier": 8.0}, "count": 3}]}',
        encoding="utf-8",
    )
    assert command(["certify", str(described), "--delta", "1e-5", "--coq", str(coq)]) == 0, capsys.readouterr()
    assert "Theorem removed" in coq.read_text(encoding="utf-8")
    assert command(["certify", str(other), "--delta", "1e-5", "--coq", str(coq)]) != 0
