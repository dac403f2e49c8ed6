"""``privcalc compare``: every installed accountant on one run, and why they differ.

Answers are set against our proved interval for the relation that the accountant speaks about; a number below its lower end is too
small for what was asked, whatever else it may be right for.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import logging
import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from privcalc import errors
from privcalc.certificate import described
from privcalc.claims import read_json
from privcalc.enclosure import Enclosure
from privcalc.errors import PrivcalcError
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation, check_relation
from privcalc.run import Questions, Run

__all__ = ["Row", "compare"]

Answer = tuple[float, Relation, str]  # ε, the relation it is for, a remark
Ask = Callable[[Run, float, Relation], Answer]

RENYI = (
    "Rényi divergences do not determine δ: their best conversion is larger than the truth, most where few steps carry the loss"
)
GRID = "losses rounded up to a grid of spacing {:g}: the error adds up over the steps, and mass cut off at the ends counts as δ"
KINDS = {
    "privcalc": ("proved interval", "both ends proved, rounding included"),
    "dp-accounting PLD": ("bound", GRID.format(1e-4)),
    "dp-accounting RDP": ("bound", RENYI),
    "prv-accountant": ("bound", "a grid that may err by eps_error = 0.01, which is added; δ must allow for delta_error = δ/1000"),
    "Opacus PRV": ("bound", "a grid that may err by eps_error = 0.01, which is added; δ must allow for delta_error = δ/1000"),
    "Opacus RDP": ("bound", RENYI),
    "Opacus GDP": ("estimate", "a central limit, exact only for infinitely many steps at infinitely small rates; no bound"),
    "autodp RDP": ("bound", RENYI),
}


@dataclass(frozen=True)
class Row:
    """One accountant's answer.

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


def compare(run: Questions, *, delta: float, relation: Relation = ADD_OR_REMOVE_ONE) -> list[Row]:
    """Ask every installed accountant for ε; ours first.

    Args:
        run: a run or mechanism.
        delta: δ in [0, 1).
        relation: the neighbouring relation.

    Returns:
        One row for each accountant that is installed, also for those that cannot describe the run or fail, with the reason.

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
    found = truth(asked)
    first = f"{found.route}; certified in [{found.lower!r}, {found.upper!r}]"
    rows = [Row("privcalc", found.upper, KINDS["privcalc"][0], str(asked), 0.0, (KINDS["privcalc"][1], first))]
    for name, load in _PEERS.items():
        try:
            ask = load()
        except ImportError:
            continue
        rows.append(_row(name, functools.partial(ask, run.run, value, asked), asked, truth))
    return rows


def _row(name: str, ask: Callable[[], Answer], asked: Relation, truth: Callable[[Relation], Enclosure]) -> Row:
    kind, reason = KINDS[name]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            epsilon, relation, remark = ask()
    except Exception as error:  # a peer may raise anything: its row says what
        text = " ".join(str(error).split())[:200] or type(error).__name__
        return Row(name, math.nan, kind, str(asked), math.nan, (f"no answer: {text}",))
    ours = truth(relation)
    why = [remark] if remark else []
    if relation is not asked:
        why.append(f"speaks about {relation}, where our ε is {ours}; {asked} was asked")
    if math.isnan(epsilon) or epsilon == math.inf > ours.upper:
        return Row(name, epsilon, kind, str(relation), math.inf, (*why, f"no finite answer: {reason}"))
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
    return Row(name, epsilon, kind, str(relation), excess, tuple(why))


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


# --- how each is asked ----------------------------------------------------------------------------


def _steps(run: Run) -> list[tuple[float, float, int]]:
    """(noise multiplier, rate, steps) of Poisson-sampled Gaussians."""
    found = []
    for mechanism, count in run.entries:
        rate = mechanism.rate if isinstance(mechanism, PoissonSampled) else 1.0
        inner = mechanism.mechanism if isinstance(mechanism, PoissonSampled) else mechanism
        if not isinstance(inner, Gaussian):
            raise PrivcalcError(f"it knows Poisson-sampled Gaussian steps only, not {mechanism}")
        found.append((inner.noise_multiplier, rate, count))
    return found


def _benchmarked(name: str) -> Ask:
    """A peer of the benchmark, which asks about one kind of step."""
    benchmark = importlib.import_module("privcalc.benchmark")  # slow to import
    peer = benchmark.ACCOUNTANTS[name]()

    def ask(run: Run, delta: float, relation: Relation) -> Answer:
        steps = _steps(run)
        if len(steps) != 1:
            raise PrivcalcError("it is asked about one kind of step only")
        ((noise, rate, count),) = steps
        epsilon, remark = peer(benchmark.Case(rate, noise, count, delta))
        return epsilon, _same(relation), remark

    return ask


def _same(relation: Relation) -> Relation:
    """What an accountant of add-or-remove-one speaks about: for Poisson-sampled Gaussians, zero-out too."""
    return ADD_OR_REMOVE_ONE if relation is Relation.REPLACE_ONE else relation


def _opacus(name: str) -> Ask:
    accountants = importlib.import_module("opacus.accountants")

    def ask(run: Run, delta: float, relation: Relation) -> Answer:
        accountant = getattr(accountants, name)()
        accountant.history = _steps(run)
        if name == "GaussianAccountant" and len(accountant.history) > 1:
            raise PrivcalcError("it is for one kind of step only")
        if name != "RDPAccountant":
            return float(accountant.get_epsilon(delta)), _same(relation), ""
        epsilon, order = accountant.get_privacy_spent(delta=delta)
        return float(epsilon), _same(relation), _order(order, accountant.DEFAULT_ALPHAS)

    return ask


def _dp_accounting(module: str, name: str) -> Ask:
    make = getattr(importlib.import_module(module), name)
    adapter = importlib.import_module("privcalc.interop.dp_accounting")

    def ask(run: Run, delta: float, relation: Relation) -> Answer:
        theirs = next(one for one, ours in adapter.RELATIONS.items() if ours is relation)
        accountant, event = make(neighboring_relation=theirs), adapter.to_event(run, relation=relation)
        refused = accountant._maybe_compose(event, 1, False)
        if refused is not None:
            raise PrivcalcError(refused.error_message)
        accountant.compose(event)
        if name != "RdpAccountant":
            return float(accountant.get_epsilon(delta)), relation, ""
        epsilon, order = accountant.get_epsilon_and_optimal_order(delta)
        return float(epsilon), relation, _order(order, accountant._orders)

    return ask


def _order(order: float, orders: Any) -> str:
    """Where the best order lies on the grid."""
    low, high = float(min(orders)), float(max(orders))
    if low < order < high:
        return f"best at order {order:g} of a grid from {low:g} to {high:g}"
    return f"best at order {order:g}, an end of its grid from {low:g} to {high:g}: beyond it there may be a better one"


_PEERS: dict[str, Callable[[], Ask]] = {
    "dp-accounting PLD": lambda: _dp_accounting("dp_accounting.pld", "PLDAccountant"),
    "dp-accounting RDP": lambda: _dp_accounting("dp_accounting.rdp", "RdpAccountant"),
    "prv-accountant": lambda: _benchmarked("prv-accountant"),
    "Opacus PRV": lambda: _opacus("PRVAccountant"),
    "Opacus RDP": lambda: _opacus("RDPAccountant"),
    "Opacus GDP": lambda: _opacus("GaussianAccountant"),
    "autodp RDP": lambda: _benchmarked("autodp RDP"),
}


# --- the command ----------------------------------------------------------------------------------


def add_command(commands: Any) -> None:
    """Hook the command into the command line."""
    text = "every installed accountant beside ours on one run, and why they differ"
    parser = commands.add_parser("compare", help=text, description=text)
    parser.add_argument("run", type=Path, metavar="RUN.json", help="a described run, as for certify")
    parser.add_argument("--delta", type=float, required=True, help="δ, for instance 1e-5")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def main(args: argparse.Namespace) -> int:
    """The command; returns the exit status."""
    try:
        terms = described(read_json(args.run))
    except OSError as error:
        print(f"privcalc compare: {error}", file=sys.stderr)
        return 2
    logging.disable(logging.WARNING)
    try:
        rows = compare(terms.bound, delta=args.delta, relation=terms.relation)
    finally:
        logging.disable(logging.NOTSET)
    if args.json:
        entries = [
            {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(row).items()} for row in rows
        ]
        found = {"run": str(terms.bound), "delta": args.delta, "relation": str(terms.relation), "accountants": entries}
        print(json.dumps(found, ensure_ascii=False, allow_nan=False))
        return 0
    print(f"{terms.bound}\nδ = {args.delta:g}, {terms.relation}; σ is the noise standard deviation over the clip norm C")
    for row in rows:
        differs = f"{100 * row.excess:+.2g} %" if math.isfinite(row.excess) and row.excess else ""
        print(f"{row.accountant:<18} {row.epsilon:>14.9g} {differs:>10}  {row.kind}")
        for line in row.why:
            print(f"{'':<18}   {line}")
    return 0
