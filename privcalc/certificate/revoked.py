"""Revoked certificates: signed statements, in a list beside the certificates or where its reader says.

What one shows, and what a missing one does not: ``proofs/signatures.md``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import portalocker

from privcalc.certificate.text import plain
from privcalc.errors import PrivcalcError
from privcalc.files import regular, write_whole
from privcalc.serial import Field, Json, check_fields, indented, read_json

__all__ = ["FIELDS", "FORMAT", "LIST", "VERSION", "add", "beside", "named_by", "told"]

FORMAT, VERSION, LIST = "privcalc revocation", 1, "revocations.json"
"""Of a statement; and the name of a list beside certificates."""

PATIENCE = 60.0
"""Seconds to wait for others: a list is written in milliseconds."""

FIELDS = {
    "format": Field((str,), among=(FORMAT,)),
    "version": Field((int,), among=(VERSION,)),
    "algorithm": Field((str,), among=("Ed25519",)),
    "key": Field((str,), "fingerprint of the public key, which is signed with the rest"),
    "hash": Field((str,), "that of the certificate"),
    "reason": Field((str,), "in the signer's words"),
    "time": Field((str,), "when the signer says it was"),
    "signature": Field((str,), "base64 of 64 bytes"),
}
"""What a statement says."""

WHOLE = {"format": Field((str,), among=(f"{FORMAT}s",)), "version": Field((int,), among=(VERSION,))}
WHOLE["revoked"] = Field((list,), "statements")


def beside(certificate: str | os.PathLike[str], given: str | os.PathLike[str] | None = None) -> list[Json]:
    """The statements of a list.

    Args:
        certificate: its file; a list beside it is read.
        given: another list, which must be there.

    Raises:
        PrivcalcError: if it is none; a list that cannot be read is never taken for an empty one.
        OSError: if it cannot be read.
    """
    path = Path(certificate).with_name(LIST) if given is None else Path(given)
    if given is None and not os.path.lexists(path):
        return []
    found = check_fields("revocations", read_json(regular(path, name="revocations")), WHOLE)
    return [check_fields("revoked", each, FIELDS) for each in found["revoked"]]


def add(certificate: str | os.PathLike[str], statement: Mapping[str, Any], given: str | None = None) -> Path:
    """Add a statement to a list, and return where that is; a file beside it, ``.lock``, keeps others out meanwhile."""
    path = Path(certificate).with_name(LIST) if given is None else Path(given)
    try:
        with portalocker.Lock(f"{path}.lock", timeout=PATIENCE):  # of two who add at once, none is lost
            known = beside(certificate, path if os.path.lexists(path) else None)
            document = {"format": f"{FORMAT}s", "version": VERSION, "revoked": [*known, dict(statement)]}
            write_whole(path, indented(document))
    except portalocker.LockException as error:
        raise PrivcalcError(f"revocations = {str(path)!r}: cannot be locked ({error}); nothing was added") from error
    return path


def named_by(document: Mapping[str, Any], statements: Iterable[Json]) -> list[Json]:
    """Those statements that are about a certificate, or a part of it."""
    hashes = {document["hash"], *(part["hash"] for part in document["parts"])}
    return [each for each in statements if each["hash"] in hashes]


def told(statement: Mapping[str, Any]) -> str:
    """Who revoked what, when and why, on their word."""
    what = f"the certificate {statement['hash'][:16]}…, on {statement['time']}, by the key {statement['key'][:16]}…"
    return plain(f"{what}: {statement['reason']}")
