"""What a certificate lists: each assumption that its run needs, the page that needs it, and who vouches for it.

That is the ledger, which enforced it; the caller, who declared it; or nobody (``proofs/assumptions.md``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from privcalc.errors import PrivcalcError
from privcalc.ledger.assumptions import PAGES, Assumptions, every, kinds, needs, needs_of, schemes
from privcalc.run import Run
from privcalc.serial import Field, Json, canonical, check_fields

__all__ = ["allowed", "check_form", "listed", "of_version", "union"]

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
    for name in _needed(run, used, outside, declared, tabled=tabled, labelled=labelled):
        value, by = declared.get(name, "public"), "caller" if name in declared else "nobody"
        if name == "steps" and basis in ("plan", "cap"):
            value, by = declared.get(name, "released"), "ledger"
        elif name == "steps" and basis == "recorded":
            by = "caller"
        elif name == "sampling":
            value = declared.get(name) or ", ".join(schemes(kinds(run, used)))
            others = elsewhere or schemes(kinds(outside)) or any(each.told for each in every(run, used))
            if basis != "declared" and not others:
                by = "ledger"
        elif name == "parts":
            value = "disjoint"
            if name not in declared and each_row and name not in needs(run, used):
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
            rows = "candidates" in names or "parts" in needs(run)
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
    needed = needs(run, used) | {"steps", "parameters", "other_releases"}
    needed |= {"candidates"} if tabled else set()
    needed |= {"parts"} if "candidates" in needs(drawn) else set()
    needed |= {"labels"} if labelled else set()
    yield from (name for name in PAGES if name in needed or name in declared)


def _page(name: str, run: Run, used: Run) -> str:
    """The proof page of an assumption: of the scheme, for sampling; of the mechanism, for parts."""
    if name == "candidates" and name not in needs(run, used):
        return ROWS["page"]
    own = [kind.page for kind in kinds(run, used) if name in ("parts", "sampling") and name in needs_of(kind)]
    return own[0] if own else PAGES[name]
