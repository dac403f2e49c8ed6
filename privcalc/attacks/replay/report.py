"""What a replay found, in words, for people and for a certificate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from privcalc.attacks.replay.findings import Finding

__all__ = ["NO_GUARANTEE", "Report", "told"]

NO_GUARANTEE = "a replay shows the violations that it finds; that it found none is no guarantee (proofs/replay.md)"


@dataclass(frozen=True)
class Report:
    """The outcome of a replay: which process and data were replayed, and what differed. No guarantee. No guarantee.

    Attributes:
        process: the name of what was run.
        relation: the neighbouring relation.
        records: how many records the data have.
        added: the records that were added to them, or put in another's place.
        releases: how many releases a run has.
        largest: the largest share of a declared bound by which a release moved; at most 1 where no bound was passed.
        findings: what was found; the worst of each kind at each place.
    """

    process: str
    relation: str
    records: int
    added: tuple[str, ...]
    releases: int
    largest: float
    findings: tuple[Finding, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of what was found."""
        return tuple(dict.fromkeys(finding.kind for finding in self.findings))

    @property
    def section(self) -> dict[str, Any]:
        """The section of a certificate about this replay, with no number that depends on the data.

        See :meth:`privcalc.Certificate.replayed`.
        """
        return {
            "process": self.process,
            "relation": self.relation,
            "added": list(self.added),
            "releases": self.releases,
            "found": list(self.kinds),
            "note": NO_GUARANTEE,
        }

    def __str__(self) -> str:
        moved = f"releases moved by at most {self.largest:.4g} of what was declared"
        said = [f"{self.process}: {self.releases} releases on {self.records} records under {self.relation}; {moved}"]
        said += [f"  {finding}" for finding in self.findings] or [f"  nothing found with {len(self.added)} records"]
        return "\n".join([*said, f"  ({NO_GUARANTEE})"])


def told(section: Mapping[str, Any]) -> str:
    """A section of a certificate, for people."""
    outcome = f"FOUND: {', '.join(section['found'])}" if section["found"] else "found nothing"
    return (
        f"{section['process']}, {section['releases']} releases, with and without each of {len(section['added'])} "
        f"records ({', '.join(section['added'])}), {section['relation']}: {outcome}; {section['note']}"
    )
