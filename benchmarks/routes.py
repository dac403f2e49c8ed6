"""Which routes answer the questions of ``benchmarks.accountants``: ``python -m benchmarks.routes [--quick]``.

Of every route: in how many questions it was laid, in how many it made a difference to the answer, and by how much the
proved upper end would be worse without it, at most. A route that few need, and whose loss is small, may go with its
proof page.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from benchmarks.accountants.cases import Case, cases
from benchmarks.accountants.worker import ours
from privcalc.composition import ladder
from privcalc.composition.ladder import LADDER, Demand, Route
from privcalc.composition.uses import Uses
from privcalc.numerics.routes.route import Laid

PAGE = Path("results/routes.md")
HEAD = """# Which routes answer

Written by `python -m benchmarks.routes`: {count} questions of `benchmarks.accountants`. *Laid*: the route was tried
and could answer. *Answers*: it made a difference to an end that was returned. *Loss*: the proved upper end without
the route over that with it, less 1, at most (of the questions where it was laid). What needs none of them has a
closed form, or theorems.

| route | laid | answers | largest loss | where |
|---|---|---|---|---|
"""


class Asked(NamedTuple):
    """A question, the routes that were laid for it, and what came of it."""

    case: Case
    laid: frozenset[str]
    routes: frozenset[str]
    upper: float


def ask(case: Case, without: str = "") -> Asked:
    """One question, of a ladder that lacks a route."""
    laid: set[str] = set()

    def spy(route: Route) -> Route:
        def lay(uses: Uses, demand: Demand) -> Laid:
            found = route.lay(uses, demand)
            laid.add(route.name)
            return found

        return route._replace(lay=lay)

    with mock.patch.object(ladder, "LADDER", tuple(spy(route) for route in LADDER if route.name != without)):
        found = ours(case.question)
    return Asked(case, frozenset(laid), frozenset(str(found.get("remark", "")).split("+")), float(found["value"]))


def losses(asked: list[Asked], name: str) -> Iterator[tuple[float, str]]:
    """What each question loses without a route."""
    yield 0.0, ""
    for one in asked:
        if name in one.laid:
            upper = ask(one.case, name).upper
            yield (
                (upper / one.upper - 1 if 0 < one.upper < math.inf else math.inf if upper > one.upper else 0.0),
                one.case.key,
            )


def main() -> None:
    """Ask everything, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the questions of the quick form, printed only")
    quick = parser.parse_args().quick
    asked = [ask(case) for case in cases() if case.family != "precision" and (case.quick or not quick)]
    lines = []
    for name in dict.fromkeys(route.name for route in LADDER):
        loss, where = max(losses(asked, name))
        numbers = (sum(name in one.laid for one in asked), sum(name in one.routes for one in asked))
        lines.append(f"| {name} | {numbers[0]} | {numbers[1]} | {loss:.1e} | {where or '–'} |\n")
    others = sum(not one.laid for one in asked)
    text = HEAD.format(count=len(asked)) + "".join(lines) + f"| none | – | {others} | – | – |\n"
    print(text)
    if not quick:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
