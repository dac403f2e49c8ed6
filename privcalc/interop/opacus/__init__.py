"""Opacus: an accountant for ``PrivacyEngine``, ledgers of its runs, and norms for audits. Needs the extra ``opacus``.

    import privcalc.interop.opacus
    privcalc.interop.opacus.register()
    engine = PrivacyEngine(accountant="privcalc")

Every step must be one whole batch of the loader that ``make_private`` returned, and every batch one step; how many records are
in it is checked, by the accountant and with a ledger, before noise is drawn. So is that the optimizer has all trainable
parameters of the module, and that nothing else moves them. Assumed, and not seen from here: they are the records that were drawn,
and the length of the data set, which Opacus divides by, is public.
Opacus's coins have 24 bits: a record takes part with a probability a little above the nominal rate, which is accounted for.
"""

from privcalc.interop.opacus.accountant import PrivcalcAccountant, get_noise_multiplier, register
from privcalc.interop.opacus.doors import OptimizerDoors
from privcalc.interop.opacus.ledger import keep_ledger, step_of
from privcalc.interop.opacus.noise import exact_noise
from privcalc.interop.opacus.norms import NormRatios
from privcalc.interop.opacus.sampler import coin_rate

__all__ = [
    "NormRatios",
    "OptimizerDoors",
    "PrivcalcAccountant",
    "coin_rate",
    "exact_noise",
    "get_noise_multiplier",
    "keep_ledger",
    "register",
    "step_of",
]
