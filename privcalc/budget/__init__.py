"""One budget for a data set that several teams use: a store in a database, from which ledgers reserve."""

from privcalc.budget.budget import Budget
from privcalc.budget.history import Reservation
from privcalc.budget.managed import Standing
from privcalc.budget.pool import cap_for
from privcalc.budget.readmission import readmit

__all__ = ["Budget", "Reservation", "Standing", "cap_for", "readmit"]
