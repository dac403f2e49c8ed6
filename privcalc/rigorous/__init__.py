"""Proofs of single claims in ball arithmetic: ``pc.prove``.

They share descriptions of mechanisms with the engine, and no numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["finite_claims"]


def finite_claims(document: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Every finite ε that a certificate claims, with its δ: its guarantee first, then its curve; each once.

    Args:
        document: the JSON object of a certificate.
    """
    points = [
        (point["epsilon"]["upper"], float(point["delta"])) for point in (document["guarantee"], *document["curve"])
    ]
    return list(dict.fromkeys((float(epsilon), delta) for epsilon, delta in points if epsilon is not None))
