"""``privcalc compare``: every installed accountant on one run, and why they differ.

Answers are set against our proved interval for the relation that the accountant speaks about; a number below its lower
end is too small for what was asked, whatever else it may be right for.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from privcalc import errors
from privcalc.enclosure import Enclosure
from privcalc.errors import PrivcalcError
from privcalc.peers import PEERS, Peer, Question
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation, check_relation
from privcalc.run import Mechanism, Run

__all__ = ["Row", "compare"]


@dataclass(frozen=True)
class Row:
    """One accountant's answer in a comparison.

    Attributes:
        accountant: its name.
        epsilon: ε; NaN if it gave none.
        kind: "proved interval", "bound" (up to its rounding) or "estimate".
        relation: the relation that it speaks about.
        excess: ε over the end of our interval that it misses, −1 for nothing at all; 0 inside the interval.
        why: what makes it differ, in words.
    """

    accountant: str
    epsilon: float
    kind: str
    relation: str
    excess: float
    why: tuple[str, ...]


def compare(run: Mechanism | Run, *, delta: float, relation: Relation = ADD_OR_REMOVE_ONE) -> list[Row]:
    """Ask every installed accountant for ε; ours first.

    Args:
        run: a run or mechanism.
        delta: δ in [0, 1).
        relation: the neighbouring relation.

    Returns:
        One row for each accountant that is installed, also for those that cannot describe the run or fail, with the
        reason.

    Raises:
        PrivcalcError: if our own accountant cannot answer.

    Example:
        >>> import privcalc as pc
        >>> row, *others = compare(pc.Gaussian(1.0), delta=1e-5)
        >>> print(f"{row.accountant} {row.epsilon:.6f} {row.kind}")
        privcalc 4.377178 proved interval
    """
    value, asked = errors.delta("delta", delta), check_relation(relation)
    truth = functools.cache(lambda one: run.run.epsilon(delta=value, relation=one))
    answer = truth(asked)
    first = f"{answer.route}; certified in [{answer.lower!r}, {answer.upper!r}]"
    rows = [
        Row(
            "privcalc", answer.upper, "proved interval", str(asked), 0.0, ("both ends proved, rounding included", first)
        )
    ]
    question = Question(run.run, value, asked)
    for name, peer in PEERS.items():
        if peer.passes_on:
            continue
        rows += _row(name, peer, question, truth)
    return rows


def _row(name: str, peer: Peer, question: Question, truth: Callable[[Relation], Enclosure]) -> list[Row]:
    """One row, or none if it is not installed."""
    kind, reason, asked = peer.kind, peer.why, question.relation
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            epsilon, relation, remark = peer.load()(question)
    except ImportError:
        return []
    except Exception as error:  # a peer may raise anything, on import too: its row says what
        text = " ".join(str(error).split())[:200] or type(error).__name__
        return [Row(name, math.nan, kind, str(asked), math.nan, (f"no answer: {text}",))]
    ours = truth(relation)
    why = [remark] if remark else []
    if relation is not asked:
        why.append(f"speaks about {relation}, where our ε is {ours}; {asked} was asked")
    if math.isnan(epsilon) or epsilon == math.inf > ours.upper:
        return [Row(name, epsilon, kind, str(relation), math.inf, (*why, f"no finite answer: {reason}"))]
    excess = 0.0
    if epsilon < ours.lower:
        excess = epsilon / ours.lower - 1
        why += [f"below our lower end by {-excess:.2g}: too small for {relation}", *_readings(epsilon, relation, truth)]
        if kind == "estimate":
            why.append(reason)
    elif epsilon > ours.upper:
        excess = epsilon / ours.upper - 1 if ours.upper else math.inf
        why.append(reason)
    else:
        why.append("inside our interval")
    return [Row(name, epsilon, kind, str(relation), excess, tuple(why))]


def _readings(epsilon: float, relation: Relation, truth: Callable[[Relation], Enclosure]) -> list[str]:
    """Other relations that a number fits."""
    for other in Relation:
        try:
            ours = truth(other)
        except PrivcalcError:
            continue
        if other is not relation and ours.lower <= epsilon < 1.5 * ours.upper:
            unit = (
                "; the unit of σ: two contributions differ by up to 2C under replace-one"
                if relation is Relation.REPLACE_ONE
                else ""
            )
            return [f"it fits {other}, where our ε is {ours}{unit}"]
    return []


# --- the command ----------------------------------------------------------------------------------
