"""Pictures of privacy: functions of privcalc's values that return a matplotlib ``Figure``.

They need the extra ``pictures``.
"""

from privcalc.pictures.curves import epsilon_over_steps, profile, risk, save, tradeoff
from privcalc.pictures.training import accuracy, compared, noise_and_steps, plan, realised, spending

__all__ = [
    "accuracy",
    "compared",
    "epsilon_over_steps",
    "noise_and_steps",
    "plan",
    "profile",
    "realised",
    "risk",
    "save",
    "spending",
    "tradeoff",
]
