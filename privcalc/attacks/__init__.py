"""Attacks: lower bounds of ε, μ and 1 − β from samples, each with an exact confidence (``proofs/attacks.md``).

    two worlds, sampled  ->  events, counted  ->  Clopper and Pearson's bounds  ->  Measured

An attack that shows more than a certificate allows refutes the certificate, or what was run under it. One that shows
less proves nothing: a better one may exist.
"""

from privcalc.attacks.counts import Measured, at_least, at_most, from_counts
from privcalc.attacks.one_run import OneRun, guess_probability, one_run
from privcalc.attacks.scores import Membership, auc, black_box, canary_runs, from_scores, likelihood_ratio, membership

__all__ = [
    "Measured",
    "Membership",
    "OneRun",
    "at_least",
    "at_most",
    "auc",
    "black_box",
    "canary_runs",
    "from_counts",
    "from_scores",
    "guess_probability",
    "likelihood_ratio",
    "membership",
    "one_run",
]
