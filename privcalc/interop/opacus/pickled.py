"""Under Opacus: gradients of records are attributes of parameters, which go with them when these are pickled, without noise."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["PICKLED", "Made", "Tell"]

PICKLED = (
    "parameters: were pickled with the gradients of private records that Opacus keeps beside them (grad_sample, summed_grad), as "
    "torch.save(model) does, and not torch.save(model.state_dict()): who reads that has them without noise, and ε does not hold. "
    "Save state_dict(), or call optimizer.zero_grad() before"
)
SECRET = ("grad_sample", "_current_grad_sample", "_norm_sample", "summed_grad")
"""Of parameters, by Opacus."""


class Made(tuple[Any, ...]):
    """What gradients of records were when they were made: secret, as it has their norms, and empty where it is pickled."""

    def __reduce__(self) -> tuple[type[tuple[Any, ...]], tuple[()]]:
        return tuple, ()


class Tell:
    """An attribute of a parameter that is asked how it is pickled when that is, and tells of gradients beside it.

    Args:
        p: the parameter.
        tell: what is to happen then, a method of an object that need not live as long.
    """

    def __init__(self, p: torch.Tensor, tell: Callable[[str], None]) -> None:
        self._p, self._tell = weakref.ref(p), weakref.WeakMethod(tell)

    def __reduce__(self) -> tuple[type[tuple[Any, ...]], tuple[()]]:
        p, tell = self._p(), self._tell()
        if p is not None and tell is not None and any(vars(p).get(name) is not None for name in SECRET):
            tell(PICKLED)
        return tuple, ()
