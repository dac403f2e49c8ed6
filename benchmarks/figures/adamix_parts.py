"""Figures 5 and 7 of the AdaMix paper: its two parts one by one, and the percentile of the clip norm."""

from __future__ import annotations

from typing import Any

from benchmarks.figures import curves
from benchmarks.figures.figure import Figure, Given, Rows
from benchmarks.figures.means import CLEARLY, seeds
from benchmarks.figures.mixed import EPSILON, SETTINGS, tasks
from benchmarks.learners.methods import FULL, Method
from learners.adamix import AdaMix

__all__ = ["FIGURES"]

QUANTILES = (0.1, 0.5, 0.75, 0.9, 0.99)
PARTS: dict[str, dict[str, Any]] = {
    "NGD": {"clip_norm": 1.0},
    "NGD, projected": {"clip_norm": 1.0, "dimension": 2000},
    "AdaMix": {},
    "AdaMix, projected": {"dimension": 2000},
}
"""NGD is AdaMix with the fixed clip norm 1 and without projection."""


def compute(given: Given) -> Rows:
    """A row per run; where the clip norm is fixed there is no percentile, and the row stands at the paper's, 0.9."""
    wanted = [(name, q) for name in PARTS for q in (QUANTILES if "clip_norm" not in PARTS[name] else (0.9,))]
    rows = []
    for setting, seed, task in given.watch(tasks(given), len(SETTINGS) * given.seeds):
        for name, quantile in wanted:
            method = Method(AdaMix, {**FULL, "quantile": quantile, **PARTS[name]}, "labelled")
            found = method.fit(task, EPSILON, seed, given.device).score(*task.test)
            key = {"source": setting.source, "learner": name, "quantile": quantile, "seed": seed, "epsilon": EPSILON}
            rows.append({**key, "accuracy": round(found, 6)})
    return rows


def tell(rows: Rows) -> str:
    """Each part beside NGD."""
    at = [row for row in rows if row["quantile"] == 0.9]
    found = " ".join(curves.beside(at, name, "NGD", "quantile", "quantile") for name in list(PARTS)[1:])
    return (
        f"**Found:** {found}\n\n1,000 private and 200 labelled public records, ε = {EPSILON:g}, δ = 1e-5, "
        f"{FULL['steps']} steps at full batch, all from the same public start, with public gradients. NGD clips at 1, "
        "above nearly all gradients; the others at a quantile of the public gradients' norms, whose step grows as it "
        "falls, up to what is stable (proofs/noisy_gd.md). Which quantile is best was seen on test records: chosen on "
        f"private ones it has to be paid for. Means and 95 % Student intervals over {seeds(rows)} seeds. "
        f"{CLEARLY}\n\n{curves.tables(rows, 'quantile', 'quantile')}"
    )


FIGURES = (
    Figure(
        "adamix-5",
        "Figures 5 and 7 of the AdaMix paper: its parts, and the percentile of the clip norm",
        "adaptive clipping improves more on noisy gradient descent than the projection does, both together are best on "
        "six data sets; the 75th percentile is better than the 90th on two of them (Golatkar et al. 2022, §§A.1, A.2).",
        3,
        compute,
        lambda rows: curves.draw(rows, "quantile", "quantile of public gradient norms"),
        tell,
    ),
)
