"""Random allocation, or balls in bins: every record in one of the steps, or k of them, drawn by itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privcalc import errors
from privcalc.mechanisms.poisson import gaussian_mu
from privcalc.mechanisms.sampler import Claimed, Command, Indices, Option, Sampled, Sampler, check_unsampled
from privcalc.noise.source import Noise
from privcalc.pairs.allocation import several
from privcalc.pairs.dominating import Pairs
from privcalc.relation import REPLACE_ONE, Relation
from privcalc.run import Mechanism

__all__ = ["RandomAllocation"]

MOST_STEPS = 1_000_000
"""The longest epoch that is inverted."""


@dataclass(frozen=True)
class RandomAllocation(Sampled):
    """``steps`` releases, in one or ``choices`` of which each record takes part.

    These are drawn uniformly, for each record by itself, beforehand.

    One use is a whole epoch of ``steps`` steps; ``* E`` is E epochs with fresh draws. With ``epochs`` the same slots
    are used in so many passes. How many records a step has is random and not told: nothing is divided by it, and no
    place is limited. Cutting a shuffled data set into batches is not this (``ShuffledEpoch``): there a record's place
    tells of the others'.

    Add-or-remove-one and zero-out are the same here: nobody else's draw depends on whether the record is there.
    Replace-one is refused; adding and removing two records is a group of two. For δ of 1e-8 or more ε is known to seven
    digits or more for 100 steps or fewer, to three or more, nearly always six, up to 1e4 at noise multipliers of 0.3 or
    more, and up to 1e6 from 0.6 on, of one use and of several; below 0.25 two or three digits. From a noise multiplier
    of 2 on it is known to four digits or more for δ down to 1e-12, up to 1e5 steps. With several choices there is an
    interval, its ends apart by about 1 % of ε where these are few beside the steps. Below a noise multiplier of 0.05
    for all passes together the upper end is that of a record in all steps' place, and nothing is known from below.

    Args:
        mechanism: what runs in each step: ``Gaussian`` or ``GDP``.
        steps: t, the steps of an epoch, 1 to 1e6.
        epochs: passes over the same slots, at least 1.
        choices: k, the steps of an epoch in which each record takes part: distinct, all sets of k equally likely.

    Raises:
        PrivcalcError: if an argument is out of range, or the mechanism is sampled itself or not Gaussian.

    Example:
        >>> import privcalc as pc
        >>> epoch = RandomAllocation(pc.Gaussian(noise_multiplier=1.0), steps=100)
        >>> print(f"{epoch.epsilon(delta=1e-5):.6f}")
        0.620940
        >>> print(f"{(pc.PoissonSampled(pc.Gaussian(noise_multiplier=1.0), rate=0.01) * 100).epsilon(delta=1e-5):.6f}")
        0.718036
    """

    kind = "RandomAllocation"
    page = "allocation.md"
    scheme = "balls in bins"
    command = Command(
        "allocation",
        "each record in so many steps of an epoch, {choices}, drawn at random, "
        "and in the same of each of its {passes} passes",
        (
            Option("epoch_steps", int, "how many steps an epoch has; --steps counts epochs"),
            Option("passes", int, "over the same steps", default=1),
            Option("choices", int, "in how many steps of an epoch each record takes part", default=1),
        ),
        counted=("epoch", " of {epoch_steps} Gaussian steps"),
    )
    claim = Claimed(
        "random allocation", "each record in one step of each epoch, drawn by itself", ("steps",), counted="epochs"
    )

    mechanism: Mechanism
    steps: int
    epochs: int = 1
    choices: int = 1

    def __post_init__(self) -> None:
        steps = errors.count("steps", self.steps, least=1)
        if steps > MOST_STEPS:
            raise errors.PrivcalcError(f"steps = {steps}: must be at most {MOST_STEPS}")
        object.__setattr__(self, "steps", steps)
        object.__setattr__(self, "epochs", errors.count("epochs", self.epochs, least=1))
        object.__setattr__(self, "choices", errors.count("choices", self.choices, least=1))
        if self.choices > steps:
            raise errors.PrivcalcError(f"choices = {self.choices}: must be at most steps = {steps}")
        check_unsampled(self.mechanism)

    @property
    def batches(self) -> int:
        """The number of batches: one for each step of each epoch."""
        return self.steps * self.epochs

    def expected_size(self, records: int) -> float:
        """Return the mean batch size, k·records/t."""
        return self.choices * records / self.steps

    def sampler(self, records: int, relation: Relation, persons: Indices | None = None) -> Sampler:
        """k steps for each, the same in all epochs."""

        def draw(noise: Noise) -> list[Indices]:
            steps = np.empty((records, 0), dtype=np.int64)
            for drawn in range(self.choices):
                # Uniform among those not drawn yet: one more for each of these that it reaches, in their order.
                new = noise.numbers(records, self.steps - drawn)
                for earlier in steps.T:
                    new = new + (new >= earlier)
                steps = np.sort(np.column_stack([steps, new]), axis=1)
            places = steps.ravel()
            order = np.argsort(places, kind="stable")
            return (
                np.split(order // self.choices, np.searchsorted(places[order], np.arange(1, self.steps))) * self.epochs
            )

        return draw

    def pairs(self, relation: Relation) -> Pairs:
        """A mixture of shifts against none."""
        if relation is REPLACE_ONE:
            raise errors.PrivcalcError(
                f"relation = {relation}: RandomAllocation is not evaluated for it; ask under "
                "privcalc.ADD_OR_REMOVE_ONE or privcalc.ZERO_OUT, for a group of two records if one is replaced"
            )
        mu = gaussian_mu(self.mechanism, 0.5, relation, "RandomAllocation")
        return several(mu, self.steps, self.choices, self.epochs)
