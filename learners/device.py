"""Where learners run: the ``--device`` of the commands, and torch's own generators, seeded for a while."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["add_device"]


def add_device(parser: argparse.ArgumentParser, default: str = "cuda" if torch.cuda.is_available() else "cpu") -> None:
    """Let a command take a torch device, and refuse what this machine has not."""
    parser.add_argument("--device", type=_device, default=default, help="torch device (default %(default)s)")


def _device(name: str) -> str:
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # as torch's builds have it
        raise argparse.ArgumentTypeError(
            f"{name!r}: must be a torch device that is there, such as cpu or cuda"
        ) from error
    return name


@contextmanager
def torch_seed(seed: int | None) -> Iterator[None]:
    """Torch's own generators, which start networks and drop out units, seeded for a while."""
    with torch.random.fork_rng(enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        yield
