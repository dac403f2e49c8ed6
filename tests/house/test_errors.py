"""Bad input raises one clear error that names the argument, and legal edge cases do not."""

from __future__ import annotations

import inspect
import math
import os
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import privcalc as pc
from privcalc import tables

NAN, INF = math.nan, math.inf
GAUSSIAN = pc.Gaussian(1.0)
SAMPLED = pc.PoissonSampled(GAUSSIAN, 0.1)
NOT_POSITIVE: list[Any] = [NAN, 0, 0.0, -0.0, -1.0, INF, -INF, "1", b"1", True, False, None, [1.0], 1j, 10**400]
NOT_A_RATE: list[Any] = [NAN, 0, -0.1, 1.0000001, 2, INF, "0.1", True, None]
NOT_A_DELTA: list[Any] = [NAN, -1e-300, -1, 1, 1.0, 1.5, INF, "1e-5", True, False, None]
NOT_A_COUNT: list[Any] = [1.0, 2.5, -1, NAN, INF, "3", True, False, None]
NOT_AN_EPSILON: list[Any] = [NAN, -1e-9, INF, "1", True, None]
NOT_A_RELATION: list[Any] = [None, "add-or-remove-one", 1, pc.Relation]


def fails(name: str, value: object, call: Callable[[], object], *, show: bool = True) -> None:
    """The call raises PrivcalcError, which names the argument and, usually, the value."""
    with pytest.raises(pc.PrivcalcError) as caught:
        call()
    message = str(caught.value)
    assert name in message
    assert "\n" not in message
    if show:
        assert repr(value) in message


def test_the_error_is_a_value_error() -> None:
    assert issubclass(pc.PrivcalcError, ValueError)


@pytest.mark.parametrize("value", NOT_POSITIVE, ids=lambda value: repr(value)[:12])
def test_noise(value: Any) -> None:
    fails("noise_multiplier", value, lambda: pc.Gaussian(noise_multiplier=value))
    fails("scale", value, lambda: pc.Laplace(scale=value))
    fails("sensitivity", value, lambda: pc.noise_std(epsilon=1.0, delta=1e-5, sensitivity=value))
    fails("noise_multiplier", value, lambda: pc.steps(epsilon=1.0, delta=1e-5, noise_multiplier=value))


@pytest.mark.parametrize("value", NOT_A_RATE, ids=repr)
def test_rate(value: Any) -> None:
    fails("rate", value, lambda: pc.PoissonSampled(GAUSSIAN, value))
    fails("sample_rate", value, lambda: pc.steps(epsilon=1.0, delta=1e-5, noise_multiplier=1.0, sample_rate=value))
    if value is not None:
        fails("sample_rate", value, lambda: pc.noise_multiplier(epsilon=1.0, delta=1e-5, sample_rate=value))


@pytest.mark.parametrize("value", NOT_A_DELTA, ids=repr)
@pytest.mark.parametrize("asked", [GAUSSIAN, SAMPLED * 10, pc.Run()], ids=str)
def test_delta(asked: pc.Run, value: Any) -> None:
    fails("delta", value, lambda: asked.epsilon(delta=value))
    fails("delta", value, lambda: asked.gdp_mu(delta=value))


@pytest.mark.parametrize("value", [*NOT_A_DELTA, 0, 0.0], ids=repr)
def test_delta_of_a_target(value: Any) -> None:
    fails("delta", value, lambda: pc.noise_multiplier(epsilon=1.0, delta=value))
    fails("delta", value, lambda: pc.noise_std(epsilon=1.0, delta=value, sensitivity=1.0))


@pytest.mark.parametrize("value", [v for v in NOT_A_DELTA if v is not None], ids=repr)
def test_delta_of_a_calibration(value: Any) -> None:
    fails("delta", value, lambda: pc.calibrate(pc.Gaussian, epsilon=1.0, delta=value))
    fails("delta", value, lambda: pc.steps(epsilon=1.0, delta=value, noise_multiplier=10.0))


@pytest.mark.parametrize("value", NOT_AN_EPSILON, ids=repr)
def test_epsilon(value: Any) -> None:
    fails("epsilon", value, lambda: GAUSSIAN.delta(epsilon=value))
    fails("epsilon", value, lambda: (SAMPLED * 5).delta(epsilon=value))
    fails("epsilon", value, lambda: pc.noise_multiplier(epsilon=value, delta=1e-5))
    if value is not None:
        fails("epsilon", value, lambda: pc.calibrate(pc.Gaussian, epsilon=value, delta=1e-5))


@pytest.mark.parametrize("value", [NAN, -0.1, 1.1, "0.1", True, None], ids=repr)
def test_alpha(value: Any) -> None:
    fails("alpha", value, lambda: GAUSSIAN.beta(alpha=value))


@pytest.mark.parametrize("value", NOT_A_COUNT, ids=repr)
def test_count(value: Any) -> None:
    fails("count", value, lambda: GAUSSIAN * value)
    fails("count", value, lambda: value * SAMPLED)
    fails("count", value, lambda: (GAUSSIAN + SAMPLED) * value)
    fails("count", value, lambda: pc.Run(((GAUSSIAN, value),)))
    if value is not None:
        fails("steps", value, lambda: pc.noise_multiplier(epsilon=1.0, delta=1e-5, steps=value))


@pytest.mark.parametrize("relation", NOT_A_RELATION, ids=repr)
def test_relation(relation: Any) -> None:
    calls: list[Callable[[], object]] = [
        lambda: GAUSSIAN.epsilon(delta=1e-5, relation=relation),
        lambda: GAUSSIAN.delta(epsilon=1.0, relation=relation),
        lambda: GAUSSIAN.advantage(relation=relation),
        lambda: GAUSSIAN.beta(alpha=0.1, relation=relation),
        lambda: GAUSSIAN.gdp_mu(relation=relation),
        lambda: GAUSSIAN.zcdp(relation=relation),
        lambda: pc.Run().epsilon(delta=1e-5, relation=relation),
        lambda: pc.noise_multiplier(epsilon=1.0, delta=1e-5, relation=relation),
        lambda: pc.noise_std(epsilon=1.0, delta=1e-5, sensitivity=1.0, relation=relation),
        lambda: pc.steps(epsilon=1.0, delta=1e-5, noise_multiplier=1.0, relation=relation),
        lambda: pc.calibrate(pc.Gaussian, epsilon=1.0, delta=1e-5, relation=relation),
    ]
    for call in calls:
        fails("relation", relation, call)


@pytest.mark.parametrize("inner", [SAMPLED, GAUSSIAN * 2, pc.Run(), 1.0, None, pc.Gaussian], ids=repr)
def test_only_plain_mechanisms_are_sampled(inner: Any) -> None:
    fails("mechanism", inner, lambda: pc.PoissonSampled(inner, 0.5), show=False)


@pytest.mark.parametrize("other", [1, 0.0, "x", None], ids=repr)
def test_only_runs_compose(other: Any) -> None:
    with pytest.raises((TypeError, pc.PrivcalcError)):
        GAUSSIAN + other
    with pytest.raises((TypeError, pc.PrivcalcError)):
        (GAUSSIAN * 2) + other


def test_mixed_relations() -> None:
    one, two = GAUSSIAN.epsilon(delta=1e-5), GAUSSIAN.epsilon(delta=1e-5, relation=pc.REPLACE_ONE)
    calls: list[Callable[[], object]] = [
        lambda: one + two,
        lambda: one < two,
        lambda: max(one, two),
        lambda: one == two,
        lambda: one / two,
        lambda: one - two,
        lambda: one * two,
        lambda: sum([one], two),
    ]
    for call in calls:
        fails("relation", None, call, show=False)


@pytest.mark.parametrize("other", ["x", None, [1.0], 1j, b"1"], ids=repr)
def test_answers_combine_with_numbers_only(other: Any) -> None:
    answer = GAUSSIAN.epsilon(delta=1e-5)
    calls: list[Callable[[], object]] = [
        lambda: answer + other,
        lambda: other * answer,
        lambda: answer / other,
        lambda: answer <= other,
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call()
    assert answer != other


@pytest.mark.parametrize(
    ("names", "arguments"),
    [
        (("batch_size", "dataset_size"), {"batch_size": 10}),
        (("batch_size", "dataset_size"), {"dataset_size": 10}),
        (("sample_rate", "batch_size"), {"sample_rate": 0.1, "batch_size": 10, "dataset_size": 100}),
        (("steps", "epochs"), {"steps": 10, "epochs": 2.0}),
        (("batch_size",), {"batch_size": 101, "dataset_size": 100}),
        (("batch_size",), {"batch_size": 0, "dataset_size": 100}),
        (("dataset_size",), {"batch_size": 10, "dataset_size": 0}),
        (("dataset_size",), {"batch_size": 10, "dataset_size": 100.5}),
        (("epochs",), {"epochs": 0}),
        (("epochs",), {"epochs": NAN}),
        (("steps",), {"steps": 0}),
        (("steps",), {"steps": 10.0}),
        (("epsilon",), {"epsilon": 0.0}),
    ],
)
def test_conflicting_schedules(names: tuple[str, ...], arguments: dict[str, Any]) -> None:
    with pytest.raises(pc.PrivcalcError) as caught:
        pc.noise_multiplier(**{"epsilon": 1.0, "delta": 1e-5, **arguments})
    for name in names:
        assert name in str(caught.value)


@pytest.mark.parametrize(
    "target",
    [
        {},
        {"epsilon": 1.0},
        {"delta": 1e-5},
        {"epsilon": 1.0, "delta": 1e-5, "mu": 1.0},
        {"mu": 1.0, "rho": 1.0},
        {"mu": 1.0, "delta": 1e-5},
        {"mu": 0.0},
        {"mu": -1.0},
        {"rho": NAN},
        {"rho": 0.0},
        {"epsilon": 0.0, "delta": 0.0},
        {"epsilon": 1.0, "delta": 1e-5, "bounds": (2.0, 1.0)},
        {"epsilon": 1.0, "delta": 1e-5, "bounds": (-1.0, 1.0)},
        {"epsilon": 1.0, "delta": 1e-5, "bounds": (NAN, 1.0)},
    ],
    ids=str,
)
def test_malformed_targets(target: dict[str, Any]) -> None:
    with pytest.raises(pc.PrivcalcError):
        pc.calibrate(pc.Gaussian, **target)


@pytest.mark.parametrize(
    ("make", "target"),
    [
        (pc.Gaussian, {"epsilon": 1.0, "delta": 0.0}),  # no Gaussian is pure
        (pc.Gaussian, {"epsilon": 0.1, "delta": 1e-5, "bounds": (0.1, 2.0)}),
        (pc.Gaussian, {"epsilon": 1.0, "delta": 1e-5, "spent": GAUSSIAN}),
        (lambda n: GAUSSIAN * n, {"epsilon": 1.0, "delta": 1e-5, "integer": True, "bounds": (1, 10)}),
        (lambda q: pc.PoissonSampled(pc.Gaussian(0.3), q), {"rho": 0.1}),  # zCDP is not amplified
        (lambda z: GAUSSIAN + pc.Gaussian(z), {"mu": 0.5}),
    ],
)
def test_targets_that_nothing_meets(make: Callable[[Any], pc.Run], target: dict[str, Any]) -> None:
    with pytest.raises(pc.PrivcalcError):
        pc.calibrate(make, **target)


@pytest.mark.parametrize("guarantee", [{}, {"epsilon": 1.0}, {"delta": 1e-5}, {"mu": 1.0, "rho": 1.0}], ids=str)
def test_malformed_guarantees(guarantee: dict[str, float]) -> None:
    with pytest.raises(pc.PrivcalcError):
        pc.Guarantee(**guarantee)


# --- legal edge cases -----------------------------------------------------------------------------


def test_delta_zero_is_legal() -> None:
    assert GAUSSIAN.epsilon(delta=0).upper == INF
    assert GAUSSIAN.epsilon(delta=0).lower == INF
    assert (SAMPLED * 3).epsilon(delta=0.0).upper == INF
    assert 1.0 <= pc.Laplace(1.0).epsilon(delta=0).upper <= 1 + 1e-12
    assert pc.steps(epsilon=1.0, delta=0.0, noise_multiplier=5.0) == 0


def test_a_run_of_no_steps_is_the_empty_run() -> None:
    assert GAUSSIAN * 0 == pc.Run() == (GAUSSIAN + SAMPLED) * 0
    assert str(GAUSSIAN * 0) == "nothing"
    assert float((GAUSSIAN * 0).epsilon(delta=0.0)) == 0.0


def test_a_program_that_makes_errors_of_underflow_is_answered() -> None:
    """Some questions ended in a bare FloatingPointError of NumPy."""
    with np.errstate(all="raise"):
        for answer in (
            (SAMPLED * 1000).epsilon(delta=1e-300),
            (SAMPLED * 1000).beta(alpha=0.01),
            (pc.DiscreteGaussian(1.0) * 10).epsilon(delta=1e-5),
        ):
            assert answer.lower <= answer.upper
        tables.discretize(SAMPLED * 10, 0.05)


def test_answers_state_no_guarantee_under_another_relation() -> None:
    """PureDP(1) under replace-one was made of Laplace noise whose ε there is 2."""
    here, there = {"relation": pc.ADD_OR_REMOVE_ONE}, {"relation": pc.REPLACE_ONE}
    noise = pc.Laplace(1.0)
    level, mu, beta = noise.epsilon(delta=0.0), noise.gdp_mu(), noise.beta(alpha=0.1)
    assert pc.PureDP(level).level == level.upper
    assert pc.PureDP(noise.epsilon(delta=0.0, **there), **there).level == pytest.approx(2.0)
    assert pc.Guarantee(epsilon=level, delta=0.0).epsilon is level
    assert pc.Guarantee(alpha=0.1, beta=beta).beta is beta
    for name, stated in (
        ("epsilon", lambda: pc.PureDP(level, **there)),
        ("epsilon", lambda: pc.PureDP(noise.epsilon(delta=0.0, **there), **here)),
        ("epsilon", lambda: pc.ApproxDP(level, 1e-5, **there)),
        ("mu", lambda: pc.GDP(mu, **there)),
        ("rho", lambda: pc.ZCDP(mu, **here)),
        ("rho", lambda: pc.ZCDP(1.0, level, **here)),
        ("epsilon", lambda: pc.Guarantee(epsilon=level, delta=0.0, **there)),
        ("mu", lambda: pc.Guarantee(mu=mu, **there)),
        ("beta", lambda: pc.Guarantee(alpha=0.1, beta=beta, **there)),
        ("epsilon", lambda: pc.PureDP(beta)),  # a lower end
        ("advantage", lambda: pc.Guarantee(advantage=beta)),
        ("beta", lambda: pc.Guarantee(alpha=0.1, beta=noise.advantage())),
    ):
        with pytest.raises(pc.PrivcalcError, match=f"^{name} = .*: is an answer"):
            stated()


@pytest.mark.parametrize("relation", list(pc.Relation), ids=str)
def test_answers_do_not_add(relation: pc.Relation) -> None:
    """ApproxDP(.5, 1e-5) has ε = .5 at δ = 1e-5; two of them have none there, and not 1."""
    one = pc.ApproxDP(0.5, 1e-5, relation=relation)
    assert (one + one).epsilon(delta=1e-5, relation=relation) == INF
    answer = one.epsilon(delta=1e-5, relation=relation)
    sums: list[Callable[[], object]] = [
        lambda: answer + answer,
        lambda: sum([answer, answer]),
        lambda: sum([answer], 0.25),
        lambda: answer + 0.5,
        lambda: 0.5 + answer,
        lambda: np.sum([answer, answer]),
        lambda: math.fsum([1.0]) + answer,
    ]
    for call in sums:
        with pytest.raises(pc.PrivcalcError, match=r"\(run_a \+ run_b\)\.epsilon\(delta=…\)"):
            call()
    products: list[Callable[[], object]] = [
        lambda: answer * 2,
        lambda: 12 * answer,
        lambda: answer * 2.0,
        lambda: np.array([2]) * answer,
    ]
    for call in products:
        with pytest.raises(pc.PrivcalcError, match=r"\(run \* n\)\.epsilon\(delta=…\)"):
            call()
    shares: list[Callable[[], object]] = [
        lambda: answer / 12,
        lambda: answer / 12.0,
        lambda: answer / np.int64(12),
        lambda: np.float64(6.0) / answer,
        lambda: 6 / answer,
        lambda: np.array([answer, answer]) / 2,
        lambda: np.mean([answer, answer]),
    ]
    for call in shares:
        with pytest.raises(pc.PrivcalcError, match=r"(pc\.calibrate\(lambda z: release\(z\) \* n|run_a \+ run_b)"):
            call()


def test_answers_are_numbers_that_are_compared() -> None:
    answer, other = GAUSSIAN.epsilon(delta=1e-5), (GAUSSIAN * 2).epsilon(delta=1e-5)
    assert max(answer, other) is other
    assert answer == pytest.approx(answer.upper)
    assert other - answer == other.upper - answer.upper
    assert other / answer == other.upper / answer.upper
    assert (-answer, abs(answer)) == (-answer.upper, answer.upper)
    assert math.exp(answer) == math.exp(answer.upper)
    assert np.array([answer, other], dtype=float).tolist() == [answer.upper, other.upper]


def test_numbers_of_other_kinds_are_numbers() -> None:
    assert pc.Gaussian(1) == pc.Gaussian(1.0) == pc.Gaussian(np.float64(1)) == pc.Gaussian(np.int64(1))
    assert GAUSSIAN * np.int64(3) == GAUSSIAN * 3
    assert pc.PoissonSampled(GAUSSIAN, 1) == pc.PoissonSampled(GAUSSIAN, 1.0)
    assert GAUSSIAN.epsilon(delta=np.float64(1e-5)) == GAUSSIAN.epsilon(delta=1e-5)


def test_everything_is_frozen() -> None:
    for frozen, name in (
        (GAUSSIAN, "noise_multiplier"),
        (SAMPLED, "rate"),
        (GAUSSIAN * 2, "entries"),
        (GAUSSIAN.epsilon(delta=0.1), "upper"),
        (pc.Guarantee(mu=1.0), "mu"),
    ):
        with pytest.raises(AttributeError):
            setattr(frozen, name, 1.0)


@pytest.mark.parametrize("arguments", [["curve", "--noise-multiplier", "2", "--json"], ["--help"]], ids=" ".join)
def test_a_reader_that_has_seen_enough(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "privcalc", *arguments], stdout=pipe, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (0, b"")


# --- arrays ---------------------------------------------------------------------------------------

NO_ARRAYS: dict[str, Callable[[Any], Any]] = {
    "complex": lambda _: np.ones(3) * 1j,
    "complex, imaginary part 0": lambda _: np.ones(3, dtype=np.complex64),
    "masked": lambda _: np.ma.array([0.1, 0.2, 0.3], mask=[True, False, False]),
    "text": lambda _: ["0.1", "0.2", "0.3"],
    "objects": lambda _: np.array([0.1, None, 0.3], dtype=object),
    "dates": lambda _: np.array(["2020", "2021", "2022"], dtype="datetime64[Y]"),
    "durations": lambda _: np.array([0, 1, 1], dtype="timedelta64[s]"),
    "ragged": lambda _: [[0.1], [0.1, 0.2], [0.3]],
    "too large": lambda _: [10**400, 1, 1],
    "nothing": lambda _: None,
    "a mapping": lambda _: {0: 0.1},
    "torch, sparse": lambda torch: torch.eye(3).to_sparse(),
    "torch, compressed": lambda torch: torch.eye(3).to_sparse_csr(),
    "torch, meta": lambda torch: torch.empty(3, device="meta"),
    "torch, quantised": lambda torch: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "torch, complex": lambda torch: torch.ones(3) * 1j,
    "torch, nested": lambda torch: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
    "torch, in a list": lambda torch: [torch.ones(1, requires_grad=True)] * 3,
}
TAKES_ARRAYS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "gaussian": ("values", lambda x: pc.Ledger(None, plan=GAUSSIAN * 9).gaussian(x, GAUSSIAN, clip_norm=1.0)),
    "laplace": (
        "values",
        lambda x: pc.Ledger(None, plan=pc.Laplace(1.0) * 9).laplace(x, pc.Laplace(1.0), clip_norm=1.0),
    ),
    "discrete": (
        "values",
        lambda x: pc.Ledger(None, plan=pc.DiscreteGaussian(2.0) * 9).gaussian(
            x, pc.DiscreteGaussian(2.0), clip_norm=1.0
        ),
    ),
    "select": (
        "scores",
        lambda x: pc.Ledger(None, plan=pc.ExponentialMechanism(1.0) * 9).select(
            x, pc.ExponentialMechanism(1.0), sensitivity=1.0, monotone=True
        ),
    ),
    "realised": ("norms", lambda x: pc.RealisedLosses(3, 2.0).update(x)),
    "rows": ("indices", lambda x: pc.RealisedLosses(3, 2.0).update([1.0], indices=[x] if x is None else x)),
    "filter": ("norms", lambda x: pc.IndividualFilter(3, 1.0).admit(x, 2.0)),
    "plan": ("public_norm_ratios", lambda x: pc.plan_audit(x, share=0.5, epsilon=1.0, delta=1e-5, steps=3)),
    "orders": ("orders", GAUSSIAN.rdp),
    "noise": ("noise_multiplier", pc.Gaussian),
}


@pytest.mark.filterwarnings("ignore:.*(quantize|[Nn]ested|[Ss]parse)")
@pytest.mark.parametrize("use", TAKES_ARRAYS)
@pytest.mark.parametrize("kind", NO_ARRAYS)
def test_what_is_no_array_of_real_numbers(kind: str, use: str) -> None:
    value = NO_ARRAYS[kind](pytest.importorskip("torch") if "torch" in kind else None)
    name, call = TAKES_ARRAYS[use]
    with pytest.raises(pc.PrivcalcError, match=name):
        call(value)


@pytest.mark.parametrize(
    "value",
    [
        *(np.complex128(2 + 1j), np.complex128(2), np.array(2 + 1j), np.bool_(True), np.timedelta64(2, "s")),
        *(np.array([2.0]), np.ma.array(2.0, mask=True), np.ma.masked),
    ],
    ids=repr,
)
def test_what_is_no_single_real_number(value: Any) -> None:
    with pytest.raises(pc.PrivcalcError, match="noise_multiplier"):
        pc.Gaussian(value)
    with pytest.raises(pc.PrivcalcError, match="count"):
        GAUSSIAN * value


def test_what_is_no_single_real_number_of_torch() -> None:
    torch = pytest.importorskip("torch")
    for value in (torch.tensor(True), torch.tensor(2 + 1j), torch.empty((), device="meta"), torch.ones(1)):
        with pytest.raises(pc.PrivcalcError, match="noise_multiplier"):
            pc.Gaussian(value)
        with pytest.raises(pc.PrivcalcError, match="count"):
            GAUSSIAN * value
    assert (
        pc.Gaussian(torch.tensor(2.0))
        == pc.Gaussian(np.float16(2))
        == pc.Gaussian(np.longdouble(2))
        == pc.Gaussian(2.0)
    )


def test_arrays_of_other_kinds_are_arrays() -> None:
    torch = pytest.importorskip("torch")
    expected = np.asarray(GAUSSIAN.rdp([2.0, 3.0]))
    for orders in (
        [Fraction(2), 3],
        np.array([2, 3]),
        np.array([2, 3], np.float16),
        torch.tensor([2.0, 3.0], requires_grad=True),
    ):
        np.testing.assert_array_equal(np.asarray(GAUSSIAN.rdp(orders)), expected)
    for ratios in (
        torch.ones(3, requires_grad=True),
        torch.ones(3, dtype=torch.bfloat16),
        [1, 1, 1],
        np.ones(3, np.float16),
    ):
        losses = pc.RealisedLosses(3, 2.0)
        losses.update(ratios)
        np.testing.assert_allclose(np.asarray(losses.mu()), 0.5)


@pytest.mark.parametrize("budget", [3, 3.0, np.float64(3.0), Fraction(3)], ids=repr)
def test_answers_are_not_taken_from_a_budget(budget: Any) -> None:
    """Runs of (1, 1e-5) and (2, 1e-5) have ε = 3 at 2e-5, maybe none at 1e-5. A distance, and 1 − β, are numbers."""
    found = GAUSSIAN.epsilon(delta=1e-5)
    with pytest.raises(pc.PrivcalcError, match="answers are not taken from a budget"):
        budget - found
    assert found - 3.0 == float(found) - 3.0
    assert found - found == 0.0
    rate = GAUSSIAN.beta(alpha=0.1)
    assert 1 - rate == 1 - rate.lower


def test_answers_are_not_cut_to_whole_numbers() -> None:
    """round() gives what a format prints; whatever rounds towards zero may be below a true ε."""
    found = GAUSSIAN.epsilon(delta=1e-5)
    for digits in (0, 2, 9):
        assert round(found, digits) == float(f"{found:.{digits}f}")
    assert round(found) == round(found, 0)
    assert round(pc.Enclosure(0.0, math.inf, pc.ADD_OR_REMOVE_ONE, "fallback"), 1) == math.inf
    for cut in (
        int,
        math.floor,
        math.trunc,
        lambda e: e // 1,
        lambda e: 9 // e,
        lambda e: e % 1,
        lambda e: divmod(e, 1),
    ):
        with pytest.raises(pc.PrivcalcError, match="not cut to whole numbers"):
            cut(found)
    with pytest.raises(pc.PrivcalcError, match="ndigits = -1"):
        round(found, -1)


@pytest.mark.parametrize(
    ("call", "word", "ours"),
    [
        (pc.noise_multiplier, "target_epsilon", "epsilon"),
        (pc.steps, "q", "sample_rate"),
        (pc.calibrate, "eps", "epsilon"),
        (pc.certify, "target_delta", "delta"),
        (pc.Gaussian, "sigma", "noise_multiplier"),
        (pc.PoissonSampled, "q", "rate"),
        (pc.Filter, "eps", "epsilon"),
        (pc.RealisedLosses, "max_grad_norm", "clip_norm"),
        (GAUSSIAN.epsilon, "delat", "delta"),
        (pc.Ledger(None, plan=GAUSSIAN).histogram, "bins", "edges"),
        (pc.Ledger(None, plan=GAUSSIAN).count, "max_contributions", "rows_per_person"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_keyword_of_another_library_is_told_by_our_name(call: Callable[..., Any], word: str, ours: str) -> None:
    with pytest.raises(pc.PrivcalcError, match=rf"^{word}: is no argument of \w+; did you mean {ours}=\?$") as caught:
        call(**{word: 1.0})
    assert isinstance(caught.value, TypeError)


def test_a_keyword_that_nobody_has_is_told_the_arguments() -> None:
    with pytest.raises(pc.PrivcalcError, match=r"colour: is no argument of Gaussian; it takes noise_multiplier$"):
        pc.Gaussian(colour=1)  # type: ignore[call-arg]


def test_editors_are_shown_what_makes_a_mechanism() -> None:
    assert list(inspect.signature(pc.Gaussian).parameters) == ["noise_multiplier"]
    assert list(inspect.signature(pc.ZCDP).parameters) == ["rho", "xi", "relation"]


def test_another_type_error_is_what_it_was() -> None:
    with pytest.raises(TypeError, match="positional") as caught:
        pc.steps(1.0)  # type: ignore[misc]
    assert not isinstance(caught.value, pc.PrivcalcError)


def test_the_number_of_a_question_may_go_first() -> None:
    assert SAMPLED.epsilon(1e-5) == SAMPLED.epsilon(delta=1e-5)
    assert SAMPLED.delta(1.0) == SAMPLED.delta(epsilon=1.0)
    assert SAMPLED.beta(0.1) == SAMPLED.beta(alpha=0.1)


@pytest.mark.parametrize("given", [{"sample_rate": 0.005}, {"batch_size": 5, "dataset_size": 1000}], ids=str)
def test_steps_that_may_be_epochs_are_warned_of(given: dict[str, Any]) -> None:
    with pytest.warns(pc.PrivcalcWarning, match="are 0.1 of a pass over the data.*did you mean epochs=20"):
        pc.noise_multiplier(epsilon=3.0, delta=1e-5, steps=20, **given)


def test_a_profile_that_breaks_down_is_told_where() -> None:
    def profile(epsilon: Any) -> Any:
        return np.where(epsilon > 2, NAN, np.exp(-epsilon) / 2)

    with pytest.raises(pc.PrivcalcError, match=r"at the loss 2\.\d+ it is nan"):
        pc.CustomMechanism.from_profile(profile)
