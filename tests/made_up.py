"""A mechanism and a sampler that the library has not, as somebody would add them: nothing else knows of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import privcalc as pc
from privcalc.mechanisms.sampler import Claimed, Command, Indices, Option, Sampled, Sampler, check_unsampled
from privcalc.pairs.dominating import Pairs
from privcalc.pairs.gaussian import GaussianPair


@dataclass(frozen=True)
class MadeUpNoise(pc.Mechanism):
    """A sum of clipped vectors with normal noise, thought through only for adding, removing or nulling a record."""

    kind = "MadeUpNoise"
    page = "gaussian.md"
    needs = ("normaliser", "clip_norm")
    draws = None
    scheme = None
    nulled = "absent"

    deviation: float

    def pairs(self, relation: pc.Relation) -> Pairs:
        if relation is pc.REPLACE_ONE:
            raise pc.PrivcalcError(f"relation = {relation}: MadeUpNoise has no guarantee under it")
        pair = GaussianPair(1 / self.deviation)
        return Pairs(pair, pair)


@dataclass(frozen=True)
class MadeUpSampled(Sampled):
    """A coin for each record in each step, of a chance of one in ``sides``."""

    kind = "MadeUpSampled"
    page = "poisson.md"
    scheme = "dice"
    command = None
    claim = None

    mechanism: pc.Mechanism
    sides: int = 6

    def __post_init__(self) -> None:
        check_unsampled(self.mechanism)

    def expected_size(self, records: int) -> float:
        return records / self.sides

    def sampler(self, records: int, relation: pc.Relation, persons: Indices | None = None) -> Sampler:
        return lambda noise: [np.flatnonzero(noise.coins(records, 1 / self.sides))]

    def pairs(self, relation: pc.Relation) -> Pairs:
        return pc.PoissonSampled(self.mechanism, 1 / self.sides).pairs(relation)


def name_it() -> None:
    """Where the command line and claims are to know it: in a process of its own, as others count what they know."""
    MadeUpSampled.command = Command(
        "dice",
        "each record whose die of {sides} shows one",
        (Option("sides", int, "how many sides a die has", default=6),),
    )
    MadeUpSampled.claim = Claimed("dice", "each record whose die of `batch_size` sides shows one", ("batch_size",))
