"""Keys: a private one in a file that only its owner may read, encrypted or not, and a public one beside it."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from privcalc.errors import PrivcalcError
from privcalc.files import named, read_whole, whole

try:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
except ImportError as missing:  # pragma: no cover
    raise ImportError("privcalc.signatures needs the package cryptography: install privcalc[signatures]") from missing

__all__ = ["fingerprint", "generate", "private_key", "public_key"]

LARGEST = 1 << 14
"""Most bytes of a key's file."""

PRIME = 2**255 - 19
EIGHTH = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
WEAK = {0, 1, PRIME - 1, PRIME, PRIME + 1, EIGHTH, PRIME - EIGHTH}
"""Coordinates y, reduced or not, of Ed25519's points whose order divides 8.

Under such a key anybody makes signatures.
"""


def generate(path: str | os.PathLike[str], *, passphrase: str | None = None) -> Path:
    """Make a pair of keys: the private one in a new file that only its owner may read, the public one in ``path.pub``.

    Args:
        path: a file that is not there yet.
        passphrase: what the private key is encrypted with (PKCS #8: PBKDF2, AES-256); by default it is not.

    Returns:
        The path of the public key, which is to be given to those who verify, by a way that they trust.

    Raises:
        PrivcalcError: if one of the files is there: a key that is overwritten is lost; or the passphrase is empty.
        OSError: if they cannot be written.

    Example:
        >>> import tempfile
        >>> public = generate(tempfile.mkdtemp() + "/team")
        >>> public.name, oct(public.with_suffix("").stat().st_mode & 0o777)
        ('team.pub', '0o600')
    """
    private = named(path)
    public = private.with_name(private.name + ".pub")
    for there in (private, public):
        if os.path.lexists(there):
            raise PrivcalcError(f"path = {str(there)!r}: is there already, and a key that is overwritten is lost")
    if passphrase is not None and not passphrase:
        raise PrivcalcError("passphrase: must not be empty; None for a key that is not encrypted")
    key = Ed25519PrivateKey.generate()
    locked = (
        serialization.NoEncryption()
        if passphrase is None
        else serialization.BestAvailableEncryption(passphrase.encode())
    )
    formats = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    with whole(private, mode=0o600) as file:
        file.write(key.private_bytes(*formats, locked))
    with whole(public) as file:
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        file.write(key.public_key().public_bytes(serialization.Encoding.PEM, form))
    return public


def private_key(path: str | os.PathLike[str], *, passphrase: str | None = None) -> Ed25519PrivateKey:
    """Read a private key.

    Args:
        path: a PEM file that nobody but its owner may read or write.
        passphrase: that of an encrypted one.

    Raises:
        PrivcalcError: if others may read it, it is no Ed25519 key, or the passphrase is missing or wrong.
        OSError: if it cannot be read.
    """
    data = read_whole(path, limit=LARGEST)
    if b"PUBLIC KEY" in data:
        raise PrivcalcError(
            f"path = {os.fspath(path)!r}: is a public key; signing needs the private one, the file beside it"
        )
    if (mode := stat.S_IMODE(os.stat(path).st_mode)) & 0o077:
        raise PrivcalcError(f"path = {os.fspath(path)!r}: has mode {mode:04o}; must be its owner's alone (chmod 600)")
    try:
        key = serialization.load_pem_private_key(data, None if passphrase is None else passphrase.encode())
    except TypeError as error:
        said = (
            "is encrypted, and needs its passphrase" if passphrase is None else "is not encrypted: give no passphrase"
        )
        raise PrivcalcError(f"path = {os.fspath(path)!r}: {said}") from error
    except (ValueError, UnsupportedAlgorithm):  # without the cause, which may quote the file
        raise PrivcalcError(
            f"path = {os.fspath(path)!r}: is no private key in PEM, or the passphrase is wrong"
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise PrivcalcError(f"path = {os.fspath(path)!r}: must be an Ed25519 key, not {type(key).__name__.lstrip('_')}")
    return key


def encrypted(path: str | os.PathLike[str]) -> bool:
    """Whether a private key needs a passphrase."""
    return b"BEGIN ENCRYPTED PRIVATE KEY" in read_whole(path, limit=LARGEST)


def public_key(path: str | os.PathLike[str]) -> Ed25519PublicKey:
    """Read a public key.

    Raises:
        PrivcalcError: if it is no Ed25519 public key in PEM, or one that has no secret; a private one is refused, too.
        OSError: if it cannot be read.
    """
    data = read_whole(path, name="key", limit=LARGEST)
    if b"PRIVATE KEY" in data:
        raise PrivcalcError(
            f"key = {os.fspath(path)!r}: is a private key; verifying needs the public one, and shares it safely"
        )
    if data.count(b"-----BEGIN") > 1:  # of several, who reads them and who trusts them may mean different ones
        raise PrivcalcError(f"key = {os.fspath(path)!r}: must hold one key, and holds several")
    try:
        key = serialization.load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise PrivcalcError(f"key = {os.fspath(path)!r}: is no public key in PEM") from error
    if not isinstance(key, Ed25519PublicKey):
        raise PrivcalcError(f"key = {os.fspath(path)!r}: must be an Ed25519 key, not {type(key).__name__.lstrip('_')}")
    raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    if int.from_bytes(raw, "little") & (2**255 - 1) in WEAK:
        raise PrivcalcError(
            f"key = {os.fspath(path)!r}: is a point of small order, under which anybody can make signatures"
        )
    return key


def fingerprint(key: Ed25519PublicKey) -> str:
    """SHA-256 of the public key's 32 bytes, as hexadecimal digits."""
    form = serialization.PublicFormat.Raw
    return hashlib.sha256(key.public_bytes(serialization.Encoding.Raw, form)).hexdigest()
