"""What the proofs assume of a process and no accountant can see, as typed fields; what contradicts a proof is refused.

The certificate lists each assumption that its run needs, with the page that needs it and who vouches for it: the ledger, which
enforced it; the caller, who declared it; or nobody (``proofs/assumptions.md``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from privcalc.errors import PrivcalcError
from privcalc.mechanisms.above_threshold import AboveThreshold
from privcalc.mechanisms.allocation import RandomAllocation
from privcalc.mechanisms.correlated import CorrelatedGaussian
from privcalc.mechanisms.discrete_gaussian import DiscreteGaussian
from privcalc.mechanisms.exponential import ExponentialMechanism
from privcalc.mechanisms.fixed_size import FixedSizeSampled
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.guarantees import GDP, RDP, ZCDP, ApproxDP, PureDP
from privcalc.mechanisms.laplace import Laplace
from privcalc.mechanisms.noisy_max import Selection
from privcalc.mechanisms.parallel import Parallel
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.mechanisms.replacement import WithReplacementSampled
from privcalc.mechanisms.shuffled import ShuffledEpoch
from privcalc.mechanisms.thresholded_counts import ThresholdedCounts
from privcalc.mechanisms.top_k import TopK
from privcalc.mechanisms.truncated import TruncatedPoissonSampled
from privcalc.mechanisms.tuning import RandomTrials
from privcalc.mechanisms.users import UserSampled
from privcalc.run import Mechanism, Run
from privcalc.serial import Field, Json, canonical, check_fields, parts
from privcalc.strategies.participation import MinSeparation

__all__ = ["Assumptions", "allowed", "check_form", "check_type", "listed", "of_version", "union"]

Origin = Literal["public", "released", "private"]
"""Where a value comes from: public constants and data; earlier noisy outputs, too; or private records otherwise."""

Sampling = Literal["poisson", "poisson, cut", "without replacement", "with replacement", "shuffled", "balls in bins", "in turns"]
Parts = Literal["disjoint"]
Keys = Literal["kept"]
Trials = Literal["drawn"]
Others = Literal["none", "composed"]

VALUES: dict[str, tuple[str, ...]] = {
    "sampling": get_args(Sampling),
    "parts": get_args(Parts),
    "keys": get_args(Keys),
    "trials": get_args(Trials),
    "other_releases": get_args(Others),
}
"""What fields that are not an origin may say."""

BY = ("ledger", "caller", "nobody")
SCHEMES: dict[type[Mechanism], Sampling] = {
    PoissonSampled: "poisson",
    UserSampled: "poisson",
    FixedSizeSampled: "without replacement",
    TruncatedPoissonSampled: "poisson, cut",
    WithReplacementSampled: "with replacement",
    ShuffledEpoch: "shuffled",
    RandomAllocation: "balls in bins",
    CorrelatedGaussian: "in turns",
}
SUMS = (Gaussian, DiscreteGaussian, Laplace, CorrelatedGaussian)
CHOICES = (ExponentialMechanism, Selection, TopK)
CAPS = (GDP, ZCDP, RDP, PureDP, ApproxDP)
PAGES = {
    "steps": "ledger.md",
    "parameters": "ledger.md",
    "normaliser": "noisy_gd.md",
    "clip_norm": "gaussian.md",
    "candidates": "exponential.md",
    "sampling": "poisson.md",
    "parts": "ledger.md",
    "keys": "thresholded_counts.md",
    "trials": "tuning.md",
    "labels": "ledger.md",
    "public_records": "assumptions.md",
    "start": "assumptions.md",
    "other_releases": "assumptions.md",
}
ROWS = {"name": "rows_per_person", "value": "kept", "by": "caller", "page": "tables.md"}
"""What a table without a column of persons takes the caller's word for: no field, because the question said it."""

LISTING = {"declared": Field((dict,), "what the caller said"), "needed": Field((list,), "what the proofs assume")}
NEEDED = {
    "name": Field((str,), "which assumption", (*PAGES, ROWS["name"])),
    "value": Field((str,), "what is assumed"),
    "by": Field((str,), "who vouches for it", BY),
    "page": Field((str,), "which proof needs it"),
}
"""What a certificate lists, and each assumption that it needs."""

FIRST = ("steps", "parameters", "normaliser", "clip_norm", "candidates", "sampling")
"""What certificates of version 2 listed."""


@dataclass(frozen=True)
class Assumptions:
    """What a caller declares of a process; None says nothing.

    Attributes:
        steps: what decides how many steps are taken, and when the run ends: "public" is fixed in advance; "released", by earlier
            outputs, needs a ledger's plan, which is then certified whole, or a cap.
        parameters: what the plan or cap, the noise multipliers, rates, numbers of records and batch sizes come from. "released"
            needs a cap.
        normaliser: what sums are divided by, or multiplied with, as learning rates, after the noise: "public" is a constant,
            "released" a noisy count, "private" the true one. (Under zero-out and replace-one the number of all records is public,
            that of a class is not.)
        clip_norm: the bound of a record's contribution, with which the noise scales; of a gate, the sensitivity of its questions.
        candidates: the candidates of a choice, the bounds of their scores, and K; of questions to tables, groups and edges too.
        sampling: how batches are really drawn; must be what the mechanism assumes.
        parts: "disjoint": everything of one record (of one person, if that is the unit) is in one part of a ``Parallel`` only,
            which is refused without this word; months of the same customers are not. And so for the rows of the scores that are
            given to :meth:`Ledger.select`, which otherwise charges for each row.
        keys: "kept": nobody counts for more keys than a ``ThresholdedCounts`` says, nor twice for one.
        trials: "drawn": the number of trials of a ``RandomTrials`` was drawn from its distribution, independently of the data;
            all were made, and alike; the score is made of a trial's own private output and of public data; the best one only is
            released.
        labels: what the labels of releases come from, which certificates publish: a loop over the groups that occur in private
            records tells which do.
        public_records: where records come from that are used without noise.
        start: where the first weights come from, and those written by hand later. "released": from a model of the same records,
            and certificates are composed, or from this run.
        other_releases: whether anything else is released about these records that this certificate does not cover: "none"; or
            "composed", there is, and what counts is the composition of the certificates.

    Raises:
        PrivcalcError: if a value is unknown, or no proof allows it.

    Example:
        >>> import privcalc as pc
        >>> pc.certify(pc.Gaussian(20.0) * 206, delta=1e-5, assumptions=Assumptions(steps="released"))
        Traceback (most recent call last):
            ...
        privcalc.errors.PrivcalcError: steps = 'released': proofs/ledger.md takes a run without a ledger to be fixed in advance;
        open a Ledger with a plan or a cap
    """

    steps: Origin | None = None
    parameters: Origin | None = None
    normaliser: Origin | None = None
    clip_norm: Origin | None = None
    candidates: Origin | None = None
    sampling: Sampling | None = None
    parts: Parts | None = None
    keys: Keys | None = None
    trials: Trials | None = None
    labels: Origin | None = None
    public_records: Origin | None = None
    start: Origin | None = None
    other_releases: Others | None = None

    def __post_init__(self) -> None:
        for name, value in self.declared.items():
            allowed = VALUES.get(name, get_args(Origin))
            if not isinstance(value, str) or value not in allowed:
                raise PrivcalcError(f"{name} = {value!r}: must be one of {', '.join(map(repr, allowed))}, or None")
            if value == "private":
                raise PrivcalcError(f"{name} = 'private': must be public or released, or proofs/{PAGES[name]} proves nothing")

    @property
    def declared(self) -> dict[str, str]:
        """What was said, by name."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def from_json(cls, value: object) -> Assumptions:
        """The assumptions that a JSON object with some of the names says.

        Raises:
            PrivcalcError: if it is none, or a value is refused.
        """
        if not isinstance(value, Mapping) or not set(value) <= set(PAGES):
            raise PrivcalcError(f"assumptions = {value!r}: must be an object with some of {', '.join(PAGES)}")
        return cls(**value)

    def require(self, run: Run) -> None:
        """Refuse a new run that holds by the caller's word only, where that was not given.

        Args:
            run: what is planned, charged or certified.

        Raises:
            PrivcalcError: if it has a ``Parallel``, and ``parts`` was not declared.
        """
        if self.parts is None and Parallel in _kinds(run):
            raise PrivcalcError(
                "parts = None: Parallel costs what its worst part does, and not the sum of all, only if nobody is in two parts, "
                "as the same customers are in two months; if so, declare it, assumptions=Assumptions(parts='disjoint'), and else "
                "compose the parts (a + b)"
            )

    def check(self, run: Run, basis: str, used: Run | None = None) -> None:
        """Refuse what contradicts the proof of a run.

        Args:
            run: what is certified.
            basis: of the certificate: "plan", "cap", "recorded" or "declared".
            used: what was charged, where that is known.

        Raises:
            PrivcalcError: with the page that is contradicted.
        """
        if self.steps == "released" and basis == "declared" and not _is_cap(run):
            raise PrivcalcError(
                "steps = 'released': proofs/ledger.md takes a run without a ledger to be fixed in advance; "
                "open a Ledger with a plan or a cap"
            )
        if self.steps == "released" and basis == "recorded":
            raise PrivcalcError("steps = 'released': contradicts stopping = 'output-independent' (proofs/ledger.md)")
        if self.parameters == "released" and not _is_cap(run):
            raise PrivcalcError("parameters = 'released': proofs/ledger.md needs a cap, a plan is fixed before any output")
        found = {SCHEMES[kind]: kind.page for kind in _kinds(run, used) if kind in SCHEMES}
        if self.sampling is not None and (found or not _is_cap(run)) and set(found) != {self.sampling}:
            other = next((scheme for scheme in found if scheme != self.sampling), None)
            where = "the run samples nothing" if other is None else f"proofs/{found[other]} is about batches drawn {other!r}"
            raise PrivcalcError(f"sampling = {self.sampling!r}: {where}")


UNSAID = {"keys": "kept", "trials": "drawn", "other_releases": "none"}
"""What is taken for granted, where it is not "public"."""


def listed(
    assumptions: Assumptions,
    run: Run,
    basis: str,
    used: Run,
    outside: Run,
    *,
    each_row: bool = True,
    tabled: bool = False,
    by_word: bool = False,
    elsewhere: bool = False,
    labelled: bool = False,
) -> list[Json]:
    """What a certificate says: every assumption that was declared, or that the run needs, its value, who vouches, the page.

    Args:
        assumptions: what the caller declared; it is checked.
        run: what is certified.
        basis: of the certificate.
        used: what was charged.
        outside: the part of it that other code drew.
        each_row: whether the ledger charged for each row of scores, unless they were declared disjoint; version 2 did not.
        elsewhere: whether batches were drawn by other code, also where the ledger drew the noise.
        tabled: whether tables were asked about, with lists of groups, edges or candidates.
        by_word: whether tables were asked about that do not tell whose a row is.
        labelled: whether releases have labels.

    Raises:
        PrivcalcError: where the caller contradicts the proof.
    """
    assumptions.check(run, basis, used)
    declared, found = assumptions.declared, []
    schemes = sorted({SCHEMES[kind] for kind in _kinds(run, used) if kind in SCHEMES})
    for name in _needed(run, used, outside, declared, tabled=tabled, labelled=labelled):
        value, by = declared.get(name, "public"), "caller" if name in declared else "nobody"
        if name == "steps" and basis in ("plan", "cap"):
            value, by = declared.get(name, "released"), "ledger"
        elif name == "steps" and basis == "recorded":
            by = "caller"
        elif name == "sampling":
            value = declared.get(name) or ", ".join(schemes)
            others = elsewhere or any(kind in SCHEMES for kind in _kinds(outside)) or any(map(_unseen, _all(run, used)))
            if basis != "declared" and not others:
                by = "ledger"
        elif name == "parts":
            value = "disjoint"
            if name not in declared and each_row and Parallel not in _kinds(run, used):
                value, by = "any, each was charged", "ledger"
        elif name in UNSAID:
            value = declared.get(name, UNSAID[name])
        found.append({"name": name, "value": value, "by": by, "page": _page(name, run, used)})
    return [*found, dict(ROWS)] if by_word else found


def allowed(listing: Json, version: int, run: Run, basis: str, used: Run, outside: Run) -> list[Json]:
    """What a certificate of a version that declares what ``listing`` does may list for its run.

    Raises:
        PrivcalcError: if it may not declare that.
    """
    said = Assumptions.from_json(listing["declared"])
    if version == 2 and not set(said.declared) <= set(FIRST):
        raise PrivcalcError(f"assumptions: version 2 has {', '.join(FIRST)}, not {sorted(said.declared)}")
    # Whether the ledger was one of version 2, from which less follows, is between the certificate and the ledger.
    # So is whether it was asked about tables, and given batches; what drew nothing was not.
    words = (False, True) if used.entries and version > 2 else (False,)
    found = [
        listed(
            said,
            run,
            basis,
            used,
            outside,
            each_row=each_row,
            tabled=tabled,
            by_word=by_word,
            elsewhere=elsewhere,
            labelled=named,
        )
        for tabled in words
        for by_word in {False, tabled}
        for each_row in (True, False)
        for elsewhere in words
        for named in words
    ]
    return [of_version({"declared": said.declared, "needed": entries}, version) for entries in found]


def of_version(listing: Json, version: int) -> Json:
    """What a certificate of a version lists: version 2 knew of the first six."""
    if version != 2:
        return listing
    return {**listing, "needed": [entry for entry in listing["needed"] if entry["name"] in FIRST]}


def union(listings: Sequence[Json], run: Run) -> Json:
    """What a composition lists: each entry of its parts once; and, by nobody's word, what parts of version 2 took for granted."""
    found = {canonical(entry): entry for listing in listings for entry in listing["needed"]}
    for listing in listings:
        names = {entry["name"] for entry in listing["needed"]}
        if "other_releases" not in names:
            rows = "candidates" in names or Parallel in _kinds(run)
            for name, value in (("parts", "disjoint"), ("other_releases", "none")) if rows else (("other_releases", "none"),):
                entry = {"name": name, "value": value, "by": "nobody", "page": _page(name, run, run)}
                found[canonical(entry)] = entry
    return {"declared": {}, "needed": list(found.values())}


def check_type(value: object) -> Assumptions:
    """The value, if it is :class:`Assumptions`; an error otherwise."""
    if not isinstance(value, Assumptions):
        raise PrivcalcError(f"assumptions = {value!r}: must be Assumptions")
    return value


def check_form(listing: object) -> Json:
    """It, if it says of known assumptions who vouches for them.

    Raises:
        PrivcalcError: if not.
    """
    found = check_fields("assumptions", listing, LISTING)
    for entry in found["needed"]:
        check_fields("assumptions", entry, NEEDED)
    return found


def _needed(run: Run, used: Run, outside: Run, declared: Mapping[str, str], *, tabled: bool, labelled: bool) -> Iterator[str]:
    others = dict(outside.entries)
    drawn = Run(tuple((mechanism, count) for mechanism, count in used.entries if count > others.get(mechanism, 0)))
    kinds = _kinds(run, used)
    for name in PAGES:
        needs = {
            "normaliser": any(issubclass(kind, SUMS) for kind in kinds),
            "clip_norm": any(issubclass(kind, (*SUMS, AboveThreshold)) for kind in kinds),
            "candidates": tabled or any(issubclass(kind, CHOICES) for kind in kinds),
            "sampling": any(kind in SCHEMES for kind in kinds),
            "parts": Parallel in kinds or any(issubclass(kind, CHOICES) for kind in _kinds(drawn)),
            "keys": ThresholdedCounts in kinds,
            "trials": RandomTrials in kinds,
            "labels": labelled,
            "public_records": False,
            "start": False,
        }.get(name, True)
        if needs or name in declared:
            yield name


def _page(name: str, run: Run, used: Run) -> str:
    """The proof page of an assumption: of the scheme, for sampling; of the mechanism, for parts."""
    if name == "parts" and Parallel in _kinds(run, used):
        return Parallel.page
    if name == "candidates" and not any(issubclass(kind, CHOICES) for kind in _kinds(run, used)):
        return ROWS["page"]
    schemes = [kind.page for kind in _kinds(run, used) if kind in SCHEMES] if name == "sampling" else []
    return schemes[0] if schemes else PAGES[name]


def _all(*runs: Run | None) -> Iterator[Mechanism]:
    """All mechanisms, and what they are made of."""

    def of(mechanism: Mechanism) -> Iterator[Mechanism]:
        yield mechanism
        for part in parts(mechanism):
            yield from of(part)

    return (each for run in runs if run is not None for mechanism, _ in run.entries for each in of(mechanism))


def _kinds(*runs: Run | None) -> list[type[Mechanism]]:
    """The classes of all mechanisms, and of what they are made of, in order and once."""
    return list(dict.fromkeys(map(type, _all(*runs))))


def _unseen(mechanism: Mechanism) -> bool:
    """Whether a ledger never sees who takes part: that turns are apart is somebody's word, places in an epoch are drawn."""
    return isinstance(mechanism, CorrelatedGaussian) and isinstance(mechanism.participation, MinSeparation)


def _is_cap(run: Run) -> bool:
    """Whether the run is one stated guarantee, of all that happens."""
    return len(run.entries) == 1 and run.entries[0][1] == 1 and isinstance(run.entries[0][0], CAPS)
