"""Lines of an append-only log: JSON entries, each with its number and a running hash.

One reader, whatever keeps them.

A line is ``{"n": number, "entry": {…}, "hash": h}`` with h = SHA-256 of the previous line's hash and the canonical text
of number and entry, so that lines that were edited, dropped, doubled or moved do not fit. What a crash can leave is a
last line without its end: it was never acknowledged, and is recognised and left out.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from privcalc.errors import PrivcalcError
from privcalc.files import DOCUMENT, LEDGER
from privcalc.serial import Json, canonical, parse

__all__ = ["START", "Log", "Position", "chained", "check_digest", "check_label", "check_warning", "entries", "hash_in"]

START = "0" * 64
"""The hash before the first line."""

LONGEST, LINE = 100, 2000
"""The most characters of a label, and of a warning."""


@dataclass
class Position:
    """What has been read: lines, the hash of the last, bytes up to its end; and whether half a line follows."""

    lines: int = 0
    hash: str = START
    size: int = 0
    torn: bool = False


def chained(previous: str, number: int, entry: object) -> tuple[str, str]:
    """The hash of a line, and its text."""
    payload = canonical(entry)
    digest = hashlib.sha256(f"{previous}{number}{payload}".encode()).hexdigest()
    return digest, f'{{"n":{number},"entry":{payload},"hash":"{digest}"}}\n'


def entries(lines: Iterator[bytes], name: object, position: Position) -> Iterator[Json]:
    """The entries of the lines that follow ``position``, verified; it is moved along.

    Raises:
        PrivcalcError: naming the line that does not fit.
    """
    for line in lines:
        number = position.lines + 1
        if len(line) > DOCUMENT:
            raise PrivcalcError(f"{name}: line {number} has no end within {DOCUMENT:,} bytes")
        if not line.endswith(b"\n"):
            if number == 1 and line[: len(LEDGER)] != LEDGER[: len(line)]:
                raise PrivcalcError(f"{name}: is not a ledger")  # whatever it is, it must not be cut off
            position.torn = True
            if next(lines, None) is not None:
                raise PrivcalcError(f"{name}: line {number} has no end")
            return
        try:
            record = parse(line, "line")
            entry, found, digest = record["entry"], record["n"], record["hash"]
            expected, text = chained(position.hash, number, entry)
        except (ValueError, KeyError) as error:
            raise PrivcalcError(f"{name}: line {number} cannot be read") from error
        if found != number or not isinstance(entry, dict):
            raise PrivcalcError(
                f"{name}: line {number} is numbered {str(found)[:20]}: lines are missing, doubled or moved"
            )
        if digest != expected or text.encode() != line:
            raise PrivcalcError(f"{name}: line {number} does not fit its hash: it, or a line before it, was changed")
        position.lines, position.hash, position.size = number, digest, position.size + len(line)
        yield entry


def check_label(value: object, *, name: str = "label") -> str:
    """A label, or another name: one line of printable characters.

    Raises:
        PrivcalcError: if it is none.
    """
    if not isinstance(value, str) or not value.isprintable() or value != value.strip() or not 0 < len(value) <= LONGEST:
        raise PrivcalcError(
            f"{name} = {value!r}: must be a text of 1 to {LONGEST} printable characters, without a space at either end"
        )
    return value


def check_warning(value: object) -> str:
    """A warning: one line of printable characters.

    Raises:
        PrivcalcError: if it is none.
    """
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value.strip()) <= len(value) <= LINE:
        raise PrivcalcError(f"text = {str(value)[:200]!r}: must be one line of 1 to {LINE:,} printable characters")
    return value


def check_digest(value: object, form: str = "[0-9a-f]{64}") -> str:
    """A text of this form, which is that of a certificate's hash.

    Raises:
        PrivcalcError: if it is none.
    """
    if not isinstance(value, str) or not re.fullmatch(form, value):
        raise PrivcalcError(f"digest = {str(value)[:100]!r}: must be a text of the form {form}")
    return value


def hash_in(line: bytes) -> str | None:
    """The hash that a line of a log that was verified says; None if the line is none, or has no end."""
    return str(parse(line, "line").get("hash")) if line.endswith(b"\n") else None


class Log(ABC):
    """A log, as far as it was read.

    Attributes:
        position: how far that is.
        witness: is told of each new end, lines and hash: of a ledger's the store of its budget, before anything is
            drawn on it; of a budget's history a file that is kept apart.
    """

    def __init__(self) -> None:
        self.position = Position()
        self.witness: Callable[[int, str], None] | None = None

    @abstractmethod
    def line(self, number: int) -> bytes:
        """The line of this number as it is kept now; empty if there is none."""

    def hash_of(self, number: int) -> str | None:
        """The hash of a line, counted from 1; None if there is no such line."""
        return hash_in(self.line(number)) if number > 0 else None

    def next(self, added: tuple[Json, ...]) -> tuple[Position, list[str]]:
        """Where the log ends with these entries more, and their lines; nothing is written.

        Raises:
            PrivcalcError: if one is no JSON, or longer than what can be read again.
        """
        number, digest, lines = self.position.lines, self.position.hash, []
        for entry in added:
            number += 1
            digest, line = chained(digest, number, entry)
            if len(line.encode()) > DOCUMENT:
                raise PrivcalcError(
                    f"line {number}: would have more than {DOCUMENT:,} bytes, and could not be read again"
                )
            lines.append(line)
        return Position(number, digest, self.position.size + len("".join(lines).encode())), lines
