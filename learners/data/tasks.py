"""A learning task: private, public and test features, centred by a public mean and of norm 1.

It also says what else is public.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learners.data.features import unit_rows
from learners.data.sources import Data
from learners.frame.records import as_features, as_labels
from learners.gradients.softmax import train_public

__all__ = ["Task", "make_task", "plain_weights", "train_plainly"]


class Task(NamedTuple):
    """Features in three parts, and what else is public.

    Attributes:
        private, public, test: features of norm 1, and labels.
        classes: the list of classes.
        unlabelled: public features without labels, for principal components and as prototypes.
        names: encoded names of the classes, or None.
    """

    private: Data
    public: Data
    test: Data
    classes: list[Any]
    unlabelled: NDArray[np.float32]
    names: NDArray[np.float32] | None = None


def make_task(
    private: Data,
    public: Data,
    test: Data,
    classes: list[Any],
    *,
    unlabelled: NDArray[np.generic] | None = None,
    names: NDArray[np.generic] | None = None,
) -> Task:
    """Centre features by the mean of public ones, and scale them to norm 1.

    Args:
        private: private records.
        public: labelled public ones.
        test: records to test on.
        classes: the public list.
        unlabelled: public features without labels, whose mean it then is; None takes those that have labels.
        names: encoded names of the classes.
    """
    rows = public.X if unlabelled is None else unlabelled
    centre = rows.mean(axis=0)
    own, shared, tested = (Data(unit_rows(part.X, centre), part.y) for part in (private, public, test))
    named = None if names is None else unit_rows(names, centre)
    return Task(own, shared, tested, classes, unit_rows(rows, centre), named)


def plain_weights(
    classes: Sequence[Any], parts: Sequence[Data], weight_decay: float = 1e-2, device: str = "cpu"
) -> Tensor:
    """Ordinary training on some parts, without privacy for them; shape (features, classes)."""
    features = as_features(np.concatenate([part.X for part in parts]), device)
    return train_public(
        features,
        as_labels(np.concatenate([part.y for part in parts]), classes, device),
        start=torch.zeros((features.shape[1], len(classes)), device=device, dtype=torch.float64),
        weight_decay=weight_decay,
    )


def train_plainly(task: Task, parts: Sequence[Data], weight_decay: float = 1e-2, device: str = "cpu") -> NDArray[Any]:
    """The test records' classes by :func:`plain_weights`."""
    weights = plain_weights(task.classes, parts, weight_decay, device)
    found = (as_features(task.test.X, device).to(weights.dtype) @ weights).argmax(dim=1)
    labels: NDArray[Any] = np.asarray(task.classes)[found.cpu().numpy()]
    return labels
