"""Opacus: its accountant interface, and a ledger that its optimizer charges."""

from privcalc.interop.opacus.accountant import (
    NormRatios,
    PrivcalcAccountant,
    coin_rate,
    get_noise_multiplier,
    keep_ledger,
    register,
    step_of,
)

__all__ = ["NormRatios", "PrivcalcAccountant", "coin_rate", "get_noise_multiplier", "keep_ledger", "register", "step_of"]
