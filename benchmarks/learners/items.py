"""What the five papers number: where each item is here, or why it is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.learners.results import table

__all__ = ["ITEMS", "items"]

ABOVE = "verdict above"
SETS = "data sets or networks that do not install as packages"

ITEMS: Mapping[str, Sequence[tuple[str, str]]] = {
    "AdaMix": (
        ("Algorithm 1, Proposition 2, Theorem 3", "`NoisyGD`; [proof, and the rate put right](../proofs/noisy_gd.md)"),
        ("Algorithm 2, Proposition 5", "`AdaMix`; [proof, errata](../proofs/adamix.md)"),
        ("Algorithm 3, Theorem 4, Theorem 18", '`NoisyGD(schedule="theorem", curvature=…)`; the rates were not measured'),
        ("Lemma 8, Proposition 9, Corollary 16", "the accountant's own; [errata](../proofs/ERRATA.md)"),
        (
            "Proposition 14 (per-instance)",
            "false before the run: [witness](../proofs/adamix.md); `IndividualFilter` is what is true",
        ),
        ("Table 1; Figures 3, 4, 5, 6, 7, 8", ABOVE),
        ("Figures 1, 2", "stored runs are of the first edition of the learners, not made again for want of hours"),
        ("Figure 4 with CLIP; Figures 19 to 22", "CLIP does not install; MiniLM's names of news groups stand in for it"),
        ("Figures 9 to 13, 14 to 18", f"Figures 1 and 3 on {SETS}"),
    ),
    "DOPE-SGD": (
        ("Figure 1", "a drawing"),
        ("Algorithms 1, 2; equation 2", "`DOPESGD`"),
        ("Proposition 2", "false as printed: [witness, and what is true](../proofs/dope.md)"),
        ("Proposition 4", "the gain needs noise that does not follow the clip norm: [erratum](../proofs/dope.md)"),
        ("Table 1 (the origin itself); Figures 2, 4, 5; Table 7", ABOVE),
        (
            "Table 1: generated images, the largest term, in start and pool",
            "no generator installs; shifts and flips are `augment`",
        ),
        ("Tables 2 to 6, 9, 10, 12", SETS),
        ("Tables 8", "the 3,360 settings that were tuned: none was here"),
        ("Figure 3, Table 11", "public records from elsewhere (`max_origin`): not tested"),
    ),
    "PILLAR": (
        ("Figure 2", "a drawing"),
        ("Algorithm 1; Lemma 2", "`PILLAR`; [proof](../proofs/pillar.md)"),
        ("Algorithm 2; Lemma 1", "`PILLARSelection`; the Lemma as derived is false: [what is true](../proofs/pillar.md)"),
        (
            "Theorems 1, 2, 5; Proposition 3; Corollaries 4, 6; Table 3",
            "sample complexities: sizes were not varied, nothing measured",
        ),
        ("Lemmas 3, 4, 5, 7, 8", "cited tools of these proofs"),
        ("Tables 1, 2; Figure 3; Figure 4 at ε = 0.1", ABOVE),
        ("Figure 4, other dimensions", "stored runs are of the first edition of the learners, not made again for want of hours"),
        ("Figures 1, 5 to 10; Tables 4, 5", f"{SETS}; one encoder installs, so that kinds of pre-training are not compared"),
    ),
    "PDA-DPMD": (
        ("Algorithm 1, equation 1", "`PDADPMD`, both variants; [proof, errata](../proofs/pda_dpmd.md)"),
        ("Theorem 3.1 (privacy)", "valid for part of the range of ε only: [erratum](../proofs/pda_dpmd.md)"),
        ("Theorems 3.2, 3.5, 3.6; Lemmas 3.3, 3.4", "bounds on the risk: not measured, but for Figure 1"),
        ("Figure 1", ABOVE),
        ("Table 1", "verdict above, for linear models; its networks do not install"),
        ("Figures 2 to 7, Table 2", f"its curves and architectures: {SETS}"),
    ),
    "DPPL": (
        ("Figure 1", "a drawing"),
        ("Algorithm 1, Lemmas 1 to 4, Proposition 1", "`DPPLPublic`; [proof, errata](../proofs/dppl.md)"),
        ("Algorithm 2 (means by CoinPress)", "`DPPLMean`; [proof, errata](../proofs/dppl.md)"),
        (
            "Top-K (Appendix C.3), Lemma 5, Theorem 2",
            "`DPPLPublic(k=…)`, with the right multiplicities; [erratum](../proofs/dppl.md)",
        ),
        ("Projection (Appendix C.5), Figure 19", "not private as printed, so not offered: [why](../proofs/dppl.md)"),
        ("Figures 2 to 6, 8, 9, 11", f"{ABOVE}; Figures 3 and 14 to 18 with one encoder of four"),
        ("Figure 4: DPSGD-Global-Adapt", "left out: another baseline, not one of the five papers"),
        ("Figure 7", "components of public records in [dppl-6](figures/dppl-6.md)"),
        ("Table 1, Figure 10", "sizes of classes: `learners.data.tasks.imbalanced`"),
        ("Figures 12, 13", "pictures of means and radii of CoinPress: not drawn"),
        ("Figures 20 to 27", f"Figures 4 and 5 on {SETS}, with encoders of hundreds of millions of weights"),
        ("Table 2", "times on its machine; [ours](steps.md)"),
    ),
}
"""By paper: what it numbers, and where it is."""


def items() -> str:
    """All of them, in Markdown."""
    rows = [[paper, what, where] for paper, found in ITEMS.items() for what, where in found]
    return "## Every algorithm, theorem, figure and table\n\nWhere it is here, or why it is not.\n\n" + table(
        ["paper", "what", "where, or why not"], rows
    )
