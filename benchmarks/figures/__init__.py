"""Figures of the five papers, again: ``python -m benchmarks.figures NAME``."""

from benchmarks.figures import (
    adamix_error,
    adamix_losses,
    adamix_noise,
    adamix_parts,
    adamix_subspace,
    dope,
    dope_users,
    dppl,
    dppl_features,
    dppl_public,
    few_public,
    pda_dpmd,
    pda_table,
    pillar_pairs,
)
from benchmarks.figures.figure import Figure

__all__ = ["FIGURES"]

MODULES = (
    *(adamix_error, adamix_losses, adamix_subspace, adamix_noise, adamix_parts),
    *(dope, dope_users, dppl, dppl_features, dppl_public, few_public, pda_dpmd, pda_table, pillar_pairs),
)
FIGURES: dict[str, Figure] = {figure.name: figure for module in MODULES for figure in module.FIGURES}
