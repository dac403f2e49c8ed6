"""``--sampler``: how the batches of a run are drawn, for the commands that ask of runs of one kind of step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

import privcalc as pc
from privcalc.errors import PrivcalcError
from privcalc.mechanisms.sampler import REQUIRED, Batched, Command, batched

__all__ = ["OPTIONS", "Batches", "sampler_options"]

SAMPLERS: dict[str, tuple[type[Batched], Command]] = {
    kind.command.name: (kind, kind.command) for kind in batched() if kind.command is not None
}
"""By name; each class says what it is called here, and what it asks for."""


def _options() -> dict[str, tuple[type, str]]:
    """All that samplers ask for: its type, and what it is for each of them."""
    types: dict[str, type] = {}
    says: dict[str, dict[str, list[str]]] = {}
    for name, (_, command) in SAMPLERS.items():
        for option in command.options:
            types[option.name] = option.type
            says.setdefault(option.name, {}).setdefault(option.help, []).append(name)
    return {
        name: (types[name], "; ".join(f"{', '.join(sorted(takers))}: {text}" for text, takers in found.items()))
        for name, found in says.items()
    }


OPTIONS = _options()


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
        takes = SAMPLERS[sampler][1].options
        given = {name: value for name, value in options.items() if value is not None}
        if other := next((name for name in given if name not in {option.name for option in takes}), None):
            raise PrivcalcError(f"{_option(other)} = {given[other]!r}: is not for --sampler {sampler}")
        found = {option.name: given.get(option.name, option.default) for option in takes}
        if missing := next((name for name, value in found.items() if value is REQUIRED), None):
            raise PrivcalcError(f"{_option(missing)}: must be given with --sampler {sampler}")
        return cls(sampler, found)

    @property
    def none(self) -> bool:
        """Whether every record takes part in every step."""
        return self.given == {"sample_rate": 1.0}

    def step(self, noise: float) -> pc.Mechanism:
        """The mechanism of a step of Gaussian noise."""
        return SAMPLERS[self.sampler][0].on(pc.Gaussian(noise), *self.given.values())

    def number(self, steps: int) -> str:
        """How many of what there are."""
        one, of = SAMPLERS[self.sampler][1].counted
        return f"{steps} {one}{'s' * (steps != 1)}{of.format(**self.given)}"

    def __str__(self) -> str:
        """What is assumed of them."""
        if self.none:
            return "every record takes part in every step"
        words = {name: "all" if value is None else value for name, value in self.given.items()}
        return SAMPLERS[self.sampler][1].words.format(**words)

    def neighbours(self, relation: pc.Relation) -> str:
        """What neighbours differ in."""
        two = relation is pc.REPLACE_ONE
        if SAMPLERS[self.sampler][1].unit == "person":
            return f"{'two persons' if two else 'one person'}, each of whose contributions is at most the clip norm"
        return (
            "two contributions may differ by twice the clip norm"
            if two
            else "one contribution, of at most the clip norm"
        )


def sampler_options(function: Callable[..., int]) -> Callable[..., int]:
    """Give a command ``--sampler`` and what samplers ask for; its function takes them as one argument, ``batches``."""

    @functools.wraps(function)
    def asked(*, sampler: str, **options: Any) -> int:
        own = {name: options.pop(name) for name in OPTIONS}
        return function(batches=Batches.of(sampler, own), **options)

    decorated: Callable[..., int] = asked
    for name, (kind, text) in reversed(OPTIONS.items()):
        decorated = click.option(_option(name), type=kind, help=f"{text[0].upper()}{text[1:]}.")(decorated)
    kinds = click.Choice(sorted(SAMPLERS))
    words = "How batches are drawn (docs/samplers.md)."
    return click.option("--sampler", type=kinds, default="poisson", show_default=True, help=words)(decorated)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
