"""What two runs with the same releases differ in: what moved too far, and what passed beside the doors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CellType, FunctionType, MethodType
from typing import Any
from weakref import ReferenceType

import numpy as np

from privcalc import errors
from privcalc.attacks.replay.tape import Release
from privcalc.attacks.replay.words import KINDS, NO_GUARANTEE, STOPPED

Met = dict[tuple[int, int], tuple[Any, Any]]
"""Pairs that were compared, or are being."""

DEEP = 50
"""Levels of what is returned that are compared."""

CLIPPED, ROUNDED = 1e-4, 64
"""The relative error of clipping in floating point; and roundings of a sum with no declared error."""


@dataclass(frozen=True)
class Finding:
    """A way by which a record reached an output.

    Attributes:
        kind: one of ``KINDS``.
        where: at which release, or in which part of what was returned.
        record: the record that was added, or put in another's place.
        said: what was seen. Depends on the data.
        ratio: by what factor a bound was passed; ∞ where there is none.
    """

    kind: str
    where: str
    record: str
    said: str
    ratio: float = np.inf

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}: {self.said} ({self.record}); {KINDS[self.kind]}"


def distance(one: Release, other: Release, times: int) -> tuple[float, float]:
    """The distance that a release moved, and the largest allowed: ``times`` as far as declared, plus roundings.

    The roundings are those of what was not declared exact.
    """
    length, allowed = float(np.linalg.norm((one.values - other.values).ravel(), one.norm)), times * one.bound
    if one.exact is not None:
        return length, allowed * (1 + 1e-12) + 2 * float(one.exact)
    return length, allowed * (1 + CLIPPED) + _rounding(one, other)


def _rounding(*releases: Release) -> float:
    kind = np.dtype(releases[0].kind) if releases[0].kind in ("float16", "float32", "float64") else np.dtype(np.float64)
    largest = max(float(np.linalg.norm(each.values.ravel(), each.norm)) for each in releases)
    return ROUNDED * float(np.finfo(kind).eps) * largest


def moves(
    base: Sequence[Release], run: Sequence[Release], record: str, *, replaced: bool
) -> tuple[list[Finding], float]:
    """Return how far a record moved each release, and the largest share of a declared bound that it used.

    Args:
        base: the releases without the record.
        run: those with it.
        record: what it is, in words.
        replaced: whether it takes the place of another one; by then both may move what is released.
    """
    findings, largest = [], 0.0
    for number, (one, other) in enumerate(zip(base, run, strict=False)):
        where = f"release {number + 1}, {one.what}"
        if one.sampled and not other.there:
            if not np.array_equal(one.values, other.values):
                findings.append(Finding("absent", where, record, "is not the same"))
            continue
        times = 2 if replaced or one.sampled == "fixed" else 1
        moved, allowed = distance(one, other, times)
        ratio = np.inf if np.isnan(moved) else moved / allowed if allowed else np.inf if moved else 0.0
        if not moved <= allowed:
            said = f"moved by {moved / times:.4g}, and the bound is {one.bound:.4g}"
            findings.append(Finding("sensitivity", where, record, said, ratio))
        largest = max(largest, ratio)
        change = other.values - one.values
        if one.monotone and not replaced and change.size and change.min() < 0 < change.max():
            findings.append(Finding("monotone", where, record, f"changed by {change.min():.4g} to {change.max():.4g}"))
    return findings, largest


def interaction(record: str, *four: Sequence[Release]) -> list[Finding]:
    """Sums to which a record adds something else where the others are others.

    Args:
        record: what it is, in words.
        four: the releases without and with it, and where the others are others without and with it.
    """
    findings = []
    for number, runs in enumerate(zip(*four, strict=False)):
        first = runs[0]
        if first.name == "select" or first.sampled == "fixed" or not (runs[1].there and runs[3].there):
            continue
        mixed = runs[3].values - runs[2].values - runs[1].values + runs[0].values
        length = float(np.linalg.norm(mixed.ravel(), first.norm))
        allowed = 0.01 * first.bound + _rounding(*runs)
        if not length <= allowed:
            said = f"what it adds moved by {length:.4g} with the others; the bound is {first.bound:.4g}"
            ratio = np.inf if np.isnan(length) else length / first.bound
            findings.append(Finding("interaction", f"release {number + 1}, {first.what}", record, said, ratio))
    return findings


def difference(one: Any, other: Any, where: str = "the returned value") -> tuple[str, str] | None:
    """The first part in which two values differ, and how; None if they are the same, bit for bit, up to 50 levels deep.

    Functions are compared by their code and what they close over, objects by their fields and by what a pickle has of
    them.
    """
    return _difference(one, other, where, 0, {})


def _difference(one: Any, other: Any, where: str, within: int, met: Met) -> tuple[str, str] | None:
    if one is other or within > DEEP:
        return None
    if type(one) is not type(other):
        return where, f"is {type(one).__name__} or {type(other).__name__}"
    if isinstance(one, np.ma.MaskedArray):
        return _first(where, [(one.data, other.data), tuple(map(np.ma.getmaskarray, (one, other)))], within, met)
    if isinstance(one, (np.ndarray, np.generic, float)) or errors.is_tensor(one):
        return _arrays(errors.array(where, one), errors.array(where, other), where)
    if isinstance(one, (str, bytes, int, set, frozenset)):
        return None if one == other else (where, "is not the same")
    if (id(one), id(other)) in met:  # objects may lead back to themselves
        return None
    met[id(one), id(other)] = one, other  # kept, so that nothing else gets their numbers
    if isinstance(one, Mapping):
        if list(one) != list(other):
            return where, "has other names"
        parts = ((f"{where}[{name!r}]", one[name], other[name]) for name in one)
        return next((found for at, a, b in parts if (found := _difference(a, b, at, within + 1, met))), None)
    if isinstance(one, (list, tuple)):
        if len(one) != len(other):
            return where, f"has {len(one)} or {len(other)} members"
        parts = ((f"{where}[{i}]", *pair) for i, pair in enumerate(zip(one, other, strict=True)))
        return next((found for at, a, b in parts if (found := _difference(a, b, at, within + 1, met))), None)
    held, others = _held(one), _held(other)
    if held is None or others is None or len(held) != len(others):
        return None if _equal(one, other) else (where, "is not the same")
    return _first(where, list(zip(held, others, strict=True)), within, met)


def _first(where: str, parts: Iterable[tuple[Any, ...]], within: int, met: Met) -> tuple[str, str] | None:
    """The first difference of parts that have no names of their own."""
    return next((found for a, b in parts if (found := _difference(a, b, where, within + 1, met))), None)


def _held(value: Any) -> list[Any] | None:
    """Return the values that an object is made of; None if nobody can tell."""
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
        return [value.__code__, cells, value.__defaults__, value.__kwdefaults__, vars(value)]
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, ReferenceType):
        return [value()]
    fields = [vars(value)] if hasattr(value, "__dict__") else []
    try:
        _, made_of, *state = value.__reduce_ex__(4)
    except Exception:  # it cannot be pickled, or says its name only
        return fields or None
    if any(
        getattr(type(value), name) is not getattr(object, name)
        for name in ("__reduce__", "__reduce_ex__", "__getstate__")
    ):
        # What nobody can look into, and its own pickle leaves out, is no part of it.
        fields = [
            {name: part for name, part in each.items() if _plain(part) or _held(part) is not None} for each in fields
        ]
    return [*fields, made_of, *(list(part) if isinstance(part, Iterator) else part for part in state)]


def _equal(one: Any, other: Any) -> bool:
    """Return whether two objects say that they are equal; some say neither."""
    try:
        return bool(one == other)
    except Exception:
        return False


def _plain(value: Any) -> bool:
    """Return whether a value is compared as a whole, and not attribute by attribute."""
    return (
        isinstance(value, (str, bytes, int, float, set, frozenset, np.ndarray, list, tuple, Mapping)) or value is None
    )


def _arrays(one: Any, other: Any, where: str) -> tuple[str, str] | None:
    if one.shape != other.shape or one.dtype != other.dtype:
        return where, f"has shape {one.shape} of {one.dtype}, or {other.shape} of {other.dtype}"
    real = one.dtype.kind == "f"
    if np.array_equal(one, other, equal_nan=real):
        zeros = [np.signbit(each[one == 0]) for each in (one, other)] if real else []
        return None if not real or np.array_equal(*zeros) else (where, "has 0 or -0")
    if one.dtype.kind not in "biuf":
        return where, "is not the same"
    with np.errstate(all="ignore"):
        return where, f"differs by up to {float(np.nanmax(np.abs(one.astype(float) - other.astype(float)))):.4g}"


@dataclass(frozen=True)
class Report:
    """The outcome of a replay: which process and data were replayed, and what differed. No guarantee.

    Attributes:
        process: the name of what was run.
        relation: the neighbouring relation.
        records: how many records the data have.
        added: the records that were added to them, or put in another's place.
        releases: how many releases a run has.
        largest: the largest share of a declared bound by which a release moved; at most 1 where no bound was passed.
        findings: what was found; the worst of each kind at each place.
        stopped: whether each run was ended after so many releases, and what came later was not looked at.
    """

    process: str
    relation: str
    records: int
    added: tuple[str, ...]
    releases: int
    largest: float
    findings: tuple[Finding, ...]
    stopped: bool = False

    @property
    def note(self) -> str:
        """The caveat under every report: what was not looked at."""
        return STOPPED if self.stopped else NO_GUARANTEE

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of what was found."""
        return tuple(dict.fromkeys(finding.kind for finding in self.findings))

    @property
    def section(self) -> dict[str, Any]:
        """The section of a certificate about this replay, with no number that depends on the data.

        See :meth:`privcalc.Certificate.replayed`.
        """
        return {
            "process": self.process,
            "relation": self.relation,
            "added": list(self.added),
            "releases": self.releases,
            "found": list(self.kinds),
            "note": self.note,
        }

    def __str__(self) -> str:
        moved = f"releases moved by at most {self.largest:.4g} of what was declared"
        said = [f"{self.process}: {self.releases} releases on {self.records} records under {self.relation}; {moved}"]
        said += [f"  {finding}" for finding in self.findings] or [f"  nothing found with {len(self.added)} records"]
        return "\n".join([*said, f"  ({self.note})"])
