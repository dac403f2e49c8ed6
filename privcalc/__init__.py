"""privcalc: certified differential-privacy accounting.

    mechanism  ->  pair of distributions  ->  composition  ->  enclosure of ε, δ, β, μ

A mechanism describes one release, ``*`` repeats and ``+`` composes it, and a run answers questions with proved lower and upper
bounds. Start with :class:`Gaussian`, :class:`PoissonSampled` and :func:`noise_multiplier`.
"""

from privcalc.audit.individual import IndividualFilter
from privcalc.audit.planning import AuditPlan, plan_audit
from privcalc.audit.realised import RealisedLosses
from privcalc.audit.statements import EventRestricted
from privcalc.budget.budget import Budget
from privcalc.calibration.dpsgd import noise_multiplier, noise_std, steps
from privcalc.calibration.search import Calibration, calibrate
from privcalc.certificate.certificate import Certificate, certify
from privcalc.enclosure import Enclosure, Guarantee
from privcalc.errors import BudgetExceeded, Contradiction, NotConfirmed, PrivcalcError, PrivcalcWarning
from privcalc.ledger.assumptions import Assumptions
from privcalc.ledger.filters import Filter
from privcalc.ledger.ledger import Ledger
from privcalc.mechanisms.above_threshold import AboveThreshold
from privcalc.mechanisms.allocation import RandomAllocation
from privcalc.mechanisms.correlated import CorrelatedGaussian
from privcalc.mechanisms.custom import CustomMechanism
from privcalc.mechanisms.discrete_gaussian import DiscreteGaussian
from privcalc.mechanisms.exponential import ExponentialMechanism
from privcalc.mechanisms.fixed_size import FixedSizeSampled
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.guarantees import GDP, RDP, ZCDP, ApproxDP, PureDP
from privcalc.mechanisms.laplace import Laplace
from privcalc.mechanisms.noisy_max import NoisyMax, PermuteAndFlip
from privcalc.mechanisms.parallel import Parallel
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.mechanisms.randomized_response import RandomizedResponse
from privcalc.mechanisms.replacement import WithReplacementSampled
from privcalc.mechanisms.shuffled import ShuffledEpoch
from privcalc.mechanisms.thresholded_counts import ThresholdedCounts
from privcalc.mechanisms.top_k import TopK
from privcalc.mechanisms.truncated import TruncatedPoissonSampled
from privcalc.mechanisms.tuning import RandomTrials
from privcalc.mechanisms.users import UserSampled
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, ZERO_OUT, Relation
from privcalc.rigorous.proof import Proof, prove
from privcalc.run import Mechanism, Run
from privcalc.tables import PLD, discretize, profile_table, tradeoff_of_profile, tradeoff_table
from privcalc.version import __version__ as __version__

__all__ = [
    "ADD_OR_REMOVE_ONE",
    "GDP",
    "PLD",
    "RDP",
    "REPLACE_ONE",
    "ZCDP",
    "ZERO_OUT",
    "AboveThreshold",
    "ApproxDP",
    "Assumptions",
    "AuditPlan",
    "Budget",
    "BudgetExceeded",
    "Calibration",
    "Certificate",
    "Contradiction",
    "CorrelatedGaussian",
    "CustomMechanism",
    "DiscreteGaussian",
    "Enclosure",
    "EventRestricted",
    "ExponentialMechanism",
    "Filter",
    "FixedSizeSampled",
    "Gaussian",
    "Guarantee",
    "IndividualFilter",
    "Laplace",
    "Ledger",
    "Mechanism",
    "NoisyMax",
    "NotConfirmed",
    "Parallel",
    "PermuteAndFlip",
    "PoissonSampled",
    "PrivcalcError",
    "PrivcalcWarning",
    "Proof",
    "PureDP",
    "RandomAllocation",
    "RandomTrials",
    "RandomizedResponse",
    "RealisedLosses",
    "Relation",
    "Run",
    "ShuffledEpoch",
    "ThresholdedCounts",
    "TopK",
    "TruncatedPoissonSampled",
    "UserSampled",
    "WithReplacementSampled",
    "calibrate",
    "certify",
    "discretize",
    "noise_multiplier",
    "noise_std",
    "plan_audit",
    "profile_table",
    "prove",
    "steps",
    "tradeoff_of_profile",
    "tradeoff_table",
]
