"""Figure 2 of the DOPE-SGD paper, and the effect of the ensemble: a small convolutional network on Fashion-MNIST pixels.

    python -m learners.dope_figure --data FOLDER        the four files of Fashion-MNIST (or of MNIST)

The figure shows the cosine of the noisy gradient with the true one over steps. The true gradient of private records must not
leave: here all records are public, and some only play the private part.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn

import privcalc as pc
from learners.data import Data, mnist_files, split
from learners.dope import DOPESGD, shift_and_flip
from learners.network import NetworkGradient
from learners.records import PrivateRecords, as_features, as_labels

__all__ = ["Watched", "main", "mean_and_error", "small_network"]

PRIVATE, PUBLIC, TEST, TRUE = 20_000, 500, 1_000, 500
"""Records; of the last many the true gradient is taken."""
EPSILON, DELTA, STEPS, RATE, CLIP_NORM = 3.0, 1e-5, 40, 0.05, 0.5
ENSEMBLES = (1, 5, 20, 40)
COMBINE: tuple[Literal["vote", "logits", "weights"], ...] = ("vote", "logits", "weights")
METHODS = {"DP-SGD": "none", "DOPE-SGD": "public", "DOPE-SGD, history": "history"}


def small_network() -> nn.Module:
    """Two convolutions and a linear layer, 5,000 parameters, for images of shape (1, 28, 28)."""
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 8, stride=2, padding=3), nn.Tanh(), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(8, 16, 4, stride=2), nn.Tanh(), nn.MaxPool2d(2, 1)),
        *(nn.Flatten(), nn.Linear(256, 10)),
    )


@dataclass(kw_only=True, eq=False)
class Watched(DOPESGD):
    """DOPE-SGD that compares each noisy gradient with the mean gradient of *public* records.

    Attributes:
        truth: features and labels of these records.
        cosines: of each step.
    """

    truth: tuple[Tensor, Tensor]
    cosines: list[float] = field(default_factory=list, init=False)

    def _noisy_mean(
        self,
        private: PrivateRecords,
        step: pc.Mechanism,
        batch: float,
        theta: Tensor,
        last: Tensor,
        public: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        noisy = super()._noisy_mean(private, step, batch, theta, last, public)
        true = NetworkGradient(self._network, theta).public_mean(*self.truth)
        self.cosines.append(float(torch.cosine_similarity(noisy.double(), true.double(), dim=0)))
        return noisy


def train(origin: str, parts: Sequence[Data], seed: int) -> Watched:
    """One run on two parts, private and public; all iterates are kept."""
    private, public = parts[:2]
    classes = list(range(10))
    options: dict[str, Any] = {
        **{"classes": classes, "epsilon": EPSILON, "delta": DELTA, "steps": STEPS, "sample_rate": RATE, "seed": seed},
        **{"records": len(private.y), "clip_norm": CLIP_NORM, "learning_rate": 0.1, "model": small_network},
        **{"origin": origin, "augment": shift_and_flip, "ensemble": max(ENSEMBLES), "public_batch": 250, "public_steps": 50},
    }
    model = Watched(**options, truth=(as_features(private.X[:TRUE], "cpu"), as_labels(private.y[:TRUE], classes, "cpu")))
    extra, _ = shift_and_flip(torch.from_numpy(public.X), torch.empty(0), torch.Generator().manual_seed(seed))
    return model.fit(private.X, private.y, np.concatenate([public.X, extra.numpy()]), np.concatenate([public.y, public.y]))


def accuracies(model: Watched, test: Data) -> dict[tuple[str, int], float]:
    """On test records, by how the last n iterates are combined, and n."""
    every, found = model.weights_, dict[tuple[str, int], float]()
    for combine in COMBINE:
        for n in ENSEMBLES:
            model.combine, model.weights_ = combine, every[-n:]
            found[combine, n] = model.score(test.X, test.y)
    model.weights_ = every
    return found


def mean_and_error(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, float]:
    """The mean, and half of its 95 % confidence interval, by Student's t.

    Example:
        >>> mean_and_error([1.0, 1.0, 1.0])
        (1.0, 0.0)
    """
    n = len(values)
    return float(np.mean(values)), float(stats.t.ppf(0.975, n - 1) * np.std(values, ddof=1) / n**0.5)


def draw(cosines: dict[str, NDArray[np.float64]], path: Path) -> None:
    """A line per method, means over runs and their confidence intervals."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    for name, values in cosines.items():
        middle, error = np.array([mean_and_error(column) for column in values.T]).T
        steps = np.arange(1, len(middle) + 1)
        axes.plot(steps, middle, label=name)
        axes.fill_between(steps, middle - error, middle + error, alpha=0.2)
    axes.set_xlabel("step")
    axes.set_ylabel("cosine of noisy and true gradient")
    axes.legend()
    figure.savefig(path, dpi=100)


HEADER = """# Figure 2 of the DOPE-SGD paper, and ensembles

`python -m learners.dope_figure` wrote this page. Fashion-MNIST pixels, a convolutional network of 5,154 parameters, warm from
{public} labelled public records that are shifted and flipped for the origin; {private:,} records play the private part; ε =
{epsilon:g}, δ = {delta:g}, {steps} steps, expected batch size {batch:g}, clip norm {clip:g}. All three learners have the same
certificate. Means of {seeds} runs and 95 % confidence intervals. The true gradient is that of {true:,} of the records that play
the private part. It must not leave for records that really are private.

![cosine over steps]({picture})

| cosine of noisy and true gradient | steps 1-10 | {mid} | {late} |
|---|---|---|---|
"""


def page(cosines: dict[str, NDArray[np.float64]], scores: dict[str, list[dict[tuple[str, int], float]]], picture: str) -> str:
    """What is written."""
    steps, seeds = next(iter(cosines.values())).shape[1], len(next(iter(scores.values())))
    windows = (slice(0, 10), slice(steps // 2 - 5, steps // 2 + 5), slice(steps - 10, steps))
    mid, late = (f"steps {window.start + 1}-{window.stop}" for window in windows[1:])
    text = HEADER.format(
        **{"public": PUBLIC, "private": PRIVATE, "epsilon": EPSILON, "delta": DELTA, "steps": steps, "batch": RATE * PRIVATE},
        **{"clip": CLIP_NORM, "seeds": seeds, "true": TRUE, "picture": picture, "mid": mid, "late": late},
    )
    for name, values in cosines.items():
        cells = (mean_and_error(values[:, window].mean(axis=1)) for window in windows)
        text += f"| {name} | " + " | ".join(f"{middle:.3f} ± {error:.3f}" for middle, error in cells) + " |\n"
    text += "\nAccuracy on test records, by how many of the last iterates decide. Ensembles cost nothing.\n\n"
    text += "| learner | combined by | " + " | ".join(f"n = {n}" for n in ENSEMBLES) + " |\n|---|" + "---|" * (len(ENSEMBLES) + 1)
    for name, runs in scores.items():
        for combine in COMBINE:
            cells = (mean_and_error([run[combine, n] for run in runs]) for n in ENSEMBLES)
            text += f"\n| {name} | {combine} | " + " | ".join(f"{middle:.3f} ± {error:.3f}" for middle, error in cells) + " |"
    return text + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, draw, and write the numbers."""
    parser = argparse.ArgumentParser(prog="python -m learners.dope_figure", description="Figure 2 of the DOPE-SGD paper.")
    parser.add_argument("--data", required=True, help="folder with the four files of Fashion-MNIST")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each, at least 2 (default 5)")
    parser.add_argument("--out", default="dope_figure_2", help="the picture is OUT.png, the page OUT.md (default %(default)s)")
    args = parser.parse_args(arguments)
    try:
        train_images, test_images = mnist_files(args.data, "train"), mnist_files(args.data, "t10k")
    except OSError as error:
        parser.exit(2, f"{parser.prog}: --data {args.data}: {error}\n")
    parts = [_pixels(part) for part in split(train_images, [PRIVATE, PUBLIC], 0)]
    test = _pixels(Data(test_images.X[:TEST], test_images.y[:TEST]))
    cosines, scores = {}, {}
    for name, origin in METHODS.items():
        models = [train(origin, parts, seed) for seed in range(args.seeds)]
        cosines[name] = np.array([model.cosines for model in models])
        scores[name] = [accuracies(model, test) for model in models]
        print(f"{name}: cosine {cosines[name].mean():.3f}", flush=True)
    out = Path(args.out)
    draw(cosines, out.with_suffix(".png"))
    text = page(cosines, scores, out.with_suffix(".png").name)
    out.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)
    return 0


def _pixels(images: Data) -> Data:
    return Data(images.X.astype(np.float64)[:, None] / 255, images.y)


if __name__ == "__main__":
    sys.exit(main())
