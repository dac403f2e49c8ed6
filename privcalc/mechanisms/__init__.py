"""One file per mechanism."""

from __future__ import annotations

import functools
import importlib
import pkgutil

__all__ = ["load"]


@functools.cache
def load() -> None:
    """Enter all of them in the registry (``privcalc.run.known``)."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
