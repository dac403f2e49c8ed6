"""dp-accounting: its accountant interface, its events and its privacy loss distributions, both ways."""

from privcalc.interop.dp_accounting.accountant import PrivcalcAccountant
from privcalc.interop.dp_accounting.events import from_event, to_event
from privcalc.interop.dp_accounting.pld import from_pld, to_pld

__all__ = ["PrivcalcAccountant", "from_event", "from_pld", "to_event", "to_pld"]
