"""What a peer is asked and answers, and what a run is made of in its words."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from privcalc.errors import PrivcalcError
from privcalc.mechanisms.exponential import ExponentialMechanism
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.guarantees import PureDP
from privcalc.mechanisms.laplace import Laplace
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.mechanisms.randomized_response import RandomizedResponse
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, Relation
from privcalc.run import Run

SPACING, EPS_ERROR = 1e-4, 0.01
"""Defaults of those with a grid."""


@dataclass(frozen=True)
class Question:
    """A question to an accountant: a run, δ, and the number that is asked for.

    Attributes:
        run: the run; for ``sigma`` one of a single kind of step, whose noise multiplier is looked for.
        delta: δ in [0, 1).
        relation: the neighbouring relation.
        group_size: neighbours are up to so many steps of the relation apart.
        asks: ``epsilon``, ``sigma``, ``advantage`` or ``power`` (the largest true positive rate at 1 % false
            positives).
        target: the ε that ``sigma`` has to meet.
        coarser: factor on the grid of those that have one.
    """

    run: Run
    delta: float
    relation: Relation = ADD_OR_REMOVE_ONE
    group_size: int = 1
    asks: str = "epsilon"
    target: float = math.nan
    coarser: float = 1.0


class Answer(NamedTuple):
    """A number, the relation that it is for, and a remark."""

    value: float
    relation: Relation = ADD_OR_REMOVE_ONE
    remark: str = ""


Ask = Callable[[Question], Answer]


class Piece(NamedTuple):
    """Uses of a mechanism: "gaussian" (σ, q), "laplace" (scale,), or "pure" (ε,) for what is used as ε-DP."""

    kind: str
    numbers: tuple[float, ...]
    uses: int


def pieces(question: Question, *kinds: str) -> list[Piece]:
    """The run in these kinds; refused if there are others."""
    known = []
    moves = 2 if question.relation is REPLACE_ONE else 1
    for mechanism, count in question.run.entries:
        match mechanism:
            case Gaussian():
                piece = Piece("gaussian", (mechanism.noise_multiplier, 1.0), count)
            case PoissonSampled(mechanism=Gaussian() as inner):
                piece = Piece("gaussian", (inner.noise_multiplier, mechanism.rate), count)
            case Laplace():
                piece = Piece("laplace", (mechanism.scale / moves,), count)
            case PureDP() | RandomizedResponse():
                piece = Piece("pure", (mechanism.level,), count)
            case ExponentialMechanism():
                piece = Piece("pure", (mechanism.level * moves * (1 if mechanism.monotone else 2),), count)
            case _:
                piece = Piece(type(mechanism).__name__, (), count)
        if piece.kind not in kinds:
            raise PrivcalcError(f"it knows {' and '.join(kinds)} only, not {mechanism}")
        known.append(piece)
    return known


def relation_of(question: Question, parts: list[Piece]) -> Relation:
    """Return the relation of a peer's number: Gaussians have add-or-remove-one here, ε-DP keeps its relation."""
    if question.relation is REPLACE_ONE and any(part.kind == "gaussian" for part in parts):
        return ADD_OR_REMOVE_ONE
    return question.relation


class Steps(NamedTuple):
    """Poisson-sampled Gaussian steps of one kind."""

    noise_multiplier: float
    rate: float
    number: int


def steps(question: Question) -> list[Steps]:
    """Return the sampled Gaussian steps that are asked about."""
    return [Steps(part.numbers[0], part.numbers[1], part.uses) for part in pieces(question, "gaussian")]


def one_kind(question: Question) -> Steps:
    """The pieces of a question where one kind of step is all that can be asked about."""
    kinds = steps(question)
    if len(kinds) != 1:
        raise PrivcalcError("it is asked about one kind of step only")
    return kinds[0]


def best_order(order: float, orders: Any) -> str:
    """Where the best order lies on the grid."""
    low, high = float(min(orders)), float(max(orders))
    if low < order < high:
        return f"best at order {order:g} of a grid from {low:g} to {high:g}"
    return f"best at order {order:g}, an end of its grid from {low:g} to {high:g}: beyond it there may be a better one"
