"""How commands speak: in the terminal's letters, to readers that may leave, and never by a traceback.

That is so for bad input, too.

Where standard output or error is in ASCII or Latin-1, what they lack is spelled: ``ε`` is ``epsilon``, ``≤`` is ``<=``.
A stream that is closed swallows what is written to it.
"""

from __future__ import annotations

import codecs
import functools
import io
import os
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TextIO

from privcalc.errors import PrivcalcError, PrivcalcWarning

__all__ = [
    "INPUT",
    "INTERRUPTED",
    "UNCONFIRMED",
    "WRONG",
    "command",
    "fail",
    "for_stream",
    "spelled",
]

Arguments = ParamSpec("Arguments")

HANDLER = "privcalc.spelled"
SPELLINGS = {
    **{
        "≤": "<=",
        "≥": ">=",
        "≠": "!=",
        "≈": "~",
        "±": "+/-",
        "×": "x",
        "·": "*",
        "−": "-",
        "–": "-",
        "—": "-",
        "…": "...",
    },
    **{
        "√": "sqrt ",
        "∞": "inf",
        "‖": "||",
        "→": "->",
        "←": "<-",
        "§": "section ",
        "∈": "in",
        "∫": "integral",
        "ℓ": "l",
    },
    **{"’": "'", "‘": "'", "“": '"', "”": '"', "█": "#", "²": "^2", "³": "^3", "½": "1/2", "¼": "1/4", "ᵀ": "^T"},
}
"""What has no better name. Greek letters go by theirs; letters with accents lose them."""

WRONG, INPUT, UNCONFIRMED = 1, 2, 3
"""Exit statuses: a claim is contradicted; no answer, or none delivered; a check came to no end."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


def spelled(text: str) -> str:
    """The text in ASCII.

    Example:
        >>> spelled("ε ≤ 2 × Δ, naïve")
        'epsilon <= 2 x Delta, naive'
    """
    return "".join(character if character.isascii() else _spelling(character) for character in text)


def for_stream(text: str, stream: TextIO) -> str:
    """The text, with what the stream's encoding lacks spelled."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, HANDLER).decode(encoding)


def _spelling(character: str) -> str:
    if character in SPELLINGS:
        return SPELLINGS[character]
    kind, _, name = unicodedata.name(character, "").partition(" LETTER ")
    if kind in {"GREEK SMALL", "GREEK CAPITAL"} and name.isalpha():
        name = {"LAMDA": "LAMBDA"}.get(name, name)
        return name.lower() if kind == "GREEK SMALL" else name.capitalize()
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return plain or character.encode("ascii", "backslashreplace").decode()


def _handler(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):  # only encoders call it
        raise error
    return spelled(error.object[error.start : error.end]), error.end


codecs.register_error(HANDLER, _handler)


class _Output(io.TextIOWrapper):
    """A standard stream that takes all text; once it cannot be written to, the rest is lost, and the error kept."""

    lost: OSError | None = None

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._let_go(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._let_go(error)

    def _let_go(self, error: OSError) -> None:
        """Python flushes once more at exit: that, too, goes nowhere."""
        self.lost = error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


@contextmanager
def _opened(stream: TextIO | None) -> Iterator[TextIO]:
    """The stream that a command writes to instead."""
    if stream is None:  # closed before the start: its number must not go to the next file that is opened
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            yield nowhere
    elif isinstance(stream, io.TextIOWrapper):
        stream.flush()
        buffered, through = stream.line_buffering, stream.write_through
        output = _Output(stream.buffer, stream.encoding, HANDLER, line_buffering=buffered, write_through=through)
        try:
            yield output
        finally:
            output.flush()
            output.detach()
    else:
        yield stream


@contextmanager
def _warned(name: str) -> Iterator[None]:
    """Warnings of this library as lines on standard error, each once, without the place in our code; others as ever."""
    with warnings.catch_warnings(record=True) as found:
        try:
            yield
        finally:
            ours = [one for one in found if issubclass(one.category, PrivcalcWarning)]
            for text in dict.fromkeys(str(one.message) for one in ours):
                fail(name, f"warning: {text}")
    for one in found:
        if one not in ours:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def command(name: str) -> Callable[[Callable[Arguments, int]], Callable[Arguments, int]]:
    """Make a function that returns an exit status the main function of a command.

    What cannot be encoded is spelled. Bad input, and files out of reach, end with one line and status 2; so does an
    answer that could not be written. A reader that has left, such as ``head``, changes nothing.

    Args:
        name: of the command, for errors.
    """

    def decorate(main: Callable[Arguments, int]) -> Callable[Arguments, int]:
        @functools.wraps(main)
        def run(*arguments: Arguments.args, **named: Arguments.kwargs) -> int:
            before = sys.stdout, sys.stderr
            try:
                with _opened(sys.stdout) as sys.stdout, _opened(sys.stderr) as sys.stderr:
                    parser: SystemExit | None = None
                    status = 0
                    try:
                        with _warned(name):
                            status = main(*arguments, **named)
                    except SystemExit as ending:
                        parser = ending
                    except (PrivcalcError, OSError) as error:
                        status = fail(name, error)
                    except KeyboardInterrupt:
                        fail(name, "interrupted")
                        status = INTERRUPTED
                    sys.stdout.flush()
                    lost = getattr(sys.stdout, "lost", None)
                    if lost is not None and not isinstance(lost, BrokenPipeError):
                        return fail(name, f"standard output: {lost}")
                    if parser is not None:
                        raise parser
                    return status
            finally:
                sys.stdout, sys.stderr = before

        return run

    return decorate


def fail(name: str, error: object, *, status: int = INPUT) -> int:
    """One line about what went wrong; returns the exit status."""
    print(f"{name}: {' '.join(str(error).splitlines())}", file=sys.stderr)
    return status
