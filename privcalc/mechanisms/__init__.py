"""One file per mechanism."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from privcalc.run import KINDS, Mechanism

__all__ = ["known"]


def known() -> dict[str, type[Mechanism]]:
    """The registry of all mechanisms by their name in JSON, those included that nobody has asked for yet."""
    _load()
    return KINDS


@functools.cache
def _load() -> None:
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
