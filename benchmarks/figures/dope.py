"""DOPE-SGD paper, Figures 2, 4 and 5: a small convolutional network on Fashion-MNIST pixels; ensembles of iterates.

Figure 2 shows the cosine of the noisy gradient with the true one over steps. The true gradient of private records must
not leave: here all records are public, and some only play the private part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

import privcalc as pc
from benchmarks.figures.figure import Figure, Given, Rows, values
from benchmarks.figures.means import CLEARLY, band, clear, distinct, seeds, where
from benchmarks.learners.results import interval, show, table
from learners.data.sources import Data, split
from learners.dope import DOPESGD, shift_and_flip
from learners.frame.records import PrivateRecords, as_features, as_labels
from learners.gradients.network import NetworkGradient

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

__all__ = ["FIGURES", "Watched", "moving_average", "small_network", "train"]

PRIVATE, PUBLIC, TEST, TRUE = 20_000, 500, 2_000, 500
"""Records; of the last many the true gradient is taken."""
EPSILON, DELTA, STEPS, RATE, CLIP_NORM = 3.0, 1e-5, 40, 0.05, 0.5
METHODS: dict[str, dict[str, Any]] = {
    "DP-SGD": {"origin": "none"},
    "DOPE-SGD": {"origin": "public"},
    "DOPE-SGD, history": {"origin": "history"},
    "DP-SGD, cold": {"origin": "none", "start": "cold", "steps": 200, "sample_rate": 0.02, "learning_rate": 0.5},
}
"""All but the last start warm. Without public records more steps are needed, and larger ones."""
COMPARED = ("DP-SGD", "DOPE-SGD", "DOPE-SGD, history")
"""In Figure 2."""
AVERAGED = ("DP-SGD, cold", "DP-SGD", "DOPE-SGD")
"""In Figures 4 and 5."""
ENSEMBLES = (1, 2, 5, 10, 20, 40, 100)
"""The last n iterates, where there are so many."""
COMBINE: tuple[Literal["vote", "logits", "weights"], ...] = ("vote", "logits", "weights")
DECAYS = (0.9, 0.999)
"""Decays of the moving average; with the paper's, 0.999, so few iterates weigh nearly the same."""


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


def train(method: str, parts: Sequence[Data], seed: int, device: str = "cpu") -> Watched:
    """One run on two parts, private and public; all iterates are kept."""
    private, public = parts[:2]
    classes = list(range(10))
    options: dict[str, Any] = {
        **{"classes": classes, "epsilon": EPSILON, "delta": DELTA, "steps": STEPS, "sample_rate": RATE, "seed": seed},
        **{
            "records": len(private.y),
            "clip_norm": CLIP_NORM,
            "learning_rate": 0.1,
            "model": small_network,
            "device": device,
        },
        **{"augment": shift_and_flip, "ensemble": max(ENSEMBLES), "public_batch": 250, "public_steps": 50},
        **METHODS[method],
    }
    model = Watched(
        **options, truth=(as_features(private.X[:TRUE], device), as_labels(private.y[:TRUE], classes, device))
    )
    extra, _ = shift_and_flip(torch.from_numpy(public.X), torch.empty(0), torch.Generator().manual_seed(seed))
    return model.fit(
        private.X, private.y, np.concatenate([public.X, extra.numpy()]), np.concatenate([public.y, public.y])
    )


def runs(given: Given, methods: Sequence[str]) -> Iterator[tuple[str, int, Watched, Data]]:
    """Method, seed, the trained model, and test records."""
    images, tests = given.pixels()
    parts, test = (
        [_scaled(part) for part in split(images, [PRIVATE, PUBLIC], 0)],
        _scaled(Data(tests.X[:TEST], tests.y[:TEST])),
    )
    wanted = [(method, seed) for method in methods for seed in range(given.seeds)]
    for method, seed in given.watch(wanted, len(wanted)):
        yield method, seed, train(method, parts, seed, given.device), test


def _scaled(images: Data) -> Data:
    return Data(images.X.astype(np.float64)[:, None] / 255, images.y)


def setting(rows: Rows) -> str:
    """What both pages say of the runs."""
    return (
        f"Fashion-MNIST pixels, a convolutional network of 5,154 parameters; {PRIVATE:,} records play the private "
        f"part, {PUBLIC} are labelled public ones, shifted and flipped for the origin; ε = {EPSILON:g}, δ = {DELTA:g}, "
        f"clip norm {CLIP_NORM:g}, {STEPS} steps of expected batch size {RATE * PRIVATE:g}. All learners have the same "
        f"certified ε. Mean ± half of a 95 % Student interval over {seeds(rows)} seeds, which draw first weights, "
        f"batches and noise, but not the records. {CLEARLY}"
    )


# --- Figure 2 ---


def compute_cosines(given: Given) -> Rows:
    """A row per run: the cosine of each step."""
    return [
        {"method": method, "seed": seed, "cosines": [round(cosine, 6) for cosine in model.cosines]}
        for method, seed, model, _ in runs(given, COMPARED)
    ]


def draw_cosines(rows: Rows) -> Picture:
    """A line per method, means over runs and their intervals."""
    from matplotlib.figure import Figure as Canvas

    picture = Canvas(figsize=(6, 3.5), layout="constrained")
    axes = picture.subplots()
    for number, method in enumerate(distinct(rows, "method")):
        columns = np.transpose(values(rows, "cosines", method=method)).tolist()
        band(axes, np.arange(1, len(columns) + 1), columns, method, f"C{number}")
    axes.set(xlabel="step", ylabel="cosine of noisy and true gradient")
    axes.legend()
    return picture


def tell_cosines(rows: Rows) -> str:
    """Means over the first step, and over the first, middle and last ten."""
    steps, methods = len(rows[0]["cosines"]), distinct(rows, "method")
    windows = (slice(0, 1), slice(0, 10), slice(steps // 2 - 5, steps // 2 + 5), slice(steps - 10, steps))
    names = ["step 1", *(f"steps {window.start + 1}-{window.stop}" for window in windows[1:])]

    def means(method: str, window: slice) -> Sequence[float]:
        return [float(np.mean(cosines[window])) for cosines in values(rows, "cosines", method=method)]

    ahead = {
        name: [one - two for one, two in zip(means("DOPE-SGD", window), means("DP-SGD", window), strict=True)]
        for name, window in zip(names, windows, strict=True)
    }
    lines = [[method, *(show(means(method, window)) for window in windows)] for method in methods]
    lines.append(["DOPE-SGD − DP-SGD", *(show(gain, sign=True) for gain in ahead.values())])
    return (
        f"**Found:** the cosine of DOPE-SGD beside DP-SGD's: {where(ahead)}.\n\n{setting(rows)} The true gradient is "
        f"that of {TRUE:,} of the records that play the private part, at each learner's own iterates. "
        "It must not leave for records that "
        "really are private.\n\n" + table(["cosine of noisy and true gradient", *names], lines)
    )


# --- Figures 4 and 5 ---


def moving_average(iterates: Tensor, decay: float) -> Tensor:
    """Σ γ^{T−t}·θ_t over Σ γ^{T−t}: the exponential moving average, without the start.

    Args:
        iterates: θ₁, …, θ_T, shape (T, …).
        decay: γ in [0, 1).

    Example:
        >>> moving_average(torch.tensor([[0.0], [3.0]]), 0.5)
        tensor([[2.]])
    """
    shares = decay ** torch.arange(len(iterates) - 1, -1, -1, dtype=iterates.dtype, device=iterates.device)
    return torch.einsum("t,t...->...", shares / shares.sum(), iterates).unsqueeze(0)


def compute_accuracies(given: Given) -> Rows:
    """A row per run, way to combine, and n; of moving averages n is null."""
    rows: list[dict[str, Any]] = []
    for method, seed, model, test in runs(given, AVERAGED):
        every = model.weights_
        kept: list[tuple[str, Literal["vote", "logits", "weights"], int | None, Tensor]] = [
            (combine, combine, n, every[-n:]) for combine in COMBINE for n in ENSEMBLES if n <= len(every)
        ]
        kept += [(f"EMA, γ = {decay:g}", "weights", None, moving_average(every, decay)) for decay in DECAYS]
        for how, combine, n, weights in kept:
            model.combine, model.weights_ = combine, weights
            rows.append({"method": method, "seed": seed, "how": how, "n": n, "accuracy": model.score(test.X, test.y)})
    return rows


def gains(rows: Rows, method: str, how: str, n: int | None) -> list[float]:
    """Accuracy beyond that of the last iterate alone, seed by seed."""
    found, last = (values(rows, "accuracy", method=method, how=way, n=many) for way, many in ((how, n), ("weights", 1)))
    return [float(gain) for gain in np.subtract(found, last)]


def _sizes(rows: Rows, method: str | None = None) -> list[int]:
    """The n of all learners, or of one."""
    return sorted({row["n"] for row in rows if row["n"] is not None and method in (None, row["method"])})


def draw_accuracies(rows: Rows) -> Picture:
    """Accuracy over n, with moving averages as marks on the right; and its gain over the last iterate, seed by seed."""
    from matplotlib.figure import Figure as Canvas

    picture = Canvas(figsize=(9, 4), layout="constrained")
    level, gain = picture.subplots(1, 2)
    counts = _sizes(rows)
    marks = dict(zip([how for how in distinct(rows, "how") if how.startswith("EMA")], "x+", strict=False))
    for number, method in enumerate(distinct(rows, "method")):
        own = _sizes(rows, method)
        color, shifted = f"C{number}", np.multiply(own, 1 + 0.04 * number)
        for how, line in (("vote", "o-"), ("weights", "--")):
            means = [np.mean(values(rows, "accuracy", method=method, how=how, n=n)) for n in own]
            level.plot(own, means, line, markersize=4, color=color, label=method if how == "vote" else None)
            gain.plot(shifted, [np.mean(gains(rows, method, how, n)) for n in own], line, markersize=4, color=color)
        middle, half = np.array([interval(gains(rows, method, "vote", n)) for n in own]).T
        gain.errorbar(shifted, middle, half, color=color, linestyle="", capsize=2)
        for how, mark in marks.items():
            level.plot(
                counts[-1] * 1.35, np.mean(values(rows, "accuracy", method=method, how=how, n=None)), mark, color=color
            )
    gain.axhline(0, color="black", linewidth=0.8)
    for axes in (level, gain):
        axes.set(xlabel="n, the last iterates that decide", xscale="log")
        axes.set_xticks(counts, [str(n) for n in counts])
        axes.minorticks_off()
    level.set_ylabel("accuracy")
    gain.set_ylabel("gain over the last iterate")
    for line, how in (("o-", "vote"), ("--", "mean of weights"), *((mark, how) for how, mark in marks.items())):
        level.plot([], [], line, markersize=4, color="gray", label=how)
    picture.legend(loc="outside lower center", ncols=4, fontsize="small")
    return picture


def tell_accuracies(rows: Rows) -> str:
    """Accuracies, and gains over the last iterate alone."""
    methods, ways, counts = distinct(rows, "method"), distinct(rows, "how"), _sizes(rows)
    combine, averages = (
        [how for how in ways if not how.startswith("EMA")],
        [how for how in ways if how.startswith("EMA")],
    )
    lines = [
        [method, how, *(show(values(rows, "accuracy", method=method, how=how, n=n)) for n in counts)]
        for method in methods
        for how in combine
    ]
    more = []
    for method in methods:
        most = _sizes(rows, method)[-1]
        compared = [("vote", most), ("weights", most), *((how, None) for how in averages)]
        more.append([method, str(most), *(show(gains(rows, method, how, n), sign=True) for how, n in compared)])
    votes = {(method, n): gains(rows, method, "vote", n) for method in methods for n in _sizes(rows, method)[1:]}
    better, worse = (
        [f"{method} (n = {n}: {np.mean(gain):+.3f})" for (method, n), gain in votes.items() if clear(gain) == sign]
        for sign in (1, -1)
    )
    cold = METHODS["DP-SGD, cold"]
    return (
        f"**Found:** of {len(votes)} comparisons, the vote of the last n iterates is clearly better than the last one "
        f"for {', '.join(better) or 'no learner and no n'}; clearly worse for {', '.join(worse) or 'none'}. "
        f"Nothing is paid for it: all iterates are released.\n\n{setting(rows)} DP-SGD "
        'and DOPE-SGD start warm from the public records; "DP-SGD, cold" has none, like the paper\'s figures, and '
        f"makes {cold['steps']} larger steps of expected batch size {cold['sample_rate'] * PRIVATE:g}; "
        "those that start warm have fewer iterates than the 50 that the paper finds necessary. Where training has not "
        "converged, averages lag behind: this is our reading, not an experiment. "
        f"Accuracy on {TEST:,} test records.\n\n"
        + table(["learner", "combined by", *(f"n = {n}" for n in counts)], lines)
        + "\n\nFigure 4: gain over the last iterate, seed by seed, of the last n iterates. EMA is their exponential "
        + "moving average.\n\n"
        + table(["learner", "n", "vote", "mean of weights", *averages], more)
    )


FIGURES = (
    Figure(
        "dope-2",
        "Figure 2 of the DOPE-SGD paper: noisy and true gradients",
        "from a warm start, the noisy gradient of DOPE-SGD has a larger inner product with the true one than DP-SGD's, "
        "above all in early steps (Nasr et al. 2023, §4; CIFAR-10). Here the cosine, in which lengths do not count.",
        5,
        compute_cosines,
        draw_cosines,
        tell_cosines,
    ),
    Figure(
        "dope-5",
        "Figures 4 and 5 of the DOPE-SGD paper: ensembles of iterates",
        "on CIFAR-10 without public data, a vote of the last 100 models of DP-SGD is more accurate than the "
        "exponential moving average (γ = 0.999) and the last one; "
        "at least 50 are needed for a noticeable gap (Nasr et al. 2023, Appendix E).",
        5,
        compute_accuracies,
        draw_accuracies,
        tell_accuracies,
    ),
)
