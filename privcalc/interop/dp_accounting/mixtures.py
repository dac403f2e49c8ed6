"""``MixtureOfGaussiansDpEvent``: one record in a batch or not, or a person's several (``proofs/interop.md``, §5)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.mechanisms.user_sampling import UserSampled
from privcalc.numerics.floats import UNIT
from privcalc.numerics.gaussian_mixture import MOST_RECORDS, Counts
from privcalc.run import Mechanism

NEAR = 1e-9
"""How far, relative to themselves, probabilities may be from those of coins to be read as these: from below, always."""

UP = 1 + 4 * UNIT


def to_mixture(step: UserSampled) -> tuple[float, list[float], list[float]] | None:
    """Standard deviation, sensitivities and probabilities of a person's records.

    None where the release is not ``Gaussian``.
    """
    if not isinstance(step.mechanism, Gaussian):
        return None
    most = step.records if step.counted is None else step.counted
    if step.rate == 1:
        return step.mechanism.noise_multiplier, [float(most)], [1.0]
    weights = Counts(step.records, step.rate, most).weights
    return step.mechanism.noise_multiplier, [float(j) for j in range(weights.size)], [float(w) for w in weights]


def from_mixture(deviation: float, sensitivities: Sequence[float], probabilities: Sequence[float]) -> Mechanism | None:
    """The mechanism, if the law is that of coins: one, or one for each of a person's records, of which so many count.

    Returns:
        One whose sensitivities exceed those of the event with at least the probability that they have there; None for
        no release.

    Raises:
        PrivcalcError: if it is another law, or none.
    """
    shifts = errors.floats("sensitivities", list(sensitivities), "numbers >= 0")
    law = errors.floats("sampling_probs", list(probabilities), "probabilities")
    if shifts.shape != law.shape or shifts.ndim != 1 or not np.all(np.isfinite(shifts) & (shifts >= 0)):
        raise PrivcalcError(
            f"sensitivities = {sensitivities}: must be finite, not negative, and as many as sampling_probs"
        )
    if not np.all((law >= 0) & (law <= 1)) or not math.isclose(math.fsum(law), 1):
        raise PrivcalcError(f"sampling_probs = {probabilities}: must be probabilities with sum 1")
    total: dict[float, Fraction] = {}
    for shift, share in zip(shifts.tolist(), law.tolist(), strict=True):
        total[shift] = total.get(shift, Fraction(0)) + Fraction(share)
    whole, none = sum(total.values()), total.pop(0.0, Fraction(0))
    parts = [(shift, share / whole) for shift, share in sorted(total.items()) if share]
    if not parts:
        return None
    each = [shift / j for j, (shift, _) in enumerate(parts, 1)]
    noise = Gaussian(errors.positive("standard_deviation", deviation) / max(each) / UP)
    above = [*itertools.accumulate(share for _, share in reversed(parts))][::-1]
    if len(parts) == 1:
        return PoissonSampled(noise, _up(above[0])) if none else noise
    found = _coins(none / whole, above) if none and min(each) >= max(each) * (1 - NEAR) else None
    if found is not None:
        return UserSampled(noise, *found)
    raise PrivcalcError(
        f"sampling_probs = {probabilities}: must be those of coins: of one, or of one for each of k records of a "
        "person, with sensitivities 0, c, 2c, …; there is no mechanism for other laws"
    )


def _coins(none: Fraction, above: list[Fraction]) -> tuple[float, int, int | None] | None:
    """Rate, number of records, and how many count, if P(J ≥ j) is ``above[j − 1]`` or hardly more.

    None if no coins are so.
    """
    most, once = len(above), float((above[0] - above[1]) / none)
    for records in range(most, MOST_RECORDS + 1):
        rate = once / records / (1 + once / records)
        if abs(math.expm1(records * math.log1p(-rate)) + float(above[0])) > NEAR:
            continue
        for lift in (0.0, 2.0**-51, 2.0**-47, 2.0**-40, 0.1 * NEAR):
            if (lifted := rate * (1 + lift)) < 1 and _covers(lifted, records, above):
                return lifted, records, most if most < records else None
    return None


def _covers(rate: float, records: int, above: list[Fraction]) -> bool:
    """Whether so many coins show at least j heads with at least the probabilities that are given, and hardly more."""
    n, d = rate.as_integer_ratio()
    term, rest = (d - n) ** records, d**records
    whole = rest
    for j, least in enumerate(above):
        rest -= term
        term = term * n * (records - j) // ((d - n) * (j + 1))
        if not least * whole <= rest <= (least * (1 + Fraction(records * NEAR)) + Fraction(1e-300)) * whole:
            return False
    return True


def _up(share: Fraction) -> float:
    """A probability, rounded up."""
    near = float(share)
    return near if Fraction(near) >= share else math.nextafter(near, 2.0)
