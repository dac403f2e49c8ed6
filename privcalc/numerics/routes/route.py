"""What all routes share: how one says that it cannot answer, and what it is given.

They are chosen in ``composition/ladder.py``.
"""

from __future__ import annotations

import numpy as np

from privcalc.numerics.faces import Transform

TransformCounts = list[tuple[Transform, int]]


QUIET = np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore")
"""Overflow and NaN are dealt with where bounds are formed: there they end as "nothing is known"."""


class RouteFailed(ArithmeticError):
    """This route cannot answer; another one must."""
