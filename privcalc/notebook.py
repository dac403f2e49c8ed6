"""Objects as notebooks show them: a small table, all of whose words are escaped."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

__all__ = ["Card", "Number", "card"]

STYLE = "text-align:left;vertical-align:top;padding:0.15em 1em 0.15em 0"

USUAL = "add-or-remove-one"
"""The relation that goes without saying."""

MOST = 20
"""Most rows of a table; who wants all has the object."""


def card(title: str, rows: Mapping[str, object], *, text: str = "") -> str:
    """A table of two columns as HTML, without scripts.

    Args:
        title: above it.
        rows: values by their names, of which 20 are shown.
        text: more, to be opened below.

    Example:
        >>> card("<b>", {"ε": 1.5}).partition("<table>")[0]
        '<div><strong>&lt;b&gt;</strong>'
    """
    shown = dict(list(rows.items())[:MOST])
    if (left := len(rows) - len(shown)) > 0:
        shown["…"] = f"{left} more"
    lines = "".join(
        f'<tr><th style="{STYLE}">{escape(name)}</th><td style="{STYLE}">{escape(f"{value}")}</td></tr>'
        for name, value in shown.items()
    )
    more = f"<details><summary>all of it</summary><pre>{escape(text)}</pre></details>" if text else ""
    return f"<div><strong>{escape(title)}</strong><table>{lines}</table>{more}</div>"


class Card:
    """An object that notebooks show as a table."""

    def _card(self) -> tuple[str, dict[str, object]]:
        """The title and the rows of the table."""
        raise NotImplementedError

    def _more(self) -> str:
        """A text to be opened below the table."""
        return ""

    def _repr_html_(self) -> str:
        title, rows = self._card()
        return card(title, rows, text=self._more())


class Number(Card):
    """An answer between two ends, shown by what it is of, and at what.

    Attributes:
        asked: its symbol, and at what it is: ("β", "α = 0.1"); empty of ε at a δ, and of what is not known.
    """

    asked: tuple[str, str]
    lower: Any
    upper: Any
    delta: Any
    relation: Any
    route: Any
    stated: Any

    def __repr__(self) -> str:
        """A short line: the safe end, and at what it holds."""
        known = self.asked[0] or self.delta is None
        symbol, at = self.asked if known else ("ε", f"δ = {self.delta:g}")
        where = (f" at {at}" if at else "") + ("" if f"{self.relation}" == USUAL else f", {self.relation}")
        return f"{type(self).__name__}({self.stated(symbol or 'value', digits=5)}{where})"

    def _card(self) -> tuple[str, dict[str, object]]:
        ends = {"certified in": f"[{self.lower!r}, {self.upper!r}]", "neighbours by": self.relation}
        return repr(self).partition("(")[2][:-1], {**ends, "route": self.route}
