"""The results page of a run of ``python -m benchmarks.accountants``: every number on it is read from the run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from benchmarks.accountants.cases import FAMILIES, Case, cases
from privcalc.peers import PEERS

Json = dict[str, Any]
OURS = "privcalc"
SLACK = 1e-9  # relative: a claim is called too small only beyond it
TICK = 4e-6  # seconds: a thousand calls within one tick of the clock
LOOSE = 0.1  # relative: who is faster than we are, but further off than this, is named without numbers
INTRO = """# Accountants beside privcalc

Written by `python -m benchmarks.accountants{options} --out {file}` from its own output:
{asked} questions in {minutes:.0f} minutes; {versions}.

Seconds are processor seconds of one thread, with everything imported and after a first call; ratios are within one
case, the accountant's seconds over ours. Every accountant is asked as its documentation does, with its defaults; a
question may take {limit:g} s and 8 GiB.

The truth is an interval: {proved} have both ends proved in ball arithmetic (`pc.prove`), which shares no numerical
code with our answers; {engine} come from our own certified enclosure (marked ¹), where that takes too long or is
undecided. Errors are against its lower end. Positive: a user must claim more than is true. **Negative: the claim is
false**, too small (too little noise) by more than {slack:g}. Accountants that give an estimate promise no bound;
what they say is counted all the same.
"""


class Cell(NamedTuple):
    """One accountant on one case: ``outcome`` is "safe", "unsafe", "failed" or "cannot"; NaN if there is no number."""

    outcome: str
    value: float
    error: float
    seconds: float
    ratio: float
    found: Json


def judge(found: Json, truth: Json, ours: float) -> Cell:
    """What an answer is worth beside the truth; ``ours`` are our seconds."""
    nan = math.nan
    if "cannot" in found:
        return Cell("cannot", nan, nan, nan, nan, found)
    value = float(found.get("value", nan))
    if math.isnan(value) or value == math.inf:
        return Cell("failed", value, nan, nan, nan, found)
    seconds, low = max(found["warm"], TICK), float(truth.get("low", nan))
    error = value / low - 1 if low > 0 else 0.0 if value <= 0 else nan
    outcome = "unsafe" if value < low * (1 - SLACK) or value < 0 else "safe"
    return Cell(outcome, value, error, seconds, seconds / ours if ours else nan, found)


def cells(run: Json, name: str) -> dict[str, Cell]:
    """Everything one accountant was asked."""
    ours = {k: v.get("warm", math.nan) for k, v in run["answers"].get(OURS, {}).items()}
    mine = run["answers"].get(name, {}).items()
    return {k: judge(v, run["truth"].get(k, {}), ours.get(k, math.nan)) for k, v in mine}


def page(run: Json) -> str:
    """The whole page, in Markdown."""
    found = {name: cells(run, name) for name in (OURS, *run["setup"]["names"]) if name not in run["missing"]}
    known = [case for case in cases() if case.key in run["truth"]]
    sources = [truth.get("source", "none") for truth in run["truth"].values()]
    parts = named(run["setup"]["versions"])
    for later in run.get("added", []):
        parts += f"; added later ({', '.join(later['families'])}) with {named(later['versions'])}"
    intro = INTRO.format(
        options=" --quick" if run["setup"]["quick"] else "",
        file=run["file"],
        asked=f"{len(known)} of {len(list(cases()))}",
        versions=parts,
        minutes=run["seconds"] / 60,
        limit=run["setup"]["limit"],
        slack=SLACK,
        proved=sources.count("proved"),
        engine=sources.count("engine"),
    )
    lines = [
        intro,
        "## In one table\n",
        *summary(run, found),
        "## Where privcalc is slower or wider\n",
        *against_us(found, known),
    ]
    lines += ["## Claims that are false\n", *false_claims(found, known, run), "## What failed\n", *failures(found)]
    for family, title in FAMILIES.items():
        mine = [case for case in known if case.family == family]
        if mine:
            lines += [f"## {title}\n", *table(found, mine, run)]
    return "\n".join(lines)


def named(versions: dict[str, str]) -> str:
    """Packages with their versions."""
    return ", ".join(f"{package} {version}" for package, version in versions.items())


def rows(head: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    return ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *body)] + [""]


def number(value: float) -> str:
    """Two digits, or a dash."""
    return "–" if math.isnan(value) else f"{value:.2g}"


def percent(error: float) -> str:
    """An error: small ones as they are, others in per cent, or times the truth."""
    if math.isnan(error):
        return "–"
    return f"{error:.0e}" if abs(error) < 1e-4 else f"{100 * error:+.2g} %" if error < 1 else f"×{error + 1:.2g}"


def median(values: Iterable[float]) -> float:
    """The median of what is finite."""
    kept = [value for value in values if math.isfinite(value)]
    return statistics.median(kept) if kept else math.nan


def summary(run: Json, found: dict[str, dict[str, Cell]]) -> list[str]:
    """One line for each accountant, over all families but "precision"."""
    head = [
        "accountant",
        "asked",
        "answered",
        "time / ours, median",
        "error, median",
        "worst",
        "false claims",
        "failed",
        "cannot say",
    ]
    body = []
    for name, all_cells in found.items():
        own = [cell for key, cell in all_cells.items() if not key.startswith("precision")]
        safe = [cell for cell in own if cell.outcome == "safe"]
        good = [cell for cell in own if cell.outcome in {"safe", "unsafe"}]
        count = {kind: sum(cell.outcome == kind for cell in own) for kind in ("unsafe", "failed", "cannot")}
        package = OURS if name == OURS else PEERS[name].package
        imported, first = run["imports"].get(package, math.nan), median(cell.found["first"] for cell in good)
        memory = [cell.found["memory"] for cell in good]
        errors = [abs(cell.error) for cell in good if math.isfinite(cell.error)]
        body.append(
            [
                name + (" (estimate)" if name != OURS and PEERS[name].kind == "estimate" else ""),
                *(str(len(own)), str(len(good)), number(median(cell.ratio for cell in good)) if name != OURS else "1"),
                *(
                    percent(median(errors)),
                    percent(max((c.error for c in safe if math.isfinite(c.error)), default=math.nan)),
                ),
                f"**{count['unsafe']}**, worst {percent(min(cell.error for cell in good))}" if count["unsafe"] else "0",
                *(str(count["failed"]), str(count["cannot"])),
                *(number(imported + first), f"{median(memory):.0f}", f"{max(memory, default=math.nan):.0f}"),
            ]
        )
    lines = rows([*head, "cold, s", "memory, MiB", "most"], body)
    lines += [f"{name}: not installed: {reason}.\n" for name, reason in run["missing"].items()]
    for later in run.get("added", []):
        where = ", ".join(later["families"])
        lines += [
            f"{name}: not installed for what was added ({where}): {why}.\n" for name, why in later["missing"].items()
        ]
    passing = [f"{name} ({peer.passes_on})" for name, peer in PEERS.items() if peer.passes_on and name in found]
    if passing:
        lines.append(f"Passing on another's ε, and so asked for that less often: {', '.join(passing)}.")
    return [
        *lines,
        "Cold: importing, and the median first call. Worst: of claims that hold. Memory: peak of one question, "
        "median and most.",
        "Failed: an exception, no finite number, or out of time. Cannot say: "
        "refused as outside what the accountant knows.\n",
    ]


def against_us(found: dict[str, dict[str, Cell]], known: list[Case]) -> list[str]:
    """Cases in which we fail, are slow, wide, or beaten."""
    body, ours = [], found[OURS]
    for case in known:
        cell, remarks, loose = ours[case.key], list[str](), list[str]()
        if cell.outcome not in {"safe", "unsafe"}:
            remarks.append(f"no answer: {cell.found.get('failed', cell.found.get('cannot'))}")
        else:
            lower = float(cell.found.get("lower", cell.value))
            if cell.seconds > 1:
                remarks.append(f"{number(cell.seconds)} s")
            if cell.value - lower > 1e-6 * cell.value:
                remarks.append(f"wide: [{lower:.7g}, {cell.value:.7g}] by {cell.found.get('remark')}")
        for name, theirs in found.items():
            other = theirs.get(case.key)
            if name == OURS or other is None or other.outcome != "safe" or case.family == "precision":
                continue
            if other.value < cell.value * (1 - SLACK):
                remarks.append(f"{name} is tighter, {other.value:.7g}")
            if cell.outcome != "safe" or other.seconds < cell.seconds:
                if not abs(other.error) < LOOSE:
                    loose.append(name)
                    continue
                times = (
                    f", {cell.seconds / other.seconds:.2g} times faster"
                    if cell.outcome == "safe"
                    else f" takes {number(other.seconds)} s"
                )
                remarks.append(f"{name}{times} (error {percent(other.error)})")
        if loose:
            remarks.append(f"faster, more than {100 * LOOSE:g} % too large: {', '.join(loose)}")
        if remarks:
            body.append([case.family, case.name, "; ".join(remarks)])
    return rows(["family", "case", "what"], body) if body else ["Nowhere in this run.\n"]


def false_claims(found: dict[str, dict[str, Cell]], known: list[Case], run: Json) -> list[str]:
    """Each claim below the lower end of the truth."""
    body = []
    for case in known:
        for name, theirs in found.items():
            cell = theirs.get(case.key)
            if cell is not None and cell.outcome == "unsafe":
                low = run["truth"][case.key]["low"]
                body.append([case.family, case.name, name, f"{cell.value:.7g}", f"{low:.7g}", percent(cell.error)])
    if not body:
        return ["None in this run.\n"]
    wrong = {line[2] for line in body}
    faults = [f"{name}: {PEERS[name].faults}.\n" for name in found if name in wrong and PEERS[name].faults]
    return [*rows(["family", "case", "accountant", "claims", "at least", "error"], body), *faults]


def failures(found: dict[str, dict[str, Cell]]) -> list[str]:
    """Why there was no finite number, and how often."""
    body = []
    for name, theirs in found.items():
        reasons = [
            cell.found.get("failed", f"ε = {cell.value}") for cell in theirs.values() if cell.outcome == "failed"
        ]
        body += [
            [name, str(reasons.count(reason)), reason.replace("|", "/")[:120]] for reason in dict.fromkeys(reasons)
        ]
    return rows(["accountant", "times", "what"], body) if body else ["Nothing in this run.\n"]


def table(found: dict[str, dict[str, Cell]], mine: list[Case], run: Json) -> list[str]:
    """One family: error and seconds of everyone; the truth in the second column."""
    names = [
        name
        for name in found
        if any(case.key in found[name] and found[name][case.key].outcome != "cannot" for case in mine)
    ]
    body = []
    for case in mine:
        truth = run["truth"][case.key]
        mark = "" if truth.get("source") == "proved" else "¹"
        line = [case.name, f"{float(truth['low']):.7g}{mark}" if "low" in truth else "–"]
        for name in names:
            cell = found[name].get(case.key)
            if cell is None or cell.outcome in {"cannot", "failed"}:
                line.append("" if cell is None else "–" if cell.outcome == "cannot" else "failed")
                continue
            error = percent(cell.error) if math.isfinite(cell.error) else f"claims {cell.value:.2g}"
            line.append(f"{'**' + error + '**' if cell.outcome == 'unsafe' else error}, {number(cell.seconds)} s")
        body.append(line)
    return rows(["case", "truth", *names], body)
