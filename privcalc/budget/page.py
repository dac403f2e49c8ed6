"""A budget as text and as one self-contained web page: ``privcalc budget show``.

The page needs the extra ``pictures``.

What a budget says was written by many: all of it is escaped, and the page forbids itself scripts and everything from
elsewhere.
"""

from __future__ import annotations

import math

from privcalc.budget.budget import Budget
from privcalc.budget.history import Reservation
from privcalc.budget.managed import Standing
from privcalc.certificate.html import clean, embedded, template
from privcalc.certificate.text import plain
from privcalc.enclosure import Enclosure, downward, upward
from privcalc.serial import Json, interval, mechanism_to_json, run_to_json

SHOWN = 100
"""Most charges that a page lists; the history has all."""

WITHIN = (
    "All outputs of everything that was charged here, together, satisfy the cap, "
    "whatever was chosen by looking at them."
)

EXCEEDED = (
    "EXCEEDED: more was readmitted than fits the cap, which is no guarantee of all outputs any more; "
    "nothing is admitted."
)

MEANS = (
    "The odometer: with probability 1 − δ the loss has never exceeded the upper end; it is no certificate.",
    "Counted is what ledgers and callers charged. What went around the budget is not in it.",
    "What is left is ε of the largest single release of Gaussian noise that still fits; ε of several do not add up.",
)


def summary(budget: Budget, *, delta: float) -> Json:
    """What a budget says now, as JSON.

    Args:
        budget: any.
        delta: δ of the odometer and of the cap's ε.
    """
    found, (lines, digest) = budget.reservations, budget.head
    return {
        "dataset": budget.rules.dataset,
        "title": budget.title,
        "closed": budget.retired,
        "unit": budget.unit,
        "relation": str(budget.relation),
        "cap": mechanism_to_json(budget.cap),
        "cap_epsilon": interval(_cap_epsilon(budget, delta)),
        "exceeded": budget.exceeded,
        "delta": delta,
        "share": budget.share,
        "charged": run_to_json(budget.charged),
        "open": sum(one.settled is None and one.by == "ledger" for one in found.values()),
        "settled": sum(one.settled is not None for one in found.values()),
        "by_hand": sum(one.by == "hand" for one in found.values()),
        "readmitted": budget.readmitted,
        "odometer": interval(budget.odometer(delta=delta)),
        "teams": [{**vars(one), "left": interval(one.left)} for one in budget.standing(delta=delta)],
        "lines": lines,
        "hash": digest,
    }


def text(budget: Budget, *, delta: float) -> str:
    """What a budget says now, for people."""
    return "\n".join(f"{name:10s} {plain(value)}" for name, value in told(budget, delta).items())


def told(budget: Budget, delta: float) -> dict[str, str]:
    """The same, line by line, by what each is about."""
    said = summary(budget, delta=delta)
    odometer, cap = budget.odometer(delta=delta), _cap_epsilon(budget, delta)
    rows = {"WARNING": EXCEEDED} if said["exceeded"] else {}
    rows |= {
        "data set": f"{_names(budget)} ({budget.unit}, {budget.relation})",
        "cap": f"{budget.cap}: ε ≤ {upward(cap.upper, '.6g')} at δ = {delta:g}, of all outputs together",
        "charged": f"{upward(100 * said['share'], '.4g')} % of the cap, reservations included",
        "left": "; ".join(map(_stands, budget.standing(delta=delta))) + f" at δ = {delta:g}, in one Gaussian release",
        "charges": f"ledgers: {said['open']} open, {said['settled']} settled; by hand: {said['by_hand']}",
        "odometer": f"lost up to now: ε ≤ {upward(odometer.upper, '.6g')}, except with probability {delta:g} "
        f"(no odometer can say less than {odometer.lower:.6g}); for watching: what holds is the cap",
        "history": f"{said['lines']} lines, the last with hash {said['hash']}",
    }
    if budget.retired:
        rows["closed"] = budget.retired
    if budget.readmitted:
        rows["readmitted"] = f"its store had forgotten something: {'; '.join(budget.readmitted)}"
    return rows


def _names(budget: Budget) -> str:
    """What the data set goes by, and the name that ledgers have."""
    name, title = budget.rules.dataset, budget.title
    return title if title == name else f"{title} (at first: {name})"


def _stands(one: Standing) -> str:
    """Where a team stands, in a line."""
    team = "" if one.team is None and one.share == 1 else f"{one.team or 'no team'} ({100 * one.share:.4g} %): "
    return f"{team}ε ≤ {downward(one.left.upper, '.4g')}"


def _cap_epsilon(budget: Budget, delta: float) -> Enclosure:
    """Of all outputs, by the cap: none where it is exceeded."""
    found = budget.cap.epsilon(delta=delta, relation=budget.relation)
    return Enclosure(0.0, math.inf, budget.relation, "exceeded") if budget.exceeded else found


def history_text(lines: list[Json]) -> str:
    """The lines of a history, for people."""
    shown = []
    for number, entry in enumerate(lines, 1):
        run = ", ".join(f"{part['count']} × {part['mechanism']['kind']}" for part in entry.get("run", [])) or "nothing"
        told = {"open": "dataset", "readmit": "reason", "close": "reason", "rename": "title"}.get(entry["type"])
        if entry["type"] == "share":
            what = f"{entry['team']}: {100 * entry['share']:.4g} % of the cap"
        else:
            who = "  ".join(entry[key] for key in ("team", "label") if entry.get(key))
            what = entry[told] if told else f"{entry['reservation'][:12]}  {run}  {who}"
        shown.append(f"{number:6d}  {entry['time']}  {entry['type']:8s} {plain(what)}".rstrip())
    return "\n".join(shown)


def page(budget: Budget, *, delta: float) -> str:
    """The page as HTML.

    Args:
        budget: any.
        delta: δ of the odometer and of the cap's ε.

    Raises:
        PrivcalcError: if matplotlib is missing.
    """
    standing, relation = budget.standing(delta=delta), budget.relation
    found, figure = list(budget.reservations.items()), budget.plot()
    left = len(found) - SHOWN
    return template("budget").substitute(
        kind="Privacy budget",
        title=clean(_names(budget)),
        delta=f"{delta:g}",
        teams="\n".join(
            _cells(
                one.team or "no team",
                f"{100 * one.share:.4g} %",
                f"{upward(100 * one.charged, '.4g')} %",
                f"ε ≤ {downward(one.left.upper, '.4g')}",
            )
            for one in standing
        ),
        text="\n".join(_cells(value, head=name) for name, value in told(budget, delta).items()),
        figure=embedded(figure, "What was charged, over time, as a share of the cap."),
        means="\n".join(f"<li>{clean(line)}</li>" for line in (EXCEEDED if budget.exceeded else WITHIN, *MEANS)),
        rows="\n".join(_row(*one, one[1].run.epsilon(delta=delta, relation=relation)) for one in found[-SHOWN:]),
        more=f"<p>And {left} earlier ones.</p>" if left > 0 else "",
    )


def _row(name: str, one: Reservation, epsilon: Enclosure) -> str:
    state = "for good" if one.by == "hand" else "reserved" if one.settled is None else "settled"
    cost = f"ε ≤ {upward(epsilon.upper, '.4g')}"
    return _cells(name[:12], one.team or "", one.by, one.label or "", state, one.run, cost)


def _cells(*cells: object, head: str = "") -> str:
    first = f"<th>{clean(head)}</th>" if head else ""
    return f"<tr>{first}{''.join(f'<td>{clean(cell)}</td>' for cell in cells)}</tr>"
