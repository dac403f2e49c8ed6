"""Differences that a claim is about, of stored cells and of stored figures; and what they say of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.learners.grid import LEVELS, Setting
from benchmarks.learners.results import Gain, Results, difference, gains, sides, tally

__all__ = [
    "AS_GOOD",
    "RULE",
    "Figures",
    "Verdict",
    "beside_best",
    "cells",
    "changes",
    "cosines",
    "listed",
    "medians",
    "pairs",
    "regressions",
    "subspaces",
]

Figures = Mapping[str, Sequence[Mapping[str, Any]]]
"""The stored rows of the figures, by name; one run each."""


RULE = """A claim is a set of differences, each of two learners in one cell, seed by seed, with its 95 % interval;
its text says which learners and cells. A difference is *above* or *below* if its whole interval is above or below a
threshold, which the kind of claim sets: 0 for "better", −0.01 (a point of accuracy) for "as good" and "no better",
2 for "twice". **Confirmed**: at least half are above and none below; **refuted**: none above and at least half
below; **mixed**: some above, but not so; **not confirmed**: none above, but not so; **not tested**: there is no
such pair. The program decides by this rule alone; it was written when most cells were known, and the first of
PPGD's and DP-LS's; before those of NGD."""

AS_GOOD = -0.01
"""The threshold of what is claimed to be as good."""


@dataclass(frozen=True)
class Verdict:
    """A line of the table.

    Attributes:
        paper: whose claim.
        place: the table, figure or section that has it, as :data:`benchmarks.learners.items.ITEMS` names it.
        claim: in short.
        gains: the differences that should be above the threshold if it holds; none where nothing here can tell.
        link: where they are.
        said: what is added to the number; where there is none, the reason.
        threshold: see :data:`RULE`.
    """

    paper: str
    place: str
    claim: str
    gains: Sequence[Gain]
    link: str
    said: str = ""
    threshold: float = 0.0

    @property
    def word(self) -> str:
        """By :data:`RULE`.

        Example:
            >>> def of(*gains):
            ...     return Verdict("", "", "", gains, "").word
            >>> of(Gain(0.2, 0.1), Gain(0.1, 0.2)), of(Gain(-0.2, 0.1)), of(Gain(0.1, 0.2)), of()
            ('confirmed', 'refuted', 'not confirmed', 'not tested')
        """
        above, below = sides(self.gains, self.threshold)
        if not self.gains:
            return "not tested"
        if 2 * above >= len(self.gains) and not below:
            return "confirmed"
        if not above and 2 * below >= len(self.gains):
            return "refuted"
        return "mixed" if above else "not confirmed"

    def row(self) -> list[str]:
        """Of the table."""
        found = ""
        if self.gains:
            low, high = min(self.gains), max(self.gains)
            beside = f" (beside {self.threshold:g})" if self.threshold else ""
            found = f"{tally(self.gains, self.threshold)}{beside}; {low}" + (
                f" to {high}" if len(self.gains) > 1 else ""
            )
        counts = sorted({gain.seeds for gain in self.gains})
        seeds = "–".join(str(count) for count in dict.fromkeys((counts[0], counts[-1]))) if counts else ""
        text = ". ".join(filter(None, (found, self.said)))
        return [self.paper, self.place, self.claim, self.word, text, seeds, f"[page]({self.link})"]


def cells(
    results: Results,
    settings: Sequence[Setting],
    one: str,
    two: str,
    levels: Sequence[float] = LEVELS,
    what: str = "accuracy",
) -> list[Gain]:
    """Differences of two learners in cells that have both."""
    return [gain for setting in settings for gain in gains(results, setting, one, two, levels, what).values()]


def beside_best(results: Results, settings: Sequence[Setting], one: str, others: Sequence[str]) -> list[Gain]:
    """One learner beside the best of others in each cell, corrected for their number; where all were run."""
    found = []
    for setting in settings:
        for level in LEVELS:
            if all(results.values(setting, name, level) for name in (one, *others)):
                best = max(others, key=lambda name: results.mean(setting, name, level))
                gain = results.gain((setting, one, level), (setting, best, level), comparisons=len(others))
                found += [] if gain is None else [gain]
    return found


Place = tuple[Setting, str, float]


def changes(results: Results, places: Sequence[tuple[tuple[Place, Place], tuple[Place, Place]]]) -> list[Gain]:
    """How much larger one difference is than another: (one − two) − (three − four), seed by seed."""
    found = []
    for pairs in places:
        values = [results.values(*place) for pair in pairs for place in pair]
        if seeds := sorted(set.intersection(*(set(one) for one in values))):
            found.append(difference([np.dot([1, -1, -1, 1], [one[seed] for one in values]) for seed in seeds]))
    return found


def pairs(
    figures: Figures,
    name: str,
    one: Mapping[str, Any],
    two: Mapping[str, Any],
    per: Sequence[str],
    what: str = "accuracy",
    *,
    only: Mapping[str, Any] | None = None,
    **also: Any,
) -> list[Gain]:
    """Differences between the rows of a figure that have the entries of ``one`` and of ``two``, seed by seed.

    Args:
        figures: stored rows.
        name: of the figure.
        one: entries that the rows must have from whose values is subtracted.
        two: entries of the others.
        per: entries by whose values there is a difference each.
        what: is subtracted.
        only: entries that all rows must have.
        **also: more of them.
    """

    def found(wanted: Mapping[str, Any]) -> dict[tuple[Any, ...], dict[int, float]]:
        by: dict[tuple[Any, ...], dict[int, float]] = {}
        for row in figures.get(name, []):
            if what in row and all(row.get(key) == value for key, value in {**wanted, **(only or {}), **also}.items()):
                by.setdefault(tuple(row.get(key) for key in per), {})[row["seed"]] = row[what]
        return by

    first, second = found(one), found(two)
    if len(second) == 1 and len(first) > 1:  # what has no ε stands beside each
        second = dict.fromkeys(first, next(iter(second.values())))
    if len(first) == 1 and len(second) > 1:
        first = dict.fromkeys(second, next(iter(first.values())))
    return [
        difference([first[key][seed] - second[key][seed] for seed in seeds])
        for key in first
        if key in second and len(seeds := sorted(first[key].keys() & second[key].keys())) > 1
    ]


def listed(gains: Sequence[Gain]) -> str:
    """One after the other."""
    return ", ".join(str(gain) for gain in gains)


def medians(figures: Figures) -> list[Gain]:
    """Median realised ε of AdaMix minus that of Fully-Private training, by source."""
    rows = [
        {**row, "median": float(np.median(row["losses"]))}
        for row in figures.get("adamix-3", [])
        if row.get("panel") == "losses"
    ]
    return pairs(
        {"adamix-3": rows},
        "adamix-3",
        {"method": "AdaMix"},
        {"method": "NoisyGD (Fully-Private)"},
        ("source",),
        "median",
    )


def cosines(figures: Figures) -> list[Gain]:
    """Of DOPE-SGD minus those of DP-SGD, in three parts of the run."""
    found = []
    for steps in (slice(0, 10), slice(15, 25), slice(30, 40)):
        rows = [{**row, "cosine": float(np.mean(row["cosines"][steps]))} for row in figures.get("dope-2", [])]
        found += pairs({"dope-2": rows}, "dope-2", {"method": "DOPE-SGD"}, {"method": "DP-SGD"}, (), "cosine")
    return found


def regressions(figures: Figures) -> list[Gain]:
    """Loss of the warm start minus that of mirror descent, each at its best rate, by p."""
    by: dict[tuple[int, str, float], dict[int, float]] = {}
    for row in figures.get("pda-dpmd-1", []):
        by.setdefault((row["p"], row["method"], row["rate"]), {})[row["seed"]] = row["loss"]
    found = []
    for p in dict.fromkeys(key[0] for key in by):
        warm, own = (
            min((runs for key, runs in by.items() if key[:2] == (p, method)), key=lambda runs: sum(runs.values()))
            for method in ("warm", "mirror")
        )
        found.append(difference([warm[seed] - own[seed] for seed in warm]))
    return found


def subspaces(figures: Figures) -> list[Gain]:
    """The error of a random subspace over that of the public one, by source and subspace."""
    mean: dict[tuple[str, str, int], dict[str, float]] = {}
    for row in figures.get("adamix-6", []):
        side = "random" if row["subspace"] == "random" else "public"
        mean.setdefault((row["source"], row["learner"], row["seed"]), {})[side] = float(np.mean(row["errors"]))
    by: dict[tuple[str, str], list[float]] = {}
    for (source, learner, _), errors in mean.items():
        by.setdefault((source, learner), []).append(errors["random"] / errors["public"])
    return [difference(found) for found in by.values()]
