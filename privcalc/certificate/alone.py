"""A certificate checked by ball arithmetic alone: with python-flint, the standard library, and nothing that computes.

    table()  ->  JSON  ->  enter(), where no mechanism is  ->  confirm(text, …)  ->  what a page shows

The check is that of ``privcalc verify`` (``proved.py``), without the engine: mechanisms are only described, by a table
that is made of their classes. What is left out, the answer says. The page is made by ``python -m docs.verifier``.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, ClassVar

from privcalc.certificate.consistency import check, contradicted
from privcalc.certificate.proved import decided, within
from privcalc.certificate.schema import FORMAT, READ, UNDECIDED
from privcalc.certificate.text import facts, headline, meaning, plain, unit, warnings
from privcalc.errors import Contradiction, NotConfirmed, PrivcalcError
from privcalc.files import DOCUMENT
from privcalc.log.lines import Position, entries
from privcalc.proof import Proof
from privcalc.run import PARTS, Mechanism, Shown, known
from privcalc.serial import Json, argument_of, canonical, parse

__all__ = ["confirm", "enter", "table"]

WORDS = ("page", "unit", "needs", "draws", "scheme")


def table() -> Json:
    """What the library's classes of mechanisms, and of their parts, say; as JSON."""
    ours = {name: kind for name, kind in known().items() if kind.__module__.startswith("privcalc.")}
    return {
        name: {
            "said": _said(kind) if name in ours else None,
            "fields": [
                [each.name, argument_of(each), each.default if "since" in each.metadata else None]
                for each in dataclasses.fields(kind)
            ],
        }
        for name, kind in sorted({**ours, **PARTS}.items())
    }


def _said(kind: type[Mechanism]) -> Json:
    return {word: getattr(kind, word) for word in WORDS} | {"__doc__": meaning(kind)}


class Described:
    """A mechanism that was described: what it was called with, and no pair of distributions."""

    arguments: ClassVar[Mapping[str, str]]

    @classmethod
    def of_json(cls, **arguments: Any) -> Any:
        """With what was given, by the names of its fields."""
        return cls(**{cls.arguments.get(name, name): value for name, value in arguments.items()})

    def pairs(self, relation: object) -> Any:
        """Refuse: nothing is computed here."""
        raise NotConfirmed(f"mechanism = {self}: is only described here")


def _frozen(value: object) -> object:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _freeze(made: Any) -> None:
    """Lists of JSON are tuples, so that what holds them is a value."""
    for each in dataclasses.fields(made):
        object.__setattr__(made, each.name, _frozen(getattr(made, each.name)))


def enter(said: Mapping[str, Any]) -> None:
    """Enter descriptions in the registry.

    Args:
        said: what :func:`table` gave, in a process where the library's own classes are not.
    """
    for name, kind in said.items():
        fields: list[Any] = []
        for own, argument, since in kind["fields"]:
            told = {"argument": argument} | ({} if since is None else {"since": True})
            fields.append((own, Any, dataclasses.field(metadata=told, **({} if since is None else {"default": since}))))
        space: Json = {"__post_init__": _freeze}
        if (words := kind["said"]) is None:
            PARTS[name] = dataclasses.make_dataclass(name, fields, namespace=space, frozen=True)
        else:
            space |= {**words, "kind": name, "needs": tuple(words["needs"])}
            space["arguments"] = {argument: own for own, argument, _ in kind["fields"]}
            dataclasses.make_dataclass(name, fields, bases=(Described, Shown), namespace=space, frozen=True, repr=False)


def _checked(
    document: Mapping[str, Any], ledgers: list[str], seconds: float, watch: Callable[[Proof], None]
) -> tuple[str, ...]:
    """As ``verify.verify``, without what is computed."""
    progress = within(seconds)
    check(document)
    with contradicted():
        whole = [_whole(document, each.splitlines(keepends=True)) for each in ledgers]
        return decided(document, whole, progress, watch=watch)


def _whole(document: Mapping[str, Any], lines: list[str]) -> str:
    """What the hashes of a ledger's lines show, without reading what was charged."""
    position = Position()
    for _ in entries((line.encode() for line in lines), "ledger", position):
        pass
    told = {"hash": position.hash, "lines": position.lines, "torn": position.torn}
    if not any(told.items() <= named.items() for named in document["ledgers"]):
        raise PrivcalcError(
            f"ledger: has {position.lines} lines and the hash {position.hash}, and the certificate names none such"
        )
    return "the ledger is whole, and the one that the certificate names; what it says was not read here"


def confirm(text: str, ledgers: list[str], seconds: float, progress: Callable[[str], None]) -> str:
    """What a page shows of a certificate.

    Args:
        text: the certificate's.
        ledgers: the texts of its ledgers.
        seconds: how long it may take; no proof is begun later.
        progress: called with a line of JSON for each proof.

    Returns:
        A JSON object: ``status``, ``lines`` (the verdict first), and of a certificate that could be read what it says.
    """
    start, shown = time.monotonic(), Json()

    def watch(proof: Proof) -> None:
        ends = {name: getattr(proof, name) for name in ("verdict", "epsilon", "delta", "lower", "upper", "seconds")}
        progress(canonical({**ends, "working": list(proof.working)}))

    try:
        if len(text.encode()) > DOCUMENT:
            raise PrivcalcError(f"the certificate has more than {DOCUMENT:,} bytes")
        document = parse(text, "the certificate")
        if document.get("format") != FORMAT or document.get("version") not in READ:
            raise PrivcalcError(f"the text is no {FORMAT} of version {' or '.join(map(str, READ))}")
        shown = {"sha256": sha256(canonical(document).encode()).hexdigest()}
        found = [*_checked(document, ledgers, seconds, watch)]
        status = found[0].partition(":")[0].lower()
        shown |= {
            "claim": headline(document),
            "unit": unit(document),
            "curve": [[p["delta"], p["epsilon"]["lower"], p["epsilon"]["upper"]] for p in document["curve"]],
            "warnings": [*warnings(document)],
            "facts": [list(each) for each in facts(document)],
        }
    except Contradiction as error:
        status, found = "wrong", [f"WRONG: {error}"]
    except NotConfirmed as error:
        status, found = "undecided", [f"{UNDECIDED}: not confirmed: {error}"]
    except PrivcalcError as error:
        status, found = "unreadable", [str(error)]
    took = round(time.monotonic() - start, 1)
    return canonical({"status": status, "lines": [*map(plain, found)], "seconds": took, **shown})
