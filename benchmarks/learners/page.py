"""The benchmark's page, from stored cells: tables with 95 % intervals, and each paper's claim beside what was found."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

import privcalc as pc
from benchmarks.learners.grid import ABLATED, FASHION, FASHION_MIXED, GRIDS, LEVELS, NEWS, NEWS_MIXED, PLAIN, Setting, unpacked
from benchmarks.learners.methods import BASELINES, DELTA, METHODS, PASSES

__all__ = ["difference", "interval", "page", "show", "table"]

Cells = Mapping[str, Mapping[str, Any]]
TRIALS = 20

HEAD = f"""# Learners on real data

Written by `python -m benchmarks.learners` from `learners.json`; do not edit. Test accuracy, mean ± half of a 95 % Student
interval over {{seeds}} seeds; a seed draws the split of the pool into private and public records, and the noise. Few seeds
give wide intervals. Seeds share most of their records, drawn from one pool, and all of the test records, so that these
intervals are for this pool and these records; those of differences below resample both. Every ε is certified:
add-or-remove-one, δ = {DELTA:g} (DPPL-Public: δ = 0). The number of private records counts as public.

Who is given what: labelled public records PPGD, AdaMix, warm DP-SGD, DOPE-SGD, PDA-DPMD and "WhitenedGD, labels"; unlabelled
ones PILLAR and WhitenedGD, for principal components, and DPPL-Public, as candidates (where there are none, those with labels,
as features); their mean all, as centre. DOPE-SGD with the public origin is warm DP-SGD but for what clipping around it
changes. "Only-Public" is ordinary training on the labelled public records alone: a learner that is given them and does not
beat it has gained nothing from the private ones. "probe" and "nearest mean" train on the private records without privacy; the
probe's weight decay is chosen by a held-out fifth of them.

Settings are the learners' defaults, frozen before these test records were read: from the papers, or by MNIST digits (the step
size; {PASSES} passes over the records, as large budgets need). Nothing was tuned for this page, for any learner: tuned ones
would do better, and would have to pay for it (below). Features: EfficientNet-Lite0 (1280 numbers) and MiniLM (384), centred
by a public mean, of norm 1. 20 Newsgroups comes in lower case without marks and digits; MiniLM reads the first 128 pieces of
words. PILLARSelection is for two classes, and not in these tables.
"""


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and half the width of its 95 % Student interval; ∞ from one value.

    Example:
        >>> mean, half = interval([0.5, 0.6, 0.7])
        >>> print(f"{mean:.3f} {half:.3f}")
        0.600 0.248
    """
    if len(values) < 2:
        return float(np.mean(values)), math.inf
    return float(np.mean(values)), float(student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5)


class Results:
    """Stored cells by setting, method and ε."""

    def __init__(self, cells: Cells) -> None:
        self._found: dict[tuple[str, str, float | None], dict[int, Mapping[str, Any]]] = {}
        for cell in cells.values():
            key = (cell["setting"], cell["method"], cell["epsilon"])
            self._found.setdefault(key, {})[cell["seed"]] = cell

    def values(self, setting: Setting, method: str, epsilon: float | None, what: str = "accuracy") -> dict[int, float]:
        """By seed."""
        level = None if method in BASELINES else epsilon
        cells = sorted(self._found.get((str(setting), method, level), {}).items())
        return {seed: cell[what] for seed, cell in cells if what in cell}

    def show(self, setting: Setting, method: str, epsilon: float | None, what: str = "accuracy") -> str:
        """As .812 ± .010, with the number of seeds where it is one."""
        return show(list(self.values(setting, method, epsilon, what).values()))

    def gain(
        self, one: tuple[Setting, str, float], two: tuple[Setting, str, float], what: str = "accuracy", comparisons: int = 1
    ) -> str:
        """The difference of two, seed by seed, with the interval of :func:`difference`."""
        first, second = self.values(*one, what), self.values(*two, what)
        seeds = [seed for seed in first if seed in second]
        rights = [self.right(*one), self.right(*two)]
        each = None
        if what == "accuracy" and all(seed in right for right in rights for seed in seeds) and seeds:
            each = np.mean([rights[0][seed].astype(float) - rights[1][seed] for seed in seeds], axis=0)
        return difference([first[seed] - second[seed] for seed in seeds], each, comparisons)

    def right(self, setting: Setting, method: str, epsilon: float | None) -> dict[int, NDArray[np.bool_]]:
        """Which test records were right, by seed; a few at the end are none."""
        level = None if method in BASELINES else epsilon
        cells = self._found.get((str(setting), method, level), {})
        return {seed: unpacked(cell["right"]) for seed, cell in cells.items() if "right" in cell}

    def mean(self, setting: Setting, method: str, epsilon: float) -> float:
        """Over the seeds; -∞ without any."""
        found = list(self.values(setting, method, epsilon).values())
        return float(np.mean(found)) if found else -math.inf

    def seeds(self) -> str:
        """How many seeds cells have, from the fewest to the most."""
        counts = {len(cells) for cells in self._found.values()} or {0}
        return " to ".join(str(count) for count in sorted({min(counts), max(counts)}))

    def any(self, settings: Sequence[Setting]) -> bool:
        """Whether something was run there."""
        return bool({str(setting) for setting in settings} & {key[0] for key in self._found})


def show(values: Sequence[float], *, sign: bool = False) -> str:
    """Mean and 95 % interval.

    Example:
        >>> show([0.5, 0.6, 0.7])
        '.600 ± .248'
        >>> show([-0.5, 20.5], sign=True)
        '+10.000 ± 133.415'
    """
    if not values:
        return ""
    mean, half = interval(values)
    shown = f"{mean:+.3f}" if sign else f"{mean:.3f}"
    return re.sub(r"\b0\.", ".", f"{shown} (one seed)" if math.isinf(half) else f"{shown} ± {half:.3f}")


def difference(values: Sequence[float], records: NDArray[np.float64] | None = None, comparisons: int = 1) -> str:
    """Mean and 95 % interval of paired differences, over seeds and over test records, each as if drawn anew.

    The variance is that of the seeds' mean plus that of the records' mean: no less than the true one where both are drawn,
    because each holds a part of what seeds and records do together. Student's quantile, for the number of seeds.

    Args:
        values: of each seed.
        records: of each test record, the mean over seeds of right or not; None leaves them as they are.
        comparisons: of which this is one, or the one that was picked (Bonferroni).

    Example:
        >>> difference([0.5, 0.6, 0.7])
        '+.600 ± .248'
        >>> difference([0.5, 0.6, 0.7], np.repeat([0.0, 1.0], 200))
        '+.600 ± .271'
        >>> difference([0.5, 0.6, 0.7], comparisons=10)
        '+.600 ± .813'
    """
    if len(values) < 2:
        return show(values, sign=True)
    variance = np.var(values, ddof=1) / len(values) + (0.0 if records is None else np.var(records) / len(records))
    half = float(student.ppf(1 - 0.025 / comparisons, len(values) - 1) * math.sqrt(variance))
    return re.sub(r"\b0\.", ".", f"{np.mean(values):+.3f} ± {half:.3f}")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown, without rows that have nothing; without a head, rows that go on a table.

    Example:
        >>> print(table(["a", "b"], [["x", "1"], ["y", ""]]))
        | a | b |
        |---|---|
        | x | 1 |
    """
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)] if head else []
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows if any(row[1:]))])


def page(cells: Cells) -> str:
    """All of it, in Markdown; a table for which nothing was run is left out."""
    results = Results(cells)
    parts = [HEAD.format(seeds=results.seeds())]
    for section in (_core, _ablation, _names, _shots, _imbalance, _shifted, _sizes, _large, _quick):
        parts += section(results)
    return "\n\n".join([*(part.strip() for part in parts), _tuning(), _claims(results), LEFT]) + "\n"


def _levels(results: Results, settings: Sequence[Setting], methods: Sequence[str], levels: Sequence[float]) -> list[str]:
    """A table per setting: methods down, ε across."""
    head = ["learner", "no ε", *(f"ε = {level:g}" for level in levels)]
    return [
        f"### {setting.title}\n\n" + table(head, _rows(results, setting, methods, levels))
        for setting in settings
        if results.any([setting])
    ]


def _rows(results: Results, setting: Setting, methods: Sequence[str], levels: Sequence[float], what: str = "") -> list[list[str]]:
    return [
        [what + name, results.show(setting, name, None), *[""] * len(levels)]
        if name in BASELINES
        else [what + name, "", *(results.show(setting, name, level) for level in levels)]
        for name in methods
    ]


def _core(results: Results) -> list[str]:
    (settings, methods, levels), ((pixels,), on_pixels, _) = GRIDS["core"]
    found = _levels(results, settings, methods, levels)
    if results.any([pixels]):
        found[0] += "\n" + table([], _rows(results, pixels, on_pixels, levels, "pixels: "))
    picture = "![Accuracy over ε of the core grid](learners.png)"
    return ["## Core grid", picture, *found, *_time(results)] if found else []


def _time(results: Results) -> list[str]:
    """How long the core grid took; nothing for cells of a version that did not measure."""
    (settings, methods, levels), ((pixels,), on_pixels, _) = GRIDS["core"]
    plans = [(setting, name) for setting in settings for name in methods] + [(pixels, name) for name in on_pixels]
    took = {
        plan: [
            seconds
            for level in ([None] if plan[1] in BASELINES else levels)
            for seconds in results.values(*plan, level, "seconds").values()
        ]
        for plan in plans
    }
    total = sum(sum(seconds) for seconds in took.values())
    rows = [
        [name, *(f"{np.median(took[setting, name]):.2g}" if took[setting, name] else "" for setting in settings)]
        for name in methods
    ]
    text = (
        f"Time: {sum(len(seconds) for seconds in took.values())} runs of the core grid in {total / 60:.0f} minutes, encoding "
        "not counted. Median seconds of one, with its plan and its certificate:"
    )
    return [text, table(["learner", *(f"{setting.source}, {setting.private:,}" for setting in settings)], rows)] if total else []


def _names(results: Results) -> list[str]:
    (settings, methods, levels) = GRIDS["names"][0]
    named = [name for name in methods if "names" in name]
    if not any(results.show(setting, name, level) for setting in settings for name in named for level in levels):
        return []
    text = (
        "## AdaMix from encoded class names\n\nFirst weights β·(encoded names), as the class list spells them: with the paper's "
        "β = 100, and with the β of 1, 3, 10, 30, 100 at which the names alone fit the labelled public records best."
    )
    return [text, *_levels(results, settings, methods, levels)]


def _imbalance(results: Results) -> list[str]:
    settings, methods, levels = GRIDS["imbalance"][0]
    if not results.any([setting for setting in settings if setting.imbalance > 1]):
        return []
    found = [
        "## Long-tailed classes\n\nAccuracy on all test records / on those of the smallest quarter of the classes. Class sizes "
        "n·e^{−cλ}, the classes in a random order for every seed, n the smallest there was; ratio 1 has all 10,000."
    ]
    for source in dict.fromkeys(setting.source for setting in settings):
        own = [setting for setting in settings if setting.source == source]
        rows = []
        for method in methods:
            for level in [None] if method in BASELINES else levels:
                cells = [
                    (results.show(s, method, level), results.show(s, method, level, "minority") if s.imbalance > 1 else "")
                    for s in own
                ]
                name = method if level is None else f"{method}, ε = {level:g}"
                rows.append([name, *(" / ".join(filter(None, pair)) for pair in cells)])
        found.append(f"### {source}\n\n" + table(["learner", *(f"ratio {s.imbalance:g}" for s in own)], rows))
    return found


def _ablation(results: Results) -> list[str]:
    settings, methods, levels = GRIDS["ablation"][0]
    if not any(results.show(setting, name, level) for setting in settings for name in ABLATED for level in levels):
        return []
    text = (
        "## What whitening, a small clip norm and a filter are worth\n\nWhitenedGD clips at C = 0.1, NoisyGD at 1, FilteredGD is "
        "NoisyGD in which a record leaves when it has spent its share (0.7) of the steps ([proof](../proofs/noisy_gd.md))."
    )
    found = [text, *_levels(results, settings, methods, levels)]
    rows = [
        [f"{one} − {two}", *("; ".join(_gains(results, setting, one, two, levels)) for setting in settings)]
        for one, two in (
            ("WhitenedGD", "NoisyGD, C = 0.1"),
            ("WhitenedGD", "WhitenedGD, C = 1"),
            ("NoisyGD, C = 0.1", "NoisyGD (Fully-Private)"),
            ("FilteredGD", "NoisyGD (Fully-Private)"),
        )
    ]
    head = ["paired differences", *(f"{setting.source}, {setting.private:,}" for setting in settings)]
    return [*found, table(head, rows)]


def _gains(results: Results, setting: Setting, one: str, two: str, levels: Sequence[float], what: str = "accuracy") -> list[str]:
    """By ε, where both were run."""
    gains = {level: results.gain((setting, one, level), (setting, two, level), what) for level in levels}
    return [f"{shown} (ε = {level:g})" for level, shown in gains.items() if shown]


def _shots(results: Results) -> list[str]:
    settings, methods, levels = GRIDS["shots"][0]
    found = _levels(results, settings, methods, levels)
    text = (
        "## As many public records of each class\n\nAdaMix's splits: 2 or 5 labelled public records of each class (Golatkar et "
        "al. 2022, §4), for features of Fashion-MNIST, and no others."
    )
    return [text, *found] if found else []


def _shifted(results: Results) -> list[str]:
    settings, methods, levels = GRIDS["shifted"][0]
    if not results.any(settings[1:]):
        return []
    rows = [
        [f"{method}, {'MNIST digits' if setting.shifted else 'own'}", *(results.show(setting, method, level) for level in levels)]
        for method in methods
        for setting in settings
    ]
    head = ["learner, public records", *(f"ε = {level:g}" for level in levels)]
    text = "Principal components and centre from MNIST digits, for Fashion-MNIST."
    return [f"## Shifted public records\n\n{text}\n\n{table(head, rows)}"]


def _sizes(results: Results) -> list[str]:
    wide, labelled = GRIDS["sizes"]
    if not results.any([setting for setting in wide[0] if setting.unlabelled != FASHION.unlabelled]):
        return []
    found = ["## Size of the public set"]
    for source in ("fashion", "news"):
        rows = []
        for settings, methods, levels in (wide, labelled):
            own = [setting for setting in settings if setting.source == source]
            for method in methods:
                for level in [None] if method in BASELINES else levels:
                    name = method if level is None else f"{method}, ε = {level:g}"
                    rows.append([name, *(results.show(setting, method, level) for setting in own)])
        found.append(f"### {source}, {FASHION.private} private\n\n" + table(["learner", "50", "200", "1000"], rows))
    return found


def _large(results: Results) -> list[str]:
    found = _levels(results, *GRIDS["large"][0])
    return ["## All of Fashion-MNIST", *found] if found else []


def _quick(results: Results) -> list[str]:
    found = _levels(results, *GRIDS["quick"][0])
    return ["## MNIST digits\n\nOn which the step size was chosen: no evidence, but quick.", *found] if found else []


def _tuning() -> str:
    """What it would cost to choose the best of some settings on private data."""
    trial = pc.calibrate(pc.Gaussian, epsilon=1.0, delta=DELTA)

    def best(noise: float) -> pc.RandomTrials:
        return pc.RandomTrials(pc.Gaussian(noise), mean=TRIALS, distribution="geometric")

    tuned = best(trial.parameter).epsilon(delta=DELTA).upper
    more = pc.calibrate(best, epsilon=1.0, delta=DELTA).parameter / trial.parameter
    return (
        "## What tuning would have cost\n\nTo release the best, by a score on the private records, of a random number of "
        f"settings (geometric, {TRIALS} expected), each of them full batch at ε = 1, is ({tuned:.2f}, {DELTA:g})-DP. To stay at "
        f"ε = 1, every one would need {more:.2f} times the noise. (`RandomTrials`, [proofs/tuning.md](../proofs/tuning.md).)"
    )


def _claims(results: Results) -> str:
    """Claimed, found, and why they differ."""
    full, mixed = "NoisyGD (Fully-Private)", [FASHION_MIXED, NEWS_MIXED]
    core, parents = [FASHION, FASHION_MIXED, NEWS, NEWS_MIXED], ["Only-Public", full]
    others = [name for name in PLAIN if not name.startswith("WhitenedGD")]
    without = [name for name in others if METHODS[name].public in {"unlabelled", "nothing"}]

    def gain(
        settings: Sequence[Setting], one: str, two: str, levels: Sequence[float] = (1.0, 3.0), what: str = "accuracy"
    ) -> str:
        parts = []
        for setting in settings:
            each = _gains(results, setting, one, two, levels, what)
            which = f"ratio {setting.imbalance:g}" if setting.imbalance > 1 else f"{setting.private:,}"
            parts += [f"{setting.source} ({which}): {', '.join(each)}"] if each else []
        return f"{one} − {two}{'' if what == 'accuracy' else ', ' + what}: {'; '.join(parts) or 'not run'}"

    def shift(level: float) -> str:
        there, here = (replace(FASHION, shifted=True), "PILLAR, k = 40", level), (FASHION, "PILLAR, k = 40", level)
        return f"{results.gain(there, here) or 'not run'} (ε = {level:g})"

    tail = [replace(FASHION, imbalance=50.0), replace(NEWS, imbalance=50.0)]
    names, public, both = "AdaMix, names (β = 100)", "DPPL-Public (pure ε)", [FASHION, NEWS]

    def best(default: str, others: Sequence[str], settings: Sequence[Setting] = core) -> str:
        """One learner beside the best of others, of which there are so many."""
        parts = []
        for setting in settings:
            for level in LEVELS:
                name = max(others, key=lambda other: results.mean(setting, other, level))
                shown = results.gain((setting, default, level), (setting, name, level), comparisons=len(others))
                parts += [f"{setting.source} ({setting.private:,}): {shown} (ε = {level:g}, {name})"] if shown else []
        return f"{default} − best: {'; '.join(parts) or 'not run'}"

    found = [
        [best("WhitenedGD, labels", ["Only-Public", *others]), best("WhitenedGD", without)],
        [best("WhitenedGD, labels", parents)],
        [best("AdaMix", parents)],
        [gain(mixed, "AdaMix", "Only-Public"), gain(mixed, "AdaMix, projected", "Only-Public")],
        [gain([NEWS, NEWS_MIXED], names, full), gain([NEWS, NEWS_MIXED], names, "AdaMix")],
        [gain(both, "PILLAR, k = 40", full, LEVELS)],
        [gain(both, "JL, k = 40", full, LEVELS)],
        ["PILLAR, digits − own: " + ", ".join(shift(level) for level in LEVELS)],
        [gain(mixed, "DOPE-SGD", "PPGD"), gain(mixed, "DOPE-SGD", "Only-Public")],
        [gain(mixed, "PDA-DPMD", "PPGD"), gain(mixed, "PDA-DPMD", "Only-Public")],
        [
            gain(tail, public, "DP-SGD", LEVELS),
            gain(tail, public, "DP-SGD", LEVELS, "minority"),
            gain(tail, "DPPL-Mean", "DP-SGD", LEVELS, "minority"),
        ],
    ]
    rows = [[claimed, "<br>".join(lines), why] for (claimed, why), lines in zip(CLAIMS, found, strict=True)]
    return f"## What the papers claim, and what was found\n\n{DIFFERENCES}\n\n" + table(
        ["claimed", "found", "why they differ"], rows
    )


LEFT = """## What is not here

* All 58,800 records of Fashion-MNIST that are not public, to be set beside published figures: `--grid large`. On two cores
  48,800 pictures take most of an hour to encode, and the grid some hours for each seed.
* Networks from nothing on CIFAR-10 and EMNIST, and texts by networks (PDA-DPMD, Table 1; DOPE-SGD, Tables 1 to 6): for linear
  models the rows above, and `few-public`; for a small network `dope-2` and `dope-5`.
* DPPL's other encoders, projection and public distributions (Figs. 6 to 8); classes that are long-tailed are above, several
  prototypes and fewer candidates in `dppl-9` and `dppl-11`.
* Users (`dope-users`), AdaMix's parts (`adamix-5`), another domain (`adamix-3`), pairs of classes (`pillar-3`,
  `pillar-selection`): `python -m benchmarks.figures NAME --images FOLDER --texts WHEEL`; pages are in `figures`."""

DIFFERENCES = (
    "Differences of accuracy, seed by seed, with 95 % intervals over seeds and test records, both as if drawn anew; beside the "
    "best of several, corrected for their number (Bonferroni). The reasons are our reading, not experiments."
)

CLAIMS = (
    (
        "none: the default learner, beside the best of the five papers and their baselines in each cell; with labelled public "
        "records, and without them beside those that need none",
        "Whitened public components, a small clip norm and a rule for steps; which is best in a cell was found on its own test "
        "records, so that differences to it are pessimistic",
    ),
    (
        "none: the default learner is 2 points above the better of Only-Public and Fully-Private at ε = 1, on Fashion-MNIST",
        "There is little room between the better of the two and the probe without privacy ([whitened.md](../proofs/whitened.md))",
    ),
    (
        "none: AdaMix is not worse than the better of its parents, Only-Public and Fully-Private, by more than the interval",
        "Its step size is in the unit of the clip norm; the paper has no such rule, and tunes",
    ),
    (
        "AdaMix (Golatkar et al. 2022, Table 1): errs less than Only-Public at ε = 1 and 3 on all six data sets (MIT-67: 43.58 % "
        "against 40.46 and 33.03 %)",
        "Projected as in the paper, the public gradient has rank at most classes − 1, so that only so many directions are learnt "
        "(most of the paper's 2000 are arbitrary); AdaMix is therefore run without; the paper has more private records and "
        "larger encoders",
    ),
    (
        "AdaMix (Fig. 4): class names improve significantly over a random start; a few public records do better still",
        "β = 100 is the scale of CLIP's logits; our steps, sized for starts near 0, hardly move so large a start",
    ),
    (
        "PILLAR (Pinto et al. 2024, §4.1): at ε = 0.1, k = 40 improves on the full dimension (CIFAR-10: 76.9 to 81.21 %)",
        "Noise grows with the dimension. At larger ε the directions left out cost more than their noise; the paper tunes k for "
        "each case, and counts replace-one neighbours with an accountant for add-or-remove",
    ),
    (
        "PILLAR (Table 1): a random projection is no better than the full dimension (ε = 0.7)",
        "It loses signal as evenly as noise; the paper tunes its dimension, here it is 40",
    ),
    (
        "PILLAR (Table 2): principal components from slightly shifted public records do as well",
        "Digits are no slight shift from clothes",
    ),
    (
        "DOPE-SGD (Nasr et al. 2023): up to 12.3 points over DP-SGD from the same public start (CIFAR-10)",
        "Linear models on frozen features; the sound origin; DP-SGD's own clip norm, where the paper tunes 3,360 settings; no "
        "generated images",
    ),
    (
        "PDA-DPMD (Amid et al. 2022): better than DP-SGD from the same public start",
        "200 public records fix few directions of the mirror map; the paper has 4 % of a larger set, and tunes",
    ),
    (
        "DPPL (Wahdany et al. 2024, Figs. 2, 4, 5): under imbalance DPPL-Public beats linear probing by DP-SGD at every ε, and "
        "the prototypes have the best minority accuracy",
        "Candidates are 5,000 digits or 1,000 posts here, 1.28 million photographs there; encoders are smaller, classes fewer",
    ),
)
"""What is claimed, and why what we found may differ; in the order of :func:`_claims`."""
