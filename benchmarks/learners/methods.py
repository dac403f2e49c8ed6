"""What the benchmark compares: five papers' learners and baselines, at frozen defaults, by name.

Defaults come from the papers, or were chosen on MNIST digits, with what an earlier version of the page showed in mind;
none was read off the test records. Every learner that takes steps makes 400 passes over its records, the default
learner 50.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from examples.filtered import FilteredGD
from learners.adamix import AdaMix, zero_shot
from learners.data.sources import Data
from learners.data.tasks import Task, train_plainly
from learners.dope import DOPESGD
from learners.dp_ls import DPLS
from learners.dppl import DPPLMean
from learners.dppl_public import DPPLPublic
from learners.dpsgd import DPSGD
from learners.frame.learner import Learner
from learners.frame.records import as_features, as_labels
from learners.noisy_gd import NoisyGD
from learners.pda_dpmd import PDADPMD
from learners.pillar import PILLAR
from learners.ppsgd import PPSGD
from learners.whitened import WhitenedGD

__all__ = ["BASELINES", "DELTA", "METHODS", "PASSES", "Baseline", "Method"]

DELTA = 1e-5
PASSES = 400
"""T of full-batch learners: with 100, large budgets cannot be spent, as no step may be larger than is stable."""

OFF = "self_training"
"""Is off unless it is among a method's settings: numbers that were made before there was such an option stay."""

NOT_SETTINGS = {"device", "ledger", "seed", "progress", "relation"}

FULL: dict[str, Any] = {"steps": PASSES}
BATCHES: dict[str, Any] = {"sample_rate": 0.1, "steps": 10 * PASSES}


@dataclass(frozen=True)
class Method:
    """A learner with its settings, and which public records it is given.

    Attributes:
        kind: the class.
        settings: arguments beside the task's.
        public: "labelled" records, "unlabelled" ones, "both", or "nothing".
        beta: start from the encoded names of the classes at this scale; "public": the scale that fits the public
            records best.
    """

    kind: type[Learner]
    settings: dict[str, Any]
    public: Literal["labelled", "unlabelled", "both", "nothing"] = "nothing"
    beta: float | Literal["public"] | None = None

    def make(self, task: Task, epsilon: float, seed: int, device: str = "cpu") -> Learner:
        """Before it is fitted."""
        given = {"classes": task.classes, "epsilon": epsilon, "seed": seed, "device": device, **self.settings}
        fields = self.kind.__dataclass_fields__
        if fields["delta"].init:
            given["delta"] = DELTA
        if "records" in fields:
            given["records"] = len(task.private.y)
        if self.public == "both":
            given["unlabelled"] = task.unlabelled
        if self.beta is not None:
            given["start"] = named_start(task, best_scale(task) if self.beta == "public" else self.beta)
        return self.kind(**given)

    def fit(self, task: Task, epsilon: float, seed: int, device: str = "cpu") -> Learner:
        """After it."""
        given: tuple[Any, ...] = {
            "labelled": tuple(task.public),
            "unlabelled": (task.unlabelled,),
            "both": tuple(task.public),
            "nothing": (),
        }[self.public]
        return self.make(task, epsilon, seed, device).fit(task.private.X, task.private.y, *given)

    def __str__(self) -> str:
        """What would make other results: settings, and defaults."""
        known = {field.name: field.default for field in fields(self.kind) if field.init}
        known = {name: value for name, value in known.items() if value is not MISSING and name != OFF}
        chosen = {**known, **self.settings, **({} if self.beta is None else {"beta": self.beta})}
        shown = ", ".join(f"{name}={value!r}" for name, value in sorted(chosen.items()) if name not in NOT_SETTINGS)
        return f"{self.kind.__name__}({shown}), δ = {DELTA:g}, public: {self.public}"


METHODS: dict[str, Method] = {
    "NoisyGD (Fully-Private)": Method(NoisyGD, FULL),
    "DP-SGD": Method(DPSGD, BATCHES),
    "WhitenedGD": Method(WhitenedGD, {}, "unlabelled"),
    "WhitenedGD, labels": Method(WhitenedGD, {}, "both"),
    "DP-SGD, warm": Method(DPSGD, BATCHES, "labelled"),
    "public start": Method(NoisyGD, {**FULL, "clip_quantile": 0.9}, "labelled"),
    "AdaMix": Method(AdaMix, FULL, "labelled"),
    "AdaMix, projected": Method(AdaMix, {**FULL, "dimension": 2000}, "labelled"),
    "DOPE-SGD": Method(DOPESGD, BATCHES, "labelled"),
    "PDA-DPMD": Method(PDADPMD, FULL, "labelled"),
    "PILLAR, k = 40": Method(PILLAR, {**FULL, "k": 40}, "unlabelled"),
    "JL, k = 40": Method(PILLAR, {**FULL, "k": 40, "basis": "jl"}),
    "DPPL-Mean": Method(DPPLMean, {}),
    "clipped mean": Method(DPPLMean, {"shares": (1.0,)}),
    "DPPL-Public (pure ε)": Method(DPPLPublic, {}, "unlabelled"),
    "DP ridge": Method(DPLS, {}),
    "DP-LS": Method(DPLS, {"weight": 1.0}),
    "PPGD": Method(PPSGD, FULL, "labelled"),
    "NGD": Method(AdaMix, {**FULL, "clip_norm": 1.0}, "labelled"),
    "NoisyGD, C = 0.1": Method(NoisyGD, {**FULL, "clip_norm": 0.1}),
    "FilteredGD": Method(FilteredGD, FULL),
    "WhitenedGD, balanced": Method(WhitenedGD, {"balanced": True}, "unlabelled"),
    "WhitenedGD, labels, balanced": Method(WhitenedGD, {"balanced": True}, "both"),
    "WhitenedGD, self-trained": Method(WhitenedGD, {"self_training": True}, "unlabelled"),
    "WhitenedGD, balanced, self-trained": Method(WhitenedGD, {"balanced": True, "self_training": True}, "unlabelled"),
    "PILLAR, k = 40, self-trained": Method(PILLAR, {**FULL, "k": 40, "self_training": True}, "unlabelled"),
    "DPPL-Public (pure ε), self-trained": Method(DPPLPublic, {"self_training": True}, "unlabelled"),
    "WhitenedGD, C = 1": Method(WhitenedGD, {"clip_norm": 1.0}, "unlabelled"),
    "AdaMix, names (β = 100)": Method(AdaMix, FULL, "labelled", beta=100.0),
    "AdaMix, names (β by public records)": Method(AdaMix, FULL, "labelled", beta="public"),
    "AdaMix, projected, names (β = 100)": Method(AdaMix, {**FULL, "dimension": 2000}, "labelled", beta=100.0),
    "AdaMix, projected, names (β by public records)": Method(
        AdaMix, {**FULL, "dimension": 2000}, "labelled", beta="public"
    ),
}


@dataclass(frozen=True)
class Baseline:
    """What needs no ε: the classes it predicts for the test records, and what would make other results."""

    predict: Callable[[Task, str], NDArray[Any]]
    settings: str

    def __str__(self) -> str:
        return self.settings


SCALES = (1.0, 3.0, 10.0, 30.0, 100.0)
DECAYS = (1e-2, 1e-1, 1.0)
"""λ of the summed loss."""


def best_scale(task: Task) -> float:
    """The β of :data:`SCALES` at which the encoded names fit the public records best (cross-entropy)."""
    features, labels = as_features(task.public.X, "cpu"), as_labels(task.public.y, task.classes, "cpu")
    loss = torch.nn.functional.cross_entropy
    return min(SCALES, key=lambda beta: float(loss(features @ named_start(task, beta), labels)))


def named_start(task: Task, beta: float) -> torch.Tensor:
    """Zero-shot weights of the task's class names."""
    assert task.names is not None, "this task's classes have no encoded names"
    return zero_shot(task.names, beta)


def probe_decay(task: Task, device: str) -> float:
    """The weight decay that a fifth of the private records choose for training on the others, without privacy."""
    rng = np.random.default_rng(0)
    held = rng.random(len(task.private.y)) < 0.2
    own, rest = (Data(task.private.X[part], task.private.y[part]) for part in (~held, held))
    half = task._replace(test=rest)
    right = {decay: float(np.mean(train_plainly(half, [own], decay, device) == rest.y)) for decay in DECAYS}
    return max(DECAYS, key=right.__getitem__)


def probe(task: Task, device: str) -> NDArray[Any]:
    """Logistic regression on the private records, without privacy; a fifth of them choose its weight decay."""
    return train_plainly(task, [task.private], probe_decay(task, device), device)


def nearest_mean(task: Task, _: str) -> NDArray[Any]:
    """The direction of the nearest class mean, without privacy."""
    means = np.stack([task.private.X[task.private.y == label].mean(axis=0) for label in task.classes])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    found: NDArray[Any] = np.asarray(task.classes)[(task.test.X @ means.T).argmax(axis=1)]
    return found


def names_alone(task: Task, _: str) -> NDArray[Any]:
    """The direction of the nearest name: no record is looked at."""
    found: NDArray[Any] = np.asarray(task.classes)[(task.test.X @ named_start(task, 1.0).numpy()).argmax(axis=1)]
    return found


BASELINES: dict[str, Baseline] = {
    "Only-Public": Baseline(
        lambda task, device: train_plainly(task, [task.public], device=device), "weight_decay=0.01"
    ),
    "probe": Baseline(probe, f"weight_decay of {DECAYS} by a held-out fifth"),
    "nearest mean": Baseline(nearest_mean, ""),
    "class names alone": Baseline(names_alone, ""),
}
"""The first sees public records alone, the next two train on private ones without privacy, the last sees no record."""
