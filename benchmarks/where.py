"""Where the time of some calls goes: by module, or as a flame graph (``python -m benchmarks.slow_tail --profile``)."""

from __future__ import annotations

import cProfile
import importlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from privcalc.errors import PrivcalcError
from privcalc.files import write_whole

Case = Callable[[], object]

SECONDS = 2.0
"""Processor seconds for which calls are repeated."""

OTHERS = "built in and others"


def repeated(cases: Sequence[Case]) -> None:
    """Call them again and again."""
    start = time.process_time()
    while time.process_time() - start < SECONDS:
        for case in cases:
            case()


def module(file: str) -> str:
    """What a file's time is counted under: our modules one by one, packages that we use as a whole."""
    parts = Path(file).parts
    for package in ("numpy", "scipy", "flint"):
        if package in parts:
            return package
    return "/".join(parts[len(parts) - parts[::-1].index("privcalc") - 1 :]) if "privcalc" in parts else OTHERS


def table(cases: Sequence[Case], most: int = 25) -> str:
    """The time inside of each module, as Markdown; what is called from there counts where it is defined."""
    profiler = cProfile.Profile()
    profiler.runcall(repeated, cases)
    spent: Counter[str] = Counter()
    for entry in profiler.getstats():
        spent[OTHERS if isinstance(entry.code, str) else module(entry.code.co_filename)] += int(1e9 * entry.inlinetime)
    lines = [f"| {name} | {100 * own / max(spent.total(), 1):.1f} % |" for name, own in spent.most_common(most)]
    return "\n".join(["| module | share of the time |", "| --- | --- |", *lines])


def flame(cases: Sequence[Case], path: Path) -> None:
    """A flame graph, as a page."""
    try:
        profiler = importlib.import_module("pyinstrument").Profiler(interval=1e-4)
    except ImportError as error:
        raise PrivcalcError("--profile with --out: needs pyinstrument (pip install pyinstrument)") from error
    profiler.start()
    repeated(cases)
    profiler.stop()
    write_whole(path, profiler.output_html())
