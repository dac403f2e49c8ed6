"""Normal and Laplace numbers on a grid: the covering, the law, and points that doubles cannot tell apart."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from cases import SLOW, quick
from mpmath import mp, mpf
from scipy import stats

from privcalc.noise.bits import Bits, SecureBits, SeededBits
from privcalc.noise.continuous import INDEX, PLACE, SHARES, Box, _outside, laplace, normal, steps

ALARM = 1e-6 / 40
"""Each statistical test fails by chance with this probability: all of them together with less than 1e-6."""

LAWS = {"normal": normal, "laplace": laplace}


def ratio(x):
    return mpf(x.numerator) / x.denominator


def graph(name, x):
    x = ratio(x)
    return mp.exp(-x * x / 2) if name == "normal" else mp.exp(-x)


def area(name, low, high):
    """Under the graph, from 0 on."""
    low, high = ratio(low), ratio(high)
    if name == "normal":
        return mp.sqrt(mp.pi / 2) * (mp.erfc(low / mp.sqrt(2)) - mp.erfc(high / mp.sqrt(2)))
    return mp.exp(-low) - mp.exp(-high)


def upper(name, x):
    """P(X > x)."""
    return mp.erfc(mpf(x) / mp.sqrt(2)) / 2 if name == "normal" else mp.exp(-mpf(x)) / 2


class Words(Bits):
    """Given words, and random ones after them."""

    def __init__(self, *words):
        self._words, self._rest = list(words), SeededBits(3)

    def words(self, size):
        found = [self._words.pop(0) if self._words else int(self._rest.words(1)[0]) for _ in range(size)]
        return np.array(found, dtype=np.uint64)


def word(share, negative, place):
    return share << (64 - INDEX) | negative << PLACE | place


# --- the covering ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAWS)
def test_the_boxes_cover_the_graph_and_no_two_overlap(name):
    boxes = LAWS[name]()
    total = boxes.rest[0].base * boxes.rest[0].width * SHARES
    with mp.workdps(50):
        end = Fraction(0)
        for i, box in enumerate(boxes.rest):
            left, right = (graph(name, x) for x in (box.left, box.left + box.width))
            assert box.left == end, "side by side"
            end = box.left + box.width
            assert ratio(box.base) <= right, "a body box lies under the graph"
            assert box.base * box.width == (total / SHARES if i < boxes.body else 0), "body boxes are equal"
            top = box.base + box.height
            assert left <= ratio(top), "what is above it is covered"
        far = boxes.far
        assert far.left == end
        assert graph(name, far.left) <= ratio(far.height)
        for i in range(0, 4000, 7):  # a falls by more than log 2 from each to the next
            left, right = (graph(name, far.left + j * far.width) for j in (i, i + 1))
            assert 2 * right <= left
    region = (SHARES - boxes.body) * total / SHARES
    ends = [0, *map(int, boxes.ends)]
    areas = [box.width * box.height for box in boxes.rest] + [2 * far.width * far.height]
    assert [region * (b - a) / 2**64 for a, b in itertools.pairwise(ends)] == areas
    assert ends[-1] < 2**64
    assert boxes.body / SHARES > 0.98
    assert float(sum(areas)) + float(total) * boxes.body / SHARES < 1.02 * float(
        area(name, Fraction(0), Fraction(1000))
    )


@pytest.mark.parametrize("name", LAWS)
def test_doubles_of_the_covering(name):
    boxes = LAWS[name]()
    for i, box in enumerate(boxes.rest):
        left, width, base, height, top = boxes.columns[:, i]
        assert (Fraction(left), Fraction(width)) == (box.left, box.width)
        for double, exact in ((base, box.base), (height, box.height)):
            assert abs(Fraction(double) - exact) <= exact / 2**53
        assert abs(top - float(graph(name, box.left))) <= 2.0**-51 * top
        assert boxes.increase(np.array(left), np.array(width)) <= 2
        if i < boxes.body:
            assert (boxes.lefts[i], boxes.widths[i] * 2**PLACE) == (left, width)


# --- the law --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("scale", [0.3, 1.0, 2.7, 40.1])
@pytest.mark.parametrize("bits", [SeededBits(5), SecureBits()], ids=["seeded", "secure"])
def test_the_law_on_a_coarse_grid(name, scale, bits):
    """P(k) = F((k + ½)/t) − F((k − ½)/t)."""
    size, reach = 300_000, math.ceil(scale * 4)
    found = steps(bits, LAWS[name](), size, scale)
    ends = [(k + 0.5) / scale for k in range(reach)]
    above = np.array([float(upper(name, x)) for x in ends])
    side = np.append(above[:-1] - above[1:], above[-1])  # 1, …, reach − 1, and beyond
    expected = size * np.concatenate([side[::-1], [1 - 2 * above[0]], side])
    observed = np.bincount(np.clip(found, -reach, reach) + reach, minlength=2 * reach + 1)
    assert stats.chisquare(observed, expected).pvalue > ALARM


# --- what doubles cannot tell ---------------------------------------------------------------------


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("scale", [0.3, 1e3 + 1 / 3, 1.9 * 2.0**36, 1.9 * 2.0**50])
def test_points_next_to_a_half(name, scale):
    """Places whose known bits stop just before a boundary, or on it: the bits after them decide, and they alone."""
    boxes, rng, t = LAWS[name](), np.random.default_rng(1), Fraction(scale)
    seen = set()
    for _ in range(300 if SLOW else 30):
        half = math.floor(t * Fraction(rng.uniform(0, 3))) + Fraction(1, 2)
        share = next(i for i, box in enumerate(boxes.rest) if (box.left + box.width) * t > half)
        if share >= boxes.body:
            continue
        box = boxes.rest[share]
        place = math.floor((half / t - box.left) / box.width * 2**PLACE) + int(rng.integers(-2, 3))
        if not 0 <= place < 2**PLACE:
            continue
        exact = (half / t - box.left) / box.width  # the boundary, between 0 and 1
        more = math.floor((exact * 2**PLACE - place) * 2**128)  # its next bits, if it is in this place
        for after in {0, 2**128 - 1, more - 1, more, more + 1}:
            if not 0 <= after < 2**128:
                continue
            negative = int(rng.integers(2))
            source = Words(word(share, negative, place), after >> 64, after & (2**64 - 1))
            found = int(steps(source, boxes, 1, scale)[0])
            low = t * (box.left + box.width * (place + Fraction(after, 2**128)) / 2**PLACE)
            high = low + t * box.width / 2 ** (PLACE + 128)
            right = {math.floor(low + Fraction(1, 2)), math.ceil(high + Fraction(1, 2)) - 1}
            assert found * (-1) ** negative in right
            seen.add(len(right))
    assert 1 in seen


@pytest.mark.parametrize("name", LAWS)
def test_points_next_to_the_graph(name):
    """A height just below the graph is taken, one just above is not: in thin boxes, beside them, and from 40 σ on."""
    boxes, rng, scale, seen = LAWS[name](), np.random.default_rng(2), 10**6, Counter()
    for chosen in [
        *rng.integers(0, len(boxes.rest), 60),
        *range(boxes.body, len(boxes.rest), 9),
        *[len(boxes.rest)] * 30,
    ]:
        box, to_infinity = (boxes.far, []) if chosen == len(boxes.rest) else (boxes.rest[chosen], [])
        if chosen == len(boxes.rest):
            i = int(rng.integers(300))
            box = Box(box.left + i * box.width, box.width, box.base, box.height / 2**i)
            to_infinity = [0] * (i // 64) + [1 << (63 - i % 64)]
        place = int(rng.integers(2**PLACE))
        x = box.left + box.width * Fraction(2 * place + 1, 2 ** (PLACE + 1))  # the place, and then a bit 1
        with mp.workdps(80):
            y = (graph(name, x) - ratio(box.base)) / ratio(box.height) * mpf(2) ** 128
            if not 2**20 < y < 2**128 - 2**20:
                continue
            y = int(mp.floor(y))
        for height in {0, y - 2**90, y - 2**20, y + 2**20, y + 2**90, 2**128 - 1} - {x for x in (y - 2**90,) if x < 0}:
            first, after = divmod(min(height, 2**128 - 1), 2**64)
            source = Words(word(SHARES - 1, 0, place), int(boxes.ends[chosen]) - 1, first, *to_infinity, 2**63, after)
            under = abs(int(steps(source, boxes, 1, scale)[0]) - scale * x) < 1
            assert under == (height < y), (chosen, height - y)
            seen[under] += 1
    assert min(seen.values()) > 100


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("scale", quick([0.05, 0.31, 100.3], 1))
def test_the_law_of_the_far_tail_by_importance_sampling(name, scale):
    """Boxes to 40 σ and beyond and heights like the graph's are forced: what is taken, its law of k, in 50 digits."""
    boxes, size, rng, t = LAWS[name](), 5000 if SLOW else 200, np.random.default_rng(9), Fraction(scale)
    first, far = int(boxes.ends[-2]), boxes.far
    for i in (0, 256):
        left, right = far.left + i * far.width, far.left + (i + 1) * far.width
        seen = Counter()
        with mp.workdps(50):  # heights are below the graph's at the left end: so much of all
            share = graph(name, left) / ratio(far.height) * mpf(2) ** i
            size_of = -(-(128 - int(mp.log(share, 2))) // 64) * 64
            top = int(share * mpf(2) ** size_of)
        for _ in range(size):
            place, *more = (int(x) for x in rng.integers(0, 2**64, 9, dtype=np.uint64))
            height = (more[1] << 64 | more[2]) * top >> 128
            heights = [height >> (size_of - 64 * (j + 1)) & (2**64 - 1) for j in range(size_of // 64)]
            later = [w for h in heights[1:] for w in (more[3], h)]  # a place's bits, and a height's, in turn
            coins = [0] * (i // 64) + [(2**63 | more[0]) >> i % 64]  # the first head is the i-th
            words = np.array([word(SHARES - 1, 0, place % 2**PLACE)], dtype=np.uint64)
            rounded, under = _outside(Words(first, heights[0], *coins, *later, *more[4:]), boxes, scale, words)
            seen[int(rounded[0]) if under[0] else None] += 1
        low, high = (math.floor(t * x + Fraction(1, 2)) for x in (left, right))
        edges = [left, *((k + Fraction(1, 2)) / t for k in range(low, high)), right]
        with mp.workdps(50):
            whole = ratio(far.width) * ratio(far.height) / mpf(2) ** (i + size_of) * top
            shares = {low + j: float(area(name, *pair) / whole) for j, pair in enumerate(itertools.pairwise(edges))}
        assert set(seen) <= {None, *shares}
        assert stats.binomtest(size - seen[None], size, sum(shares.values())).pvalue > ALARM / 100
        for k, share in shares.items():
            assert share <= 1
            assert stats.binomtest(seen[k], size, share).pvalue > ALARM / 100


def test_a_number_that_is_not_under_the_graph_is_drawn_again():
    """All of it: with what comes after."""
    boxes = normal()
    again = word(5, 1, 12345)
    beyond = Words(word(SHARES - 1, 0, 0), 2**64 - 1, 0, again)
    assert steps(beyond, boxes, 1, 1e9) == steps(Words(again), boxes, 1, 1e9)
