"""The demo's table and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import privcalc as pc
from privcalc import pictures
from privcalc.files import write_whole

__all__ = ["Row", "write"]


class Row(NamedTuple):
    """One learner: what it is called, how often it is right on the test records, and what that cost."""

    name: str
    accuracy: float
    noise_multiplier: float | None
    certificate: pc.Certificate | None


def write(rows: Sequence[Row], folder: Path) -> str:
    """Write ``table.md``, ``accuracy.png`` and ``privacy.png``; return the table."""
    text = table(rows)
    write_whole(folder / "table.md", text + "\n")
    _pictures(rows, folder)
    return text


def table(rows: Sequence[Row]) -> str:
    """As Markdown.

    Example:
        >>> print(table([Row("Only-Public", 0.8, None, None)]))
        | learner | test accuracy | noise / clip norm | certified privacy |
        |---|---|---|---|
        | Only-Public | 80.0 % | | |
    """
    lines = ["| learner | test accuracy | noise / clip norm | certified privacy |", "|---|---|---|---|"]
    for row in rows:
        noise = "" if row.noise_multiplier is None else f"{row.noise_multiplier:.2f} "
        claim = "" if row.certificate is None else f"{row.certificate.guarantee} "
        lines.append(f"| {row.name} | {100 * row.accuracy:.1f} % | {noise}| {claim}|")
    return "\n".join(lines)


def _pictures(rows: Sequence[Row], folder: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 0.5 * len(rows) + 1), layout="constrained")
    axes = figure.subplots()
    colors = ["tab:gray" if row.certificate is None else "tab:blue" for row in rows]
    axes.barh([row.name for row in rows], [100 * row.accuracy for row in rows], color=colors)
    axes.invert_yaxis()
    axes.set_xlabel("test accuracy, %")
    pictures.save(figure, folder / "accuracy.png")
    certificate = next((row.certificate for row in rows if row.certificate is not None), None)
    if certificate is not None:
        pictures.save(pictures.tradeoff(certificate.run, relation=certificate.relation), folder / "privacy.png")
