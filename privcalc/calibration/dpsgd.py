"""The numbers a DP-SGD run needs, in its own words: noise and steps for a target."""

from __future__ import annotations

import math

from privcalc import errors
from privcalc.calibration.search import calibrate
from privcalc.calibration.target import Loss, target
from privcalc.enclosure import Guarantee
from privcalc.errors import PrivcalcError, suggests
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.numerics.floats import UNIT
from privcalc.numerics.special import ndtri
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, Relation, check_relation
from privcalc.run import Run

__all__ = ["noise_multiplier", "noise_std", "steps"]


@suggests
def noise_multiplier(
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    advantage: float | None = None,
    alpha: float | None = None,
    beta: float | None = None,
    sample_rate: float | None = None,
    steps: int | None = None,
    batch_size: float | None = None,
    dataset_size: int | None = None,
    epochs: float | None = None,
    relation: Relation = ADD_OR_REMOVE_ONE,
    group_size: int = 1,
    records: int | None = None,
) -> float:
    """The noise multiplier for ``steps`` Gaussian releases on Poisson samples: noise standard deviation / clip norm.

    Args:
        epsilon: ε of the target, > 0,
        delta: with its δ, in (0, 1); or
        advantage: the largest true minus false positive rate of any attack on membership, in (0, 1); or
        beta: the smallest false negative rate of any attack on membership,
        alpha: at this false positive rate, in (0, 1).
        sample_rate: probability with which each record takes part in a step, independently (Poisson sampling). Default
            1: the analytic Gaussian mechanism.
        steps: number of steps; required with a sampling rate, else 1.
        batch_size: instead of sample_rate: the *expected* batch size,
        dataset_size: and the number of records, which must be public. A δ that is not below one over it is warned of.
        epochs: instead of steps: passes over the data, rounded up to whole steps, once. A loop that rounds each epoch
            up takes more: give ``steps``.
        relation: the neighbouring relation.
        group_size: how many records are protected together, as in ``Run.epsilon``: those of a person, say.
        records: the old name of ``group_size``, read up to 32, with a warning.

    Returns:
        A float on the safe side: the run with it was evaluated to meet the target.

    Raises:
        PrivcalcError: if an argument is out of range, two of them say the same, or a sampling rate comes without
            the number of steps.

    Example:
        >>> import privcalc as pc
        >>> z = pc.noise_multiplier(epsilon=3.0, delta=1e-5, batch_size=600, dataset_size=60_000, epochs=100)
        >>> print(f"{z:.6f}")
        1.564966
    """
    rate, count = schedule(sample_rate, steps, batch_size, dataset_size, epochs)
    size = errors.group_size(group_size, records)
    rates = {"advantage": advantage, "alpha": alpha, "beta": beta}
    if epsilon is not None and delta is not None:
        errors.positive("epsilon", epsilon)
        dlt = errors.real("delta", delta, "a probability in (0, 1)", low=0.0, high=1.0, open_low=True, open_high=True)
        errors.check_delta(dlt, dataset_size)
        errors.check_free(dlt, rate < 1 and -math.expm1(size * count * math.log1p(-rate)) <= dlt)
    aim = target(Guarantee(epsilon=epsilon, delta=delta, relation=check_relation(relation), **rates), size)
    # Start from the central-limit noise, in which q²T(e^{1/z²} − 1) takes the place of μ² (Bu et al. 2020).
    each = min(max(_rough_mu(aim.goal) / rate / math.sqrt(count) / size, 1e-100), 1e100)
    guess = 1 / math.sqrt(math.log1p(each * each)) if rate < 1 else 1 / each
    loss = Loss(lambda z: PoissonSampled(Gaussian(z), rate) * count, Run(), aim)
    right = loss.cross(lambda x: x, guess, 0.0, math.inf)
    if not right < math.inf:
        raise PrivcalcError(f"target = {aim.goal}: no noise multiplier was found that meets it")
    return right


def _rough_mu(goal: Guarantee) -> float:
    """A μ near the one that just meets the target: for ε and δ, from ε = μ²/2 + μ√(2 log 1/δ)."""
    if goal.advantage is not None:
        return 2 * float(ndtri(0.5 + 0.5 * min(float(goal.advantage), 1 - 1e-15)))
    if goal.beta is not None:
        return float(ndtri(1 - (goal.alpha or 1e-15)) - ndtri(float(goal.beta)))
    epsilon, delta = float(goal.epsilon or 0.0), goal.delta or 0.0
    root = math.sqrt(-2 * math.log(delta))
    return max(2 * float(ndtri(0.5 + 0.5 * delta)), 2 * epsilon / (math.sqrt(root * root + 2 * epsilon) + root))


def schedule(
    sample_rate: float | None,
    steps: int | None,
    batch_size: float | None,
    dataset_size: int | None,
    epochs: float | None,
) -> tuple[float, int]:
    """The sampling rate and the number of steps, from whichever way they were given."""
    if (batch_size is None) != (dataset_size is None):
        raise PrivcalcError(f"batch_size = {batch_size!r}, dataset_size = {dataset_size!r}: give both or neither")
    if batch_size is not None and dataset_size is not None:
        if sample_rate is not None:
            raise PrivcalcError(f"sample_rate = {sample_rate!r}: give it or batch_size and dataset_size, not both")
        records = errors.count("dataset_size", dataset_size, least=1)
        sample_rate = (
            errors.real("batch_size", batch_size, "in (0, dataset_size]", low=0.0, high=records, open_low=True)
            / records
        )
    rate = errors.rate("sample_rate", 1.0 if sample_rate is None else sample_rate)
    if epochs is None and steps is None and sample_rate is not None:
        raise PrivcalcError(
            "steps = None: must be given with a sampling rate (or epochs): noise for one step is too little for a run"
        )
    if epochs is None:
        count = errors.count("steps", 1 if steps is None else steps, least=1)
        errors.check_pass(count, rate)
        return rate, count
    if steps is not None:
        raise PrivcalcError(f"epochs = {epochs!r}: give it or steps, not both")
    return rate, whole_steps(epochs, rate)


def whole_steps(epochs: float, rate: float) -> int:
    """Passes over the data, rounded up to whole steps."""
    exact = errors.positive("epochs", epochs) / rate
    if exact > 2**53:
        raise PrivcalcError(f"epochs = {epochs!r}: must be at most 2^53 steps")
    near = round(exact)  # meant, where the roundings of the two divisions account for the difference
    return near if abs(exact - near) <= 4 * UNIT * near else math.ceil(exact)


@suggests
def noise_std(
    *,
    epsilon: float,
    delta: float,
    sensitivity: float | None = None,
    clip_norm: float | None = None,
    steps: int = 1,
    relation: Relation = ADD_OR_REMOVE_ONE,
) -> float:
    """The noise standard deviation for a query of known L2 sensitivity: the analytic Gaussian mechanism.

    Args:
        epsilon: ε of the target.
        delta: δ of the target.
        sensitivity: the largest distance of the query's values on two data sets that are neighbours, 1e-100 to 1e100.
            It knows of the relation already, of which nothing else is asked then: under replace-one, give
            ``clip_norm``; or
        clip_norm: the bound C of the norm of one record's contribution to a sum, which moves by C at most, and by 2C
            under replace-one.
        steps: how often the query, or others of the same sensitivity, are answered.
        relation: the neighbouring relation, by which a sum of clipped contributions has its sensitivity.

    Returns:
        σ, in the unit of the query, on the safe side (Balle, Wang 2018, Algorithm 1).

    Raises:
        PrivcalcError: if an argument is out of range, or not exactly one of ``sensitivity`` and ``clip_norm`` is given;
            under replace-one also for a ``sensitivity``, which may be meant as C or as 2C.

    Example:
        >>> import privcalc as pc
        >>> print(f"{pc.noise_std(epsilon=1.0, delta=1e-5, sensitivity=2.0):.6f}")
        7.461263
        >>> print(f"{pc.noise_std(epsilon=1.0, delta=1e-5, clip_norm=1.0, relation=pc.REPLACE_ONE):.6f}")
        7.461263
    """
    double = check_relation(relation) is REPLACE_ONE
    if (sensitivity is None) == (clip_norm is None):
        raise PrivcalcError(f"sensitivity = {sensitivity!r}, clip_norm = {clip_norm!r}: must be exactly one of them")
    if clip_norm is not None:
        scale = errors.scale("clip_norm", clip_norm) * (2 if double else 1)
    else:
        scale = errors.scale("sensitivity", 0.0 if sensitivity is None else sensitivity)
        if double:
            raise PrivcalcError(
                f"sensitivity = {sensitivity!r}: may be meant as the bound C of a contribution or, under {relation}, "
                "as the 2C by which a sum of them moves: give clip_norm=C; or, where it is how far the query moves, "
                "leave the relation out"
            )
    return noise_multiplier(epsilon=epsilon, delta=delta, steps=steps) * scale * (1 + 2 * UNIT)


@suggests
def steps(
    *,
    epsilon: float,
    delta: float,
    noise_multiplier: float,
    sample_rate: float = 1.0,
    relation: Relation = ADD_OR_REMOVE_ONE,
) -> int:
    """The largest number of steps that stays within the target; 0 if not even one does.

    Args:
        epsilon: ε of the target.
        delta: δ of the target.
        noise_multiplier: noise standard deviation / clip norm.
        sample_rate: probability with which each record takes part in a step, independently (Poisson sampling).
        relation: the neighbouring relation.

    Example:
        >>> import privcalc as pc
        >>> pc.steps(epsilon=3.0, delta=1e-5, sample_rate=1.0, noise_multiplier=20.0)
        206
        >>> pc.steps(epsilon=3.0, delta=1e-5, sample_rate=1.0, noise_multiplier=20.0, relation=pc.REPLACE_ONE)
        51
    """
    step = PoissonSampled(Gaussian(noise_multiplier), errors.rate("sample_rate", sample_rate))
    return int(
        calibrate(lambda n: step * int(n), epsilon=epsilon, delta=delta, relation=relation, integer=True).parameter
    )
