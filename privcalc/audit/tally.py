"""The tally of a run's steps and of each record's norms in them; of several runs and of shards, too.

With the steps comes what contradicts a claim: batches that no coins of the stated rate drew (``proofs/audits.md``, §1).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privcalc import errors
from privcalc.audit import store
from privcalc.audit.sensitive import ratios
from privcalc.audit.sums import Bank, Indices, Moments
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.numerics.floats import UNIT, Floats
from privcalc.run import Run
from privcalc.tripwire import Sizes

CHOSEN = "If the indices were not the batches but records that you chose to measure, make an audit of these alone"
"""What else batches of one size may be."""

EMPTY = (
    "losses: have no step, so that ε is 0 for all: were they made anew after the run? Each step of it wants an update"
)
"""Of answers before the first step."""


class Doubts:
    """The doubts that an audit found, each said once: when found, or with the first answer after loading or joining.

    Args:
        records: how many.
        before: what was found before it was saved, or joined.

    Attributes:
        found: all that was found, in words.
    """

    def __init__(self, records: int, before: tuple[str, ...] = ()) -> None:
        self.found = before
        self._untold, self._told = before, False
        self._records = records
        self._sizes: dict[float, Sizes] = {}

    def add(self, size: int, rate: float) -> None:
        """The size of one more batch, and the rate at which it was drawn."""
        sizes = self._sizes.setdefault(rate, Sizes(rate, self._records))
        sizes.add(size)
        if sizes.doubt is not None and not self._told:
            self._told = True
            self.found += (f"{sizes.doubt}. {CHOSEN}",)
            errors.warn(self.found[-1])

    def and_those(self, other: Doubts, records: int) -> Doubts:
        """Both, for what was measured, of so many records together; steps that follow are looked at anew."""
        return Doubts(records, tuple(dict.fromkeys([*self.found, *other.found])))

    def untold(self) -> tuple[str, ...]:
        """What was found and not yet said here: it is said now."""
        untold, self._untold = self._untold, ()
        return untold

    @property
    def saved(self) -> dict[str, Any]:
        """The doubts as a file's header keeps them."""
        return {"doubt": list(self.found)}

    @classmethod
    def restored(cls, records: int, saved: Mapping[str, Any]) -> Self:
        """From a file, of which older ones have one doubt at most."""
        told = saved["doubt"]
        return cls(records, () if told is None else (told,) if isinstance(told, str) else tuple(map(str, told)))


__all__ = ["EMPTY", "Doubts", "Tally", "totals"]


class Tally:
    """Steps, and for each rate and size of noise the sums over them.

    Attributes:
        records: how many.
        steps: how many there were, by rate and noise multiplier.
        banks: the sums.
        partial: the number of steps of which not every record was seen.
        seen: in how many of those each record was seen.
    """

    def __init__(self, records: int) -> None:
        self.records = records
        self.steps: Counter[tuple[float, float]] = Counter()
        self.banks: list[Moments] = []
        self.partial = 0
        self.seen = np.zeros(records, dtype=np.int32)

    def add(self, ratios: NDArray[Any], rate: float, noise: float, rows: Indices | None, times: int) -> None:
        """Add a step, some times, with all records' norms over the clip norm, or some rows': others count as 1."""
        scale = 1 / (noise * noise)
        bank = self._bank(rate, scale * (1 + 2.0**-21))  # x is rounded up to single precision
        if rows is None:
            bank.add(ratios, scale, times, None, 0.0)
        else:
            bank.share(scale, times)
            bank.add(ratios, scale, times, rows, scale)
            self.partial += times
            self.seen[rows] += times
        bank.count += times
        self.steps[rate, noise] += times

    def beside(self, other: Tally) -> Tally:
        """The same steps of these records and others, these first."""
        found = Tally(self.records + other.records)
        found.steps, found.partial = Counter(self.steps), max(self.partial, other.partial)
        # A shard with fewer partial steps saw all of its records in the others.
        found.seen = np.concatenate([part.seen + np.int32(found.partial - part.partial) for part in (self, other)])
        found.banks = [mine.beside(theirs) for mine, theirs in self._pairs(other)]
        return found

    def after(self, other: Tally, order: Indices) -> Tally:
        """The steps of two runs of the same records, which have another order in the other."""
        found = Tally(self.records)
        found.steps, found.partial = self.steps + other.steps, self.partial + other.partial
        found.seen = self.seen + other.seen[order]
        found.banks = [first.after(then, order) for first, then in self._pairs(other)]
        return found

    def _pairs(self, other: Tally) -> list[tuple[Moments, Moments]]:
        """Of the same rate and domain each, ascending."""
        kinds = sorted({(bank.rate, bank.domain) for bank in (*self.banks, *other.banks)})
        return [(self._of(*kind), other._of(*kind)) for kind in kinds]

    def _of(self, rate: float, domain: float) -> Moments:
        found = (bank for bank in self.banks if (bank.rate, bank.domain) == (rate, domain))
        return next(found, None) or Moments.empty(self.records, rate, domain)

    def _bank(self, rate: float, x: float) -> Moments:
        """The sums for steps at a rate with ratios² / noise² up to x; one more per factor of two of less noise."""
        domains = [bank.domain for bank in self.banks if bank.rate == rate]
        domain = next((domain for domain in domains if x <= domain), None)
        if domain is not None:
            return self._of(rate, domain)
        domain = domains[-1] if domains else x
        while domain < x:
            domain *= 4
        self.banks.append(Moments.empty(self.records, rate, domain))
        return self.banks[-1]

    @property
    def worst(self) -> Run:
        """The run of a record that always has the clip norm."""
        return Run.of(PoissonSampled(Gaussian(noise), rate) * count for (rate, noise), count in self.steps.items())

    @property
    def sampled(self) -> bool:
        """Whether a step was."""
        return any(rate < 1 for rate, _ in self.steps)

    @property
    def unseen(self) -> NDArray[np.bool_]:
        """Which records were not seen in every step."""
        return np.asarray(self.seen < self.partial)

    @property
    def nbytes(self) -> int:
        """Memory of everything that grows with the number of records."""
        return self.seen.nbytes + sum(bank.nbytes for bank in self.banks)

    def mu(self) -> Floats:
        """√Σ(r/z)² of every record, rounded up."""
        total = np.zeros(self.records)
        for bank in self.banks:
            total += bank.total() * (1 + (bank.count + 16) * UNIT) + bank.spread * (bank.count + 16) * UNIT
        return np.sqrt(total) * (1 + 4 * UNIT)

    def worst_mu(self) -> float:
        """The same of a record that always has the clip norm."""
        return math.sqrt(math.fsum(count / noise**2 for (_, noise), count in self.steps.items()))

    def for_evaluation(self) -> list[Bank]:
        """The sums; unseen records reach as far as a step does."""
        unseen, found = self.unseen, []
        for bank in self.banks:
            own = [1 / noise**2 for rate, noise in self.steps if rate == bank.rate]
            found.append(bank.bank(unseen, max((x for x in own if x <= bank.domain), default=0.0)))
        return found

    def saved(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """As the header and the arrays of a file."""
        header = {
            "steps": [[*step, count] for step, count in self.steps.items()],
            "partial": self.partial,
            "banks": [[bank.rate, bank.domain, bank.spread, bank.count] for bank in self.banks],
        }
        arrays: dict[str, Any] = {"seen": self.seen}
        for k, bank in enumerate(self.banks):
            bank.settle()
            arrays |= {f"sums{k}": bank.sums, f"largest{k}": bank.largest, f"shared{k}": bank.shared}
        return header, arrays

    @classmethod
    def restored(cls, records: int, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Tally:
        """From what a file holds.

        Raises:
            PrivcalcError, ValueError, KeyError, TypeError: if that does not fit.
        """
        found = cls(records)
        for rate, noise, count in header["steps"]:
            step = errors.rate("rate", rate), errors.scale("noise_multiplier", noise)
            found.steps[step] = errors.count("steps", count, least=1)
        found.partial, found.seen = errors.count("partial", header["partial"]), store.like(found.seen, arrays["seen"])
        for k, (rate, domain, spread, count) in enumerate(header["banks"]):
            bank = Moments.empty(records, errors.rate("rate", rate), errors.positive("domain", domain))
            bank.sums, bank.largest = (
                store.like(bank.sums, arrays[f"sums{k}"]),
                store.like(bank.largest, arrays[f"largest{k}"]),
            )
            bank.shared = store.like(bank.shared, arrays[f"shared{k}"])
            bank.spread, bank.count = errors.epsilon("spread", spread), errors.count("count", count)
            found.banks.append(bank)
        return found


def totals(norms: ArrayLike, persons: ArrayLike) -> Floats:
    """Bound each person's contributions by the sum of their norms, for :meth:`privcalc.RealisedLosses.update`.

    Args:
        norms: of each record's contribution, over one record's clip norm: in [0, 1].
        persons: whose each record is.

    Returns:
        A number per person, rounded up, in the order of ``numpy.unique(persons)``, which are the ``ids`` to give.

    Example:
        >>> import numpy as np
        >>> import privcalc as pc
        >>> whose, step = ["ann", "bob", "ann"], pc.UserSampled(pc.Gaussian(noise_multiplier=20.0), rate=1.0, records=2)
        >>> losses = pc.RealisedLosses.of(step, records=2, ids=["ann", "bob"])
        >>> losses.update(totals([1.0, 0.2, 0.5], whose))
        >>> print(np.asarray(losses.mu()).round(6))
        [0.075 0.01 ]
    """
    found = errors.array("persons", persons)
    if found.ndim != 1 or found.dtype.kind not in "iuUS":
        raise errors.PrivcalcError("persons: must be one whole number or text for each record, in one row")
    own = np.minimum(ratios("norms", norms, found.size), 1.0).astype(np.float64)
    names, whose = np.unique(found, return_inverse=True)
    return np.asarray(
        np.bincount(whose, weights=own, minlength=names.size) * (1 + 2 * found.size * UNIT), dtype=np.float64
    )
