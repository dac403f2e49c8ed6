"""The prover by itself: python-flint and the standard library; descriptions that it does not know are no proof."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import deltas, mechanisms, relations

import privcalc as pc
from privcalc.composition.curve import Curve
from privcalc.rigorous.correlated import bins, shift, turns
from privcalc.rigorous.description import Described, RefusedError, UnprovableError, read
from privcalc.rigorous.proof import Prover
from privcalc.serial import mechanism_to_json, run_to_json
from privcalc.strategies import BallsInBins, CyclicPoisson, FixedOrder, MinSeparation, SquareRoot, Toeplitz, sensitivity

ROOM = Path(pc.__file__).parent / "rigorous"

ALONE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        first = name.partition(".")[0]
        if first not in sys.stdlib_module_names | {"flint", "privcalc"}:
            raise ImportError("BLOCKED " + name)

sys.meta_path.insert(0, Refuse())
from privcalc.rigorous.__main__ import main
code = main(sys.argv[1])
assert not [name for name in sys.modules if name.startswith("privcalc.") and not name.startswith("privcalc.rigorous")]
sys.exit(code)
"""


def test_it_runs_alone(tmp_path: Path) -> None:
    """Copied to where nothing else of the library is, and anything but python-flint refused."""
    shutil.copytree(ROOM, tmp_path / "privcalc" / "rigorous", ignore=shutil.ignore_patterns("__pycache__"))
    certificate = pc.certify(pc.PoissonSampled(pc.Gaussian(1.0), 0.02) * 30, delta=1e-5)
    certificate.save(tmp_path / "run.json")
    document = json.loads((tmp_path / "run.json").read_text())

    def alone() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", ALONE, "run.json"], cwd=tmp_path, env={}, capture_output=True, text=True, check=False
        )

    done = alone()
    assert done.returncode == 0, done.stderr
    assert [line.rpartition(": ")[2] for line in done.stdout.splitlines()] == ["proved"] * 7
    document["guarantee"]["epsilon"]["upper"] *= 0.999
    (tmp_path / "run.json").write_text(json.dumps(document))
    assert alone().returncode == 1
    document["run"][0]["mechanism"]["more"] = 1
    (tmp_path / "run.json").write_text(json.dumps(document))
    assert alone().returncode == 3


GOOD = {"kind": "Gaussian", "noise_multiplier": 2.0}


@pytest.mark.parametrize(
    "mechanism",
    [
        {"kind": "Gauss", "noise_multiplier": 2.0},
        {"kind": "Gaussian"},
        {**GOOD, "clipped": True},
        *(
            {**GOOD, "noise_multiplier": z}
            for z in (0, -1.0, "2", True, None, float("inf"), float("nan"), 1e300, 1e-300)
        ),
        *({"kind": "PoissonSampled", "mechanism": GOOD, "rate": q} for q in (0, 1.5, -0.1, "0.1")),
        {
            "kind": "PoissonSampled",
            "mechanism": {"kind": "PoissonSampled", "mechanism": GOOD, "rate": 0.5},
            "rate": 0.5,
        },
        {"kind": "PoissonSampled", "mechanism": [GOOD], "rate": 0.5},
        {"kind": "DiscreteGaussian", "noise_multiplier": 1.0, "sensitivity": 1.5},
        {"kind": "DiscreteGaussian", "noise_multiplier": 1.0, "sensitivity": 1, "norm": 3},
        {
            "kind": "CustomMechanism",
            "with_record": [0.5, 0.5],
            "without_record": [0.5, 0.4],
            "relation": "add-or-remove-one",
        },
        {"kind": "RDP", "orders": [1.0], "epsilons": [1.0], "relation": "add-or-remove-one"},
        {"kind": "MinSeparation", "separation": 3, "most": None},
        {"kind": "Parallel", "parts": []},
        None,
        [],
    ],
    ids=str,
)
def test_what_is_not_known_is_no_proof(mechanism: object) -> None:
    found = Prover([{"mechanism": mechanism, "count": 1}], "add-or-remove-one").decide(600.0, 0.5)
    assert found.verdict == "undecided"
    assert (found.low, found.high) == (0.0, 1.0)


@pytest.mark.parametrize(
    "run",
    [None, {}, [1], [{"mechanism": GOOD}], [{"mechanism": GOOD, "count": 0}], [{"mechanism": GOOD, "count": 1.0}]],
)
def test_runs_that_are_none(run: object) -> None:
    with pytest.raises(UnprovableError):
        read(run)
    assert Prover(run, "zero-out").decide(600.0, 0.5).verdict == "undecided"


def test_questions_that_are_none() -> None:
    with pytest.raises(RefusedError, match="relation"):
        Prover([], "add")
    for epsilon, delta in ((-1.0, 0.5), (float("inf"), 0.5), (float("nan"), 0.5), (1.0, 1.0), (1.0, float("nan"))):
        with pytest.raises(RefusedError):
            Prover([], "zero-out").decide(epsilon, delta)


@given(mechanism=mechanisms, count=st.integers(1, 3), relation=relations, delta=deltas)
def test_descriptions_agree_with_pairs(
    mechanism: pc.Mechanism, count: int, relation: pc.Relation, delta: float
) -> None:
    """Bounds of δ overlap the engine's: from above no less than what occurs, from below no more than what dominates."""
    run = mechanism * count
    try:
        sides = run._sides(relation)
    except pc.PrivcalcError:
        return
    if count > 1 and isinstance(mechanism, pc.UserSampled):
        return  # slow
    prover = Prover(run_to_json(run), str(relation))
    for epsilon in (0.125, 1.5):
        low = max(Curve(side).delta(epsilon, quick=True).lower for side in sides.lower)
        high = max(Curve(side).delta(epsilon, quick=True).upper for side in sides.upper)
        try:
            found = prover.decide(epsilon, min(delta, 0.1), _briefly())
        except RefusedError as error:
            pytest.fail(f"{run} under {relation}: {error}")
        assert found.low <= high * (1 + 1e-9)
        assert found.high >= low * (1 - 1e-9)


def _briefly(calls: int = 60):  # type: ignore[no-untyped-def]
    """Ends what asks for long."""
    left = [calls]

    def progress(_: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise UnprovableError("long")

    return progress


SKEW = pc.CustomMechanism.from_probabilities([0.5, 0.25, 0.25], [0.25, 0.5, 0.25])
NEW = [
    (pc.PermuteAndFlip(1.0) * 4, pc.ADD_OR_REMOVE_ONE),
    (pc.NoisyMax(0.5, noise="gumbel", monotone=False).run, pc.REPLACE_ONE),
    (pc.NoisyMax(0.5, noise="laplace") * 3, pc.ZERO_OUT),
    (pc.AboveThreshold(threshold_scale=2.0, query_scale=4.0, answers=2, monotone=True) * 5, pc.ADD_OR_REMOVE_ONE),
    (pc.AboveThreshold(threshold_scale=2.0, query_scale=4.0) * 5, pc.ZERO_OUT),
    (pc.FixedSizeSampled(pc.Gaussian(2.0), 3, 30) * 40, pc.ADD_OR_REMOVE_ONE),
    (pc.FixedSizeSampled(pc.RandomizedResponse(1.0), 3, 30) * 10, pc.ADD_OR_REMOVE_ONE),
    (pc.FixedSizeSampled(pc.Laplace(2.0), 30, 30) * 2, pc.ZERO_OUT),
    (pc.TruncatedPoissonSampled(pc.Gaussian(2.0), 0.01, 60, 1000) * 100, pc.ADD_OR_REMOVE_ONE),
    (pc.TruncatedPoissonSampled(pc.Gaussian(2.0), 0.01, 60, 1000) * 100, pc.REPLACE_ONE),
    (pc.WithReplacementSampled(pc.Gaussian(4.0), 3, 30) * 10, pc.ADD_OR_REMOVE_ONE),
    (pc.ShuffledEpoch(pc.Gaussian(2.0)) * 3, pc.ZERO_OUT),
    (pc.ShuffledEpoch(pc.Laplace(2.0)) * 3, pc.REPLACE_ONE),
    (pc.Parallel([pc.Gaussian(2.0), pc.Gaussian(3.0)]) * 3, pc.ADD_OR_REMOVE_ONE),
    (pc.CustomMechanism.from_probabilities([0.5, 0.25, 0.25], [0.25, 0.5, 0.25]) * 4, pc.ADD_OR_REMOVE_ONE),
    (
        pc.PoissonSampled(pc.CustomMechanism.from_probabilities([0.5, 0.25, 0.25], [0.25, 0.5, 0.25]), 0.1) * 4,
        pc.ADD_OR_REMOVE_ONE,
    ),
    (pc.CorrelatedGaussian(4.0, SquareRoot(20), MinSeparation(5, most=3)) * 2, pc.REPLACE_ONE),
    (pc.CorrelatedGaussian(4.0, Toeplitz([1, -0.5], 20), FixedOrder(5)).run, pc.ADD_OR_REMOVE_ONE),
    (pc.CorrelatedGaussian(4.0, Toeplitz([1, 0.5], 40), CyclicPoisson(4, 0.1)).run, pc.ADD_OR_REMOVE_ONE),
    (pc.CorrelatedGaussian(4.0, Toeplitz([1, 0.5], 40), BallsInBins(10)).run, pc.ZERO_OUT),
]


@pytest.mark.parametrize("case", range(len(NEW)), ids=lambda i: f"{i} {type(NEW[i][0].entries[0][0]).__name__}")
def test_the_engines_upper_end_is_proved(case: int) -> None:
    """Of the same pairs, restated: what the engine says is proved, and half of what it says is δ at least is not."""
    run, relation = NEW[case]
    found = run.epsilon(delta=1e-5, relation=relation)
    proof = pc.prove(run, epsilon=found.upper * (1 + 1e-9), delta=1e-5, relation=relation)
    assert proof.verdict == "proved", str(proof)
    low = run.delta(epsilon=0.5 * found.lower, relation=relation).lower
    assert not pc.prove(run, epsilon=0.5 * found.lower, delta=0.5 * low, relation=relation)


def described(value: object) -> Described:
    mechanism = {"kind": "CorrelatedGaussian", "noise_multiplier": 1.0, **value}  # type: ignore[dict-item]
    return read([{"mechanism": mechanism, "count": 1}])[0][0]


@pytest.mark.parametrize(
    "strategy", [SquareRoot(30), SquareRoot(30, 7), Toeplitz([1.0, 0.75, 0.5], 30), Toeplitz([1.0, -2.0], 30)]
)
@pytest.mark.parametrize("taking", [MinSeparation(4), MinSeparation(4, most=2), MinSeparation(30), FixedOrder(7)])
def test_sensitivities_in_balls(strategy: object, taking: object) -> None:
    """Those of the engine, which are compared with enumerations."""
    one = described(mechanism_to_json(pc.CorrelatedGaussian(1.0, strategy, taking)) | {"kind": "CorrelatedGaussian"})
    low, high = sensitivity(strategy, taking)
    for way in (True, False):
        found = float(shift(one.fields["strategy"], one.fields["participation"], low=way)) ** 0.5
        assert low * (1 - 1e-12) <= found <= high * (1 + 1e-12)


def test_turns_and_bins_in_balls() -> None:
    """Columns (1, ½) of norm √1.25, of which the last one is cut."""
    for taking, of in ((CyclicPoisson(4, 0.5), turns), (BallsInBins(4), bins)):
        one = described(mechanism_to_json(pc.CorrelatedGaussian(1.0, Toeplitz([1.0, 0.5], 9), taking)))
        parts = one.fields["strategy"], one.fields["participation"]
        if of is turns:
            assert [(round(float(norm), 12), uses) for norm, uses in turns(*parts, low=False)] == [
                (1.118033988750, 2),
                (1.0, 1),
            ]
        else:
            assert bins(*parts, low=False) == (3.5, 2)
            assert bins(*parts, low=True) == (2.5, 4)
