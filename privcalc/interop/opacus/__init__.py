"""Opacus: an accountant, calibration at the loader's true rate, and ledgers that draw.

The accountant is for ``PrivacyEngine``. Needs the extra ``opacus``.

    optimizer, data_loader = keep_ledger(optimizer, data_loader, ledger, start="random")

takes the optimizer and the loader that ``make_private`` returned.

By subclasses and public hooks of Opacus only: nothing of Opacus or torch is replaced. What is refused, and what nobody
here sees and a certificate lists: ``proofs/interop.md``, §3.
"""

from privcalc.interop.opacus.accountant import PrivcalcAccountant, register
from privcalc.interop.opacus.ledger import keep_ledger, step_of
from privcalc.interop.opacus.optimizer import NormRatios
from privcalc.interop.opacus.sampler import coin_rate, get_noise_multiplier, noise_for

__all__ = [
    "NormRatios",
    "PrivcalcAccountant",
    "coin_rate",
    "get_noise_multiplier",
    "keep_ledger",
    "noise_for",
    "register",
    "step_of",
]
