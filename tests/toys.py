"""Data of seconds: features in blobs, and image files of random pixels."""

from __future__ import annotations

import gzip
from dataclasses import replace

import numpy as np

from benchmarks.learners.methods import METHODS
from learners.data.sources import Data


def blobs(size, seed=0, classes=("a", "b", "c"), dimension=6):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, len(classes), size)
    rows = 3 * np.eye(dimension)[y] + 0.3 * rng.standard_normal((size, dimension)) + 1
    return Data(rows.astype(np.float32), np.array(classes)[y])


def few_steps(monkeypatch, steps):
    """Every method of the benchmark that takes steps takes so few."""
    for name, method in METHODS.items():
        if "steps" in method.settings:
            monkeypatch.setitem(METHODS, name, replace(method, settings={**method.settings, "steps": steps}))


def image_files(folder, train, test):
    """The four files of MNIST, with so many records."""
    rng = np.random.default_rng(0)
    for part, n in (("train", train), ("t10k", test)):
        pixels, labels = rng.integers(0, 256, (n, 28, 28)).astype(np.uint8), (np.arange(n) % 10).astype(np.uint8)
        for name, head, values in (("images-idx3", 16, pixels), ("labels-idx1", 8, labels)):
            (folder / f"{part}-{name}-ubyte.gz").write_bytes(gzip.compress(bytes(head) + values.tobytes()))
