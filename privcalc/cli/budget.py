"""``privcalc budget``: the budgets of a store, from their making over shares and charges to their end."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import click

import privcalc as pc
from privcalc.budget import cap_for
from privcalc.budget.history import titles
from privcalc.certificate.story import described
from privcalc.cli.options import RELATION, STEPS, Answered, Batches, Group, Numbers, Source, sampler_options, together
from privcalc.enclosure import upward
from privcalc.files import write_whole
from privcalc.relation import Relation
from privcalc.serial import mechanism_to_json, read_json

__all__ = ["budget"]


@click.group(cls=Group)
def budget() -> None:
    """The budget of a data set that several teams use.

    URL is where its store is: a file, sqlite:///FILE, or postgresql://…
    """


DATASET = click.option("--dataset", help="Name of the data set; may be left out where the store has one only.")
WITNESS = click.option("--witness", metavar="FILE", help="A file, kept apart, that sees an older copy of the store.")
STORE = together(click.argument("url"), DATASET, WITNESS)
"""Where a budget is."""

RUNS = "With --delta: whether only Gaussian noise without sampling, and choices, will be charged (default any)."
TEAM = click.option("--team", help="Whose it is: it is counted as the team's, and keeps to its share.")


def _meant(url: str, dataset: str | None) -> str:
    """The data set that was named, or the only one of a store."""
    if dataset is None:
        if len(found := titles(url)) != 1:
            listed = ", ".join(map(repr, found)) or "none"
            raise pc.PrivcalcError(f"--dataset: must be given, one of those of {url!r}: {listed}")
        (dataset,) = found
    return dataset


def _opened(function: Callable[..., Answered]) -> Any:
    """Give a command the options of an open budget, which its function takes as one argument, ``found``."""

    @functools.wraps(function)
    def asked(*, url: str, dataset: str | None, witness: str | None, team: str | None = None, **more: Any) -> Answered:
        return function(found=pc.Budget(url, dataset=_meant(url, dataset), witness=witness, team=team), **more)

    return STORE(asked)


def _charged(found: pc.Budget) -> str:
    return f"{100 * found.share:.4g} % of the cap is charged"


@budget.command("list")
@click.argument("url")
def list_(url: str) -> Answered:
    """The data sets that have a budget in a store."""
    found = [{"dataset": name, "title": title or name} for name, title in titles(url).items()]
    lines = [one["title"] + (f" (at first: {one['dataset']})" * (one["title"] != one["dataset"])) for one in found]
    return Answered({"budgets": found}, "\n".join(lines) or f"{url} has no budget")


@budget.command
@click.argument("url")
@click.option("--dataset", required=True, help="Name of the data set.")
@WITNESS
@click.option("--mu", type=float, help="The cap: GDP.")
@click.option("--rho", type=float, help="The cap: zCDP.")
@click.option("--epsilon", type=float, help="The cap: pure DP; with --delta, the best that keeps to this ε and δ.")
@click.option("--delta", type=float, help="With --epsilon.")
@click.option("--runs", type=click.Choice(["any", "gaussian"]), default="any", help=RUNS)
@click.option("--orders", type=Numbers(float), help="The cap: Rényi DP at these orders, with --epsilons.")
@click.option("--epsilons", type=Numbers(float), help="As many numbers.")
@RELATION
@click.option("--unit", default="one record", show_default=True, help="What one record is.")
def create(
    url: str,
    dataset: str,
    witness: str | None,
    relation: str,
    unit: str,
    delta: float | None,
    runs: Literal["any", "gaussian"],
    **caps: Any,
) -> Answered:
    """Make the budget of a data set."""
    among, given = Relation(relation), {name: value for name, value in caps.items() if value is not None}
    if (kind := CAPS.get(frozenset(given))) is None:
        raise pc.PrivcalcError("cap: must be exactly one of --mu, --rho, --epsilon, or --orders with --epsilons")
    if delta is None:
        cap = kind(**given, relation=among)
    elif kind is pc.PureDP:
        cap = cap_for(epsilon=given["epsilon"], delta=delta, runs=runs, relation=among)
    else:
        raise pc.PrivcalcError(f"--delta = {delta}: is for --epsilon")
    made = pc.Budget.create(url, dataset=dataset, cap=cap, relation=among, unit=unit, witness=witness)
    lines, digest = made.head
    told = f"{made}\nhash {digest}"
    if delta is not None:
        told = f"{told}\n{WHY[str(cap.kind)].format(epsilon=given['epsilon'], delta=f'{delta:g}', cap=cap)}"
    return Answered({"lines": lines, "hash": digest, "cap": mechanism_to_json(cap)}, told)


CAPS: dict[frozenset[str], Callable[..., pc.Mechanism]] = {
    frozenset({"mu"}): pc.GDP,
    frozenset({"rho"}): pc.ZCDP,
    frozenset({"epsilon"}): pc.PureDP,
    frozenset({"orders", "epsilons"}): pc.RDP,
}
"""The kinds of caps, by the options that say how large they are."""

WHY = {
    "RDP": "The cap is {cap}: under it all outputs together are ({epsilon:g}, {delta})-DP. Rényi divergence adds up "
    "whatever anyone chooses by looking at outputs, which ε does not, and it counts what sampling saves; the order is "
    "the one with the most room for this δ. If all will be Gaussian noise without sampling, and choices, "
    "--runs gaussian has room for more.",
    "GDP": "The cap is {cap}: under it all outputs together are ({epsilon:g}, {delta})-DP. The μ² of Gaussian noise "
    "add up whatever anyone chooses by looking at outputs, which ε does not, and nothing has more room for it. Sampled "
    "training, Laplace noise and others are refused; --runs any takes them.",
    "PureDP": "The cap is {cap}: the ε of pure DP add up. With --delta above 0 there is more room.",
}
"""What was chosen, and why, by kind of cap."""


@budget.command
@_opened
@click.option("--delta", type=float, default=1e-6, show_default=True, help="δ of the odometer.")
@click.option("--html", metavar="OUT", help="Also write one self-contained web page (needs matplotlib).")
@click.option("--picture", type=Path, metavar="FILE", help="Also draw what was charged over time (needs matplotlib).")
def show(found: pc.Budget, delta: float, html: str | None, picture: Path | None) -> Answered:
    """What is charged, what is left, and the odometer."""
    from privcalc.budget.page import page, summary, text

    if html is not None:
        write_whole(html, page(found, delta=delta))
    if picture is not None:
        from privcalc import pictures

        pictures.save(found.plot(), picture)
    return Answered(summary(found, delta=delta), text(found, delta=delta))


@budget.command
@_opened
def history(found: pc.Budget) -> Answered:
    """Every charge."""
    from privcalc.budget.page import history_text

    lines = found.history()
    return Answered({"history": lines}, history_text(lines))


@budget.command
@_opened
@click.argument("run", type=Source(Path), required=False)
@click.option("--noise-multiplier", type=float, help="Instead of RUN: Gaussian steps, noise deviation / clip norm.")
@STEPS
@sampler_options
@click.option("--label", help="What it is.")
@TEAM
def reserve(
    batches: Batches,
    run: Path | None,
    noise_multiplier: float | None,
    steps: int | None,
    epochs: float | None,
    label: str | None,
    found: pc.Budget,
) -> Answered:
    """Charge for what runs without a ledger, before it runs.

    RUN is described in JSON, as certify takes it; or say --noise-multiplier, --steps and how batches are drawn.
    """
    if run is not None and noise_multiplier is None:
        terms = described(read_json(run))
        found.check(terms)
        charged = terms.bound
    elif run is None and noise_multiplier is not None:
        charged = batches.step(noise_multiplier) * batches.steps(steps, epochs)
    else:
        raise pc.PrivcalcError("RUN: give it or --noise-multiplier, one of both")
    try:
        name = found.reserve(charged, label=label)
    except pc.BudgetExceeded as error:
        raise pc.BudgetExceeded(f"{error}{_enough(found, batches, charged, noise_multiplier)}") from None
    return Answered({"reservation": name}, f"charged: {charged}\nreservation {name}\n{_charged(found)}")


def _enough(found: pc.Budget, batches: Batches, run: pc.Run, noise: float | None) -> str:
    """What noise multiplier there is room for, to four digits: a search by bisection, in the exponent."""
    if noise is None:
        return ""
    (_, count), low, high = run.entries[0], noise, noise * 1e6
    if found.would_exceed(batches.step(high) * count):
        return ""
    while high > low * 1.0001:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if found.would_exceed(batches.step(middle) * count) else (low, middle)
    return f"; there is room for so many with --noise-multiplier {upward(high, '.4g')}"


@budget.command
@_opened
@click.option("--team", "who", required=True, help="The team.")
@click.option("--percent", type=float, required=True, help="Of the cap; in place of what the team had.")
def share(found: pc.Budget, who: str, percent: float) -> Answered:
    """Set aside a share of the cap for a team; what teams do not have is for who names none."""
    found.set_share(who, float(Fraction(repr(percent)) / 100))
    shares = found.shares
    told = {**shares, "who names no team": 1 - sum(shares.values())}
    return Answered(
        {"shares": shares}, "\n".join(f"{name}: {round(100 * part, 9):.4g} %" for name, part in told.items())
    )


@budget.command
@_opened
@click.option("--to", "title", required=True, help="What it goes by from now on; the first name stays valid.")
def rename(found: pc.Budget, title: str) -> Answered:
    """Give a data set another name to go by."""
    found.rename(title)
    return Answered({"title": title}, f"{found.rules.dataset} goes by {title}")


@budget.command
@_opened
@click.option("--reason", required=True, help="Why; a line of the history.")
def close(found: pc.Budget, reason: str) -> Answered:
    """Charge nothing more, ever. Nothing is deleted: the history stays."""
    found.retire(reason)
    return Answered({"closed": found.retired}, f"closed: {found.retired}")


@budget.command
@_opened
@click.argument("ledgers", nargs=-1, required=True)
def settle(found: pc.Budget, ledgers: tuple[str, ...]) -> Answered:
    """Return what closed ledgers did not use, where that was not done when they closed."""
    for ledger in ledgers:
        found.settle(ledger)
    return Answered({"share": found.share}, f"{len(ledgers)} settled; {_charged(found)}")


@budget.command
@STORE
@click.option("--reason", required=True, help="Who restored what and why; a line of the history.")
@click.option(
    "--ledger", "ledgers", multiple=True, metavar="LEDGER", help="One that the store forgot; may be repeated."
)
def readmit(url: str, dataset: str | None, witness: str | None, reason: str, ledgers: tuple[str, ...]) -> Answered:
    """Use a store again that was restored from a backup: charge the ledgers that it forgot, and say why."""
    from privcalc.budget import readmit as again

    found = again(url, dataset=_meant(url, dataset), witness=witness, reason=reason, ledgers=ledgers)
    said = f"readmitted; {_charged(found)}; charge by hand what else was forgotten"
    return Answered({"share": found.share, "readmitted": found.readmitted}, said)
