"""The questions that users remember: how long the slow ones take, beside what they should.

    python -m benchmarks.slow_tail                              the table
    python -m benchmarks.slow_tail --out results/slow_tail.json    keep it, with a page beside it
    python -m benchmarks.slow_tail --check results/slow_tail.json  exit status 1 where a median fell behind by half
    python -m benchmarks.slow_tail --profile "usual case"       where the time goes, module by module
    python -m benchmarks.slow_tail --profile "usual case" --out flame.html    the same as a flame graph (needs
    pyinstrument)

Seconds are processor seconds of one thread, of processes that were started too; of each row the worst of its cases,
each the median of several calls after a first one, or ∞ where a certificate was not confirmed within verify's limits.
Where dp-accounting has the question its seconds are taken in the same run: other work on the machine changes both, and
--check compares their ratio.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import privcalc as pc
from benchmarks import where
from benchmarks.accountants.cases import entries, sampled
from privcalc.files import read_whole, write_whole
from privcalc.peers import PEERS, Question
from privcalc.tables import profile_table
from privcalc.terminal import command

PEER = "dp-accounting PLD"
PATIENCE, MOST = 0.5, 31
"""Seconds for repeated calls of one case, and their largest number."""

PEER_LIMIT = 100
"""Uses of distinct mechanisms up to which the peer is asked: beyond it takes minutes."""

BEHIND = 1.5
"""A median has fallen behind where its ratio to the peer's is so many times the recorded one."""

Json = dict[str, Any]
Case = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        name: what is asked.
        seconds: the target.
        cases: calls whose answers tell their width, if they are enclosures.
        width: relative width to reach.
        peer: the question for the peer, where it has it.
        obstacle: what stands in the way, where it is known that the target is not reached.
        prepare: called before, without being measured.
    """

    name: str
    seconds: float
    cases: tuple[Case, ...]
    width: float = 1e-6
    peer: Question | None = None
    obstacle: str = ""
    prepare: Case | None = None


@dataclass(frozen=True)
class Found:
    """What a row took: seconds (the worst case), relative width, and the peer's seconds, if it was asked."""

    name: str
    seconds: float
    target: float
    width: float
    widest: float
    peer: float | None
    obstacle: str

    @property
    def reached(self) -> bool:
        """Whether time and width are what they should be."""
        return self.seconds <= self.target and self.width <= self.widest


def epsilon(run: pc.Run, delta: float, relation: pc.Relation = pc.ADD_OR_REMOVE_ONE) -> Case:
    """ε of a run, which is made anew each time, so that nothing is remembered."""
    return lambda: pc.Run(run.entries).epsilon(delta=delta, relation=relation)


def rows() -> Iterator[Row]:
    """The table."""
    usual = sampled(0.01, 1.0, 1_000)
    yield Row(
        "usual case",
        0.002,
        (epsilon(usual, 1e-5), epsilon(sampled(0.01, 1.0, 10_000), 1e-5)),
        1e-9,
        Question(usual, 1e-5),
        "a fifth each: Python's own calls, NumPy's, the transform at the nodes, its logarithms",
    )
    for count, seconds in ((40, 0.04), (1_000, 0.2), (10_000, 1.0)):
        run = entries(count)
        yield Row(
            f"{count:,} distinct (σ, q)",
            seconds,
            (epsilon(run, 1e-6),),
            peer=Question(run, 1e-6) if count <= PEER_LIMIT else None,
        )
    few = ((0.01, 1.0, 2), (0.01, 1.0, 10), (0.1, 1.0, 3), (0.02, 3.0, 20), (0.01, 1.0, 50), (0.05, 0.5, 10))
    yield Row(
        "few steps, T = 2 … 50",
        0.03,
        tuple(epsilon(sampled(q, z, t), 1e-5) for q, z, t in few),
        1e-9,
        Question(sampled(0.01, 1.0, 10), 1e-5),
        "T = 2 at q = 0.01, where the transform decays slowly",
    )
    rare = (
        (1e-6, 1.0, 10_000, 1e-9),
        (4e-5, 2.0, 1_000, 1e-7),
        (2e-6, 0.8, 30_000, 1e-10),
        (1e-4, 0.3, 30, 1e-5),
        (1e-6, 0.8, 30, 1e-7),
        (1e-7, 0.4, 100_000, 1e-6),
    )
    yield Row(
        "rare jumps, qT < 0.1",
        0.2,
        tuple(epsilon(sampled(q, z, t), d) for q, z, t, d in rare),
        peer=Question(sampled(4e-5, 2.0, 1_000), 1e-7),
        obstacle="T = 30, q = 10⁻⁶, σ = .8: three lattices that come to nothing before; else uses that do not jump, at "
        "up to 9,000 nodes, each an integral of 1,800 terms, and up to 60 ways in which jumps share bands",
    )
    far = sampled(1e-5, 2.0, 10**9)
    yield Row(
        "replace-one, T = 10⁹",
        0.2,
        (epsilon(far, 1e-6, pc.REPLACE_ONE), epsilon(sampled(1e-4, 4.0, 10**9), 1e-6, pc.REPLACE_ONE)),
    )
    yield Row("β(α)", 0.02, (lambda: pc.Run(usual.entries).beta(alpha=0.01),))
    yield Row(
        "gdp_mu",
        0.02,
        (lambda: pc.Run(usual.entries).gdp_mu(delta=1e-5),),
        obstacle="400 profiles of Gaussians of 30 µs each",
    )
    yield Row("δ at 200 ε", 0.05, (lambda: profile_table(pc.Run(usual.entries), np.linspace(0, 4, 200)),))
    yield Row("certify", 0.5, (lambda: pc.certify(usual, delta=1e-5),), math.inf)
    yield Row("verify", 2.0, (verified(usual),), math.inf, prepare=lambda: certified(usual))
    guides = documented()
    yield Row(
        "certify, runs of the guides",
        0.5,
        tuple(functools.partial(pc.certify, run, delta=1e-5) for run in guides),
        math.inf,
        obstacle="sampled steps with Laplace: five lattices of .1 to .3 s; RandomTrials: "
        "170 questions to runs it mixes",
    )
    yield Row(
        "verify, runs of the guides",
        2.0,
        tuple(verified(run) for run in guides),
        math.inf,
        obstacle="sampled steps with Laplace: certify once more, with five lattices, and five more, as none answers "
        "every ε of the curve as sharply",
        prepare=lambda: [certified(run) for run in guides],
    )
    several = pc.Run(tuple((pc.PoissonSampled(pc.Gaussian(1 + i / 100), 0.01 + i / 10_000), 10) for i in range(20)))
    yield Row(
        "verify, 20 distinct (σ, q)",
        2.0,
        (verified(several),),
        math.inf,
        obstacle="a process of its own, .6 s; 20 transforms in 40 digits on two lines: a matrix product each",
        prepare=lambda: certified(several),
    )
    yield Row(
        "noise_multiplier",
        0.015,
        (lambda: pc.noise_multiplier(epsilon=1.0, delta=1e-5, sample_rate=0.01, steps=1_000),),
        math.inf,
        Question(usual, 1e-5, asks="sigma", target=1.0),
        "six questions for ε of 2.5 ms each",
    )
    yield Row(
        "10⁵ … 10⁷ uses with atoms",
        1.0,
        tuple(atoms()),
        obstacle="10⁶ choices: a closed form that is a bound, of 10⁻⁵",
    )
    yield Row("import privcalc", 0.25, (process("-c", "import privcalc"),), math.inf)
    asked = ["epsilon", "--noise-multiplier", "1", "--steps", "1000", "--sample-rate", "0.01", "--delta", "1e-5"]
    yield Row("privcalc epsilon", 0.35, (process("-m", "privcalc", *asked),), math.inf)


def atoms() -> Iterator[Case]:
    """10⁵ to 10⁷ uses of mechanisms whose losses take few values, or have atoms."""
    yield epsilon(pc.DiscreteGaussian(300.0) * 10**5, 1e-6)
    yield epsilon(pc.ExponentialMechanism(0.001) * 10**6, 1e-6)
    yield epsilon(pc.RandomizedResponse(0.001) * 10**7, 1e-6, pc.REPLACE_ONE)
    mixed = pc.DiscreteGaussian(1000.0) * 10**6 + pc.RandomizedResponse(0.001) * 10**6 + pc.Laplace(2000.0) * 10**5
    yield epsilon(mixed, 1e-6, pc.REPLACE_ONE)


def documented() -> tuple[pc.Run, ...]:
    """Runs of the guides that have no short cut."""
    noise = pc.Gaussian(noise_multiplier=1.0)
    return (
        pc.PoissonSampled(noise, 0.01) * 10,
        pc.PoissonSampled(noise, 0.01) * 1_000 + pc.Laplace(10.0) * 10 + pc.ExponentialMechanism(0.1) * 5,
        pc.RandomAllocation(noise, 100) * 2,
        pc.RandomTrials(pc.Gaussian(20.0) * 10, mean=5, distribution="geometric") + pc.Gaussian(20.0) * 2,
        pc.ApproxDP(epsilon=0.5, delta=1e-9) * 3 + pc.Gaussian(5.0) * 10,
    )


@functools.cache
def certified(run: pc.Run) -> pc.Certificate:
    """Its certificate, made once."""
    return pc.certify(run, delta=1e-5)


def verified(run: pc.Run) -> Case:
    """The check of its certificate; one that comes to no end within its limit takes for ever."""
    return lambda: certified(run).verify()


def process(*arguments: str) -> Case:
    """A Python process; with the bytecode that an installed package has."""
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / "privcalc-slow-tail"
    where = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def call() -> object:
        environment = where | {"PYTHONPYCACHEPREFIX": str(folder)}
        return subprocess.run([sys.executable, *arguments], env=environment, stdout=subprocess.DEVNULL, check=True)

    return call


def clock() -> float:
    """Processor seconds of this process and of those that it started and that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def median(call: Case) -> tuple[float, object]:
    """Seconds, after a first call, and the answer; ∞ where nothing was confirmed within the limits."""
    start = clock()
    try:
        answer, taken = call(), list[float]()
    except pc.NotConfirmed:
        return math.inf, None
    if clock() - start > 4 * PATIENCE:  # the first call is as good
        return clock() - start, answer
    while len(taken) < 3 or (sum(taken) < PATIENCE and len(taken) < MOST):
        start = clock()
        call()
        taken.append(clock() - start)
    return statistics.median(taken), answer


def width_of(answer: object) -> float:
    """Relative; 0 where the answer has none."""
    if isinstance(answer, pc.Enclosure):
        return (
            (answer.upper - answer.lower) / answer.upper
            if 0 < answer.upper < math.inf
            else float(answer.upper == math.inf)
        )
    if isinstance(answer, np.ndarray) and answer.dtype.names:
        return float(np.max((answer["upper"] - answer["lower"]) / np.maximum(answer["upper"], 1e-300)))
    return 0.0


def measure(row: Row, ask: Callable[[Question], object] | None) -> Found:
    """Ask a row's cases, and the peer its question."""
    if row.prepare:
        row.prepare()
    found = [median(case) for case in row.cases]
    width = max(width_of(answer) for _, answer in found)
    question = row.peer
    peer = None if ask is None or question is None else median(lambda: ask(question))[0]
    return Found(row.name, max(seconds for seconds, _ in found), row.seconds, width, row.width, peer, row.obstacle)


def table(found: Sequence[Found]) -> str:
    """As Markdown."""
    lines = [
        f"| what | seconds | target | width | target | {PEER}, times ours | reached |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in found:
        widest = f"{row.widest:.0e}" if row.widest < math.inf else ""
        width = f"{row.width:.0e}" if row.widest < math.inf else ""
        peer = "" if row.peer is None else f"{row.peer / row.seconds:.3g}"
        reached = "yes" if row.reached else f"no: {row.obstacle}" if row.obstacle else "no"
        lines.append(f"| {row.name} | {row.seconds:.2g} | {row.target:g} | {width} | {widest} | {peer} | {reached} |")
    return "\n".join(lines)


def behind(found: Sequence[Found], recorded: Sequence[Json]) -> list[str]:
    """What took more than 1.5 times as long as it did, both relative to the peer in the same run.

    Rows without a question for the peer are compared by the peer's seconds for the other rows.
    """
    before = {row["name"]: row for row in recorded}
    both = [(row.peer, before[row.name]["peer"]) for row in found if row.peer and before.get(row.name, {}).get("peer")]
    if not both:
        raise pc.PrivcalcError(f"--check: {PEER} must answer in both runs (pip install dp-accounting)")
    usual = statistics.median(now / then for now, then in both)
    said = []
    for row in found:
        then = before.get(row.name)
        if then is None:
            continue
        pace = row.peer / then["peer"] if row.peer and then["peer"] else usual
        ratio = row.seconds / (then["seconds"] or math.inf) / pace  # null: it came to no end
        if ratio > BEHIND:
            said.append(f"{row.name}: {ratio:.2f} times as long as recorded, relative to {PEER}")
    return said


def page(found: Sequence[Found], setup: str) -> str:
    """The results page."""
    return f"""# The slow tail

Written by `python -m benchmarks.slow_tail --out results/slow_tail.json`; processor seconds of one thread,
{setup}.
A row's seconds are those of the worst of its cases, each the median of several calls; inf: a certificate was not
confirmed within verify's limits.

{table(found)}
"""


@command("python -m benchmarks.slow_tail")
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.slow_tail", description="The slow questions, beside targets."
    )
    parser.add_argument("--rows", nargs="+", metavar="NAME", help="only rows whose names contain one of these")
    parser.add_argument("--out", type=Path, help="a JSON file, with a page beside it; with --profile the flame graph")
    parser.add_argument("--check", type=Path, help="compare with this file")
    parser.add_argument(
        "--profile", metavar="ROW", help="where the time of this row goes: a table, or with --out a flame graph"
    )
    options = parser.parse_args(arguments)
    wanted = [row for row in rows() if not options.rows or any(name in row.name for name in options.rows)]
    if options.profile:
        chosen = [row for row in wanted if options.profile in row.name]
        if not chosen:
            raise pc.PrivcalcError(f"--profile = {options.profile!r}: there is no such row")
        for case in chosen[0].cases:  # what is loaded or built once
            case()
        if options.out:
            where.flame(chosen[0].cases, options.out)
        else:
            print(where.table(chosen[0].cases))
        return 0
    try:
        ask: Callable[[Question], object] | None = PEERS[PEER].load()
    except ImportError:
        ask = None
    found = []
    for row in wanted:
        found.append(measure(row, ask))
        print(table(found[-1:]).splitlines()[-1], flush=True)
    setup = f"privcalc {pc.__version__}, Python {platform.python_version()}, NumPy {np.__version__}"
    if options.out:
        rows_of = [{k: None if v == math.inf else v for k, v in asdict(row).items()} for row in found]
        write_whole(options.out, json.dumps({"setup": setup, "rows": rows_of}, indent=1, ensure_ascii=False) + "\n")
        write_whole(options.out.with_suffix(".md"), page(found, setup))
    slower = behind(found, json.loads(read_whole(options.check, name="--check"))["rows"]) if options.check else []
    for line in slower:
        print(line)
    return int(bool(slower))


if __name__ == "__main__":
    sys.exit(main())
