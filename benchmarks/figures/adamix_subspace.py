"""Figure 6 of the AdaMix paper: how much of the private gradient lies in the subspace of the public one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

import privcalc as pc
from benchmarks.figures.figure import Figure, Given, Rows, values
from benchmarks.figures.means import band, distinct, seeds
from benchmarks.figures.mixed import EPSILON, SETTINGS, tasks
from benchmarks.learners.methods import METHODS
from benchmarks.learners.results import show, table
from learners.adamix import AdaMix
from learners.data.tasks import Task
from learners.frame.plan import Plan
from learners.frame.records import PrivateRecords, as_features, as_labels
from learners.gradients import exact
from learners.gradients.softmax import SoftmaxGradient

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

__all__ = ["FIGURES", "Watched", "reconstruction_error", "watch"]

WIDE = 100
PUBLIC, FILLED, RANDOM = "public gradient", "public gradient and features", "random"
LEARNERS: dict[str, dict[str, Any]] = {PUBLIC: {}, FILLED: {"dimension": WIDE, "fill": True}}
"""The paper's settings, and more directions."""


def reconstruction_error(gradient: Tensor, basis: Tensor) -> float:
    """‖g − U Uᵀg‖/‖g‖, in [0, 1]; the columns of U are orthonormal.

    Example:
        >>> round(reconstruction_error(torch.tensor([[3.0], [4.0]]), torch.tensor([[1.0], [0.0]])), 6)
        0.8
    """
    return float((gradient - basis @ (basis.T @ gradient)).norm() / gradient.norm())


def random_basis(like: Tensor, generator: torch.Generator) -> Tensor:
    """Orthonormal columns, as many, of a uniformly random subspace."""
    found: Tensor = torch.linalg.qr(torch.randn(like.shape, generator=generator, dtype=torch.float64)).Q
    return found.to(like.device)


@dataclass(kw_only=True, eq=False)
class Watched(AdaMix):
    """AdaMix that projects the clipped sum of *public* records' gradients at each step, as it does the private one.

    Attributes:
        truth: features and labels of these records.
        errors: of each step, on the learner's subspace and on a random one of the same dimension.
        width: of the last step's subspace.
    """

    truth: tuple[exact.Rows, Tensor]
    errors: list[tuple[float, float]] = field(default_factory=list, init=False)
    width: int = field(default=0, init=False)

    def _train(self, private: PrivateRecords, plan: Plan, count: int, public: tuple[Tensor, Tensor] | None) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed or 0)

        def see(step: SoftmaxGradient, clip_norm: float) -> None:
            assert step.basis is not None
            gradient = SoftmaxGradient(step.weights).clipped_sum(*self.truth, clip_norm)
            bases = (step.basis, random_basis(step.basis, generator))
            self.errors.append((reconstruction_error(gradient, bases[0]), reconstruction_error(gradient, bases[1])))
            self.width = step.basis.shape[1]

        return super()._train(cast(PrivateRecords, _Seen(private, see)), plan, count, public)


@dataclass(frozen=True)
class _Seen:
    """Private records; what is asked of them is shown to someone, what they answer is not."""

    private: PrivateRecords
    see: Callable[[SoftmaxGradient, float], None]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.private.shape

    def noisy_sum(self, contribution: SoftmaxGradient, step: pc.Mechanism, clip_norm: float) -> Tensor:
        self.see(contribution, clip_norm)
        return self.private.noisy_sum(contribution, step, clip_norm)


def watch(task: Task, seed: int, device: str, **settings: Any) -> Watched:
    """One run; the gradient is that of the records that play the private part."""
    truth = (exact.Rows.of(as_features(task.private.X, device)), as_labels(task.private.y, task.classes, device))
    projected = METHODS["AdaMix, projected"]
    method = replace(projected, kind=Watched, settings={**projected.settings, "truth": truth, **settings})
    model = method.fit(task, EPSILON, seed, device)
    assert isinstance(model, Watched)
    return model


def compute(given: Given) -> Rows:
    """A row per run and subspace, with the errors of all steps."""
    rows = given.watch(_runs(given), len(SETTINGS) * given.seeds * len(LEARNERS))
    return [row for pair in rows for row in pair]


def _runs(given: Given) -> Iterator[list[dict[str, Any]]]:
    for setting, seed, task in tasks(given):
        for name, settings in LEARNERS.items():
            model = watch(task, seed, given.device, **settings)
            key = {"source": setting.source, "learner": name, "seed": seed, "dimension": model.width}
            yield [
                {**key, "subspace": subspace, "errors": [round(one, 4) for one in errors]}
                for subspace, errors in zip((name, RANDOM), zip(*model.errors, strict=True), strict=True)
            ]


def draw(rows: Rows) -> Picture:
    """A panel per source, a line per subspace."""
    from matplotlib.figure import Figure as Canvas

    names = distinct(rows, "source")
    picture = Canvas(figsize=(4.8 * len(names), 3.6), layout="constrained")
    for name, axes in zip(names, picture.subplots(1, len(names), squeeze=False)[0], strict=True):
        for number, (learner, subspace) in enumerate((one, two) for one in LEARNERS for two in (one, RANDOM)):
            runs = values(rows, "errors", source=name, learner=learner, subspace=subspace)
            width = max(values(rows, "dimension", source=name, learner=learner))
            steps = np.arange(1, len(runs[0]) + 1)
            color = "tab:gray" if number == 1 else "black" if subspace == RANDOM else f"C{number}"
            band(axes, steps, np.transpose(runs).tolist(), f"{subspace}, P = {width}", color)
        axes.set(title=name, xlabel="step", ylabel="relative reconstruction error", ylim=(0, 1.05))
        axes.legend(fontsize="x-small")
    return picture


def tell(rows: Rows) -> str:
    """Means over steps, and the random subspace's error over the other's."""
    lines, ratios = [], []
    for name in distinct(rows, "source"):
        for learner in LEARNERS:
            own, chance = (
                np.array(values(rows, "errors", source=name, learner=learner, subspace=one))
                for one in (learner, RANDOM)
            )
            width = max(values(rows, "dimension", source=name, learner=learner))
            ratio = (chance.mean(axis=1) / np.maximum(own.mean(axis=1), 1e-12)).tolist()
            ratios.append((float(np.mean(ratio)), f"{name}, {learner}, P = {width}"))
            parts = (own[:, :1], own, own[:, -1:], chance)
            lines.append(
                [f"{name}, {learner}", str(width), *(show(part.mean(axis=1).tolist()) for part in parts), show(ratio)]
            )
    head = ["source, subspace", "P", "first step", "all steps", "last step", "random, all steps", "random / ours"]
    twice = sum(ratio > 2 for ratio, _ in ratios)
    found = ", ".join(f"{ratio:.2f} ({what})" for ratio, what in ratios)
    return (
        f"**Found:** the random subspace's error over that of ours is {found}: more than twice in {twice} of "
        f"{len(ratios)} cases.\n\n{NOTE.format(seeds=seeds(rows), wide=WIDE)}{table(head, lines)}\n"
    )


NOTE = """‖G − UUᵀG‖/‖G‖, where G is the sum of the clipped gradients of the 1,000 records that play the private
part, at AdaMix's own iterates at ε = 3. A private gradient may not be looked at: all these records are public. Here
P is the rank of the public gradient, at most classes − 1; or {wide}, filled up with principal directions of the
public features (AdaMix's option `fill`). The paper projects ResNet-50's 2,048 features on 2,000 directions, most of
which that rank makes arbitrary; a random subspace then leaves about √(1 − P/D) = 0.15. Means over steps, and 95 %
Student intervals over {seeds} seeds.

"""

FIGURES = (
    Figure(
        "adamix-6",
        "Figure 6 of the AdaMix paper: reconstruction of the private gradient",
        "projecting the private gradient on a random subspace has generally more than twice the error of projecting it "
        "on the subspace of the public gradients (Golatkar et al. 2022, §A.1).",
        5,
        compute,
        draw,
        tell,
    ),
)
