"""What all routes share: how one says that it cannot answer, and what it is given.

They are chosen in ``composition/ladder.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from privcalc.numerics.interfaces import Transform
from privcalc.numerics.solve import Bounds

TransformCounts = list[tuple[Transform, int]]


QUIET = np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore")
"""Overflow and NaN are dealt with where bounds are formed: there they end as "nothing is known"."""


class Laid(NamedTuple):
    """A route that was laid: it bounds δ(ε) at every ε, most sharply near those that it was planned for."""

    bounds: Callable[[float], Bounds]
    guess: float
    """A first guess of the answer."""
    rtol: float = 1e-15
    """To which relative precision ε is searched; less sharply where each evaluation takes long."""
    planned: float | None = None
    """The answer that it was laid for, where the plan expected none and the guess served as well."""


class RouteFailed(ArithmeticError):
    """This route cannot answer; another one must."""
