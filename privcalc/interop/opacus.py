"""The same as :mod:`privcalc.adapters.opacus`."""

from privcalc.adapters.opacus import (
    NormRatios,
    PrivcalcAccountant,
    coin_rate,
    get_noise_multiplier,
    keep_ledger,
    register,
    step_of,
)

__all__ = ["NormRatios", "PrivcalcAccountant", "coin_rate", "get_noise_multiplier", "keep_ledger", "register", "step_of"]
