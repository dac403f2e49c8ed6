"""Differences that a claim is about, of stored cells and of stored figures; and what they say of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.learners.grid import LEVELS, Setting
from benchmarks.learners.results import Gain, Results, difference, gains, tally

__all__ = ["Figures", "Verdict", "cells", "cosines", "listed", "medians", "pairs", "regressions", "subspaces", "word"]

Figures = Mapping[str, Sequence[Mapping[str, Any]]]
"""The stored rows of the figures, by name; one run each."""


@dataclass(frozen=True)
class Verdict:
    """A line of the table.

    Attributes:
        paper: whose claim.
        claim: in short, with its place.
        gains: the differences that should be above 0 if it holds; None where nothing here can tell.
        link: where they are.
        said: what is added to the number; where there is none, the reason.
        judged: the word, where the rule of :func:`word` does not fit the claim.
    """

    paper: str
    claim: str
    gains: Sequence[Gain] | None
    link: str
    said: str = ""
    judged: str = ""

    def row(self) -> list[str]:
        """Of the table."""
        if self.gains is None or not self.gains:
            return [self.paper, self.claim, self.judged or "not tested here", self.said, f"[where]({self.link})"]
        ordered = sorted(self.gains)
        low, high = ordered[0], ordered[-1]
        number = f"{tally(self.gains)}; {low}" + (f" to {high}" if len(self.gains) > 1 else "")
        return [
            self.paper,
            self.claim,
            self.judged or word(self.gains),
            number + (f". {self.said}" if self.said else ""),
            f"[where]({self.link})",
        ]


def word(gains: Sequence[Gain]) -> str:
    """Confirmed: at least half of the differences are above 0, and none below; refuted: none above, and at least half below.

    "Mixed": some are above; "not confirmed": none is.

    Example:
        >>> word([Gain(0.2, 0.1), Gain(0.1, 0.2)]), word([Gain(-0.2, 0.1)]), word([Gain(0.1, 0.2)])
        ('confirmed', 'refuted', 'not confirmed')
    """
    above, below = (sum(sign * gain.mean > gain.half for gain in gains) for sign in (1, -1))
    if 2 * above >= len(gains) and not below:
        return "confirmed"
    if not above and 2 * below >= len(gains):
        return "refuted"
    return "mixed" if above else "not confirmed"


def cells(
    results: Results, settings: Sequence[Setting], one: str, two: str, levels: Sequence[float] = LEVELS, what: str = "accuracy"
) -> list[Gain]:
    """Differences of two learners in cells that have both."""
    return [gain for setting in settings for gain in gains(results, setting, one, two, levels, what).values()]


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
        {**row, "median": float(np.median(row["losses"]))} for row in figures.get("adamix-3", []) if row.get("panel") == "losses"
    ]
    return pairs(
        {"adamix-3": rows}, "adamix-3", {"method": "AdaMix"}, {"method": "NoisyGD (Fully-Private)"}, ("source",), "median"
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
    """The error of a random subspace over that of the public one, minus 2, by source and subspace."""
    mean: dict[tuple[str, str, int], dict[str, float]] = {}
    for row in figures.get("adamix-6", []):
        side = "random" if row["subspace"] == "random" else "public"
        mean.setdefault((row["source"], row["learner"], row["seed"]), {})[side] = float(np.mean(row["errors"]))
    by: dict[tuple[str, str], list[float]] = {}
    for (source, learner, _), errors in mean.items():
        by.setdefault((source, learner), []).append(errors["random"] / errors["public"] - 2)
    return [difference(found) for found in by.values()]
