"""Table 7 of the DOPE-SGD paper: users with several records each, a few of whom are public."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import privcalc as pc
from benchmarks.figures import curves
from benchmarks.figures.figure import Figure, Given, Rows
from benchmarks.figures.means import CLEARLY, seeds
from benchmarks.learners.grid import FASHION_MIXED, task_of
from benchmarks.learners.methods import DELTA
from learners.data.sources import Data
from learners.data.tasks import Task
from learners.dope import DOPESGD
from learners.dpsgd import DPSGD
from learners.frame.learner import Learner

__all__ = ["FIGURES"]

USERS, PUBLIC, EACH = 1_000, 20, 10
"""Private and public users (2 %), and records of each."""
LEVELS = (0.5, 1.0, 2.0, 4.0)
RATE, STEPS, CLIP_NORM = 0.1, 100, 0.1


@dataclass(frozen=True)
class Way:
    """How users are trained on.

    Attributes:
        settings: of :class:`DOPESGD`; None for ``DPSGD`` whose records are drawn one by one.
        everyone: whether public users are protected, too.
    """

    settings: dict[str, Any] | None
    everyone: bool = False


WAYS = {
    "DP-SGD (all)": Way({"origin": "none"}, everyone=True),
    "DP-SGD (only private)": Way({"origin": "none", "extended": True}),
    "DOPE-SGD": Way({}),
    "DP-SGD, records drawn one by one": Way(None),
}


def fit(task: Task, way: Way, epsilon: float, seed: int, device: str) -> Learner:
    """One run; all start from 0."""
    own, shared = task.private, task.public
    if way.everyone:
        own = Data(np.concatenate([own.X, shared.X]), np.concatenate([own.y, shared.y]))
    users = len(own.y) // EACH
    common: dict[str, Any] = {
        **{"classes": task.classes, "epsilon": epsilon, "delta": DELTA, "steps": STEPS, "clip_norm": CLIP_NORM},
        **{"seed": seed, "device": device},
    }
    if way.settings is None:
        drawn = DPSGD(
            **common, records=len(own.y), sampler=lambda release: pc.UserSampled(release, rate=RATE, records=EACH)
        )
        return drawn.fit(own.X, own.y, persons=np.repeat(np.arange(users), EACH))
    model = DOPESGD(**common, records=users, sample_rate=RATE, start="cold", **way.settings)
    given = () if way.everyone else (shared.X, shared.y)
    return model.fit(own.X.reshape(users, EACH, -1), own.y.reshape(users, EACH), *given)


def compute(given: Given) -> Rows:
    """A row per run."""
    rows = []
    setting = replace(FASHION_MIXED, private=USERS * EACH, public=PUBLIC * EACH)
    for seed in given.watch(range(given.seeds), given.seeds):
        task = task_of(setting, given.source("fashion"), seed)
        for name, way in WAYS.items():
            for epsilon in LEVELS:
                found = fit(task, way, epsilon, seed, given.device).score(*task.test)
                rows.append(
                    {
                        "source": "fashion",
                        "learner": name,
                        "epsilon": epsilon,
                        "seed": seed,
                        "accuracy": round(found, 6),
                    }
                )
    return rows


def tell(rows: Rows) -> str:
    """DOPE-SGD beside both baselines, and what sampling records costs users."""
    names = list(WAYS)
    found = " ".join(curves.beside(rows, "DOPE-SGD", other, "epsilon", "ε") for other in (*names[:2], names[3]))
    return (
        f"**Found:** {found}\n\nFeatures of Fashion-MNIST; {USERS:,} private and {PUBLIC} public users of {EACH} "
        "records, dealt out at random as in the paper. What is protected is a user: batches are of users, each with "
        f"probability {RATE:g}, and a user's mean gradient is clipped to {CLIP_NORM:g}; {STEPS} steps from 0, "
        f"δ = {DELTA:g}. "
        '"(all)": public users are protected as well; "(only private)": their records take part without noise. "One by '
        f'one": DP-SGD of records, each in a batch by a coin of its own, with the exact guarantee for a person of '
        f"{EACH} records (`UserSampled`, proofs/users.md), the price of not clipping per user. All ε are certified for "
        f"users. Means and 95 % Student intervals over {seeds(rows)} seeds. {CLEARLY} The paper "
        "has 70,000 users of EMNIST and a network.\n\n"
        f"{curves.tables(rows, 'epsilon', 'ε')}"
    )


FIGURES = (
    Figure(
        "dope-users",
        "Table 7 of the DOPE-SGD paper: users",
        "from a cold start, with 2 % of the users of EMNIST public, DOPE-SGD has 84.7 to 87.1 % at ε = 0.5 to 4, "
        "DP-SGD on all users 82.2 to 86.2 %, DP-SGD with noise for private users only 83.1 to 86.4 % (Nasr et al. "
        "2023, §4, Table 7).",
        3,
        compute,
        lambda rows: curves.draw(rows, "epsilon", "ε"),
        tell,
    ),
)
