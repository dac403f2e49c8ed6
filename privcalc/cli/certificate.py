"""``privcalc certify|verify|show|key|sign|revoke``: certificates, keys, and signatures of certificates and ledgers."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import click

import privcalc as pc
from privcalc.certificate.certificate import SECONDS
from privcalc.certificate.html import page, sheet
from privcalc.certificate.registry import record
from privcalc.certificate.revoked import LIST, add, beside, named_by, told
from privcalc.certificate.schema import UNDECIDED, VERIFIED, changed
from privcalc.certificate.text import show as shown
from privcalc.cli.options import DELTA, JSON, SOURCE, Command
from privcalc.files import LEDGER, read_whole, regular, write_whole
from privcalc.kernel import composed, said, theorem
from privcalc.kernel import read as entries
from privcalc.ledger.digests import secret
from privcalc.proof import finite_claims
from privcalc.serial import indented
from privcalc.terminal import UNCONFIRMED, WRONG, answer, fail, verdict

REVOCATIONS = click.option(
    "--revocations", metavar="LIST", help=f"List of revoked certificates (default {LIST} beside CERT, if it is there)."
)
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
    signature = seals().sign(file, private, passphrase=_opens(private, passphrase_file))
    target = out or f"{file}.sig"
    signature.save(target)
    return answer(dict(signature.document), f"{target}: the signature of {signature.document['key']}", as_json=as_json)


@click.command(cls=Command)
@click.argument("certificate", metavar="CERT")
@click.option("--key", "private", required=True, metavar="PRIVATE", help="The private key that signs the statement.")
@click.option("--reason", required=True, help="Why it no longer holds.")
@click.option("--passphrase-file", metavar="FILE", help="Read the passphrase from the first line of a file.")
@REVOCATIONS
@JSON
def revoke(
    certificate: str, private: str, reason: str, passphrase_file: str | None, revocations: str | None, as_json: bool
) -> int:
    """Revoke a certificate: a signed statement goes to the list beside it, which verify and show read."""
    passphrase = _opens(private, passphrase_file)
    statement = seals().revoke(certificate, private, reason=reason, passphrase=passphrase).document
    path = add(certificate, statement, revocations)
    return answer(dict(statement), f"{path}: revokes {told(statement)}", as_json=as_json)


def _opens(private: str, passphrase_file: str | None) -> str | None:
    """The passphrase of a private key, asked for if it needs one."""
    passphrase = _passphrase(passphrase_file)
    if passphrase is None and b"BEGIN ENCRYPTED" in read_whole(private, name="--key"):
        return _asked(f"passphrase of {private}: ")
    return passphrase


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


@click.command(cls=Command)
@click.argument("source", nargs=-1, required=True, type=SOURCE)
@DELTA
@click.option("--out", metavar="CERT", help="File to write the certificate to.")
@click.option("--coq", metavar="OUT", help="Also write a theorem about this run, which coqc checks in a minute.")
@JSON
def certify(source: tuple[str, ...], delta: float, out: str | None, coq: str | None, as_json: bool) -> int:
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
    if out is not None:
        certificate.save(out)
    return answer(dict(certificate.document), str(certificate), as_json=as_json)


@click.command(cls=Command)
@click.argument("certificate", metavar="CERT", type=SOURCE)
@click.argument("ledgers", nargs=-1, type=SOURCE)
@click.option(
    "--seconds",
    type=float,
    help="Most seconds it may take (default 30, with --rigorous 600); memory is limited to 4 GiB.",
)
@click.option("--rigorous", is_flag=True, help="Every claim of ε must be proved, or the status is 3.")
@click.option("--out", metavar="CERT", help="With --rigorous: write the certificate with what was proved.")
@click.option(
    "--kernel", is_flag=True, help="Also bound ε in whole numbers, by an algorithm whose theorem Coq checked."
)
@click.option(
    "--key", "public", metavar="PUBLIC", help="Public key that CERT must be signed with; CERT may be a ledger, then."
)
@click.option("--signature", metavar="SIG", help="With --key: its signature (default CERT.sig).")
@REVOCATIONS
@JSON
def verify(
    certificate: str,
    ledgers: tuple[str, ...],
    seconds: float | None,
    rigorous: bool,
    out: str | None,
    kernel: bool,
    public: str | None,
    signature: str | None,
    revocations: str | None,
    as_json: bool,
) -> int:
    """Check a certificate again, with the ledger it was made from; of a composition with those of all its parts.

    The first word is VERIFIED, WRONG (exit status 1) or UNDECIDED (3: not everything could be proved within the
    limits), and the last line says what was checked.
    """
    if signature is not None and public is None:
        raise pc.PrivcalcError("--signature: needs --key, the public key that you trust")
    if public is not None and is_ledger(certificate):
        if ledgers or rigorous or out is not None:
            raise pc.PrivcalcError(
                f"CERT = {certificate!r}: is a ledger, of which --key checks the signature, and nothing else"
            )
        return signed(certificate, public, signature, as_json=as_json)
    read = pc.Certificate.load(certificate)
    for ledger in ledgers:  # that one cannot be read is bad input, what it says may be a contradiction
        regular(ledger, name="ledger")
    others = []
    for statement in named_by(read.document, beside(certificate, revocations)):
        try:
            trusted = None if public is None else seals().revokes(statement, public)
        except pc.Contradiction as error:
            return verdict(WRONG, f"REVOKED, by a statement of which this is wrong: {error}", as_json=as_json)
        if trusted is False:
            others.append(f"another key than the one given says that it is revoked: {told(statement)}")
            continue
        unchecked = "" if trusted else " (--key would check who signed that)"
        return verdict(WRONG, f"REVOKED: {told(statement)}{unchecked}", as_json=as_json)
    most = seconds if seconds is not None else 600.0 if rigorous else SECONDS
    try:
        by = () if public is None else seals().check(read, signature or f"{certificate}.sig", public)
        first, *lines = read.verify(*ledgers, seconds=most, rigorous=rigorous)
        confirmed = (first, *by, *lines, *others)
    except pc.Contradiction as error:
        return verdict(WRONG, str(error), as_json=as_json)
    except pc.NotConfirmed as error:
        return verdict(UNCONFIRMED, f"not confirmed: {error}", as_json=as_json)
    confirmed = (*confirmed, *filter(None, (secret(ledger) for ledger in ledgers if is_ledger(ledger))))
    if kernel:
        confirmed = (*confirmed, said(read.document))
    if rigorous and out is not None:
        read.proved(finite_claims(read.document)).save(out)
    word, status = (UNDECIDED, UNCONFIRMED) if first.startswith(UNDECIDED) else (VERIFIED, 0)
    if ledgers:
        last = f"{word}, with what it was made from"
    elif read.document["ledgers"]:
        last = f"{word}, but no ledger was given: only the arithmetic was checked"
    else:
        last = f"{word}; without a ledger only the arithmetic can be checked"
    return verdict(status, (*confirmed, last), as_json=as_json)


@click.command(cls=Command)
@click.argument("certificate", metavar="CERT", type=SOURCE)
@click.option("--html", metavar="OUT", help="Also write one self-contained web page (needs matplotlib).")
@click.option(
    "--report",
    "as_report",
    is_flag=True,
    help="With --html: the same without curves, which prints as one sheet of A4.",
)
@click.option(
    "--registry",
    metavar="OUT",
    help="Also write a draft for the Differential Privacy Deployments Registry (JSON); "
    "what is not stated is yours to fill in.",
)
@REVOCATIONS
@JSON
def show(
    certificate: str, html: str | None, as_report: bool, registry: str | None, revocations: str | None, as_json: bool
) -> int:
    """Print a certificate; nothing is checked but its hash: exit status 1 if that does not fit, or it is revoked."""
    for option, out, made in (("--html", html, "the page"), ("--registry", registry, "the record")):
        _another(option, out, [certificate], made)
    if is_ledger(certificate):
        found = secret(certificate) or f"CERT = {certificate!r}: is a ledger"
        raise pc.PrivcalcError(f"{found}; privcalc certify makes a certificate of it")
    read = pc.Certificate.load(certificate)
    revoked = list(map(told, named_by(read.document, beside(certificate, revocations))))
    text = shown(read.document, revoked=revoked)
    if changed(read.document):  # shown for what it is, and made into nothing that could pass for it
        answer(dict(read.document), text, as_json=as_json)
        return fail("privcalc show", "the certificate was changed after it was made", status=WRONG)
    if html is not None:
        write_whole(html, sheet(read.document, revoked=revoked) if as_report else page(read, revoked=revoked))
    if revoked:
        answer(dict(read.document), text, as_json=as_json)
        return fail("privcalc show", f"the certificate is revoked: {revoked[0]}", status=WRONG)
    if registry is not None:
        write_whole(registry, indented(record(read.document)))
    return answer(dict(read.document), text, as_json=as_json)


def _another(option: str, out: str | None, sources: Sequence[str], made: str) -> None:
    """Refuse to write in the place of what is read."""
    if (
        out is not None
        and os.path.exists(out)
        and any(os.path.exists(path) and os.path.samefile(out, path) for path in sources)
    ):
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
