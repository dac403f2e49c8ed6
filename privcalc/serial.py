"""JSON of certificates, ledgers and reports: texts, objects, fields; mechanisms and runs to JSON and back.

A mechanism is ``{"kind": its name, argument: value, …}`` with the arguments of its constructor; a run is a list of
``{"mechanism": …, "count": n}``. The text is canonical: equal runs give equal text. Floats are written so that they are
read back exactly, ∞ as ``"inf"``. (What one process says to another, and the header of realised losses, is written
where it is read.)
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

from privcalc import errors
from privcalc.enclosure import Enclosure, Guarantee
from privcalc.errors import NotConfirmed, PrivcalcError
from privcalc.errors import count as whole
from privcalc.files import DOCUMENT, read_whole
from privcalc.relation import Relation
from privcalc.run import KINDS, PARTS, Mechanism, Run, known

__all__ = [
    "Field",
    "canonical",
    "check_fields",
    "mechanism_from_json",
    "mechanism_to_json",
    "run_from_json",
    "run_to_json",
]

Json = dict[str, Any]

DEEPEST = 60
"""Objects and lists in each other; certificates have about a dozen."""

_OTHERS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}

_ARGUMENTS = {"level": "epsilon", "failure": "delta", "base": "run"}
"""Fields that are not called as their argument is, because ``epsilon`` and ``run`` are questions."""


def canonical(value: object) -> str:
    """The one JSON text of a value.

    Example:
        >>> canonical({"b": 1.0, "a": [1e-05, None]})
        '{"a":[1e-05,null],"b":1.0}'
    """
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
        text.encode()  # half a surrogate pair is no text
    except (TypeError, ValueError, RecursionError) as error:
        raise PrivcalcError(
            f"{reprlib.repr(value)}: must be JSON (finite numbers, text, lists, objects): {error}"
        ) from error
    return text


def parse(text: str | bytes, name: str) -> Json:
    """One JSON object, without numbers that JSON does not have, and each name once.

    Args:
        text: its text.
        name: what messages call it.

    Raises:
        PrivcalcError: if it is none.

    Example:
        >>> parse('{"a": 1, "a": 2}', "text")
        Traceback (most recent call last):
            ...
        privcalc.errors.PrivcalcError: text: is not one whole JSON object: a name occurs twice in ['a', 'a']
    """
    if (depth := _depth(text)) > DEEPEST:
        raise PrivcalcError(f"{name}: must be nested at most {DEEPEST} deep, not {depth}")
    try:
        found = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise PrivcalcError(f"{name}: is not one whole JSON object: {error}") from error
    if not isinstance(found, dict):
        raise PrivcalcError(f"{name}: must be a JSON object")
    return found


def _depth(text: str | bytes) -> int:
    """How deep objects and lists are nested, before anything is made of them."""
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    if data.count(b"[") + data.count(b"{") <= DEEPEST:
        return 0
    plain = data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]  # without texts
    brackets = b"".join(plain).translate(None, _OTHERS)
    return max(itertools.accumulate(map(_STEPS.__getitem__, brackets)), default=0)


def _once(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"a name occurs twice in {[name for name, _ in pairs]}")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def indented(value: Json) -> str:
    """A document as it is saved, for people to read."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


class Field(NamedTuple):
    """One field of a JSON object.

    Attributes:
        kind: the types that its value may have, exactly: ``True`` is no number.
        says: what it says, for people.
        among: the values that it may have; all of its types if there are none.
    """

    kind: tuple[type, ...]
    says: str = ""
    among: tuple[object, ...] = ()


REQUIRED = "required"
"""The field in which a later version lists those of its fields that whoever reads it must know."""


def check_fields(name: str, value: object, fields: Mapping[str, Field], *, more: bool = False) -> Json:
    """The object, if it has exactly these fields, each of its kind.

    Args:
        name: what messages call it.
        value: the object.
        fields: what it must have.
        more: whether it may have others, as a later version writes them, unless it lists them as ``required``.

    Raises:
        PrivcalcError: with what was found, and what is allowed.

    Example:
        >>> check_fields("point", {"x": 1}, {"x": Field((int,))})
        {'x': 1}
        >>> check_fields("point", {"x": True}, {"x": Field((int,))})
        Traceback (most recent call last):
            ...
        privcalc.errors.PrivcalcError: point: x = True: must be int
    """
    if not isinstance(value, Mapping):
        raise PrivcalcError(f"{name} = {str(value)[:200]}: must be an object")
    required = value.get(REQUIRED, []) if more else []
    if not isinstance(required, list) or not all(each in fields for each in required):
        raise PrivcalcError(
            f"{name}: is of a later version, whose fields {str(required)[:200]} must be known to read it"
        )
    different = sorted(set(fields) - set(value)) if more else sorted(set(value) ^ set(fields))
    if different:
        raise PrivcalcError(f"{name}: must have exactly the fields {', '.join(fields)}; not so {different}")
    for key, field in fields.items():
        found = value[key]
        if type(found) not in field.kind or (field.among and found not in field.among):
            allowed = [kind.__name__ for kind in field.kind] if not field.among else map(repr, field.among)
            raise PrivcalcError(f"{name}: {key} = {str(found)[:500]}: must be {' or '.join(allowed)}")
    return dict(value)


def mechanism_to_json(mechanism: Mechanism) -> Json:
    """Describe a mechanism.

    Raises:
        PrivcalcError: if it holds a function, which cannot be written down.

    Example:
        >>> import privcalc as pc
        >>> canonical(mechanism_to_json(pc.PoissonSampled(pc.Gaussian(1.0), 0.01)))
        '{"kind":"PoissonSampled","mechanism":{"kind":"Gaussian","noise_multiplier":1.0},"rate":0.01}'
    """
    kind = mechanism.kind
    if kind is None or KINDS[kind] is not type(mechanism):
        raise PrivcalcError(
            f"mechanism = {mechanism!r}: cannot be written down, its class has no name in JSON of its own"
        )
    return _described(kind, mechanism)


def argument_of(field: dataclasses.Field[Any]) -> str:
    """What a field is called in JSON."""
    return str(field.metadata.get("argument", _ARGUMENTS.get(field.name, field.name)))


def _described(kind: str, value: Any) -> Json:
    """Its kind and its fields, not later ones that have their default: older texts stay as they are."""
    fields = {
        argument_of(field): getattr(value, field.name)
        for field in dataclasses.fields(value)
        if "since" not in field.metadata or getattr(value, field.name) != field.default
    }
    return {"kind": kind, **{name: _encode(v) for name, v in fields.items()}}


def mechanism_from_json(value: object) -> Mechanism:
    """The mechanism that was described.

    Raises:
        NotConfirmed: if the kind is unknown here, which contradicts nothing.
        PrivcalcError: if an argument is missing, unknown or out of range.

    Example:
        >>> mechanism_from_json({"kind": "Laplace", "scale": 2})
        Laplace(scale=2.0)
    """
    found = _made(value)
    if not isinstance(found, Mechanism):
        raise PrivcalcError(f"mechanism = {str(value)[:200]}: must be a mechanism, not a part of one")
    return found


def _made(value: object) -> object:
    """The object that JSON describes."""
    if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
        raise PrivcalcError(f"mechanism = {value!r}: must be an object with a kind")
    kinds: Mapping[str, type[Mechanism]] = KINDS if (kind := value["kind"]) in {*KINDS, *PARTS} else known()
    if kind not in kinds and kind not in PARTS:
        raise NotConfirmed(
            f"kind = {kind!r}: must be one of {', '.join(sorted([*kinds, *PARTS]))}; one of your own is known in a "
            "process that imported it, and Certificate.verify(seconds=math.inf) checks in this one"
        )
    try:
        arguments: Json = {name: _decode(name, item) for name, item in value.items() if name != "kind"}
        found: object = kinds[kind].of_json(**arguments) if kind in kinds else PARTS[kind](**arguments)
    except PrivcalcError:
        raise
    except (TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise PrivcalcError(f"mechanism = {str(value)[:200]}: {error}") from error
    return found


def run_to_json(run: Mechanism | Run) -> list[Json]:
    """Describe a run.

    Example:
        >>> import privcalc as pc
        >>> canonical(run_to_json(pc.Laplace(2.0) * 3))
        '[{"count":3,"mechanism":{"kind":"Laplace","scale":2.0}}]'
    """
    return [{"mechanism": mechanism_to_json(mechanism), "count": count} for mechanism, count in run.run.entries]


def run_from_json(value: object) -> Run:
    """The run that was described.

    Raises:
        PrivcalcError: as :func:`mechanism_from_json`, and for anything but a list of mechanisms with counts.
    """
    if not isinstance(value, list) or not all(
        isinstance(e, Mapping) and set(e) == {"mechanism", "count"} for e in value
    ):
        raise PrivcalcError(f"run = {str(value)[:200]}: must be a list of objects with exactly mechanism and count")
    return Run(tuple((mechanism_from_json(entry["mechanism"]), whole("count", entry["count"])) for entry in value))


def _encode(value: object) -> object:
    if isinstance(value, Mechanism):
        return mechanism_to_json(value)
    if type(value).__name__ in PARTS:
        return _described(type(value).__name__, value)
    if isinstance(value, (Mechanism, Run)):
        return run_to_json(value.run)
    if isinstance(value, Relation):
        return str(value)
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    return value


def _decode(name: str, value: object) -> object:
    if name == "relation":
        return relation_from_json(value)
    if name == "run":
        return run_from_json(value)
    if isinstance(value, Mapping):
        return _made(value)
    if isinstance(value, list):
        return [_decode("", item) for item in value]
    return math.inf if value == "inf" else value


def relation_from_json(value: object) -> Relation:
    """The relation of that name."""
    try:
        return Relation(value)
    except ValueError as error:
        raise PrivcalcError(f"relation = {value!r}: must be one of {', '.join(map(str, Relation))}") from error


def interval(value: Enclosure) -> Json:
    """JSON has no ∞: null."""
    return {
        "lower": value.lower if math.isfinite(value.lower) else None,
        "upper": value.upper if math.isfinite(value.upper) else None,
        "route": value.route,
    }


def enclosure(value: Any, relation: Relation, safe: Literal["lower", "upper"] = "upper") -> Enclosure:
    """An enclosure that was written down.

    Raises:
        PrivcalcError: if it is none.
    """
    if not isinstance(value, dict) or set(value) != {"lower", "upper", "route"}:
        raise PrivcalcError(f"{str(value)[:200]}: must have exactly lower, upper and route")
    try:
        low, high = (math.inf if value[end] is None else errors.epsilon(end, value[end]) for end in ("lower", "upper"))
        return Enclosure(low, high, relation, str(value["route"]), safe)
    except ArithmeticError as error:
        raise PrivcalcError(f"{value!r}: must have lower <= upper") from error


def parts(mechanism: Mechanism) -> list[Mechanism]:
    """The mechanisms that a mechanism is made of."""
    found: list[Mechanism] = []
    for field in dataclasses.fields(mechanism):  # type: ignore[arg-type]
        value = getattr(mechanism, field.name)
        if isinstance(value, Mechanism):
            found.append(value)
        elif isinstance(value, Run):
            found.extend(part for part, _ in value.entries)
        elif isinstance(value, tuple):
            found.extend(part for part in value if isinstance(part, Mechanism))
    return found


def read_json(path: Path) -> Json:
    """The one JSON object of a file, as :func:`parse` reads it."""
    return parse(read_whole(path, limit=DOCUMENT), f"path = {str(path)!r}")


TARGETS = ("epsilon", "delta", "mu", "rho", "advantage", "alpha", "beta")


def target_to_json(target: Guarantee) -> Json:
    """Only what was given."""
    values = {name: getattr(target, name) for name in TARGETS}
    return {name: float(value) for name, value in values.items() if value is not None}


def target_from_json(value: Json, relation: Relation) -> Guarantee:
    """The guarantee of a relation."""
    if not isinstance(value, Mapping) or not set(value) <= set(TARGETS):
        raise PrivcalcError(f"target = {value!r}: must be some of {', '.join(TARGETS)}")
    return Guarantee(relation=relation, **{name: errors.epsilon(name, number) for name, number in value.items()})
