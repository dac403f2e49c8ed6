"""A bound that is printed stays a bound."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import privcalc as pc
from privcalc.enclosure import downward, upward

VALUES = st.floats(allow_nan=False)
SPECS = st.sampled_from(
    [
        "f",
        "g",
        "e",
        ".0f",
        ".2f",
        ".9f",
        ".3g",
        ".12g",
        ".17g",
        ".0e",
        ".6e",
        ">14.9g",
        "+.3f",
        "010.2f",
        ".1%",
        ".4",
        "",
    ]
)


def read(text: str) -> float:
    """What the text says, as a reader's double."""
    number = Decimal(text.strip().rstrip("%"))
    return float(number / 100 if "%" in text else number)


@given(value=VALUES, spec=SPECS)
@example(value=5.765832532622461, spec=".12g")
@example(value=9.9999999, spec=".3g")
@example(value=5e-324, spec=".3g")
@example(value=1.7976931348623157e308, spec=".3g")
def test_texts_err_on_their_side_by_less_than_a_unit(value: float, spec: str) -> None:
    up, down, near = upward(value, spec), downward(value, spec), format(value, spec)
    assert read(down) <= value <= read(up)
    assert (
        near in (up, down) or read(near) == math.inf
    )  # one of them is the nearest: neither is off by more than a unit
    if read(near) == value:
        assert up == down == near


@pytest.mark.parametrize("spec", ["d", "x", ".3s", "nonsense", ".2n"])
def test_other_formats_are_refused(spec: str) -> None:
    with pytest.raises(ValueError, match="format"):
        upward(1.5, spec)


POSITIVE = st.floats(min_value=1e-300, max_value=1e300)


@given(end=POSITIVE, width=st.floats(min_value=0, max_value=3), spec=SPECS, safe=st.sampled_from(["lower", "upper"]))
@example(end=0.9999999999999999, width=2e-16, spec=".2f", safe="upper")
def test_answers_are_printed_on_their_safe_side(end: float, width: float, spec: str, safe: str) -> None:
    """Never beyond the other proved end, nor on the wrong side of the safe one by more than the noise of doubles."""
    low, high = sorted((end, end * (1 + width)))
    answer = pc.Enclosure(low, high, pc.ADD_OR_REMOVE_ONE, "test", "upper" if safe == "upper" else "lower")
    texts = [format(answer, spec)] if spec else []
    texts += [answer.stated("x").split()[2]]
    if not str(answer).startswith("["):
        texts.append(str(answer))
    for text in texts:
        if safe == "upper":
            assert low <= read(text) >= high * (1 - 1e-14)
        else:
            assert high >= read(text) <= low * (1 + 1e-14)
    if str(answer).startswith("["):
        assert width > 1e-7
        one, two = (read(part) for part in str(answer)[1:-1].split(","))
        assert one <= low <= high <= two


def test_what_was_printed_below_its_proved_lower_end() -> None:
    epsilon = pc.Gaussian(0.7898305084745763).epsilon(delta=1e-5)
    assert float(str(epsilon)) >= epsilon.upper
    assert float(f"{epsilon:.3f}") >= epsilon.upper
    guarantee = pc.Guarantee(epsilon=epsilon, delta=1.23456789e-5)
    assert [float(part) for part in str(guarantee)[1 : str(guarantee).index(")")].split(", ")] >= [
        epsilon.upper,
        1.23456789e-5,
    ]


def test_short_numbers_stay_short() -> None:
    """Where only the rounding of doubles keeps both ends from them."""
    assert f"{(pc.PureDP(0.1) * 100).epsilon(delta=0.0)} {pc.PureDP(0.1).epsilon(delta=0.0):.2f}" == "10 0.10"
    assert str(pc.Guarantee(epsilon=3.0, delta=1e-5)) == "(3, 1e-05)-DP under add-or-remove-one"


def test_a_claim_begins_with_its_safe_end() -> None:
    wide = pc.Enclosure(1.935791, 1.994139, pc.ADD_OR_REMOVE_ONE, "fallback")
    assert wide.stated("ε") == "ε ≤ 1.99414 (the true value is at least 1.93579)"
    open_end = pc.Enclosure(0.5, math.inf, pc.ADD_OR_REMOVE_ONE, "fallback")
    assert open_end.stated("ε") == "ε ≤ inf (the true value is at least 0.5)"
    assert (
        pc.Enclosure(0.25, 0.5, pc.ADD_OR_REMOVE_ONE, "x", "lower").stated("β")
        == "β ≥ 0.25 (the true value is at most 0.5)"
    )
