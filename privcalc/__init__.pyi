"""The public names, where each is defined; the package loads each when it is first asked for."""

from . import strategies as strategies
from .audit.individual import IndividualFilter
from .audit.planning import AuditPlan, plan_audit
from .audit.realised import RealisedLosses
from .audit.statements import EventRestricted
from .budget.budget import Budget
from .calibration.dpsgd import noise_multiplier, noise_std, steps
from .calibration.search import Calibration, calibrate
from .certificate.certificate import Certificate, certify
from .enclosure import Enclosure, Enclosures, Guarantee
from .errors import BudgetExceeded, Contradiction, NotConfirmed, PrivcalcError, PrivcalcWarning
from .ledger.assumptions import Assumptions
from .ledger.ledger import Ledger
from .ledger.rules import Filter
from .mechanisms.above_threshold import AboveThreshold
from .mechanisms.correlated import CorrelatedGaussian
from .mechanisms.custom import CustomMechanism
from .mechanisms.discrete_gaussian import DiscreteGaussian
from .mechanisms.exponential import ExponentialMechanism, TopK
from .mechanisms.fixed_size import FixedSizeSampled, ShuffledEpoch, WithReplacementSampled
from .mechanisms.gaussian import Gaussian
from .mechanisms.guarantees import GDP, RDP, ZCDP, ApproxDP, PureDP
from .mechanisms.laplace import Laplace
from .mechanisms.last_iterate import LastIterate
from .mechanisms.noisy_max import NoisyMax, PermuteAndFlip
from .mechanisms.parallel import Parallel
from .mechanisms.poisson import PoissonSampled
from .mechanisms.random_allocation import RandomAllocation
from .mechanisms.random_trials import RandomTrials
from .mechanisms.randomized_response import RandomizedResponse
from .mechanisms.thresholded_counts import ThresholdedCounts
from .mechanisms.truncated_poisson import TruncatedPoissonSampled
from .mechanisms.user_sampling import UserSampled
from .proof import Proof, prove
from .relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, ZERO_OUT, Relation
from .run import Mechanism, Run
from .tables import PLD, discretize, profile_table, tradeoff_of_profile, tradeoff_table

__version__: str

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
    "Enclosures",
    "EventRestricted",
    "ExponentialMechanism",
    "Filter",
    "FixedSizeSampled",
    "Gaussian",
    "Guarantee",
    "IndividualFilter",
    "Laplace",
    "LastIterate",
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
