"""Charging durably: a block of uses is written and synced before the first of them is drawn.

A crash charges the whole block.

    plan or cap  ->  reserve a block  ->  draw  ->  return what is left  ->  close

Proof that what is certified covers what happened: ``proofs/ledger.md``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.ledger.assumptions import OUTPUT_INDEPENDENT, Assumptions, Provenance, asking, drawn
from privcalc.ledger.book import Book, Persons, Use, entry_of, kind_of, uses_of
from privcalc.ledger.kept import Budgeted, begin, finish
from privcalc.ledger.rules import Single
from privcalc.ledger.terms import EXACT, VERSION, Terms, certificates_of
from privcalc.log.file import Journal
from privcalc.log.lines import check_warning
from privcalc.notebook import Card
from privcalc.run import Mechanism, Run
from privcalc.serial import Json, canonical

__all__ = ["Account"]


class Account(Single, Card):
    """What :class:`Ledger` charges to, without the drawing.

    Args:
        path: file of the ledger; None keeps it in memory.
        terms: what it is opened for.
        reserve: most uses reserved at a time.
        budget: what it spends from, if it is not alone.

    Attributes:
        journal: the lines.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, terms: Terms, *, reserve: int, budget: Budgeted | None = None
    ) -> None:
        self._block = errors.count("reserve", reserve, least=1)
        terms.check_target()
        first = terms.to_json()
        texts = {
            name: canonical(value) for name, value in first.items()
        }  # raises where something cannot be written down
        if budget is not None and not callable(getattr(budget, "keeper", None)):
            raise PrivcalcError(f"budget = {budget!r}: must be a Budget, pc.Budget(url, dataset=...)")
        if budget is not None and terms.assumptions.private:
            raise PrivcalcError(
                f"budget: cannot be kept, as {terms.assumptions.private[0]} = 'private' leaves no guarantee"
            )
        self._keeper = None if budget is None else budget.keeper(terms)
        self._book = Book(terms)
        self.journal = Journal(path, lambda entries: self._go_on(entries, texts, path))
        try:
            if not self.journal.position.lines:
                self.journal.append(first)
                begin(self._keeper, self._book, self.journal)
            else:
                begin(self._keeper, self._book, self.journal)
                self.journal.append({"type": "resume"})
        except BaseException:
            self.journal.close()
            raise
        self._undrawn: dict[Use, int] = {}
        self._charged = 0
        self._noted: Json | None = None
        self._process = os.getpid()
        self._paused = False
        self._lock = threading.Lock()

    def _go_on(self, entries: Iterator[Json], first: Mapping[str, str], path: object) -> None:
        """Charge what a ledger has already."""
        opening = next(entries, None)
        if opening is None:
            return
        said = opening | {"version": VERSION, "noise": EXACT}
        found = {
            name: canonical(value) for name, value in said.items() if name in first
        }  # what a later version adds stays
        if found != first:
            other = sorted(name for name in {**found, **first} if found.get(name) != first.get(name))
            raise PrivcalcError(f"path = {str(path)!r}: this ledger was opened on other terms ({', '.join(other)})")
        self._book = Book(Terms.from_json(opening))  # of the version it was opened in
        for entry in entries:
            self._book.apply(entry)
        if self._book.closed:
            raise PrivcalcError(
                f"path = {str(path)!r}: this ledger is closed; what runs now needs a ledger of its own (one that is "
                "to be gone on with ends in pause())"
            )

    def record(self, mechanism: Mechanism | Run, count: int = 1, *, label: str | None = None) -> None:
        """Charge for what external code draws itself, before it draws.

        The certificate says that you declared it.

        Args:
            mechanism: what runs there, or a run.
            count: how often.
            label: what it is, such as "2026-05 model": refused the second time, in this ledger, and listed by the
                certificate.

        Raises:
            BudgetExceeded: if plan or cap have no room for all of it: then nothing is charged, and it must not run.
            PrivcalcError: if the cap has no proof for the mechanism, it is a ``Parallel`` of parts that were not
                declared disjoint, or the label was used.
        """
        run = uses_of(mechanism, count)
        self.terms.assumptions.require(run)
        provenance = dataclasses.replace(asking(), noise="other code")
        with self._held():
            self._book.check_label(label)
            self._make_room(run)
            self._write("record", run.entries, provenance, label=label)

    def say(self, **words: object) -> None:
        """Write down words of training: what only the caller knows of it, and every certificate of this ledger says.

        Args:
            words: ``start``, ``preprocessing``, ``copies``, ``records_per_unit``, as in :class:`Assumptions`; None says
                nothing. A certificate as ``start`` is "certificate", and its hash is written down: this ledger's
                certificate is final only composed with it. What was said already may be said again, and not otherwise.

        Raises:
            PrivcalcError: if one is none of its values, contradicts what was said, or is private where a target or a
                budget would count on a guarantee.

        Example:
            >>> import privcalc as pc
            >>> step = pc.PoissonSampled(pc.Gaussian(1.0), 0.1)
            >>> with pc.Ledger(None, plan=step) as ledger:
            ...     ledger.say(start="random")
            ...     ledger.record(step)
            >>> [line for line in str(pc.certify(ledger, delta=1e-5)).splitlines() if " start: " in line]
            ['assumed         start: random: drawn at random, or zero (declared by the caller; assumptions.md)']
        """
        known, begun = self._book.declared, certificates_of(words.get("start"), self.terms)
        new = {
            name: "certificate" if hasattr(value, "document") else value
            for name, value in words.items()
            if value is not None
        }
        private = Assumptions.from_json(new).private
        if private and (self.terms.target is not None or self._keeper is not None):
            raise PrivcalcError(
                f"{private[0]} = 'private': leaves no guarantee for the target, or for the budget, of this ledger"
            )
        self._book.check_said(new)
        if any(name not in known for name in new) or not set(begun) <= set(self._book.begun):
            with self._held():
                self._enter({"type": "said", "words": new} | ({"certificates": begun} if begun else {}))

    def would_exceed(self, mechanism: Mechanism | Run, count: int = 1) -> bool:
        """Whether a charge would be refused. Nothing is charged.

        Raises:
            PrivcalcError: if the cap has no proof for the mechanism.
        """
        run = uses_of(mechanism, count)
        with self._held():
            return not self._room(run)

    def warn(self, text: str) -> None:
        """Warn, as a :class:`PrivcalcWarning`, and write it down.

        Every certificate of this ledger says it, first of all.

        Certificates are published, so what is warned of must follow from the program and from what is public or was
        released: that weights were written by hand, say, and nothing of private records. Said again, it is written down
        once; a ledger that is closed or paused writes nothing.

        Args:
            text: what may not hold, one line.

        Raises:
            PrivcalcError: if it is no such line.

        Example:
            >>> import warnings
            >>> import privcalc as pc
            >>> step = pc.Gaussian(noise_multiplier=20.0)
            >>> with warnings.catch_warnings(), pc.Ledger(None, plan=step) as ledger:
            ...     warnings.simplefilter("ignore")
            ...     ledger.warn("the export of May was incomplete")
            ...     print(str(pc.certify(ledger, delta=1e-5)).splitlines()[2])
            WARNED: the export of May was incomplete.
        """
        entry = {"type": "warning", "text": check_warning(text)}
        self._check_process()
        with self._lock:
            if not self._book.closed and self.journal.open and text not in self._book.warnings:
                self._enter(entry)
        errors.warn(text)

    @property
    def terms(self) -> Terms:
        """What it was opened for."""
        return self._book.terms

    @property
    def spent(self) -> Run:
        """What was drawn and recorded in this ledger, without what is reserved. No certificate: see :func:`certify`."""
        return Run(tuple((use[0], count - self._undrawn.get(use, 0)) for use, count in self._book.uses.items()))

    def pause(self) -> None:
        """Return what was reserved and not drawn, and let the file go (:meth:`Ledger.pause`)."""
        if self._paused:
            return
        if self.journal.path is None:
            raise PrivcalcError("path = None: a ledger in memory cannot be paused, because it ends with this process")
        with self._held():
            self._return()
            self.journal.close()
            self._paused = True

    def close(self, stopping: str | None = None) -> None:
        """Return what was reserved and not drawn, and write the closing line. Closing twice does nothing.

        Args:
            stopping: "output-independent" if you vouch that what was run, and when it ended, did not depend on any
                output: then what was recorded is certified, not the whole plan. The certificate quotes it.
        """
        errors.one_of("stopping", stopping, OUTPUT_INDEPENDENT, None)
        if self._book.closed and self._process == os.getpid():
            return
        with self._held():
            self._book.check_end(stopping)
            entry = {"type": "close", "stopping": stopping}
            with self.journal.unwitnessed():  # nothing is drawn any more: the store need not be there
                self._return()
                self.journal.append(entry)
            self._book.apply(entry)
            self.journal.close()
            finish(self._keeper, self._book, self.journal)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._paused:
            return
        if kind is None:
            self.close()
        elif self._process == os.getpid() and not self._book.closed and self.journal.open:
            # After an error the ledger stays open, to be gone on with; what is reserved need not be lost.
            with self._lock:
                try:
                    self._return()
                finally:
                    self.journal.close()

    def _card(self) -> tuple[str, dict[str, object]]:
        terms, labels = self._book.terms, "; ".join(self._book.labels)
        of = {"neighbours by": terms.relation, "one record": terms.unit, "plan": terms.plan, "cap": terms.cap}
        return repr(self), {name: one for name, one in {**of, "labels": labels}.items() if one}

    def __repr__(self) -> str:
        state = "closed" if self._book.closed else "paused" if self._paused else "open"
        return f"{type(self).__name__}({self.journal.path}, {state}, spent={self.spent})"

    def _charge(self, mechanism: Mechanism, count: int = 1, label: str | None = None, *, batch: bool = True) -> None:
        """Charge uses that are about to be drawn: all of them, or none.

        They come from a reserved block, or a line with their label says so.

        Args:
            mechanism: what is drawn.
            count: how often.
            label: what it is.
            batch: whether the ledger draws who takes part, or nobody does.
        """
        use = mechanism, drawn(asking(), batch=batch)
        with self._held():
            if label is not None:
                self._book.check_label(label)
                self._make_room(mechanism * count)
                self._write("reserve", [(mechanism, count)], use[1], label=label)
                self._charged += count
                return
            if (left := self._undrawn.get(use, 0)) < count:
                self._make_room(mechanism * (count - left))
                left = self._undrawn.get(use, 0)  # less, if some had to be returned
                left += self._reserve(use, count - left)
            self._undrawn[use] = left - count

    def _note(self, mechanism: Mechanism, entry: Json) -> None:
        """Write down how the first sum of a kind is drawn, before it is; steps of a run have one entry."""
        with self._held():
            if entry is not self._noted and kind_of(mechanism, entry) not in self._book.draws:
                self._enter(entry)
            self._noted = entry

    def _enter(self, entry: Json) -> None:
        """Write a line that charges nothing, and read it."""
        self.journal.append(entry)
        self._book.apply(entry)

    @contextlib.contextmanager
    def _of_persons(self, persons: Persons) -> Iterator[None]:
        """Around the draw of an answer about persons: refused before it, and written down before anybody sees it."""
        with self._held():
            self._book.check_persons(persons)
        yield
        with self._held():
            self._book.check_persons(persons)
            if self._book.persons is None:
                self._enter({"type": "persons", "named": persons[0], "column": persons[1]})

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Alone, in the process that opened it, while it is open."""
        self._check_process()  # before the lock, which a fork may have copied while it was held
        with self._lock:
            if self._paused:
                raise PrivcalcError("the ledger is paused: open its path again, on the same terms")
            if self._book.closed or not self.journal.open:
                raise PrivcalcError("the ledger is closed")
            yield

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise PrivcalcError("this ledger was opened in another process; a fork must open its own")

    def _reserve(self, use: Use, least: int) -> int:
        """Make a block durable before its first use is drawn; returns its size.

        It is 1 % of what was charged, so little is lost in a crash.
        """
        mechanism, provenance = use
        block = max(least, min(self._block, 1 + self._charged // 100))
        while block > least and self._book.rule.would_exceed(mechanism * block):
            block = max(least, block // 2)
        self._write("reserve", [(mechanism, block)], provenance)
        self._charged += block
        return block

    def _write(
        self, kind: str, entries: Sequence[tuple[Mechanism, int]], provenance: Provenance, *, label: str | None = None
    ) -> None:
        """Charge, then make it durable: whatever interrupts this, memory never knows of less than the file does.

        A label is on the first line, so that it is used wherever the file may end.
        """
        lines = [entry_of(kind, *entry, provenance, None if number else label) for number, entry in enumerate(entries)]
        for mechanism, count in entries:
            self._book.charge(mechanism, count, provenance)
        if label is not None:
            self._book.labels[label] = None
        try:
            self.journal.append(*lines)
        except OSError:  # the lines were taken back
            if label is not None:
                del self._book.labels[label]
            for mechanism, count in entries:
                self._book.refund(mechanism, count, provenance)
            raise

    def _make_room(self, run: Run) -> None:
        """Raise, and say why, if there is no room."""
        if not self._room(run):
            self._book.rule.check(run)

    def _room(self, run: Run) -> bool:
        """Whether there is room, if need be after taking back what was reserved and not drawn."""
        if not self._book.rule.would_exceed(run):
            return True
        if any(self._undrawn.values()):
            self._return()
            return not self._book.rule.would_exceed(run)
        return False

    def _return(self) -> None:
        """Write down what was not drawn; from before that it cannot be drawn any more."""
        left = {use: count for use, count in self._undrawn.items() if count}
        self._undrawn = {}
        if not left:
            return
        try:
            self.journal.append(
                *(entry_of("return", mechanism, count, told) for (mechanism, told), count in left.items())
            )
        except OSError:  # the lines were taken back
            self._undrawn = left
            raise
        for (mechanism, provenance), count in left.items():
            self._book.refund(mechanism, count, provenance)
