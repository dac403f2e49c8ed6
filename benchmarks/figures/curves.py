"""Accuracies of several learners over one number: a panel and a table per source, a line per learner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.figures.figure import Rows, values
from benchmarks.figures.means import band, distinct, where
from benchmarks.learners.results import show, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

__all__ = ["beside", "draw", "tables"]


def draw(rows: Rows, x: str, label: str, y: str = "accuracy", title: str = "test accuracy") -> Picture:
    """Means over seeds, with intervals; ``x`` on a logarithmic axis."""
    from matplotlib.figure import Figure as Canvas

    names = distinct(rows, "source")
    picture = Canvas(figsize=(4.8 * len(names), 3.8), layout="constrained")
    for axes, name in zip(picture.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        own = [row for row in rows if row["source"] == name]
        for number, learner in enumerate(distinct(rows, "learner")):
            points = sorted({row[x] for row in own if row["learner"] == learner})
            if points:
                band(
                    axes,
                    points,
                    [values(own, y, learner=learner, **{x: point}) for point in points],
                    learner,
                    f"C{number}",
                )
        every = sorted(distinct(own, x))
        axes.set(title=name, xscale="log", xlabel=label, ylabel=title)
        axes.set_xticks(every, [f"{point:g}" for point in every], minor=False)
        axes.minorticks_off()
        axes.legend(fontsize="x-small")
    return picture


def tables(rows: Rows, x: str, label: str, y: str = "accuracy") -> str:
    """Means and 95 % Student intervals over seeds, a table per source."""
    text = ""
    for name in distinct(rows, "source"):
        own = [row for row in rows if row["source"] == name]
        points = sorted(distinct(own, x))
        lines = [
            [learner, *(show(values(own, y, learner=learner, **{x: point})) for point in points)]
            for learner in distinct(own, "learner")
        ]
        text += f"### {name}\n\n{table(['', *(f'{label} = {point:g}' for point in points)], lines)}\n\n"
    return text


def beside(rows: Rows, one: str, two: str, x: str, label: str) -> str:
    """Where one learner is clearly above or below another, seed by seed."""

    def gain(name: str, point: Any) -> Sequence[float]:
        ours, theirs = (values(rows, "accuracy", source=name, learner=learner, **{x: point}) for learner in (one, two))
        return [a - b for a, b in zip(ours, theirs, strict=True)]

    parts = []
    for name in distinct(rows, "source"):
        points = sorted({row[x] for row in rows if row["source"] == name and row["learner"] == one})
        parts.append(f"{name}: {where({f'{label} = {point:g}': gain(name, point) for point in points})}")
    return f"{one} beside {two} – {'. '.join(parts)}."
