"""``privcalc key|sign``: keys, and signatures of certificates and ledgers; ``verify --key`` checks them."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from types import ModuleType

import click

import privcalc as pc
from privcalc.cli.options import JSON, Command
from privcalc.files import LEDGER, read_whole, regular
from privcalc.terminal import WRONG, answer, verdict

__all__ = ["is_ledger", "key", "seals", "sign", "signed"]


def seals() -> ModuleType:
    """``privcalc.signatures``, if what it needs is installed."""
    try:
        from privcalc import signatures
    except ImportError as error:
        raise pc.PrivcalcError(str(error)) from error
    return signatures


@click.command(cls=Command)
@click.argument("file")
@click.option("--encrypt", is_flag=True, help="With a passphrase, which is asked for.")
@click.option("--passphrase-file", metavar="FILE", help="Encrypt with the first line of a file.")
@JSON
def key(file: str, encrypt: bool, passphrase_file: str | None, as_json: bool) -> int:
    """Make a pair of Ed25519 keys: FILE, which only you may read, and FILE.pub, which verifies."""
    passphrase = _passphrase(passphrase_file)
    if passphrase is None and encrypt:
        passphrase = _asked("passphrase: ")
        if passphrase != _asked("once more: "):
            raise pc.PrivcalcError("passphrase: the two are not the same")
    public = seals().generate(file, passphrase=passphrase)
    print_of = seals().fingerprint(seals().public_key(public))
    found = {"private": file, "public": str(public), "fingerprint": print_of}
    return answer(found, f"{file}: private, yours alone\n{public}: public, {print_of}", as_json=as_json)


@click.command(cls=Command)
@click.argument("file")
@click.option(
    "--key",
    "private",
    required=True,
    metavar="PRIVATE",
    help="The private key; an encrypted one asks for its passphrase.",
)
@click.option("--passphrase-file", metavar="FILE", help="Read the passphrase from the first line of a file.")
@click.option("--out", metavar="SIG", help="Where the signature goes (default FILE.sig).")
@JSON
def sign(file: str, private: str, passphrase_file: str | None, out: str | None, as_json: bool) -> int:
    """Sign a certificate or a ledger; the signature goes to a file beside it."""
    passphrase = _passphrase(passphrase_file)
    if passphrase is None and b"BEGIN ENCRYPTED" in read_whole(private, name="--key"):
        passphrase = _asked(f"passphrase of {private}: ")
    signature, target = seals().sign(file, private, passphrase=passphrase), out or f"{file}.sig"
    signature.save(target)
    return answer(dict(signature.document), f"{target}: the signature of {signature.document['key']}", as_json=as_json)


def signed(path: str, public: str, signature: str | None, *, as_json: bool) -> int:
    """Check the signature of a ledger; returns the exit status."""
    try:
        confirmed = seals().check(path, signature or f"{path}.sig", public)
    except pc.Contradiction as error:
        return verdict(WRONG, str(error), as_json=as_json)
    return verdict(0, confirmed, as_json=as_json)


def is_ledger(path: str) -> bool:
    """Whether a file begins as ledgers do."""
    with regular(path).open("rb") as file:
        return file.read(len(LEDGER)) == LEDGER


def _passphrase(path: str | None) -> str | None:
    if path is None:
        return None
    return (
        read_whole(Path(path), name="--passphrase-file", limit=1 << 12).decode().partition("\n")[0].removesuffix("\r")
    )


def _asked(prompt: str) -> str:
    """From the terminal, unseen.

    Raises:
        PrivcalcError: if there is none.
    """
    if not sys.stdin.isatty():
        raise pc.PrivcalcError("passphrase: is asked for at a terminal, and there is none; give --passphrase-file")
    return getpass.getpass(prompt)
