"""How wide whole numbers are, and how long they take: ``python -m benchmarks.kernel`` writes ``results/kernel.md``.

ε of the kernel beside the upper end of the engine's; seconds of processor time, once each, of both directions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import privcalc as pc
from privcalc import kernel
from privcalc.files import write_whole
from privcalc.serial import run_to_json
from privcalc.terminal import command

RUNS: list[tuple[pc.Run, float]] = [
    (pc.Gaussian(noise_multiplier=4.0) * 10, 1e-5),
    (pc.Gaussian(noise_multiplier=20.0) * 206, 1e-5),
    (pc.PoissonSampled(pc.Gaussian(noise_multiplier=1.0), rate=0.01) * 1000, 1e-5),
    (pc.PoissonSampled(pc.Gaussian(noise_multiplier=1.0), rate=0.01) * 10_000, 1e-5),
    (pc.PoissonSampled(pc.Gaussian(noise_multiplier=0.8), rate=0.001) * 20_000, 1e-6),
    (pc.PoissonSampled(pc.Gaussian(noise_multiplier=1.5), rate=0.004) * 1_000_000, 1e-6),
]

MASSES = (512, 4096)
"""What ``--coq`` composes, and what ``verify --kernel`` does."""

HEAD = """# The kernel of whole numbers

Its ε is never below the engine's, and with 4,096 masses at most {worst:.1%} above it (`python -m benchmarks.kernel`;
[proof](../proofs/kernel.md)). In parentheses: seconds of processor time.

| run | δ | engine | {columns} |
|---|---|---|---|---|
"""


@command("benchmarks.kernel")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernel", description=__doc__)
    parser.add_argument("--out", default="results/kernel.md", help="the page")
    out, rows, worst = parser.parse_args(argv).out, list[str](), 0.0
    for run, delta in RUNS:
        true, cells = run.epsilon(delta=delta), list[str]()
        for most in MASSES:
            start = time.process_time()
            found = kernel.composed(kernel.read(run_to_json(run), "add-or-remove-one"), delta, most=most)
            excess = found.epsilon(delta) / true.upper - 1
            cells.append(f"+{excess:.2%} ({time.process_time() - start:.1f})")
        worst = max(worst, excess)
        rows.append(f"| {run} | {delta:g} | {true.upper:.6g} | {' | '.join(cells)} |\n")
    page = HEAD.format(worst=worst, columns=" | ".join(f"{most:,} masses" for most in MASSES)) + "".join(rows)
    print(page)
    write_whole(out, page)
    return 0


if __name__ == "__main__":
    main()
