"""``privcalc certify|verify|show``: certificates."""

from __future__ import annotations

import argparse
import os
from typing import Any

import privcalc as pc
from privcalc.certificate.certificate import SECONDS
from privcalc.certificate.registry import record
from privcalc.certificate.report import report
from privcalc.certificate.schema import changed
from privcalc.certificate.sheet import sheet
from privcalc.cli.options import add_options
from privcalc.cli.sign import is_ledger, seals, signed
from privcalc.files import regular, write_whole
from privcalc.rigorous.proof import finite_claims
from privcalc.serial import indented
from privcalc.terminal import UNCONFIRMED, WRONG, answer, fail


def add(commands: Any) -> None:
    """Add the three commands."""
    text = "make a certificate of a ledger, of a run described in JSON, or of several certificates, which it composes"
    parser = commands.add_parser("certify", help=text, description=text)
    parser.set_defaults(run=certify)
    parser.add_argument("source", nargs="+", metavar="LEDGER", help="a ledger, a described run, or several certificates")
    add_options(parser, "--delta")
    parser.add_argument("--out", metavar="CERT", help="file to write the certificate to")
    add_options(parser, "--json")

    text = (
        "check a certificate again, with its ledgers if given; exit status 1, with the reason, if it is wrong, 3 "
        "if it could not be confirmed within the limits"
    )
    parser = commands.add_parser("verify", help=text, description=text)
    parser.set_defaults(run=verify)
    parser.add_argument("certificate", metavar="CERT")
    parser.add_argument(
        "ledgers", nargs="*", metavar="LEDGER", help="the ledger it was made from; of a composition those of all its parts"
    )
    parser.add_argument(
        "--seconds", type=float, help="most seconds it may take (default 30, with --rigorous 600); memory is limited to 4 GiB"
    )
    parser.add_argument("--rigorous", action="store_true", help="prove every claim of ε in ball arithmetic; needs python-flint")
    parser.add_argument("--out", metavar="CERT", help="with --rigorous: write the certificate with what was proved")
    parser.add_argument("--key", metavar="PUBLIC", help="public key that CERT must be signed with; CERT may be a ledger, then")
    parser.add_argument("--signature", metavar="SIG", help="with --key: its signature (default CERT.sig)")
    add_options(parser, "--json")

    text = "print a certificate as text; nothing is checked but its hash, exit status 1 if that does not fit"
    parser = commands.add_parser("show", help=text, description=text)
    parser.set_defaults(run=show)
    parser.add_argument("certificate", metavar="CERT")
    parser.add_argument("--html", metavar="OUT", help="also write one self-contained web page (needs matplotlib)")
    text = "instead: one page for those who judge risk, from ε down to what no proof covers; --html OUT prints as one sheet of A4"
    parser.add_argument("--report", action="store_true", help=text)
    text = "also write a draft for the Differential Privacy Deployments Registry (JSON); what is not stated is yours to fill in"
    parser.add_argument("--registry", metavar="OUT", help=text)
    add_options(parser, "--json")


def certify(args: argparse.Namespace) -> int:
    """Make one; returns the exit status."""
    _another("--out", args.out, args.source, "the certificate")
    if len(args.source) > 1 and (ledger := next(filter(is_ledger, args.source), None)) is not None:
        raise pc.PrivcalcError(f"{ledger}: is a ledger: certify each by itself (--out), and then these certificates together")
    source = args.source[0] if len(args.source) == 1 else [pc.Certificate.load(path) for path in args.source]
    certificate = pc.certify(source, delta=args.delta)
    if args.out is not None:
        certificate.save(args.out)
    return answer(dict(certificate.document), str(certificate), as_json=args.json)


def verify(args: argparse.Namespace) -> int:
    """Check one; returns the exit status."""
    if args.signature is not None and args.key is None:
        raise pc.PrivcalcError("--signature: needs --key, the public key that you trust")
    if args.key is not None and is_ledger(args.certificate):
        return signed(args, args.certificate)
    certificate = pc.Certificate.load(args.certificate)
    for ledger in args.ledgers:  # that one cannot be read is bad input, what it says may be a contradiction
        regular(ledger, name="ledger")
    seconds = args.seconds if args.seconds is not None else 600.0 if args.rigorous else SECONDS
    try:
        by = () if args.key is None else seals().check(certificate, args.signature or f"{args.certificate}.sig", args.key)
        confirmed = (*by, *certificate.verify(*args.ledgers, seconds=seconds, rigorous=args.rigorous))
    except (pc.Contradiction, pc.NotConfirmed) as error:
        reason, wrong = " ".join(str(error).splitlines()), isinstance(error, pc.Contradiction)
        if args.json:
            answer({"verified": False if wrong else None, "reason": reason}, "", as_json=True)
        told, status = (reason, WRONG) if wrong else (f"not confirmed: {reason}", UNCONFIRMED)
        return fail("privcalc verify", told, status=status)
    if args.rigorous and args.out is not None:
        certificate.proved(finite_claims(certificate.document)).save(args.out)
    return answer({"verified": True, "confirmed": confirmed}, "\n".join(confirmed), as_json=args.json)


def show(args: argparse.Namespace) -> int:
    """Print one; returns the exit status."""
    for option, out, made in (("--html", args.html, "the page"), ("--registry", args.registry, "the record")):
        _another(option, out, [args.certificate], made)
    certificate = pc.Certificate.load(args.certificate)
    text = report(certificate.document) if args.report else str(certificate)
    if changed(certificate.document):  # shown for what it is, and made into nothing that could pass for it
        answer(dict(certificate.document), text, as_json=args.json)
        return fail("privcalc show", "the certificate was changed after it was made", status=WRONG)
    if args.html is not None:
        write_whole(args.html, sheet(certificate.document) if args.report else _page(certificate))
    if args.registry is not None:
        write_whole(args.registry, indented(record(certificate.document)))
    return answer(dict(certificate.document), text, as_json=args.json)


def _page(certificate: pc.Certificate) -> str:
    from privcalc.certificate.html import page  # slow to import

    return page(certificate)


def _another(option: str, out: str | None, sources: list[str], made: str) -> None:
    """Refuse to write in the place of what is read."""
    if out is not None and os.path.exists(out) and any(os.path.exists(path) and os.path.samefile(out, path) for path in sources):
        raise pc.PrivcalcError(f"{option} = {out!r}: is what {made} is to be made of; name another file")
