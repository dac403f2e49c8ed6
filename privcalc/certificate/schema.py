"""What a certificate has: its fields and their types, the pages of its routes, and its hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from privcalc.serial import canonical

FORMAT, VERSION = "privcalc certificate", 3


READ = (2, VERSION)
"""What can be read; version 2 listed fewer assumptions (``proofs/assumptions.md``, §4)."""


FIELDS = (
    *("format", "version", "privcalc", "basis", "status", "relation", "unit", "run", "guarantee", "curve", "gdp", "advantage"),
    *(
        "beta",
        "public",
        "assumptions",
        "stopping",
        "recorded",
        "declared",
        "target",
        "seeded",
        "not_accounted",
        "idealised",
        "proofs",
    ),
    *("ledgers", "parts", "confirmed", "hash"),
)
"""What a certificate has: all of these, and nothing else (``proofs/certificate.md``)."""


CURVE = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)


ROUTES = {
    "closed form": "gdp.md",
    "contour": "engine.md",
    "jumps": "jumps.md",
    "enumeration": "atoms.md",
    "smoothing": "smoothing.md",
    "lattice": "lattice.md",
    "direct": "direct.md",
    "moments": "conversions.md",
    "fallback": "calibration.md",
    "axis": "calibration.md",
    "group rule": "replace_one.md",
    "joint convexity": "replace_one.md",
    "bounded range": "exponential.md",
    "worst part": "parallel.md",
    "leak set apart": "custom.md",
    "given profile": "custom.md",
    "either order": "custom.md",
    "privacy loss distribution": "interop.md",
}
"""The page of every numerical route, and of every theorem that bounds a pair: the names in ``Enclosure.route``."""


MOVED: dict[str, tuple[str, ...]] = {}
"""Pages that certificates name, and that are no longer in ``proofs/`` under this name: the pages that hold their text now."""


ALPHAS = (0.001, 0.01, 0.05, 0.1)


def digest(document: Mapping[str, Any]) -> str:
    """The hash of a document without its hash."""
    return hashlib.sha256(canonical({k: v for k, v in document.items() if k != "hash"}).encode()).hexdigest()


def same_pages(named: Sequence[str], relied: Sequence[str]) -> bool:
    """Whether a certificate names the pages that it relies on, each by the name that it has, or had when that was written."""
    now = [{name, *MOVED.get(name, ())} for name in named]
    return set(relied) <= set().union(*now) and all(names & set(relied) for names in now) and len(set(named)) == len(named)


IDEALISED = (
    "noise is taken as real-valued: what floating-point noise leaks is not counted (the discrete Gaussian is exact)",
    "random numbers are taken as perfectly random",
    "the process is taken to have done what it recorded: a check shows consistency, not honesty",
)


TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("privcalc", "basis", "status", "relation", "unit", "hash"), (str,)),
    **dict.fromkeys(
        ("run", "declared", "curve", "beta", "proofs", "idealised", "not_accounted", "ledgers", "parts", "confirmed"), (list,)
    ),
    **dict.fromkeys(("guarantee", "gdp", "advantage", "public", "assumptions"), (dict,)),
    "recorded": (list, type(None)),
    "target": (dict, type(None)),
    "stopping": (str, type(None)),
    "seeded": (bool,),
}
