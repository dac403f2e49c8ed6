"""Figures of the five papers, again: ``python -m learners.figures NAME``."""

from learners.figures import adamix_error, adamix_losses, adamix_noise, adamix_size, adamix_subspace, dppl
from learners.figures.figure import Figure

__all__ = ["FIGURES"]

ADAMIX = (adamix_error, adamix_size, adamix_losses, adamix_subspace, adamix_noise)

FIGURES: dict[str, Figure] = {
    figure.name: figure for figure in (*(one for module in ADAMIX for one in module.FIGURES), *dppl.FIGURES)
}
