"""Which routes answer the questions of the benchmarks: ``python -m benchmarks.routes [--quick]``.

Of every route: for how many questions it was laid, how many it made a difference to, and what they would lose without
it: the width of the answer over its safe end. A route that few need, and whose loss is small, may go with its proof
page.
"""

from __future__ import annotations

import argparse
import functools
import math
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import privcalc as pc
from benchmarks.accountants.cases import cases
from benchmarks.accountants.worker import ours
from benchmarks.slow_tail import Case, documented, epsilon, rows
from privcalc.composition import ladder
from privcalc.composition.direction import Bound
from privcalc.composition.ladder import Route
from privcalc.composition.question import Laid, Question
from privcalc.composition.uses import Uses

PAGE = Path("results/routes.md")
LIMIT = 20
"""Seconds that a question may take without a route."""

HEAD = """# Which routes answer

Written by `python -m benchmarks.routes`: {count} questions of `benchmarks.accountants` and `benchmarks.slow_tail`.
*Laid*: the route was tried and could answer. *Answers*: it made a difference to an end that was returned. *Loss*: by
how much the answer's width, over its upper end, is larger without the route; counted above 10⁻⁶ and 10⁻³, and the
largest. *Seconds*: processor seconds of the questions for which it was laid, with and without it; where there was no
answer after {limit} seconds the loss is ∞. What needs none of them has a closed form, theorems, or the table of many
questions at once. No question here mixes randomized responses, or discrete Gaussians of different σ: enumeration and
smoothing are for these (`tests/numerics/test_atoms.py` has their widths); `direct`, which is asked last, sharpens
what is bounded by joint convexity (four batches with replacement under replace-one, δ = 0.01: 9.74 without it, 8.07
with it).

| route | laid | answers | loss > 1e-6 | > 1e-3 | largest | where | seconds | without |
|---|---|---|---|---|---|---|---|---|
"""


class Asked(NamedTuple):
    """A question, the routes that were laid for it, those of its answer, its relative width, and its seconds."""

    name: str
    case: Case
    laid: frozenset[str]
    routes: frozenset[str]
    width: float
    seconds: float


def questions(quick: bool) -> Iterator[tuple[str, Case]]:
    """All that have two ends, with names."""
    for case in cases():
        if case.family != "precision" and case.question.asks != "sigma" and (case.quick or not quick):
            yield case.key, functools.partial(ours, case.question)
    if quick:
        return
    for row in rows():
        if row.width < math.inf:
            yield from ((f"{row.name}, {number}", case) for number, case in enumerate(row.cases, 1))
    for number, run in enumerate(documented(), 1):
        yield f"runs of the guides, {number}", epsilon(run, 1e-5)


def ask(name: str, case: Case, without: str = "") -> Asked | None:
    """One question, of a ladder that lacks a route; None where its answer has no two ends."""
    laid: set[str] = set()

    def spy(route: Route) -> Route:
        def lay(uses: Uses, asked: Question, best: Bound) -> Laid:
            found = route.lay(uses, asked, best)
            laid.add(route.name)
            return found

        return route._replace(lay=lay)

    def late(*_: object) -> None:
        raise TimeoutError

    table = tuple(spy(route) for route in ladder.LADDER if route.name != without)
    start = time.process_time()
    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, LIMIT if without else 0)
    try:
        with mock.patch.object(ladder, "LADDER", table):
            found = case()
    except TimeoutError:
        return Asked(name, case, frozenset(laid), frozenset(), math.inf, LIMIT)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    seconds = time.process_time() - start
    if isinstance(found, pc.Enclosure):
        ends, remark = (found.lower, found.upper), found.route
    elif isinstance(found, dict) and "lower" in found:
        ends, remark = (float(found["lower"]), float(found["value"])), str(found["remark"])
    else:
        return None
    width = (ends[1] - ends[0]) / ends[1] if 0 < ends[1] < math.inf else float(ends[1] == math.inf)
    return Asked(name, case, frozenset(laid), frozenset(remark.split("+")), width, seconds)


def line(asked: Sequence[Asked], name: str) -> str:
    """A route's."""
    laid = [one for one in asked if name in one.laid]
    others = [found for one in laid if (found := ask(one.name, one.case, name))]
    losses = [(other.width - one.width, one.name) for one, other in zip(laid, others, strict=True)]
    loss, where = max(losses, default=(0.0, "–"))
    felt = " | ".join(str(sum(more > least for more, _ in losses)) for least in (1e-6, 1e-3))
    seconds = " | ".join(f"{sum(one.seconds for one in part):.2g}" for part in (laid, others))
    answers = sum(name in one.routes for one in asked)
    return f"| {name} | {len(laid)} | {answers} | {felt} | {loss:.1e} | {where} | {seconds} |\n"


def main() -> None:
    """Ask everything, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the questions of the quick form, printed only")
    quick = parser.parse_args().quick
    asked = [found for name, case in questions(quick) if (found := ask(name, case))]
    names = dict.fromkeys(route.name for route in ladder.LADDER)
    none = sum(not one.laid for one in asked)
    text = HEAD.format(count=len(asked), limit=LIMIT) + "".join(line(asked, name) for name in names)
    text += f"| none | {none} | {none} | – | – | – | – | – | – |\n"
    print(text)
    if not quick:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
