"""``privcalc budget create|show|history|reserve|settle|readmit``: the budget of a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import privcalc as pc
from privcalc.certificate.story import described
from privcalc.cli.options import JSON, RELATION, Group, Numbers, Source
from privcalc.files import write_whole
from privcalc.relation import Relation
from privcalc.serial import read_json
from privcalc.terminal import answer

__all__ = ["budget"]


@click.group(cls=Group)
def budget() -> None:
    """The budget of a data set that several teams use.

    URL is where its store is: a file, sqlite:///FILE, or postgresql://…
    """


def _store(function: Any) -> Any:
    """What every action takes: the store, the data set, the witness."""
    for option in (
        click.option(
            "--witness", metavar="FILE", help="A file, apart from the store, by which an older copy of it is seen."
        ),
        click.option("--dataset", required=True, help="Name of the data set."),
        click.argument("url"),
    ):
        function = option(function)
    return function


@budget.command
@_store
@click.option("--mu", type=float, help="The cap: GDP.")
@click.option("--rho", type=float, help="The cap: zCDP.")
@click.option("--epsilon", type=float, help="The cap: pure DP.")
@click.option("--orders", type=Numbers(float), help="The cap: Rényi DP at these orders, with --epsilons.")
@click.option("--epsilons", type=Numbers(float), help="As many numbers.")
@RELATION
@click.option("--unit", default="one record", show_default=True, help="What one record is.")
@JSON
def create(
    url: str,
    dataset: str,
    witness: str | None,
    orders: list[float] | None,
    epsilons: list[float] | None,
    relation: str,
    unit: str,
    as_json: bool,
    **caps: float | None,
) -> int:
    """Make the budget of a data set."""
    among, given = Relation(relation), {name: value for name, value in caps.items() if value is not None}
    if len(given) + (orders is not None) != 1 or (orders is None) != (epsilons is None):
        raise pc.PrivcalcError("cap: must be exactly one of --mu, --rho, --epsilon, or --orders with --epsilons")
    if orders is not None and epsilons is not None:
        cap: Any = pc.RDP(orders, epsilons, relation=among)
    else:
        ((name, value),) = given.items()
        cap = {"mu": pc.GDP, "rho": pc.ZCDP, "epsilon": pc.PureDP}[name](value, relation=among)
    made = pc.Budget.create(url, dataset=dataset, cap=cap, relation=among, unit=unit, witness=witness)
    lines, digest = made.head
    return answer({"lines": lines, "hash": digest}, f"{made}\nhash {digest}", as_json=as_json)


@budget.command
@_store
@click.option("--delta", type=float, default=1e-6, show_default=True, help="δ of the odometer.")
@click.option("--html", metavar="OUT", help="Also write one self-contained web page (needs matplotlib).")
@click.option("--picture", type=Path, metavar="FILE", help="Also draw what was charged over time (needs matplotlib).")
@JSON
def show(delta: float, html: str | None, picture: Path | None, as_json: bool, **where: Any) -> int:
    """What is charged, what is left, and the odometer."""
    from privcalc.budget.page import course, page, summary, text

    found = pc.Budget(**where)
    if html is not None:
        write_whole(html, page(found, delta=delta))
    if picture is not None:
        from privcalc import pictures

        points = course(found.history())
        pictures.save(pictures.spending(*map(list, zip(*points, strict=True))), picture)
    return answer(summary(found, delta=delta), text(found, delta=delta), as_json=as_json)


@budget.command
@_store
@JSON
def history(as_json: bool, **where: Any) -> int:
    """Every charge."""
    from privcalc.budget.page import history_text

    lines = pc.Budget(**where).history()
    return answer({"history": lines}, history_text(lines), as_json=as_json)


@budget.command
@_store
@click.argument("run", type=Source(Path))
@click.option("--label", help="What it is.")
@JSON
def reserve(run: Path, label: str | None, as_json: bool, **where: Any) -> int:
    """Charge for what runs without a ledger, before it runs: RUN is described in JSON, as certify takes it."""
    terms, found = described(read_json(run)), pc.Budget(**where)
    found.check(terms)
    name = found.reserve(terms.bound, label=label)
    return answer({"reservation": name}, f"charged: {terms.bound}\nreservation {name}", as_json=as_json)


@budget.command
@_store
@click.argument("ledgers", nargs=-1, required=True)
@JSON
def settle(ledgers: tuple[str, ...], as_json: bool, **where: Any) -> int:
    """Return what closed ledgers did not use, where that was not done when they closed."""
    found = pc.Budget(**where)
    for ledger in ledgers:
        found.settle(ledger)
    share = 100 * found.share
    return answer(
        {"share": found.share}, f"{len(ledgers)} settled; {share:.4g} % of the cap is charged", as_json=as_json
    )


@budget.command
@_store
@click.option("--reason", required=True, help="Who restored what and why; a line of the history.")
@click.option(
    "--ledger", "ledgers", multiple=True, metavar="LEDGER", help="A ledger that the store forgot; may be given again."
)
@JSON
def readmit(url: str, dataset: str, witness: str | None, reason: str, ledgers: tuple[str, ...], as_json: bool) -> int:
    """Use a store again that was restored from a backup: charge the ledgers that it forgot, and say why."""
    from privcalc.budget import readmit as again

    found = again(url, dataset=dataset, reason=reason, witness=witness, ledgers=ledgers)
    said = f"readmitted; {100 * found.share:.4g} % of the cap is charged; charge by hand what else was forgotten"
    return answer({"share": found.share, "readmitted": found.readmitted}, said, as_json=as_json)
