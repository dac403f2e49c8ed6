"""Neighbouring relations: which pairs of data sets a guarantee speaks about."""

from __future__ import annotations

import enum

from privcalc.errors import PrivcalcError

__all__ = ["ADD_OR_REMOVE_ONE", "REPLACE_ONE", "ZERO_OUT", "Relation"]


class Relation(enum.Enum):
    """When two data sets count as neighbours.

    A relation is part of every question and of every answer; answers under different relations can be
    neither compared nor composed.

    * Add-or-remove-one: one data set has a record more than the other. How many there are is private.
    * Replace-one: equally many; one record is another.
    * Zero-out: equally many; one record is a null record, which adds nothing to any sum, count or score. A row of zeros
      is one only where it adds nothing: not where something is subtracted from it, or where it is counted.

    Example:
        >>> import privcalc as pc
        >>> print(pc.REPLACE_ONE)
        replace-one
    """

    ADD_OR_REMOVE_ONE = "add-or-remove-one"
    REPLACE_ONE = "replace-one"
    ZERO_OUT = "zero-out"

    def __str__(self) -> str:
        return self.value


ADD_OR_REMOVE_ONE = Relation.ADD_OR_REMOVE_ONE
"""One data set has one record more than the other: what all questions mean unless told otherwise."""

REPLACE_ONE = Relation.REPLACE_ONE
"""One record is another in the other data set; a sum may move by twice the clip norm."""

ZERO_OUT = Relation.ZERO_OUT
"""One record's contributions are zero in the other data set, which has as many records."""


def check_relation(value: object) -> Relation:
    """Return ``value`` if it is a relation, else raise."""
    if isinstance(value, Relation):
        return value
    names = ", ".join(f"privcalc.{relation.name}" for relation in Relation)
    raise PrivcalcError(f"relation = {value!r}: must be one of {names}")
