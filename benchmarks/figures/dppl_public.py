"""DPPL paper, Figures 9 and 11: several prototypes per class, and how many public records they are chosen from."""

from __future__ import annotations

from benchmarks.figures import curves
from benchmarks.figures.figure import Figure, Given, Rows
from benchmarks.figures.means import CLEARLY, seeds
from benchmarks.learners.grid import FASHION, NEWS, task_of
from benchmarks.learners.methods import METHODS, Method
from learners.dppl_public import DPPLPublic

__all__ = ["FIGURES"]

SOURCES = {"fashion": FASHION, "news": NEWS}
LEVELS = (0.1, 0.3, 1.0, 3.0, 10.0)
PROTOTYPES = (1, 2, 5, 10, 20)
CANDIDATES = (50, 100, 200, 500, 1000)
ONE, MEAN = "K = 1", "DPPL-Mean"


def compute_prototypes(given: Given) -> Rows:
    """A row per run: source, K or the mean, ε, seed, accuracy."""
    rows = []
    wanted = [(name, seed) for name in SOURCES for seed in range(given.seeds)]
    for name, seed in given.watch(wanted, len(wanted)):
        task = task_of(SOURCES[name], given.source(name), seed)
        methods = {f"K = {k}": Method(DPPLPublic, {"k": k}, "unlabelled") for k in PROTOTYPES} | {MEAN: METHODS[MEAN]}
        for learner, method in methods.items():
            for epsilon in LEVELS:
                found = method.fit(task, epsilon, seed, given.device).score(*task.test)
                rows.append(
                    {"source": name, "learner": learner, "epsilon": epsilon, "seed": seed, "accuracy": round(found, 6)}
                )
    return rows


def tell_prototypes(rows: Rows) -> str:
    """K prototypes beside one, and beside the mean."""
    most = f"K = {max(PROTOTYPES)}"
    return (
        f"**Found:** {curves.beside(rows, most, ONE, 'epsilon', 'ε')} "
        f"{curves.beside(rows, most, MEAN, 'epsilon', 'ε')}\n\n{FASHION.private:,} private records, "
        f"{FASHION.unlabelled:,} unlabelled public ones as candidates; DPPL-Public with K prototypes per class, drawn "
        f"as one set, is pure ε; DPPL-Mean has δ = 1e-5. Defaults. Means and 95 % Student intervals over {seeds(rows)} "
        f"seeds. {CLEARLY}\n\n{curves.tables(rows, 'epsilon', 'ε')}"
    )


def compute_candidates(given: Given) -> Rows:
    """A row per run: source, ε, how many candidates, seed, accuracy."""
    rows = []
    wanted = [(name, seed) for name in SOURCES for seed in range(given.seeds)]
    for name, seed in given.watch(wanted, len(wanted)):
        task = task_of(SOURCES[name], given.source(name), seed)
        for size in CANDIDATES:
            for epsilon in LEVELS:
                fewer = task._replace(unlabelled=task.unlabelled[:size])
                found = Method(DPPLPublic, {}, "unlabelled").fit(fewer, epsilon, seed, given.device).score(*task.test)
                key = {"source": name, "learner": f"ε = {epsilon:g}", "epsilon": epsilon, "size": size, "seed": seed}
                rows.append({**key, "accuracy": round(found, 6)})
    return rows


def tell_candidates(rows: Rows) -> str:
    """The most candidates beside the fewest."""
    sizes = sorted({row["size"] for row in rows})
    ends = [{**row, "learner": f"{row['size']} candidates"} for row in rows if row["size"] in (sizes[0], sizes[-1])]
    found = curves.beside(ends, f"{sizes[-1]} candidates", f"{sizes[0]} candidates", "epsilon", "ε")
    return (
        f"**Found:** {found}\n\n{FASHION.private:,} private records; the first of {FASHION.unlabelled:,} unlabelled "
        "public records are the candidates, where the paper has 1,281,167. Means and 95 % Student intervals over "
        f"{seeds(rows)} seeds. {CLEARLY}\n\n{curves.tables(rows, 'size', 'candidates')}"
    )


FIGURES = (
    Figure(
        "dppl-9",
        "Figure 9 of the DPPL paper: several prototypes per class",
        "DPPL-Public with the top K public prototypes per class lies between DPPL-Mean and DPPL-Public with one "
        "(Wahdany et al. 2024, §5.3, Appendix C.3).",
        3,
        compute_prototypes,
        lambda rows: curves.draw(rows, "epsilon", "ε"),
        tell_prototypes,
    ),
    Figure(
        "dppl-11",
        "Figure 11 of the DPPL paper: how many public records prototypes are chosen from",
        "accuracy grows with the number of public samples in all cases, and seems to approach a maximum on CIFAR-10 "
        "and STL-10 (Wahdany et al. 2024, Appendix C.1).",
        3,
        compute_candidates,
        lambda rows: curves.draw(rows, "size", "candidates"),
        tell_candidates,
    ),
)
