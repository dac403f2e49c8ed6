"""``privcalc budget create|show|history|reserve|settle|readmit``: the budget of a data set."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import privcalc as pc
from privcalc.certificate.story import described
from privcalc.cli.options import add_options
from privcalc.files import write_whole
from privcalc.relation import Relation
from privcalc.serial import read_json
from privcalc.terminal import answer

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command, and its own."""
    text = "the budget of a data set that several teams use"
    own = commands.add_parser("budget", help=text, description=text).add_subparsers(
        dest="action", required=True, metavar="ACTION"
    )
    made = {}
    for action, said in (
        (create, "make the budget of a data set"),
        (show, "what is charged, what is left, and the odometer"),
        (history, "every charge"),
        (reserve, "charge for what runs without a ledger; before it runs"),
        (settle, "return what closed ledgers did not use, where that was not done when they closed"),
        (readmit, "use a store again that was restored from a backup: charge the ledgers that it forgot, and say why"),
    ):
        parser = made[action] = own.add_parser(action.__name__, help=said, description=said)
        parser.set_defaults(run=action)
        parser.add_argument("url", metavar="URL", help="a file, sqlite:///FILE, or postgresql://…")
        parser.add_argument("--dataset", required=True, help="name of the data set")
        parser.add_argument(
            "--witness", metavar="FILE", help="a file, apart from the store, by which an older copy of it is seen"
        )

    for name, what in (("mu", "GDP"), ("rho", "zCDP"), ("epsilon", "pure DP")):
        made[create].add_argument(f"--{name}", type=float, help=f"the cap: {what}")
    made[create].add_argument("--orders", type=float, nargs="+", help="the cap: Rényi DP at these orders, with --epsilons")
    made[create].add_argument("--epsilons", type=float, nargs="+", help="as many numbers")
    add_options(made[create], "--relation")
    made[create].add_argument("--unit", default="one record", help="what one record is (default %(default)s)")
    made[show].add_argument("--delta", type=float, default=1e-6, help="δ of the odometer (default %(default)s)")
    made[show].add_argument("--html", metavar="OUT", help="also write one self-contained web page (needs matplotlib)")
    made[show].add_argument(
        "--picture", type=Path, metavar="FILE", help="also draw what was charged over time (needs matplotlib)"
    )
    made[reserve].add_argument("described", metavar="RUN", help="a run described in JSON, as certify takes it")
    made[reserve].add_argument("--label", help="what it is")
    made[settle].add_argument("ledgers", nargs="+", metavar="LEDGER")
    made[readmit].add_argument("--reason", required=True, help="who restored what and why; a line of the history")
    made[readmit].add_argument("--ledgers", nargs="+", default=[], metavar="LEDGER", help="ledgers that the store forgot")
    for parser in made.values():
        add_options(parser, "--json")


def create(args: argparse.Namespace) -> int:
    """Make one; returns the exit status."""
    relation = Relation(args.relation)
    given = [name for name in ("mu", "rho", "epsilon", "orders") if getattr(args, name) is not None]
    if len(given) != 1 or (args.orders is None) != (args.epsilons is None):
        raise pc.PrivcalcError("cap: must be exactly one of --mu, --rho, --epsilon, or --orders with --epsilons")
    made = {"mu": pc.GDP, "rho": pc.ZCDP, "epsilon": pc.PureDP}
    value = getattr(args, given[0])
    cap = pc.RDP(value, args.epsilons, relation=relation) if given == ["orders"] else made[given[0]](value, relation=relation)
    budget = pc.Budget.create(args.url, dataset=args.dataset, cap=cap, relation=relation, unit=args.unit, witness=args.witness)
    lines, digest = budget.head
    return answer({"lines": lines, "hash": digest}, f"{budget}\nhash {digest}", as_json=args.json)


def show(args: argparse.Namespace) -> int:
    """Print what it says now; returns the exit status."""
    from privcalc.budget.course import course
    from privcalc.budget.page import page, summary, text

    budget = _opened(args)
    if args.html is not None:
        write_whole(args.html, page(budget, delta=args.delta))
    if args.picture is not None:
        from privcalc import pictures

        points = course(budget.history())
        pictures.save(pictures.spending(*map(list, zip(*points, strict=True))), args.picture)
    return answer(summary(budget, delta=args.delta), text(budget, delta=args.delta), as_json=args.json)


def history(args: argparse.Namespace) -> int:
    """Print every line; returns the exit status."""
    from privcalc.budget.page import history_text

    lines = _opened(args).history()
    return answer({"history": lines}, history_text(lines), as_json=args.json)


def reserve(args: argparse.Namespace) -> int:
    """Charge by hand; returns the exit status."""
    terms, budget = described(read_json(Path(args.described))), _opened(args)
    budget.check(terms)
    name = budget.reserve(terms.bound, label=args.label)
    return answer({"reservation": name}, f"charged: {terms.bound}\nreservation {name}", as_json=args.json)


def settle(args: argparse.Namespace) -> int:
    """Settle closed ledgers; returns the exit status."""
    budget = _opened(args)
    for ledger in args.ledgers:
        budget.settle(ledger)
    share = 100 * budget.share
    return answer({"share": budget.share}, f"{len(args.ledgers)} settled; {share:.4g} % of the cap is charged", as_json=args.json)


def readmit(args: argparse.Namespace) -> int:
    """Use a restored store again; returns the exit status."""
    from privcalc.budget import readmit as again

    budget = again(args.url, dataset=args.dataset, reason=args.reason, witness=args.witness, ledgers=args.ledgers)
    said = f"readmitted; {100 * budget.share:.4g} % of the cap is charged; charge by hand what else was forgotten"
    return answer({"share": budget.share, "readmitted": budget.readmitted}, said, as_json=args.json)


def _opened(args: argparse.Namespace) -> pc.Budget:
    return pc.Budget(args.url, dataset=args.dataset, witness=args.witness)
