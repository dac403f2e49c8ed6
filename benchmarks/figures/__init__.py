"""Figures of the five papers, again: ``python -m benchmarks.figures NAME``."""

from benchmarks.figures import (
    adamix_error,
    adamix_losses,
    adamix_noise,
    adamix_size,
    adamix_subspace,
    dope,
    dppl,
    few_public,
    pda_dpmd,
    pillar,
)
from benchmarks.figures.figure import Figure

__all__ = ["FIGURES"]

MODULES = (
    *(adamix_error, adamix_size, adamix_losses, adamix_subspace, adamix_noise),
    *(dope, dppl, few_public, pda_dpmd, pillar),
)
FIGURES: dict[str, Figure] = {figure.name: figure for module in MODULES for figure in module.FIGURES}
