"""JAX: a ledger's batches and noise in loops that were written for Optax and for jax_privacy's plans."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest

import privcalc as pc

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")
pytest.importorskip("dp_accounting")

from privcalc.interop.jax import Released, from_plan, through_ledger, to_plan  # noqa: E402

STEP = pc.PoissonSampled(pc.Gaussian(noise_multiplier=1.0), rate=0.25)
X = np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)


def loss(params, batch):
    return jax.numpy.mean((batch @ params["w"] + params["b"]) ** 2)


def params():
    return {"w": jax.numpy.zeros(3), "b": jax.numpy.ones(())}


def made(steps=4, **kwargs):
    ledger = pc.Ledger(None, plan=STEP * steps, seed=1, **kwargs)
    return ledger, Released(ledger, STEP, clip_norm=1.0)


def total(indices):
    return {"w": jax.numpy.asarray(X[indices].sum(axis=0) / 10), "b": jax.numpy.zeros(())}


def test_every_batch_is_one_release_in_optax():
    ledger, steps = made()
    optimizer = optax.chain(steps.transform, optax.scale(-0.1), optax.adam(0.1))
    theta = params()
    state = optimizer.init(theta)
    for number, indices in enumerate(steps.batch_iterator(40), 1):
        updates, state = optimizer.update(total(indices), state, theta)
        theta = optax.apply_updates(theta, updates)
        assert ledger.spent == STEP * number
    assert number == 4
    assert theta["w"].dtype == jax.numpy.float32
    assert theta["b"].shape == ()
    with pytest.raises(pc.BudgetExceeded):
        next(steps.batch_iterator(40))


def of_one(params, row):
    return 0.5 * ((row @ params["w"] + params["b"]) ** 2)


@pytest.mark.parametrize("at_most", [3, 64])
def test_a_clipped_sum_is_that_of_the_batch(at_most):
    ledger, steps = made()
    theta, state = {"w": jax.numpy.asarray([0.5, -1.0, 2.0]), "b": jax.numpy.ones(())}, None
    state = steps.transform.init(theta)
    for indices in steps.batch_iterator(40):
        total = steps.clipped_sum(of_one, theta, X, at_most=at_most)
        rows = X[indices].astype(np.float64)
        slopes = rows @ [0.5, -1.0, 2.0] + 1  # the gradient is slope · (row, 1), by hand
        each = slopes[:, None] * np.c_[rows, np.ones(len(rows))]
        each /= np.maximum(1, np.linalg.norm(each, axis=1, keepdims=True))
        np.testing.assert_allclose([*total["w"], float(total["b"])], each.sum(axis=0), atol=1e-5)
        steps.transform.update(total, state)
    assert ledger.spent == STEP * 4


def test_nobody_in_the_batch_is_a_sum_of_nothing():
    rare = pc.PoissonSampled(pc.Gaussian(1.0), rate=1e-9)
    steps = Released(pc.Ledger(None, plan=rare), rare, clip_norm=1.0)
    assert next(steps.batch_iterator(40)).size == 0
    total = steps.clipped_sum(of_one, params(), X)
    assert not total["w"].any()
    assert total["b"].shape == ()
    steps.transform.update(total, None)


@pytest.mark.parametrize("array", [np, jax.numpy])
def test_no_records_at_all_are_a_sum_of_nothing(array):
    """A neighbour of theirs has one: an error would tell them apart."""
    ledger, steps = made()
    for _ in steps.batch_iterator(0):
        total = steps.clipped_sum(of_one, params(), array.zeros((0, 3), dtype="float32"))
        assert not total["w"].any()
        steps.transform.update(total, None)
    assert ledger.spent == STEP * 4


@pytest.mark.parametrize(
    "before",
    [optax.scale(1.5), optax.clip_by_global_norm(0.01), optax.add_decayed_weights(0.1), optax.sgd(0.1)],
    ids=["scale", "global norm", "weight decay", "sgd"],
)
def test_nothing_gets_between_the_clipping_and_the_noise(before):
    """Each of these changes how far one record moves the sum, and the ledger sees sums only."""
    ledger, steps = made()
    optimizer, theta = optax.chain(before, steps.transform), params()
    state = optimizer.init(theta)
    next(steps.batch_iterator(40))
    with pytest.raises(pc.PrivcalcError, match="are not what clipped_sum returned"):
        optimizer.update(steps.clipped_sum(of_one, theta, X), state, theta)
    assert ledger.spent == STEP * 1


def test_a_clipped_sum_that_was_written_to_is_another():
    """What is returned has no memory with what it is compared with."""
    _, steps = made()
    theta = params()
    for _ in steps.batch_iterator(40):
        total = steps.clipped_sum(of_one, theta, X)
        for leaf in jax.tree_util.tree_leaves(total):
            np.multiply(leaf, 2.0, out=leaf)
            np.add(leaf, 1.0, out=leaf)
        with pytest.raises(pc.PrivcalcError, match="are not what clipped_sum returned"):
            steps.transform.update(total, None)
        break


def test_a_clipped_sum_is_refused_where_records_would_be_others():
    """JAX reads an index beyond the end as the last one, which then is in a batch many times."""
    _, steps = made()
    with pytest.raises(pc.PrivcalcError, match="ask batch_iterator"):
        steps.clipped_sum(of_one, params(), X)
    next(steps.batch_iterator(40))
    for data in ((), (X[:30],), (X, X[:39])):
        with pytest.raises(pc.PrivcalcError, match="data: must be arrays with as many rows"):
            steps.clipped_sum(of_one, params(), *data)
    with pytest.raises(pc.PrivcalcError, match="gradients: must be finite"):
        steps.clipped_sum(lambda theta, row: of_one(theta, row) * np.inf, params(), X)


def test_arrays_that_were_scaled_by_themselves_are_warned_of():
    """As the tensors of a data set are, where PyTorch's loader reads them."""
    plain = np.random.default_rng(1).gamma(2.0, 1.0, (400, 3)).astype(np.float32)
    for rows, said in (
        (plain, []),
        ((plain - plain.mean(axis=0)) / plain.std(axis=0), ["StandardScaler"]),
    ):
        _, steps = made()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always", pc.PrivcalcWarning)
            for _ in steps.batch_iterator(400):
                steps.transform.update(steps.clipped_sum(of_one, params(), rows), None)
        texts = [str(one.message) for one in seen if issubclass(one.category, pc.PrivcalcWarning)]
        assert [one in text for one, text in zip(said, texts, strict=True)] == [True] * len(said)
        assert all(text.startswith("data: ") for text in texts)


def test_leaves_that_get_no_noise_are_told_of():
    _, steps = made()
    inner = optax.chain(steps.transform, optax.sgd(0.1))
    optimizer = optax.multi_transform({"noisy": inner, "plain": optax.sgd(0.1)}, {"w": "noisy", "b": "plain"})
    state, indices = optimizer.init(params()), next(steps.batch_iterator(40))
    with pytest.warns(pc.PrivcalcWarning, match="^updates: some leaves were left out"):
        optimizer.update(total(indices), state)


def test_what_is_no_release_of_its_batch_is_refused():
    ledger, steps = made()
    batches, update = steps.batch_iterator(40), steps.transform.update
    with pytest.raises(pc.PrivcalcError, match="must be the batch"):
        update(total([]), ())
    indices = next(batches)
    for wrong, said in (
        ({"w": jax.numpy.full(3, jax.numpy.nan)}, "finite"),
        ({"w": jax.numpy.full(3, 1e6)}, "longer than any sum"),
        ({"w": jax.numpy.zeros(3, dtype=jax.numpy.bfloat16)}, "single or double"),
        ({"w": jax.numpy.zeros(3, dtype=int)}, "single or double"),
        ({}, "single or double"),
    ):
        with pytest.raises(pc.PrivcalcError, match=said):
            update(wrong, ())
    with pytest.raises(pc.PrivcalcError, match=r"within jax\.jit"):
        jax.jit(update)(total(indices), ())
    with pytest.raises(pc.PrivcalcError, match="was not used"):
        next(batches)  # left out, or accumulated
    update(total(indices), ())
    with pytest.raises(pc.PrivcalcError, match="used once"):
        update(total(indices), ())
    with pytest.raises(pc.PrivcalcError, match="rng: must be None"):
        next(steps.batch_iterator(40, rng=0))
    assert ledger.spent == STEP.run


@pytest.mark.parametrize("wrong", [{"step": pc.Laplace(1.0)}, {"clip_norm": 0.0}, {"ledger": None}])
def test_arguments(wrong):
    ledger, _ = made()
    with pytest.raises(pc.PrivcalcError, match=next(iter(wrong))):
        Released(**{"ledger": ledger, "step": STEP, "clip_norm": 1.0, **wrong})


# --- jax_privacy ---


def theirs(**options):
    module = pytest.importorskip("jax_privacy.experimental.execution_plan")
    usual = {
        "iterations": 4,
        "strategy": [1.0],
        "epsilon": None,
        "delta": None,
        "noise_multiplier": 1.0,
        "sampling_prob": 0.25,
    }
    return module.BandMFExecutionPlanConfig(**(usual | options)).plan


def train(plan):
    """A loop that knows of plans only."""
    theta, seen = params(), []
    state = plan.noise_addition_transform.init(theta)
    gradient = plan.clipped_grad(loss)
    for indices in plan.batch_selection_strategy.batch_iterator(len(X)):
        clipped = gradient(theta, X[indices])
        noisy, state = plan.noise_addition_transform.update(clipped, state)
        theta = optax.apply_updates(theta, jax.tree.map(lambda each: -0.1 * each, noisy))
        seen.append(clipped)
    return seen


SCALES = [{}, {"l2_clip_norm": 0.5, "normalize_by": 10.0}, {"l2_clip_norm": 3.0, "rescale_to_unit_norm": False}]


@pytest.mark.parametrize("options", SCALES, ids=["unit", "normalised", "as it is"])
def test_a_plan_of_theirs_goes_through_a_ledger(options, monkeypatch):
    """In: the run is their event's; the noise is in units of what one record adds to the sum as it is given."""
    plan, norms = theirs(**options), []
    assert from_plan(plan) == STEP * 4
    release = pc.Ledger.gaussian

    def seen(self, values, mechanism, *, clip_norm, batch):
        norms.append(clip_norm)
        return release(self, values, mechanism, clip_norm=clip_norm, batch=batch)

    monkeypatch.setattr(pc.Ledger, "gaussian", seen)
    with pc.Ledger(None, plan=from_plan(plan)) as ledger:
        train(through_ledger(plan, ledger))
    clip = 1.0 if options.get("rescale_to_unit_norm", True) else options["l2_clip_norm"]
    assert norms == pytest.approx([clip / options.get("normalize_by", 1.0)] * 4)
    certificate = pc.certify(ledger, delta=1e-5)
    assert (certificate.run, certificate.document["noise"], certificate.document["declared"]) == (STEP * 4, "exact", [])


def test_a_run_of_ours_is_a_plan_of_theirs():
    pytest.importorskip("jax_privacy.experimental.execution_plan")
    with pc.Ledger(None, plan=STEP * 3) as ledger:
        plan = to_plan(STEP * 3, ledger, clip_norm=2.0)
        assert from_plan(plan) == STEP * 3
        sums = train(plan)
    assert len(sums) == 3
    assert ledger.spent == STEP * 3


@pytest.mark.parametrize("ours", [False, True], ids=["theirs", "ours"])
def test_sums_that_are_clipped_to_another_norm_than_the_noise_is_for_are_refused(ours):
    """The plan's function takes arguments: with another clip norm the noise was still for the plan's."""
    pytest.importorskip("jax_privacy.experimental.execution_plan")
    ledger = pc.Ledger(None, plan=STEP * 4)
    plan = to_plan(STEP * 4, ledger, clip_norm=2.0) if ours else through_ledger(theirs(), ledger)
    assert plan.clipped_grad(loss, has_aux=False).l2_norm_bound == (2.0 if ours else 1.0)
    for other in [{"l2_clip_norm": 3.0}, {"normalize_by": 0.5}] if ours else []:  # theirs takes neither
        with pytest.raises(pc.PrivcalcError, match="clipped_grad: bounds what a record adds by"):
            plan.clipped_grad(loss, **other)
    assert not ours or plan.clipped_grad(loss, l2_clip_norm=1.5).l2_norm_bound == 1.5  # with more noise than it needs


@pytest.mark.parametrize(
    "other",
    [{"sampling_prob": 0.5}, {"iterations": 9}, {"truncated_batch_size": 5}, {"cycle_length": 2}, None],
    ids=str,
)
def test_a_plan_whose_batches_are_not_those_of_its_event_is_refused(other):
    plan = theirs()
    strategy = plan.batch_selection_strategy
    module = pytest.importorskip("jax_privacy.batch_selection")
    batches = module.BallsInBinsSampling(4, cycle_length=4) if other is None else dataclasses.replace(strategy, **other)
    with pytest.raises(pc.PrivcalcError, match="plan: "):
        from_plan(dataclasses.replace(plan, batch_selection_strategy=batches))
    assert from_plan(theirs(truncated_batch_size=15, num_examples=40)).entries[0][1] == 4
    assert from_plan(theirs(sampling_prob=1.0)) == (pc.PoissonSampled(pc.Gaussian(1.0), 1.0) * 4)
    ledger = pc.Ledger(None, plan=STEP * 4)
    assert from_plan(through_ledger(plan, ledger)) == from_plan(to_plan(STEP * 4, ledger, clip_norm=1.0)) == STEP * 4


def test_plans_that_a_ledger_cannot_draw_are_refused():
    with pytest.raises(pc.PrivcalcError, match="num_bands = 1"):
        from_plan(theirs(strategy=[1.0, 0.5]))
    cut = pc.TruncatedPoissonSampled(pc.Gaussian(1.0), 0.25, batch_size=15, dataset_size=40)
    assert from_plan(theirs(truncated_batch_size=15, num_examples=40)) == cut * 4
    plan = theirs()
    with pytest.raises(pc.PrivcalcError, match="must be under add-or-remove-one"):
        through_ledger(plan, pc.Ledger(None, plan=STEP * 4, relation=pc.REPLACE_ONE))
    with pytest.raises(pc.BudgetExceeded, match="not in the plan"):
        train(through_ledger(plan, pc.Ledger(None, plan=pc.Gaussian(9.0))))


@pytest.mark.parametrize(("bug", "shown"), [("", "nothing found"), ("long", "sensitivity"), ("loss", "interaction")])
def test_a_look_comes_before_the_first_step(bug, shown, capsys):
    def train(data):
        data = np.clip(data, -1e3, 1e3)
        ledger = pc.Ledger(None, plan=STEP)
        steps = Released(ledger, STEP, clip_norm=5.0, look=(train, data))
        for indices in steps.batch_iterator(len(data)):
            rows = data[indices].astype(np.float64)
            rows = rows * (1 + np.tanh(rows).sum()) if bug == "loss" else rows
            rows /= np.maximum(1.001 * np.linalg.norm(rows, axis=1, keepdims=True) / (9 if bug == "long" else 5), 1.0)
            updates, _ = steps.transform.update({"w": jax.numpy.asarray(rows.sum(axis=0))}, optax.EmptyState())
        return ledger, updates

    assert train(X[:12] / 9)[0].spent == STEP * 1
    assert shown in capsys.readouterr().err
