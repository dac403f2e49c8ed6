"""Figures of the AdaMix paper: they run on small data, and what they measure is right by other means."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import norm

import privcalc as pc

torch = pytest.importorskip("torch")
pytest.importorskip("matplotlib")

import toys  # noqa: E402

from benchmarks.figures import FIGURES, figure, mixed  # noqa: E402
from benchmarks.figures import adamix_error as fig1  # noqa: E402
from benchmarks.figures import adamix_losses as fig3  # noqa: E402
from benchmarks.figures import adamix_noise as fig8  # noqa: E402
from benchmarks.figures import adamix_parts as fig5  # noqa: E402
from benchmarks.figures import adamix_subspace as fig6  # noqa: E402
from benchmarks.figures.figure import Given  # noqa: E402
from benchmarks.learners.grid import FASHION_MIXED, Source, task_of  # noqa: E402
from benchmarks.learners.methods import FULL, METHODS  # noqa: E402
from learners.data.sources import Data  # noqa: E402

STEPS = 10
SETTING = replace(FASHION_MIXED, private=150, public=30)


def blobs(size, seed=0, dimension=6):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, size)
    return Data((2 * np.eye(dimension)[y] + rng.standard_normal((size, dimension)) + 1).astype(np.float32), y)


SOURCE = Source(blobs(600), blobs(200, 1))


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    toys.few_steps(monkeypatch, STEPS)


@pytest.fixture
def toy(monkeypatch, uncertified):
    """A small source under the names of the real ones, and few points."""
    monkeypatch.setattr(figure, "sources", lambda *_: {"fashion": lambda: SOURCE, "digits": lambda: SOURCE})
    for module in (mixed, fig1, fig3, fig6, fig8):
        monkeypatch.setattr(module, "SETTINGS", (SETTING,))
    for module in (fig1, fig3):
        monkeypatch.setattr(module, "LEVELS", (3.0,))
    monkeypatch.setitem(FULL, "steps", STEPS)
    monkeypatch.setattr(fig5, "QUANTILES", (0.5, 0.9))
    monkeypatch.setattr(fig3, "optdigits", lambda: blobs(100, 5))
    monkeypatch.setattr(fig3, "PRIVATE", 150)
    monkeypatch.setattr(fig3, "PUBLIC", 30)
    monkeypatch.setattr(fig8, "NOISES", (5.0, 10.0))
    return Given(None, None, "cpu", 2)


@pytest.mark.parametrize("name", [name for name in FIGURES if name.startswith("adamix")])
def test_each_figure_is_made(toy, name, tmp_path):
    made = FIGURES[name]
    rows = json.loads(json.dumps(made.run(toy), allow_nan=False))
    assert {row["seed"] for row in rows} == {0, 1}
    made.draw(rows).savefig(tmp_path / "figure.png")
    page = made.page(rows)
    assert "**Found:**" in page
    assert "nan" not in page
    assert "{" not in page


# --- the attack and its bounds ---

scores = arrays(np.float64, st.integers(1, 12), elements=st.integers(-3, 3).map(float))


@given(members=scores, others=scores)
def test_auc_by_all_pairs(members, others):
    difference = members[:, None] - others[None, :]
    assert fig1.auc(members, others) == pytest.approx(np.mean((difference > 0) + 0.5 * (difference == 0)), abs=1e-12)


@settings(max_examples=10)
@given(noise=st.floats(0.3, 50.0), steps=st.integers(1, 50))
def test_bounds_of_gaussian_steps(noise, steps):
    run, mu = pc.Gaussian(noise_multiplier=noise) * steps, steps**0.5 / noise
    area = fig1.largest_auc(run, 100)
    assert norm.cdf(mu / 2**0.5) - 1e-12 <= area <= norm.cdf(mu / 2**0.5) + 1e-3 * max(1.0, mu)
    assert fig1.largest_swap(run) == pytest.approx(norm.cdf(mu), abs=1e-9)  # N(−1, z²/T) against N(1, z²/T)


@pytest.mark.parametrize("noise", [0.7, 2.0])
def test_the_bound_on_members_and_others_is_reached(noise):
    """One member ±1, the other −1 times it, a noisy sum: AUC Φ(1/z), more than add-or-remove-one's Φ(1/(z√2))."""
    rng = np.random.default_rng(0)
    member = rng.choice([-1.0, 1.0], 100_000)
    released = member + noise * rng.standard_normal(len(member))
    found = np.mean(released * member > -released * member)
    run = pc.Gaussian(noise_multiplier=noise) * 1
    assert found == pytest.approx(fig1.largest_swap(run), abs=0.01)  # six standard deviations
    assert found > fig1.largest_auc(run, 100) + 0.02


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_bounds_of_randomised_response(epsilon):
    right = np.exp(epsilon) / (1 + np.exp(epsilon))  # the ROC has one corner, and this area
    run = pc.PureDP(epsilon=epsilon) * 1
    assert right - 1e-12 <= fig1.largest_auc(run, 100) <= right + 1e-2


def test_the_attack_by_hand():
    rng = np.random.default_rng(0)
    weights, members, others = rng.standard_normal((6, 3)), blobs(20, 2), blobs(30, 3)

    def losses(data):
        chances = np.exp(data.X.astype(float) @ weights)
        return -np.log(chances[np.arange(len(data.y)), data.y] / chances.sum(axis=1))

    wanted = np.mean(losses(members)[:, None] < losses(others)[None, :])
    assert fig1.attack(torch.from_numpy(weights), members, others, [0, 1, 2]) == pytest.approx(wanted, abs=1e-9)


def test_the_attack_finds_what_is_learnt_by_heart():
    """Ten classes at random in 80 dimensions: members are fitted, others are not."""
    rng = np.random.default_rng(1)
    members, others = (Data(rng.standard_normal((60, 80)), rng.integers(0, 10, 60)) for _ in range(2))
    weights = fig1.plain_weights(list(range(10)), [members])
    assert fig1.attack(weights, members, others, list(range(10))) > 0.9


def test_others_are_the_rest_of_the_pool(toy, monkeypatch):
    seen = []
    monkeypatch.setattr(fig1, "attack", lambda weights, members, others, classes: seen.append((members, others)) or 0.5)
    monkeypatch.setattr(fig1, "LEVELS", ())
    fig1.compute(toy)
    task = task_of(SETTING, SOURCE, 0)
    for members, others in seen[:2]:
        parts = [{row.tobytes() for row in part.X} for part in (members, others, task.public)]
        assert [len(part) for part in parts] == [150, 420, 30]
        assert len(set.union(*parts)) == 600
        np.testing.assert_array_equal(members.X, task.private.X)


# --- realised losses, domains ---


def test_the_loss_of_one_step(monkeypatch):
    """At weights 0 every gradient has norm ‖x‖·‖1/C − e_y‖ = √(1 − 1/C), and one step is a Gaussian release."""
    method = METHODS["NoisyGD (Fully-Private)"]
    monkeypatch.setitem(METHODS, "NoisyGD (Fully-Private)", replace(method, settings={"steps": 1}))
    noise = pc.noise_multiplier(epsilon=3.0, delta=1e-5, steps=1)
    wanted = pc.Gaussian(float(noise) / (2 / 3) ** 0.5).epsilon(delta=1e-5)
    found = fig3.sorted_losses(task_of(SETTING, SOURCE, 0), "NoisyGD (Fully-Private)", 0, "cpu")
    assert len(found) == 201
    np.testing.assert_allclose(found, float(wanted), atol=2e-4)


def test_losses_are_sorted_and_below_what_is_certified():
    found = fig3.sorted_losses(task_of(SETTING, SOURCE, 0), "AdaMix, projected", 0, "cpu")
    assert found == sorted(found)
    assert 0 <= found[0] < found[-1] <= 3.0


def test_domains_share_private_and_test_records(toy):
    other = blobs(100, 5)
    found = fig3.domains(SOURCE, other, 0)
    same, shifted = found[fig3.SAME], found[fig3.OTHER]
    for part in ("private", "test"):
        assert getattr(same, part).y.tolist() == getattr(shifted, part).y.tolist()
    order = np.random.default_rng(0).permutation(len(other.y))[:30]
    assert shifted.public.y.tolist() == other.y[order].tolist()
    rows = SOURCE.test.X - other.X[order].mean(axis=0)
    np.testing.assert_allclose(shifted.test.X, rows / np.linalg.norm(rows, axis=1, keepdims=True), atol=1e-5)


# --- the subspace ---


@given(seed=st.integers(0, 1000), dimension=st.integers(1, 7))
def test_reconstruction_error_by_least_squares(seed, dimension):
    rng = np.random.default_rng(seed)
    gradient, basis = rng.standard_normal((8, 3)), np.linalg.qr(rng.standard_normal((8, dimension)))[0]
    rest = gradient - basis @ np.linalg.lstsq(basis, gradient, rcond=None)[0]
    found = fig6.reconstruction_error(torch.from_numpy(gradient), torch.from_numpy(basis))
    assert found == pytest.approx(np.linalg.norm(rest) / np.linalg.norm(gradient), abs=1e-9)


def test_the_first_step_by_numpy():
    task = task_of(SETTING, SOURCE, 0)
    found = fig6.watch(task, 0, "cpu")
    weights = fig1.plain_weights(task.classes, [task.public]).numpy()

    def residuals(data):
        scores = np.exp(data.X.astype(float) @ weights)
        return scores / scores.sum(axis=1, keepdims=True) - np.eye(3)[data.y]

    shared = np.linalg.svd(task.public.X.T.astype(float) @ residuals(task.public))[0][:, :2]
    limit = np.quantile(np.linalg.norm(residuals(task.public), axis=1) * np.linalg.norm(task.public.X, axis=1), 0.9)
    own = residuals(task.private)
    own *= np.minimum(1, limit / np.linalg.norm(own, axis=1) / np.linalg.norm(task.private.X, axis=1))[:, None]
    gradient = task.private.X.T @ own
    wanted = np.linalg.norm(gradient - shared @ shared.T @ gradient) / np.linalg.norm(gradient)
    assert found.errors[0][0] == pytest.approx(wanted, abs=1e-4)
    assert found.width == 2
    assert len(found.errors) == STEPS


def test_watching_changes_nothing():
    task = task_of(SETTING, SOURCE, 0)
    plain = METHODS["AdaMix, projected"].fit(task, 3.0, 4)
    torch.testing.assert_close(fig6.watch(task, 4, "cpu").weights_, plain.weights_, rtol=0, atol=0)


# --- words follow numbers ---


@pytest.mark.parametrize(("last", "said"), [(0.9, "clearly above at NGD on toy"), (0.1, "clearly below at NGD on toy")])
def test_more_noise_is_not_always_said_to_be_better(last, said):
    rows = [
        {
            "source": "toy",
            "learner": learner,
            "noise": noise,
            "seed": seed,
            "steps": 10,
            "accuracy": level + 0.01 * seed,
        }
        for learner in fig8.LEARNERS
        for noise, level in ((5.0, 0.5), (10.0, last))
        for seed in range(3)
    ]
    assert said in FIGURES["adamix-8"].page(rows)
    assert f"largest mean accuracy is at σ = {10 if last > 0.5 else 5} (NGD on toy" in FIGURES["adamix-8"].page(rows)
