"""The command line for certificates: ``privcalc certify|verify|show``."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import privcalc as pc
from privcalc.certificate.certificate import SECONDS
from privcalc.files import regular, write_whole
from privcalc.rigorous.proof import finite_claims
from privcalc.terminal import fail


def add_commands(commands: Any) -> None:
    """Add the three commands to the parser."""
    texts = {
        "certify": "make a certificate of a ledger, of a run described in JSON, or of several certificates, which it composes",
        "verify": "check a certificate again, with its ledgers if given; exit status 1, with the reason, if it is wrong, 3 "
        "if it could not be confirmed within the limits",
        "show": "print a certificate as text; nothing is checked but its hash",
    }
    made = {name: commands.add_parser(name, help=text, description=text) for name, text in texts.items()}
    made["certify"].add_argument("source", nargs="+", metavar="LEDGER", help="a ledger, a described run, or several certificates")
    made["certify"].add_argument("--delta", type=float, required=True, help="δ, for instance 1e-5")
    made["certify"].add_argument("--out", metavar="CERT", help="file to write the certificate to")
    made["verify"].add_argument("certificate", metavar="CERT")
    made["verify"].add_argument(
        "ledgers", nargs="*", metavar="LEDGER", help="the ledger it was made from; of a composition those of all its parts"
    )
    made["verify"].add_argument(
        "--seconds", type=float, help="most seconds it may take (default 30, with --rigorous 600); memory is limited to 4 GiB"
    )
    made["verify"].add_argument(
        "--rigorous", action="store_true", help="prove every claim of ε in ball arithmetic; needs python-flint"
    )
    made["verify"].add_argument("--out", metavar="CERT", help="with --rigorous: write the certificate with what was proved")
    made["show"].add_argument("certificate", metavar="CERT")
    made["show"].add_argument("--html", metavar="OUT", help="also write one self-contained web page (needs matplotlib)")
    for command in made.values():
        command.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run one of them; returns the exit status."""
    try:
        if args.command == "certify":
            source = args.source[0] if len(args.source) == 1 else [pc.Certificate.load(path) for path in args.source]
            certificate = pc.certify(source, delta=args.delta)
            if args.out is not None:
                certificate.save(args.out)
        else:
            certificate = pc.Certificate.load(args.certificate)
        if args.command == "verify":
            for ledger in args.ledgers:  # that one cannot be read is bad input, what it says may be a contradiction
                regular(ledger, name="ledger")
            return _verify(args, certificate)
        text = str(certificate)
        if args.command == "show" and args.html is not None:
            from privcalc.certificate.html import page  # slow to import

            write_whole(args.html, page(certificate))
    except (pc.PrivcalcError, OSError) as error:
        return fail(f"privcalc {args.command}", error)
    print(_json(dict(certificate.document)) if args.json else text)
    return 0


def _verify(args: argparse.Namespace, certificate: pc.Certificate) -> int:
    seconds = args.seconds if args.seconds is not None else 600.0 if args.rigorous else SECONDS
    try:
        confirmed = certificate.verify(*args.ledgers, seconds=seconds, rigorous=args.rigorous)
    except pc.PrivcalcError as error:
        reason, wrong = " ".join(str(error).splitlines()), not isinstance(error, pc.NotConfirmed)
        if args.json:
            print(_json({"verified": False if wrong else None, "reason": reason}))
        print(f"privcalc verify: {reason if wrong else f'not confirmed: {reason}'}", file=sys.stderr)
        return 1 if wrong else 3
    if args.rigorous and args.out is not None:
        certificate.proved(finite_claims(certificate.document)).save(args.out)
    print(_json({"verified": True, "confirmed": confirmed}) if args.json else "\n".join(confirmed))
    return 0


def _json(value: object) -> str:
    return json.dumps(value, allow_nan=False)
