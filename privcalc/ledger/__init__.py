"""Draw and charge in one call, by a plan or under a cap."""

from privcalc.ledger.answers import Answer
from privcalc.ledger.assumptions import Assumptions
from privcalc.ledger.columns import Common
from privcalc.ledger.digests import constants, digest
from privcalc.ledger.drawn import Batch
from privcalc.ledger.ledger import Ledger
from privcalc.ledger.rules import Filter
from privcalc.ledger.streams import Stream

__all__ = ["Answer", "Assumptions", "Batch", "Common", "Filter", "Ledger", "Stream", "constants", "digest"]
