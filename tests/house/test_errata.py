"""The errata: the file is what the command writes, every violation is one, and every witness is computed twice."""

from __future__ import annotations

import ast
import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
from mpmath import mp, mpf  # type: ignore[import-untyped]
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.stats import binom, norm

import privcalc as pc
from proofs.check import ROOT
from proofs.errata import ERRATA, document, witness
from proofs.errata.__main__ import main

HERE = Path(__file__).parent


def value(paper, where, nth=0):
    found = [e for e in ERRATA if e.paper == paper and e.where.startswith(where)]
    return found[nth].values


@pytest.fixture(scope="module")
def page():
    return document()


def test_the_file_is_what_the_command_writes(page, capsys, monkeypatch, tmp_path):
    assert (ROOT / "proofs" / "ERRATA.md").read_text(encoding="utf-8") == page, "run: python -m proofs.errata --write"
    (tmp_path / "proofs").mkdir()
    monkeypatch.setattr("proofs.errata.__main__.ROOT", tmp_path)
    assert main(["--write"]) == 0
    assert (tmp_path / "proofs" / "ERRATA.md").read_text(encoding="utf-8") == page
    assert main([]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(ERRATA)


def test_the_page_says_all_in_short_lines(page):
    """Under the heading of its paper each erratum has an entry with everything that it states."""
    assert max(map(len, page.splitlines())) <= 130
    sections = {text.partition("\n")[0]: text for text in page.split("\n## ")[1:]}
    for paper, section in sections.items():
        entries = re.split(r"\n\d+\. ", section)[1:]
        those = [e for e in ERRATA if e.paper == paper]
        for erratum, entry in zip(those, entries, strict=True):
            lines = re.split(r"\n +\* ", entry.rstrip())
            assert lines[0] == f"**{erratum.severity}**, {erratum.where}"
            assert lines[1:4] == [
                f"printed: {erratum.printed}",
                f"true: {erratum.true}",
                f"witness: {erratum.quantity}",
            ]
            printed, true = re.fullmatch(r"value: (.*) as printed, (.*) in truth", lines[4]).groups()
            for shown, number in zip((printed, true), erratum.values, strict=True):
                number_shown = math.nan if shown == "not defined" else float(shown)
                assert number_shown == pytest.approx(number, rel=1e-3, abs=1e-12, nan_ok=True)
            assert lines[5:] == [f"proof: [{erratum.page}]({erratum.page})", f"test: `{erratum.test}`"]
    assert set(sections) == {e.paper for e in ERRATA}


@pytest.mark.parametrize("erratum", ERRATA, ids=lambda e: f"{e.paper}, {e.where}")
def test_what_is_claimed_is_not_true(erratum):
    printed, true = erratum.values
    assert math.isfinite(true)
    assert printed != pytest.approx(true, rel=0.05)
    assert erratum.severity != "V" or true > 1.05 * printed  # more leaks than is claimed
    assert (ROOT / "proofs" / erratum.page).is_file()
    file, _, function = erratum.test.partition("::")
    names = {
        node.name
        for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    assert function in names, erratum.test


def test_papers_are_all_there():
    assert len(ERRATA) >= 35
    assert {e.paper for e in ERRATA} == {"AdaMix", "DOPE-SGD", "PILLAR", "PDA-DPMD", "DPPL"}
    assert len({(e.paper, e.where, e.printed) for e in ERRATA}) == len(ERRATA)


@pytest.mark.parametrize(("mu", "epsilon"), [(0.05, 0.16), (0.72, 3.0), (3.0, 0.0), (8.0, 40.0)])
def test_closed_forms_of_the_witnesses(mu, epsilon):
    with mp.workdps(40):
        m, e = mpf(mu), mpf(epsilon)
        true = mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)
    assert witness.gdp_delta(mu, epsilon) == pytest.approx(float(true), rel=1e-10)
    if epsilon:
        assert witness.gdp_epsilon(mu, float(true)) == pytest.approx(epsilon, rel=1e-8)


@pytest.mark.parametrize(("shift", "noise"), [(1.0, 1.1), (1.75, 1.1), (2.0, 1.1)])
def test_witnesses_of_sampled_steps(shift, noise):
    """The engine and the errata share no code."""
    found = witness.worse_epsilon(witness.sampled(0.2, shift), witness.NOBODY, noise)
    engine = pc.PoissonSampled(pc.Gaussian(noise / shift), 0.2).epsilon(delta=1e-5)
    assert engine.lower * (1 - 1e-4) <= found <= engine.upper


def test_theorem_3():
    dimension, lipschitz, rho, distance = 100, 1.0, 0.3, 2.0

    def bound(scale):
        return dimension * lipschitz**2 / (scale * rho) + scale * distance**2 / 2

    best = minimize_scalar(bound, bracket=(1.0, 30.0))
    assert best.x == pytest.approx(math.sqrt(2 * dimension * lipschitz**2 / (rho * distance**2)), rel=1e-6)
    printed = math.sqrt(rho / (2 * distance * dimension * lipschitz**2))
    assert value("AdaMix", "Theorem 3, λ") == pytest.approx((bound(printed), best.fun))
    assert value("AdaMix", "Theorem 3, second") == pytest.approx((best.fun / 2, best.fun))
    w = np.random.default_rng(0).uniform(-1, 1, (100_000, 2))  # w and w_ref in [−B, B]
    assert value("AdaMix", "Theorem 3, first") == pytest.approx((1.0, np.abs(w[:, 0] - w[:, 1]).max()), rel=0.01)


def test_rank():
    """Rows of residuals sum to zero: the vector of ones is in the kernel, whatever the records."""
    rng = np.random.default_rng(1)
    for classes, dimension, records in ((10, 64, 500), (10, 5, 500), (10, 64, 3)):
        p = rng.dirichlet(np.ones(classes), records) - np.eye(classes)[rng.integers(0, classes, records)]
        matrix = rng.standard_normal((dimension, records)) @ p
        assert np.abs(matrix @ np.ones(classes)).max() < 1e-12
        least = min(dimension, classes - 1, records)
        assert (np.linalg.svd(matrix)[1] > 1e-9).sum() == least
        assert witness.softmax_rank(classes, dimension, records) == least
    assert value("AdaMix", "Projection")[1] == 9


def test_values_that_are_not_defined():
    for paper, where in (("AdaMix", "Algorithm 2: clip"), ("DPPL", "Cosine")):
        printed, true = value(paper, where)
        assert math.isnan(printed)
        assert true == 0
    assert value("DPPL", "Algorithm 1: clip") == (min(max(1.3, 1.5), 0.5), max(min(1.3, 1.5), 0.5))
    assert value("PDA-DPMD", "α_t")[0] == -1
    assert value("PDA-DPMD", "α_t")[1] == pytest.approx(0, abs=1e-15)
    assert value("PDA-DPMD", "Algorithm 1, line 3") == pytest.approx((20 * 0.5, 1 - 0.5**20))


def test_algorithm_3_without_decay():
    """The minimum of (w − 1)²/2 + w²/2 is at 1/2, that of (w − 1)²/2 at 1."""
    assert value("AdaMix", "Algorithm 3") == pytest.approx((1.0, 0.5), abs=1e-3)


def test_clipped_field():
    """c·r/‖r‖ has the Jacobian c(I/‖r‖ − rrᵀ/‖r‖³)(diag p − ppᵀ), which is not symmetric."""
    z = np.array([0.0, 1.0, -1.0])
    p = np.exp(z) / np.exp(z).sum()
    r = p - np.array([1.0, 0.0, 0.0])
    size = np.linalg.norm(r)
    jacobian = 0.5 * (np.eye(3) / size - np.outer(r, r) / size**3) @ (np.diag(p) - np.outer(p, p))
    assert value("AdaMix", "Footnote 4")[1] == pytest.approx(np.abs(jacobian - jacobian.T).max(), rel=1e-6)
    assert witness.clipped_curl((0.0, 1.0)) < 1e-9  # two classes


def test_private_rate():
    """Densities: Binomial(10, 5/10) without the record, Binomial(10, 5/11) and its own coin with it, noise 4."""
    claimed, true = value("DOPE-SGD", "Proposition 2, proof")

    def density(x, rate, there):
        k = np.arange(11)
        own = [(1 - rate, 0.0), (rate, -1.0)] if there else [(1.0, 0.0)]
        return sum(w * float(binom.pmf(k, 10, rate) @ norm.pdf(x, k + shift, 4.0)) for w, shift in own)

    found = []
    for order in (1, -1):
        laws = [(5 / 11, True), (0.5, False)][::order]
        gain = lambda x, laws=laws: max(0.0, density(x, *laws[0]) - math.exp(true) * density(x, *laws[1]))  # noqa: E731
        found.append(quad(gain, -60, 70, limit=400, epsabs=1e-9)[0])
    assert max(found) == pytest.approx(1e-3, rel=1e-3)
    engine = pc.PoissonSampled(pc.Gaussian(4.0), 0.5).epsilon(delta=1e-3)
    assert claimed == pytest.approx(engine.upper, rel=1e-3)


def test_gain_of_concentration():
    printed, true = value("DOPE-SGD", "Proposition 4")
    assert true == pytest.approx(pc.Gaussian(2.0).epsilon(delta=1e-5).upper)
    assert printed == pytest.approx(pc.Gaussian(8.0).epsilon(delta=1e-5).upper)


def test_proof_of_proposition_4():
    steps, delta = 1000, 1e-5
    each = math.sqrt(2 * math.log(1.25 / (delta / (2 * steps))))  # ε' in units of r/σ
    total = 4 * each * math.sqrt(2 * steps * math.log(1 / (delta / 2)))
    assert value("DOPE-SGD", "Proposition 4, proof", 1) == pytest.approx((total / math.sqrt(2), total))
    steps, records = 100_000, 50_000
    assert value("DOPE-SGD", "Proposition 4, proof")[1] == pytest.approx(
        (steps * delta / (2 * records) + delta / 2) / delta
    )


@pytest.mark.parametrize(("runs", "epsilon"), [(1, 1.0), (3, 0.5), (10, 1.0), (3360, 1.0)])
def test_best_of(runs, epsilon):
    """All pairs (p, q) that ε-DP allows for "this run is not good", on a grid; none is good with p^k, q^k."""
    delta, found = 1e-5, witness.best_of(runs, epsilon)
    best = -math.inf
    for log_p in -np.geomspace(1e-7, 11.0 / runs, 20_000):
        p = math.exp(log_p)
        for q in (1 + math.exp(epsilon) * math.expm1(log_p), p * math.exp(-epsilon)):
            if (
                p <= math.exp(epsilon) * q * (1 + 1e-12)
                and 1 - q <= math.exp(epsilon) * (1 - p) * (1 + 1e-12)
                and p**runs > delta
            ):
                best = max(best, math.log((p**runs - delta) / q**runs))
    assert found == pytest.approx(best, rel=1e-3)
    assert found <= runs * epsilon


def test_definition_1():
    """The noise that add-or-remove-one needs for ε = 1, under replace-one."""
    noise = pc.noise_multiplier(epsilon=1.0, delta=1e-5, steps=1)
    found = pc.Gaussian(noise).epsilon(delta=1e-5, relation=pc.REPLACE_ONE)
    assert value("PILLAR", "Definition 1")[1] == pytest.approx(found.upper, rel=1e-6)


def test_range_of_the_hinge_loss():
    rng = np.random.default_rng(2)
    for size, nth in ((1.0, 0), (10.0, 1)):
        w, x = rng.standard_normal((2, 200_000, 2))
        w, x = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (w, x))
        losses = np.maximum(1 - size * (w * x).sum(axis=1) / 0.5, 0)
        assert value("PILLAR", "Algorithm 2, ΔU")[nth] == pytest.approx(losses.max() - losses.min(), rel=1e-3)


def test_best_of_few_runs():
    runs = math.ceil(math.log(1 / 0.01))
    outcomes = list(itertools.product((0.0, 2.0), repeat=runs))  # excess risk, mean 1
    assert value("PILLAR", "Algorithm 2, best of")[1] == np.mean([min(outcome) > 1 for outcome in outcomes])


def test_centred_components():
    x = np.array([[10.0, y] for y in (-2.0, -1.0, 1.0, 2.0)])
    first = [np.linalg.eigh(m)[1][:, -1] for m in (x.T @ x, np.cov(x.T))]
    assert value("PILLAR", "Algorithm 1")[1] == pytest.approx(abs(first[0] @ first[1]), abs=1e-12)


@pytest.mark.parametrize(("n", "coordinates"), [(50, 1280), (30, 200)])
def test_scale_leak(n, coordinates):
    """Σx² is Gamma; in 40 digits."""
    found = witness.scale_leak(n, coordinates)
    with mp.workdps(40):
        half, ratio = mpf(coordinates) / 2, mpf(n + 1) / n

        def cdf(x):
            return mp.gammainc(half, 0, x / 2, regularized=True)

        def edge(e):
            return 2 * (coordinates * mp.log(ratio) - e) / (ratio**2 - 1)

        e = mpf(found[0])
        small = cdf(ratio**2 * edge(e)) - mp.exp(e) * cdf(edge(e))
        e = mpf(found[1])
        large = (1 - cdf(edge(-e))) - mp.exp(e) * (1 - cdf(ratio**2 * edge(-e)))
    assert float(small) == pytest.approx(1e-5, rel=1e-6)
    assert float(large) == pytest.approx(1e-5, rel=1e-6)
    # With many coordinates the loss is nearly normal, μ² = 2d/n².
    assert max(witness.scale_leak(1000, 10**6)) == pytest.approx(witness.gdp_epsilon(math.sqrt(2)), rel=0.01)


def test_empty_classes():
    """The classes that get a prototype are the output's keys: two disjoint supports."""
    keys = [frozenset(labels) for labels in ([0, 1], [0])]
    outcomes = set(keys)
    p, q = ([float(outcome == key) for outcome in outcomes] for key in keys)
    assert value("DPPL", "Algorithm 1: return") == (
        0.0,
        sum(max(0.0, a - math.exp(50) * b) for a, b in zip(p, q, strict=True)),
    )


def test_projection_layer():
    """The loss itself, differentiated by central differences at a = 1."""

    def loss(a, x, centres):
        logits = -(a**2) * (centres - x) ** 2
        return -logits[0] + math.log(np.exp(logits - logits.max()).sum()) + logits.max()

    sums = []
    for mean in (-1.0, -30.5):
        slopes = [
            (loss(1 + 1e-6, x, np.array([mean, 1.0])) - loss(1 - 1e-6, x, np.array([mean, 1.0]))) / 2e-6
            for x in np.linspace(-1.2, -0.8, 20)
        ]
        sums.append(float(np.clip(slopes, -1, 1).sum()))
    assert value("DPPL", "C.5")[1] == pytest.approx(abs(sums[1] - sums[0]), abs=1e-4)
