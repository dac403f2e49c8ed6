"""Reference learners: small, complete, and unable to draw noise around the accountant.

plan -> privcalc answers z or T -> noisy, clipped sums through the ledger -> model and certificate
"""

from learners.adamix import AdaMix
from learners.dpsgd import DPSGD
from learners.noisy_gd import NoisyGD

__all__ = ["DPSGD", "AdaMix", "NoisyGD"]
