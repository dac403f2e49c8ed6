"""Assumptions for people, where a bare value is easily taken for something else (``proofs/assumptions.md``)."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["in_words"]

IN_WORDS = {
    (
        "sampling",
        "in turns",
    ): "in turns: each record is in steps that the run's participation allows, in no others, by its coins or secret places",
    ("clip_norm", "public"): (
        "public: chosen without looking at private records; each record's contribution was clipped to it, which no ledger sees, "
        "and is of that record alone: nothing was fitted to the others first (scalers, PCA, chosen columns, filled gaps)"
    ),
    ("parameters", "public"): (
        "public: noise, rates, numbers of records and of steps, and learning rates were chosen without looking at private records"
    ),
    ("normaliser", "public"): "public: sums are divided by constants, and not by a private number",
    ("parts", "any, each was charged"): "any, each choice was charged by itself",
    ("parts", "disjoint"): "disjoint: everything of one record or person is in one part",
    ("keys", "kept"): "kept: nobody counts for more keys than the mechanism says, nor twice for one",
    ("trials", "drawn"): (
        "drawn: how many were made is from the run's distribution, whatever the data; all were made, and alike; the score is of "
        "a trial's own private output; the best one only is released"
    ),
    ("labels", "public"): "public: none was read from private records (the certificate lists them)",
    ("rows_per_person", "kept"): "no person has more than rows_per_person rows (person= was not given)",
    ("other_releases", "none"): (
        "none: what else was released about these records, a repetition of this run too, is not counted; nor are trials of which "
        "this is the best (learners.PrivateSearch and pc.RandomTrials count them)"
    ),
    ("other_releases", "composed"): "composed: there are others, and only the composition of all certificates counts",
}
"""What people are told of values that are easily taken for something else."""


def in_words(entry: Mapping[str, str]) -> str:
    """An assumption that a certificate lists, for people: its name and its value."""
    return f"{entry['name']}: {IN_WORDS.get((entry['name'], entry['value']), entry['value'])}"
