"""``privcalc certify|verify|show|key|sign|revoke``: certificates, keys, and signatures of certificates and ledgers."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import click

import privcalc as pc
from privcalc.certificate.certificate import SECONDS
from privcalc.certificate.html import page, sheet
from privcalc.certificate.registry import record
from privcalc.certificate.revoked import LIST, add, beside, named_by, told
from privcalc.certificate.schema import UNDECIDED, VERIFIED, changed
from privcalc.certificate.text import show as shown
from privcalc.cli.options import DELTA, SOURCE, Answered, Command
from privcalc.files import LEDGER, read_whole, regular, write_whole
from privcalc.kernel import composed, said, theorem
from privcalc.kernel import read as entries
from privcalc.ledger.digests import secret
from privcalc.proof import finite_claims
from privcalc.serial import Json, indented
from privcalc.terminal import UNCONFIRMED, WRONG

REVOKED = f"List of revoked certificates (default {LIST} beside CERT, if it is there)."
REVOCATIONS = click.option("--revocations", metavar="LIST", help=REVOKED)
PASSPHRASE = click.option("--passphrase-file", metavar="FILE", help="The private key's passphrase is its first line.")
PRIVATE = click.option("--key", "private", required=True, metavar="PRIVATE", help="The private key that signs.")
MASSES = 512
"""Of the curves of a theorem: Coq composes so many in half a minute, to about two hundredths of ε."""


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
@PASSPHRASE
def key(file: str, encrypt: bool, passphrase_file: str | None) -> Answered:
    """Make a pair of Ed25519 keys: FILE, which only you may read, and FILE.pub, which verifies."""
    passphrase = _passphrase(passphrase_file)
    if passphrase is None and encrypt:
        passphrase = _asked("passphrase: ")
        if passphrase != _asked("once more: "):
            raise pc.PrivcalcError("passphrase: the two are not the same")
    public = seals().generate(file, passphrase=passphrase)
    print_of = seals().fingerprint(seals().public_key(public))
    found = {"private": file, "public": str(public), "fingerprint": print_of}
    return Answered(found, f"{file}: private, yours alone\n{public}: public, {print_of}")


@click.command(cls=Command)
@click.argument("file")
@PRIVATE
@PASSPHRASE
@click.option("--out", metavar="SIG", help="Where the signature goes (default FILE.sig).")
def sign(file: str, private: str, passphrase_file: str | None, out: str | None) -> Answered:
    """Sign a certificate or a ledger; the signature goes to a file beside it."""
    signature = seals().sign(file, private, passphrase=_opens(private, passphrase_file))
    signature.save(out or f"{file}.sig")
    return Answered(dict(signature.document), f"{out or f'{file}.sig'}: the signature of {signature.document['key']}")


@click.command(cls=Command)
@click.argument("certificate", metavar="CERT")
@PRIVATE
@click.option("--reason", required=True, help="Why it no longer holds.")
@PASSPHRASE
@REVOCATIONS
def revoke(
    certificate: str, private: str, reason: str, passphrase_file: str | None, revocations: str | None
) -> Answered:
    """Revoke a certificate: a signed statement goes to the list beside it, which verify and show read."""
    passphrase = _opens(private, passphrase_file)
    statement = seals().revoke(certificate, private, reason=reason, passphrase=passphrase).document
    return Answered(dict(statement), f"{add(certificate, statement, revocations)}: revokes {told(statement)}")


def _opens(private: str, passphrase_file: str | None) -> str | None:
    """The passphrase of a private key, asked for if it needs one."""
    passphrase = _passphrase(passphrase_file)
    if passphrase is None and b"BEGIN ENCRYPTED" in read_whole(private, name="--key"):
        return _asked(f"passphrase of {private}: ")
    return passphrase


def is_ledger(path: str) -> bool:
    """Whether a file begins as ledgers do."""
    with regular(path).open("rb") as file:
        return file.read(len(LEDGER)) == LEDGER


def _passphrase(path: str | None) -> str | None:
    if path is None:
        return None
    text = read_whole(path, name="--passphrase-file", limit=1 << 12).decode()
    return text.partition("\n")[0].removesuffix("\r")


def _asked(prompt: str) -> str:
    """From the terminal, unseen.

    Raises:
        PrivcalcError: if there is none.
    """
    if not sys.stdin.isatty():
        raise pc.PrivcalcError("passphrase: is asked for at a terminal, and there is none; give --passphrase-file")
    return getpass.getpass(prompt)


@click.command(cls=Command)
@click.argument("source", nargs=-1, required=True, type=SOURCE)
@DELTA
@click.option("--out", metavar="CERT", help="File to write the certificate to.")
@click.option("--coq", metavar="OUT", help="Also write a theorem about this run, which coqc checks in a minute.")
def certify(source: tuple[str, ...], delta: float, out: str | None, coq: str | None) -> Answered:
    """Make a certificate of a ledger, of a run described in JSON, or of several certificates, which it composes."""
    _another("--out", out, source, "the certificate")
    _another("--coq", coq, [*source, *filter(None, [out])], "the theorem")
    if len(source) > 1 and (ledger := next(filter(is_ledger, source), None)) is not None:
        raise pc.PrivcalcError(
            f"{ledger}: is a ledger: certify each by itself (--out), and then these certificates together"
        )
    certificate = pc.certify(
        source[0] if len(source) == 1 else [pc.Certificate.load(path) for path in source], delta=delta
    )
    if coq is not None:
        write_whole(coq, _theorem(certificate))
    if out is None:
        return Answered(dict(certificate.document), str(certificate))
    certificate.save(out)
    first = str(certificate).partition("\n\n1. ")[0]
    return Answered(
        dict(certificate.document), f"{first}\n\nwritten: {out}; privcalc show {out} prints all that it says"
    )


@click.command(cls=Command)
@click.argument("certificate", metavar="CERT", type=SOURCE)
@click.argument("ledgers", nargs=-1, type=SOURCE)
@click.option(
    "--seconds", type=float, help="It may take at most (default 30, with --rigorous 600), and 4 GiB of memory."
)
@click.option("--rigorous", is_flag=True, help="Every claim of ε must be proved, or the status is 3.")
@click.option("--out", metavar="CERT", help="With --rigorous: write the certificate with what was proved.")
@click.option("--kernel", is_flag=True, help="Also bound ε in whole numbers; Coq checked the theorem of that.")
@click.option(
    "--key", "public", metavar="PUBLIC", help="Public key that CERT, or a ledger in its place, must be signed with."
)
@click.option("--signature", metavar="SIG", help="With --key: its signature (default CERT.sig).")
@REVOCATIONS
def verify(
    certificate: str, ledgers: tuple[str, ...], public: str | None, signature: str | None, **asked: Any
) -> Answered:
    """Check a certificate again, with the ledger it was made from; of a composition with those of all its parts.

    The first word is VERIFIED, WRONG (exit status 1) or UNDECIDED (3: not everything could be proved within the
    limits), and the last line says what was checked.
    """
    if signature is not None and public is None:
        raise pc.PrivcalcError("--signature: needs --key, the public key that you trust")
    alone = public is not None and is_ledger(certificate)
    if alone and (ledgers or asked["rigorous"] or asked["out"] is not None):
        raise pc.PrivcalcError(
            f"CERT = {certificate!r}: is a ledger, of which --key checks the signature, and nothing else"
        )
    read = None if alone else pc.Certificate.load(certificate)
    for ledger in ledgers:  # that one cannot be read is bad input, what it says may be a contradiction
        regular(ledger, name="ledger")
    statements = [] if read is None else named_by(read.document, beside(certificate, asked.pop("revocations")))
    try:
        others = list(_others(statements, public))
        by = () if public is None else seals().check(read or certificate, signature or f"{certificate}.sig", public)
        return verdict(0, by) if read is None else _verified(read, ledgers, by, others, **asked)
    except pc.Contradiction as error:
        return verdict(WRONG, str(error))
    except pc.NotConfirmed as error:
        return verdict(UNCONFIRMED, f"not confirmed: {error}")


def _others(statements: list[Json], public: str | None) -> Iterator[str]:
    """Those who say that it is revoked, by other keys than the one that is trusted.

    Raises:
        Contradiction: if it is revoked.
    """
    for statement in statements:
        try:
            trusted = None if public is None else seals().revokes(statement, public)
        except pc.Contradiction as error:
            raise pc.Contradiction(f"REVOKED, by a statement of which this is wrong: {error}") from error
        if trusted is not False:
            unchecked = "" if trusted else " (--key would check who signed that)"
            raise pc.Contradiction(f"REVOKED: {told(statement)}{unchecked}")
        yield f"another key than the one given says that it is revoked: {told(statement)}"


def _verified(
    read: pc.Certificate,
    ledgers: tuple[str, ...],
    by: Sequence[str],
    others: Sequence[str],
    seconds: float | None,
    rigorous: bool,
    out: str | None,
    kernel: bool,
) -> Answered:
    """What was confirmed, line by line."""
    most = seconds if seconds is not None else 600.0 if rigorous else SECONDS
    first, *lines = read.verify(*ledgers, seconds=most, rigorous=rigorous)
    lines = [first, *by, *lines, *others, *filter(None, (secret(ledger) for ledger in ledgers if is_ledger(ledger)))]
    if kernel:
        lines.append(said(read.document))
    if rigorous and out is not None:
        read.proved(finite_claims(read.document)).save(out)
    word, status = (UNDECIDED, UNCONFIRMED) if first.startswith(UNDECIDED) else (VERIFIED, 0)
    if ledgers:
        last = ", with what it was made from"
    elif read.document["ledgers"]:
        last = ", but no ledger was given: only the arithmetic was checked"
    else:
        last = "; without a ledger only the arithmetic can be checked"
    return verdict(status, [*lines, f"{word}{last}"])


def verdict(status: int, found: str | Sequence[str]) -> Answered:
    """What a check came to, one of three words first: why it failed, or what was confirmed, line by line."""
    word = {0: VERIFIED, WRONG: "WRONG", UNCONFIRMED: UNDECIDED}[status]
    known = {"verdict": word, "verified": {0: True, WRONG: False}.get(status)}
    if isinstance(found, str):
        reason = " ".join(found.splitlines())
        return Answered({**known, "reason": reason}, f"{word}: {reason}", status)
    first = found[0] if found[0].startswith(word) else f"{word}: {found[0]}"
    return Answered({**known, "confirmed": list(found)}, "\n".join((first, *found[1:])), status)


@click.command(cls=Command)
@click.argument("certificate", metavar="CERT", type=SOURCE)
@click.option("--html", metavar="OUT", help="Also write one self-contained web page (needs matplotlib).")
@click.option("--report", "as_report", is_flag=True, help="With --html: without curves, printed as one sheet of A4.")
@click.option(
    "--registry", metavar="OUT", help="Also draft a record for the Differential Privacy Deployments Registry."
)
@REVOCATIONS
def show(
    certificate: str, html: str | None, as_report: bool, registry: str | None, revocations: str | None
) -> Answered:
    """Print a certificate; nothing is checked but its hash: exit status 1 if that does not fit, or it is revoked."""
    _another("--html", html, [certificate], "the page")
    _another("--registry", registry, [certificate], "the record")
    if is_ledger(certificate):
        found = secret(certificate) or f"CERT = {certificate!r}: is a ledger"
        raise pc.PrivcalcError(f"{found}; privcalc certify makes a certificate of it")
    read = pc.Certificate.load(certificate)
    document, edited = dict(read.document), changed(read.document)
    revoked = list(map(told, named_by(document, beside(certificate, revocations))))
    wrong = "the certificate was changed after it was made" if edited else f"revoked: {revoked[0]}" if revoked else ""
    if html is not None and not edited:  # what was changed is made into nothing that could pass for it
        write_whole(html, sheet(document, revoked=revoked) if as_report else page(read, revoked=revoked))
    if registry is not None and not wrong:
        write_whole(registry, indented(record(document)))
    return Answered(document, shown(document, revoked=revoked), WRONG if wrong else 0, wrong)


def _another(option: str, out: str | None, sources: Sequence[str], made: str) -> None:
    """Refuse to write in the place of what is read."""
    there = [] if out is None or not os.path.exists(out) else filter(os.path.exists, sources)
    if any(os.path.samefile(str(out), path) for path in there):
        raise pc.PrivcalcError(f"{option} = {out!r}: is what {made} is to be made of; name another file")


def _theorem(certificate: pc.Certificate) -> str:
    """A theorem about the run of a certificate, for Coq."""
    document = certificate.document
    delta = float(document["guarantee"]["delta"])
    try:
        found = composed(entries(document["run"], document["relation"]), delta, most=MASSES)
        return theorem(found, delta, said=str(certificate.run))
    except ValueError as reason:
        raise pc.PrivcalcError(f"--coq: {reason}") from None
