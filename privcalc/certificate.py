"""Certificates: a guarantee with everything needed to check it again, as one JSON object.

    ledger, run or certificates  ->  certify  ->  Certificate  ->  save, load, verify, show

The schema is described, field by field, in ``proofs/certificate.md``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privcalc import errors
from privcalc.assumptions import Assumptions, check_type, listed, union
from privcalc.book import OUTPUT_INDEPENDENT, Book, Terms, target_to_json
from privcalc.claims import FORMAT, READ, VERSION, claims, digest, enclosure, pages, read_json
from privcalc.consistency import check, wrong_form
from privcalc.describe import Json, canonical, relation_from_json, run_from_json, run_to_json
from privcalc.enclosure import Guarantee
from privcalc.errors import PrivcalcError
from privcalc.files import regular, write_whole
from privcalc.journal import Position, entries, lines_of
from privcalc.ledger import Ledger
from privcalc.mechanism import Mechanism
from privcalc.proof import PROVED, Proof, prove_certificate
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation, check_relation
from privcalc.run import Questions, Run
from privcalc.show import IDEALISED, show

__all__ = ["Certificate", "certify"]

RUN_FORMAT = "privcalc run"


@dataclass(frozen=True)
class Certificate:
    """A guarantee and its evidence; made by :func:`certify`.

    Attributes:
        document: the JSON object.

    Example:
        >>> import privcalc as pc
        >>> certificate = pc.certify(pc.Gaussian(noise_multiplier=20.0) * 206, delta=1e-5)
        >>> print(certificate.guarantee)
        (2.99298286, 1e-05)-DP under add-or-remove-one
        >>> certificate.verify()[0]
        'the text is whole: it fits its own hash'
    """

    document: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.document, Mapping):
            raise PrivcalcError(f"document = {str(self.document)[:200]}: must be a JSON object")
        # A private copy; and only what JSON can hold.
        object.__setattr__(self, "document", json.loads(canonical(dict(self.document))))

    @property
    def guarantee(self) -> Guarantee:
        """(ε, δ), ε as an enclosure."""
        with wrong_form():
            claim = self.document["guarantee"]
            delta = errors.delta("delta", claim["delta"])
            return Guarantee(epsilon=enclosure(claim["epsilon"], self.relation), delta=delta, relation=self.relation)

    @property
    def run(self) -> Run:
        """The run that the guarantee is of."""
        return run_from_json(self.document["run"])

    @property
    def relation(self) -> Relation:
        """The neighbouring relation."""
        return relation_from_json(self.document["relation"])

    @property
    def final(self) -> bool:
        """Whether the ledger was closed; otherwise at least this much was spent."""
        return bool(self.document["status"] == "closed")

    @property
    def private(self) -> bool:
        """Whether it claims privacy at all: not for reproducible runs."""
        return not self.document["seeded"]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON object, all of it or nothing."""
        write_whole(path, json.dumps(self.document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Certificate:
        """Read what ``save`` wrote. Nothing is checked but the format: see ``verify``."""
        document = read_json(Path(path))
        if document.get("format") != FORMAT or document.get("version") not in READ:
            found = f"{document.get('format')!r}, version {document.get('version')!r}"
            raise PrivcalcError(f"path = {str(path)!r}: must be a {FORMAT} of version {' or '.join(map(str, READ))}, not {found}")
        return cls(document)

    def verify(self, ledger: str | os.PathLike[str] | Ledger | None = None) -> tuple[str, ...]:
        """Check every statement again, ε by a numerical route that shares no code with the engine that claimed it.

        Args:
            ledger: the ledger it was made from, to check that too.

        Returns:
            What was confirmed, line by line.

        Raises:
            PrivcalcError: with the reason, if a claim is smaller than the truth, or something does not fit.
        """
        from privcalc.verify import verify  # mpmath is slow to import

        again = None if ledger is None else certify(ledger, delta=self.guarantee.delta or 0.0).document
        return verify(self.document, again)

    def prove(self, progress: Callable[[str], None] | None = None) -> Certificate:
        """The same certificate, with a record of which of its claims of ε were proved in ball arithmetic (:func:`prove`).

        Args:
            progress: called with a line of text now and then.

        Raises:
            PrivcalcError: if a claim is refuted, or python-flint is missing.

        Example:
            >>> import privcalc as pc
            >>> certificate = pc.certify(pc.Gaussian(noise_multiplier=20.0) * 206, delta=1e-5)
            >>> certificate.prove().document["confirmed"][0]["route"]
            'ball arithmetic'
        """
        return self.confirmed_by(prove_certificate(self.document, progress))

    def confirmed_by(self, proofs: Sequence[Proof]) -> Certificate:
        """The same certificate, with a record of proofs of its claims."""
        for proof in proofs:
            if proof.verdict == "refuted":
                raise PrivcalcError(f"epsilon = {proof.epsilon!r} at delta = {proof.delta!r}: is refuted, δ(ε) ≥ {proof.lower!r}")
        confirmed = [
            {"route": PROVED, "epsilon": proof.epsilon, "delta": proof.delta, "pages": list(proof.pages)}
            for proof in proofs
            if proof
        ]
        document = {**self.document, "confirmed": confirmed}
        return Certificate({**document, "hash": digest(document)})

    def __str__(self) -> str:
        """For people (``privcalc show``)."""
        with wrong_form():
            return show(self.document)


Source = str | os.PathLike[str] | Ledger | Mechanism | Run | Sequence[Certificate]


def certify(
    source: Source,
    *,
    delta: float,
    relation: Relation = ADD_OR_REMOVE_ONE,
    unit: str = "one record",
    not_accounted: Sequence[str] = (),
    assumptions: Assumptions | None = None,
) -> Certificate:
    """Make a certificate.

    Args:
        source: a ledger, or its file; a run, or the file of one that was described by hand (``{"format": "privcalc run",
            "version": 1, "relation": …, "unit": …, "run": […]}``, optionally with ``public``, ``not_accounted`` and
            ``assumptions``); or several certificates of runs on the same records, to compose.
        delta: δ of the guarantee.
        relation: for a run: its neighbouring relation; the other sources have one.
        unit: for a run: what one record is.
        not_accounted: for a run: what is known to be missing, in words.
        assumptions: for a run: what you declare of the process; what contradicts a proof is refused.

    Returns:
        A :class:`Certificate`. Of a closed ledger it is that of its plan or cap, or of what was recorded where the caller vouched
        for an output-independent end; of a ledger that was not closed it is open: at least this much.

    Raises:
        PrivcalcError: if the source does not fit its hashes, charges more than it may, or has no guarantee under its relation.

    Example:
        >>> import privcalc as pc
        >>> one = pc.certify(pc.Gaussian(noise_multiplier=2.0), delta=1e-5)
        >>> both = pc.certify([one, one], delta=1e-5)
        >>> print(both.run, both.document["basis"])
        2 × Gaussian(noise_multiplier=2.0) composed
    """
    value = errors.delta("delta", delta)
    if isinstance(source, Ledger):
        if source.journal.path is not None:
            return certify(source.journal.path, delta=value)
        return from_entries(iter(source.journal.memory), "the ledger", value)
    if isinstance(source, Questions):
        check_relation(relation)
        parts: Json = {"unit": unit, "public": {}, "not_accounted": list(not_accounted), "declared": run_to_json(source.run)}
        said = Assumptions() if assumptions is None else check_type(assumptions)
        parts["assumptions"] = _described(said, source.run)
        return _build(source.run, relation, value, "declared", "closed", parts)
    if isinstance(source, (str, os.PathLike)):
        path = regular(source, name="source")
        with path.open("rb") as file:
            if file.read(5) != b'{"n":':
                return _from_description(read_json(path), value)
            file.seek(0)
            return from_entries(lines_of(file), path, value)
    return _composed(list(source), value)


def from_entries(lines: Iterator[bytes], name: object, delta: float) -> Certificate:
    """From the lines of a ledger."""
    position = Position()
    book = Book.read(entries(lines, name, position))
    terms, recorded = book.terms, book.recorded
    vouched = book.closed and book.stopping == OUTPUT_INDEPENDENT
    basis = "recorded" if vouched else "plan" if terms.plan is not None else "cap"
    run, declared = recorded if vouched else terms.bound, Run(tuple(book.declared.items()))
    details = {
        "unit": terms.unit,
        "public": dict(terms.public),
        "assumptions": {
            "declared": terms.assumptions.declared,
            "needed": listed(terms.assumptions, run, basis, recorded, declared, each_row=terms.version > 2),
        },
        "not_accounted": list(terms.not_accounted),
        "stopping": book.stopping,
        "recorded": run_to_json(recorded),
        "declared": run_to_json(declared),
        "target": None if terms.target is None else target_to_json(terms.target),
        "seeded": terms.seeded,
        "ledgers": [{"hash": position.hash, "lines": position.lines, "torn": position.torn}],
    }
    return _build(run, terms.relation, delta, basis, "closed" if book.closed else "open", details)


def _from_description(document: Json, delta: float) -> Certificate:
    terms = described(document)
    run = terms.bound
    details: Json = {"unit": terms.unit, "public": dict(terms.public), "not_accounted": list(terms.not_accounted)}
    details |= {"declared": run_to_json(run), "assumptions": _described(terms.assumptions, run)}
    return _build(run, terms.relation, delta, "declared", "closed", details)


def described(document: Json) -> Terms:
    """What a run described by hand says: its ``bound`` is the run.

    Raises:
        PrivcalcError: if it is none, or has no guarantee under its relation.
    """
    if document.get("format") != RUN_FORMAT or document.get("version") != 1:
        raise PrivcalcError(f"format = {document.get('format')!r}: must be a ledger, or a {RUN_FORMAT!r} of version 1")
    allowed = {"format", "version", "relation", "unit", "run", "public", "not_accounted", "assumptions"}
    if extra := set(document) - allowed:
        raise PrivcalcError(f"{sorted(extra)}: unknown; a described run has {sorted(allowed)}")
    if absent := {"relation", "unit", "run"} - set(document):
        raise PrivcalcError(f"{sorted(absent)}: missing in the described run")
    run, relation = run_from_json(document["run"]), relation_from_json(document["relation"])
    # The same checks as for a ledger's terms.
    said = Assumptions.from_json(document.get("assumptions", {}))
    public, missing = document.get("public", {}), document.get("not_accounted", [])
    return Terms(relation, document["unit"], run, None, None, public, missing, False, said)


def _composed(parts: list[Certificate], delta: float) -> Certificate:
    if not parts or not all(isinstance(part, Certificate) for part in parts):
        raise PrivcalcError("source: must be a ledger, its path, a run, or a list of certificates")
    documents = [part.document for part in parts]
    for document in documents:
        check(document)  # what does not fit its own hash is not composed
    for name in ("relation", "unit"):
        if len({document[name] for document in documents}) > 1:
            found = sorted({document[name] for document in documents})
            raise PrivcalcError(f"{name}: the certificates must have the same one, not {found}")
    details = {
        "unit": documents[0]["unit"],
        "public": {},
        "assumptions": union([document["assumptions"] for document in documents], Run.of(part.run for part in parts)),
        "not_accounted": sorted({item for document in documents for item in document["not_accounted"]}),
        "declared": run_to_json(Run.of(run_from_json(document["declared"]) for document in documents)),
        "seeded": any(document["seeded"] for document in documents),
        "ledgers": [ledger for document in documents for ledger in document["ledgers"]],
        "parts": [{name: document[name] for name in ("basis", "status", "stopping", "hash", "run")} for document in documents],
    }
    status = "closed" if all(part.final for part in parts) else "open"
    return _build(Run.of(part.run for part in parts), parts[0].relation, delta, "composed", status, details)


def _described(said: Assumptions, run: Run) -> Json:
    """What was declared of a described run, and what it needs."""
    return {"declared": said.declared, "needed": listed(said, run, "declared", Run(()), run)}


def _build(run: Run, relation: Relation, delta: float, basis: str, status: str, details: Json) -> Certificate:
    """The document."""
    from privcalc import __version__

    nothing: Json = {
        "stopping": None,
        "recorded": None,
        "target": None,
        "seeded": False,
        "ledgers": [],
        "parts": [],
        "confirmed": [],
    }
    numbers = claims(run, relation, delta)
    document = {
        "format": FORMAT,
        "version": VERSION,
        "privcalc": __version__,
        "basis": basis,
        "status": status,
        "relation": str(relation),
        "run": run_to_json(run),
        **numbers,
        "proofs": pages(run, relation, numbers),
        "idealised": list(IDEALISED),
        **nothing,
        **details,
    }
    return Certificate({**document, "hash": digest(document)})
