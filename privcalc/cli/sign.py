"""``privcalc key|sign``: keys, and signatures of certificates and ledgers; ``verify --key`` checks them."""

from __future__ import annotations

import argparse
import getpass
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import privcalc as pc
from privcalc.cli.options import add_options
from privcalc.files import LEDGER, read_whole, regular
from privcalc.terminal import WRONG, answer, fail

__all__ = ["add", "is_ledger", "seals", "signed"]


def add(commands: Any) -> None:
    """Add the two commands."""
    text = "make a pair of Ed25519 keys: FILE, which only you may read, and FILE.pub, which verifies"
    parser = commands.add_parser("key", help=text, description=text)
    parser.set_defaults(run=key)
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--encrypt", action="store_true", help="with a passphrase, which is asked for")
    parser.add_argument("--passphrase-file", metavar="FILE", help="encrypt with the first line of a file")
    add_options(parser, "--json")

    text = "sign a certificate or a ledger; the signature goes to a file beside it"
    parser = commands.add_parser("sign", help=text, description=text)
    parser.set_defaults(run=sign)
    parser.add_argument("file", metavar="FILE")
    parser.add_argument(
        "--key", required=True, metavar="PRIVATE", help="the private key; an encrypted one asks for its passphrase"
    )
    parser.add_argument("--passphrase-file", metavar="FILE", help="read the passphrase from the first line of a file")
    parser.add_argument("--out", metavar="SIG", help="where the signature goes (default FILE.sig)")
    add_options(parser, "--json")


def seals() -> ModuleType:
    """``privcalc.signatures``, if what it needs is installed."""
    try:
        from privcalc import signatures
    except ImportError as error:
        raise pc.PrivcalcError(str(error)) from error
    return signatures


def key(args: argparse.Namespace) -> int:
    """Make a pair; returns the exit status."""
    passphrase = _passphrase(args.passphrase_file)
    if passphrase is None and args.encrypt:
        passphrase = _asked("passphrase: ")
        if passphrase != _asked("once more: "):
            raise pc.PrivcalcError("passphrase: the two are not the same")
    public = seals().generate(args.file, passphrase=passphrase)
    print_of = seals().fingerprint(seals().public_key(public))
    found = {"private": args.file, "public": str(public), "fingerprint": print_of}
    return answer(found, f"{args.file}: private, yours alone\n{public}: public, {print_of}", as_json=args.json)


def sign(args: argparse.Namespace) -> int:
    """Sign a file; returns the exit status."""
    passphrase = _passphrase(args.passphrase_file)
    if passphrase is None and b"BEGIN ENCRYPTED" in read_whole(args.key, name="--key"):
        passphrase = _asked(f"passphrase of {args.key}: ")
    signature, out = seals().sign(args.file, args.key, passphrase=passphrase), args.out or f"{args.file}.sig"
    signature.save(out)
    return answer(dict(signature.document), f"{out}: the signature of {signature.document['key']}", as_json=args.json)


def signed(args: argparse.Namespace, path: str) -> int:
    """Check the signature of a ledger; returns the exit status."""
    if args.ledgers or args.rigorous or args.out is not None:
        raise pc.PrivcalcError(f"CERT = {path!r}: is a ledger, of which --key checks the signature, and nothing else")
    try:
        confirmed = seals().check(path, args.signature or f"{path}.sig", args.key)
    except pc.Contradiction as error:
        if args.json:
            answer({"verified": False, "reason": str(error)}, "", as_json=True)
        return fail("privcalc verify", error, status=WRONG)
    return answer({"verified": True, "confirmed": confirmed}, "\n".join(confirmed), as_json=args.json)


def is_ledger(path: str) -> bool:
    """Whether a file begins as ledgers do."""
    with regular(path).open("rb") as file:
        return file.read(len(LEDGER)) == LEDGER


def _passphrase(path: str | None) -> str | None:
    if path is None:
        return None
    return read_whole(Path(path), name="--passphrase-file", limit=1 << 12).decode().partition("\n")[0].removesuffix("\r")


def _asked(prompt: str) -> str:
    """From the terminal, unseen.

    Raises:
        PrivcalcError: if there is none.
    """
    if not sys.stdin.isatty():
        raise pc.PrivcalcError("passphrase: is asked for at a terminal, and there is none; give --passphrase-file")
    return getpass.getpass(prompt)
