"""What each record cost: realised losses, which are no guarantee, and filters, which are."""

from privcalc.audit.individual import IndividualFilter
from privcalc.audit.planning import AuditPlan, plan_audit
from privcalc.audit.realised import RealisedLosses
from privcalc.audit.sensitive import RealisedValues
from privcalc.audit.statements import EventRestricted
from privcalc.audit.tally import totals

__all__ = [
    "AuditPlan",
    "EventRestricted",
    "IndividualFilter",
    "RealisedLosses",
    "RealisedValues",
    "plan_audit",
    "totals",
]
