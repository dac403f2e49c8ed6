"""What a claim has: its fields, what each of them says, and a check of all of them; nothing is computed here.

A parameter is ``{"value": …, "sources": [{"quote", "address"}, …]}``. Its value is ``"not stated"``, without sources;
or what the sources say; or, where they leave several, a list of these. What is not known here is refused.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.files import DOCUMENT, read_whole
from privcalc.mechanisms.sampler import Claimed, batched
from privcalc.relation import Relation
from privcalc.serial import Field, Json, check_fields, read_json

__all__ = ["Claim"]

FORMAT, VERSION = "privcalc claim", 1

OPEN = "not stated"

FULL = Claimed("full batch", "all records in every step")


def samplers() -> dict[str, Claimed]:
    """Every sampler that a claim may name; each class says what claims call it."""
    found = [FULL, *(kind.claim for kind in batched() if kind.claim)]
    return {one.name: one for one in sorted(found, key=lambda one: one.name.lower())}


PARAMETERS = {
    "unit": Field((str,), "what one record is, in words"),
    "relation": Field((str,), "the neighbouring relation", tuple(map(str, Relation))),
    "mechanism": Field((str,), "what runs on each batch: `Gaussian`, a clipped sum with noise", ("Gaussian",)),
    "sampler": Field((str,), "how batches are drawn"),
    "sample_rate": Field((float, int), "probability with which a record is in a batch, in (0, 1]"),
    "batch_size": Field(
        (int,), "records in a noisy sum, of all devices and pieces; of Poisson samples the expected number"
    ),
    "largest_batch": Field((int,), "records that a truncated Poisson sample has at most"),
    "dataset_size": Field((int,), "records that batches are drawn from: after any split"),
    "noise_multiplier": Field(
        (float, int), "standard deviation of the noise on the sum / clip norm, under every relation"
    ),
    "steps": Field((int,), "noisy sums that were released, in all"),
    "epochs": Field((int,), "passes over the data set"),
    "epsilon": Field((float, int), "the published ε"),
    "delta": Field((float, int), "its δ"),
    "basis": Field((str,), "what kind of accounting gave ε, in words"),
}
"""The parameters of a claim; ``docs/guides/claims.md`` prints them, and the fields around them."""

SCHEMA = {
    "format": Field((str,), '`"privcalc claim"`', (FORMAT,)),
    "version": Field((int,), "1", (VERSION,)),
    "name": Field((str,), "what is claimed to be private, in words"),
    **{name: Field((dict,), field.says) for name, field in PARAMETERS.items()},
    "assumptions": Field((list,), "texts: what the claim takes for granted, and what was read into it here"),
    "evidence": Field((list,), "texts: what supports it besides an accountant (code, tests, attacks), and where"),
}
"""All fields of a claim."""

STATED = {"value": Field((str, float, int, list)), "sources": Field((list,))}
SOURCE = {"quote": Field((str,)), "address": Field((str,))}

SINGLE = ("unit", "mechanism", "epsilon", "delta", "basis")
"""Parameters that have no alternatives: another ε is another claim."""

RANGES: dict[str, Callable[[str, Any], object]] = {
    "sample_rate": errors.rate,
    "noise_multiplier": errors.scale,
    "epsilon": errors.epsilon,
    "delta": errors.delta,
    **{
        name: lambda label, value: errors.count(label, value, least=1)
        for name in ("batch_size", "largest_batch", "dataset_size", "steps", "epochs")
    },
}


@dataclass(frozen=True)
class Claim:
    """A privacy claim: what was published, with the source of every parameter.

    Attributes:
        document: the JSON object, checked.

    Raises:
        PrivcalcError: for a field that is missing, unknown or not of its kind; for a parameter without a source, or
            with one though it is not stated.

    Example:
        >>> Claim({"format": "privcalc claim"})
        Traceback (most recent call last):
            ...
        privcalc.errors.PrivcalcError: claim: lacks version (1), name (what is claimed to be private, in words), unit
        (what one record is, in words), and 15 more; privcalc claim new FILE.toml writes them all, to be filled in
    """

    document: Mapping[str, Any]

    def __post_init__(self) -> None:
        _check_names(self.document)
        document = check_fields("claim", self.document, SCHEMA)
        for name, field in PARAMETERS.items():
            _check(name, field._replace(among=tuple(samplers())) if name == "sampler" else field, document[name])
        for name in ("assumptions", "evidence"):
            if not all(isinstance(text, str) for text in document[name]):
                raise PrivcalcError(f"claim: {name} = {document[name]!r}: must be a list of texts")
            for text in document[name]:
                _check_printable(name, text)
        _check_printable("name", document["name"])
        object.__setattr__(self, "document", document)

    @classmethod
    def load(cls, path: str | Path) -> Claim:
        """The claim of a file.

        Args:
            path: of a TOML file, whose name ends so, or of a JSON file.

        Raises:
            PrivcalcError: if it holds no claim.
        """
        if Path(path).suffix != ".toml":
            return cls(read_json(Path(path)))
        try:
            return cls(tomllib.loads(read_whole(path, limit=DOCUMENT).decode("utf-8")))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise PrivcalcError(f"path = {str(path)!r}: must be TOML: {error}") from error

    @classmethod
    def said(cls, **parameters: object) -> Claim:
        """A claim without sources, for a quick answer: what is not given is not stated; the mechanism is Gaussian.

        Example:
            >>> claim = Claim.said(epsilon=8.0, delta=1e-5, noise_multiplier=1.0)
            >>> claim.values("epsilon"), "steps" in claim.missing
            ((8.0,), True)
        """
        for name in parameters:
            errors.one_of("parameter", name, *PARAMETERS)
        parameters = {"mechanism": "Gaussian", **parameters}
        source = [{"quote": "said by who asks", "address": "https://unsourced.invalid/"}]
        stated = {
            name: {"value": parameters.get(name, OPEN), "sources": source * (name in parameters)} for name in PARAMETERS
        }
        around = {"format": FORMAT, "version": VERSION, "name": "what was said", "assumptions": [], "evidence": []}
        return cls({**around, **stated})

    @property
    def name(self) -> str:
        """What is claimed to be private."""
        return str(self.document["name"])

    def values(self, name: str) -> tuple[Any, ...]:
        """What a parameter may be; nothing if it is not stated.

        Args:
            name: one of the parameters.
        """
        value = self.document[name]["value"]
        return () if value == OPEN else tuple(value) if isinstance(value, list) else (value,)

    @property
    def missing(self) -> list[str]:
        """The parameters that are not stated."""
        return [name for name in PARAMETERS if not self.values(name)]


LISTED = 3
"""Most missing fields that a message explains."""


def _check_names(document: object) -> None:
    """Say which fields are missing, and what they say, and which no claim has."""
    if not isinstance(document, Mapping):
        raise PrivcalcError(f"claim = {str(document)[:200]}: must be an object")
    wrong = [f"has {name!r}, which no claim has" for name in document if name not in SCHEMA]
    lacking = [f"{name} ({field.says})" for name, field in SCHEMA.items() if name not in document]
    if lacking:
        more = f", and {len(lacking) - LISTED} more" if len(lacking) > LISTED else ""
        wrong.append(f"lacks {', '.join(lacking[:LISTED])}{more}".replace("`", "").replace('"', ""))
    if wrong:
        raise PrivcalcError(f"claim: {', '.join(wrong)}; privcalc claim new FILE.toml writes them all, to be filled in")


def template(name: str, given: Mapping[str, tuple[Any, str, str]]) -> str:
    """A claim as TOML, with comments: what is given, and all else as not stated.

    Args:
        name: what is claimed to be private.
        given: by the name of the parameter its value, the words that say so, and their address.

    Example:
        >>> Claim(tomllib.loads(template("a model", {}))).missing == list(PARAMETERS)
        True
    """
    lines = [
        "# A published privacy claim. Write down what the sources say, as they say it. What they do not say stays",
        f'# "{OPEN}", with sources = []: a guess makes the verdict worthless. A value has at least one source:',
        '# sources = [{ quote = "the words that say so", address = "https://where.they/stand" }]',
        "# Where sources leave several values: value = [100, 128]. Then: privcalc claim check FILE",
        "",
        f'format = "{FORMAT}"',
        f"version = {VERSION}",
        f"name = {_toml(name)}  # {SCHEMA['name'].says}",
        *(f"{one} = []  # {SCHEMA[one].says}" for one in ("assumptions", "evidence")),
    ]
    for key, field in PARAMETERS.items():
        among = tuple(samplers()) if key == "sampler" else field.among
        value, quote, address = given.get(key, (OPEN, "", ""))
        source = f"{{ quote = {_toml(quote)}, address = {_toml(address)} }}" if key in given else ""
        words = f"{field.says}{': one of ' + ', '.join(map(str, among)) if among else ''}"
        lines += ["", f"# {words}", f"[{key}]", f"value = {_toml(value)}", f"sources = [{source}]"]
    return "\n".join((*lines, ""))


def _toml(value: object) -> str:
    """A text or a number; TOML writes them as JSON does."""
    return json.dumps(value, ensure_ascii=False)


def _check(name: str, field: Field, stated: object) -> None:
    """Check one parameter against its field."""
    found = check_fields(f"claim: {name}", stated, STATED)
    value = found["value"]
    for source in found["sources"]:
        _check_source(name, source)
    if (value == OPEN) == bool(found["sources"]):
        wanted = "must be []" if value == OPEN else f"must quote what says so, or the value be {OPEN!r}"
        raise PrivcalcError(f"claim: {name}: sources = {found['sources']!r}: {wanted}")
    if value == OPEN:
        return
    several = isinstance(value, list)
    if several and (name in SINGLE or len(value) < 2 or len({str(each) for each in value}) < len(value)):
        wanted = "one value" if name in SINGLE else "one value, or a list of two or more different ones"
        raise PrivcalcError(f"claim: {name} = {value!r}: must be {wanted}")
    for each in value if several else [value]:
        check_fields("claim", {name: each}, {name: field})
        _check_printable(name, each)
        if name in RANGES:
            RANGES[name](f"claim: {name}", each)


def _check_printable(name: str, text: object) -> None:
    """A text on one line, so that it cannot pose as part of a verdict."""
    if isinstance(text, str) and not (text.isprintable() and text.strip()):
        raise PrivcalcError(f"claim: {name} = {text!r}: must be printable characters, on one line")


def _check_source(name: str, source: object) -> None:
    """A quoted text, and where it stands."""
    found: Json = check_fields(f"claim: source of {name}", source, SOURCE)
    if not found["quote"].strip():
        raise PrivcalcError(f"claim: source of {name}: quote = {found['quote']!r}: must be the text that says so")
    for part in ("quote", "address"):
        _check_printable(f"source of {name}: {part}", found[part])
    if not found["address"].startswith(("https://", "http://")):
        raise PrivcalcError(
            f"claim: source of {name}: address = {found['address']!r}: must begin with https:// or http://"
        )
