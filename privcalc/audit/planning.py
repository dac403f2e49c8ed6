"""Plans from public norms, before the run: the noise, steps or filter that a stated share of records needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from privcalc import errors
from privcalc.audit.sensitive import ratios
from privcalc.calibration import dpsgd
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.poisson import PoissonSampled

__all__ = ["AuditPlan", "plan_audit"]


@dataclass(frozen=True)
class AuditPlan:
    """What was found by :func:`plan_audit`.

    Attributes:
        noise_multiplier: of every step.
        steps: their number.
        mu: budget of an :class:`IndividualFilter` (full batch) under which a record is stopped before it exceeds the
            target.
        norm_ratio: the public quantile of the norms that the plan is for.
        own_epsilon: ε of a record that has it in every step.
        worst_epsilon: ε of the run, for every record: what can be certified without a filter.
    """

    noise_multiplier: float
    steps: int
    mu: float
    norm_ratio: float
    own_epsilon: float
    worst_epsilon: float


def plan_audit(
    public_norm_ratios: ArrayLike,
    *,
    share: float,
    epsilon: float,
    delta: float,
    steps: int | None = None,
    noise_multiplier: float | None = None,
    rate: float = 1.0,
) -> AuditPlan:
    """Choose the noise or the number of steps so that a share of records finishes under ε.

    The norms are taken to be like the public ones.

    Args:
        public_norm_ratios: root mean square, over the steps, of norm / clip norm, one per *public* record, in [0, 1].
        share: share of records in (0, 1].
        epsilon: ε > 0 that they should not exceed.
        delta: its δ in (0, 1).
        steps: number of steps, to find the noise; or
        noise_multiplier: to find the number of steps.
        rate: sampling rate.

    Returns:
        A plan. Its ε's for single records are expectations from public data, no guarantee; the filter's is one.

    Raises:
        PrivcalcError: unless exactly one of steps and noise_multiplier is given, or the share has no norm at all.

    Example:
        >>> import privcalc as pc
        >>> plan = pc.plan_audit([0.1, 0.2, 0.3, 1.0], share=0.75, epsilon=1.0, delta=1e-5, steps=100)
        >>> print(f"{plan.noise_multiplier:.4f} {plan.norm_ratio:.1f} {plan.own_epsilon:.4f} {plan.worst_epsilon:.3f}")
        11.1919 0.3 1.0000 3.844
    """
    values = errors.numbers("public_norm_ratios", public_norm_ratios)
    norms = np.sort(ratios("public_norm_ratios", values, values.size)).astype(np.float64)
    part = errors.real("share", share, "a share in (0, 1]", low=0.0, high=1.0, open_low=True)
    if (steps is None) == (noise_multiplier is None) or not norms.size:
        raise errors.PrivcalcError(
            "public_norm_ratios, steps, noise_multiplier: norms and exactly one of the others must be given"
        )
    ratio = float(norms[int(np.ceil(part * norms.size)) - 1])
    if not ratio > 0:
        raise errors.PrivcalcError(
            f"public_norm_ratios: {share:.3g} of the records have norm 0 and never pay; nothing to plan"
        )
    mu = 1 / dpsgd.noise_multiplier(epsilon=epsilon, delta=delta, sample_rate=1.0, steps=1) * (1 - 2.0**-50)
    if steps is not None:
        noise = ratio * dpsgd.noise_multiplier(epsilon=epsilon, delta=delta, sample_rate=rate, steps=steps)
        count = steps
    else:
        noise = errors.scale("noise_multiplier", noise_multiplier or 0.0)
        count = dpsgd.steps(epsilon=epsilon, delta=delta, sample_rate=rate, noise_multiplier=noise / ratio)
    own, worst = (PoissonSampled(Gaussian(z), rate) * count for z in (noise / ratio, noise))
    return AuditPlan(noise, count, mu, ratio, own.epsilon(delta=delta).upper, worst.epsilon(delta=delta).upper)
