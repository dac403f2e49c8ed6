"""Wrong kinds of values, in every argument of the main calls: one clear error that names the argument, in one line."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import privcalc as pc
from privcalc import attacks, noise
from privcalc.noise import Noise

GAUSSIAN = pc.Gaussian(1.0)
SAMPLED = pc.PoissonSampled(GAUSSIAN, 0.1)

SAMPLED_CHOICE = pc.ExponentialMechanism(1.0, monotone=False)
TABLE = {"a": np.arange(6.0), "b": ["x", "y"] * 3, "p": [1, 1, 2, 2, 3, 3]}


def _ledger(**terms: Any) -> pc.Ledger:
    plan = (GAUSSIAN + SAMPLED + pc.Laplace(1.0) + SAMPLED_CHOICE + pc.ExponentialMechanism(1.0)) * 9
    return pc.Ledger(None, **{"plan": plan} | terms)


def _of(method: str) -> Callable[..., Any]:
    def call(**given: Any) -> Any:
        return getattr(_ledger(), method)(**given)

    return call


class Nothing:
    """An object of a kind that nobody takes."""


def _wrong() -> dict[str, Any]:
    """Values that no number, mechanism, text, list of numbers or array is."""
    pandas = pytest.importorskip("pandas")
    return {
        "an object": Nothing(),
        "a function": len,
        "a class": pc.Gaussian,
        "a mapping": {"a": 1},
        "a generator": (i for i in [1]),
        "a complex number": 1j,
        "a nested list": [[1, 2], [3]],
        "an array of no dimensions": np.array("x"),
        "a column": pandas.Series(["x", "y", "z"], name="c"),
        "a frame": pandas.DataFrame({"a": ["x"], "b": [2]}),
        "a time": pandas.Timestamp("2020"),
        "an answer": None,  # made below, as it is slow
    }


PERSON = {"person": "p", "rows_per_person": 2}
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any], set[str]]] = {
    "Gaussian": (pc.Gaussian, {"noise_multiplier": 1.0}, set()),
    "DiscreteGaussian": (pc.DiscreteGaussian, {"noise_multiplier": 1.0, "sensitivity": 1}, set()),
    "ExponentialMechanism": (pc.ExponentialMechanism, {"epsilon": 1.0, "monotone": True}, set()),
    "TopK": (pc.TopK, {"epsilon": 1.0, "k": 2}, set()),
    "RandomizedResponse": (pc.RandomizedResponse, {"epsilon": 1.0, "categories": 3}, set()),
    "PoissonSampled": (pc.PoissonSampled, {"mechanism": GAUSSIAN, "rate": 0.1}, set()),
    "FixedSizeSampled": (pc.FixedSizeSampled, {"mechanism": GAUSSIAN, "batch_size": 2, "dataset_size": 9}, set()),
    "UserSampled": (pc.UserSampled, {"mechanism": GAUSSIAN, "rate": 0.1, "records": 2}, set()),
    "Parallel": (pc.Parallel, {"parts": [GAUSSIAN]}, set()),
    "RandomTrials": (
        pc.RandomTrials,
        {"run": GAUSSIAN, "mean": 2.0, "distribution": "geometric"},
        {"an answer to distribution"},
    ),
    "RDP": (pc.RDP, {"orders": [2.0], "epsilons": [1.0]}, set()),
    "Guarantee": (
        pc.Guarantee,
        {"epsilon": 1.0, "delta": 1e-5, "relation": pc.ADD_OR_REMOVE_ONE},
        {"an answer to epsilon"},
    ),
    "epsilon": ((GAUSSIAN * 2).epsilon, {"delta": 1e-5, "relation": pc.ADD_OR_REMOVE_ONE, "records": 1}, set()),
    "noise_multiplier": (pc.noise_multiplier, {"epsilon": 1.0, "delta": 1e-5, "sample_rate": 0.1, "steps": 3}, set()),
    "calibrate": (
        pc.calibrate,
        {
            "make": pc.Gaussian,
            "epsilon": 9.0,
            "delta": 1e-5,
            "bounds": (0.1, 9.0),
            "integer": False,
            "spent": pc.Gaussian(3.0),
        },
        {"a class to make", "a function to make"},
    ),
    "profile_table": (pc.profile_table, {"run": GAUSSIAN, "epsilons": [1.0]}, set()),
    "tradeoff_table": (pc.tradeoff_table, {"run": GAUSSIAN, "alphas": [0.1]}, set()),
    "discretize": (
        pc.discretize,
        {"run": GAUSSIAN, "spacing": 0.1, "tail": 1e-5, "direction": 0, "points": 200, "pessimistic": True},
        set(),
    ),
    "Ledger": (
        pc.Ledger,
        {"path": None, "plan": GAUSSIAN, "unit": "one", "reserve": 3, "seed": 1, "not_accounted": ["x"]},
        set(),
    ),
    "gaussian": (
        _of("gaussian"),
        {"values": np.ones(2), "mechanism": GAUSSIAN, "clip_norm": 1.0, "error": 0.1, "label": "x"},
        set(),
    ),
    "select": (
        _of("select"),
        {
            "scores": [1.0, 2.0],
            "mechanism": pc.ExponentialMechanism(1.0),
            "sensitivity": 1.0,
            "monotone": True,
            "joint": False,
        },
        set(),
    ),
    "poisson_batch": (_of("poisson_batch"), {"step": SAMPLED, "records": 3, "label": "x"}, set()),
    "batch_from_elsewhere": (_of("batch_from_elsewhere"), {"step": SAMPLED, "size": 3, "label": "x"}, set()),
    "record": (_of("record"), {"mechanism": GAUSSIAN, "count": 1, "label": "x"}, set()),
    "close": (_of("close"), {"stopping": "output-independent"}, set()),
    "sum": (
        _of("sum"),
        {"table": TABLE, "mechanism": GAUSSIAN, "column": "a", "lower": 0, "upper": 1, **PERSON},
        {"a mapping to table"},
    ),
    "certify": (pc.certify, {"source": GAUSSIAN, "delta": 1e-5, "unit": "x", "not_accounted": ["x"]}, set()),
    "load": (pc.Certificate.load, {"path": os.devnull}, set()),
    "Assumptions": (pc.Assumptions, {"steps": "public", "parts": "disjoint"}, set()),
    "RealisedLosses": (
        pc.RealisedLosses,
        {"records": 3, "noise_multiplier": 1.0, "rate": 0.5, "clip_norm": 1.0},
        set(),
    ),
    "update": (
        lambda **given: pc.RealisedLosses(3, 1.0).update(**given),
        {
            "norms": [1.0, 1.0, 0.0],
            "noise_multiplier": 1.0,
            "indices": [0, 1, 2],
            "rate": 0.5,
            "clip_norm": 1.0,
            "steps": 1,
        },
        set(),
    ),
    "IndividualFilter": (pc.IndividualFilter, {"records": 3, "mu": 1.0, "rate": 1.0}, set()),
    "plan_audit": (
        pc.plan_audit,
        {"public_norm_ratios": [0.1, 0.2], "share": 0.5, "epsilon": 1.0, "delta": 1e-5, "steps": 3, "rate": 1.0},
        set(),
    ),
    "from_scores": (
        attacks.from_scores,
        {"with_it": range(9), "without": range(9), "delta": 0.1, "confidence": 0.9, "seed": 0},
        set(),
    ),
    "from_counts": (
        attacks.from_counts,
        {"hits": 3, "trials": 10, "false_hits": 1, "false_trials": 10, "confidence": 0.9},
        set(),
    ),
    "one_run": (
        attacks.one_run,
        {"scores": range(10), "included": [True, False] * 5, "guesses": 4, "confidence": 0.9, "seed": 1},
        set(),
    ),
    "noise": (
        noise.gaussian,
        {"values": np.ones(3), "noise_multiplier": 1.0, "clip_norm": 1.0, "error": 0.1, "noise": Noise()},
        set(),
    ),
    "grid": (
        noise.Grid.of,
        {"noise_multiplier": 1.0, "clip_norm": 1.0, "coordinates": 3, "error": 0.1, "norm": 2},
        set(),
    ),
}
"""Calls, right arguments of each, and what is right though it is of a strange kind."""


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_kind_of_value_is_named_in_one_line(call: str) -> None:
    """2,000 wrong calls: each an error of ours that names the argument, or its own table's column."""
    function, right, legal = CALLS[call]
    for name in right:
        for kind, value in _wrong().items():
            if f"{kind} to {name}" in legal:
                continue
            wrong = GAUSSIAN.epsilon(delta=1e-5) if kind == "an answer" else value
            if kind == "an answer" and np.asarray(right[name]).dtype.kind in "iuf":
                continue  # an answer is a number
            with pytest.raises(pc.PrivcalcError) as caught:
                function(**right | {name: wrong})
            message = str(caught.value)
            assert name in message, (kind, message)
            assert "\n" not in message, (kind, message)
            assert len(message) < 1000, (kind, message)


@pytest.mark.parametrize(
    ("name", "value"),
    [("epsilon", "1"), ("epsilon", math.nan), ("epsilon", -1), ("delta", 1.0), ("delta", math.nan), ("delta", True)],
)
def test_a_guarantee_has_numbers(name: str, value: Any) -> None:
    """Before, everything was taken, and shown as promised."""
    with pytest.raises(pc.PrivcalcError, match=f"{name} = {value!r}: must be"):
        pc.Guarantee(**{"epsilon": 1.0, "delta": 1e-5} | {name: value})
    wrong: Any = "replace-one"
    with pytest.raises(pc.PrivcalcError, match="relation"):
        pc.Guarantee(epsilon=1.0, delta=1e-5, relation=wrong)
