"""A theorem about one run, as a file for Coq: what was computed is computed again there, and the theorem applied."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

from privcalc.kernel import curve
from privcalc.kernel.run import Composed

EACH = "(* for each of removed and added *)\n"
"""What separates the two parts of ``theorem.v``."""


def theorem(found: Composed, delta: float, *, said: str = "") -> str:
    """The text of a file in which Coq proves δ(ε) ≤ δ for a removed and for an added record.

    Args:
        found: a run that was composed; some hundred masses take Coq a minute.
        delta: δ.
        said: what the run is, for its first comment.

    Raises:
        ValueError: if no ε is proved at δ.
    """
    epsilon, s = found.epsilon(delta), found.settings
    if epsilon == math.inf:
        raise ValueError(f"delta = {delta!r}: no epsilon is proved at it")
    unit = 1 << s.bits
    begins, each = (
        Path(__file__).with_suffix(".v").read_text(encoding="utf-8").split("(* for each of removed and added *)")
    )
    text = begins.format(
        said=said.replace("(*", "( *").replace("*)", "* )").replace('"', "'"),
        bits=s.bits,
        grid=s.grid,
        cut=s.cut,
        most=s.most,
    )
    for name, c, entries in zip(("removed", "added"), found.curves, found.entries, strict=True):
        first, *others = (
            f"(({low}, [{'; '.join(map(str, table))}]), {count}%positive)" for low, table, count in entries
        )
        n = found.power(c, delta)
        assert n is not None
        text += each.format(
            name=name,
            first=first,
            others="; ".join(others),
            n=n,
            epsilon=int(Fraction(epsilon) * unit),
            delta=curve.delta(s, c, n),
        )
    return text
