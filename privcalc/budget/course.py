"""How a budget was spent over time, from the lines of its history."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import NamedTuple

from privcalc.budget.history import History
from privcalc.errors import PrivcalcError
from privcalc.serial import Json

__all__ = ["Point", "course"]

POINTS = 200
"""Most points: each costs a composition."""


class Point(NamedTuple):
    """A moment.

    Attributes:
        time: of the line.
        charged: the share of the cap that is charged, reserved parts included.
        spent: the share that is charged for good.
    """

    time: datetime.datetime
    charged: float
    spent: float


def course(lines: Sequence[Json]) -> list[Point]:
    """The shares of the cap after each line, or after as many of them as are drawn, evenly spread, the last among them.

    Args:
        lines: of :meth:`Budget.history`.
    """
    history, found = History(), []
    shown = {round(k * (len(lines) - 1) / POINTS) for k in range(POINTS + 1)}
    for number, entry in enumerate(lines):
        history.apply(entry)
        if number in shown:
            share = history.pool.share
            found.append(Point(_time(entry["time"]), share(history.pool.charged), share(history.part(settled=True))))
    return found


def _time(text: str) -> datetime.datetime:
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise PrivcalcError(f"time = {text[:50]!r}: must be a date with a time") from error
    return found.astimezone(datetime.UTC) if found.tzinfo else found.replace(tzinfo=datetime.UTC)
