"""What others claim: a published ε with its parameters and their sources, read from a file and recomputed."""

from privcalc.claims.readings import Reading, readings
from privcalc.claims.schema import Claim
from privcalc.claims.verdict import Verdict, check

__all__ = ["Claim", "Reading", "Verdict", "check", "readings"]
