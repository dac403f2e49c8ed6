"""``--sampler``: how the batches of a run are drawn, for the commands that ask of runs of one kind of step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

import privcalc as pc
from privcalc.errors import PrivcalcError

__all__ = ["SAMPLERS", "Batches", "sampler_options"]

OPTIONS: dict[str, tuple[type, str]] = {
    "sample_rate": (float, "probability with which each record takes part in a step, independently (default 1)"),
    "records": (int, "persons: the most records that one has"),
    "counted": (int, "persons: how many of one's records in a batch are summed at most (default all)"),
    "batch_size": (int, "fixed, replacement: how many records are in a batch; truncated: at most"),
    "dataset_size": (int, "fixed, replacement: how many there are, or a public lower bound of it; truncated: an upper bound"),
    "epoch_steps": (int, "allocation: how many steps an epoch has; --steps counts epochs"),
    "passes": (int, "allocation: over the same steps (default 1)"),
    "choices": (int, "allocation: in how many steps of an epoch each record takes part (default 1)"),
}
"""All that samplers may ask for, in the order in which their mechanisms take it."""


@dataclass(frozen=True)
class Sampler:
    """One way to draw batches.

    Attributes:
        step: the mechanism of a step, of what is released on a batch, and its options.
        words: what it assumes; the options fill it in.
        needs: the options that must be given.
        takes: those that may be, with what they are otherwise.
        counted: what ``--steps`` counts, and of what; the options fill it in.
        unit: whom the relation is about.
    """

    step: Callable[..., pc.Mechanism]
    words: str
    needs: tuple[str, ...] = ()
    takes: tuple[tuple[str, Any], ...] = ()
    counted: tuple[str, str] = ("Gaussian step", "")
    unit: str = "record"


SAMPLERS = {
    "poisson": Sampler(
        pc.PoissonSampled,
        "each record takes part in each step with probability {sample_rate:.9g}, independently (Poisson sampling)",
        takes=(("sample_rate", 1.0),),
    ),
    "persons": Sampler(
        pc.UserSampled,
        "each record takes part with probability {sample_rate:.9g}, independently; a person has {records} at most, and of those "
        "in a batch {counted} count",
        needs=("records",),
        takes=(("sample_rate", 1.0), ("counted", None)),
        unit="person",
    ),
    "fixed": Sampler(
        pc.FixedSizeSampled,
        "a uniformly random {batch_size} of at least {dataset_size} records in each step, without replacement",
        needs=("batch_size", "dataset_size"),
    ),
    "truncated": Sampler(
        pc.TruncatedPoissonSampled,
        "Poisson samples with probability {sample_rate:.9g}, of which {batch_size} at most are kept, of at most {dataset_size}",
        needs=("sample_rate", "batch_size", "dataset_size"),
    ),
    "replacement": Sampler(
        pc.WithReplacementSampled,
        "{batch_size} draws with replacement from at least {dataset_size} records in each step",
        needs=("batch_size", "dataset_size"),
    ),
    "allocation": Sampler(
        pc.RandomAllocation,
        "each record in so many steps of an epoch, {choices}, drawn at random, and in the same of each of its {passes} passes",
        needs=("epoch_steps",),
        takes=(("passes", 1), ("choices", 1)),
        counted=("epoch", " of {epoch_steps} Gaussian steps"),
    ),
    "shuffled": Sampler(
        pc.ShuffledEpoch,
        "each record in one batch of an epoch, which a shuffled data set was cut into",
        counted=("epoch", ""),
    ),
}
"""By name; one more needs a line here, and its own options above."""


@dataclass(frozen=True)
class Batches:
    """How the batches of a run are drawn.

    Attributes:
        sampler: its name.
        given: its options, those that were not given by their defaults, in the order in which its mechanism takes them.
    """

    sampler: str
    given: dict[str, Any]

    @classmethod
    def of(cls, sampler: str, options: dict[str, Any]) -> Batches:
        """Of a name and all options, None where one was not given.

        Raises:
            PrivcalcError: if one is missing, or is another sampler's.
        """
        known = SAMPLERS[sampler]
        takes, found = dict(known.takes), {}
        for name in OPTIONS:
            value = options[name]
            if name in known.needs and value is None:
                raise PrivcalcError(f"{_option(name)}: must be given with --sampler {sampler}")
            if value is not None and name not in known.needs and name not in takes:
                raise PrivcalcError(f"{_option(name)} = {value!r}: is not for --sampler {sampler}")
            if name in known.needs or name in takes:
                found[name] = takes[name] if value is None else value
        return cls(sampler, found)

    @property
    def none(self) -> bool:
        """Whether every record takes part in every step."""
        return self.given == {"sample_rate": 1.0}

    def step(self, noise: float) -> pc.Mechanism:
        """The mechanism of a step of Gaussian noise."""
        return SAMPLERS[self.sampler].step(pc.Gaussian(noise), *self.given.values())

    def number(self, steps: int) -> str:
        """How many of what there are."""
        one, of = SAMPLERS[self.sampler].counted
        return f"{steps} {one}{'s' * (steps != 1)}{of.format(**self.given)}"

    def __str__(self) -> str:
        """What is assumed of them."""
        if self.none:
            return "every record takes part in every step"
        words = {name: "all" if value is None else value for name, value in self.given.items()}
        return SAMPLERS[self.sampler].words.format(**words)

    def neighbours(self, relation: pc.Relation) -> str:
        """What neighbours differ in."""
        two = relation is pc.REPLACE_ONE
        if SAMPLERS[self.sampler].unit == "person":
            return f"{'two persons' if two else 'one person'}, each of whose contributions is at most the clip norm"
        return "two contributions may differ by twice the clip norm" if two else "one contribution, of at most the clip norm"


def sampler_options(function: Callable[..., int]) -> Callable[..., int]:
    """Give a command ``--sampler`` and what samplers ask for; its function takes them as one argument, ``batches``."""

    @functools.wraps(function)
    def asked(*, sampler: str, **options: Any) -> int:
        own = {name: options.pop(name) for name in OPTIONS}
        return function(batches=Batches.of(sampler, own), **options)

    decorated: Callable[..., int] = asked
    for name, (kind, text) in reversed(OPTIONS.items()):
        decorated = click.option(_option(name), type=kind, help=f"{text[0].upper()}{text[1:]}.")(decorated)
    kinds = click.Choice(list(SAMPLERS))
    words = "How batches are drawn (docs/samplers.md)."
    return click.option("--sampler", type=kinds, default="poisson", show_default=True, help=words)(decorated)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
