"""Realised losses: what the run that happened cost each record, from the norms of its clipped contributions."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privcalc import errors
from privcalc.audit import gdp, sampled, store
from privcalc.audit.sensitive import ESTIMATE, FILLED, FULL, WARNING, RealisedValues, Sensitive, position, ratios
from privcalc.audit.sums import Indices
from privcalc.audit.tally import EMPTY, Doubts, Tally
from privcalc.errors import suggests
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.mechanisms.sampler import released
from privcalc.mechanisms.user_sampling import UserSampled
from privcalc.numerics.floats import Floats
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation, check_relation
from privcalc.run import Mechanism, Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["RealisedLosses"]


class RealisedLosses(Sensitive):
    """Every record's own loss along the run that happened, under add-or-remove-one.

    It is streaming, and takes at most 200 bytes per record.

    A record whose clipped contribution has norm r·clip is, in that step, protected by noise multiplier z/r. Full
    batches: its run is exactly μ-GDP, μ² = Σ(r/z)². Poisson sampling: its own transform, both directions, by its
    largest steps and Chebyshev moments of the others.
    The numbers are upper bounds for this sequence of norms. As the norms depend on the data *they are no guarantee*,
    whatever their grade (AdaMix's Proposition 14 is false): ``proofs/audits.md``. What several runs cost the same
    records together is ``losses_a + losses_b``.

    Args:
        records: how many records.
        noise_multiplier: noise standard deviation / clip norm of every step, unless ``update`` gives it.
        rate: probability with which each record takes part in a step, unless ``update`` gives it; 1 for full batches.
        clip_norm: the clip norm of every step: ``update`` then takes norms as they are. None: it takes norms over the
            clip norm.
        ids: names of the records, one each, distinct.

    Example:
        >>> import numpy as np
        >>> import privcalc as pc
        >>> losses = pc.RealisedLosses(records=3, noise_multiplier=20.0, clip_norm=0.1)
        >>> for _ in range(206):
        ...     losses.update(np.array([3.0, 0.05, 0.0]))  # norms of the gradients
        >>> losses.epsilon(delta=1e-5)
        RealisedValues(epsilon at delta = 1e-05 of 3 records, add-or-remove-one, full pass;
        SENSITIVE: depends on the private data; no guarantee; not for publication)
        >>> print(np.asarray(losses.epsilon(delta=1e-5)).round(6), np.asarray(losses.mu()).round(6))
        [2.992983 1.3788   0.      ] [0.717635 0.358818 0.      ]
    """

    @suggests
    def __init__(
        self,
        records: int,
        noise_multiplier: float | None = None,
        rate: float = 1.0,
        *,
        clip_norm: float | None = None,
        ids: ArrayLike | None = None,
    ) -> None:
        self._tally = Tally(errors.count("records", records, least=1))
        self._noise = None if noise_multiplier is None else errors.scale("noise_multiplier", noise_multiplier)
        self._rate = errors.rate("rate", rate)
        self._clip = None if clip_norm is None else errors.scale("clip_norm", clip_norm)
        self._ids: NDArray[Any] | None = None
        if ids is not None:
            self.name(ids)
        self._doubts = Doubts(self._tally.records)
        self._fill: NDArray[np.floating[Any]] | None = None
        self._estimated = False

    @classmethod
    def of(cls, step: Mechanism, records: int, *, ids: ArrayLike | None = None) -> Self:
        """For the steps of a mechanism, where one record's own loss has a theory.

        Args:
            step: ``Gaussian``, or it Poisson-sampled: ``update`` then takes norms over the clip norm. Or
                ``UserSampled`` at rate 1, for persons: it takes a number per person (``privcalc.audit.totals``).
            records: how many records, or persons.
            ids: as above.

        Raises:
            PrivcalcError: for other mechanisms, which it names.
        """
        inner, rate, most = released(step), getattr(step, "rate", 1.0), 1
        if isinstance(step, UserSampled):
            most = step.records if step.counted is None else step.counted
        plain = inner is step or isinstance(step, PoissonSampled) or (isinstance(step, UserSampled) and rate == 1)
        if not isinstance(inner, Gaussian) or not plain:
            why = (
                "each record of a person has a coin of its own"
                if isinstance(step, UserSampled)
                else "no theory of it is known"
            )
            raise errors.PrivcalcError(
                f"step = {step}: what one record or person lost in it is not computed, because {why}; must be "
                "Gaussian, Gaussian sampled by PoissonSampled (of persons: a coin for each person), "
                "or UserSampled at rate 1"
            )
        return cls(records, inner.noise_multiplier / most, rate, clip_norm=None if most == 1 else float(most), ids=ids)

    @property
    def records(self) -> int:
        """The number of records in the audit."""
        return self._tally.records

    @property
    def nbytes(self) -> int:
        """Memory of everything that grows with the number of records."""
        return self._tally.nbytes

    @property
    def doubts(self) -> dict[str, Any]:
        """What contradicts the stated rate, as it is saved."""
        return self._doubts.saved

    @property
    def grade(self) -> str:
        """How the numbers came about; one of three, see :class:`RealisedValues`."""
        if self._estimated:
            return ESTIMATE
        return FILLED if bool(self._tally.unseen.any()) else FULL

    @property
    def worst_case(self) -> Run:
        """The run as the accountant knows it: a record that always has the clip norm."""
        return self._tally.worst

    def name(self, ids: ArrayLike) -> None:
        """Give the records names, in their order, where they have none, as those that a learner measured.

        Args:
            ids: one name each, distinct.

        Raises:
            PrivcalcError: if these are no such names, or the records have others.
        """
        names = errors.array("ids", ids)
        if (
            names.dtype.kind not in "iufUS"  # which can be saved
            or names.shape != (self.records,)
            or np.unique(names).size != self.records
            or (names.dtype.kind == "f" and bool(np.isnan(names).any()))
        ):
            raise errors.PrivcalcError(f"ids: must be {self.records} distinct names, texts or numbers")
        if self._ids is not None:
            raise errors.PrivcalcError("ids: must stay as they are: the records have names")
        self._ids = names

    def update(
        self,
        norms: ArrayLike,
        noise_multiplier: float | None = None,
        indices: ArrayLike | None = None,
        *,
        rate: float | None = None,
        clip_norm: float | None = None,
        steps: int = 1,
    ) -> None:
        """Add a step that was taken.

        Args:
            norms: of each record's contribution, *had it been sampled*; shape (records,), or (len(indices),). Zeros for
                records that were not drawn make ε far too small, and nothing shows it. With a clip norm, given here or
                to the constructor, as they are before clipping, or after. Without one, those of clipped (and projected)
                contributions over the clip norm, in [0, 1].
            noise_multiplier: of this step, if it differs from the constructor's.
            indices: the records whose norms are given, if not all: the sampled batch, by places in the data set, not in
                the batch. All others are charged the full clip norm (or what ``checkpoint`` declared), so that ε stays
                near the worst case; for informative numbers measure every record in each step. Where so many batches
                have one size, or so many records, that no coins of this rate drew them, this warns, once.
            rate: of this step, if it differs from the constructor's.
            clip_norm: of this step, if it differs from the constructor's.
            steps: how many steps the norms stand for; more than one makes all numbers estimates, except where no norms
                are given.

        Raises:
            PrivcalcError: if norms are negative, or not in [0, 1] without a clip norm, or an index occurs twice or is
                none.
        """
        noise = self._noise if noise_multiplier is None else errors.scale("noise_multiplier", noise_multiplier)
        if noise is None:
            raise errors.PrivcalcError("noise_multiplier = None: must be given here or to the constructor")
        q = self._rate if rate is None else errors.rate("rate", rate)
        times = errors.count("steps", steps, least=1)
        rows = None if indices is None else self._rows(indices)
        clip = self._clip if clip_norm is None else clip_norm
        own = ratios("norms", norms, self.records if rows is None else rows.size, clip)
        if rows is not None and times == 1:
            self._doubts.add(own.size, q)
        if rows is not None and self._fill is not None:
            filled = self._fill.astype(np.float64)
            filled[rows] = own
            own, rows, self._estimated = filled, None, True
        elif times > 1 and own.size:
            self._estimated = True
        self._tally.add(own, q, noise, rows, times)

    def checkpoint(self, norms: ArrayLike) -> None:
        """Declare the norms at which unobserved records are charged from now on: as for ``update``, and no bound.

        A partial update then costs as much as a full one.
        """
        self._fill = ratios("norms", norms, self.records, self._clip).copy()

    def mu(self) -> RealisedValues:
        """μ of every record: √Σ(r/z)². Exact, rounded up.

        Raises:
            PrivcalcError: for sampled steps: a sampled Gaussian has no smaller μ than an unsampled one.
        """
        if (least := min((rate for rate, _ in self._tally.steps), default=self._rate)) < 1:
            raise errors.PrivcalcError(f"rate = {least!r}: must be 1 for mu; ask for epsilon")
        return self._answer("mu", self._tally.mu(), self._tally.worst_mu())

    def plot(self, *, delta: float) -> Figure:
        """Realised ε of every record, sorted, beside the worst case: as sensitive as the records. Needs matplotlib.

        Args:
            delta: δ in (0, 1).
        """
        drawn: Figure = importlib.import_module("privcalc.pictures").realised(
            {"this run": self.epsilon(delta)}, delta=delta
        )
        return drawn  # by name: pictures are made of audits

    def epsilon(self, delta: float, *, relation: Relation = ADD_OR_REMOVE_ONE, patient: bool = False) -> RealisedValues:
        """ε of every record at δ, for the norms that were given.

        Args:
            delta: δ in [0, 1).
            relation: add-or-remove-one only.
            patient: whether every record is refined, at up to 10 ms each, even where the losses of many thousands are
                rare jumps.

        Returns:
            Upper bounds; full batch: within 1e-9. Poisson (noise multiplier ≥ 0.8): within 1e-4·ε + 1e-6,
            unless rare jumps carry the losses (q = 0.001 and one large step, say): then within 0.3 % of ε where it was
            measured (``proofs/audit_few.md``, §6).

        Raises:
            PrivcalcError: under replace-one, where the loss depends on the record that would take this one's place.
        """
        value = errors.delta("delta", delta)
        errors.check_delta(value, self.records)
        if check_relation(relation) is not ADD_OR_REMOVE_ONE:
            raise errors.PrivcalcError(
                f"relation = {relation}: must be {ADD_OR_REMOVE_ONE}: a replaced record's loss depends on the unknown "
                "replacement, whose norms were not measured"
            )
        worst = self.worst_case.epsilon(delta=value).upper if self._tally.steps else 0.0
        mu = self._tally.mu()
        found = gdp.epsilons(mu, value)  # sampling is a post-processing of the step with and without: never worse
        if value > 0 and self._tally.sampled:
            banks = self._tally.for_evaluation()
            if self._tally.steps.total() == 1:
                found = np.minimum(found, sampled.once(mu, banks[0].rate, value))
            found = sampled.epsilons(banks, value, np.minimum(found, worst), patient=patient)
        return self._answer(f"epsilon at delta = {value:g}", np.minimum(found, worst), worst)

    def quantiles(self, delta: float, levels: ArrayLike = (0.0, 0.1, 0.5, 0.9, 1.0)) -> Floats:
        """Quantiles of ε over the records; sensitive."""
        return self.epsilon(delta).quantiles(levels)

    def for_record(self, record: Any, delta: float) -> str:
        """What may be shown to this record alone."""
        position(self._ids, self.records, record)
        return self.epsilon(delta).for_record(record)

    def merge(self, other: RealisedLosses, *, disjoint: bool = False) -> RealisedLosses:
        """Merge the losses of two shards of one run: the same steps, other records.

        It is a new object, this one's records first.

        Args:
            other: of the other records, whose ids must be others.
            disjoint: instead of ids: your word that no record is in both.

        Raises:
            PrivcalcError: if the steps differ, records occur in both, or nothing says that none does. What two runs
                cost the same records is their sum, ``losses_a + losses_b``.
        """
        if not isinstance(other, RealisedLosses) or self._tally.steps != other._tally.steps:
            raise errors.PrivcalcError(
                f"other = {other!r}: must be realised losses of the same steps at the same rate, of other records; two "
                "runs of the same records add: losses_a + losses_b"
            )
        if (self._ids is None or other._ids is None) and (disjoint is not True or self._ids is not other._ids):
            raise errors.PrivcalcError(
                "ids: must be given to both, to tell whose losses they are; or, without any, disjoint=True, your word "
                "that no record is in both. Two runs of the same records add: losses_a + losses_b"
            )
        ids = None if self._ids is None or other._ids is None else np.concatenate([self._ids, other._ids])
        if ids is not None and np.unique(ids).size < ids.size:
            raise errors.PrivcalcError(
                "ids: must not be in both; two runs of the same records add: losses_a + losses_b"
            )
        return self._joined(other, self._tally.beside(other._tally), ids)

    def __add__(self, other: object) -> RealisedLosses:
        """The losses of two runs of the same records together: this one's steps and the other's; a new object.

        Raises:
            PrivcalcError: unless both have the same ids, in any order.
        """
        if not isinstance(other, RealisedLosses):
            return NotImplemented
        if self._ids is None or other._ids is None or self.records != other.records:
            raise errors.PrivcalcError(
                "ids: must be given to both, and be the same, to add up what each record lost in two runs"
            )
        here, there = np.argsort(self._ids), np.argsort(other._ids)
        if not np.array_equal(self._ids[here], other._ids[there]):
            raise errors.PrivcalcError("ids: must be the same in both, to add up what each record lost in two runs")
        order = np.empty_like(there)
        order[here] = there
        return self._joined(other, self._tally.after(other._tally, order), self._ids)

    def _joined(self, other: RealisedLosses, tally: Tally, ids: NDArray[Any] | None) -> RealisedLosses:
        """The audit of both, which know the same run."""
        found = RealisedLosses(tally.records, self._noise, self._rate, clip_norm=self._clip, ids=ids)
        found._tally, found._doubts = tally, self._doubts.and_those(other._doubts, tally.records)
        found._estimated = self._estimated or other._estimated
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file (``.npz``), all of it or nothing. The file is sensitive and says so."""
        steps, arrays = self._tally.saved()
        settings = {"noise_multiplier": self._noise, "rate": self._rate, "clip_norm": self._clip}
        header = {"records": self.records, **settings, "estimated": self._estimated, **self._doubts.saved, **steps}
        for name, value in (("ids", self._ids), ("fill", self._fill)):
            if value is not None:
                arrays[name] = value
        store.write(path, header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what ``save`` wrote.

        Raises:
            PrivcalcError: if the file is something else, of another version's format, or was changed.
        """
        header, arrays = store.read(path)
        try:
            return cls._restored(header, arrays)
        except (ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
            raise errors.PrivcalcError(
                f"path = {str(path)!r}: must be as RealisedLosses.save wrote it: {error}"
            ) from error

    @classmethod
    def _restored(cls, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """From what a file holds."""
        settings = {name: header[name] for name in ("records", "noise_multiplier", "rate", "clip_norm")}
        found = cls(**settings, ids=arrays.get("ids"))
        found._tally = Tally.restored(found.records, header, arrays)
        found._estimated, found._doubts = bool(header["estimated"]), Doubts.restored(found.records, header)
        if "fill" in arrays:
            found._fill = ratios("fill", arrays["fill"], found.records)
        return found

    def __repr__(self) -> str:
        rates = " and ".join(f"{rate:g}" for rate in sorted({rate for rate, _ in self._tally.steps} or {self._rate}))
        steps = f"{self._tally.steps.total()} steps at rate {rates}"
        return f"RealisedLosses({self.records} records, {steps}, {self.grade}; {WARNING})"

    def _rows(self, indices: ArrayLike) -> Indices:
        rows = errors.array("indices", indices)
        if rows.size == 0:
            rows = rows.astype(np.intp)
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise errors.PrivcalcError("indices: must be whole numbers, shape (n,)")
        ascending = bool((rows[1:] > rows[:-1]).all())
        if rows.size and (
            rows.min() < 0 or rows.max() >= self.records or not (ascending or np.unique(rows).size == rows.size)
        ):
            raise errors.PrivcalcError(f"indices: must be distinct and from 0 to {self.records - 1}")
        return rows.astype(np.intp, copy=False)

    def _answer(self, what: str, values: Floats, worst: float) -> RealisedValues:
        for doubt in (*self._doubts.untold(), *([] if self._tally.steps else [EMPTY])):
            errors.warn(doubt)
        return RealisedValues(what, values, worst, self.grade, self._ids)
