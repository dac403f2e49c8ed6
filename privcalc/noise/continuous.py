"""round(t·X), drawn exactly, for X with a density proportional to e^{-a(|x|)}: normal and Laplace numbers on a grid.

A uniform point under the graph of e^{-a} has the abscissa wanted. It is the first uniform point of a covering by boxes
that lies under the graph. The covering has a power of two of equal shares, so that the first bits of a word choose one:

* a *body* box lies under the graph with all of itself: it needs no more than a place in it. That is how 98 % of draws
  end.
* the other shares are one region: thin boxes on top of those, boxes beside them, and, further out, boxes of a constant
  width each half as large as the last, to infinity. A point there may lie above the graph, and then all is drawn again.

All edges are rational. Doubles answer where their proved error leaves no doubt, integers with more random bits where it
does (``proofs/executed_noise.md``, §2).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privcalc.errors import PrivcalcError
from privcalc.noise.bits import Bits, Uniform, Words
from privcalc.noise.exponential import bounds, decay

__all__ = ["Boxes", "laplace", "normal", "steps"]

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

INDEX, PLACE = 11, 52
"""Bits of a word that choose a share, and that place the point in it; the one between them is the sign."""

SHARES = 2**INDEX
BLOCK = 2**14
"""Numbers that are drawn at a time: what they need stays in the cache."""

DIGITS = 128
"""Of the graph, binary: where the boxes to infinity begin it is 2⁻⁴⁷, and must be known to a double's precision."""

EDGES = 2**30
"""Edges are multiples of 1/EDGES."""

DOUBT = 2.0**-40
"""Heights, relative to that of the graph at a box's left end, are compared in doubles if they differ by more."""

LARGEST = 2**62
"""So that a sum of two fits 64 bits with a sign."""


@dataclass(frozen=True, eq=False)
class Box:
    """Over [left, left + width], between base and base + height."""

    left: Fraction
    width: Fraction
    base: Fraction
    height: Fraction


@dataclass(frozen=True, eq=False)
class Boxes:
    """A covering of the graph of e^{-a} over [0, ∞).

    Attributes:
        exponent: a, which rises; of a fraction, and of doubles given as left end, and distance from it, as a(left + x)
            − a(left).
        body: how many shares are body boxes.
        lefts: left ends, first of the body boxes; the rest are in the same order, then those beside.
        widths: their widths.
        rest: boxes of the other region, whose areas are multiples of its 2⁻⁶⁴.
        ends: where the areas of the first, the first two, … of them end, in these units; beyond the last of them is
            nothing, and between the last two the boxes that go to infinity.
        far: the first of those; the i-th is i widths further and has 2^-i of its height.
        columns: left, width, base, height of ``rest`` and the graph at the left end, as doubles.
    """

    exponent: Callable[[Fraction], Fraction]
    increase: Callable[[Floats, Floats], Floats]
    body: int
    lefts: Floats
    widths: Floats
    rest: tuple[Box, ...]
    ends: Words
    far: Box
    columns: Floats


def _build(
    exponent: Callable[[Fraction], Fraction],
    increase: Callable[[Floats, Floats], Floats],
    total: Fraction,
    far: Fraction,
    far_width: Fraction,
) -> Boxes:
    """Build the boxes that cover the graph of a density.

    Args:
        exponent: a.
        increase: see :class:`Boxes`.
        total: the area of all boxes.
        far: where the boxes to infinity begin, a whole number.
        far_width: their width: a rises by at least log 2 over it, from there on.
    """
    area, one, parts = total / SHARES, 2**DIGITS, 2**64
    graph = [bounds(exponent(x), DIGITS) for x in (far, far + far_width)]
    edges = [Fraction(0)]
    while (right := _right(exponent, edges[-1], area)) is not None:
        edges.append(right)
    body = len(edges) - 1
    while edges[-1] < far:
        edges.append(min(Fraction(math.floor(edges[-1] * 8) + 1, 8), far))
    unit = (SHARES - body) * area / parts
    rest, ends, place = [], [], 0
    for i, (left, right) in enumerate(itertools.pairwise(edges)):
        width, top = right - left, Fraction(bounds(exponent(left), DIGITS)[1], one)
        base = area / width if i < body else Fraction(0)
        count = math.ceil((top - base) * width / unit)
        place += count
        rest.append(Box(left, width, base, count * unit / width))
        ends.append(place)
    count = math.ceil(2 * far_width * Fraction(graph[0][1], one) / unit)
    ends.append(place + count)
    if 2 * graph[1][1] > graph[0][0] or ends[-1] >= parts:
        raise PrivcalcError("total, far: the boxes do not cover the graph")
    columns = [
        [float(b.left), float(b.width), float(b.base), float(b.height), bounds(exponent(b.left), DIGITS)[1] / one]
        for b in rest
    ]
    inner = np.zeros((2, SHARES))
    inner[:, :body] = [[float(x) for x in edges[:body]], [float(b.width) for b in rest[:body]]]
    return Boxes(
        exponent,
        increase,
        body,
        inner[0],
        inner[1] * 2.0**-PLACE,
        tuple(rest),
        np.array(ends, dtype=np.uint64),
        Box(far, far_width, Fraction(0), count * unit / (2 * far_width)),
        np.array(columns).T,
    )


def _right(exponent: Callable[[Fraction], Fraction], left: Fraction, area: Fraction) -> Fraction | None:
    """The right end of a box of this area under the graph, from ``left`` on.

    None where there is none, or it would be wide.
    """
    width, wanted = Fraction(0), float(area)
    for _ in range(60):
        height = math.exp(-float(exponent(left + width)))
        width = Fraction(math.ceil(wanted / height * (1 + 1e-9) * EDGES), EDGES)
        if width > Fraction(1, 2):
            return None
        if width * bounds(exponent(left + width), DIGITS)[0] >= area * 2**DIGITS:
            return left + width
    return None


@functools.cache
def normal() -> Boxes:
    """Return the boxes of the standard normal law: a = x²/2, and √(π/2) = 1.2533…"""
    return _build(
        lambda x: x * x / 2, lambda left, x: x * (left + 0.5 * x), Fraction(1290, 1024), Fraction(8), Fraction(1, 8)
    )


@functools.cache
def laplace() -> Boxes:
    """Return the boxes of the Laplace law of scale 1: a = x."""
    return _build(lambda x: x, lambda _, x: x, Fraction(1030, 1024), Fraction(24), Fraction(1))


def steps(bits: Bits, boxes: Boxes, size: int, scale: float) -> Whole:
    """``size`` independent numbers round(scale·X), drawn exactly.

    Args:
        bits: the source.
        boxes: :func:`normal` or :func:`laplace`.
        size: how many.
        scale: > 0, at most 2⁵⁴; exact as it is given.
    """
    drawn = np.empty(size, dtype=np.int64)
    for start in range(0, size, BLOCK):
        _fill(bits, boxes, scale, drawn[start : start + BLOCK])
    return drawn


def _fill(bits: Bits, boxes: Boxes, scale: float, found: Whole) -> None:
    found[:], again = _once(bits, boxes, scale, found.size)
    while again.size:
        new, rejected = _once(bits, boxes, scale, again.size)
        found[again] = new
        again = again[rejected]


def _once(bits: Bits, boxes: Boxes, scale: float, size: int) -> tuple[Whole, Whole]:
    """A point of the covering each, rounded, and which lie above the graph."""
    words = bits.words(size)
    share = (words >> np.uint64(64 - INDEX)).view(np.int64)
    place = (words & np.uint64(2**PLACE - 1)).astype(np.float64)
    rounded, doubtful = _rounded(boxes.lefts[share], boxes.widths[share] * place, scale)
    outer = np.flatnonzero(share >= boxes.body)
    for i in np.flatnonzero(doubtful):
        if share[i] < boxes.body:
            rounded[i] = _exactly(scale, boxes.rest[share[i]], _place(bits, words[i]))
    rejected = np.zeros(0, dtype=np.int64)
    if outer.size:
        rounded[outer], under = _outside(bits, boxes, scale, words[outer])
        rejected = outer[~under]
    sign = -((words >> np.uint64(PLACE)) & np.uint64(1)).view(np.int64)
    return (rounded ^ sign) - sign, rejected


def _rounded(left: Floats, inside: Floats, scale: float) -> tuple[Whole, NDArray[np.bool_]]:
    """The nearest whole numbers to scale·(left + inside), and which are in doubt.

    That is known to a unit of its last place.
    """
    place = left + inside
    place *= scale
    whole = np.rint(place)
    place -= whole
    np.abs(place, out=place)
    place += whole * 2.0**-51
    return whole.astype(np.int64), place > 0.5 - (scale + 1) * 2.0**-51


def _outside(bits: Bits, boxes: Boxes, scale: float, words: Words) -> tuple[Whole, NDArray[np.bool_]]:
    """Points of the other region."""
    chosen = np.searchsorted(boxes.ends, bits.words(words.size), side="right")
    heights = bits.words(words.size)
    near = np.minimum(chosen, len(boxes.rest) - 1)
    left, width, base, height, graph = boxes.columns[:, near]
    inside = width * ((words & np.uint64(2**PLACE - 1)).astype(np.float64) * 2.0**-PLACE)
    rounded, doubtful = _rounded(left, inside, scale)
    value, shift = decay(boxes.increase(left, inside))
    above = base + height * (heights.astype(np.float64) * 2.0**-64) - graph * np.ldexp(value, -shift)
    under = above < 0
    doubtful |= np.abs(above) <= DOUBT * graph
    under &= chosen < len(boxes.ends)  # the rest of the region holds no box
    doubtful &= chosen < len(boxes.rest)
    doubtful |= chosen == len(boxes.rest)  # to infinity
    for i in np.flatnonzero(doubtful):
        box = boxes.rest[near[i]] if chosen[i] < len(boxes.rest) else _to_infinity(bits, boxes.far)
        place = _place(bits, words[i])
        under[i] = _under(boxes.exponent, box, place, Uniform(bits, int(heights[i]), 64))
        if under[i]:
            rounded[i] = _exactly(scale, box, place)
    return rounded, under


def _place(bits: Bits, word: np.uint64) -> Uniform:
    return Uniform(bits, int(word) & (2**PLACE - 1), PLACE)


def _to_infinity(bits: Bits, far: Box) -> Box:
    """The i-th with probability 2^-(i+1), as their areas are."""
    i, word = 0, 0
    while True:
        word = int(bits.words(1)[0])
        if word:
            i += 64 - word.bit_length()
            return Box(far.left + i * far.width, far.width, far.base, far.height / 2**i)
        i += 64


def _under(exponent: Callable[[Fraction], Fraction], box: Box, place: Uniform, height: Uniform) -> bool:
    """Whether a point of a box is under the graph, with as many bits of it as are needed."""
    digits = 64
    while True:
        digits += 64
        low, high = (Fraction(box.base + box.height * y) * 2**digits for y in (height.low, height.high))
        if high <= bounds(exponent(box.left + box.width * place.high), digits)[0]:
            return True
        if low >= bounds(exponent(box.left + box.width * place.low), digits)[1]:
            return False
        place.refine()
        height.refine()


def _exactly(scale: float, box: Box, place: Uniform) -> int:
    """The nearest whole number to ``scale`` times a point of a box, with as many bits of it as are needed."""
    t = Fraction(scale)
    while True:
        low, high = (math.floor(t * (box.left + box.width * x) + Fraction(1, 2)) for x in (place.low, place.high))
        if low == high:
            return min(low, LARGEST)
        place.refine()
