"""A signature: a statement about one file, in a file beside it, signed with Ed25519 (``proofs/signatures.md``)."""

from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from privcalc.certificate import revoked
from privcalc.certificate.certificate import Certificate
from privcalc.certificate.schema import changed
from privcalc.certificate.text import plain
from privcalc.errors import Contradiction, PrivcalcError
from privcalc.files import LEDGER, named, regular, write_whole
from privcalc.ledger.book import Book
from privcalc.log.file import read
from privcalc.serial import Field, Json, canonical, check_fields, indented, read_json
from privcalc.signatures.keys import fingerprint, private_key, public_key

__all__ = ["Signature", "check", "revoke", "revokes", "sign"]

FORMAT, VERSION, ALGORITHM = "privcalc signature", 1, "Ed25519"

LONGEST = 500
"""Most characters of a reason."""

FIELDS = {
    "format": Field((str,), among=(FORMAT,)),
    "version": Field((int,), among=(VERSION,)),
    "algorithm": Field((str,), "the one there is; nothing is chosen by it", among=(ALGORITHM,)),
    "key": Field((str,), "fingerprint of the public key, which is signed with the rest"),
    "of": Field((str,), among=("certificate", "ledger")),
    "hash": Field((str,), "of the certificate's canonical text, or of the ledger's last line"),
    "lines": Field((int, NoneType), "of the ledger"),
    "closed": Field((bool, NoneType), "whether the ledger was"),
    "time": Field((str,), "when the signer says it was"),
    "signature": Field((str,), "base64 of 64 bytes"),
}


@dataclass(frozen=True)
class Signature:
    """A signed statement about one file; made by :func:`sign`.

    Attributes:
        document: the JSON object.
    """

    document: Mapping[str, Any]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it, all or nothing."""
        write_whole(path, indented(dict(self.document)))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Signature:
        """Read it; only its form is checked.

        Raises:
            PrivcalcError: if it is no signature.
        """
        return cls(check_fields("signature", read_json(regular(path, name="signature")), FIELDS))

    @property
    def signed(self) -> bytes:
        """The bytes that were signed: what they are for, which makes them no others, and all but the signature."""
        said = {name: value for name, value in self.document.items() if name != "signature"}
        return f"{said['format']}, version {said['version']}\n{canonical(said)}".encode()


def sign(source: str | os.PathLike[str], key: str | os.PathLike[str], *, passphrase: str | None = None) -> Signature:
    """Sign a certificate or a ledger as it is now.

    Args:
        source: the file. A ledger may be open; what is added to it later is not signed.
        key: file of the private key.
        passphrase: that of an encrypted one.

    Raises:
        PrivcalcError: if the source is neither, does not fit its hashes, or the key cannot be used.
        OSError: if a file cannot be read.

    Example:
        >>> import tempfile
        >>> import privcalc as pc
        >>> from privcalc.signatures import generate
        >>> folder = tempfile.mkdtemp()
        >>> public = generate(folder + "/key")
        >>> pc.certify(pc.Gaussian(noise_multiplier=20.0) * 206, delta=1e-5).save(folder + "/certificate.json")
        >>> sign(folder + "/certificate.json", folder + "/key").save(folder + "/certificate.json.sig")
        >>> check(folder + "/certificate.json", folder + "/certificate.json.sig", public)[0]
        'signed, with the key that was given: all of this certificate'
    """
    return _signed({"format": FORMAT, "version": VERSION, **subject(source)}, key, passphrase)


def revoke(
    source: str | os.PathLike[str] | Certificate,
    key: str | os.PathLike[str],
    *,
    reason: str,
    passphrase: str | None = None,
) -> Signature:
    """Revoke a certificate: a signed statement that it no longer holds, and why.

    Args:
        source: the certificate, or its file.
        key: file of the private key.
        reason: why, in 1 to 500 printable characters.
        passphrase: that of an encrypted key.

    Raises:
        PrivcalcError: if it is no certificate, or was changed; the key cannot be used; or no reason is given.
        OSError: if a file cannot be read.
    """
    document = (source if isinstance(source, Certificate) else Certificate.load(source)).document
    if changed(document):
        raise PrivcalcError("source: was changed after it was made, and is no certificate that could be revoked")
    if not reason.strip() or len(reason) > LONGEST or not reason.isprintable():
        raise PrivcalcError(f"reason = {reason[:200]!r}: must be 1 to {LONGEST} printable characters")
    said = {"format": revoked.FORMAT, "version": revoked.VERSION, "hash": document["hash"], "reason": reason}
    return _signed(said, key, passphrase)


def revokes(statement: Mapping[str, Any], key: str | os.PathLike[str]) -> bool:
    """Whether the holder of a key made a statement of revocation; False if it says that it is another key's.

    Raises:
        Contradiction: if it names this key, and the signature is not right.
        PrivcalcError: if it is none, or the key is none.
    """
    said = check_fields("revoked", dict(statement), revoked.FIELDS)
    trusted = public_key(key)
    if said["key"] != fingerprint(trusted):
        return False
    _authentic(Signature(said), trusted)
    return True


def _signed(said: Json, key: str | os.PathLike[str], passphrase: str | None) -> Signature:
    secret = private_key(key, passphrase=passphrase)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    statement = {**said, "algorithm": ALGORITHM, "key": fingerprint(secret.public_key()), "time": now}
    made = secret.sign(Signature(statement).signed)
    return Signature({**statement, "signature": base64.b64encode(made).decode()})


def _authentic(found: Signature, trusted: Ed25519PublicKey) -> None:
    """Raise unless the key signed it."""
    try:
        trusted.verify(_bytes(found.document["signature"]), found.signed)
    except InvalidSignature as error:
        raise Contradiction("signature: is wrong: it, or what it says, was changed, or another key made it") from error


def check(
    source: str | os.PathLike[str] | Certificate,
    signature: str | os.PathLike[str] | Signature,
    key: str | os.PathLike[str],
) -> tuple[str, ...]:
    """Check that the holder of a key signed a file as it is, byte for byte of what it says.

    Args:
        source: the certificate, or the file of one or of a ledger.
        signature: the signature, or its file.
        key: file of the public key that *you* trust; the one that a signature names is only compared with it.

    Returns:
        What was confirmed, line by line.

    Raises:
        Contradiction: if the signature is not of this key, of this file, or not right.
        PrivcalcError: if signature or key are none.
        OSError: if a file cannot be read.
    """
    trusted = public_key(key)
    found = signature if isinstance(signature, Signature) else Signature.load(signature)
    said = check_fields("signature", found.document, FIELDS)
    if said["key"] != (own := fingerprint(trusted)):
        raise Contradiction(f"signature: is of the key {plain(said['key'][:100])}, not of {own}, which was given")
    _authentic(found, trusted)
    now = subject(source)
    if now["of"] == said["of"] == "ledger" and now["lines"] != said["lines"]:
        raise Contradiction(f"signature: is of the ledger's first {said['lines']} lines, and it has {now['lines']}")
    if different := [name for name, value in now.items() if said[name] != value]:
        raise Contradiction(
            f"signature: is of another {said['of']}, or of this one as it was before ({', '.join(different)})"
        )
    whole = (
        "certificate"
        if now["of"] == "certificate"
        else f"ledger, {now['lines']} lines, {'' if now['closed'] else 'not '}closed"
    )
    return (
        f"signed, with the key that was given: all of this {whole}",
        f"the signer says that this was at {plain(said['time'])}",
    )


def subject(source: str | os.PathLike[str] | Certificate) -> Json:
    """Return the statement about a file that is signed.

    Raises:
        PrivcalcError: if it is no certificate and no ledger, does not fit its hashes, or ends with half a line.
    """
    if not isinstance(source, Certificate):
        with regular(named(source, name="source")).open("rb") as file:
            begins = file.read(len(LEDGER))
        if begins == LEDGER:
            return _of_ledger(Path(source))
        source = Certificate.load(source)
    text = canonical(dict(source.document))
    return {"of": "certificate", "hash": hashlib.sha256(text.encode()).hexdigest(), "lines": None, "closed": None}


def _of_ledger(path: Path) -> Json:
    with read(path) as (lines, position):
        book = Book.read(lines)
    if position.torn:
        raise PrivcalcError(
            f"path = {str(path)!r}: ends with half a line, which is cut off when the ledger is opened again"
        )
    return {"of": "ledger", "hash": position.hash, "lines": position.lines, "closed": book.closed}


def _bytes(text: str) -> bytes:
    """Return the bytes of their only base64 text.

    Raises:
        Contradiction: if it is another text.
    """
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 64 or base64.b64encode(raw).decode() != text:
        raise Contradiction("signature: is not the base64 of 64 bytes")
    return raw
