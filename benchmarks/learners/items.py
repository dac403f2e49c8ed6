"""All that the five papers number: the verdict, where it is here, or why it is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks.learners.compared import Verdict
from benchmarks.learners.results import table

__all__ = ["ITEMS", "Item", "items"]

SETS = "data sets or networks that do not install as packages"
DRAWING = "a drawing"
WORDS = "what words mean"


class Item(NamedTuple):
    """Numbered things of one kind, and what there is to say of them beside their verdicts.

    Attributes:
        kind: "Figure", "Theorem".
        numbers: of these.
        where: where they are here, or why they are not; nothing where the verdict says it.
    """

    kind: str
    numbers: Sequence[int | float]
    where: str = ""

    @property
    def places(self) -> list[str]:
        """As :class:`Verdict` names them."""
        return [f"{self.kind} {number}" for number in self.numbers]

    def __str__(self) -> str:
        first, last = self.numbers[0], self.numbers[-1]
        whole = isinstance(self.numbers, range) and len(self.numbers) > 2
        shown = f"{first} to {last}" if whole else ", ".join(map(str, self.numbers))
        plural = {"Corollary": "Corollaries"}.get(self.kind, f"{self.kind}s")
        return f"{self.kind if len(self.numbers) == 1 else plural} {shown}"


ITEMS: Mapping[str, Sequence[Item]] = {
    "AdaMix": (
        Item("Algorithm", [1], "`NoisyGD`; [proof](../proofs/noisy_gd.md)"),
        Item("Algorithm", [2], "`AdaMix`; [proof, errata](../proofs/adamix.md)"),
        Item("Algorithm", [3], "a variant for Theorem 4, not here; [private](../proofs/adamix.md), as AdaMix is"),
        Item("Proposition", [2, 5, 9], "ρ is T/(2σ²), not T²/(2σ²): [erratum](../proofs/ERRATA.md)"),
        Item("Proposition", [14],
            "false before the run: [witness](../proofs/adamix.md); `IndividualFilter` is what is true"),
        Item("Theorem", [3],
            "its λ is inverted: [erratum](../proofs/noisy_gd.md), `best_weight_decay`; rates were not measured"),
        Item("Theorem", [4, 18], "rates of Algorithm 3: not measured; what it releases is private"),
        Item("Theorem", [15], "cited: convergence of descent"),
        Item("Corollary", [16, 17], "rates: steps to Theorems 3 and 18, not measured"),
        Item("Lemma", [6, 8, 12],
            "the accountant's own, exact: [Gaussian](../proofs/gaussian.md), [GDP](../proofs/gdp.md)"),
        Item("Definition", [1, 7, 10, 11, 13], WORDS),
        Item("Table", [1]),
        *(Item("Figure", [number]) for number in range(1, 4)),
        Item("Figure", [4], "with CLIP not tested: it does not install"),
        *(Item("Figure", [number]) for number in range(5, 9)),
        Item("Figure", range(9, 14), f"Figure 1 on {SETS}"),
        Item("Figure", range(14, 19), f"Figure 3 on {SETS}"),
        Item("Figure", range(19, 23), f"other starts and networks, on {SETS}"),
    ),
    "DOPE-SGD": (
        Item("Algorithm", [1, 2], "`DOPESGD`, without equation 2, which caps ĝ; [proof](../proofs/dope.md)"),
        Item("Proposition", [2], "false as printed: [witness, and what is true](../proofs/dope.md)"),
        Item("Proposition", [4],
            "the gain needs noise that does not follow the clip norm: [erratum](../proofs/dope.md)"),
        Item("Definition", [1, 3], WORDS),
        Item("Figure", [1], DRAWING),
        Item("Figure", [2]),
        Item("Figure", [3], "public records from elsewhere: not tested"),
        Item("Figure", [4, 5]),
        Item("Table", [1],
            "its largest term, generated images in start and pool: no generator installs; `augment` takes one"),
        Item("Table", range(2, 7), SETS),
        Item("Table", [7]),
        Item("Table", [8], "the 3,360 settings that were tuned: none was here"),
        Item("Table", [9, 10, 12], SETS),
        Item("Table", [11], "public records from elsewhere: not tested"),
    ),
    "PILLAR": (
        Item("Algorithm", [1], "`PILLAR`; [proof](../proofs/pillar.md)"),
        Item("Algorithm", [2], "[an example](../examples/pillar_selection.py); [proof](../proofs/pillar.md)"),
        Item("Lemma", [1], "false as derived: [what is true](../proofs/pillar.md)"),
        Item("Lemma", [2], "the guarantee of DP-SGD: [proof](../proofs/pillar.md)"),
        Item("Lemma", range(3, 9), "cited or steps of the proofs of risks"),
        Item("Theorem", [1, 2, 5], "sample complexities: sizes of private sets were not varied, nothing measured"),
        Item("Proposition", [3], "separability after a shift: not measured"),
        Item("Corollary", [4, 6], "sample complexities, as Theorem 1"),
        Item("Definition", range(1, 5), WORDS),
        Item("Figure", [1], f"{SETS}"),
        Item("Figure", [2], DRAWING),
        Item("Figure", [3]),
        Item("Figure", [4]),
        Item("Figure", range(5, 8), SETS),
        Item("Figure", [8, 9, 10], "kinds of pre-training: one encoder installs"),
        Item("Table", [1, 2]),
        Item("Table", [3], "a table of bounds"),
        Item("Table", [4, 5], f"pre-training without labels, {SETS}"),
    ),
    "PDA-DPMD": (
        Item("Algorithm", [1], "`PDADPMD`, with equation 1 (first order); its noise is valid for some ε only: "
             "[proof, errata](../proofs/pda_dpmd.md)"),
        Item("Theorem", [3.2, 3.5, 3.6], "bounds on the risk: not measured, but for Figure 1"),
        Item("Lemma", [3.3, 3.4], "steps of their proofs"),
        Item("Assumption", [3.1], WORDS),
        Item("Figure", [1]),
        Item("Figure", range(2, 8), f"its curves on {SETS}"),
        Item("Table", [1], "its networks do not install"),
        Item("Table", [2], f"architectures of {SETS}"),
    ),
    "DPPL": (
        Item("Algorithm", [1], "`DPPLPublic`; [proof](../proofs/dppl.md). Means by CoinPress are `DPPLMean`"),
        Item("Lemma", range(1, 5), "conversions and sensitivities, put right: [proof](../proofs/dppl.md)"),
        Item("Proposition", [1], "cited: [exponential mechanism](../proofs/exponential.md)"),
        Item("Lemma", [5], "top-K counts sets wrongly: [erratum](../proofs/dppl.md), `DPPLPublic(k=…)`"),
        Item("Theorem", [2], "top-K is private with the right count: [proof](../proofs/dppl.md)"),
        Item("Definition", range(1, 5), WORDS),
        Item("Figure", [1], DRAWING),
        Item("Figure", [2, 3], "one encoder of four"),
        Item("Figure", [4], "DPSGD-Global-Adapt was left out: none of the five papers'"),
        *(Item("Figure", [number]) for number in range(5, 10)),
        Item("Figure", [10], "sizes of classes: `benchmarks.learners.tasks.imbalanced`"),
        Item("Figure", [11]),
        Item("Figure", [12, 13], "means and radii of CoinPress: not drawn"),
        Item("Figure", range(14, 19), "Figures 2, 3 with other encoders, which are not here"),
        Item("Figure", [19], "the projection, not private as printed, is not offered: [why](../proofs/dppl.md)"),
        Item("Figure", range(20, 28), f"Figures 4 and 5 on {SETS}"),
        Item("Table", [1], "sizes of data sets"),
        Item("Table", [2], "times on its machine; [ours](steps.md)"),
    ),
}  # fmt: skip
"""By paper: what it numbers."""


def items(found: Sequence[Verdict]) -> str:
    """All of them with their verdicts, in Markdown."""
    rows = [
        [paper, str(item), told(item, [one for one in found if one.paper == paper])]
        for paper, each in ITEMS.items()
        for item in each
    ]
    order = "Verdicts, in the first table's order; where it is; or why not."
    head = f"## Every algorithm, theorem, figure and table\n\n{order}"
    return f"{head}\n\n{table(['paper', 'what', 'verdicts, where, or why not'], rows)}"


def told(item: Item, found: Sequence[Verdict]) -> str:
    """Its verdicts, then what else there is to say."""
    words = [f"**{one.word}**" for one in found if set(places(one)) & set(item.places)]
    return "; ".join(filter(None, [", ".join(words), item.where]))


def places(verdict: Verdict) -> list[str]:
    """Of "Figures 4, 5": each by itself.

    Example:
        >>> places(Verdict("", "Figures 4, 5", "", [], "")), places(Verdict("", "Table 1", "", [], ""))
        (['Figure 4', 'Figure 5'], ['Table 1'])
    """
    kind, _, numbers = verdict.place.partition(" ")
    return [f"{kind.removesuffix('s')} {number}" for number in numbers.split(", ")]
