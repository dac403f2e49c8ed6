"""Assumptions of a certificate: who saw to each thing that the proofs need. A function of the log alone.

Of each thing the weakest provenance that occurs is listed, with the page that needs it (``proofs/assumptions.md``).
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from privcalc.ledger.assumptions import (
    PAGES,
    STATED,
    VALUES,
    Assumptions,
    Provenance,
    Release,
    every,
    kinds,
    needs,
    needs_of,
    run_of,
    schemes,
)
from privcalc.run import Run
from privcalc.serial import Field, Json, check_fields

__all__ = ["Log", "check_form", "in_words", "lines", "noise_of", "private", "summary", "weakest", "words"]

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
    "guarantee": "conversions.md",
    "sensitivity": "ledger.md",
    "questions": "sparse_vector.md",
    "reports": "randomized_response.md",
    "rows_per_person": CLAMPED,
    "noise": "executed_noise.md",
    "rounding": "executed_noise.md",
    "randomness": "executed_noise.md",
    "process": "certificate.md",
    "to_come": "ledger.md",
    "loop": "interop.md",
}
"""What is not declared, and follows from the log, with its page."""

LISTING = {"declared": Field((dict,), "what the caller said"), "needed": Field((list,), "what the proofs need")}
NEEDED = {
    "name": Field((str,), "which thing", (*PAGES, *SEEN)),
    "value": Field((str,), "how it was, or is assumed to be"),
    "by": Field((str,), "who saw to it, or said so", BY),
    "page": Field((str,), "which proof needs it"),
}
OF = {"parts": Field((list,), "of a composition: the parts that the line is of, from 1, if it is not of all")}
"""What a certificate lists; each line of it; and what a line of a composition may have besides."""

OURS = ("normaliser", "candidates", "parts", "trials")
"""What a learner's own code does, and declares; a clip norm is an argument, which somebody chose."""

NO_NOISE, OTHERS, IN_PART = "none was drawn", "by other code", "in part "
NOISES = ("from a seed", OTHERS, "floating point", "by our code", "exact")
"""Who drew the noise, from the least: each release's; of several the least, which may be of a part."""

WEIGHED = {"normaliser", "clip_norm", "candidates", "monotone", "sampling", "parts"}
"""Words on which a release's provenance has a say; of all others a need is listed as it was said."""

COUNTED = "as counted"
"""Of choices that no ledger drew: each counts as often as it was written down."""

SHOWN = 10
"""Most parts of a composition that a line names for people."""

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
        seeded: whether the noise that the ledger drew came from a seed.
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
    seeded: bool = False
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
    drawn = "; ".join(schemes(kinds(run_of(releases))))  # one line for all schemes
    found = [line._replace(value=drawn) if line.name == "sampling" else line for line in found]
    if any(line[:2] == ("monotone", "one way") for line in found):  # which is of all that are priced so
        found = [line for line in found if line[:2] != ("monotone", "either way")]
    listed = {"clip_norm" if line.name == "questions" else line.name for line in found}
    found += [_word(log, name) for name in log.declared if name not in listed]
    return weakest(line._asdict() for line in found)


def weakest(*parts: Iterable[Mapping[str, str]]) -> list[Json]:
    """Of each thing what nobody, or the weakest of those who did, saw to; in one order.

    Args:
        parts: lines; of a composition those of each part, of which a line names the parts that have it, if not all do.
    """
    found: dict[tuple[str, str, str], tuple[set[int], set[str]]] = {}
    for number, entries in enumerate(parts, 1):
        for entry in entries:
            numbers, pages = found.setdefault((entry["name"], entry["value"], entry["by"]), (set(), set()))
            numbers.add(number)
            pages.update(entry["page"].split(", "))
    lines = {Line(*key, ", ".join(sorted(pages))): sorted(numbers) for key, (numbers, pages) in found.items()}
    least: dict[str, int] = {}
    for line in lines:
        if (rank := _rank(line)) < len(BY):  # beside what nobody can vouch for the weakest of the rest is listed, too
            least[line.name] = max(rank, least.get(line.name, 0))
    order = list(words())
    kept = sorted(
        (line for line in lines if _rank(line) in (least.get(line.name), len(BY))),
        key=lambda line: (order.index(line.name), lines[line], line),
    )
    return [line._asdict() | ({"parts": lines[line]} if len(lines[line]) < len(parts) else {}) for line in kept]


def _rank(line: Line) -> int:
    """The weaker, the higher; for what is private, and noise that can be drawn again, nobody can vouch."""
    return len(BY) if line.value == "private" or "from a seed" in line.value else BY.index(line.by)


def private(listing: Mapping[str, Any]) -> list[str]:
    """What was private, so that nothing is proved."""
    return [entry["name"] for entry in listing["needed"] if entry["value"] == "private"]


def noise_of(log: Log) -> str:
    """Who drew the noise of a run, in words."""
    return summary(_drawn(each.provenance, log) for each in log.releases)


def _ours(told: Provenance) -> bool:
    """Whether a ledger drew it; a learner that has a release written down drew it in ledgers of its own."""
    return told.seen or told.by == "learner"


def _drawn(told: Provenance, log: Log) -> str:
    """Who drew a release's noise."""
    ours = _ours(told)
    return "from a seed" if log.seeded and ours else told.noise if told.seen else "by our code" if ours else OTHERS


def summary(drawn: Iterable[str]) -> str:
    """What is said of several: all that is weak, or the weakest."""
    said = {word for each in drawn for word in each.split(", ")} - {NO_NOISE}
    found = {word.removeprefix(IN_PART) for word in said}
    weak = [word for word in NOISES[:2] if word in found]
    if weak and (len(found) > 1 or found != said):
        return ", ".join(f"{IN_PART}{word}" for word in weak)
    return next((word for word in NOISES if word in found), NO_NOISE)


@functools.cache
def words() -> Mapping[str, Mapping[str, str]]:
    """What the values of lines mean, for people, in the order of lines; of a scheme of sampling the value says it."""
    return tomllib.loads((files(__package__) / "pages" / "words.toml").read_text(encoding="utf-8"))


def in_words(entry: Mapping[str, Any]) -> str:
    """A line for people: what it is about, its value, and what that means; what nobody said, first."""
    texts, said = words().get(entry["name"], {}), entry["value"]
    says = texts.get(said) or "; ".join(texts[word] for word in said.split(", ") if word in texts)
    value = "as the run says" if said == "stated" else said
    taken = f"NOT SAID, taken to be {value}" if entry["by"] == "nobody" else said
    return f"{entry['name']}{_of_parts(entry.get('parts', []))}: {taken}" + (f": {says}" if says else "")


def _of_parts(numbers: Sequence[int]) -> str:
    """Of which parts of a composition a line is."""
    shown = ", ".join(map(str, numbers[:SHOWN])) + ", …" * (len(numbers) > SHOWN)
    return f" (part{'s' * (len(numbers) > 1)} {shown})" if numbers else ""


def check_form(listing: object) -> Json:
    """It, if it says of known things who saw to them.

    Raises:
        PrivcalcError: if not.
    """
    found = check_fields("assumptions", listing, LISTING)
    for entry in found["needed"]:
        check_fields("assumptions", {"parts": [], **entry} if isinstance(entry, dict) else entry, NEEDED | OF)
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
        drawn = noise_of(log)
        by = {"exact": "ledger", "floating point": "always", "by our code": "code"}.get(drawn, "caller")
        yield Line("noise", drawn, by, SEEN["noise"])
    seeded = log.seeded and (log.open or any(_ours(each.provenance) for each in log.releases))
    yield Line("randomness", *(("from a seed", "caller") if seeded else ("perfect", "always")), SEEN["randomness"])
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
    for mechanism, uses in log.plan.entries if log.open and log.basis != "cap" else ():
        if uses > past.get(mechanism, 0):
            yield Release(mechanism, uses - past.get(mechanism, 0))


def _of(release: Release, log: Log) -> Iterator[Line]:
    """What one release needs."""
    run, told = release.mechanism.run, release.provenance
    needed, learner = needs(run), told.by == "learner"

    def each(name: str, line: Line) -> Iterator[Line]:
        return (line._replace(page=kind.page) for kind in kinds(run) if name in needs_of(kind))

    if "guarantee" in needed:
        yield from each("guarantee", Line("guarantee", "stated", "code" if learner else "caller", ""))
    if needed & {"clip_norm", "candidates", "questions"}:
        yield _sensitivity(told)
        by = _asker(told) if told.rounding == "bounded" else "always"
        yield Line("rounding", told.rounding, by, SEEN["rounding"])
    if "questions" in needed:
        yield from each("questions", _word(log, "clip_norm")._replace(name="questions"))
    if "clip_norm" in needed and told.sensitivity != "derived":
        ours = learner and log.declared.get("clip_norm") == "released"  # by what the learner's own code derives it from
        word = _word(log, "clip_norm")
        yield from each("clip_norm", word._replace(by="code") if ours else word)
    if "normaliser" in needed:
        by = _asker(told)
        page = CLAMPED if by == "ledger" else PAGES["normaliser"]
        word = _word(log, "normaliser", learner=learner)
        yield word if told.divided == "stated" else Line("normaliser", told.divided, by, page)
    if "candidates" in needed:
        yield _word(log, "candidates", learner=learner)
    if "monotone" in needed:
        yield from _one_way(run, log, told)
    if "sampling" in needed:
        word = _word(log, "sampling")
        drew = "ledger" if told.batch == "drawn" else "code" if learner and not told.seen else word.by
        yield from each("sampling", word._replace(by=drew))
    if "parts" in needed:
        yield from each("parts", _word(log, "parts"))
    elif "candidates" in needed and "parts" not in log.declared and (log.each_row or not told.seen):
        seen = ("any, each was charged", "ledger") if told.seen else (COUNTED, "code" if learner else "caller")
        yield Line("parts", *seen, PAGES["parts"])
    elif "candidates" in needed:
        yield _word(log, "parts", learner=learner)
    yield from (_word(log, name, learner=learner) for name in PAGES if name in needed - WEIGHED)
    if "keys" in needed:
        yield _word(log, "preprocessing")
    if "reports" in needed:
        yield from each("reports", Line("reports", "always sent", "nobody", ""))
    rows = bool(needed & {"candidates", "questions"}) and told.sensitivity == "clipped"  # of a person with several?
    if rows or ("normaliser" in needed and told.by != "table question"):
        yield from _training(run, log, told)


def _one_way(run: Run, log: Log, told: Provenance) -> Iterator[Line]:
    """Scores that a record can only raise cost half of what others do."""
    asked = [each for each in every(run) if "monotone" in type(each).needs]
    word = _word(log, "monotone")
    for each in asked:
        if getattr(each, "monotone", True):
            by = _sensitivity(told).by  # who bounds a score says which way a record moves it; a ledger asks
            yield word._replace(by=word.by if by == "nobody" else by, page=type(each).page)
        else:
            yield Line("monotone", "either way", "code", type(each).page)


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
    if one.by == "nobody" and run.unit not in ALONE:
        one = one._replace(value="grouped", by="nobody" if told == STATED else "caller")  # whose each record is
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
    return Line(name, log.declared.get(name, (*VALUES[name], "public")[0]), by, PAGES[name])
