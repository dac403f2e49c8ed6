"""Runs as certificates write them, what whole numbers prove of them, and a theorem about one as a file for Coq."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from privcalc.kernel import curve
from privcalc.kernel.curve import Curve, Settings
from privcalc.kernel.tables import tables, window

MOST_ENTRIES, MOST_USES = 64, 10**9
FINEST, COARSEST = 20, 1
"""Of the grid x = 1 + 2^-grid."""

FIRST = 4
"""How many times as large a table may be as what is composed from it: losses of one step need a finer grid."""

LEAST = 1e-50
"""Of δ: below, numbers of so many digits take minutes."""

GUARD = 80
"""Bits of a unit below δ: roundings of a unit in each of some thousand masses, at each of 30 squarings, come to less
than 2^-20 of δ after 10⁹ uses."""

SHARE = 2**13
"""Of δ/T that each trim may move: over all trims δ/2^12."""

Entry = tuple[Fraction, Fraction, int]
"""σ, q and how often."""


def read(run: Iterable[Mapping[str, Any]], relation: str) -> list[Entry]:
    """The entries of the field ``run`` of a certificate.

    Raises:
        ValueError: by name, if something is not among what is known here.
    """
    if relation != "add-or-remove-one":
        raise ValueError(f"relation = {relation!r}: whole numbers prove add-or-remove-one only")
    found = dict[tuple[Fraction, Fraction], int]()
    try:
        for entry in run:
            if set(entry) != {"mechanism", "count"} or type(entry["count"]) is not int:
                raise ValueError("run: an entry must have a mechanism and a whole count, and nothing else")
            mechanism, rate = entry["mechanism"], Fraction(1)
            if mechanism["kind"] == "PoissonSampled" and set(mechanism) == {"kind", "mechanism", "rate"}:
                mechanism, rate = mechanism["mechanism"], _number(mechanism["rate"])
            if mechanism["kind"] != "Gaussian" or set(mechanism) != {"kind", "noise_multiplier"}:
                raise ValueError(f"{mechanism['kind']}: is not Gaussian, or not Poisson-sampled Gaussian")
            sigma = _number(mechanism["noise_multiplier"])
            count = found.get((sigma, rate), 0) + entry["count"]
            if not (0 < rate <= 1 and Fraction(1, 10) <= sigma <= 10**6 and 1 <= entry["count"] <= count <= MOST_USES):
                raise ValueError("run: noise multipliers must be in [0.1, 1e6], rates in (0, 1]: one is out of range")
            found[sigma, rate] = count
    except (KeyError, TypeError) as reason:
        raise ValueError(f"run: is malformed ({reason!r})") from None
    if not 1 <= len(found) <= MOST_ENTRIES:
        raise ValueError(f"run: has {len(found)} entries, and must have 1 to {MOST_ENTRIES}")
    return [(sigma, rate, count) for (sigma, rate), count in found.items()]


def _number(value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1e300 < value < 1e300:
        raise ValueError("run: a noise multiplier or rate is no finite number, or out of range")
    return Fraction(value)


@dataclass(frozen=True)
class Composed:
    """The curves of a run for a removed and for an added record.

    Attributes:
        settings: of the whole numbers.
        curves: of a removed record, and of an added one.
        entries: for both, first powers, tables and uses; what a theorem about this run needs.
    """

    settings: Settings
    curves: tuple[Curve, Curve]
    entries: tuple[list[tuple[int, list[int], int]], list[tuple[int, list[int], int]]]

    def epsilon(self, delta: float) -> float:
        """The least ε on the grid at which δ is proved, rounded up to a double; ∞ if there is none."""
        return max(self._epsilon(c, delta) for c in self.curves)

    def _epsilon(self, c: Curve, delta: float) -> float:
        n, s = self.power(c, delta), self.settings
        if n is None:
            return math.inf
        epsilon = n * math.ldexp(math.log1p(2.0**-s.grid), c.level)
        while not curve.reaches(s, c, n, int(Fraction(epsilon) * (1 << s.bits))):
            epsilon = math.nextafter(epsilon * (1 + max(1.0, epsilon) * 2**-42), math.inf)  # what ``ROOT`` loses
        return epsilon

    def power(self, c: Curve, delta: float) -> int | None:
        """The least n at which δ(ε) ≤ δ is proved for e^ε = x^n."""
        most, (low, high) = int(Fraction(delta) * (1 << self.settings.bits)), (0, c.low + len(c.mass))
        if curve.delta(self.settings, c, max(0, high)) > most:
            return None
        high = max(0, high)
        while low < high:  # δ falls in n
            middle = (low + high) // 2
            low, high = (low, middle) if curve.delta(self.settings, c, middle) <= most else (middle + 1, high)
        return low


def composed(entries: Iterable[Entry], delta: float, *, most: int = 4096) -> Composed:
    """Compose a run, a removed and an added record each by itself.

    Args:
        entries: as from :func:`read`.
        delta: δ in (0, 1), for which the settings are chosen.
        most: masses of a curve: more are tighter, and take longer.

    Raises:
        ValueError: if δ is out of range, or losses are too large for so many masses.

    Example:
        >>> run = [{"mechanism": {"kind": "Gaussian", "noise_multiplier": 4.0}, "count": 10}]
        >>> found = composed(read(run, "add-or-remove-one"), 1e-5, most=512)
        >>> 3.2 < found.epsilon(1e-5) < 3.4
        True
    """
    if not LEAST <= delta < 1:
        raise ValueError(f"delta = {delta!r}: must be in [{LEAST!r}, 1)")
    entries = list(entries)
    uses = sum(count for _, _, count in entries)
    bits = GUARD + math.ceil(-math.log2(delta))
    cut = max(1, int(Fraction(delta) * (1 << bits)) // (SHARE * uses))
    for grid in range(FINEST, COARSEST - 1, -1):
        s = Settings(bits, grid, cut, most)
        widths = [window(s, float(sigma), float(rate)) for sigma, rate, _ in entries]
        if all(high - low < FIRST * most for low, high in widths):
            break
    else:
        raise ValueError(f"run: its losses are too large for {most} masses")
    pairs = [tables(s, sigma, rate) for sigma, rate, _ in entries]
    removed, added = ([(*pair[side], e[2]) for pair, e in zip(pairs, entries, strict=True)] for side in (0, 1))
    return Composed(s, (curve.composed(s, removed), curve.composed(s, added)), (removed, added))


def said(document: Mapping[str, Any]) -> str:
    """A sentence on what whole numbers prove of a certificate's guarantee; where they know nothing, why.

    Args:
        document: the JSON object of a certificate.
    """
    try:
        delta = float(document["guarantee"]["delta"])
        epsilon = composed(read(document["run"], document["relation"]), delta).epsilon(delta)
    except (ValueError, KeyError, TypeError, OverflowError) as reason:
        return f"whole numbers: nothing is known to them of this run ({reason})"
    if epsilon == math.inf:
        return f"whole numbers: no ε is proved at δ = {delta!r}"
    return (
        f"whole numbers: ε ≤ {epsilon!r} at δ = {delta!r}, {document['relation']}, by an algorithm whose composition "
        "is a theorem that Coq checked (proofs/kernel.md says what is not)"
    )


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
        Path(__file__).with_name("theorem.v").read_text(encoding="utf-8").split("(* for each of removed and added *)")
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
