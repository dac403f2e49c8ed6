"""Figures of the five papers, again: ``python -m learners.figures NAME``."""

from learners.figures import dppl, pda_dpmd
from learners.figures.figure import Figure

__all__ = ["FIGURES"]

FIGURES: dict[str, Figure] = {figure.name: figure for figure in (*dppl.FIGURES, *pda_dpmd.FIGURES)}
