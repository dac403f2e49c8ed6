"""Time and accuracy beside other accountants: ``python -m privcalc.benchmark``.

First table: the add-or-remove epsilon of Poisson-sampled Gaussians from every installed accountant,
its relative error against ``privcalc.reference``, and its median time. Second table: what our own
questions cost. One core, one thread, nothing cached between questions. Times drift between
machines: compare the ratios of one run. With ``--grid N`` instead: width and time on random runs.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import privcalc as pc
from privcalc import benchmark_grid, reference

T = TypeVar("T")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
PATIENCE = 5.0  # seconds: a question that takes longer is not repeated
COMMAND = "epsilon --noise-multiplier 1.0 --sample-rate 0.01 --steps 1000 --delta 1e-5"
IMPORT = "import time; t = time.perf_counter(); import privcalc; print(time.perf_counter() - t)"
ASK_ONCE = "import privcalc as pc; pc.PoissonSampled(pc.Gaussian(1.0), 0.01).epsilon(delta=1e-5)"
PEAK = (  # from a small process in between, because a child starts with the peak of its parent
    "import resource, subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]]);"
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
)


class Case(NamedTuple):
    """``steps`` Poisson-sampled Gaussians and the delta at which epsilon is asked."""

    rate: float
    noise: float
    steps: int
    delta: float

    @property
    def run(self) -> pc.Run:
        """The run in our own words."""
        return pc.PoissonSampled(pc.Gaussian(noise_multiplier=self.noise), self.rate) * self.steps


CASES = (
    Case(0.01, 1.0, 1_000, 1e-5),
    Case(0.01, 1.0, 10_000, 1e-5),
    Case(0.001, 0.6, 100_000, 1e-6),
    Case(0.01, 10.0, 1_000, 1e-5),
    Case(0.02, 2.0, 2_000, 1e-12),
    Case(0.01, 1.0, 2_000, 1e-20),
    Case(0.0001, 0.8, 1_000_000, 1e-8),
    Case(0.01, 100.0, 10_000, 1e-6),
)
QUICK = (CASES[0], CASES[4], CASES[5])
Ask = Callable[[Case], tuple[float, str]]  # a case to (epsilon, remark)


class Row(NamedTuple):
    """One accountant on one case: epsilon is NaN where it raised, seconds a median."""

    case: str
    accountant: str
    truth: float
    epsilon: float
    error: float  # relative
    seconds: float
    ratio: float  # seconds over ours
    remark: str


# --- accountants: each function imports one and returns how to ask it ---------------------------


def ours() -> Ask:
    """This library; the remark has the relative width of the enclosure and the route."""

    def ask(case: Case) -> tuple[float, str]:
        found = case.run.epsilon(delta=case.delta)
        width = (found.upper - found.lower) / found.upper
        return float(found.upper), f"width {width:.0e}, {found.route}"

    return ask


def dp_accounting(module: str, accountant: str) -> Ask:
    """One of dp-accounting's accountants, with its defaults."""
    events = importlib.import_module("dp_accounting")
    make = getattr(importlib.import_module(module), accountant)

    def ask(case: Case) -> tuple[float, str]:
        event = events.PoissonSampledDpEvent(case.rate, events.GaussianDpEvent(case.noise))
        return float(make().compose(event, case.steps).get_epsilon(case.delta)), ""

    return ask


def prv_accountant() -> Ask:
    """prv-accountant's upper bound with eps_error = 0.01 and delta_error = delta / 1000."""
    prv = importlib.import_module("prv_accountant")

    def ask(case: Case) -> tuple[float, str]:
        step = prv.PoissonSubsampledGaussianMechanism(case.rate, case.noise)
        precision = {"eps_error": 0.01, "delta_error": case.delta / 1000}
        accountant = prv.PRVAccountant(step, max_self_compositions=case.steps, **precision)
        low, estimate, high = accountant.compute_epsilon(case.delta, case.steps)
        return float(high), f"lower {low:.6g}, estimate {estimate:.6g}"

    return ask


def opacus() -> Ask:
    """Opacus's PRV accountant, with its defaults."""
    accountants = importlib.import_module("opacus.accountants")

    def ask(case: Case) -> tuple[float, str]:
        accountant = accountants.PRVAccountant()
        accountant.history = [(case.noise, case.rate, case.steps)]
        return float(accountant.get_epsilon(case.delta)), ""

    return ask


def autodp() -> Ask:
    """autodp's Renyi accountant."""
    zoo = importlib.import_module("autodp.mechanism_zoo")
    transformers = importlib.import_module("autodp.transformer_zoo")

    def ask(case: Case) -> tuple[float, str]:
        sample = transformers.AmplificationBySampling(PoissonSampling=True)
        step = sample(zoo.GaussianMechanism(case.noise), case.rate, improved_bound_flag=True)
        return float(transformers.Composition()([step], [case.steps]).get_approxDP(case.delta)), ""

    return ask


ACCOUNTANTS: dict[str, Callable[[], Ask]] = {
    "privcalc": ours,
    "dp-accounting PLD": lambda: dp_accounting("dp_accounting.pld", "PLDAccountant"),
    "dp-accounting RDP": lambda: dp_accounting("dp_accounting.rdp", "RdpAccountant"),
    "prv-accountant": prv_accountant,
    "Opacus PRV": opacus,
    "autodp RDP": autodp,
}


# --- measuring ----------------------------------------------------------------------------------


def timed(action: Callable[[], T], repeats: int) -> tuple[T, float]:
    """The answer and the median seconds after one call to warm up; one call where it is slow."""
    times: list[float] = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        answer = action()
        times.append(time.perf_counter() - start)
        if times[0] > PATIENCE:
            break
    return answer, statistics.median(times[1:] or times)


def compare(cases: Sequence[Case], peers: bool, repeats: int) -> Iterator[Row]:
    """Every accountant on every case, ours first; a missing one is skipped with a line."""
    asks: dict[str, Ask] = {}
    for name, load in ACCOUNTANTS.items():
        try:
            if peers or name == "privcalc":
                asks[name] = load()
        except ImportError as error:
            print(f"skipped {name}: {error}")
    for case in cases:
        label = f"q={case.rate:g} z={case.noise:g} T={case.steps} delta={case.delta:g}"
        truth = reference.sampled_gaussian_epsilon(case.noise, case.rate, case.steps, case.delta)
        base = math.nan
        for name, ask in asks.items():
            epsilon, seconds = math.nan, math.nan
            try:
                count = repeats if name == "privcalc" else min(repeats, 3)
                (epsilon, remark), seconds = timed(functools.partial(ask, case), count)
            except Exception as error:  # a peer may raise anything: its row says what
                remark = f"error: {type(error).__name__}: {error}".splitlines()[0][:70]
            base = seconds if name == "privcalc" else base
            excess = float((epsilon - truth) / truth)
            yield Row(label, name, float(truth), epsilon, excess, seconds, seconds / base, remark)


def python(*arguments: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True).stdout


def entries(count: int) -> pc.Run:
    """``count`` steps, each with its own noise multiplier and rate."""
    parts = ((1 + k / count, 0.005 * (1 + k / count)) for k in range(count))
    return pc.Run.of(pc.PoissonSampled(pc.Gaussian(noise), rate) for noise, rate in parts)


def speed(cases: Sequence[Case], repeats: int) -> Iterator[tuple[str, str]]:
    """Name and text of each line of the second table."""
    target = {c: float(c.run.epsilon(delta=c.delta)) for c in cases}
    questions: dict[str, Callable[[Case], object]] = {
        "epsilon(delta)": lambda c: c.run.epsilon(delta=c.delta),
        "delta(epsilon)": lambda c: c.run.delta(epsilon=target[c]),
        "noise_multiplier(...)": lambda c: pc.noise_multiplier(
            epsilon=target[c], delta=c.delta, sample_rate=c.rate, steps=c.steps
        ),
    }
    for name, question in questions.items():
        times = [1e3 * timed(functools.partial(question, c), repeats)[1] for c in cases]
        yield name, f"{statistics.median(times):.2f} ms, slowest case {max(times):.2f} ms"
    actions: dict[str, Callable[[], object]] = {
        "1000 different entries": lambda: entries(1000).epsilon(delta=1e-6),
        "command line": lambda: python("-m", "privcalc", *COMMAND.split()),
    }
    for name, action in actions.items():
        try:
            yield name, f"{1e3 * timed(action, 3)[1]:.0f} ms"
        except subprocess.CalledProcessError as error:
            yield name, f"error: exit status {error.returncode}"
    load = statistics.median(float(python("-c", IMPORT)) for _ in range(5))
    yield "import privcalc", f"{1e3 * load:.0f} ms"
    yield "peak memory, one epsilon", f"{int(python('-c', PEAK, ASK_ONCE)) / 1024:.0f} MiB"


def tables(quick: bool, peers: bool) -> dict[str, object]:
    """Print both tables; returns what --json writes."""
    cases, repeats = (QUICK, 5) if quick else (CASES, 20)
    rows: list[Row] = []
    form = "{:<38} {:<18} {:>13} {:>9} {:>9} {:>8}  {}"
    for row in compare(cases, peers, repeats):
        if not rows:
            print(form.format("case", "accountant", "epsilon", "error", "seconds", "ratio", ""))
        rows.append(row)
        cells = f"{row.epsilon:.10g}", f"{row.error:.1e}", f"{row.seconds:.3g}", f"{row.ratio:.3g}"
        print(form.format(row.case, row.accountant, *cells, row.remark), flush=True)
    print("\nmedian of time / ours, over the cases that gave a finite epsilon")
    for name in dict.fromkeys(row.accountant for row in rows):
        ratios = [r.ratio for r in rows if r.accountant == name and math.isfinite(r.epsilon)]
        print(f"{name:<26} {statistics.median(ratios or [math.nan]):.3g}")
    print("\nspeed, one core")
    costs = {}
    for name, cost in speed(cases, repeats):
        costs[name] = cost
        print(f"{name:<26} {cost}", flush=True)
    return {"accountants": [row._asdict() for row in rows], "speed": costs}


def grid(count: int, seed: int) -> dict[str, object]:
    """Print one report for each group of random runs; returns what --json writes."""
    found: list[benchmark_grid.Draw] = []
    for group in benchmark_grid.GROUPS:
        draws = list(benchmark_grid.draws(group, count, seed))
        print(benchmark_grid.report(draws), flush=True)
        found += draws
    return {"grid": [draw._asdict() for draw in found]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both tables, or the grid; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m privcalc.benchmark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three cases, few repeats")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--grid", type=int, metavar="N", help="instead: N random runs of each of two groups")
    parser.add_argument("--seed", type=int, default=0, help="of the random runs (default 0)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was found here")
    options = parser.parse_args(arguments)
    if options.grid is not None and options.grid < 1:
        parser.error("--grid: must be at least 1")
    if any(os.environ.get(name) != "1" for name in THREADS):  # NumPy has read them: start again
        given = sys.argv[1:] if arguments is None else arguments
        command = [sys.executable, "-m", "privcalc.benchmark", *given]
        return subprocess.call(command, env=os.environ | dict.fromkeys(THREADS, "1"))
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    warnings.simplefilter("ignore")
    found = grid(options.grid, options.seed) if options.grid else tables(options.quick, options.peers)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
