"""Random numbers that are the same in every run: those of Python, NumPy and, where it is loaded, torch."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = ["replayed"]


@contextlib.contextmanager
def replayed(seed: int) -> Iterator[Callable[[int], None]]:
    """Seed the global generators and ``numpy.random.default_rng()`` while this lasts; then all is as before.

    Yields:
        A function that seeds them again, by a number: after each release, so that what one run drew more than another
        does not shift what follows.
    """
    torch: Any = sys.modules.get("torch")
    before = random.getstate(), np.random.get_state(), None if torch is None else torch.get_rng_state()
    make, made = np.random.default_rng, 0

    def seeded(given: Any = None) -> np.random.Generator:
        nonlocal made
        if given is not None:
            return make(given)
        made += 1
        return make([seed, made])

    def again(number: int) -> None:
        random.seed(f"{seed}/{number}")
        np.random.seed([seed, number])
        if torch is not None:
            torch.manual_seed(seed * 2**20 + number)

    vars(np.random)["default_rng"] = seeded
    try:
        again(0)
        yield again
    finally:
        vars(np.random)["default_rng"] = make
        random.setstate(before[0])
        np.random.set_state(before[1])
        if torch is not None:
            torch.set_rng_state(before[2])
