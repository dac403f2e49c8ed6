"""Classic bugs, and errors of five papers on learning with public data, planted; and what catches each.

Each bug is a simulation with a claim of the accountant. The attack must refute the claim for the code with the bug, and
must not for the code without. Errors that only a calculation shows are caught by tests, whose names are in
``CAUGHT_BY_TESTS``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planted.batches import BATCHES
from planted.bug import LEARNERS, Bug
from planted.choices import CHOICES
from planted.floats import FLOATS
from planted.papers import PAPERS
from planted.sums import SUMS
from privcalc.attacks.scores import from_scores

__all__ = ["BUGS", "CAUGHT_BY_TESTS", "Bug", "Verdict", "verdict"]

DELTAS = (0.0, 1e-5, 1e-3, 1e-2, 0.1, 0.7)
CONFIDENCE = 1 - 1e-6
SIZE = 60_000

BUGS = (*SUMS, *BATCHES, *FLOATS, *CHOICES, *PAPERS)


@dataclass(frozen=True)
class Verdict:
    """What the attack found.

    Attributes:
        caught: whether the claim is refuted for the code with the bug.
        false_alarm: whether it is refuted for the code without.
        delta: δ at which the most was shown beyond the claim.
        shown: the lower bound of ε there.
        claimed: the claim.
    """

    caught: bool
    false_alarm: bool
    delta: float
    shown: float
    claimed: float


CAUGHT_BY_TESTS = {
    "clip by coordinate": LEARNERS + "clip_by_coordinate",
    "Gumbel noise in doubles": "noise/test_choice.py::test_candidates_far_behind_are_chosen_as_rarely_as_they_should",
    "batch normalisation": LEARNERS + "batch_normalisation",
    "noise without the clip norm": LEARNERS + "noise_without_the_clip_norm",
    "AdaMix, Propositions 2, 5, 9: ρ = T²/(2σ²)": "house/test_papers.py::test_adamix_rho",
    "AdaMix, Theorem 3: λ, constants": "learners/test_learner_theorem.py",
    "DOPE-SGD: printed update, replace-one": "learners/test_dope.py::test_printed_updates_break_the_claim_ours_do_not",
    "DPPL Top-K: C(y, K) sets of a rank": "house/test_papers.py::test_dppl_top_k_counts_sets_wrongly",
    "PILLAR, Algorithm 2: ε for ε² in σ²": "house/test_papers.py::test_pillar_noise",
    "PDA-DPMD: constant of σ²": "house/test_papers.py::test_mirror_descent_noise",
    "PDA-DPMD: printed (σ, ε) are Rényi bounds": "house/test_papers.py::test_mirror_descent_table",
}
"""Errors that are caught by a law or a calculation, and by which test."""


def verdict(bug: Bug, *, size: int = SIZE, seed: int = 0) -> Verdict:
    """Attack a bug, and the same code without it.

    Args:
        bug: one of ``BUGS``.
        size: runs in each world.
        seed: of the simulation.

    Returns:
        A :class:`Verdict`; wrong with probability at most 1e-6 where it says that a claim is refuted.

    Example:
        >>> found = verdict(BUGS[0])
        >>> found.caught, found.false_alarm
        (True, False)
    """
    claims = {delta: bug.claim.run.epsilon(delta=delta).upper for delta in DELTAS}
    excess: dict[bool, tuple[float, float, float]] = {}
    for planted in (True, False):
        rng = np.random.default_rng([seed, planted])
        worlds = [bug.sampler(rng, size, there, planted) for there in (True, False)]
        found = from_scores(*worlds, delta=DELTAS, confidence=CONFIDENCE, seed=seed)
        shown = {delta: found.epsilon(delta=delta) for delta in DELTAS}
        worst = max(DELTAS, key=lambda delta: shown[delta] - claims[delta])
        excess[planted] = (worst, shown[worst], claims[worst])
    delta, epsilon, claimed = excess[True]
    return Verdict(epsilon > claimed, excess[False][1] > excess[False][2], delta, epsilon, claimed)
