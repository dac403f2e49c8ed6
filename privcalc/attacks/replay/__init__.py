"""Record and replay: run a process on neighbouring data sets with the same random numbers and releases.

What differs then is a way by which a record reaches the output.

    data without a record  ->  run, every release recorded
    data with it           ->  run, every release replayed  ->  findings

Where releases are the same, everything that is returned, and everything that is public about the next release, must be
the same, too; and what is released may move by as much as was declared (``proofs/replay.md``). A replay finds
violations, and proves nothing.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privcalc import errors
from privcalc.attacks.replay.findings import Finding, Report, difference, interaction, moves
from privcalc.attacks.replay.records import Record, Table, hostile, moved
from privcalc.attacks.replay.tape import DOORS, Diverged, Enough, Release, Tape, opened, playing, replayed
from privcalc.attacks.replay.words import KINDS
from privcalc.errors import PrivcalcError
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, Relation, check_relation

__all__ = ["KINDS", "Finding", "Look", "Report", "look_first", "replay"]

Look = tuple[Callable[[Any], Any], Any]
"""A training, as a function of the data, and the data."""

UNREPEATABLE = (
    "process: must do the same twice on the same data, with the same releases, and does not ({}): it draws random "
    "numbers that are not replayed (a generator that is older than the call, or not of Python, NumPy or torch; "
    "os.urandom; a GPU), keeps something from one call to the next, or returns a time"
)


def replay(
    process: Callable[[Any], Any],
    data: object,
    *,
    doors: object,
    relation: Relation = ADD_OR_REMOVE_ONE,
    records: Sequence[object] = (),
    finite: bool = False,
    additive: bool = True,
    search: int = 0,
    releases: int | None = None,
    seed: int = 0,
) -> Report:
    """Run a process on neighbouring data sets, and report how else than by its releases records reach an output.

    Args:
        process: a function of the data, such as one training, or a step of it. What it returns is taken to be
            published. It must open its own ledger, in memory.
        data: an array, or a tuple, list or mapping of arrays, with a row for each record; made up, or public, where the
            report is to be shown to others.
        doors: through which it releases: a class or module, or several, with functions
            ``gaussian(values, …, clip_norm)``, ``laplace``, ``select(scores, …, sensitivity)``,
            ``batch(step, records)``, ``poisson_batch`` or ``fixed_size_batch`` as those of ``pc.Ledger``; so
            ``pc.Ledger``, or ``privcalc.noise`` where there is no ledger.
        relation: add-or-remove-one: a record is added, and the number of records is private. Replace-one: it takes the
            place of another.
        records: more records to try, each a row of every array.
        finite: whether records with NaN or ∞ cannot occur, because somebody refuses them before.
        additive: whether releases are sums of what single records add, so that what one adds must not depend on
            another. Not for tables, where the rows of a person are bounded together.
        search: how many random steps are taken from the worst record found towards worse ones.
        releases: end each run after so many releases: 1 looks at the first step of a training, in the time of some
            first steps, and not at what is returned. None: to the end.
        seed: of everything that is random.

    Returns:
        A :class:`Report`: what was found. It depends on the data.

    Raises:
        PrivcalcError: if an argument does not fit, the process releases nothing, or is not the same twice on the same
            data. What it raises on the data themselves is not caught.

    Example:
        >>> import numpy as np
        >>> import privcalc as pc
        >>> from privcalc.attacks.replay import replay
        >>> step = pc.Gaussian(noise_multiplier=2.0)
        >>> def mean(x):
        ...     norms = np.linalg.norm(x, axis=1, keepdims=True)
        ...     clipped = np.where(norms < np.inf, x / np.maximum(norms, 1.0), 0.0)
        ...     ledger = pc.Ledger(None, plan=step)
        ...     return ledger.gaussian(clipped.sum(axis=0), step, clip_norm=1.0) / len(x)
        >>> replay(mean, np.eye(3), doors=pc.Ledger).kinds  # it divides by a private number
        ('output',)
        >>> replay(mean, np.eye(3), doors=pc.Ledger, relation=pc.REPLACE_ONE).kinds
        ()
    """
    errors.function("process", process, "of the data")
    if check_relation(relation) not in (ADD_OR_REMOVE_ONE, REPLACE_ONE):
        raise PrivcalcError(f"relation = {relation}: must be {ADD_OR_REMOVE_ONE} or {REPLACE_ONE}")
    owners = list(doors) if isinstance(doors, (list, tuple)) else [doors]
    if not owners or not all(any(callable(getattr(owner, name, None)) for name in DOORS) for owner in owners):
        raise PrivcalcError(
            f"doors = {doors!r}: must be a class or module with gaussian, laplace or select, such as pc.Ledger"
        )
    number, steps = errors.count("seed", seed), errors.count("search", search)
    most = None if releases is None else errors.count("releases", releases, least=1)
    for name, said in (("finite", finite), ("additive", additive)):
        errors.flag(name, said)
    if not isinstance(records, (list, tuple)):
        raise PrivcalcError(f"records = {records!r}: must be a list of records")
    found = _Replay(process, Table(data), owners, relation, number, most)
    return found.report(records, finite=finite, additive=additive, search=steps)


def look_first(
    look: Look | None, doors: object, *, relation: Relation, finite: bool = True, additive: bool = True
) -> None:
    """Replay the first release of a training before it begins, and show on the screen what was found; keep nothing.

    Within a replay nothing is done, so that a training may ask for a look at itself.

    Args:
        look: (train, data), or None: nothing is done.
        doors: as of :func:`replay`, as are the others.
        relation: the neighbouring relation.
        finite: whether records with NaN or ∞ cannot occur.
        additive: whether releases are sums of what single records add.

    Raises:
        PrivcalcError: if it is no such pair; and as ``replay``.
    """
    if look is None or playing():
        return
    if not isinstance(look, tuple) or len(look) != 2:
        raise PrivcalcError(f"look = {type(look).__name__}: must be (train, data), a function and what it is given")
    train, data = look
    found = replay(train, data, doors=doors, relation=relation, finite=finite, additive=additive, releases=1)
    print(found, file=sys.stderr)


@dataclass(eq=False)
class _Run:
    """One run of the process: its releases, what it returned, and why it did not end, if it did not."""

    releases: list[Release]
    returned: Any = None
    refused: str = ""
    diverged: str = ""


class _Replay:
    """All runs of one process; the first of them is recorded, and the others are replayed with its releases."""

    def __init__(
        self,
        process: Callable[[Any], Any],
        table: Table,
        owners: Sequence[Any],
        relation: Relation,
        seed: int,
        most: int | None = None,
    ) -> None:
        self._process, self._table, self._owners, self._seed, self._most = process, table, owners, seed, most
        self._relation, self._replaced = relation, relation is REPLACE_ONE
        self._size = len(table) - 1  # the last record is the first that is added
        self._home = [Record("the last record", table.row(self._size))] if self._replaced else []
        self._played: list[Release] | None = None
        self._bases: tuple[_Run, _Run]
        self._worst: dict[tuple[str, str], Finding] = {}
        self._largest = 0.0

    def report(self, more: Sequence[object], *, finite: bool, additive: bool, search: int) -> Report:
        """Run the process on every neighbouring data set and report the differences."""
        base = self._run(*self._home)
        self._played = base.releases
        if not base.releases:
            raise PrivcalcError("process: must release something through the doors, or nothing can be said of it")
        once = self._run(*self._home)
        other = once.diverged or once.refused or self._beside(base, once)
        if other or moves(base.releases, once.releases, "", replaced=False)[1]:
            raise PrivcalcError(UNREPEATABLE.format(other or "what it releases is not the same"))
        added = hostile(self._table, finite=finite)[1 if self._replaced else 0 :]
        added += [self._table.record(f"records[{i}]", row) for i, row in enumerate(more)]
        self._bases = base, self._run(*self._home, phase=1)
        reach = [max(self._compare(record, phase) for phase in (0, 1)) for record in added]
        if search:
            self._search(added[int(np.argmax(reach))], max(reach), search)
        if additive and not self._replaced:
            self._mix(added[:3])
        names = tuple(record.name for record in added) + ((f"{search} more by search",) if search else ())
        name = getattr(self._process, "__qualname__", type(self._process).__name__)
        findings = tuple(self._worst.values())
        number = len(base.releases)
        stopped = number == self._most
        return Report(
            name, str(self._relation), len(self._table), names, number, self._largest, findings, stopped=stopped
        )

    def _run(self, *added: Record, phase: int = 0, others: bool = False) -> _Run:
        """Run it with a record in the first batch and every other one, or with ``phase`` 1 in the others.

        With ``others`` the other records are different ones.
        """
        data = self._table.head(self._size, *(record.row for record in added), changed=others)
        with replayed(self._seed) as again, warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            tape = Tape(self._size + len(added), len(added), self._seed, again, phase, self._played, self._most)
            run = _Run(tape.releases)
            with opened(self._owners, tape):
                try:
                    run.returned = self._process(data)
                except Enough:
                    pass
                except Diverged as error:
                    run.diverged = str(error)
                except Exception as error:
                    if self._played is None:
                        raise
                    run.refused = f"{type(error).__name__}: {str(error)[:200]}"
        run.diverged = run.diverged or tape.reason or ""
        return run

    def _beside(self, base: _Run, run: _Run) -> str:
        """Describe the first difference between the values that two runs return; "" if there is none."""
        first = difference(base.returned, run.returned)
        return "" if first is None else f"{first[0]} {first[1]}"

    def _compare(self, record: Record, phase: int = 0) -> float:
        """Keep what a record shows; returns the largest share of a bound that it moved a release by."""
        base, run, at = self._bases[phase], self._run(record, phase=phase), "the run"
        findings, share = moves(base.releases, run.releases, record.name, replaced=self._replaced)
        if run.diverged:
            findings.append(Finding("control flow", at, record.name, run.diverged))
        elif run.refused:
            findings.append(Finding("refusal", f"after {len(run.releases)} releases", record.name, run.refused))
        elif len(run.releases) < len(base.releases):
            said = f"has {len(run.releases)} releases, and not {len(base.releases)}"
            findings.append(Finding("control flow", at, record.name, said))
        elif beside := difference(base.returned, run.returned):
            findings.append(Finding("output", beside[0], record.name, beside[1]))
        for finding in findings:
            self._keep(finding)
        self._largest = max(self._largest, share)
        return share

    def _keep(self, finding: Finding) -> None:
        """The worst of a kind at a place."""
        key = finding.kind, finding.where
        if key not in self._worst or finding.ratio > self._worst[key].ratio:
            self._worst[key] = finding

    def _search(self, record: Record, share: float, steps: int) -> None:
        """From the worst record uphill."""
        rng = np.random.Generator(np.random.PCG64([self._seed, 1]))
        for _ in range(steps):
            other = moved(self._table, record, rng)
            if (found := self._compare(other)) > share:
                record, share = other, found

    def _mix(self, records: Sequence[Record]) -> None:
        """Compare what a record adds to a sum with what it adds where all other records are changed."""
        changed = self._run(others=True)
        for record in records:
            runs = [self._bases[0], self._run(record), changed, self._run(record, others=True)]
            for finding in interaction(record.name, *(run.releases for run in runs)):
                self._keep(finding)
