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
from privcalc.audit.sums import Indices, Moments, fresh
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.records import few as norm_few
from privcalc.numerics.records import full as gdp_batch
from privcalc.numerics.records import many as norm_batch
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation, check_relation
from privcalc.run import Run

__all__ = ["RealisedLosses"]


class RealisedLosses(Sensitive):
    """Every record's own loss along the run that happened, under add-or-remove-one; streaming, at most 200 bytes per record.

    A record whose clipped contribution has norm r·clip is, in that step, protected by noise multiplier z/r. Full batches:
    its run is exactly μ-GDP, μ² = Σ(r/z)². Poisson sampling: its own transform, both directions, by its largest steps and
    Chebyshev moments of the others.
    The numbers are upper bounds for this sequence of norms. As the norms depend on the data *they are no guarantee*, whatever
    their grade (AdaMix's Proposition 14 is false): ``proofs/audits.md``.

    Args:
        records: how many records.
        noise_multiplier: noise standard deviation / clip norm of every step, unless ``update`` gives it.
        rate: probability with which each record takes part in a step; 1 for full batches.
        ids: names of the records, one each, distinct.

    Example:
        >>> import numpy as np
        >>> import privcalc as pc
        >>> losses = pc.RealisedLosses(records=3, noise_multiplier=20.0)
        >>> for _ in range(206):
        ...     losses.update(np.array([1.0, 0.5, 0.0]))
        >>> losses.epsilon(delta=1e-5)
        RealisedValues(epsilon at delta = 1e-05 of 3 records, add-or-remove-one, full pass;
        SENSITIVE: depends on the private data; no guarantee; not for publication)
        >>> print(np.asarray(losses.epsilon(delta=1e-5)).round(6), np.asarray(losses.mu()).round(6))
        [2.992983 1.3788   0.      ] [0.717635 0.358818 0.      ]
    """

    def __init__(
        self, records: int, noise_multiplier: float | None = None, rate: float = 1.0, *, ids: ArrayLike | None = None
    ) -> None:
        self._size = errors.count("records", records, least=1)
        self._noise = None if noise_multiplier is None else errors.scale("noise_multiplier", noise_multiplier)
        self._rate = errors.rate("rate", rate)
        self._ids = None if ids is None else errors.array("ids", ids)
        if self._ids is not None and (
            self._ids.dtype.kind not in "iufUS"  # which can be saved
            or self._ids.shape != (self._size,)
            or np.unique(self._ids).size != self._size
            or bool((self._ids != self._ids).any())
        ):
            raise errors.PrivcalcError(f"ids: must be {self._size} distinct names, texts or numbers")
        self._banks: list[Moments] = []
        self._steps: dict[float, int] = {}
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
        return Run.of(PoissonSampled(Gaussian(noise), self._rate) * count for noise, count in self._steps.items())

    def update(
        self, norm_ratios: ArrayLike, noise_multiplier: float | None = None, indices: ArrayLike | None = None, *, steps: int = 1
    ) -> None:
        """Add a step that was taken.

        Args:
            norm_ratios: norm of each record's clipped (and projected) contribution over the clip norm, in [0, 1], *had it been
                sampled*; shape (records,), or (len(indices),).
            noise_multiplier: of this step, if it differs from the constructor's.
            indices: the records whose norms are given, if not all: those of the sampled batch. The others are charged the
                clip norm, or what ``checkpoint`` declared.
            steps: how many steps the norms stand for; more than one makes all numbers estimates, except where no norms are given.

        Raises:
            PrivcalcError: if norms are not in [0, 1], or an index occurs twice or is none.
        """
        noise = self._noise if noise_multiplier is None else errors.scale("noise_multiplier", noise_multiplier)
        if noise is None:
            raise errors.PrivcalcError("noise_multiplier = None: must be given here or to the constructor")
        times = errors.count("steps", steps, least=1)
        rows = None if indices is None else self._rows(indices)
        own = ratios("norm_ratios", norm_ratios, self._size if rows is None else rows.size)
        scale = 1 / (noise * noise)
        bank = self._bank(scale * (1 + 2.0**-21))  # x is rounded up to single precision
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
        self._steps[noise] = self._steps.get(noise, 0) + times

    def checkpoint(self, norm_ratios: ArrayLike) -> None:
        """Declare the ratios at which records that are not observed are charged from now on: an estimate, no bound.

        A partial update then costs as much as a full one.
        """
        self._fill = ratios("norm_ratios", norm_ratios, self._size).copy()

    def mu(self) -> RealisedValues:
        """μ of every record: √Σ(r/z)². Exact, rounded up.

        Raises:
            PrivcalcError: for sampled steps: a sampled Gaussian has no smaller μ than an unsampled one.
        """
        if self._rate < 1:
            raise errors.PrivcalcError(f"rate = {self._rate!r}: must be 1 for mu; ask for epsilon")
        worst = math.sqrt(math.fsum(count / noise**2 for noise, count in self._steps.items()))
        return self._answer("mu", self._mu(), worst)

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
        if self._rate < 1 and value > 0 and self._banks:
            unseen = self._seen < self._partial
            top = [1 / noise**2 for noise in self._steps]
            banks = [bank.bank(unseen, max((x for x in top if x <= bank.domain), default=0.0)) for bank in self._banks]
            many, off = norm_batch.epsilons([bank.folded() for bank in banks], self._rate, value)
            found = np.minimum(found, many)
            # Where few steps carry the loss; a record that always has the clip norm is the worst case.
            own = math.sqrt(math.fsum(count / noise**2 for noise, count in self._steps.items()))
            off[(mu >= own * (1 - 1e-6))] = 0.0
            found = norm_few.epsilons(banks, self._rate, value, found, off, patient=patient)
        return self._answer(f"epsilon at delta = {value:g}", np.minimum(found, worst), worst)

    def quantiles(self, delta: float, levels: ArrayLike = (0.0, 0.1, 0.5, 0.9, 1.0)) -> Floats:
        """Quantiles of ε over the records; sensitive."""
        return self.epsilon(delta).quantiles(levels)

    def for_record(self, record: Any, delta: float) -> str:
        """What may be shown to this record alone."""
        position(self._ids, self._size, record)
        return self.epsilon(delta).for_record(record)

    def merge(self, other: RealisedLosses) -> RealisedLosses:
        """The losses of two shards of one run together: the same steps, other records; a new object, this one's records first.

        Raises:
            PrivcalcError: if the steps differ, or records occur in both.
        """
        if not isinstance(other, RealisedLosses) or (self._rate, self._steps) != (other._rate, other._steps):
            raise errors.PrivcalcError(f"other = {other!r}: must be realised losses of the same steps at the same rate")
        if (self._ids is None) != (other._ids is None):
            raise errors.PrivcalcError("other: must have ids where this one has, and none where it has none")
        ids = None if self._ids is None else np.concatenate([self._ids, other._ids])
        found = RealisedLosses(self._size + other._size, self._noise, self._rate, ids=ids)
        found._steps, found._estimated = dict(self._steps), self._estimated or other._estimated
        found._partial = max(self._partial, other._partial)
        # A shard with fewer partial steps saw all of its records in the others.
        found._seen = np.concatenate([part._seen + np.int32(found._partial - part._partial) for part in (self, other)])
        for domain in sorted({bank.domain for bank in (*self._banks, *other._banks)}):
            mine, theirs = (shard._bank_of(domain) or fresh(shard._size, shard._rate == 1, domain) for shard in (self, other))
            found._banks.append(mine.beside(theirs))
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file (``.npz``), all of it or nothing. The file is sensitive and says so."""
        header = {
            "records": self._size, "noise_multiplier": self._noise, "rate": self._rate,
            "steps": list(self._steps.items()), "partial": self._partial, "estimated": self._estimated,
            "banks": [[bank.domain, bank.spread, bank.count] for bank in self._banks],
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
        found = cls(header["records"], header["noise_multiplier"], header["rate"], ids=arrays.get("ids"))
        for noise, count in header["steps"]:
            found._steps[errors.scale("noise_multiplier", noise)] = errors.count("steps", count, least=1)
        found._partial, found._estimated = errors.count("partial", header["partial"]), bool(header["estimated"])
        found._seen = store.like(found._seen, arrays["seen"])
        if "fill" in arrays:
            found._fill = ratios("fill", arrays["fill"], found._size)
        for k, (domain, spread, count) in enumerate(header["banks"]):
            bank = fresh(found._size, found._rate == 1, errors.positive("domain", domain))
            bank.sums, bank.largest = store.like(bank.sums, arrays[f"sums{k}"]), store.like(bank.largest, arrays[f"largest{k}"])
            bank.shared = store.like(bank.shared, arrays[f"shared{k}"])
            bank.spread, bank.count = errors.epsilon("spread", spread), errors.count("count", count)
            found._banks.append(bank)
        return found

    def __repr__(self) -> str:
        count = sum(self._steps.values())
        return f"RealisedLosses({self._size} records, {count} steps at rate {self._rate:g}, {self.grade}; {WARNING})"

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

    def _bank(self, x: float) -> Moments:
        """The sums for steps with ratios² / noise² up to x; one more per factor of two of less noise."""
        for bank in self._banks:
            if x <= bank.domain:
                return bank
        domain = self._banks[-1].domain if self._banks else x
        while domain < x:
            domain *= 4
        self._banks.append(fresh(self._size, self._rate == 1, domain))
        return self._banks[-1]

    def _bank_of(self, domain: float) -> Moments | None:
        return next((bank for bank in self._banks if bank.domain == domain), None)

    def _mu(self) -> Floats:
        total = np.zeros(self._size)
        for bank in self._banks:
            total += bank.total() * (1 + (bank.count + 16) * UNIT) + bank.spread * (bank.count + 16) * UNIT
        return np.sqrt(total) * (1 + 4 * UNIT)

    def _answer(self, what: str, values: Floats, worst: float) -> RealisedValues:
        return RealisedValues(what, values, worst, self.grade, self._ids)
