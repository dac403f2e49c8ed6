"""Certificates: a guarantee with everything needed to check it again, as one JSON object.

    ledger, run or certificates  ->  certify  ->  Certificate  ->  save, load, verify, show

The schema is described, field by field, in ``proofs/certificate.md``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from privcalc import errors
from privcalc.attacks.replay.findings import Report
from privcalc.certificate import verify
from privcalc.certificate.assumed import private
from privcalc.certificate.consistency import of_parts, wrong_form
from privcalc.certificate.schema import FORMAT, READ, VERSION, changed, digest, pages, void
from privcalc.certificate.story import claims, of_given, of_run
from privcalc.certificate.text import doubts, show, uncomposed
from privcalc.enclosure import Guarantee
from privcalc.errors import Contradiction, PrivcalcError, suggests
from privcalc.files import LEDGER, named, regular, write_whole
from privcalc.ledger.assumptions import Assumptions
from privcalc.ledger.digests import same
from privcalc.ledger.ledger import Ledger
from privcalc.ledger.terms import Terms
from privcalc.notebook import Card
from privcalc.proof import PROVED, pages_of_proof, prove_certificate
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation
from privcalc.run import Mechanism, Run
from privcalc.serial import Json, canonical, enclosure, indented, parse, read_json, relation_from_json, run_from_json
from privcalc.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Certificate", "certify"]

NO_SOURCE = "source: must be a ledger, its path, a run, or a list of certificates"

SECONDS = 30.0
"""Most of them that a check takes, unless told otherwise."""


@dataclass(frozen=True, repr=False)
class Certificate(Card):
    """A guarantee and its evidence; made by :func:`certify`.

    Attributes:
        document: the JSON object.

    Example:
        >>> import privcalc as pc
        >>> certificate = pc.certify(pc.Gaussian(noise_multiplier=20.0) * 206, delta=1e-5)
        >>> print(certificate.guarantee)
        (2.99298287, 1e-05)-DP under add-or-remove-one
        >>> print(certificate.verify()[0])
        VERIFIED: ε ≤ 2.99298287 at δ = 1e-05, add-or-remove-one, was proved again,
        and nothing was found wrong
    """

    document: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.document, Mapping):
            raise PrivcalcError(f"document = {str(self.document)[:200]}: must be a JSON object")
        # A private copy; and only what JSON can hold.
        object.__setattr__(self, "document", parse(canonical(dict(self.document)), "document"))

    @property
    def guarantee(self) -> Guarantee:
        """(ε, δ), ε as an enclosure."""
        with wrong_form():
            claim = self.document["guarantee"]
            delta = errors.delta("delta", claim["delta"])
            epsilon = replace(enclosure(claim["epsilon"], self.relation), delta=delta)
            return Guarantee(epsilon=epsilon, delta=delta, relation=self.relation)

    @property
    def run(self) -> Run:
        """The run that the guarantee is of."""
        return run_from_json(self.document["run"])

    @property
    def relation(self) -> Relation:
        """The neighbouring relation of the guarantee."""
        return relation_from_json(self.document["relation"])

    @property
    def final(self) -> bool:
        """Whether the ledger was closed, and is composed with what it began from; else at least this was spent."""
        return bool(self.document["status"] == "closed") and not any(uncomposed(self.document))

    @property
    def private(self) -> bool:
        """Whether it claims privacy at all: not for reproducible runs."""
        return not self.document["seeded"]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON object, all of it or nothing."""
        write_whole(path, indented(dict(self.document)))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Certificate:
        """Read what ``save`` wrote. Nothing is checked but the format: see ``verify``."""
        with regular(path).open("rb") as file:
            if file.read(len(LEDGER)) == LEDGER:
                raise PrivcalcError(
                    f"path = {str(path)!r}: is a ledger; name its certificate first, and ledgers after it"
                )
        document = read_json(named(path))
        if document.get("format") != FORMAT or document.get("version") not in READ:
            found = f"{document.get('format')!r}, version {document.get('version')!r}"
            raise PrivcalcError(
                f"path = {str(path)!r}: must be a {FORMAT} of version {' or '.join(map(str, READ))}, not {found}"
            )
        return cls(document)

    def verify(
        self,
        *ledgers: str | os.PathLike[str] | Ledger,
        seconds: float = SECONDS,
        rigorous: bool = False,
        public: Mapping[str, object] | None = None,
    ) -> tuple[str, ...]:
        """Check every statement again, and prove ε in ball arithmetic.

        That shares no code with the engine that claimed it.

        Args:
            ledgers: the ledger it was made from, to check that too; of a composition those of all its parts, in any
                order.
            seconds: most seconds that this may take, in a process of its own that is stopped then, and has a limit of
                memory (half a second goes to its start); at ∞ the check runs in this process, without a limit.
            rigorous: whether every claim of ε must be proved; else those that could not be decided in time are named.
            public: public data by the names that the certificate gives them, to check that they are those it is about.

        Returns:
            The verdict on the guarantee, VERIFIED or UNDECIDED, in a sentence; then what was confirmed, line by line.

        Raises:
            NotConfirmed: if nothing was found wrong, but not everything could be confirmed within the limits, or from
                this file: a composition of version 2 does not contain its parts.
            Contradiction: with the reason, if a claim is smaller than the truth, or something does not fit.
            OSError: if a ledger cannot be read.
        """
        given = [_given(ledger) for ledger in ledgers]
        for path in given:
            if isinstance(path, str):
                with open(path, "rb"):
                    pass  # that it cannot be read is an error of its own; what it says may be a contradiction
        found = verify.in_time(self.document, given, seconds=seconds, rigorous=rigorous)
        if public is None:
            return found
        with wrong_form():
            return (*found, *same(self.document["parts"] or [self.document], public))

    def prove(self, progress: Callable[[str], None] | None = None) -> Certificate:
        """This certificate, with a record of which of its claims of ε were proved in ball arithmetic (:func:`prove`).

        Args:
            progress: called with a line of text now and then.

        Raises:
            Contradiction: if a claim is refuted.

        Example:
            >>> import privcalc as pc
            >>> certificate = pc.certify(pc.Gaussian(noise_multiplier=20.0) * 206, delta=1e-5)
            >>> certificate.prove().document["confirmed"][0]["route"]
            'ball arithmetic'
        """
        proofs = prove_certificate(self.document, progress)
        for proof in proofs:
            if proof.verdict == "refuted":
                raise Contradiction(
                    f"epsilon = {proof.epsilon!r} at delta = {proof.delta!r}: is refuted, δ(ε) ≥ {proof.lower!r}"
                )
        return self.proved((proof.epsilon, proof.delta) for proof in proofs if proof)

    def proved(self, claims: Iterable[tuple[float, float]]) -> Certificate:
        """This certificate, with a record that these of its claims (ε, δ) were proved, which ``verify`` does again."""
        relied = list(pages_of_proof(self.run, self.relation))
        confirmed = [
            {"route": PROVED, "epsilon": epsilon, "delta": delta, "pages": relied} for epsilon, delta in claims
        ]
        document = {**self.document, "confirmed": confirmed}
        return Certificate({**document, "hash": digest(document)})

    def replayed(self, *reports: Report) -> Certificate:
        """Add what was replayed, on what, and with what outcome: whoever adds it says so. No guarantee.

        Args:
            reports: of :func:`privcalc.attacks.replay.replay`. Numbers that depend on the data are left out.

        Raises:
            PrivcalcError: if there is none, or this is a composition: replay is of a part.
        """
        if not reports or not all(isinstance(report, Report) for report in reports):
            raise PrivcalcError(f"reports = {reports!r}: must be what attacks.replay.replay returned, one at least")
        if self.document["basis"] == "composed":
            raise PrivcalcError("replayed: must be said of the certificates that were composed, not of the composition")
        sections = [*self.document.get("replayed", []), *(report.section for report in reports)]
        document = {**self.document, "replayed": sections}
        return Certificate({**document, "hash": digest(document)})

    def __repr__(self) -> str:
        """A short line; ``document`` is all of it, and ``print`` shows it to people."""
        try:
            return f"Certificate({self.guarantee})"
        except PrivcalcError:
            return "Certificate(no form that is known)"

    def _card(self) -> tuple[str, dict[str, object]]:
        with wrong_form():
            state = "CHANGED after it was made" if changed(self.document) else "not checked: verify() checks it"
        return repr(self), {"state": state, "one record": self.document.get("unit")}

    def _more(self) -> str:
        return str(self)

    def plot(self) -> Figure:
        """The trade-off curve of what ran, with the points that are certified; needs matplotlib."""
        from privcalc.pictures.curves import tradeoff

        points = [(float(p["alpha"]), enclosure(p["beta"], self.relation).lower) for p in self.document["beta"]]
        return tradeoff(self.run, relation=self.relation, points=points)

    def __str__(self) -> str:
        """For people (``privcalc show``)."""
        return show(self.document)


Source = str | os.PathLike[str] | Ledger | Mechanism | Run | Sequence[Certificate]


@suggests
def certify(
    source: Source,
    *,
    delta: float,
    relation: Relation | None = None,
    unit: str | None = None,
    not_accounted: Sequence[str] = (),
    assumptions: Assumptions | None = None,
) -> Certificate:
    """Make a certificate.

    Args:
        source: a ledger, or its file; a run, or the file of one that was described by hand
            (``{"format": "privcalc run", "version": 1, "relation": …, "unit": …, "run": […]}``, optionally with
            ``public``, ``not_accounted`` and ``assumptions``); or several certificates of runs on the same records, to
            compose.
        delta: δ of the guarantee; one that is not below 1/records is warned of, where their number is public.
        relation: for a run: its neighbouring relation, by default add-or-remove-one.
        unit: for a run: what one record is; by default "one person" if all that runs is ``UserSampled``, else "one
            record".
        not_accounted: for a run: what is known to be missing, in words.
        assumptions: for a run: what you declare of the process; what contradicts a proof is refused. All other sources
            have said these four themselves, and it is refused to say something else of them.

    Returns:
        A :class:`Certificate`. Of a closed ledger it is that of its plan or cap, or of what was recorded where the
        caller vouched for an output-independent end; of a ledger that was not closed it is open: at least this much. A
        closed ledger that recorded nothing is warned of, and the certificate says so: what ran may have forgotten it.

    Raises:
        PrivcalcError: if the source does not fit its hashes, charges more than it may, has no guarantee under its
            relation, or contains a ``Parallel`` of parts that were not declared disjoint.

    Example:
        >>> import privcalc as pc
        >>> one = pc.certify(pc.Gaussian(noise_multiplier=2.0), delta=1e-5)
        >>> both = pc.certify([one, one], delta=1e-5)
        >>> print(both.run, both.document["basis"])
        2 × Gaussian(noise_multiplier=2.0) composed
    """
    value = errors.delta("delta", delta)
    if isinstance(source, (Mechanism, Run)):
        said, asked = (
            Assumptions() if assumptions is None else assumptions,
            ADD_OR_REMOVE_ONE if relation is None else relation,
        )
        named = source.run.unit if unit is None else unit
        story = of_run(Terms(asked, named, source.run, None, None, {}, not_accounted, False, said))
    elif isinstance(source, (str, os.PathLike, Ledger)):
        story = of_given(_given(source))
    elif isinstance(source, Certificate):
        raise PrivcalcError(
            "source: is one certificate already; to compose it, give a list: pc.certify([certificate], …)"
        )
    elif not isinstance(source, Iterable) or not getattr(source, "ndim", 1):
        raise PrivcalcError(NO_SOURCE)
    else:
        story = of_parts(list(_parts(list(source))))
    if not isinstance(source, (Mechanism, Run)):
        _check_said(story, relation=relation, unit=unit)
        if not_accounted or assumptions is not None:
            name = "not_accounted" if not_accounted else "assumptions"
            raise PrivcalcError(
                f"{name}: is for a run; a ledger, a description or a certificate said it when it was made"
            )
    if story["basis"] == "declared":  # a ledger asked for it when it was opened, and again for what was recorded
        Assumptions.from_json(story["assumptions"]["declared"]).require(run_from_json(story["run"]))
    return _build(story, value)


def _check_said(story: Json, **asked: object) -> None:
    """Refuse to certify a source as something else than it is."""
    for name, value in asked.items():
        if value is not None and str(value) != story[name]:
            raise PrivcalcError(
                f"{name} = {value}: the source is about {story[name]!r}, which was said when it was made"
            )


def _given(source: str | os.PathLike[str] | Ledger) -> str | list[str]:
    """The path of a file, or the lines of a ledger in memory."""
    if not isinstance(source, Ledger):
        return os.fspath(source)
    journal = source.journal
    if journal.path is None:
        return [line.decode() for line in journal.memory]
    if not journal.in_place:
        raise PrivcalcError(
            f"path = {str(journal.path)!r}: is not what this ledger wrote, but another one of that name, or an older "
            "copy; what it drew is not in it"
        )
    return str(journal.path)


def _parts(certificates: Sequence[Certificate]) -> Iterator[Json]:
    """What a composition consists of: certificates that are none themselves, each of which fits itself."""
    if not certificates or not all(isinstance(part, Certificate) for part in certificates):
        raise PrivcalcError(NO_SOURCE)
    for certificate in certificates:
        document = dict(certificate.document)
        verify.fits(document)  # what does not fit its own hash is not composed
        yield from document["parts"] or [document]


def _build(story: Json, delta: float) -> Certificate:
    """Make a certificate of what is said: its numbers are computed here."""
    run, relation = run_from_json(story["run"]), relation_from_json(story["relation"])
    known = [part["public"].get("records") for part in (story, *story["parts"])]
    errors.check_delta(delta, *known, *(getattr(mechanism, "dataset_size", None) for mechanism, _ in run.entries))
    for line in doubts(story):
        errors.warn(line)
    numbers = void(delta) if private(story["assumptions"]) else claims(run, relation, delta)
    document = {"format": FORMAT, "version": VERSION, "privcalc": __version__, **story, **numbers, "confirmed": []}
    document["proofs"] = pages(document)
    return Certificate({**document, "hash": digest(document)})
