"""Figure 3 of the AdaMix paper: realised ε of every record, and public records from another domain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.figures.figure import Figure, Given, Rows, values
from benchmarks.figures.means import CLEARLY, band, distinct, seeds, where
from benchmarks.figures.mixed import EPSILON, ONLY, PARAGON, SETTINGS, error, tasks, without_privacy
from benchmarks.learners.grid import MIXED, Source
from benchmarks.learners.methods import DELTA, METHODS
from benchmarks.learners.results import show, table
from learners.data.features import encode, unit_rows
from learners.data.sources import Data, split
from learners.data.tasks import Task, plain_weights

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

__all__ = ["FIGURES", "domains", "sorted_losses"]

SHARES = np.linspace(0, 1, 201)
"""Which of the sorted records are stored, as shares."""
NEAR = 0.9
"""A record counts as near the target whose realised ε is at least this share of it."""
LEVELS = (0.1, 0.3, 1.0, 3.0, 10.0)
PRIVATE, PUBLIC = 2_000, 200
ALONE, _, ADAMIX, _ = MIXED
SHIFTED = [MIXED[0], *MIXED[2:]]
"""Learners of the right panel."""
SAME, OTHER = "MNIST", "Optdigits"


def compute(given: Given) -> Rows:
    """Rows of two panels: "losses" have the sorted ε of a run, "shift" the error with public records of a domain."""
    total = given.seeds * (len(SETTINGS) * len(MIXED) + 2 * (2 + len(SHIFTED) * len(LEVELS)))
    return list(given.watch(_runs(given), total))


def _runs(given: Given) -> Iterator[dict[str, Any]]:
    for setting, seed, task in tasks(given):
        for method in MIXED:
            yield {
                **{"panel": "losses", "source": setting.source, "method": method, "seed": seed, "epsilon": EPSILON},
                "losses": sorted_losses(task, method, seed, given.device),
            }
    yield from _shift(given)


def sorted_losses(task: Task, method: str, seed: int, device: str) -> list[float]:
    """Realised ε of records that play the private part, ascending, at :data:`SHARES`; at most the certified one."""
    public = tuple(task.public) if METHODS[method].public == "labelled" else ()
    model = (
        METHODS[method].make(task, EPSILON, seed, device).fit(task.private.X, task.private.y, *public, norms_every=1)
    )
    assert model.losses_ is not None
    return [round(float(one), 4) for one in model.losses_.quantiles(DELTA, SHARES)]


def optdigits() -> Data:
    """1,797 handwritten digits of 8 × 8 pixels, from scikit-learn: other writers, other resolution than MNIST."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return Data(np.round(found.images * (255 / 16)).astype(np.uint8), found.target)


def domains(digits: Source, other: Data, seed: int) -> dict[str, Task]:
    """Tasks that differ in their domain only, from which the public records and the centre are; all else is shared."""
    right, own = split(digits.pool, [PUBLIC, PRIVATE], seed)
    found = {}
    for name, part in ((SAME, right), (OTHER, split(other, [PUBLIC], seed)[0])):
        centre = part.X.mean(axis=0)
        rows = [unit_rows(data.X, centre) for data in (own, part, digits.test)]
        private, public, test = (Data(X, data.y) for X, data in zip(rows, (own, part, digits.test), strict=True))
        found[name] = Task(private, public, test, sorted(set(own.y.tolist())), rows[1], rows[1])
    return found


def _shift(given: Given) -> Iterator[dict[str, Any]]:
    digits, other = given.source("digits"), encode(optdigits(), device=given.device)
    for seed in range(given.seeds):
        for domain, task in domains(digits, other, seed).items():
            key = {"panel": "shift", "public": domain, "seed": seed}
            only = plain_weights(task.classes, [task.public], device=given.device)
            best = without_privacy(task, [task.private, task.public], given.device)
            yield {**key, "method": ONLY, "epsilon": None, "error": error(only, task)}
            yield {**key, "method": PARAGON, "epsilon": None, "error": error(best, task)}
            for level in LEVELS:
                for method in SHIFTED:
                    model = METHODS[method].fit(task, level, seed, given.device)
                    yield {**key, "method": method, "epsilon": level, "error": error(model.weights_, task)}


def _errors(rows: Rows, domain: str, method: str, epsilon: float | None) -> list[float]:
    return values(
        [row for row in rows if row["panel"] == "shift"], "error", public=domain, method=method, epsilon=epsilon
    )


def _losses(rows: Rows, name: str, method: str) -> list[list[float]]:
    return values([row for row in rows if row["panel"] == "losses"], "losses", source=name, method=method)


def draw(rows: Rows) -> Picture:
    """Sorted ε of each learner, and error against ε by where the public records come from."""
    from matplotlib.figure import Figure as Canvas

    names = distinct(rows, "source")
    picture = Canvas(figsize=(2 + 4 * (1 + len(names)), 3.8), layout="constrained")
    *panels, right = picture.subplots(1, 1 + len(names))
    for name, axes in zip(names, panels, strict=True):
        for number, method in enumerate(MIXED):
            band(axes, SHARES, np.transpose(_losses(rows, name, method)).tolist(), method, f"C{number}")
        axes.axhline(EPSILON, color="black", linestyle="--", linewidth=0.8, label="certified")
        axes.set(title=name, xlabel="records, sorted (share)", ylabel="realised ε", ylim=(0, 1.1 * EPSILON))
    panels[-1].legend(fontsize="x-small", loc="lower right")
    levels = sorted(level for level in distinct(rows, "epsilon") if level)
    for domain, colors in ((SAME, ("purple", "violet")), (OTHER, ("tab:blue", "tab:cyan"))):
        for method, color in zip(SHIFTED[1:], colors, strict=True):
            band(
                right,
                levels,
                [_errors(rows, domain, method, level) for level in levels],
                f"{method}, public: {domain}",
                color,
            )
        only = float(np.mean(_errors(rows, domain, ONLY, None)))
        right.axhline(only, color=colors[0], linestyle="--", linewidth=0.8, label=f"{ONLY}: {domain}")
    band(right, levels, [_errors(rows, OTHER, ALONE, level) for level in levels], "Fully-Private", "tab:gray")
    best = float(np.mean(_errors(rows, SAME, PARAGON, None)))
    right.axhline(best, color="green", linestyle=":", label=PARAGON)
    right.set(title=f"{SAME} digits", xscale="log", xlabel="ε", ylabel="test error", ylim=(0, None))
    right.legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return picture


def tell(rows: Rows) -> str:
    """How near the target the records are; and what a shift costs."""
    text, tables = "**Found:**\n\n", ""
    for name in distinct(rows, "source"):
        lines, median = [], {}
        for method in MIXED:
            runs = np.array(_losses(rows, name, method))
            median[method] = float(np.median(runs, axis=1).mean())
            lines.append(
                [
                    method,
                    *(show(runs[:, int(place * (len(SHARES) - 1))].tolist()) for place in (0, 0.1, 0.5, 0.9, 1)),
                    show((runs >= NEAR * EPSILON).mean(axis=1).tolist()),
                ]
            )
        head = ["learner", "smallest", "10 %", "median", "90 %", "largest", f"share ≥ {NEAR:g}·{EPSILON:g}"]
        tables += f"### Realised ε at the certified ε = {EPSILON:g}: {name}\n\n{table(head, lines)}\n\n"
        order = sorted(MIXED, key=median.__getitem__, reverse=True)
        side = "above" if median[ADAMIX] > median[ALONE] else "not above"
        text += f"- {name}: the median realised ε with AdaMix is {side} that of fully private training. Means: "
        text += ", ".join(f"{method} {median[method]:.2f}" for method in order) + ".\n"
    levels = sorted(level for level in distinct(rows, "epsilon") if level)
    for method in SHIFTED[1:]:
        text += f"- {method} with public records from {OTHER}, its accuracy at ε"
        for name, domain, other in (
            ("Only-Public of that domain", OTHER, ONLY),
            ("Only-Public of the right domain", SAME, ONLY),
            ("Fully-Private", OTHER, ALONE),
            ("itself with public records of the right domain", SAME, method),
        ):
            gains = {}
            for level in levels:
                theirs = _errors(rows, domain, other, None if other == ONLY else level)
                ours = _errors(rows, OTHER, method, level)
                gains[f"{level:g}"] = [a - b for a, b in zip(theirs, ours, strict=True)]
            text += f" – beside {name}: {where(gains)}"
        text += ".\n"
    head = ["public records, learner", "no ε", *(f"ε = {level:g}" for level in levels)]
    lines = []
    for domain in (SAME, OTHER):
        for method in (ONLY, PARAGON):
            lines.append([f"{domain}, {method}", show(_errors(rows, domain, method, None)), *[""] * len(levels)])
        for method in SHIFTED:
            lines.append([f"{domain}, {method}", "", *(show(_errors(rows, domain, method, level)) for level in levels)])
    return (
        f"{text.strip()}\n\n{NOTE.format(seeds=seeds(rows), clearly=CLEARLY, private=PRIVATE, public=PUBLIC)}{tables}"
        f"### Test error on {SAME} digits\n\n{table(head, lines)}\n"
    )


NOTE = """*Realised ε* is that of the T Gaussian steps at the norms that a record's clipped and projected gradients
really had, at δ = 1e-5 under add-or-remove-one. It depends on the private records: it must not be shown to anyone
but the record itself, and it is no guarantee, for nobody knew it beforehand (the paper's Proposition 14 is false as
a claim before the run: `proofs/adamix.md`). It is printed here only because all these records are public, and play
the private part. The guarantee of every record is the certified ε. A realised ε near it says that norms are near
the clip norm, not that a record is better or worse protected: projecting makes contributions shorter than the clip
norm, and adds as much noise to each direction as before. `privcalc.IndividualFilter` makes a guarantee of such
norms.

*Another domain*: the paper's are photographs and paintings. Ours are handwritten digits: {private:,} private MNIST
digits, and {public} labelled public ones from MNIST, or from Optdigits (8 × 8 pixels, other writers), which then
also give the centre of the features. The rule for the step size of all learners was chosen on MNIST digits
(proofs/noisy_gd.md); 400 steps. Means and 95 % Student intervals over {seeds} seeds. {clearly}

"""

FIGURES = (
    Figure(
        "adamix-3",
        "Figure 3 of the AdaMix paper: ε of single records, and another domain",
        "at ε = 3 the ε of most samples is close to 3 with AdaMix, further from it with fully private training; with "
        "public images of another domain AdaMix is far better than these alone, and near the limit without privacy at "
        "large ε (Golatkar et al. 2022, §4.1).",
        5,
        compute,
        draw,
        tell,
    ),
)
