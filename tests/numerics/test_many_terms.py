"""The error budget of many contours (proofs/engine.md, §8), term by term, as test_engine.py has that of one.

For every term: a question at which it dominates and the enclosure still holds, and the same with the term set to zero,
in which it does not.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from reference import steps as reference

from privcalc.numerics.floats import QUIET, UNIT, Floats
from privcalc.numerics.routes import lines, many
from privcalc.numerics.routes.rules import Rows, Rule, log_ratio, rules
from privcalc.numerics.special import log_normal_tail

HALF = lines.NEAR.size // 2
"""The place of c among the points by which aliasing is bounded."""


def one(x: float) -> Floats:
    return np.array([x])


def rule_of(noise: float, rate: float, count: int, log_delta: float = -150.0, *, add: bool = False) -> Rule:
    """A rule that is cut for some log δ."""
    return rules(Rows(one(1 / noise), one(rate), one(float(count)), one(log_delta), add), one(60.0))[0][1]


def line_of(rule: Rule, c: float, period: float, end: float) -> lines.Lines:
    """A contour with chosen c, period and end, beyond which nothing is counted."""
    step, near = 2 * math.pi / period, one(c)[:, None] * lines.NEAR
    size = 8 * math.ceil((end / step + 1) / 8)
    return lines.assemble(rule, one(c), one(step), size, one(0.0), near, rule.real(near))


def bounds(line: lines.Lines, epsilon: float) -> tuple[float, float]:
    low, high = line.bounds(one(epsilon))
    return float(low[0]), float(high[0])


def truth_of(noise: float, rate: float, count: int, epsilon: float) -> float:
    return float(reference.sampled_gaussian_delta(noise, rate, count, epsilon, "remove"))


def blind(line: lines.Lines, part: slice) -> lines.Lines:
    """Without the alias that some points bound."""
    near_k = line.near_k.copy()
    near_k[:, part] = -1e4
    return dataclasses.replace(line, near_k=near_k)


RUN = (2.0, 0.05, 400)


@pytest.mark.parametrize(("c", "period", "left"), [(3.0, 2.6, True), (7.0, 2.6, False)])
@QUIET
def test_aliases(c: float, period: float, left: bool) -> None:
    epsilon = 1.6
    truth = truth_of(*RUN, epsilon)
    line = line_of(rule_of(*RUN), c, period, 60.0)
    low, high = bounds(line, epsilon)
    assert low <= truth <= high
    assert high - low > 1e-4 * truth
    this, other = (slice(0, HALF), slice(HALF + 1, None)) if left else (slice(HALF + 1, None), slice(0, HALF))
    assert bounds(blind(line, this), epsilon)[0] > truth
    assert bounds(blind(line, other), epsilon)[0] <= truth


@QUIET
def test_lost() -> None:
    """The cut leaves out an event about as likely as δ: the upper end needs it, and its part under the shifted law."""
    run, epsilon = (1.0, 0.001, 1000), 1.2
    truth = truth_of(*run, epsilon)
    rule = rule_of(*run, math.log(truth) + 52)
    line = dataclasses.replace(
        line_of(rule, 9.0, 15.0, 120.0), slack=np.zeros((1, 1))
    )  # without the edge, which is large
    cut = float(rule.points[0, np.isfinite(rule.weight[0])].max() + 0.5 * rule.step[0])
    usual = 1000 * 0.999 * math.exp(float(log_normal_tail(one(cut))[0]))
    shifted = 1000 * 0.001 * math.exp(float(log_normal_tail(one(cut - 1))[0]))
    assert float(rule.lost[0]) == pytest.approx(usual + shifted)
    assert truth <= bounds(line, epsilon)[1]
    for lost in (0.0, usual):
        assert bounds(dataclasses.replace(line, lost=one(lost)), epsilon)[1] < truth


@QUIET
def test_missed() -> None:
    """A rule of far too long a step: what it misses of M is felt, and is bounded."""
    epsilon = 1.6
    truth, rule = truth_of(*RUN, epsilon), rule_of(*RUN)
    step = 2.5 * rule.step
    points = np.arange(rule.points[0].min(), rule.points[0].max() + 1, step[0])[None]
    ratio = log_ratio(rule.rows, points)
    coarse = dataclasses.replace(
        rule,
        step=step,
        points=points,
        weight=np.log(step / math.sqrt(2 * math.pi))[:, None] - 0.5 * points**2,
        ratio=ratio,
        size=np.abs(ratio) + 1,
        missing=2 * np.exp(2 * rule.line**2) / np.expm1(2 * math.pi * rule.line / step),
        log_edge=one(-math.inf),
    )
    low, high = bounds(line_of(coarse, 5.0, 12.0, 60.0), epsilon)
    assert low <= truth <= high
    assert high - low > 1e-3 * truth
    low, high = bounds(line_of(dataclasses.replace(coarse, missing=one(0.0)), 5.0, 12.0, 60.0), epsilon)
    assert not low <= truth <= high


@QUIET
def test_rounding_of_the_power() -> None:
    """A billion steps: M's rounding, a billion times, is most of the width, and cannot be left out."""
    outside = 0
    for epsilon in (0.12, 0.14):
        truth = reference.sampled_gaussian_delta(100.0, 1e-4, 10**9, epsilon, "remove")
        asked = many.Asked(Rows(one(0.01), one(1e-4), one(1e9), one(-24.0)), one(epsilon), one(0.01))
        ((_, line, _),) = asked.laid(np.array([0]), one(epsilon), free=True)
        low, high = bounds(line, epsilon)
        assert low <= truth <= high
        assert high - low < 1e-6 * float(truth)
        rest = UNIT * (4 * np.abs(line.phase) + 8 * np.abs(line.k[:, None]) + line.nodes.shape[1] + 66)
        low, high = bounds(dataclasses.replace(line, slack=rest), epsilon)
        outside += not low <= truth <= high
    assert outside
