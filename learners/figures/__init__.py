"""Figures of the five papers, again: ``python -m learners.figures NAME``."""

from learners.figures import dope, dppl, few_public, pda_dpmd, pillar
from learners.figures.figure import Figure

__all__ = ["FIGURES"]

FIGURES: dict[str, Figure] = {
    figure.name: figure for figure in (*dope.FIGURES, *dppl.FIGURES, *few_public.FIGURES, *pda_dpmd.FIGURES, *pillar.FIGURES)
}
