"""The same as :mod:`privcalc.adapters.dp_accounting`."""

from privcalc.adapters.dp_accounting import PrivcalcAccountant, from_event, from_pld, to_event, to_pld

__all__ = ["PrivcalcAccountant", "from_event", "from_pld", "to_event", "to_pld"]
