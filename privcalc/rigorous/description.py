"""What certificates write down: a run, by kinds and fields, numbers as the exact fractions that floats are; its claims.

Only what is known here is read. An unknown kind, an unknown field or a value out of range is no proof, never a guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

ADD_OR_REMOVE_ONE, REPLACE_ONE, ZERO_OUT = "add-or-remove-one", "replace-one", "zero-out"
RELATIONS = (ADD_OR_REMOVE_ONE, REPLACE_ONE, ZERO_OUT)

DEEPEST = 20
"""Mechanisms in mechanisms."""

LEAST, LARGEST = Fraction(1, 10**101), 10**101
"""Of scales; mechanisms allow a little less."""


class UnprovableError(Exception):
    """A part that no rigorous route covers; the text names it."""


class RefusedError(ValueError):
    """There is no guarantee under this relation; the text says whose."""


@dataclass(frozen=True)
class Described:
    """A mechanism, or a part of one.

    Attributes:
        kind: its name.
        fields: its arguments: fractions, whole numbers, texts, tuples, other descriptions.
    """

    kind: str
    fields: Mapping[str, Any]

    def __str__(self) -> str:
        said = ", ".join(f"{name}={_said(value)}" for name, value in self.fields.items())
        return f"{self.kind}({said})"


Description: TypeAlias = tuple[tuple[Described, int], ...]
"""A run: mechanisms and how often each ran."""


def _said(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_said, value[:8]))}{', …' if len(value) > 8 else ''}]"
    return repr(float(value)) if isinstance(value, Fraction) else str(value)


def read(value: object) -> Description:
    """The run of a certificate's field ``run``.

    Raises:
        UnprovableError: for anything that is not known here.

    Example:
        >>> ((one, count),) = read([{"mechanism": {"kind": "Laplace", "scale": 2.0}, "count": 3}])
        >>> str(one), count
        ('Laplace(scale=2.0)', 3)
    """
    known = {"mechanism", "count"}
    if not isinstance(value, list) or not all(isinstance(entry, dict) and set(entry) == known for entry in value):
        raise UnprovableError("run: must be a list of objects with exactly mechanism and count")
    return tuple((_mechanism(entry["mechanism"]), _count(entry["count"])) for entry in value)


def _mechanism(value: object, depth: int = 0) -> Described:
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str) or depth > DEEPEST:
        raise UnprovableError(f"{str(value)[:100]}: is no mechanism with a kind")
    kind, given = value["kind"], {name: item for name, item in value.items() if name != "kind"}
    known = KINDS.get(kind)
    if known is None:
        raise UnprovableError(f"{kind}: not covered by the rigorous route")
    given = {**DEFAULTS.get(kind, {}), **given}
    if set(given) != set(known):
        raise UnprovableError(f"{kind}: must have exactly the fields {', '.join(known)}")
    return Described(
        kind, {name: _read(reader, given[name], f"{kind}: {name}", depth) for name, reader in known.items()}
    )


def _read(reader: Reader | None, value: object, name: str, depth: int) -> Any:
    if reader is None:
        if isinstance(value, list):
            return tuple(_mechanism(part, depth + 1) for part in value)
        return _mechanism(value, depth + 1)
    try:
        return reader(value)
    except (TypeError, ValueError, OverflowError):
        raise UnprovableError(f"{name} = {str(value)[:100]}: out of range") from None


Reader: TypeAlias = Callable[[Any], Any]


def _number(value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    return Fraction(value)


def _within(value: Any, *, good: bool) -> Any:
    if not good:
        raise ValueError(value)
    return value


def _real(good: Callable[[Fraction], bool]) -> Reader:
    return lambda value: _within(number := _number(value), good=good(number))


_scale = _real(lambda x: LEAST <= x <= LARGEST)
_level = _real(lambda x: x == 0 or LEAST <= x <= LARGEST)
_share = _real(lambda x: 0 <= x < 1)
_rate = _real(lambda x: 0 < x <= 1)


def _whole(value: object) -> int:
    return _within(value, good=type(value) is int and 0 < value < 10**15)  # type: ignore[no-any-return]


def _count(value: object) -> int:
    if type(value) is not int or not 0 < value < 10**15:
        raise UnprovableError(f"count = {str(value)[:100]}: out of range")
    return value


def _maybe(value: object) -> int | None:
    return None if value is None else _whole(value)


def _flag(value: object) -> bool:
    return _within(value, good=isinstance(value, bool))  # type: ignore[no-any-return]


def _word(*known: str) -> Reader:
    return lambda value: _within(value, good=isinstance(value, str) and value in known)


def _extended(value: object) -> Fraction | float:
    return math.inf if value == "inf" else _within(number := _number(value), good=number >= 0)


def _numbers(reader: Reader) -> Reader:
    return lambda value: tuple(map(reader, _within(value, good=isinstance(value, list) and 0 < len(value) <= 10**6)))


_RELATION = _word(*RELATIONS)

KINDS: Mapping[str, Mapping[str, Reader | None]] = {
    "Gaussian": {"noise_multiplier": _scale},
    "Laplace": {"scale": _scale},
    "DiscreteGaussian": {
        "noise_multiplier": _scale,
        "sensitivity": _scale,
        "norm": lambda n: _within(n, good=n in (1, 2)),
    },
    "RandomizedResponse": {"epsilon": _scale, "categories": _whole},
    "ExponentialMechanism": {"epsilon": _scale, "monotone": _flag},
    "PermuteAndFlip": {"epsilon": _scale, "monotone": _flag},
    "NoisyMax": {"epsilon": _scale, "noise": _word("exponential", "gumbel", "laplace"), "monotone": _flag},
    "TopK": {"epsilon": _scale, "k": _whole},
    "AboveThreshold": {"threshold_scale": _scale, "query_scale": _scale, "answers": _whole, "monotone": _flag},
    "PureDP": {"epsilon": _scale, "relation": _RELATION},
    "ApproxDP": {"epsilon": _level, "delta": _share, "relation": _RELATION},
    "LastIterate": {"noise_multiplier": _scale, "steps": _whole, "contraction": _share, "capped": _flag},
    "GDP": {"mu": _scale, "relation": _RELATION},
    "ZCDP": {"rho": _scale, "xi": _level, "relation": _RELATION},
    "RDP": {"orders": _numbers(_extended), "epsilons": _numbers(_extended), "relation": _RELATION},
    "CustomMechanism": {
        "with_record": _numbers(_extended),
        "without_record": _numbers(_extended),
        "relation": _RELATION,
    },
    "PoissonSampled": {"mechanism": None, "rate": _rate},
    "UserSampled": {"mechanism": None, "rate": _rate, "records": _whole, "counted": _maybe},
    "RandomAllocation": {"mechanism": None, "steps": _whole, "epochs": _whole, "choices": _whole},
    "FixedSizeSampled": {"mechanism": None, "batch_size": _whole, "dataset_size": _whole},
    "TruncatedPoissonSampled": {"mechanism": None, "rate": _rate, "batch_size": _whole, "dataset_size": _whole},
    "WithReplacementSampled": {"mechanism": None, "batch_size": _whole, "dataset_size": _whole},
    "ShuffledEpoch": {"mechanism": None},
    "Parallel": {"parts": None},
    "CorrelatedGaussian": {"noise_multiplier": _scale, "strategy": None, "participation": None},
    "Toeplitz": {"coefficients": _numbers(_number), "steps": _whole},
    "SquareRoot": {"steps": _whole, "diagonals": _maybe},
    "MinSeparation": {"separation": _whole, "most": _maybe},
    "FixedOrder": {"epoch": _whole},
    "CyclicPoisson": {"classes": _whole, "rate": _rate},
    "BallsInBins": {"bins": _whole},
}
"""What each kind has; None is another description, or a list of them."""

DEFAULTS: Mapping[str, Mapping[str, Any]] = {"DiscreteGaussian": {"norm": 1}}
"""Fields that older texts do not have."""


def finite_claims(document: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Every finite ε that a certificate claims, with its δ: its guarantee first, then its curve; each once.

    Args:
        document: the JSON object of a certificate.
    """
    points = [
        (point["epsilon"]["upper"], float(point["delta"])) for point in (document["guarantee"], *document["curve"])
    ]
    return list(dict.fromkeys((float(epsilon), delta) for epsilon, delta in points if epsilon is not None))
