"""Every installed accountant beside ours: ``python -m benchmarks.accountants``.

The questions of ``benchmarks.accountants.cases`` go to each accountant of ``privcalc.peers`` in a process of its own,
with one thread, and to a rigorous route for the truth. Seconds are those of the processor, which other work on the
machine hardly changes, and all accountants are asked one case after another: compare them within a case.
``--out FILE.json`` keeps what was found after every answer, so that a run that was stopped goes on, and writes the
results page FILE.md beside it; ``--add`` asks what the file does not have, by families, with what is installed now.
With ``--grid N`` instead: width and time of our answers on random runs.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import privcalc as pc
from benchmarks.accountants import grid as benchmark_grid
from benchmarks.accountants import page as benchmark_page
from benchmarks.accountants.cases import FAMILIES, Case, cases
from benchmarks.accountants.worker import OURS, THREADS, TRUTH, Worker
from privcalc.files import read_whole, write_whole
from privcalc.peers import PEERS
from privcalc.terminal import command

Json = dict[str, Any]
LIMIT, QUICK_LIMIT = 30.0, 5.0  # processor seconds for one question
IMPORT = (
    "import sys, time; t = time.process_time(); [__import__(m) for m in sys.argv[1:]]; print(time.process_time() - t)"
)
GROWING = {"entries", "steps"}  # whose cases grow: after one that took too long, the rest is not asked


def versions() -> dict[str, str]:
    """The versions of everything that takes part; packages that are not installed are left out."""
    found = {"privcalc": pc.__version__, "python": platform.python_version()}
    for package in sorted({"numpy", "scipy", "python-flint", *(peer.package for peer in PEERS.values())}):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def started(quick: bool, names: Sequence[str], path: Path | None, *, add: bool = False) -> Json:
    """An empty run, or the one in the file if it was made with the same versions and settings.

    With ``add`` versions may differ from those of the families that the file has: they are kept for those that are
    added.
    """
    setup = {"quick": quick, "limit": QUICK_LIMIT if quick else LIMIT, "names": list(names), "versions": versions()}
    if path is not None and path.exists():
        run: Json = json.loads(read_whole(path, name="--out"))
        had, added = run.get("setup", {}), run.setdefault("added", [])
        last = added[-1] if added else had
        left = {case.family for case in cases() if case.key not in run.get("truth", {}) and (case.quick or not quick)}
        new = [family for family in FAMILIES if family in left]
        if add and new and had | {"versions": setup["versions"]} == setup:
            if not added or last["versions"] != setup["versions"]:
                added.append({"families": [], "versions": setup["versions"], "missing": {}})
            added[-1]["families"] = list(dict.fromkeys([*added[-1]["families"], *new]))
            return run
        if had | {"versions": last.get("versions")} == setup:
            return run
        raise pc.PrivcalcError(
            f"--out = {path}: is of another run (other versions or settings): remove it, or choose another file"
        )
    return {"setup": setup, "added": [], "missing": {}, "imports": {}, "seconds": 0.0, "truth": {}, "answers": {}}


def current(run: Json) -> Json:
    """What is being asked now: the run, or what was added to it last; it says what is missing."""
    part: Json = run["added"][-1] if run["added"] else run
    return part


def questions(run: Json) -> list[Case]:
    """What may be asked: everything, or what was added last."""
    families = current(run).get("families", FAMILIES)
    return [case for case in cases() if case.family in families and (case.quick or not run["setup"]["quick"])]


def applies(name: str, case: Case) -> bool:
    """Whether the accountant is asked; those that pass on another's ε only where people start, and their own."""
    if name in {OURS, TRUTH}:
        return True
    peer = PEERS[name]
    if case.family == "precision" and not peer.has_grid:
        return False
    return case.question.asks in peer.answers and (not peer.passes_on or case.family in {"usual", "attack"})


def too_large(run: Json, name: str, case: Case) -> bool:
    """Whether a smaller case of a growing family was already too much."""
    mine = run["answers"].get(name, {})
    return case.family in GROWING and any(k.startswith(f"{case.family}:") and v.get("late") for k, v in mine.items())


def imported(name: str, repeats: int) -> float:
    """Median processor seconds of the import in a fresh interpreter."""
    modules = ("privcalc",) if name == OURS else PEERS[name].modules
    command = [sys.executable, "-W", "ignore", "-c", IMPORT, *modules]
    times = [
        subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1] for _ in range(repeats)
    ]
    return statistics.median(map(float, times))


def evenly(asked: Sequence[Case]) -> list[Case]:
    """The quick ones first, then all families side by side, so that a run that was stopped has some of each."""
    families = {family: [case for case in asked if case.family == family] for family in {case.family for case in asked}}
    return sorted(
        asked, key=lambda case: (not case.quick, families[case.family].index(case) / len(families[case.family]))
    )


def answers(run: Json, names: Sequence[str]) -> Generator[str, None, None]:
    """Ask what is not answered yet; yields a line after each step. ``run`` fills up."""
    setup, missing, workers = run["setup"], current(run)["missing"], dict[str, Worker]()
    asked = questions(run)
    try:
        for name in (OURS, TRUTH, *names):
            kept = run["truth"] if name == TRUTH else run["answers"].get(name, {})
            if name in missing or all(case.key in kept or not applies(name, case) for case in asked):
                continue
            workers[name] = Worker(name)
            if workers[name].missing:
                missing[name] = workers[name].missing
                workers.pop(name).close()
                yield f"{name}: not installed"
            elif name != TRUTH and (package := OURS if name == OURS else PEERS[name].package) not in run["imports"]:
                run["imports"][package] = imported(name, 1 if setup["quick"] else 3)
                yield f"{package}: imported"
        for case in evenly(asked):
            for name, worker in workers.items():
                kept = run["truth"] if name == TRUTH else run["answers"].setdefault(name, {})
                if case.key in kept or not applies(name, case):
                    continue
                if too_large(run, name, case):
                    kept[case.key] = {"failed": "not asked: a smaller one took too long", "late": True}
                else:
                    kept[case.key] = worker.ask(case, setup["limit"])
                if (
                    name == TRUTH
                    and "low" not in kept[case.key]
                    and "value" in (mine := run["answers"][OURS][case.key])
                ):
                    kept[case.key] |= {
                        "low": mine.get("lower", mine["value"]),
                        "high": mine["value"],
                        "source": "engine",
                    }
                yield f"{case.key}: {name}"
    finally:
        for worker in workers.values():
            worker.close()


def compare(quick: bool, names: Sequence[str], path: Path | None, progress: bool, minutes: float, *, add: bool) -> Json:
    """The run, saved after every answer; all of it, or as much as can be asked in these minutes."""
    tqdm = importlib.import_module("tqdm").tqdm
    run = started(quick, names, path, add=add)
    done = sum(map(len, run["answers"].values())) + len(run["truth"])
    asked = [case for case in cases() if case.quick or not quick]
    total = sum(applies(name, case) for name in (TRUTH, OURS, *names) if name not in run["missing"] for case in asked)
    before, start = run["seconds"], time.monotonic()
    with tqdm(total=total, initial=done, disable=not progress, unit="answer", smoothing=0) as bar:
        for line in (steps := answers(run, names)):
            run["seconds"] = before + time.monotonic() - start
            bar.set_postfix_str(line[:60], refresh=False)
            bar.update(sum(map(len, run["answers"].values())) + len(run["truth"]) - bar.n)
            if path is not None:
                write_whole(path, json.dumps(run, indent=1, ensure_ascii=False) + "\n")
            if time.monotonic() - start > 60 * minutes:
                steps.close()
                break
    return run


def grid(count: int, seed: int) -> Json:
    """Print one report for each group of random runs."""
    found: list[benchmark_grid.Draw] = []
    for group in benchmark_grid.GROUPS:
        draws = list(benchmark_grid.draws(group, count, seed))
        print(benchmark_grid.report(draws), flush=True)
        found += draws
    return {"grid": [draw._asdict() for draw in found]}


@command("python -m benchmarks.accountants")
def main(arguments: Sequence[str] | None = None) -> int:
    """Ask everyone, or draw the grid; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accountants", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a dozen cases, under three minutes")
    parser.add_argument(
        "--peers", nargs="*", choices=list(PEERS), metavar="NAME", help=f"only these of {', '.join(PEERS)}"
    )
    parser.add_argument(
        "--grid", type=int, metavar="N", help="instead: N random runs of each of two groups, ours alone"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random runs (default 0)")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE.json",
        help="where to keep what was found, and FILE.md; goes on if it is there",
    )
    parser.add_argument(
        "--minutes", type=float, default=30.0, help="stop after so many (default 30); with --out the next run goes on"
    )
    parser.add_argument("--add", action="store_true", help="with --out: ask only families that the file has not all of")
    parser.add_argument("--no-progress", action="store_true", help="no progress bar")
    options = parser.parse_args(arguments)
    if options.grid is not None and options.grid < 1:
        parser.error("--grid: must be at least 1")
    if any(os.environ.get(name) != "1" for name in THREADS):  # NumPy has read them: start again
        given = sys.argv[1:] if arguments is None else arguments
        command = [sys.executable, "-m", "benchmarks.accountants", *given]
        return subprocess.call(command, env=os.environ | dict.fromkeys(THREADS, "1"))
    warnings.simplefilter("ignore")
    if options.grid:
        found = grid(options.grid, options.seed)
        if options.out:
            write_whole(options.out, json.dumps(found, indent=1) + "\n")
        return 0
    names = list(PEERS) if options.peers is None else options.peers
    try:
        run = compare(options.quick, names, options.out, not options.no_progress, options.minutes, add=options.add)
    except pc.PrivcalcError as error:
        parser.error(str(error))
    page = benchmark_page.page(run | {"file": str(options.out or "FILE.json")})
    if options.out:
        write_whole(options.out.with_suffix(".md"), page)
    print(page)
    return 0
