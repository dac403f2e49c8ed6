"""JSON Schema (draft 2020-12) of certificates and of ledgers' lines, made of the fields by which they are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Any, Literal

from privcalc.certificate.assumed import LISTING, NEEDED, OF
from privcalc.certificate.schema import BUDGET, CONFIRMED, LEDGER, NUMBERS, RELEASE, REPLAYED, SCHEMA, VERSION
from privcalc.errors import one_of
from privcalc.ledger.assumptions import FIELDS
from privcalc.ledger.terms import LATER, OPEN
from privcalc.serial import REQUIRED, Field, Json

__all__ = ["json_schema"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TYPES = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
    NoneType: "null",
}

HASH: Json = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
TEXTS: Json = {"type": "array", "items": {"type": "string"}}
MECHANISM: Json = {"type": "object", "properties": {"kind": {"type": "string"}}, "required": ["kind"]}
COUNT: Json = {"type": "integer", "minimum": 1}
RUN: Json = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"mechanism": MECHANISM, "count": COUNT},
        "required": ["mechanism", "count"],
    },
}
END: Json = {"type": ["number", "null"]}
ENCLOSURE: Json = {
    **{"type": "object", "description": "two proved ends (null is ∞), and the route", "additionalProperties": False},
    "properties": {"lower": END, "upper": END, "route": {"type": "string"}},
    "required": ["lower", "upper", "route"],
}


def json_schema(of: Literal["certificate", "ledger"]) -> Json:
    """The JSON Schema, draft 2020-12, of what this version writes: of a certificate, or of each line of a ledger.

    It tells the form only: whether hashes fit, what follows from what, and the numbers are what ``verify`` checks.
    Fields of a later version are allowed, as they are when it is read.

    Args:
        of: "certificate", or "ledger": one line of it.

    Raises:
        PrivcalcError: if it is none of them.

    Example:
        >>> made = json_schema("certificate")
        >>> made["properties"]["status"]["enum"], made["properties"]["guarantee"]["required"]
        (['open', 'closed'], ['epsilon', 'delta'])
    """
    one_of("of", of, "certificate", "ledger")
    return {"$schema": DIALECT, "title": f"privcalc {of}, version {VERSION}"} | (
        _certificate() if of == "certificate" else _line()
    )


def _certificate() -> Json:
    points = {name: _object({inner: ENCLOSURE, at: {"type": "number"}}) for name, (inner, at) in NUMBERS.items()}
    several = {
        name: {"type": "array", "items": point} if SCHEMA[name].kind == (list,) else point
        for name, point in points.items()
    }
    listing = {"declared": _texts_by_name(), "needed": {"type": "array", "items": _of(NEEDED | OF, lacks=OF)}}
    budget = {"budget": _of(BUDGET), "hash": HASH, "lines": COUNT} | dict.fromkeys(("labels", "warnings"), TEXTS)
    parts: Json = {"type": "object", "if": {"properties": {"version": {"const": VERSION}}}, "then": {"$ref": "#"}}
    inner: dict[str, Json] = {
        **several,
        "version": {"const": VERSION},
        "advantage": ENCLOSURE,
        **dict.fromkeys(("run", "declared"), RUN),
        "recorded": {**RUN, "type": ["array", "null"]},
        "not_accounted": TEXTS,
        "proofs": TEXTS,
        "hash": HASH,
        "assumptions": _of(LISTING, listing),
        "releases": {
            "type": "array",
            "items": _of(RELEASE, {"mechanism": MECHANISM, "count": COUNT, "provenance": _of(FIELDS, lacks=("page",))}),
        },
        "ledgers": {
            "type": "array",
            "items": _of(LEDGER, budget | {"start": {"type": "array", "items": HASH}}, lacks=_LACKS),
        },
        "confirmed": {"type": "array", "items": _of(CONFIRMED, {"pages": TEXTS})},
        "parts": {"type": "array", "items": parts},
        "replayed": {"type": "array", "minItems": 1, "items": _of(REPLAYED, dict.fromkeys(("added", "found"), TEXTS))},
    }
    return _of({**SCHEMA, "replayed": Field((list,), "what was replayed, and its outcome")}, inner, lacks=("replayed",))


_LACKS = ("labels", "warnings", "start", "persons", "budget")
"""What is said of a ledger only where there is something to say."""


def _line() -> Json:
    inner: dict[str, Json] = {
        "mechanism": MECHANISM,
        "count": COUNT,
        "provenance": _of(FIELDS, lacks=("page",)),
        "words": _texts_by_name(),
    }
    inner["certificates"] = {"type": "array", "items": HASH, "minItems": 1}
    opened = {"version": {"const": VERSION}, "plan": {**RUN, "type": ["array", "null"]}, "not_accounted": TEXTS}
    kinds = {"open": _of(OPEN, opened)} | {
        kind: _of(has, inner, lacks=("label", "certificates")) for kind, has in LATER.items()
    }
    known = [{"if": {"properties": {"type": {"const": kind}}}, "then": fields} for kind, fields in kinds.items()]
    later: Json = {
        "if": {"properties": {"type": {"enum": list(kinds)}}},
        "else": {"properties": {"optional": {"const": True}}, "required": ["optional"]},
    }
    entry: Json = {
        "type": "object",
        "properties": {"type": {"type": "string"}},
        "required": ["type"],
        "allOf": [*known, later],
    }
    return {**_object({"n": COUNT, "entry": entry, "hash": HASH}), "additionalProperties": False}


def _of(fields: Mapping[str, Field], inner: Mapping[str, Json] | None = None, *, lacks: Iterable[str] = ()) -> Json:
    """The schema of an object with these fields.

    Args:
        fields: by name.
        inner: of some of them what more is known; of others, that do not occur, nothing is said.
        lacks: those that may be missing.
    """
    made = {name: _field(field) | (inner or {}).get(name, {}) for name, field in fields.items()}
    found = _object(made, set(fields) - set(lacks))
    found["properties"][REQUIRED] = {"type": "array", "items": {"enum": list(fields)}}
    return found


def _field(field: Field) -> Json:
    kinds = [TYPES[kind] for kind in field.kind]
    said = {"description": field.says} if field.says else {}
    return {"type": kinds[0] if len(kinds) == 1 else kinds, **said} | (
        {"enum": list(field.among)} if field.among else {}
    )


def _object(properties: Mapping[str, Any], required: Iterable[str] | None = None) -> Json:
    needed = set(properties if required is None else required)
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name in needed],
    }


def _texts_by_name() -> Json:
    return {"type": "object", "additionalProperties": {"type": "string"}}
