"""Every erratum: what is printed, what is true, the page with the proof, and a witness in numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from proofs.errata import witness as w

__all__ = ["ERRATA", "Erratum", "document", "table"]

Severity = Literal["V", "C", "T"]


@dataclass(frozen=True)
class Erratum:
    """One of them.

    Attributes:
        paper: short name.
        severity: V: privacy is violated as printed; C: a constant or a proof is wrong; T: a misprint, or not defined.
        where: in the paper.
        printed: what it says, or leaves out.
        true: what holds.
        quantity: what the witness computes.
        witness: the value that the paper claims (or has as printed), and the true one (of V: a lower bound of it).
        page: the proof page with the true statement.
        test: an independent computation of the same.
    """

    paper: str
    severity: Severity
    where: str
    printed: str
    true: str
    quantity: str
    witness: Callable[[], tuple[float, float]]
    page: str
    test: str

    @cached_property
    def values(self) -> tuple[float, float]:
        """The witness."""
        printed, true = self.witness()
        return float(printed), float(true)


PAPERS = {
    "AdaMix": "Golatkar, Achille, Wang, Roth, Kearns, Soatto 2022, Mixed differential privacy in computer vision",
    "DOPE-SGD": "Nasr, Mahloujifar, Tang, Mittal, Houmansadr 2023, Effectively using public data in privacy preserving "
    "machine learning",
    "PILLAR": "Pinto, Hu, Yang, Sanyal 2024, PILLAR: how to make semi-private learning more effective",
    "PDA-DPMD": "Amid et al. 2022, Public data-assisted mirror descent for private model training",
    "DPPL": "Wahdany, Jagielski, Dziedzic, Boenisch 2024, Beyond the mean: differentially private prototypes for "
    "private transfer learning",
}

_TESTS = "tests/house/test_errata.py::test_"
_PAPERS = "tests/house/test_papers.py::test_"


def _nan() -> float:
    """0/0."""
    with np.errstate(invalid="ignore"):
        return float(np.float64(0.0) / np.float64(0.0))


ERRATA = (
    # --- AdaMix ---
    Erratum("AdaMix", "C", "Propositions 2, 5, 9", "ρ = T²/(2σ²)", "ρ = T/(2σ²), as in Corollary 16 and Algorithm 3",
            "ρ at T = 206, σ = 20", lambda: (206**2 / 800, 206 / 800), "noisy_gd.md", _PAPERS + "adamix_rho"),
    Erratum("AdaMix", "C", "Theorem 3, λ", "λ = √(ρ/(2‖w* − w_ref‖dL²))", "λ = √(2dL²/(ρR²)), R ≥ ‖w* − w_ref‖ public",
            "dL²/(λρ) + λR²/2 at the printed and at the best λ; d = 100, L = 1, R = 2, ρ = 0.3",
            lambda: w.printed_lambda(0.3, 2.0, 100, 1.0), "noisy_gd.md", _TESTS + "theorem_3"),
    Erratum("AdaMix", "C", "Theorem 3, second term; Theorem 18", "√d·L·R/√(2ρ)", "√2·√d·L·R/√ρ, twice as much",
            "the term; same d, L, R, ρ", lambda: (20 / math.sqrt(0.6), w.printed_lambda(0.3, 2.0, 100, 1.0)[1]),
            "noisy_gd.md", _TESTS + "theorem_3"),
    Erratum("AdaMix", "C", "Theorem 3, first term", "‖∇J‖ ≤ NL + λB", "NL + 2λB, unless w_ref = 0",
            "‖∇J − ∇𝓛‖ at w = B, w_ref = −B; λ = B = 1", lambda: (1.0, abs(1.0 - -1.0)), "noisy_gd.md",
            _TESTS + "theorem_3"),
    Erratum("AdaMix", "V", "§3.2, noise", "N(0, σ²τ² I_C), taken literally: one row for all P",
            "P × C independent numbers",
            "δ at ε = 3, σ = 20, T = 206", lambda: (w.gdp_delta(math.sqrt(206) / 20, 3.0), 1.0), "adamix.md",
            "tests/learners/test_learner_attacks.py::noise_for_one_row_only"),
    Erratum("AdaMix", "V", "Proposition 14", "realised gradient norms give a per-instance guarantee",
            "only on an event fixed in advance, or with an individual filter",
            "δ at ε = 0.160: 95 % of runs claim it; 201 steps, σ = 20", lambda: (w.DELTA, w.realised_loss()[1]),
            "audits.md",
            _PAPERS + "adamix_losses_along_the_run_are_no_guarantee"),
    Erratum("AdaMix", "T", "Projection", "onto the top 2000 (500) principal directions of the public gradient",
            "its rank is at most min(D, C − 1, N_pub); the other directions are arbitrary", "rank for ten classes",
            lambda: (2000, w.softmax_rank()), "adamix.md", _TESTS + "rank"),
    Erratum("AdaMix", "T", "Algorithm 2: clip, (g/‖g‖)·min(τ, ‖g‖)", "0/0 at g = 0", "0", "clip(0)",
            lambda: (_nan(), 0.0), "adamix.md",
            _TESTS + "values_that_are_not_defined"),
    Erratum("AdaMix", "T", "Algorithm 3, update", "without λ(w − w_ref)", "with it: its theorem is about J",
            "where 20,000 steps end; loss (w − 1)²/2, λ = 1, w_ref = 0: the minimum of J is 1/2",
            w.without_decay, "noisy_gd.md",
            _TESTS + "algorithm_3_without_decay"),
    Erratum("AdaMix", "C", "Footnote 4", "clipping is a Huberised loss",
            "only if the residual keeps its direction (two classes)",
            "asymmetry of the clipped field's Jacobian; scores (0, 1, −1), clip 0.5", lambda: (0.0, w.clipped_curl()),
            "noisy_gd.md", _TESTS + "clipped_field"),
    # --- DOPE-SGD ---
    Erratum("DOPE-SGD", "V", "Proposition 2", "sensitivity C for |B_t|·ĝ + Σ clip_C(g − ĝ)",
            "C + ‖ĝ‖ with Poisson batches; C if b·ĝ is added",
            "ε at δ = 1e-5; one step, q = 0.2, σ = 1.1, ‖ĝ‖ = 0.75 C",
            lambda: (w.worse_epsilon(w.sampled(0.2, 1.0), w.NOBODY, 1.1),
                     w.worse_epsilon(w.sampled(0.2, 1.75), w.NOBODY, 1.1)),
            "dope.md", _PAPERS + "dope_sgd_schemes"),
    Erratum("DOPE-SGD", "V", "Proposition 2, batches of fixed size", "sensitivity C",
            "2C: another record leaves the batch",
            "ε at δ = 1e-5; one step, q = 0.2, σ = 1.1",
            lambda: (w.worse_epsilon(w.sampled(0.2, 1.0), w.NOBODY, 1.1),
                     w.worse_epsilon(w.sampled(0.2, 2.0), w.NOBODY, 1.1)),
            "fixed_size.md", _PAPERS + "dope_sgd_schemes"),
    Erratum("DOPE-SGD", "V", "Proposition 2, replace-one", "as without ĝ",
            "only if b·ĝ is added: multiples of ĝ show |B_t|",
            "δ at ε = 2; one step, q = 0.3, σ = 0.8, ‖ĝ‖ = 3 C, a record of the other class",
            w.printed_sum_under_replace_one, "dope.md",
            "tests/learners/test_dope.py::test_printed_updates_break_the_claim_ours_do_not"),
    Erratum("DOPE-SGD", "V", "Proposition 2, proof: q = |B|/|D|", "the private |D| sets the rate", "a public rate",
            "ε at δ = 1e-3; one step, 10 records or 11, b = 5, σ = 4", w.private_rate, "dope.md",
            _TESTS + "private_rate"),
    Erratum("DOPE-SGD", "C", "Proposition 4", "a gain of r/𝓛",
            "none in ε: noise scales with C = r, and so does what a record adds",
            "ε at δ = 1e-5, full batch, σ = 2, r = 1/4: μ = r/σ as printed, 1/σ in Algorithm 1",
            lambda: (w.gdp_epsilon(0.25 / 2), w.gdp_epsilon(1 / 2)), "dope.md", _TESTS + "gain_of_concentration"),
    Erratum("DOPE-SGD", "C", "Proposition 4, proof", "δ' = δ/2n", "δ' = δ/2T",
            "Tδ' + δ̂ over δ; T = 100,000 steps, n = 50,000",
            lambda: (1.0, w.composition_constant()), "dope.md", _TESTS + "proof_of_proposition_4"),
    Erratum("DOPE-SGD", "C", "Proposition 4, proof",
            "4√(2T ln(2.5T/δ) ln(2/δ))·qr/σ (its second logarithm stands outside the root)",
            "√2 times that", "in units of qr/σ; T = 1000, δ = 1e-5", w.dropped_root, "dope.md",
            _TESTS + "proof_of_proposition_4"),
    Erratum("DOPE-SGD", "V", "Experiments", "3360 configurations tried on private data, not accounted",
            "account for the choice, or declare it",
            "ε at δ = 1e-5 of the best of 3360 1-DP runs", lambda: (1.0, w.best_of(3360, 1.0)), "tuning.md",
            _TESTS + "best_of"),
    # --- PILLAR ---
    Erratum("PILLAR", "V", "Lemma 1", "k runs at (ε/k, δ/k) and a choice at ε are (ε, δ)", "(2ε, δ); halve both",
            "ε at δ = 1e-5; nominal 1, k = 4", lambda: (1.0, w.selection_on_top()), "pillar.md",
            _PAPERS + "pillar_lemma_1_claims_too_little"),
    Erratum("PILLAR", "V", "Algorithm 2, σ²", "32L²n² log(n/δ) log(1/δ)/ε (for small ε)", "ε² in place of ε",
            "δ at ε = 0.001; n = 50, replace-one", lambda: (w.DELTA, w.printed_noise()), "pillar.md",
            _PAPERS + "pillar_noise"),
    Erratum("PILLAR", "C", "Algorithm 2, ΔU", "finite", "needs ‖x‖ ≤ 1 and bounded weights",
            "largest hinge loss 1 + ‖w‖‖x‖/ζ; ‖w‖ = 1, ζ = 1/2; ‖x‖ = 1, and ‖x‖ = 10",
            lambda: (3.0, 1 + 10 / 0.5), "pillar.md",
            _TESTS + "range_of_the_hinge_loss"),
    Erratum("PILLAR", "C", "Algorithm 2, best of k = ⌈log 1/β⌉", "within the expected risk but for β",
            "⌈ln(4/β)⌉ runs, a Markov factor, and the choice's own failure",
            "probability that all runs miss; β = 0.01, each has twice its mean with probability 1/2",
            lambda: (0.01, 0.5 ** math.ceil(math.log(100))), "pillar.md", _TESTS + "best_of_few_runs"),
    Erratum("PILLAR", "C", "Algorithm 1", "principal components not centred; the proof centres",
            "say which; here `centred=`",
            "|cosine| of the two first directions; mean (10, 0), spread along the other axis",
            lambda: (1.0, w.centred_or_not()),
            "pillar.md", _TESTS + "centred_components"),
    Erratum("PILLAR", "V", "Definition 1 and experiments",
            "neighbours by replacement, an accountant for add-or-remove-one",
            "about twice the ε",
            "ε at δ = 1e-5, full batch; nominal 1",
            lambda: (1.0, w.gdp_epsilon(2 * _mu(1.0))), "pillar.md", _TESTS + "definition_1"),
    Erratum("PILLAR", "V", "Algorithm 2, n_L sets the noise", "also where neighbours differ in n",
            "n public, as under replace-one",
            "ε at δ = 1e-5; nominal 1, n = 1000, 10⁶ coordinates released",
            lambda: (1.0, max(w.scale_leak(1000, 10**6))),
            "pillar.md", _TESTS + "scale_leak"),
    # --- PDA-DPMD ---
    Erratum("PDA-DPMD", "V", "Algorithm 1", "no clipping; L is assumed", "every per-example gradient clipped to L",
            "ε at δ = 1e-5; nominal 1, a gradient of norm 4L", lambda: (1.0, w.gdp_epsilon(4 * _mu(1.0))),
            "pda_dpmd.md",
            "tests/attacks/test_bugs.py::test_attacks_catch_bugs_and_spare_the_code_without"),
    Erratum("PDA-DPMD", "V", "Algorithm 1, σ ∝ 1/n_priv", "add-or-remove-one",
            "release the sum; divide by a public constant",
            "ε at δ = 1e-5; nominal 0.1, n = 10⁴, pT = 6·10⁶ coordinates",
            lambda: (0.1, max(w.scale_leak(10**4, 6 * 10**6))),
            "pda_dpmd.md", _PAPERS + "mirror_descent_divides_by_a_private_number"),
    Erratum("PDA-DPMD", "C", "σ² = 8L²T ln(1/δ)/(εn)²", "for every ε",
            "replace-one: up to ε ≈ 8 at δ = 1e-5; zero-out: ε ≤ 8 ln(1/δ)",
            "δ at ε = 20, replace-one", lambda: (w.DELTA, w.printed_sigma(2, 20.0)), "pda_dpmd.md",
            _PAPERS + "mirror_descent_noise"),
    Erratum("PDA-DPMD", "C", "σ² = 8L²T ln(1/δ)/(εn)²", "the noise that is needed",
            "2.6 times as much (zero-out; 1.3 times under replace-one)",
            "σn/(L√T) at ε = 1, δ = 1e-5", lambda: (math.sqrt(8 * math.log(1e5)), 1 / _mu(1.0)), "pda_dpmd.md",
            _PAPERS + "mirror_descent_noise"),
    Erratum("PDA-DPMD", "T", "Algorithm 1, line 3", "gradient at θ, which is not defined", "at θ_t",
            "where 20 steps end if θ is θ_0; loss (θ − 1)²/2, η = 1/2",
            lambda: (w.gradient_at(True), w.gradient_at(False)), "pda_dpmd.md", _TESTS + "values_that_are_not_defined"),
    Erratum("PDA-DPMD", "T", "α_t = cos(πt/2K)", "negative for t > K", "0 from K on", "α at t = 2K",
            lambda: (math.cos(math.pi), math.cos(0.5 * math.pi * min(2.0, 1.0))), "pda_dpmd.md",
            _TESTS + "values_that_are_not_defined"),
    # --- DPPL ---
    Erratum("DPPL", "V", "DPPL-Mean", "noise on the mean over the private n_c", "noise on the sum, and on the count",
            "ε at δ = 1e-5; whatever ρ (claimed: ρ = 1e-3); n_c = 50 or 51, d = 1280, first step",
            lambda: (w.gdp_epsilon(math.sqrt(2e-3)), max(w.scale_leak(50, 1280))), "dppl.md",
            _PAPERS + "dppl_mean_divides_by_a_private_count"),
    Erratum("DPPL", "V", "Top-K, equation 6", "C(y, K) sets whose worst has rank y", "C(y − 1, K − 1)",
            "log-ratio of a set's probability; nominal ε = 1, K = 2, 1.28 million candidates",
            lambda: (1.0, w.top_k_loss(1_280_000, 2, printed=True)), "exponential.md",
            _PAPERS + "dppl_top_k_counts_sets_wrongly"),
    Erratum("DPPL", "C", "Top-K, after Lemma 4", "costs ε", "ε/2 under add-or-remove-one: u_min is monotone",
            "largest log-ratio found; nominal 1, K = 2, right count",
            lambda: (1.0, abs(w.top_k_loss(1_280_000, 2, printed=False))),
            "exponential.md", "tests/mechanisms/test_exponential.py::test_top_k_on_all_neighbouring_utilities"),
    Erratum("DPPL", "V", "Algorithm 1: return {p_c | c ∈ y}", "only classes with records",
            "every class of a public list",
            "δ at any ε; the only record of a class is removed", lambda: (0.0, 1.0), "dppl.md",
            _TESTS + "empty_classes"),
    Erratum("DPPL", "V", "Definition 1; Lemmas 2, 3", "neighbours by replacement",
            "add-or-remove-one; replaced: 2ε, ε²/2-zCDP",
            "range of the choice; nominal ε = 1", lambda: (w.choice_range(1), w.choice_range(2)), "dppl.md",
            _PAPERS + "dppl_public"),
    Erratum("DPPL", "C", "Figures: ε = √(2ρ)", "the axis of a guarantee", "ρ-zCDP has no pure ε",
            "δ at ε = 1, ρ = 1/2", lambda: (0.0, w.gdp_delta(1.0, 1.0)), "dppl.md",
            _PAPERS + "dppl_axis_is_no_guarantee"),
    Erratum("DPPL", "T", "Algorithm 1: clip(·, d_max, d_min)", "bounds in the wrong order", "clip(·, d_min, d_max)",
            "clip of 1.3 with d_min = 0.5, d_max = 1.5", lambda: (float(np.clip(1.3, 1.5, 0.5)), 1.3), "dppl.md",
            _TESTS + "values_that_are_not_defined"),
    Erratum("DPPL", "T", "Cosine similarity", "0/0 for an embedding of norm 0", "0", "cosine",
            lambda: (_nan(), 0.0), "dppl.md",
            _TESTS + "values_that_are_not_defined"),
    Erratum("DPPL", "V", "Experiments", "K, d_min, d_max, k_pool chosen on private data",
            "account for the choice, or fix them",
            "ε at δ = 1e-5 of the best of 10 1-DP runs", lambda: (1.0, w.best_of(10, 1.0)), "tuning.md",
            _TESTS + "best_of"),
    Erratum("DPPL", "V", "C.5, projection layer", "one record, one clipped gradient",
            "a support record moves the prototype that every query's gradient uses",
            "how far a record moves the sum, in clip norms; 20 queries", lambda: (1.0, w.projected_gradient()),
            "dppl.md",
            _TESTS + "projection_layer"),
)  # fmt: skip


def _mu(epsilon: float) -> float:
    """The μ with δ(ε) = 1e-5."""
    low, high = 1e-3, 10.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if w.gdp_delta(middle, epsilon) <= w.DELTA else (low, middle)
    return low


def _shown(value: float) -> str:
    return "0" if abs(value) < 1e-12 else f"{value:.4g}" if math.isfinite(value) else "not defined"


def table() -> str:
    """One line for each, with its numbers, as text."""
    lines = []
    for e in ERRATA:
        printed, true = map(_shown, e.values)
        lines.append(f"{e.severity} {e.paper:9} {e.where:40.40} printed {printed:>11}  true {true:>9}  {e.quantity}")
    return "\n".join(lines)


def document() -> str:
    """``proofs/ERRATA.md``: a section for each paper, a short entry for each erratum."""
    lines = [
        "# Errata of the five papers",
        "",
        "Written by `python -m proofs.errata --write`, which computes every number again, without the engine of this",
        "package; `python -m proofs.errata` prints them. A test keeps this file equal to what the command writes; "
        "the test",
        "that is named with each computes the same in another way.",
        "",
        "* **V**: privacy is violated as printed; the true value is a lower bound of what leaks.",
        "* **C**: a constant, or a proof, is wrong.",
        "* **T**: a misprint, or not defined.",
        "",
        "The learners here do what stands after *true*; the page that is named has the proof.",
        "",
    ]
    for paper, source in PAPERS.items():
        lines += [f"## {paper}", "", f"{source}.", ""]
        for number, erratum in enumerate((e for e in ERRATA if e.paper == paper), 1):
            lines += _entry(number, erratum)
        lines.append("")
    return "\n".join(lines)


def _entry(number: int, erratum: Erratum) -> list[str]:
    """One of a numbered list; its parts are a list of their own, so that no line is long."""
    printed, true = map(_shown, erratum.values)
    parts = (
        f"printed: {erratum.printed}",
        f"true: {erratum.true}",
        f"witness: {erratum.quantity}",
        f"value: {printed} as printed, {true} in truth",
        f"proof: [{erratum.page}]({erratum.page})",
        f"test: `{erratum.test}`",
    )
    return [f"{number}. **{erratum.severity}**, {erratum.where}", *(f"    * {part}" for part in parts)]
