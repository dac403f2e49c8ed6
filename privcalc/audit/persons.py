"""Persons with several records, in an audit: a number for each person."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from privcalc import errors
from privcalc.audit.sensitive import ratios
from privcalc.numerics.floats import UNIT, Floats

__all__ = ["totals"]


def totals(norms: ArrayLike, persons: ArrayLike) -> Floats:
    """Bound each person's contributions by the sum of their norms, for :meth:`privcalc.RealisedLosses.update`.

    Args:
        norms: of each record's contribution, over one record's clip norm: in [0, 1].
        persons: whose each record is.

    Returns:
        A number per person, rounded up, in the order of ``numpy.unique(persons)``, which are the ``ids`` to give.

    Example:
        >>> import numpy as np
        >>> import privcalc as pc
        >>> whose, step = ["ann", "bob", "ann"], pc.UserSampled(pc.Gaussian(noise_multiplier=20.0), rate=1.0, records=2)
        >>> losses = pc.RealisedLosses.of(step, records=2, ids=["ann", "bob"])
        >>> losses.update(totals([1.0, 0.2, 0.5], whose))
        >>> print(np.asarray(losses.mu()).round(6))
        [0.075 0.01 ]
    """
    found = errors.array("persons", persons)
    if found.ndim != 1 or found.dtype.kind not in "iuUS":
        raise errors.PrivcalcError("persons: must be one whole number or text for each record, in one row")
    own = np.minimum(ratios("norms", norms, found.size), 1.0).astype(np.float64)
    names, whose = np.unique(found, return_inverse=True)
    return np.asarray(
        np.bincount(whose, weights=own, minlength=names.size) * (1 + 2 * found.size * UNIT), dtype=np.float64
    )
