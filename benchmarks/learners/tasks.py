"""How the benchmark draws its tasks from a pool: at random, as many of each class, with long tails, or shifted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import privcalc as pc
from learners.data.sources import Data, split
from learners.data.tasks import Task, make_task

__all__ = ["drawn_task", "imbalanced", "minority", "shots"]


def drawn_task(
    pool: Data,
    test: Data,
    *,
    private: int,
    public: int,
    unlabelled: int = 0,
    seed: int,
    imbalance: float = 1.0,
    other: NDArray[np.generic] | None = None,
    shifted: bool = False,
    names: NDArray[np.generic] | None = None,
    balanced: bool = False,
) -> Task:
    """Split a pool at random; centre by the mean of the public records, and scale to norm 1.

    Args:
        pool: features that are split.
        test: features to test on.
        private: private records; with ``imbalance`` > 1 they are thinned after that.
        public: labelled public records.
        unlabelled: public records without labels; 0 takes those that have labels.
        seed: of the split.
        imbalance: largest class size / smallest: see :func:`imbalanced`.
        other: public features from elsewhere.
        shifted: take the unlabelled records, and the centre, from ``other``.
        names: encoded names of the classes.
        balanced: take as many labelled public records of each class, which must divide ``public``.
    """
    if balanced:
        shared, rest = shots(pool, public, seed)
        wide, own = split(rest, [unlabelled, private], seed)
    else:
        wide, shared, own = split(pool, [unlabelled, public, private], seed)
    if imbalance > 1:
        own = imbalanced(own, imbalance, seed)
    rows = wide.X if unlabelled else None
    if shifted:
        if other is None:
            raise pc.PrivcalcError("shifted = True: must come with other")
        rows = other[np.random.default_rng(seed).permutation(len(other))[: unlabelled or public]]
    classes = sorted({*np.unique(pool.y).tolist(), *np.unique(test.y).tolist()})
    return make_task(own, shared, test, classes, unlabelled=rows, names=names)


def shots(pool: Data, size: int, seed: int) -> tuple[Data, Data]:
    """So many records in all, the same number of each class, and all others.

    Example:
        >>> few, rest = shots(Data(np.zeros((6, 1)), np.array([0, 0, 0, 1, 1, 0])), 4, seed=0)
        >>> np.bincount(few.y).tolist(), np.bincount(rest.y).tolist()
        ([2, 2], [2])
    """
    rng, classes = np.random.default_rng(seed), np.unique(pool.y)
    each, odd = divmod(size, len(classes))
    if odd or each > min(int(np.sum(pool.y == label)) for label in classes):
        raise pc.PrivcalcError(
            f"public = {size}: must be a multiple of {len(classes)} classes, with enough records of each"
        )
    chosen = rng.permutation(
        np.concatenate([rng.permutation(np.flatnonzero(pool.y == label))[:each] for label in classes])
    )
    rest = np.setdiff1d(np.arange(len(pool.y)), chosen)
    return Data(pool.X[chosen], pool.y[chosen]), Data(pool.X[rest], pool.y[rest])


def imbalanced(data: Data, ratio: float, seed: int) -> Data:
    """Make class sizes long-tailed, n_c = n·e^{−cλ} (Cui et al. 2019), with largest/smallest = ``ratio``.

    n is the smallest class there was.

    Args:
        data: about balanced.
        ratio: ≥ 1; λ = log(ratio)/(classes − 1).
        seed: which class comes how late, and which records stay.

    Example:
        >>> found = imbalanced(Data(np.zeros((300, 1)), np.repeat([0, 1, 2], 100)), 100.0, seed=0)
        >>> sorted(np.unique(found.y, return_counts=True)[1].tolist())
        [1, 10, 100]
    """
    if not ratio >= 1:
        raise pc.PrivcalcError(f"ratio = {ratio!r}: must be >= 1")
    rng = np.random.default_rng(seed)
    classes, counts = np.unique(data.y, return_counts=True)
    rate = math.log(ratio) / max(1, len(classes) - 1)
    kept = [
        rng.permutation(np.flatnonzero(data.y == label))[: round(int(counts.min()) * math.exp(-rate * c))]
        for c, label in enumerate(rng.permutation(classes))
    ]
    order = rng.permutation(np.concatenate(kept))
    return Data(data.X[order], data.y[order])


def minority(labels: NDArray[np.generic], classes: Sequence[Any]) -> list[Any]:
    """The quarter of the classes, rounded up, that has the fewest records.

    Wahdany et al. 2024, §4: the lower 25 % quantile.

    Example:
        >>> minority(np.array(list("aaabbbbcdd")), "abcd")
        ['c']
    """
    size = {label: int(np.sum(labels == label)) for label in classes}
    return sorted(classes, key=lambda label: size[label])[: math.ceil(len(size) / 4)]
