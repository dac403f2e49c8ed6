"""What a certificate lists: each assumption that its run needs, the page that needs it, and who vouches for it.

That is the ledger, which enforced it; the caller, who declared it; or nobody (``proofs/assumptions.md``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from privcalc.errors import PrivcalcError
from privcalc.ledger.assumptions import PAGES, SCHEMES, Assumptions, every, kinds
from privcalc.mechanisms.above_threshold import AboveThreshold
from privcalc.mechanisms.correlated import CorrelatedGaussian
from privcalc.mechanisms.discrete_gaussian import DiscreteGaussian
from privcalc.mechanisms.exponential import ExponentialMechanism
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.laplace import Laplace
from privcalc.mechanisms.noisy_max import Selection
from privcalc.mechanisms.parallel import Parallel
from privcalc.mechanisms.thresholded_counts import ThresholdedCounts
from privcalc.mechanisms.top_k import TopK
from privcalc.mechanisms.tuning import RandomTrials
from privcalc.run import Mechanism, Run
from privcalc.serial import Field, Json, canonical, check_fields
from privcalc.strategies.participation import MinSeparation

__all__ = ["allowed", "check_form", "listed", "of_version", "union"]

SUMS = (Gaussian, DiscreteGaussian, Laplace, CorrelatedGaussian)
CHOICES = (ExponentialMechanism, Selection, TopK)
BY = ("ledger", "caller", "nobody")
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
    schemes = sorted({SCHEMES[kind] for kind in kinds(run, used) if kind in SCHEMES})
    for name in _needed(run, used, outside, declared, tabled=tabled, labelled=labelled):
        value, by = declared.get(name, "public"), "caller" if name in declared else "nobody"
        if name == "steps" and basis in ("plan", "cap"):
            value, by = declared.get(name, "released"), "ledger"
        elif name == "steps" and basis == "recorded":
            by = "caller"
        elif name == "sampling":
            value = declared.get(name) or ", ".join(schemes)
            others = elsewhere or any(kind in SCHEMES for kind in kinds(outside)) or any(map(_unseen, every(run, used)))
            if basis != "declared" and not others:
                by = "ledger"
        elif name == "parts":
            value = "disjoint"
            if name not in declared and each_row and Parallel not in kinds(run, used):
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
            rows = "candidates" in names or Parallel in kinds(run)
            for name, value in (("parts", "disjoint"), ("other_releases", "none")) if rows else (("other_releases", "none"),):
                entry = {"name": name, "value": value, "by": "nobody", "page": _page(name, run, run)}
                found[canonical(entry)] = entry
    return {"declared": {}, "needed": list(found.values())}


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
    found = kinds(run, used)
    for name in PAGES:
        needs = {
            "normaliser": any(issubclass(kind, SUMS) for kind in found),
            "clip_norm": any(issubclass(kind, (*SUMS, AboveThreshold)) for kind in found),
            "candidates": tabled or any(issubclass(kind, CHOICES) for kind in found),
            "sampling": any(kind in SCHEMES for kind in found),
            "parts": Parallel in found or any(issubclass(kind, CHOICES) for kind in kinds(drawn)),
            "keys": ThresholdedCounts in found,
            "trials": RandomTrials in found,
            "labels": labelled,
            "public_records": False,
            "start": False,
        }.get(name, True)
        if needs or name in declared:
            yield name


def _page(name: str, run: Run, used: Run) -> str:
    """The proof page of an assumption: of the scheme, for sampling; of the mechanism, for parts."""
    if name == "parts" and Parallel in kinds(run, used):
        return Parallel.page
    if name == "candidates" and not any(issubclass(kind, CHOICES) for kind in kinds(run, used)):
        return ROWS["page"]
    schemes = [kind.page for kind in kinds(run, used) if kind in SCHEMES] if name == "sampling" else []
    return schemes[0] if schemes else PAGES[name]


def _unseen(mechanism: Mechanism) -> bool:
    """Whether a ledger never sees who takes part: that turns are apart is somebody's word, places in an epoch are drawn."""
    return isinstance(mechanism, CorrelatedGaussian) and isinstance(mechanism.participation, MinSeparation)
