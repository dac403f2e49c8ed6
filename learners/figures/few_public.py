"""DOPE-SGD and PDA-DPMD beside warm DP-SGD at equal certified ε, with few labelled public records: features of Fashion-MNIST.

    python -m learners.few_public --data FOLDER         the four files of Fashion-MNIST

Orderings are reported as found, at frozen defaults: full batch and T steps for all.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from learners import DOPESGD, DPSGD, PDADPMD
from learners.base import Learner
from learners.data import Data, mnist_files, split
from learners.dope_figure import mean_and_error
from learners.features import encode, unit_rows
from learners.linear import train_public
from learners.records import as_features, as_labels

__all__ = ["LEARNERS", "main"]

CLASSES = list(range(10))
DELTA, STEPS, PRIVATE, PUBLIC, TEST = 1e-5, 50, 2_000, 200, 4_000
SETTINGS = ((1.0, 1.0), (1.0, 0.1))
"""ε and C. Features have norm 1, so that C = 1 clips next to nothing, and then an origin changes nothing."""

LEARNERS: dict[str, Callable[[dict[str, Any]], Learner]] = {
    "DP-SGD, cold": lambda o: DOPESGD(**o, origin="none", start="cold"),
    "DP-SGD, warm": lambda o: DPSGD(**o),
    "DP-SGD, warm, mean of 50 iterates": lambda o: DOPESGD(**o, origin="none", ensemble=50, combine="weights"),
    "DOPE-SGD, public origin": lambda o: DOPESGD(**o),
    "DOPE-SGD, public origin, mean of 50 iterates": lambda o: DOPESGD(**o, ensemble=50, combine="weights"),
    "DOPE-SGD, public origin, extended": lambda o: DOPESGD(**o, extended=True),
    "DOPE-SGD, origin from history": lambda o: DOPESGD(**o, origin="history"),
    "PDA-DPMD, mirror step": lambda o: PDADPMD(**o),
    "PDA-DPMD, first order": lambda o: PDADPMD(**o, update="first order"),
}

HEADER = """# Few labelled public records

`python -m learners.few_public` wrote this page. Fashion-MNIST, EfficientNet-Lite0 features; {private:,} private records, {test:,}
test records; full batch, {steps} steps, δ = {delta:g}, add-or-remove-one. All learners of a column have the same certificate.
Mean accuracy over {seeds} seeds (noise; the split is one) and its 95 % confidence interval. Learning rates are the defaults.
C = 1 clips next to nothing: there the origin changes nothing. PDA-DPMD's mirror step, too, returns the mean of its iterates.
"""


def only_public(public: Data, test: Data) -> float:
    """Accuracy of ordinary training on the public records alone."""
    features, labels = as_features(public.X, "cpu"), as_labels(public.y, CLASSES, "cpu")
    start = torch.zeros((features.shape[1], len(CLASSES)), dtype=torch.float64)
    weights = train_public(features, labels, start=start, weight_decay=1e-2)
    found = (as_features(test.X, "cpu") @ weights).argmax(dim=1).numpy()
    return float(np.mean(found == test.y))


def table(private: Data, public: Data, test: Data, seeds: int) -> str:
    """Markdown; a row per learner, a column per ε and C."""
    text = f"\nTrained on the {len(public.y)} public records alone: {only_public(public, test):.3f}\n\n| learner | "
    text += (
        " | ".join(f"ε = {epsilon:g}, C = {clip_norm:g}" for epsilon, clip_norm in SETTINGS)
        + " |\n|---|"
        + "---|" * len(SETTINGS)
    )
    for name, make in LEARNERS.items():
        cells = []
        for epsilon, clip_norm in SETTINGS:
            options = {"classes": CLASSES, "epsilon": epsilon, "delta": DELTA, "steps": STEPS, "sample_rate": 1.0}
            options |= {"clip_norm": clip_norm, "records": len(private.y)}
            models = (make({**options, "seed": seed}).fit(private.X, private.y, public.X, public.y) for seed in range(seeds))
            cells.append("{:.3f} ± {:.3f}".format(*mean_and_error([model.score(test.X, test.y) for model in models])))
        text += f"\n| {name} | {' | '.join(cells)} |"
        print(text.splitlines()[-1], flush=True)
    return text + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and write."""
    parser = argparse.ArgumentParser(prog="python -m learners.few_public", description="Learners that use few public records.")
    parser.add_argument("--data", required=True, help="folder with the four files of Fashion-MNIST")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each, at least 2 (default 5)")
    parser.add_argument("--out", default="few_public.md", help="the page (default %(default)s)")
    args = parser.parse_args(arguments)
    try:
        train, test = mnist_files(args.data, "train"), encode(mnist_files(args.data, "t10k"))
    except OSError as error:
        parser.exit(2, f"{parser.prog}: --data {args.data}: {error}\n")
    own, shared = (encode(part) for part in split(train, [10_000, 1_200], 0))
    text = HEADER.format(private=PRIVATE, test=TEST, steps=STEPS, delta=DELTA, seeds=args.seeds)
    centre = shared.X[:PUBLIC].mean(axis=0)
    parts = ((own, PRIVATE), (shared, PUBLIC), (test, TEST))
    private, public, unseen = (Data(unit_rows(part.X[:stop], centre), part.y[:stop]) for part, stop in parts)
    text += table(private, public, unseen, args.seeds)
    Path(args.out).write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
