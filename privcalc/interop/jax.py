"""JAX: a ledger's batches and noise in Optax, and for jax_privacy's ``DPExecutionPlan``. Needs the extra ``jax``.

See ``proofs/interop.md``, §7.

    plan = through_ledger(plan, ledger)                      # whatever loop the plan was written for
    for indices in plan.batch_selection_strategy.batch_iterator(records):
        total = plan.clipped_grad(loss)(params, data[indices])
        noisy, state = plan.noise_addition_transform.update(total, state)

Outside of ``jax.jit``: the ledger draws and writes on the host. What comes before, and after, may be compiled.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import optax
from numpy.typing import NDArray

from privcalc import errors
from privcalc.attacks.replay import Look, look_first
from privcalc.errors import PrivcalcError
from privcalc.interop.dp_accounting.events import from_event, to_event
from privcalc.ledger.assumptions import Provenance, asked_by
from privcalc.ledger.drawn import Batch
from privcalc.ledger.ledger import Ledger
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.sampler import released
from privcalc.relation import REPLACE_ONE
from privcalc.run import Mechanism, Run
from privcalc.tripwire import check_standardized

__all__ = ["Released", "from_plan", "through_ledger", "to_plan"]

MASKED = (
    "updates: some leaves were left out by optax.masked or multi_transform (partition) around the transform that adds "
    "the noise: ε does not hold for what moves along their gradients, which have none. Put it first, outside: "
    "chain(steps.transform, …)"
)

CHANGED = (
    "updates: are not what clipped_sum returned for this batch, bit for bit. What changes it before the noise "
    "(momentum, scale, weight decay, clipping of the whole sum) changes how far one record moves it: put "
    "steps.transform first, chain(steps.transform, …)"
)

BELOW = 1 - 2.0**-20
"""Norms, in doubles, and what a factor is rounded to are off by less."""


class Released:
    """Batches and releases of one kind of step: each batch is one release of one sum, in their order.

    Refused before noise is drawn: a batch that is left out, released twice, or accumulated with others, a sum that is
    not finite, or too long to be of clipped records of its batch; and one that :meth:`clipped_sum` made and something
    changed since.

    Args:
        ledger: with a plan or a cap; it draws, charges and adds the noise.
        step: ``Gaussian``, for all records in every step, or one sampled.
        clip_norm: bound of what one record adds to the sum, in all leaves together, > 0.
        look: (train, data): before anything is drawn, the first step of ``train(data)``, with a ledger of its own in
            memory, is run with and without one record (:func:`privcalc.attacks.replay.replay`), and what was found is
            shown on the screen. It depends on the data, and is kept nowhere.

    Attributes:
        step: what each batch is drawn for.

    Raises:
        PrivcalcError: if an argument does not fit.

    Example:
        >>> import jax.numpy as jnp
        >>> import privcalc as pc
        >>> X, step = jnp.ones((400, 3)) / 2, pc.PoissonSampled(pc.Gaussian(noise_multiplier=1.0), rate=0.1)
        >>> def loss(weights, row):
        ...     return (row @ weights["w"] - 1.0) ** 2
        >>> with pc.Ledger(None, plan=step * 20) as ledger:
        ...     steps = Released(ledger, step, clip_norm=1.0)
        ...     optimizer = optax.chain(steps.transform, optax.scale(1 / 40), optax.sgd(0.1))  # the transform first
        ...     weights = {"w": jnp.zeros(3)}
        ...     state = optimizer.init(weights)
        ...     for _ in steps.batch_iterator(len(X)):
        ...         updates, state = optimizer.update(steps.clipped_sum(loss, weights, X), state)
        ...         weights = optax.apply_updates(weights, updates)
        >>> print(ledger.spent == step * 20, weights["w"].shape)
        True (3,)
    """

    def __init__(self, ledger: Ledger, step: Mechanism, *, clip_norm: float, look: Look | None = None) -> None:
        if not isinstance(ledger, Ledger):
            raise PrivcalcError(f"ledger = {ledger!r}: must be a Ledger")
        if not isinstance(step, Mechanism) or not isinstance(released(step), Gaussian):
            raise PrivcalcError(f"step = {step}: must be Gaussian, or Gaussian sampled")
        self._ledger, self.step, self._clip_norm = ledger, step, errors.scale("clip_norm", clip_norm)
        look_first(look, Ledger, relation=ledger.terms.relation)
        self._batch: Batch | None = None
        self._records = 0
        self._sum: NDArray[np.float64] | None = None
        self._looked = False
        self._compiled: tuple[object, object, Callable[..., Any]] | None = None

    def batch_iterator(self, num_examples: int, rng: object = None) -> Iterator[NDArray[np.int64]]:
        """Batches of record numbers, until plan or cap have none left.

        jax_privacy's ``BatchSelectionStrategy`` calls it so.

        Args:
            num_examples: how many records there are; may be secret. JAX reads an index beyond an array's end as its
                last one: give the length of the arrays that are read (:meth:`clipped_sum` refuses others).
            rng: must be None: the ledger's coins are secret.

        Raises:
            BudgetExceeded: if there were none left from the start.
            PrivcalcError: if a batch was not released before the next one is asked for.
        """
        if rng is not None:
            raise PrivcalcError("rng: must be None, as the ledger tosses the coins; open it with seed= for tests")
        more = True
        while more:
            with asked_by(Provenance(by="adapter")):
                self._batch = self._ledger.batch(self.step, records=num_examples)
            self._records, self._sum = num_examples, None
            yield self._batch.indices.copy()
            more = self._ledger.has_batch(self.step)

    def clipped_sum(self, loss: Callable[..., Any], params: Any, *data: Any, at_most: int = 256) -> Any:
        """The sum of the clipped gradients of the last batch: of each of its records, once, from its own loss.

        The transform then takes this sum and no other, so that nothing gets between the clipping and the noise.

        Args:
            loss: of one record, ``loss(params, *row)``; its gradient is taken with respect to ``params``, and compiled,
                so that what else it reads, such as attributes, is what it was at first.
            params: a tree of arrays.
            data: arrays of all records, with as many rows as ``batch_iterator`` was told of.
            at_most: how many records' gradients are in memory at a time.

        Returns:
            A tree like ``params``, in doubles.

        Raises:
            PrivcalcError: if there is no batch, an array has more or fewer rows, or a gradient is not finite.
        """
        batch, size = self._batch, errors.count("at_most", at_most, least=1)
        if batch is None:
            raise PrivcalcError("clipped_sum: must be of a batch; ask batch_iterator for one first")
        if not data or any(len(column) != self._records for column in data):
            raise PrivcalcError("data: must be arrays with as many rows as batch_iterator was told there are records")
        axes = (None, *(0 for _ in data))
        if not self._looked:
            self._looked = True
            _look(data)
        if self._compiled is None or self._compiled[:2] != (loss, axes):
            self._compiled = loss, axes, jax.jit(jax.vmap(jax.grad(loss), in_axes=axes))
        total: NDArray[np.float64] | None = None
        leaves: list[Any] = []
        for start in range(0, max(batch.indices.size, 1), size):
            places = batch.indices[start : start + size]
            filled = np.append(
                places, np.zeros(size - places.size, dtype=np.int64)
            )  # of one shape; what fills it is dropped
            leaves, form = jax.tree_util.tree_flatten(
                self._compiled[2](params, *(_rows(column, filled) for column in data))
            )
            rows = np.concatenate([np.asarray(one, dtype=np.float64).reshape(size, -1) for one in leaves], axis=1)[
                : places.size
            ]
            norms = np.linalg.norm(rows, axis=1)
            if not np.isfinite(norms).all():
                raise PrivcalcError(
                    "gradients: must be finite; clipping does not hide a NaN or infinity. Nothing was drawn"
                )
            part = np.minimum(1.0, self._clip_norm * BELOW / np.maximum(norms, 1e-300)) @ rows
            total = part if total is None else total + part
        assert total is not None
        self._sum = total.copy()  # what is returned may be written to
        parts = np.split(total, np.cumsum([one[0].size for one in leaves])[:-1])
        return jax.tree_util.tree_unflatten(
            form, [part.reshape(one.shape[1:]) for part, one in zip(parts, leaves, strict=True)]
        )

    @property
    def transform(self) -> optax.GradientTransformation:
        """What takes the sum of the clipped gradients of the batch given out last, and returns it with noise."""
        return optax.GradientTransformation(_init, self._update)

    def _update(self, updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        if any(_masked(leaf) for leaf in jax.tree_util.tree_leaves(updates, is_leaf=_masked)):
            self._ledger.warn(MASKED)
        leaves, form = jax.tree_util.tree_flatten(updates)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            raise PrivcalcError(
                "updates: must have values, which within jax.jit they have not: the ledger draws on the host"
            )
        arrays = [np.asarray(leaf) for leaf in leaves]
        if not arrays or any(array.dtype not in (np.float32, np.float64) for array in arrays):
            raise PrivcalcError(
                "updates: must be arrays in single or double precision; fewer digits do not hold the noise"
            )
        together = np.concatenate([array.astype(np.float64).ravel() for array in arrays])
        batch = self._batch
        if self._sum is not None and not np.array_equal(together, self._sum):
            raise PrivcalcError(CHANGED)
        noisy = self._ledger.gaussian(together[None], self.step, clip_norm=self._clip_norm, batch=batch)[
            0
        ]  # one row, one sum
        parts = np.split(noisy, np.cumsum([array.size for array in arrays])[:-1])
        shaped = [part.reshape(one.shape).astype(one.dtype) for part, one in zip(parts, arrays, strict=True)]
        return jax.tree_util.tree_unflatten(form, [jax.numpy.asarray(part) for part in shaped]), state


def _rows(column: Any, places: NDArray[np.int64]) -> Any:
    """These rows; of no records zeros."""
    return column[places] if len(column) else np.zeros((places.size, *column.shape[1:]), dtype=column.dtype)


def _look(data: tuple[Any, ...]) -> None:
    """Warn where arrays were scaled by themselves."""
    for column in map(np.asarray, data):
        if column.dtype in (np.float32, np.float64) and len(column) and np.isfinite(column).all():
            check_standardized("data", column)


def _masked(value: Any) -> bool:
    return isinstance(value, optax.MaskedNode)


def _init(_: Any) -> optax.EmptyState:
    return optax.EmptyState()


def from_plan(plan: Any) -> Run:
    """The run of a ``DPExecutionPlan``, from its ``dp_event``.

    Raises:
        PrivcalcError: if the event is not supported, or its steps are no Gaussians of one kind, sampled or not, drawn
            from all records with independent noise (what others are is in ``docs/samplers.md``), or its batches are
            drawn otherwise.
    """
    run, strategy = from_event(plan.dp_event), plan.batch_selection_strategy
    gaussian = len(run.entries) == 1 and isinstance(released(run.entries[0][0]), Gaussian)
    if not gaussian or getattr(strategy, "cycle_length", 1) != 1:
        raise PrivcalcError(
            "plan: must repeat one Gaussian, sampled or not, of all records, with independent noise (num_bands = 1), "
            f"not {run} by {type(strategy).__name__}"
        )
    if not _drawn_so(strategy, *run.entries[0]):
        raise PrivcalcError(
            f"plan: its batches, by {strategy}, are not drawn as its event assumes, {run}; configure it anew"
        )
    return run


def _drawn_so(strategy: Any, step: Mechanism, steps: int) -> bool:
    """Whether batches are those of the steps, as far as a strategy says how it draws them."""
    if isinstance(strategy, Released):
        return strategy.step == step
    cut, size = getattr(strategy, "truncated_batch_size", None), getattr(step, "batch_size", None)
    return (
        getattr(strategy, "sampling_prob", None) == getattr(step, "rate", 1.0)
        and getattr(strategy, "iterations", None) == steps
        and (cut is None) == (size is None)
        and (cut is None or min(cut, getattr(step, "dataset_size", cut)) == size)
    )


def _clipped(clipped_grad: Callable[..., Any], bound: float) -> Callable[..., Any]:
    """It, if what one record adds is within the bound that the noise is for, whatever else it is told."""

    @functools.wraps(clipped_grad)
    def checked(*args: Any, **kwargs: Any) -> Any:
        found = clipped_grad(*args, **kwargs)
        if not float(found.l2_norm_bound) <= bound:
            raise PrivcalcError(
                f"clipped_grad: bounds what a record adds by {float(found.l2_norm_bound)!r}, and the noise is for "
                f"{bound!r}; give another clip norm to the plan, not to its function"
            )
        return found

    return checked


def through_ledger(plan: Any, ledger: Ledger) -> Any:
    """A ``DPExecutionPlan`` whose batches and noise are a ledger's: for the same loop.

    Args:
        plan: as jax_privacy's configurations make it; its ``clipped_grad`` goes on clipping.
        ledger: with the plan ``from_plan(plan)``, or a cap; under add-or-remove-one or zero-out.

    Raises:
        PrivcalcError: as :func:`from_plan`, or under replace-one, for which that package draws twice the noise.
    """
    (step, _), *_ = from_plan(plan).entries
    if ledger.terms.relation is REPLACE_ONE:
        raise PrivcalcError(
            "ledger: must be under add-or-remove-one or zero-out; a plan's noise is in units of a record's norm"
        )
    # What they call l2_norm_bound is of the sum as it is given to the noise, scaled to unit norm and normalised,
    # if asked for.
    bound = float(plan.clipped_grad(lambda: None).l2_norm_bound)
    steps, clipped = Released(ledger, step, clip_norm=bound), _clipped(plan.clipped_grad, bound)
    return dataclasses.replace(
        plan, clipped_grad=clipped, batch_selection_strategy=steps, noise_addition_transform=steps.transform
    )


def to_plan(run: Mechanism | Run, ledger: Ledger, *, clip_norm: float) -> Any:
    """A ``DPExecutionPlan`` for a run of ours, with a ledger's batches and noise.

    Args:
        run: one kind of step, as often as it is to be repeated; in the ledger's plan.
        ledger: likewise.
        clip_norm: to which jax_privacy's ``clipped_grad`` clips; the sum is not scaled.
    """
    from jax_privacy import clipping
    from jax_privacy.experimental.execution_plan import DPExecutionPlan

    entries = run.run.entries
    if len(entries) != 1:
        raise PrivcalcError(f"run = {run}: must repeat one kind of step")
    steps = Released(ledger, entries[0][0], clip_norm=clip_norm)
    clipped = _clipped(functools.partial(clipping.clipped_grad, l2_clip_norm=clip_norm), float(clip_norm))
    event = to_event(run, relation=ledger.terms.relation)
    return DPExecutionPlan(
        clipped_grad=clipped, batch_selection_strategy=steps, noise_addition_transform=steps.transform, dp_event=event
    )
