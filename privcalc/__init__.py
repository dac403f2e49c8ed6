"""privcalc: certified differential-privacy accounting.

    mechanism  ->  pair of distributions  ->  composition  ->  enclosure of ε, δ, β, μ

A mechanism describes one release, ``*`` repeats and ``+`` composes it, and a run answers questions with proved lower and upper
bounds. Start with :class:`Gaussian`, :class:`PoissonSampled` and :func:`noise_multiplier`.
"""

from privcalc.calibrate import Calibration, calibrate
from privcalc.dpsgd import noise_multiplier, noise_std, steps
from privcalc.enclosure import Enclosure, Guarantee
from privcalc.errors import PrivcalcError
from privcalc.mechanism import Mechanism
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.guarantees import GDP, RDP, ZCDP, ApproxDP, PureDP
from privcalc.mechanisms.laplace import Laplace
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.mechanisms.randomized_response import RandomizedResponse
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, ZERO_OUT, Relation
from privcalc.run import Run

__version__ = "0.1.0"

__all__ = [
    "ADD_OR_REMOVE_ONE",
    "GDP",
    "RDP",
    "REPLACE_ONE",
    "ZCDP",
    "ZERO_OUT",
    "ApproxDP",
    "Calibration",
    "Enclosure",
    "Gaussian",
    "Guarantee",
    "Laplace",
    "Mechanism",
    "PoissonSampled",
    "PrivcalcError",
    "PureDP",
    "RandomizedResponse",
    "Relation",
    "Run",
    "calibrate",
    "noise_multiplier",
    "noise_std",
    "steps",
]
