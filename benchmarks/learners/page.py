"""The benchmark's page, from stored cells: tables with 95 % intervals, and each paper's claim beside what was found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import privcalc as pc
from benchmarks.learners.claims import claims
from benchmarks.learners.compared import RULE, Figures
from benchmarks.learners.grid import ABLATED, FASHION, GRIDS, Setting
from benchmarks.learners.items import items
from benchmarks.learners.methods import BASELINES, DELTA, PASSES
from benchmarks.learners.results import Cells, Results, gains, table
from benchmarks.learners.tails import long_tails
from benchmarks.learners.taught import self_training
from benchmarks.learners.verdicts import verdicts

__all__ = ["page"]

TRIALS = 20

LEFT = """## What else is not here

* AdaMix's attack (Fig. 1, `adamix-1`), parts and percentiles (Figs. 5 and 7, `adamix-5`), another domain (`adamix-3`),
  users (`dope-users`), pairs of classes (`pillar-3`, `pillar-selection`):
  `python -m benchmarks.figures NAME --images FOLDER --texts WHEEL`; pages are in `figures`.
* Cells of optional grids that have no row above were not run, for want of hours: of `sizes` most learners that take
  labels, of `shots` some with 10,000, of `large` those that sample batches, and probe.
* Anything on a GPU: none was at hand. `--device cuda`, and `python -m benchmarks.learners.speed --device cuda`."""

TOP = f"""# Learners on real data

Written by `python -m benchmarks.learners` from `learners.json` and `figures`; do not edit.

## What the five papers claim: verdicts

{RULE}

Differences are of accuracy unless named otherwise; shown are how many are above, below and neither, then the
smallest and the largest. Settings are defaults that no test record chose; the papers tune. Features are of frozen
public encoders, models linear but where a network is named. Every interval is by itself: of twenty comparisons of
equals, one is clear by chance."""

HEAD = f"""## Method

Test accuracy, mean ± half of a 95 % Student interval (number of seeds, {{seeds}}); a seed draws the split of the pool
into private and public records, and the noise. Few seeds give wide intervals. Seeds share the pool (of 10,000 private
records nine in ten) and all test records, so that these intervals are for this pool and these records. Those of
differences below count other test records as well, but no other pool. Every ε is certified: add-or-remove-one, δ =
{DELTA:g} (DPPL-Public: δ = 0). The number of private records counts as public.

Who is given what: labelled public records "public start", AdaMix, warm DP-SGD, DOPE-SGD, PDA-DPMD and "WhitenedGD,
labels"; unlabelled ones PILLAR and WhitenedGD, with labels or without, for principal components, and DPPL-Public, as
candidates (where there are none, those with labels, as features); their mean all, as centre. Fully-Private sees the
private records alone; the AdaMix paper's sees the public ones, too, as if they were private. DOPE-SGD with the public
origin is warm DP-SGD but for what clipping around it changes: at C = 1 nothing. "Public start" is AdaMix without its
public gradient: `NoisyGD` from the public model, its clip norm the same quantile, taken once. "PPGD" is Wang and
Zhou's, full batch: noisy descent from 0, then reuse of its model by public records (`PPSGD`); "NGD" is AdaMix with the
fixed clip norm 1. "DP ridge" is one release of Σ x xᵀ and Σ x e_yᵀ; "DP-LS" is Mehta's, with one of each class, too.
"Only-Public" is ordinary training on the labelled public records alone: a learner
that is given them and does not beat it has gained nothing from the private ones. "probe" and "nearest mean" train on
the private records without privacy; the probe's weight decay is chosen by a held-out fifth of them.

Settings are the learners' defaults: from the papers, or chosen on MNIST digits – step sizes, {PASSES} passes over the
records, how centres of DPPL-Mean shrink, PDA-DPMD's curvature; of WhitenedGD the components, ridge, clip norm, steps
and decay, so that it had more of it: those that take no clip norm from public records have C = 1, with which NoisyGD
was not at its best on digits either. No value was read off these test records. But they are not unseen: an earlier
version of this page had both corpora, and what it showed (steps capped in the wrong unit, too few passes,
DPPL-Public's candidates) is why these rules were made. Tuned learners would do better, and would have to pay for it
(below). Features: EfficientNet-Lite0 (1280 numbers) and MiniLM (384), centred by a public mean, of norm 1. 20
Newsgroups comes in lower case without marks and digits; MiniLM reads the first 128 pieces of words. PILLAR's
Algorithm 2 is for two classes, and not in these tables.
"""


def page(cells: Cells, figures: Figures) -> str:
    """All of it, in Markdown; a table for which nothing was run is left out."""
    results = Results(cells)
    judged = verdicts(results, figures)
    found = table(["paper", "place", "claim", "verdict", "found", "seeds", ""], [verdict.row() for verdict in judged])
    parts = [TOP, found, HEAD.format(seeds=results.seeds())]
    for section in (_core, _ablation, _names, _shots, long_tails, self_training, _shifted, _sizes, _large, _quick):
        parts += section(results)
    return "\n\n".join([*(part.strip() for part in parts), _tuning(), claims(results), items(judged), LEFT]) + "\n"


def _levels(
    results: Results, settings: Sequence[Setting], methods: Sequence[str], levels: Sequence[float]
) -> list[str]:
    """A table per setting: methods down, ε across."""
    head = ["learner", "no ε", *(f"ε = {level:g}" for level in levels)]
    return [
        f"### {setting.title}\n\n" + table(head, _rows(results, setting, methods, levels))
        for setting in settings
        if results.any([setting])
    ]


def _rows(
    results: Results, setting: Setting, methods: Sequence[str], levels: Sequence[float], what: str = ""
) -> list[list[str]]:
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
    return ["## Core grid", picture, *_missing(results), *found, *_time(results)] if found else []


def _missing(results: Results) -> list[str]:
    """Which learners have no row, because they were not run since they changed."""
    settings, methods, levels = GRIDS["core"][0]
    without = {
        str(setting): [name for name in methods if not any(results.values(setting, name, level) for level in levels)]
        for setting in settings
        if results.any([setting])
    }
    names = dict.fromkeys(name for missing in without.values() for name in missing)
    text = "Not run with the learners as they are now, at least in some tables, and to be run by the command above: "
    return [f"{text}{', '.join(names)}."] if names else []


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
        f"Time: {sum(len(seconds) for seconds in took.values())} runs of the core grid in {total / 60:.0f} minutes, "
        "encoding not counted. Median seconds of one, with its plan and its certificate:"
    )
    return (
        [text, table(["learner", *(f"{setting.source}, {setting.private:,}" for setting in settings)], rows)]
        if total
        else []
    )


def _names(results: Results) -> list[str]:
    (settings, methods, levels) = GRIDS["names"][0]
    named = [name for name in methods if "names" in name]
    if not any(results.show(setting, name, level) for setting in settings for name in named for level in levels):
        return []
    text = (
        "## AdaMix from encoded class names\n\nFirst weights β·(encoded names), as the class list spells them: with "
        "the paper's β = 100, and with the β of 1, 3, 10, 30, "
        "100 at which the names alone fit the labelled public records best."
    )
    return [text, *_levels(results, settings, methods, levels)]


def _ablation(results: Results) -> list[str]:
    settings, methods, levels = GRIDS["ablation"][0]
    if not any(results.show(setting, name, level) for setting in settings for name in ABLATED for level in levels):
        return []
    text = (
        "## What whitening, a small clip norm and a filter are worth\n\nWhitenedGD clips at C = 0.1, NoisyGD at 1, "
        "FilteredGD is NoisyGD in which a record leaves when it has spent its share (0.7) of the steps "
        "([proof](../proofs/noisy_gd.md))."
    )
    found = [text, *_levels(results, settings, methods, levels)]
    rows = [
        [
            f"{one} − {two}",
            *(
                "; ".join(f"{gain} (ε = {e:g})" for e, gain in gains(results, s, one, two, levels).items())
                for s in settings
            ),
        ]
        for one, two in (
            ("WhitenedGD", "NoisyGD, C = 0.1"),
            ("WhitenedGD", "WhitenedGD, C = 1"),
            ("NoisyGD, C = 0.1", "NoisyGD (Fully-Private)"),
            ("FilteredGD", "NoisyGD (Fully-Private)"),
        )
    ]
    head = ["paired differences", *(f"{setting.source}, {setting.private:,}" for setting in settings)]
    return [*found, table(head, rows)]


def _shots(results: Results) -> list[str]:
    settings, methods, levels = GRIDS["shots"][0]
    found = _levels(results, settings, methods, levels)
    text = (
        "## As many public records of each class\n\nAdaMix's splits: 2 or 5 labelled public records of each class "
        "(Golatkar et al. 2022, §4), for features of Fashion-MNIST, and no others."
    )
    return [text, *found] if found else []


def _shifted(results: Results) -> list[str]:
    settings, methods, levels = GRIDS["shifted"][0]
    if not results.any(settings[1:]):
        return []
    rows = [
        [
            f"{method}, {'MNIST digits' if setting.shifted else 'own'}",
            *(results.show(setting, method, level) for level in levels),
        ]
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
    text = (
        "## All of Fashion-MNIST\n\nOf the 60,000 records 58,800 play the private part. None of the five papers has "
        "numbers for it. Published for 60,000 private records without public data or encoder, tuned, at ε = 3 and δ = "
        "1e-5: 86.0 % by a network from pixels, 89.7 % by a linear model on ScatterNet's features, which need no "
        "training, 89.0 % by a network on them (Tramèr and Boneh 2021, main results). What is missing was not run: "
        "every step sees all records."
    )
    return [text, *found] if found else []


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
        "## What tuning would have cost\n\nTo release the best, by a score on the private records, of a random number "
        f"of settings (geometric, {TRIALS} expected), each of them full batch at ε = 1, is ({tuned:.2f}, "
        f"{DELTA:g})-DP. To stay at ε = 1, every one would need {more:.2f} times the noise. (`RandomTrials`, "
        "[proofs/tuning.md](../proofs/tuning.md).)"
    )
