"""What a certificate says of a replay, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KINDS = {
    "sensitivity": "what was released moved further than was declared: a record was not clipped, the clip norm "
    "is that of something else, batches are not drawn by coins, or what a record adds depends on the others",
    "absent": "a record that is not in the batch changed what was released",
    "interaction": "what one record adds to a sum depends on another record, as with batch normalisation, "
    "or clipping of a mean",
    "monotone": "scores that were declared monotone rose and fell",
    "control flow": "which releases there are, or their parameters or shapes, depends on a record: a number of steps, "
    "a schedule, a clip norm, a shape",
    "output": "what is returned depends on a record although all releases were the same: something leaves without "
    "noise, such as a private number of records, a statistic of a layer, a parameter",
    "refusal": "the run fails, or does not, because of a record, as with values that are not finite; "
    "whether it did is an output",
}
"""What may be found, and what it means."""

NO_GUARANTEE = "a replay shows the violations that it finds; that it found none is no guarantee (proofs/replay.md)"

STOPPED = (
    "each run was ended after these releases: what came later, and what is returned, was not looked at; " + NO_GUARANTEE
)
"""The note of a replay that was asked for the first releases alone, if a run has as many."""


def told(section: Mapping[str, Any]) -> str:
    """A section of a certificate, for people."""
    outcome = f"FOUND: {', '.join(section['found'])}" if section["found"] else "found nothing"
    return (
        f"{section['process']}, {section['releases']} releases, with and without each of {len(section['added'])} "
        f"records ({', '.join(section['added'])}), {section['relation']}: {outcome}; {section['note']}"
    )
