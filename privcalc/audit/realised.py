"""Realised losses: what the run that happened cost each record, from the norms of its clipped contributions."""

from __future__ import annotations

import math
import os
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privcalc import errors
from privcalc.audit import store
from privcalc.audit.sensitive import ESTIMATE, FILLED, FULL, WARNING, RealisedValues, Sensitive, position, ratios
from privcalc.audit.sums import Indices, Moments
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.records import few as norm_few
from privcalc.numerics.records import full as gdp_batch
from privcalc.numerics.records import many as norm_batch
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation, check_relation
from privcalc.run import Run
from privcalc.tripwire import Sizes

__all__ = ["RealisedLosses"]


class RealisedLosses(Sensitive):
    """Every record's own loss along the run that happened, under add-or-remove-one; streaming, at most 200 bytes per record.

    A record whose clipped contribution has norm r·clip is, in that step, protected by noise multiplier z/r. Full batches:
    its run is exactly μ-GDP, μ² = Σ(r/z)². Poisson sampling: its own transform, both directions, by its largest steps and
    Chebyshev moments of the others.
    The numbers are upper bounds for this sequence of norms. As the norms depend on the data *they are no guarantee*, whatever
    their grade (AdaMix's Proposition 14 is false): ``proofs/audits.md``. What several runs cost the same records together is
    ``losses_a + losses_b``.

    Args:
        records: how many records.
        noise_multiplier: noise standard deviation / clip norm of every step, unless ``update`` gives it.
        rate: probability with which each record takes part in a step, unless ``update`` gives it; 1 for full batches.
        clip_norm: the clip norm of every step: ``update`` then takes norms as they are. None: it takes norms over the clip norm.
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

    def __init__(
        self,
        records: int,
        noise_multiplier: float | None = None,
        rate: float = 1.0,
        *,
        clip_norm: float | None = None,
        ids: ArrayLike | None = None,
    ) -> None:
        self._size = errors.count("records", records, least=1)
        self._noise = None if noise_multiplier is None else errors.scale("noise_multiplier", noise_multiplier)
        self._rate = errors.rate("rate", rate)
        self._clip = None if clip_norm is None else errors.scale("clip_norm", clip_norm)
        self._ids = None if ids is None else errors.array("ids", ids)
        if self._ids is not None and (
            self._ids.dtype.kind not in "iufUS"  # which can be saved
            or self._ids.shape != (self._size,)
            or np.unique(self._ids).size != self._size
            or bool((self._ids != self._ids).any())
        ):
            raise errors.PrivcalcError(f"ids: must be {self._size} distinct names, texts or numbers")
        self._banks: list[Moments] = []
        self._steps: dict[tuple[float, float], int] = {}  # by rate and noise multiplier
        self._sizes: dict[float, Sizes] = {}
        self._doubt: str | None = None
        self._partial = 0  # steps of which not every record was seen
        self._seen = np.zeros(self._size, dtype=np.int32)  # in how many of those a record was seen
        self._fill: NDArray[np.floating[Any]] | None = None
        self._estimated = False

    @property
    def records(self) -> int:
        """How many records."""
        return self._size

    @property
    def nbytes(self) -> int:
        """Memory of everything that grows with the number of records."""
        return self._seen.nbytes + sum(bank.nbytes for bank in self._banks)

    @property
    def grade(self) -> str:
        """How the numbers came about; one of three, see :class:`RealisedValues`."""
        if self._estimated:
            return ESTIMATE
        return FILLED if self._partial and bool((self._seen < self._partial).any()) else FULL

    @property
    def worst_case(self) -> Run:
        """The run as the accountant knows it: a record that always has the clip norm."""
        return Run.of(PoissonSampled(Gaussian(noise), rate) * count for (rate, noise), count in self._steps.items())

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
            norms: of each record's contribution, *had it been sampled*; shape (records,), or (len(indices),). With a clip norm,
                given here or to the constructor, as they are before clipping, or after. Without one, those of clipped (and
                projected) contributions over the clip norm, in [0, 1].
            noise_multiplier: of this step, if it differs from the constructor's.
            indices: the records whose norms are given, if not all: those of the sampled batch. All others are charged the full
                clip norm (or what ``checkpoint`` declared), so that ε stays near the worst case; for informative numbers measure
                every record in each step. Where so many batches have one size that coins are in doubt, this warns, as do answers.
            rate: of this step, if it differs from the constructor's.
            clip_norm: of this step, if it differs from the constructor's.
            steps: how many steps the norms stand for; more than one makes all numbers estimates, except where no norms are given.

        Raises:
            PrivcalcError: if norms are negative, or not in [0, 1] without a clip norm, or an index occurs twice or is none.
        """
        noise = self._noise if noise_multiplier is None else errors.scale("noise_multiplier", noise_multiplier)
        if noise is None:
            raise errors.PrivcalcError("noise_multiplier = None: must be given here or to the constructor")
        q = self._rate if rate is None else errors.rate("rate", rate)
        times = errors.count("steps", steps, least=1)
        rows = None if indices is None else self._rows(indices)
        clip = self._clip if clip_norm is None else clip_norm
        own = ratios("norms", norms, self._size if rows is None else rows.size, clip)
        if rows is not None and times == 1:
            self._look(q, rows.size)
        scale = 1 / (noise * noise)
        bank = self._bank(q, scale * (1 + 2.0**-21))  # x is rounded up to single precision
        if rows is not None and self._fill is not None:
            filled = self._fill.astype(np.float64)
            filled[rows] = own
            own, rows, self._estimated = filled, None, True
        elif times > 1 and own.size:
            self._estimated = True
        if rows is None:
            bank.add(own, scale, times, None, 0.0)
        else:
            bank.share(scale, times)
            bank.add(own, scale, times, rows, scale)
            self._partial += times
            self._seen[rows] += times
        bank.count += times
        self._steps[q, noise] = self._steps.get((q, noise), 0) + times

    def _look(self, rate: float, size: int) -> None:
        """Whether batches may have been drawn by coins."""
        sizes = self._sizes.setdefault(rate, Sizes(rate, self._size))
        sizes.add(size)
        if self._doubt is None and sizes.doubt is not None:
            self._doubt = (
                f"{sizes.doubt}. If the indices were not the batches but records that you chose to measure, make an audit of "
                "these alone"
            )
            errors.warn(self._doubt)

    def checkpoint(self, norms: ArrayLike) -> None:
        """Declare the norms, as for ``update``, at which records that are not observed are charged from now on: no bound.

        A partial update then costs as much as a full one.
        """
        self._fill = ratios("norms", norms, self._size, self._clip).copy()

    def mu(self) -> RealisedValues:
        """μ of every record: √Σ(r/z)². Exact, rounded up.

        Raises:
            PrivcalcError: for sampled steps: a sampled Gaussian has no smaller μ than an unsampled one.
        """
        if (least := min((rate for rate, _ in self._steps), default=self._rate)) < 1:
            raise errors.PrivcalcError(f"rate = {least!r}: must be 1 for mu; ask for epsilon")
        return self._answer("mu", self._mu(), self._worst_mu())

    def epsilon(self, delta: float, *, relation: Relation = ADD_OR_REMOVE_ONE, patient: bool = False) -> RealisedValues:
        """ε of every record at δ, for the norms that were given.

        Args:
            delta: δ in [0, 1).
            relation: add-or-remove-one only.
            patient: whether every record is refined, at up to 10 ms each, even where the losses of many thousands are rare jumps.

        Returns:
            Upper bounds; full batch: within 1e-9. Poisson (noise multiplier ≥ 0.8): within 1e-4·ε + 1e-6, unless few rare steps
            carry the losses of more than 5,000 records: then within five times that for up to 30,000, and usually within a
            few percent for more, if not patient (``proofs/audit_few.md``, §5).

        Raises:
            PrivcalcError: under replace-one, where the loss depends on the record that would take this one's place.
        """
        value = errors.delta("delta", delta)
        if check_relation(relation) is not ADD_OR_REMOVE_ONE:
            raise errors.PrivcalcError(
                f"relation = {relation}: must be {ADD_OR_REMOVE_ONE}: a replaced record's loss depends on the unknown "
                "replacement, whose norms were not measured"
            )
        worst = self.worst_case.epsilon(delta=value).upper if self._steps else 0.0
        mu = self._mu()
        found = gdp_batch.epsilons(mu, value)  # sampling is a post-processing of the step with and without: never worse
        if value > 0 and any(rate < 1 for rate, _ in self._steps):
            unseen = self._seen < self._partial
            banks = [bank.bank(unseen, self._most(bank)) for bank in self._banks]
            many, off = norm_batch.epsilons([bank.folded() for bank in banks], value)
            found = np.minimum(found, many)
            # Where few steps carry the loss; a record that always has the clip norm is the worst case.
            off[mu >= self._worst_mu() * (1 - 1e-6)] = 0.0
            found = norm_few.epsilons(banks, value, found, off, patient=patient)
        return self._answer(f"epsilon at delta = {value:g}", np.minimum(found, worst), worst)

    def quantiles(self, delta: float, levels: ArrayLike = (0.0, 0.1, 0.5, 0.9, 1.0)) -> Floats:
        """Quantiles of ε over the records; sensitive."""
        return self.epsilon(delta).quantiles(levels)

    def for_record(self, record: Any, delta: float) -> str:
        """What may be shown to this record alone."""
        position(self._ids, self._size, record)
        return self.epsilon(delta).for_record(record)

    def merge(self, other: RealisedLosses, *, disjoint: bool = False) -> RealisedLosses:
        """The losses of two shards of one run together: the same steps, other records; a new object, this one's records first.

        Args:
            other: of the other records, whose ids must be others.
            disjoint: instead of ids: your word that no record is in both.

        Raises:
            PrivcalcError: if the steps differ, records occur in both, or nothing says that none does. What two runs cost the same
                records is their sum, ``losses_a + losses_b``.
        """
        if not isinstance(other, RealisedLosses) or self._steps != other._steps:
            raise errors.PrivcalcError(
                f"other = {other!r}: must be realised losses of the same steps at the same rate, of other records; two runs of "
                "the same records add: losses_a + losses_b"
            )
        if (self._ids is None or other._ids is None) and (disjoint is not True or self._ids is not other._ids):
            raise errors.PrivcalcError(
                "ids: must be given to both, to tell whose losses they are; or, without any, disjoint=True, your word that no "
                "record is in both. Two runs of the same records add: losses_a + losses_b"
            )
        ids = None if self._ids is None or other._ids is None else np.concatenate([self._ids, other._ids])
        if ids is not None and np.unique(ids).size < ids.size:
            raise errors.PrivcalcError("ids: must not be in both; two runs of the same records add: losses_a + losses_b")
        found = self._like(self._size + other._size, ids)
        found._steps, found._estimated = dict(self._steps), self._estimated or other._estimated
        found._doubt = self._doubt or other._doubt
        found._partial = max(self._partial, other._partial)
        # A shard with fewer partial steps saw all of its records in the others.
        found._seen = np.concatenate([part._seen + np.int32(found._partial - part._partial) for part in (self, other)])
        for kind in sorted({(bank.rate, bank.domain) for bank in (*self._banks, *other._banks)}):
            mine, theirs = (shard._bank_of(*kind) or Moments.empty(shard._size, *kind) for shard in (self, other))
            found._banks.append(mine.beside(theirs))
        return found

    def __add__(self, other: object) -> RealisedLosses:
        """The losses of two runs of the same records together: this one's steps and the other's; a new object.

        Raises:
            PrivcalcError: unless both have the same ids, in any order.
        """
        if not isinstance(other, RealisedLosses):
            return NotImplemented
        if self._ids is None or other._ids is None or self._size != other._size:
            raise errors.PrivcalcError("ids: must be given to both, and be the same, to add up what each record lost in two runs")
        here, there = np.argsort(self._ids), np.argsort(other._ids)
        if not np.array_equal(self._ids[here], other._ids[there]):
            raise errors.PrivcalcError("ids: must be the same in both, to add up what each record lost in two runs")
        order = np.empty_like(there)
        order[here] = there
        found = self._like(self._size, self._ids)
        found._estimated, found._doubt = self._estimated or other._estimated, self._doubt or other._doubt
        found._partial, found._seen = self._partial + other._partial, self._seen + other._seen[order]
        for run in (self, other):
            for step, count in run._steps.items():
                found._steps[step] = found._steps.get(step, 0) + count
        for kind in sorted({(bank.rate, bank.domain) for bank in (*self._banks, *other._banks)}):
            first, then = (run._bank_of(*kind) or Moments.empty(run._size, *kind) for run in (self, other))
            found._banks.append(first.after(then, order))
        return found

    def _like(self, size: int, ids: NDArray[Any] | None) -> RealisedLosses:
        """Nothing yet, of so many records."""
        return RealisedLosses(size, self._noise, self._rate, clip_norm=self._clip, ids=ids)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file (``.npz``), all of it or nothing. The file is sensitive and says so."""
        header = {
            "records": self._size, "noise_multiplier": self._noise, "rate": self._rate, "clip_norm": self._clip,
            "steps": [[*step, count] for step, count in self._steps.items()],
            "partial": self._partial, "estimated": self._estimated, "doubt": self._doubt,
            "banks": [[bank.rate, bank.domain, bank.spread, bank.count] for bank in self._banks],
        }  # fmt: skip
        arrays: dict[str, Any] = {"seen": self._seen}
        for k, bank in enumerate(self._banks):
            bank.settle()
            arrays |= {f"sums{k}": bank.sums, f"largest{k}": bank.largest, f"shared{k}": bank.shared}
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
            raise errors.PrivcalcError(f"path = {str(path)!r}: must be as RealisedLosses.save wrote it: {error}") from error

    @classmethod
    def _restored(cls, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """From what a file holds."""
        settings = {name: header[name] for name in ("records", "noise_multiplier", "rate", "clip_norm")}
        found = cls(**settings, ids=arrays.get("ids"))
        for rate, noise, count in header["steps"]:
            step = errors.rate("rate", rate), errors.scale("noise_multiplier", noise)
            found._steps[step] = errors.count("steps", count, least=1)
        found._partial, found._estimated = errors.count("partial", header["partial"]), bool(header["estimated"])
        found._doubt = None if header["doubt"] is None else str(header["doubt"])
        found._seen = store.like(found._seen, arrays["seen"])
        if "fill" in arrays:
            found._fill = ratios("fill", arrays["fill"], found._size)
        for k, (rate, domain, spread, count) in enumerate(header["banks"]):
            bank = Moments.empty(found._size, errors.rate("rate", rate), errors.positive("domain", domain))
            bank.sums, bank.largest = store.like(bank.sums, arrays[f"sums{k}"]), store.like(bank.largest, arrays[f"largest{k}"])
            bank.shared = store.like(bank.shared, arrays[f"shared{k}"])
            bank.spread, bank.count = errors.epsilon("spread", spread), errors.count("count", count)
            found._banks.append(bank)
        return found

    def __repr__(self) -> str:
        count = sum(self._steps.values())
        rates = " and ".join(f"{rate:g}" for rate in sorted({rate for rate, _ in self._steps} or {self._rate}))
        return f"RealisedLosses({self._size} records, {count} steps at rate {rates}, {self.grade}; {WARNING})"

    def _rows(self, indices: ArrayLike) -> Indices:
        rows = errors.array("indices", indices)
        if rows.size == 0:
            rows = rows.astype(np.intp)
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise errors.PrivcalcError("indices: must be whole numbers, shape (n,)")
        ascending = bool((rows[1:] > rows[:-1]).all())
        if rows.size and (rows.min() < 0 or rows.max() >= self._size or not (ascending or np.unique(rows).size == rows.size)):
            raise errors.PrivcalcError(f"indices: must be distinct and from 0 to {self._size - 1}")
        return rows.astype(np.intp, copy=False)

    def _bank(self, rate: float, x: float) -> Moments:
        """The sums for steps at a rate with ratios² / noise² up to x; one more per factor of two of less noise."""
        banks = [bank for bank in self._banks if bank.rate == rate]
        for bank in banks:
            if x <= bank.domain:
                return bank
        domain = banks[-1].domain if banks else x
        while domain < x:
            domain *= 4
        self._banks.append(Moments.empty(self._size, rate, domain))
        return self._banks[-1]

    def _bank_of(self, rate: float, domain: float) -> Moments | None:
        return next((bank for bank in self._banks if (bank.rate, bank.domain) == (rate, domain)), None)

    def _most(self, bank: Moments) -> float:
        """The largest x that a step in these sums can have."""
        own = [1 / noise**2 for rate, noise in self._steps if rate == bank.rate]
        return max((x for x in own if x <= bank.domain), default=0.0)

    def _worst_mu(self) -> float:
        return math.sqrt(math.fsum(count / noise**2 for (_, noise), count in self._steps.items()))

    def _mu(self) -> Floats:
        total = np.zeros(self._size)
        for bank in self._banks:
            total += bank.total() * (1 + (bank.count + 16) * UNIT) + bank.spread * (bank.count + 16) * UNIT
        return np.sqrt(total) * (1 + 4 * UNIT)

    def _answer(self, what: str, values: Floats, worst: float) -> RealisedValues:
        if self._doubt is not None:
            errors.warn(self._doubt)
        return RealisedValues(what, values, worst, self.grade, self._ids)
