"""The ``--device`` of the commands."""

from __future__ import annotations

import argparse

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
