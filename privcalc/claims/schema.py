"""What a claim has: its fields, what each of them says, and a check of all of them; nothing is computed here.

A parameter is ``{"value": …, "sources": [{"quote", "address"}, …]}``. Its value is ``"not stated"``, without sources;
or what the sources say; or, where they leave several, a list of these. What is not known here is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privcalc import errors
from privcalc.errors import PrivcalcError
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
    "sampler": Field((str,), "how batches are drawn, by a name of the table below"),
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
        privcalc.errors.PrivcalcError: claim: must have exactly the fields format, version, name, unit, relation,
        mechanism, sampler, sample_rate, batch_size, largest_batch, dataset_size, noise_multiplier, steps, epochs,
        epsilon, delta, basis, assumptions, evidence; not so ['assumptions', 'basis', 'batch_size', 'dataset_size',
        'delta', 'epochs', 'epsilon', 'evidence', 'largest_batch', 'mechanism', 'name', 'noise_multiplier',
        'relation', 'sample_rate', 'sampler', 'steps', 'unit', 'version']
    """

    document: Mapping[str, Any]

    def __post_init__(self) -> None:
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
            path: of a JSON file.

        Raises:
            PrivcalcError: if it holds no claim.
        """
        return cls(read_json(Path(path)))

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
