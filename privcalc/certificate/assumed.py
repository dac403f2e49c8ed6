"""Assumptions of a certificate: who saw to each thing that the proofs need. A function of the log alone.

Of each thing the weakest provenance that occurs is listed, with the page that needs it (``proofs/assumptions.md``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from privcalc.ledger.assumptions import (
    PAGES,
    STATED,
    Assumptions,
    Provenance,
    Release,
    kinds,
    needs,
    needs_of,
    run_of,
    schemes,
)
from privcalc.mechanisms.user_sampling import unit_of
from privcalc.run import Run
from privcalc.serial import Field, Json, check_fields

__all__ = ["Log", "check_form", "in_words", "lines", "noise_of", "private", "weakest"]

BY = ("ledger", "code", "caller", "nobody", "always")
"""Who sees to something, from most to least.

The ledger; our code that asked it (a learner, a loader); the caller, who said so; or nobody, and it was not said. What
is "always" taken for granted no one can see to.
"""

VOUCHED = {
    "always": "of every certificate",
    "ledger": "seen to by the ledger",
    "code": "seen to by our code",
    "caller": "declared by the caller",
    "nobody": "NOT SAID",
}

CLAMPED = "tables.md"
SEEN = {
    "sensitivity": "ledger.md",
    "rows_per_person": CLAMPED,
    "noise": "executed_noise.md",
    "rounding": "executed_noise.md",
    "randomness": "executed_noise.md",
    "process": "certificate.md",
    "to_come": "ledger.md",
    "loop": "interop.md",
}
"""What is not declared, and follows from the log, with its page."""

UNSEEN = (
    "what it leaks by being drawn in floating point is not counted, and it is as secret as the seed of its generator, "
    "which may be short"
)
SAYS: Mapping[tuple[str, str], str] = {
    (
        "steps",
        "public",
    ): "fixed in advance, or by public numbers; the end did not depend on any output or private number",
    ("steps", "released"): (
        "plan or cap are certified whole, wherever the run stopped; what decided when was public or released before, "
        "and no private number (no loss or score of private records without noise)"
    ),
    ("parameters", "public"): (
        "noise, rates, numbers of records and of steps, and learning rates were chosen "
        "without looking at private records"
    ),
    ("parameters", "released"): "may depend on earlier outputs, as the cap allows",
    ("sensitivity", "derived"): (
        "values were clamped; how far one person may move an answer follows from the bounds and from rows_per_person, "
        "which is a line of its own"
    ),
    ("sensitivity", "clipped"): "each row of a sum or score was bounded by the code that asked",
    ("sensitivity", "stated"): (
        "what each record adds to a sum, or moves a score by, is at most what the caller says, which no ledger sees, "
        "is of a record of the batch that was drawn, and of that record alone: nothing was fitted to the others first "
        "(scalers, PCA, chosen columns, filled gaps)"
    ),
    ("clip_norm", "public"): "chosen without looking at private records",
    ("clip_norm", "released"): "chosen by public data and earlier noisy outputs",
    ("clip_norm", "private"): "chosen by looking at private records, which tells of them: nothing is proved",
    ("normaliser", "public"): "sums are divided by constants, and not by a private number",
    ("normaliser", "released"): "sums are divided by constants and noisy numbers, and not by a private number",
    ("normaliser", "nothing"): "sums were released as they are",
    ("normaliser", "public number"): "sums are divided by a public number",
    ("normaliser", "noisy number"): "noisy sums were divided by noisy counts, and not by true ones",
    ("candidates", "public"): "candidates, groups, edges and bounds were not read from private records",
    ("candidates", "released"): "candidates, groups, edges and bounds are of public data and earlier noisy outputs",
    ("sampling", "in turns"): (
        "each record is in steps that the run's participation allows, and in no others; coins and places that the run "
        "draws are its own, and secret"
    ),
    ("rows_per_person", "kept"): "no person has more than rows_per_person rows (person= was not given)",
    ("rows_per_person", "counted"): (
        "the ledger took no more rows of one name; that each person has one name in the column, and no two persons "
        "share one, is assumed"
    ),
    ("parts", "any, each was charged"): (
        "each choice was charged by itself; a joint one of several rows once, "
        "by how far a record moves the sum of their scores"
    ),
    ("parts", "disjoint"): "everything of one record or person is in one part",
    ("keys", "kept"): "nobody counts for more keys than the mechanism says, nor twice for one",
    ("trials", "drawn"): (
        "how many were made is from the run's distribution, whatever the data; all were made, and alike; the score is "
        "of a trial's own private output; the best one only is released"
    ),
    ("labels", "public"): "none was read from private records (the certificate lists them)",
    ("start", "random"): "drawn at random, or zero",
    ("start", "public"): "first weights, frozen layers and weights written by hand are public, or of public data",
    ("start", "released"): "of a model of the same records; only the composition with its certificate counts",
    ("start", "certificate"): "of a model of the same records; only the composition with its certificate counts",
    ("start", "private"): "first weights were trained on private records without noise: nothing is proved",
    ("start", "none"): "nothing is trained",
    ("preprocessing", "none"): (
        "records are as they were collected, or each was kept and changed by itself, and not because of others (no "
        "head or quantile of the rows, no filling by means)"
    ),
    ("preprocessing", "public"): "none, or by constants that were not read from private records",
    ("preprocessing", "released"): "by noisy constants, whose release is composed",
    ("preprocessing", "private"): "by what was read off the private records without noise: nothing is proved",
    ("copies", "none"): "no record is there twice; one that is counts as often",
    ("records_per_unit", "one"): "nobody who is protected has more records than one, or than the run's mechanism says",
    ("records_per_unit", "grouped"): "the mechanism takes all records of one person together; whose each is, was said",
    ("records_per_unit", "by definition"): "a record is what is protected; a person who has several is protected less",
    ("public_records", "public"): "records that are used without noise are known to everyone",
    ("public_records", "released"): "records that are used without noise were released, as the composition counts",
    ("other_releases", "none"): (
        "what else was released about these records, a repetition of this run too, is not counted; nor are trials of "
        "which this is the best (learners.PrivateSearch and pc.RandomTrials count them)"
    ),
    ("other_releases", "composed"): "there are others, and only the composition of all certificates counts",
    ("noise", "exact"): "drawn bit for bit as the proofs take it",
    ("noise", "floating point"): "drawn in floating point; what that leaks is not counted",
    ("noise", "by other code"): f"whatever is random is drawn as described, on the caller's word; {UNSEEN}",
    ("noise", "in part by other code"): f"that part on the caller's word; {UNSEEN}",
    ("loop", "as described"): (
        "each row is the gradient of its own record alone, of the batch that was drawn: no batch normalisation, no "
        "loss over pairs, no mean of others is in it; what else the model has or remembers, and what was done before "
        "or beside, is not of private records; no adapter of a framework sees it"
    ),
    ("loop", "owned"): (
        "our code took the gradient of each record of the batch by itself; it is taken to be of its own record alone: "
        "no batch normalisation, no loss over pairs, no mean of others is in it; no loss, hook, closure, class or "
        "other variable that is not copied with the model keeps any of it for others, the data set gives each record "
        "by itself, and what else the model has, and what was done before or beside, is not of private records"
    ),
    ("rounding", "bounded"): "sums are exact, or their error was bounded, and paid",
    (
        "rounding",
        "not counted",
    ): "what rounding in sums and scores, and their order, add to what one record moves is not counted",
    ("randomness", "perfect"): "random numbers are taken as perfectly random",
    ("process", "as recorded"): "taken to have done what it recorded: a check shows consistency, not honesty",
    ("to_come", "not said"): "who sees to what can still be released; the certificate of the closed ledger says it",
}
"""What values mean, for people; of a scheme the value says it."""

LISTING = {"declared": Field((dict,), "what the caller said"), "needed": Field((list,), "what the proofs need")}
NEEDED = {
    "name": Field((str,), "which thing", (*PAGES, *SEEN)),
    "value": Field((str,), "how it was, or is assumed to be"),
    "by": Field((str,), "who saw to it, or said so", BY),
    "page": Field((str,), "which proof needs it"),
}
"""What a certificate lists, and each line of it."""

OURS = ("normaliser", "candidates", "parts")
"""What a learner's own code does, and declares; a clip norm is an argument, which somebody chose."""

TAKEN = {"keys": "kept", "trials": "drawn", "other_releases": "none", "parts": "disjoint", "preprocessing": "none"}
TAKEN |= {"copies": "none", "records_per_unit": "one"}
"""What is taken for granted, where nothing is said, if it is not "public"."""

LOOPS = {"adapter": "as described", "loader": "owned"}
"""Whose loop it is, by who asks."""

ALONE = ("one record", "one training example", "one user")
"""Units that are one record by what they are called."""


class Log(NamedTuple):
    """What a certificate's lines follow from.

    Attributes:
        declared: what the caller said, by name.
        basis: of the certificate.
        unit: what one record is.
        releases: what was released, each with its provenance; of a run without a ledger all by the caller's word.
        labelled: whether releases have labels.
        persons: how tables told whose a row is: "column", "values" or "word"; None without questions to tables.
        each_row: whether the ledger charged each row of scores; those of version 2 did not.
        open: whether more can be released.
        plan: of an open ledger, what may be released in all.
        named: whether the certificates of what it began from are named by their hashes, which is asked where they must
            be.
    """

    declared: Mapping[str, str]
    basis: str
    unit: str
    releases: Sequence[Release]
    labelled: bool = False
    persons: str | None = None
    each_row: bool = True
    open: bool = False
    plan: Run = Run(())
    named: bool = True


class Line(NamedTuple):
    """One thing that the proofs need."""

    name: str
    value: str
    by: str
    page: str


def lines(log: Log) -> list[Json]:
    """What a certificate says of its run, one thing after another.

    Raises:
        PrivcalcError: if what was declared is none of its values.
    """
    Assumptions.from_json(log.declared)
    releases = (*log.releases, *_to_come(log))
    found = [*_always(log), *(line for each in releases for line in _of(each, log)), *_tables(log)]
    if pages := [line.page for line in found if line.name == "sampling"]:  # one line for all schemes
        drawn = {"value": ", ".join(schemes(kinds(run_of(releases)))), "page": pages[0]}
        found = [line._replace(**drawn) if line.name == "sampling" else line for line in found]
    listed = {line.name for line in found}
    found += [_word(log, name) for name in log.declared if name not in listed]
    return weakest(line._asdict() for line in found)


def weakest(entries: Iterable[Mapping[str, str]]) -> list[Json]:
    """Of each thing what nobody, or the weakest of those who did, saw to; in one order."""
    found = list({tuple(entry[name] for name in NEEDED): dict(entry) for entry in entries}.values())
    least: dict[str, int] = {}
    for entry in found:
        least[entry["name"]] = max(_rank(entry), least.get(entry["name"], 0))
    kept = [entry for entry in found if _rank(entry) == least[entry["name"]]]
    return sorted(kept, key=lambda entry: ORDER.index(entry["name"]))


def _rank(entry: Mapping[str, str]) -> int:
    """The weaker, the higher; what is private has no one to vouch for it."""
    return len(BY) if entry["value"] == "private" else BY.index(entry["by"])


def private(listing: Mapping[str, Any]) -> list[str]:
    """What was private, so that nothing is proved."""
    return [entry["name"] for entry in listing["needed"] if entry["value"] == "private"]


def noise_of(releases: Iterable[Release]) -> str:
    """Who drew the noise, in words."""
    kinds_of = {each.provenance.noise for each in releases}
    if not kinds_of:
        return "none was drawn"
    if "other code" in kinds_of:
        return "by other code" if kinds_of == {"other code"} else "in part by other code"
    return "exact" if kinds_of == {"exact"} else "floating point"


def in_words(entry: Mapping[str, str]) -> str:
    """A line for people: what it is about, its value, and what that means; what nobody said, first."""
    says = SAYS.get((entry["name"], entry["value"]))
    value = "as the run says" if entry["value"] == "stated" else entry["value"]
    taken = f"NOT SAID, taken to be {value}" if entry["by"] == "nobody" else entry["value"]
    return f"{entry['name']}: {taken}" + (f": {says}" if says else "")


def check_form(listing: object) -> Json:
    """It, if it says of known things who saw to them.

    Raises:
        PrivcalcError: if not.
    """
    found = check_fields("assumptions", listing, LISTING)
    for entry in found["needed"]:
        check_fields("assumptions", entry, NEEDED)
    return found


def _always(log: Log) -> Iterator[Line]:
    """What every run needs."""
    if log.basis in ("plan", "cap"):
        yield _end(log)
    else:
        yield _word(log, "steps")._replace(**{"by": "caller"} if log.basis == "recorded" else {})
    yield _word(log, "parameters")
    yield _word(log, "other_releases")
    if log.labelled:
        yield _word(log, "labels")
    if log.open:
        yield Line("to_come", "not said", "always", SEEN["to_come"])
    if log.releases:
        drawn = noise_of(log.releases)
        yield Line("noise", drawn, {"exact": "ledger", "floating point": "always"}.get(drawn, "caller"), SEEN["noise"])
    yield Line("randomness", "perfect", "always", SEEN["randomness"])
    yield Line("process", "as recorded", "always", SEEN["process"])


def _end(log: Log) -> Line:
    """What decided when a ledger's run ended: who called it knows, or a learner, which has the ledger to itself."""
    word = _word(log, "steps")
    if word.by == "caller":
        return word
    own = not log.open and {each.provenance.by for each in log.releases} == {"learner"}
    return word._replace(value="released", by="code" if own else "nobody")


def _to_come(log: Log) -> Iterator[Release]:
    """What an open ledger may still release, of which nothing is known."""
    past = dict(run_of(log.releases).entries)
    for mechanism, uses in log.plan.entries if log.open else ():
        if uses > past.get(mechanism, 0):
            yield Release(mechanism, uses - past.get(mechanism, 0))


def _of(release: Release, log: Log) -> Iterator[Line]:
    """What one release needs."""
    run, told = release.mechanism.run, release.provenance
    needed, learner = needs(run), told.by == "learner"
    if needed & {"clip_norm", "candidates"}:
        yield _sensitivity(told)
        yield Line(
            "rounding", told.rounding, _asker(told) if told.rounding == "bounded" else "always", SEEN["rounding"]
        )
    if "clip_norm" in needed and told.sensitivity != "derived":
        page = next(kind.page for kind in kinds(run) if "clip_norm" in needs_of(kind))
        ours = learner and log.declared.get("clip_norm") == "released"  # by what the learner's own code derives it from
        word = _word(log, "clip_norm")._replace(page=page)
        yield word._replace(by="code") if ours else word
    if "normaliser" in needed:
        by = _asker(told)
        page = CLAMPED if by == "ledger" else PAGES["normaliser"]
        word = _word(log, "normaliser", learner=learner)
        yield word if told.divided == "stated" else Line("normaliser", told.divided, by, page)
    if "candidates" in needed:
        yield _word(log, "candidates", learner=learner)
    if "sampling" in needed:
        page = next(kind.page for kind in kinds(run) if "sampling" in needs_of(kind))
        word = _word(log, "sampling")._replace(page=page)
        yield word._replace(by="ledger") if told.batch == "drawn" else word
    if "parts" in needed:
        yield _word(log, "parts")._replace(page=next(kind.page for kind in kinds(run) if "parts" in needs_of(kind)))
    elif "candidates" in needed and told.seen and "parts" not in log.declared and log.each_row:
        yield Line("parts", "any, each was charged", "ledger", PAGES["parts"])
    elif "candidates" in needed and told.seen:
        yield _word(log, "parts", learner=learner)
    yield from (_word(log, name) for name in ("keys", "trials") if name in needed)
    if "keys" in needed:
        yield _word(log, "preprocessing")
    if "normaliser" in needed and told.by != "table question":
        yield from _training(run, log, told)


def _asker(told: Provenance) -> str:
    """Who saw to what the code that asked did: it, or who wrote it."""
    return {"table question": "ledger", "caller": "caller"}.get(told.by, "code")


def _sensitivity(told: Provenance) -> Line:
    if told.sensitivity == "stated":
        by = "nobody" if told == STATED else "caller"
    else:
        by = "caller" if told.by == "adapter" else _asker(told)  # who gives a loader rows made them
    return Line("sensitivity", told.sensitivity, by, CLAMPED if told.sensitivity == "derived" else SEEN["sensitivity"])


def _training(run: Run, log: Log, told: Provenance) -> Iterator[Line]:
    """Words of training: sums that may be gradients."""
    start = _word(log, "start")
    if start.value in ("certificate", "released") and not log.named:  # the bare word says nothing of which
        start = start._replace(by="nobody")
    yield start._replace(by="code") if told.by == "learner" and start.value in ("random", "none") else start
    if start.value == "none" and told.sensitivity == "stated":  # which is of a whole record by itself
        return
    before = _word(log, "preprocessing")  # a learner does some of its own, by public constants
    yield before._replace(value="public") if told.by == "learner" and before.by == "nobody" else before
    yield _word(log, "copies")
    if told.by in LOOPS:
        yield Line("loop", LOOPS[told.by], "caller", SEEN["loop"])
    one = _word(log, "records_per_unit")
    if one.by == "nobody" and unit_of(run) not in ALONE:
        one = one._replace(value="grouped", by="caller")
    elif one.by == "nobody" and log.unit in ALONE:
        one = one._replace(value="by definition", by="always")
    yield one


def _tables(log: Log) -> Iterator[Line]:
    """What questions to tables need."""
    if log.persons is None:
        return
    if "candidates" not in needs(run_of(log.releases)):
        yield _word(log, "candidates")._replace(page=CLAMPED)
    yield _word(log, "preprocessing")
    yield Line("rows_per_person", "kept" if log.persons == "word" else "counted", "caller", CLAMPED)


def _word(log: Log, name: str, *, learner: bool = False) -> Line:
    """What was said of something, or is taken for granted; what a learner said, its code does."""
    by = "nobody" if name not in log.declared else "code" if learner and name in OURS else "caller"
    return Line(name, log.declared.get(name, TAKEN.get(name, "public")), by, PAGES[name])


ORDER = (
    *(
        "steps",
        "parameters",
        "sensitivity",
        "normaliser",
        "clip_norm",
        "candidates",
        "sampling",
        "rows_per_person",
        "parts",
    ),
    *("keys", "trials", "labels", "public_records", "start", "preprocessing", "copies", "records_per_unit"),
    *("loop", "other_releases", "to_come", "noise", "rounding", "randomness", "process"),
)
"""In which lines are listed."""
