"""``python -m benchmarks.strategies [searches] [wins] [peers] [learners]``: tables of results/strategies.md; else all.

Searches and peers ask jax_privacy and dp-accounting if they are installed. Learners need PyTorch, and take 3,000 of
pip's digits.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from benchmarks.strategies.peers import peers
from benchmarks.strategies.searches import searches, what_wins
from privcalc.terminal import command


def learners() -> None:
    """The table of learners, by the encoder that the other learners' benchmark has."""
    from benchmarks.strategies.learners import accuracies  # needs PyTorch
    from learners.data.features import encode
    from learners.data.sources import small_mnist

    accuracies(encode(small_mnist()), range(SEEDS))


SEEDS = 3

PARTS: dict[str, Callable[[], None]] = {"searches": searches, "wins": what_wins, "peers": peers, "learners": learners}


@command("python -m benchmarks.strategies")
def main() -> int:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.strategies", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="what to print")
    for part in parser.parse_args().parts or PARTS:
        PARTS[part]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
