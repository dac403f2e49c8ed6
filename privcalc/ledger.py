"""The ledger: one call draws noise and charges for it, so that neither can happen without the other."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privcalc import errors
from privcalc.account import Account
from privcalc.arrays import finite, integers, noisy
from privcalc.enclosure import Guarantee
from privcalc.errors import PrivcalcError
from privcalc.mechanism import Mechanism
from privcalc.mechanisms.discrete_gaussian import DiscreteGaussian
from privcalc.mechanisms.exponential import ExponentialMechanism
from privcalc.mechanisms.fixed_size import FixedSizeSampled
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.laplace import Laplace
from privcalc.mechanisms.parallel import Parallel
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.mechanisms.top_k import TopK, log_multiplicity
from privcalc.noise import Noise, SecureNoise, SeededNoise
from privcalc.numerics.normal import Floats
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation
from privcalc.run import Run

__all__ = ["Batch", "Ledger"]

Array = TypeVar("Array")


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch that the ledger drew and charged for: the token for one release.

    Attributes:
        indices: which records take part, ascending. Secret, as is how many there are.
        step: the mechanism it was drawn for.
    """

    indices: NDArray[np.int64]
    step: Mechanism

    def __repr__(self) -> str:
        return f"Batch(step={self.step})"


class Ledger(Account):
    """Draw and charge in one call; the record from which :func:`certify` makes a certificate.

    Args:
        path: file of JSON lines to create, or to go on with after a crash (everything else must then be as it was); None keeps
            the ledger in memory.
        relation: the neighbouring relation.
        unit: what one record is, in words.
        plan: what will run, fixed before any output is seen; a charge beyond it is refused. The certificate is the plan's,
            however early the run stops.
        cap: instead of a plan, where steps or their parameters may depend on outputs: a ``GDP``, ``ZCDP``, ``RDP`` or ``PureDP``
            budget, kept by a :class:`Filter`. The certificate is the cap's.
        target: a guarantee that plan or cap must meet, or nothing starts.
        public: constants that are known to everyone and were not read from private data; ``records`` for ``poisson_batch``.
        not_accounted: what is known to be missing, in words, such as "learning rate tuned on the private data".
        reserve: most uses reserved, hence lost in a crash, at a time. A block is 1 % of what was charged already.
        seed: reproducible noise, for tests and research; the certificate then makes no privacy claim.

    Raises:
        PrivcalcError: if an argument does not fit, the target is not met, or another writer has the file.

    Example:
        >>> import numpy as np
        >>> import privcalc as pc
        >>> step = pc.Gaussian(noise_multiplier=20.0)
        >>> with pc.Ledger(None, plan=step * 206, target=pc.Guarantee(epsilon=3.0, delta=1e-5)) as ledger:
        ...     noisy = ledger.gaussian(np.zeros(10), step, clip_norm=0.5)
        >>> pc.certify(ledger, delta=1e-5).guarantee.epsilon <= 3.0
        True
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        relation: Relation = ADD_OR_REMOVE_ONE,
        unit: str = "one record",
        plan: Mechanism | Run | None = None,
        cap: Mechanism | None = None,
        target: Guarantee | None = None,
        public: Mapping[str, Any] | None = None,
        not_accounted: Sequence[str] = (),
        reserve: int = 1000,
        seed: int | None = None,
    ) -> None:
        number = None if seed is None else errors.count("seed", seed)
        super().__init__(
            path,
            relation=relation,
            unit=unit,
            plan=plan,
            cap=cap,
            target=target,
            public=public,
            not_accounted=not_accounted,
            reserve=reserve,
            seeded=number is not None,
        )
        # Every opening of a seeded ledger draws from a stream of its own, so that nothing is repeated when it is gone on with.
        self._noise: Noise = SecureNoise() if number is None else SeededNoise(number, self._journal.lines)
        self._batch: Batch | None = None

    def gaussian(self, values: Array, mechanism: Mechanism, *, clip_norm: float, batch: Batch | None = None) -> Array:
        """A sum of contributions of norm ≤ ``clip_norm``, plus N(0, (noise multiplier · clip_norm)²) in every coordinate.

        Args:
            values: the sum, a NumPy or torch array of real numbers; not divided by anything private.
            mechanism: ``Gaussian``, or ``DiscreteGaussian`` for integers, or one of them sampled.
            clip_norm: bound of the norm of one record's contribution, > 0; for ``DiscreteGaussian`` it must be its sensitivity.
            batch: for a sampled mechanism, the batch the sum is over: used once.

        Returns:
            The noisy sum, in the kind of array that was given.

        Raises:
            PrivcalcError: before anything is drawn, if the charge is refused, or the batch is not the one that was drawn.
        """
        bound = errors.positive("clip_norm", clip_norm)
        inner = mechanism.mechanism if isinstance(mechanism, (PoissonSampled, FixedSizeSampled)) else mechanism
        if isinstance(inner, DiscreteGaussian):
            if bound != inner.sensitivity or not integers(values):
                raise PrivcalcError(f"values, clip_norm = {clip_norm!r}: must be integers, and the sensitivity of {inner}")
        elif not isinstance(inner, Gaussian):
            raise PrivcalcError(f"mechanism = {mechanism}: must be Gaussian or DiscreteGaussian, or one of them sampled")
        array = finite(values)
        if inner is mechanism:
            if batch is not None:
                raise PrivcalcError(f"batch = {batch}: {mechanism} is not sampled")
            self._charge(mechanism)
        else:
            self._use(batch, mechanism)
        if isinstance(inner, DiscreteGaussian):
            sigma = Fraction(inner.noise_multiplier * inner.sensitivity)
            return noisy(values, array, self._noise.discrete_gaussian(array.size, sigma))
        return noisy(values, array, self._noise.normal(array.size) * (inner.noise_multiplier * bound))

    def laplace(self, values: Array, mechanism: Laplace, *, clip_norm: float) -> Array:
        """A sum of contributions of L1 norm ≤ ``clip_norm``, plus Laplace noise of scale ``mechanism.scale · clip_norm``.

        Args:
            values: the sum, a NumPy or torch array.
            mechanism: ``Laplace``.
            clip_norm: bound of the L1 norm of one record's contribution, > 0.
        """
        bound = errors.positive("clip_norm", clip_norm)
        if not isinstance(mechanism, Laplace):
            raise PrivcalcError(f"mechanism = {mechanism}: must be Laplace")
        array = finite(values)
        self._charge(mechanism)
        return noisy(values, array, self._noise.laplace(array.size) * (mechanism.scale * bound))

    def select(self, scores: ArrayLike, mechanism: Mechanism, *, sensitivity: float, monotone: bool = False) -> Any:
        """Choose a candidate with probability ∝ exp(ε·score/sensitivity).

        Args:
            scores: one per candidate, shape (n,); for ``Parallel`` of equal choices, one row per part, shape (parts, n).
            mechanism: ``ExponentialMechanism``, ``TopK``, or ``Parallel`` of equal ``ExponentialMechanism``.
            sensitivity: Δ > 0: how far one record can move any score.
            monotone: whether a record can only raise scores; if not, double the cost is charged.

        Returns:
            The index; for ``TopK`` the k indices, for ``Parallel`` one index per part.
        """
        delta, values = errors.positive("sensitivity", sensitivity), np.asarray(finite(scores))
        parts = mechanism.parts if isinstance(mechanism, Parallel) else (mechanism,)
        rows = np.atleast_2d(values)
        if isinstance(mechanism, Parallel) and (len(set(parts)) != 1 or values.shape[:1] != (len(parts),)):
            raise PrivcalcError(f"mechanism = {mechanism}: must have equal parts, and scores one row for each")
        if rows.ndim != 2 or not rows.size or (not isinstance(mechanism, Parallel) and values.ndim != 1):
            raise PrivcalcError(f"scores: must have shape (n,), or (parts, n) for Parallel, not {values.shape}")
        if isinstance(parts[0], TopK) and monotone and not isinstance(mechanism, Parallel):
            self._charge(mechanism)
            return _top(self._noise, (values - values.max()) * (0.5 * parts[0].level / delta), parts[0].k)
        if not isinstance(parts[0], ExponentialMechanism):
            raise PrivcalcError(
                f"mechanism = {mechanism}: must be ExponentialMechanism, Parallel of equal ones, or TopK with monotone=True"
            )
        charged: Mechanism = ExponentialMechanism(parts[0].level, monotone=monotone)
        self._charge(Parallel([charged] * len(parts)) if isinstance(mechanism, Parallel) else charged)
        logits = (rows - rows.max(axis=1, keepdims=True)) * (parts[0].level / delta)
        found = np.argmax(logits + self._noise.gumbel(rows.size).reshape(rows.shape), axis=1)
        return found if isinstance(mechanism, Parallel) else int(found[0])

    def poisson_batch(self, step: Mechanism, *, records: int | None = None) -> Batch:
        """Toss the coins that ``step`` assumes, one per record, and charge for the step; the release with it must follow.

        Args:
            step: a ``PoissonSampled`` mechanism.
            records: how many records there are, which may be secret and is not written down; by default ``public["records"]``.

        Raises:
            PrivcalcError: if the charge is refused, or the last batch has not been used: batches are not to be chosen from.
        """
        if not isinstance(step, PoissonSampled):
            raise PrivcalcError(f"step = {step}: must be PoissonSampled")
        public = self._book.terms.public.get("records")
        if records is None and public is None:
            raise PrivcalcError("records = None: must be given, here or in public, to toss a coin for each")
        size = errors.count("records", public if records is None else records)
        self._may_sample()
        self._charge(step)
        return self._issue(np.flatnonzero(self._noise.coins(size, step.rate)), step)

    def fixed_size_batch(self, step: Mechanism, *, records: int | None = None) -> Batch:
        """Draw a uniform batch without replacement, as ``step`` assumes, and charge for the step.

        Args:
            step: a ``FixedSizeSampled`` mechanism.
            records: how many records there are, which may be secret and is not written down; at least ``step.dataset_size``, or
                under add-or-remove-one, where that bounds the larger of two data sets, one less. By default ``dataset_size``.

        Raises:
            PrivcalcError: if the charge is refused, there are fewer records, or the last batch has not been used.
        """
        if not isinstance(step, FixedSizeSampled):
            raise PrivcalcError(f"step = {step}: must be FixedSizeSampled")
        least = step.dataset_size - (self.terms.relation is ADD_OR_REMOVE_ONE)
        size = step.dataset_size if records is None else errors.count("records", records, least=least)
        self._may_sample()
        self._charge(step)
        return self._issue(self._noise.subset(size, step.batch_size), step)

    def _may_sample(self) -> None:
        if self._batch is not None:
            raise PrivcalcError(
                f"the last batch, for {self._batch.step}, was not used: release its sum, even if it is empty, first"
            )

    def _issue(self, indices: NDArray[np.int64], step: Mechanism) -> Batch:
        self._batch = Batch(indices, step)
        return self._batch

    def _use(self, batch: Batch | None, mechanism: Mechanism) -> None:
        if batch is None or batch is not self._batch or batch.step != mechanism:
            raise PrivcalcError(
                f"batch = {batch}: must be the batch that this ledger last drew for {mechanism}, and each is used once"
            )
        self._batch = None


def _top(noise: Noise, logits: Floats, k: int) -> NDArray[np.int64]:
    """k candidates: the worst one by its rank, the others uniformly from those above it (``proofs/exponential.md``)."""
    if logits.size < k:
        raise PrivcalcError(f"scores: must be at least k = {k}, not {logits.size}")
    order = np.argsort(-logits, kind="stable")
    weights = logits[order] + log_multiplicity(np.arange(1, logits.size + 1), k)
    worst = int(np.argmax(weights + noise.gumbel(logits.size)))
    found: NDArray[np.int64] = order[np.append(noise.subset(worst, k - 1), worst)]
    return found
