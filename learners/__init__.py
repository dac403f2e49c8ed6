"""Reference learners: small, complete, and unable to draw noise around the accountant.

plan -> privcalc answers z or T -> noisy, clipped sums through the ledger -> model and certificate
"""

from learners.adamix import AdaMix
from learners.dope import DOPESGD
from learners.dp_ls import DPLS
from learners.dppl import DPPLMean
from learners.dppl_public import DPPLPublic
from learners.dpsgd import DPSGD
from learners.noisy_gd import NoisyGD
from learners.pda_dpmd import PDADPMD
from learners.pillar import PILLAR
from learners.ppsgd import PPSGD
from learners.search import PrivateSearch
from learners.whitened import WhitenedGD

__all__ = [
    "DOPESGD",
    "DPLS",
    "DPSGD",
    "PDADPMD",
    "PILLAR",
    "PPSGD",
    "AdaMix",
    "DPPLMean",
    "DPPLPublic",
    "NoisyGD",
    "PrivateSearch",
    "WhitenedGD",
]
