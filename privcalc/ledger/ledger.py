"""The ledger: one call draws noise and charges for it, so that neither can happen without the other."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privcalc import errors
from privcalc.enclosure import Guarantee
from privcalc.errors import PrivcalcError, suggests
from privcalc.ledger.assumptions import Assumptions
from privcalc.ledger.book import draw_of
from privcalc.ledger.digests import constants
from privcalc.ledger.drawn import Batch, Drawn, size_of
from privcalc.ledger.kept import Budgeted
from privcalc.ledger.rules import as_run
from privcalc.ledger.selection import Gate, drawable, thresholded
from privcalc.ledger.streams import Stream, check_drawable
from privcalc.ledger.tables import Tables
from privcalc.ledger.terms import Terms
from privcalc.mechanisms.above_threshold import AboveThreshold
from privcalc.mechanisms.correlated import CorrelatedGaussian
from privcalc.mechanisms.discrete_gaussian import DiscreteGaussian
from privcalc.mechanisms.exponential import ExponentialMechanism, TopK
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.laplace import Laplace
from privcalc.mechanisms.noisy_max import NoisyMax, PermuteAndFlip
from privcalc.mechanisms.sampler import released
from privcalc.mechanisms.thresholded_counts import ThresholdedCounts
from privcalc.noise.release import integers, noisy
from privcalc.numerics.floats import Floats
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation
from privcalc.run import Mechanism, Run
from privcalc.strategies.participation import MinSeparation

Array = TypeVar("Array")
Key = TypeVar("Key", bound=Hashable)


class Ledger(Drawn, Tables):
    """Draw and charge in one call; the record from which :func:`certify` makes a certificate.

    Args:
        path: file of JSON lines to create, or to go on with after a pause or a crash (everything else must then be as
            it was); None keeps the ledger in memory.
        relation: the neighbouring relation.
        unit: what one record is, in words; by default "one person" if all that runs is ``UserSampled``, else "one
            record".
        plan: what will run, fixed before any output is seen; a charge beyond it is refused. The certificate is the
            plan's, however early the run stops.
        cap: instead of a plan, where steps or their parameters may depend on outputs: a ``GDP``, ``ZCDP``, ``RDP`` or
            ``PureDP`` budget, kept by a :class:`Filter`. The certificate is the cap's.
        target: a guarantee that plan or cap must meet, or nothing starts.
        public: constants and data that are known to everyone and were not read from private data; ``records``, at least
            1, for ``batch``; ``dataset``, a name of the private data set. Arrays, tensors and state_dicts are written
            down by a digest.
        not_accounted: what is known to be missing, in words, such as "learning rate tuned on the private data".
        reserve: most uses reserved, hence lost in a crash, at a time. A block is 1 % of what was charged already.
        seed: reproducible noise, for tests and research; the certificate then makes no privacy claim.
        assumptions: what you declare of the process, and the ledger cannot see; what contradicts a proof is refused.
        budget: of a data set that others use, too (:class:`Budget`): all of plan or cap is reserved there, or nothing
            starts.

    Raises:
        PrivcalcError: if an argument does not fit, target or budget are not met, or another writer has the file.

    Example:
        >>> import numpy as np
        >>> import privcalc as pc
        >>> step = pc.Gaussian(noise_multiplier=20.0)
        >>> with pc.Ledger(None, plan=step * 206, target=pc.Guarantee(epsilon=3.0, delta=1e-5)) as ledger:
        ...     noisy = ledger.gaussian(np.zeros(10), step, clip_norm=0.5)
        >>> pc.certify(ledger, delta=1e-5).guarantee.epsilon <= 3.0
        True
    """

    @suggests
    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        relation: Relation = ADD_OR_REMOVE_ONE,
        unit: str | None = None,
        plan: Mechanism | Run | None = None,
        cap: Mechanism | None = None,
        target: Guarantee | None = None,
        public: Mapping[str, Any] | None = None,
        not_accounted: Sequence[str] = (),
        reserve: int = 1000,
        seed: int | None = None,
        assumptions: Assumptions | None = None,
        budget: Budgeted | None = None,
    ) -> None:
        number = None if seed is None else errors.count("seed", seed)
        given, said = constants({} if public is None else public), Assumptions() if assumptions is None else assumptions
        run = None if plan is None else as_run("plan", plan)
        named = (Run() if run is None else run).unit if unit is None else unit
        terms = Terms(relation, named, run, cap, target, given, not_accounted, number is not None, said)
        said.require(terms.bound)
        super().__init__(path, terms, reserve=reserve, budget=budget, seed=number)

    @suggests
    def gaussian(
        self,
        values: Array,
        mechanism: Mechanism,
        *,
        clip_norm: float,
        error: float | None = None,
        batch: Batch | None = None,
        label: str | None = None,
    ) -> Array:
        """Release a sum of contributions of norm ≤ ``clip_norm``, plus Gaussian noise.

        Every coordinate gets N(0, (noise multiplier · clip_norm)²).

        What is returned is a multiple of a public power of two g, below 2⁻³⁶ of the noise, and drawn exactly: the
        guarantee holds of its bits. For that the noise is larger, ``noise multiplier · (clip_norm + √d·g + 2·error)``,
        d the number of coordinates: by less than 2⁻¹² of itself, without ``error``, and mostly by much less
        (``proofs/executed_noise.md``).

        Args:
            values: the sum, a NumPy or torch array of real numbers; not divided by anything private. Floats keep their
                precision (they are rounded once, after the noise), integers become doubles and are cut off at ±2⁵³;
                with ``DiscreteGaussian`` they must be integers and become 64-bit ones.
            mechanism: ``Gaussian``, or ``DiscreteGaussian`` for integers, or one of them sampled.
            clip_norm: bound of the norm of one record's contribution, > 0 (under replace-one, half of how far a
                replacement moves the sum will do). For ``DiscreteGaussian`` it must be its sensitivity, and bounds the
                L1 or L2 norm, whichever its ``norm`` says.
            error: a proved bound of the norm of ``values`` minus the exact sum, 0 if they are that; by default nothing
                is known, and the certificate says so. A public number. With a batch the sum must, besides, be made of
                the batch's records alone: one that is not in it must not change a bit.
            batch: for a sampled mechanism, the batch the sum is over: used once. A sum of more than twice ``clip_norm``
                times the batch's records (without one: ``public["records"]``, if known) was not clipped, and is refused
                (not under replace-one). So add nothing public to it: do so after. In all releases of a step it has one
                shape.
            label: what is released, such as "2026-05 visits": refused the second time, in this ledger, and listed by
                the certificate, so that it is published. That of a sampled step goes to its batch.

        Returns:
            The noisy sum, in the kind of array that was given.

        Raises:
            BudgetExceeded: before anything is drawn, if plan or cap have too little left.
            PrivcalcError: before anything is drawn, if the batch is not the one that was drawn, the sum was not
                clipped, the label was used, or an argument does not fit.
        """
        bound = errors.scale("clip_norm", clip_norm)
        inner = released(mechanism)
        if not isinstance(inner, (DiscreteGaussian, Gaussian)):
            raise PrivcalcError(
                f"mechanism = {mechanism}: must be Gaussian or DiscreteGaussian, or one of them sampled"
            )
        if inner is mechanism and batch is not None and getattr(batch, "step", None) != mechanism:
            raise PrivcalcError(f"batch = {batch}: {mechanism} is not sampled")
        if (inner is not mechanism or batch is not None) and label is not None:
            raise PrivcalcError(
                f"label = {label!r}: give it where {mechanism} is charged, to the call that draws its batch"
            )
        if isinstance(inner, DiscreteGaussian):
            if bound != inner.sensitivity or error:
                given = f"clip_norm = {clip_norm!r}, error = {error!r}"
                raise PrivcalcError(f"{given}: must be {inner.sensitivity}, the sensitivity of {inner}, and 0")
            whole = integers("values", values)
            self._look(values, whole.astype(np.float64), mechanism, bound, size_of(batch), norm=inner.norm)
            self._pay(values, mechanism, batch, label)
            sigma = Fraction(inner.noise_multiplier) * Fraction(inner.sensitivity)
            return noisy(values, whole + self._noise.discrete_gaussian(whole.size, sigma).reshape(whole.shape))
        return self._on_grid(values, mechanism, bound, error, batch, label)

    def correlated(
        self,
        mechanism: CorrelatedGaussian,
        *,
        coordinates: int,
        clip_norm: float,
        error: float | None = None,
        records: int | None = None,
        label: str | None = None,
    ) -> Stream:
        """Charge a whole run with correlated noise, and return what draws it exactly, step by step.

        Args:
            mechanism: ``CorrelatedGaussian`` with a strategy that can be drawn exactly (``strategy.rounded()``, or a
                ``Tree``).
            coordinates: how many numbers a sum has; the stream holds some three vectors of that length for each
                diagonal, for each buffer of a ``BLT``, and for each power of 2 up to T of a ``Tree``.
            clip_norm: bound of the norm of one record's contribution to one step, > 0.
            error: 0 if every sum is exact and made of its step's records alone; by default nothing is known, and the
                certificate says so.
            records: but with ``MinSeparation``, how many records there are, which may be secret: each is given a place
                in the epoch, or a class, at random and independently of the others, coins are tossed, and the stream
                tells whose turn it is. Without it, and with ``MinSeparation``, who takes part when is your word, and
                the certificate says so.
            label: as in ``gaussian``.

        Raises:
            BudgetExceeded: before anything is drawn, if plan or cap have too little left.
            PrivcalcError: before anything is charged, if an argument does not fit.

        Example:
            >>> import numpy as np
            >>> import privcalc as pc
            >>> from privcalc.strategies import FixedOrder, Toeplitz
            >>> run = pc.CorrelatedGaussian(2.0, Toeplitz([1.0, 0.5], steps=20), FixedOrder(epoch=10))
            >>> with pc.Ledger(None, plan=run) as ledger:
            ...     stream = ledger.correlated(run, coordinates=3, clip_norm=1.0, error=0.0, records=100)
            ...     published = [stream.release(np.eye(100, 3)[stream.indices].sum(axis=0)) for _ in range(20)]
            >>> stream.step
            20
        """
        bound = errors.scale("clip_norm", clip_norm)
        if not isinstance(mechanism, CorrelatedGaussian):
            raise PrivcalcError(f"mechanism = {mechanism}: must be CorrelatedGaussian")
        check_drawable(mechanism.strategy)
        if error not in (None, 0):
            raise PrivcalcError(f"error = {error!r}: must be 0, for exact sums, or None: every step would pay for it")
        size = errors.count("coordinates", coordinates, least=1)
        grid, entry = draw_of(mechanism, clip_norm=bound, coordinates=size, error=error)
        number = None if records is None else errors.count("records", records)
        if number is not None and isinstance(mechanism.participation, MinSeparation):
            raise PrivcalcError(
                f"records = {records!r}: must be None for {mechanism.participation}; FixedOrder has places"
            )
        self._charge(mechanism, label=label, batch=number is not None)
        self._note(mechanism, entry)
        own = object()  # other streams of this mechanism may have other shapes

        def look(values: object, array: Floats, members: int | None) -> None:
            self._look(values, array, own, bound, members, error=error)

        return Stream(mechanism, grid, size, self._noise, number, self._held, look)

    @suggests
    def laplace(
        self,
        values: Array,
        mechanism: Laplace,
        *,
        clip_norm: float,
        error: float | None = None,
        label: str | None = None,
    ) -> Array:
        """Release a sum of contributions of L1 norm ≤ ``clip_norm``, plus Laplace noise in every coordinate.

        Its scale is ``mechanism.scale · clip_norm``.

        It is drawn exactly on a grid, as in :meth:`gaussian`, with a scale of
        ``mechanism.scale · (clip_norm + d·g + 2·error)``.

        Args:
            values: the sum, a NumPy or torch array.
            mechanism: ``Laplace``.
            clip_norm: bound of the L1 norm of one record's contribution, > 0.
            error: a proved bound of the L1 norm of ``values`` minus the exact sum, if one is known.
            label: as in ``gaussian``.
        """
        bound = errors.scale("clip_norm", clip_norm)
        if not isinstance(mechanism, Laplace):
            raise PrivcalcError(f"mechanism = {mechanism}: must be Laplace")
        return self._on_grid(values, mechanism, bound, error, None, label)

    def select(
        self,
        scores: ArrayLike,
        mechanism: ExponentialMechanism | PermuteAndFlip | NoisyMax | TopK,
        *,
        sensitivity: float,
        monotone: bool = False,
        joint: bool = False,
        label: str | None = None,
    ) -> int | NDArray[np.int64]:
        """Choose a candidate, as ``mechanism`` does with ε·score/sensitivity; or one in each of several rows.

        Args:
            scores: one per candidate, shape (n,). With shape (rows, n) one choice is made per row, and each is charged,
                unless ``Assumptions(parts="disjoint")`` was declared: every record counts in one row only. Then
                together they cost what one does, because ranges add when a replaced record changes two rows. Or unless
                the choice is ``joint``.
            mechanism: ``ExponentialMechanism``, ``PermuteAndFlip`` or ``NoisyMax``; or ``TopK`` for sets, which needs
                ``monotone=True``.
            sensitivity: Δ > 0: how far one record can move any score, as it was computed. The choice is drawn exactly.
            monotone: whether a record can only raise scores (or only lower them). Unless this and
                ``mechanism.monotone`` both say so, the mechanism with ``monotone=False`` is charged, at double the
                cost, and has to be in the plan.
            joint: whether the rows are one choice, of a candidate in each, whose score is the sum of theirs: one use is
                charged, and ``sensitivity`` (and ``monotone``) are of that sum.
            label: as in ``gaussian``.

        Returns:
            The index; for ``TopK`` the k indices, ascending, because a set is released and not its ranking; one or k
            per row.

        Raises:
            BudgetExceeded: before anything is drawn, if plan or cap have too little left.
            PrivcalcError: before anything is drawn, if an argument does not fit, or rows declared disjoint are one
                array.
        """
        chooser = self._chooser(scores, label)
        return chooser.select(scores, mechanism, sensitivity=sensitivity, monotone=monotone, joint=joint)

    def peel(
        self,
        scores: ArrayLike,
        mechanism: ExponentialMechanism | PermuteAndFlip | NoisyMax,
        *,
        k: int,
        sensitivity: float,
        monotone: bool = False,
        label: str | None = None,
    ) -> NDArray[np.int64]:
        """Choose k different candidates, one by one among those left, with their ranking: charged as k choices.

        A set without its ranking costs less noise: ``select`` with ``TopK``.

        Args:
            scores: one per candidate, shape (n,).
            mechanism: of one choice: ``ExponentialMechanism``, ``PermuteAndFlip`` or ``NoisyMax``.
            k: how many, 1 to n.
            sensitivity: as in ``select``.
            monotone: as in ``select``.
            label: as in ``gaussian``.

        Returns:
            Their indices, in the order in which they were chosen.

        Raises:
            BudgetExceeded: before anything is drawn, if plan or cap have too little left.
            PrivcalcError: before anything is drawn, if an argument does not fit.

        Example:
            >>> import privcalc as pc
            >>> step = pc.ExponentialMechanism(epsilon=50.0)
            >>> with pc.Ledger(None, plan=step * 2) as ledger:
            ...     ledger.peel([3, 9, 5, 1], step, k=2, sensitivity=1.0, monotone=True).tolist()
            [1, 2]
        """
        return self._chooser(scores, label).peel(scores, mechanism, k=k, sensitivity=sensitivity, monotone=monotone)

    def thresholded(
        self, counts: Mapping[Key, int], mechanism: ThresholdedCounts, *, label: str | None = None
    ) -> dict[Key, float]:
        """Keys whose noisy count reaches the threshold, with that count; which keys there are need not be public.

        Args:
            counts: how many persons have each key; no person counts for more than ``mechanism.keys`` keys, nor twice
                for one. Keys that nobody has may be missing or 0: they are never released. Those that are equal are
                one: numbers, texts and times are released in one form (``True`` as 1), or it would show how the first
                record wrote them.
            mechanism: ``ThresholdedCounts``.
            label: as in ``gaussian``.

        Returns:
            The released counts, the largest first.

        Raises:
            BudgetExceeded: before anything is drawn, if plan or cap have too little left.
            PrivcalcError: before anything is drawn, if an argument does not fit.

        Example:
            >>> import privcalc as pc
            >>> words = {"the": 5_000, "privacy": 300, "name-of-one-person": 1}
            >>> step = pc.ThresholdedCounts(noise="laplace", scale=1.0, threshold=20.0)
            >>> with pc.Ledger(None, plan=step) as ledger:
            ...     list(ledger.thresholded(words, step))
            ['the', 'privacy']
        """
        return thresholded(counts, mechanism, self._noise, lambda: self._charge(mechanism, label=label))

    def above(self, mechanism: AboveThreshold, *, sensitivity: float, label: str | None = None) -> Gate:
        """Charge for a gate, and draw the noise on its threshold; its questions are free until its answers are used up.

        Args:
            mechanism: ``AboveThreshold``.
            sensitivity: Δ > 0: how far one record can move any question's value, at most.
            label: as in ``gaussian``.

        Raises:
            BudgetExceeded: before anything is drawn, if plan or cap have too little left.
            PrivcalcError: before anything is drawn, if an argument does not fit.

        Example:
            >>> import privcalc as pc
            >>> step = pc.AboveThreshold.of(epsilon=1.0, monotone=True)
            >>> with pc.Ledger(None, plan=step) as ledger:
            ...     gate = ledger.above(step, sensitivity=1.0)
            ...     for day, visits in enumerate([12, 30, 900, 40]):
            ...         if gate.ask(visits, threshold=200):
            ...             print(f"the first busy day is {day}")
            ...             break
            the first busy day is 2
        """
        bound = drawable(mechanism, sensitivity)
        self._charge(mechanism, label=label)
        return Gate(mechanism, bound, self._noise, self._held)
