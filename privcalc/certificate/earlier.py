"""The assumptions of certificates of versions 2 and 3, by which these are checked, in their own words.

They are compared with their ledgers in these words, too.

Both took noise to be one of ``schema.NOISE``, and had ``idealised`` beside their list of assumptions, which did not say
provenance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from privcalc.certificate.assumed import COUNTED, Log, lines
from privcalc.certificate.schema import NOISE
from privcalc.errors import PrivcalcError
from privcalc.ledger.assumptions import STATED, Provenance, Release, needs, placed_by_word, run_of
from privcalc.run import Run
from privcalc.serial import Json, canonical, run_from_json

__all__ = ["check_words", "composed", "log_of", "noise_in", "words"]

IDEALISED = {
    "real": "noise is taken as real-valued: what floating-point noise leaks is not counted (the "
    "discrete Gaussian is exact)",
    "declared": "noise that other code drew is taken as real-valued: what floating-point noise leaks is not counted",
    "random": "random numbers are taken as perfectly random",
    "sums": "sums and scores are taken to be as sensitive as stated: what rounding in them, and their order, "
    "add is not counted",
    "process": "the process is taken to have done what it recorded: a check shows consistency, not honesty",
}

FIRST = ("steps", "parameters", "normaliser", "clip_norm", "candidates", "sampling")
SECOND = ("parts", "keys", "trials", "labels", "public_records", "start", "other_releases", "rows_per_person")
CITED = {"clip_norm": "gaussian.md", "normaliser": "noisy_gd.md"}
"""Pages that they cited of every sum, whatever its noise."""

LISTED = {2: FIRST, 3: (*FIRST, *SECOND)}
"""What each listed."""


def words(log: Log, run: Run, version: int, *, noise: str) -> Json:
    """What follows from a log, as that version said it.

    Args:
        log: what was released.
        run: what is certified; that part of it which did not run was listed, too.
        version: 2 or 3.
        noise: one of ``NOISE``.
    """
    found = [_renamed(each, log) for each in lines(log._replace(releases=(*_unseen(run, log), *log.releases)))]
    then = (line for each in found if _old(each, log, version) for line in _as_then(each, log))
    listed = {canonical(each): each for each in then}
    declared = bool(run_of(log.releases, seen=False).entries)
    said = {"declared": dict(log.declared), "needed": list(listed.values())}
    return {"assumptions": said, "noise": noise, "idealised": _idealised(noise, declared)}


def noise_in(releases: Sequence[Release], *, closed: bool) -> str:
    """What a ledger's noise was said to be; the sums are bounded if all that it drew, and will draw, is."""
    drawn = [each.provenance for each in releases if each.provenance.seen]
    if any(each.noise == "floating point" for each in drawn):
        return NOISE[0]
    return NOISE[2] if closed and drawn and all(each.rounding == "bounded" for each in drawn) else NOISE[1]


def log_of(document: Mapping[str, Any]) -> Log:
    """The log of an old certificate, as far as it tells.

    The provenance is read off its list, which a ledger decides about.
    """
    entries = {entry["name"]: entry for entry in document["assumptions"]["needed"]}
    by = {name: entry["by"] for name, entry in entries.items()}
    outside, recorded = run_from_json(document["declared"]), run_from_json(document["recorded"] or [])
    noise = document.get("noise", NOISE[0])
    drawn = Provenance(
        batch="drawn" if by.get("sampling") == "ledger" else "stated",
        noise="floating point" if noise == NOISE[0] else "exact",
        rounding="bounded" if noise == NOISE[2] else "not counted",
    )
    others = dict(outside.entries)
    rest = [(mechanism, uses - others.get(mechanism, 0)) for mechanism, uses in recorded.entries]
    tabled = "rows_per_person" in by or entries.get("candidates", {}).get("page") == "tables.md"
    return Log(
        declared=document["assumptions"]["declared"],
        basis=document["basis"],
        unit=document["unit"],
        releases=[*(Release(*e) for e in outside.entries), *(Release(*e, drawn) for e in rest if e[1] > 0)],
        labelled="labels" in by,
        persons=("word" if "rows_per_person" in by else "values") if tabled else None,
        each_row=document["version"] > 2 and by.get("parts", "ledger") == "ledger",
        open=document["status"] == "open",
        seeded=document["seeded"],
    )


def check_words(document: Mapping[str, Any]) -> Json:
    """What an old certificate must say of its log.

    Raises:
        PrivcalcError: if it declares what its version did not know, or says that sums are bounded where none can be.
    """
    version, log, run = document["version"], log_of(document), run_from_json(document["run"])
    if not set(log.declared) <= set(LISTED[version]):
        raise PrivcalcError(
            f"assumptions: version {version} has {', '.join(LISTED[version])}, not {sorted(log.declared)}"
        )
    noise = document.get("noise", NOISE[0])
    drawn = run_of(log.releases, seen=True)
    if noise == NOISE[2] and (
        log.open or not drawn.entries or "normaliser" not in set.intersection(*map(needs, _each(drawn)))
    ):
        raise PrivcalcError(f"noise = {NOISE[2]!r}: must be of a closed ledger that drew sums only")
    said = words(log, run, version, noise=noise)
    if "noise" not in document:  # which certificates did not say at first
        said["idealised"] = [
            text for text in said["idealised"] if text not in (IDEALISED["sums"], IDEALISED["declared"])
        ]
    return said


def composed(parts: Sequence[Mapping[str, Any]], run: Run) -> Json:
    """The entries that a composition of version 3 inherits: each of its parts' once.

    What parts of version 2 took for granted is among them.
    """
    found = {canonical(entry): entry for part in parts for entry in part["assumptions"]["needed"]}
    for part in parts:
        names = {entry["name"] for entry in part["assumptions"]["needed"]}
        rows = ["parts"] if "candidates" in names or "parts" in needs(run) else []
        for line in lines(
            Log({}, "declared", "", [Release(each, 1, Provenance(noise="exact")) for each, _ in run.entries])
        ):
            if "other_releases" not in names and line["name"] in (*rows, "other_releases"):
                entry = {**line, "value": "disjoint", "by": "nobody"} if line["name"] == "parts" else line
                found[canonical(entry)] = entry
    return {
        "assumptions": {"declared": {}, "needed": list(found.values())},
        "noise": min((part.get("noise", NOISE[0]) for part in parts), key=NOISE.index),
        "idealised": [text for text in IDEALISED.values() if any(text in part["idealised"] for part in parts)],
    }


def _unseen(run: Run, log: Log) -> Iterable[Release]:
    """What was certified and perhaps not run: nobody but the ledger would have drawn its batches."""
    for mechanism, uses in run.entries:
        word = log.basis == "declared" or placed_by_word(mechanism.run)
        yield Release(mechanism, uses, STATED if word else Provenance(batch="drawn"))


def _old(line: Json, log: Log, version: int) -> bool:
    name = line["name"]
    if name in ("public_records", "start"):
        return name in log.declared
    return (
        name in LISTED[version] and line["value"] != COUNTED and (name != "rows_per_person" or line["value"] == "kept")
    )


def _renamed(line: Json, log: Log) -> Json:
    """One page was cited of all schemes; a gate had a clip norm; and choices that no ledger drew no line."""
    if line["name"] == "sampling":
        return {**line, "value": line["value"].replace("; ", ", "), "page": line["page"].split(", ")[0]}
    if line["name"] == "questions":
        return {**line, "name": "clip_norm"}
    if line["value"] == COUNTED and log.each_row and any(_choice(each) for each in log.releases):
        return {**line, "value": "any, each was charged", "by": "ledger"}
    return line


def _choice(release: Release) -> bool:
    return release.provenance.seen and "candidates" in needs(release.mechanism.run)


def _as_then(line: Json, log: Log) -> Iterator[Json]:
    """A line as it was: of a plan or cap the ledger was taken to see to the steps; and the pages it cited, one each."""
    by = "ledger" if line["name"] == "steps" and log.basis in ("plan", "cap") else line["by"]
    for page in str(CITED.get(line["name"], line["page"])).split(", "):
        yield {**line, "by": by, "page": page}


def _idealised(noise: str, declared: bool) -> list[str]:
    real = noise == NOISE[0]
    needed = {"real": real, "declared": declared and not real, "sums": noise != NOISE[2] or declared}
    return [text for name, text in IDEALISED.items() if needed.get(name, True)]


def _each(run: Run) -> list[Run]:
    return [mechanism.run for mechanism, _ in run.entries]
