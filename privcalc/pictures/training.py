"""Pictures of training runs: noise and steps, plans, accuracies, what each record cost, a budget over time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from privcalc import errors
from privcalc.audit.sensitive import WARNING, RealisedValues
from privcalc.calibration.plans import Choice, Compared
from privcalc.errors import PrivcalcError
from privcalc.pictures.curves import new_figure
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation
from privcalc.run import Mechanism

if TYPE_CHECKING:
    from matplotlib.figure import Figure
import datetime


def noise_and_steps(
    step: Callable[[float], Mechanism],
    *,
    noise_multipliers: Sequence[float],
    steps: Sequence[int],
    delta: float,
    relation: Relation = ADD_OR_REMOVE_ONE,
) -> Figure:
    """A map of ε (upper ends) over noise multipliers σ and numbers of steps T.

    Args:
        step: the mechanism of one step with a given σ, such as ``pc.Gaussian``.
        noise_multipliers: σ, ascending, at least two.
        steps: T, ascending, at least two.
        delta: δ in [0, 1).
        relation: the neighbouring relation.

    Raises:
        PrivcalcError: if an argument is out of range, or matplotlib is missing.

    Example:
        >>> import privcalc as pc
        >>> figure = noise_and_steps(pc.Gaussian, noise_multipliers=[10.0, 20.0], steps=[103, 206], delta=1e-5)
        >>> figure.axes[0].collections[0].get_array().round(3)
        masked_array(
          data=[[4.453, 2.026],
                [6.69 , 2.993]],
          mask=False,
          fill_value=1e+20)
    """
    sigmas = [errors.positive("noise_multipliers", value) for value in noise_multipliers]
    numbers = [errors.count("steps", value, least=1) for value in steps]
    for name, axis in (("noise_multipliers", sigmas), ("steps", [float(number) for number in numbers])):
        if len(axis) < 2 or not all(a < b for a, b in itertools.pairwise(axis)):
            raise PrivcalcError(f"{name} = {axis!r}: must be at least two numbers, ascending")
    epsilons = np.array(
        [[(step(z) * t).epsilon(delta=delta, relation=relation).upper for z in sigmas] for t in numbers]
    )
    shown = np.ma.masked_where(~(np.isfinite(epsilons) & (epsilons > 0)), epsilons)
    if not shown.count():
        raise PrivcalcError(f"delta = {delta!r}: must leave some ε on the map finite and > 0")
    figure, (axes,) = new_figure(1, (6, 4.5))
    mesh = axes.pcolormesh(sigmas, numbers, shown, norm="log", cmap="viridis_r", shading="nearest")
    if shown.count() == shown.size and shown.min() < shown.max():
        levels = np.geomspace(shown.min(), shown.max(), 8)[1:-1]
        axes.clabel(axes.contour(sigmas, numbers, shown, levels=levels, colors="black", linewidths=0.7), fmt="%.3g")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="noise multiplier σ",
        ylabel="steps T",
        title=f"ε at δ = {delta:g}, {relation}",
    )
    figure.colorbar(mesh, label="ε")
    return figure


def realised(runs: Mapping[str, RealisedValues], *, delta: float) -> Figure:
    """Realised ε of every record, sorted, with the worst case: as sensitive as the records (AdaMix, Fig. 3).

    Args:
        runs: what :meth:`RealisedLosses.epsilon` returned, by names for the legend.
        delta: the δ it was asked for.

    Raises:
        PrivcalcError: if matplotlib is missing.

    Example:
        >>> import privcalc as pc
        >>> losses = pc.RealisedLosses(records=3, noise_multiplier=20.0)
        >>> losses.update([0.4, 1.0, 0.1])
        >>> figure = realised({"run": losses.epsilon(delta=1e-5)}, delta=1e-5)
        >>> figure.axes[0].lines[0].get_ydata().round(4)
        array([0.16  , 0.0586, 0.0125])
    """
    figure, (axes,) = new_figure(1, (6, 4))
    for label, found in runs.items():
        values = np.sort(np.asarray(found))[::-1]
        pick = np.unique(np.linspace(0, values.size - 1, min(values.size, 2000)).astype(int))
        axes.plot(pick / max(values.size - 1, 1), values[pick], label=label)
        axes.axhline(found.worst, linestyle="--", color="black", linewidth=0.8)
    axes.set_xlabel("records, sorted (share); dashed: worst case, which is what can be certified")
    axes.set_ylabel(f"realised ε at δ = {delta:g}")
    axes.set_title(WARNING, fontsize=8)
    axes.legend(fontsize="small")
    return figure


def accuracy(results: Mapping[str, Mapping[float, Sequence[float]]]) -> Figure:
    """Plot accuracy against ε: means, with the standard deviation over runs where there are several.

    Args:
        results: by name of the learner, then ε, the accuracies of the runs; at ε = ∞, which is drawn as a dashed line,
            of training without privacy.

    Raises:
        PrivcalcError: if there are no accuracies, or matplotlib is missing.

    Example:
        >>> figure = accuracy({"NoisyGD": {0.1: [0.74, 0.76], 1.0: [0.84]}, "not private": {float("inf"): [0.88]}})
        >>> figure.axes[0].lines[0].get_ydata()
        array([0.75, 0.84])
    """
    figure, (axes,) = new_figure(1, (6, 4))
    for number, (name, by_epsilon) in enumerate(results.items()):
        if not by_epsilon or not all(len(scores) for scores in by_epsilon.values()):
            raise PrivcalcError(f"results[{name!r}] = {by_epsilon!r}: must have accuracies for at least one ε")
        color = f"C{number}"
        if math.inf in by_epsilon:
            axes.axhline(float(np.mean(by_epsilon[math.inf])), linestyle="--", color=color, label=name)
        rows = [
            (errors.positive("ε", epsilon), scores)
            for epsilon, scores in sorted(by_epsilon.items())
            if epsilon < math.inf
        ]
        if rows:
            means = np.array([np.mean(scores) for _, scores in rows])
            spread = [float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0 for _, scores in rows]
            label = None if math.inf in by_epsilon else name
            axes.errorbar([one for one, _ in rows], means, spread, marker="o", capsize=2, color=color, label=label)
    axes.set(xscale="log", xlabel="ε", ylabel="test accuracy")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    return figure


def compared(panels: Mapping[str, Sequence[Compared]]) -> Figure:
    """Plot which noise is best for which ε: a panel for each kind of run.

    The answers are those of :func:`privcalc.calibration.plans.compare_noise`.

    Args:
        panels: what was compared, for several ε, by title.
    """
    figure, axes = new_figure(len(panels), (3.2 * len(panels), 3.4))
    for one, (title, found) in zip(axes, panels.items(), strict=True):
        for noise, color in (("independent", "tab:gray"), ("cyclic bands", "tab:blue"), ("correlated", "tab:red")):
            line = sorted((choice.epsilon, choice.error) for choice in found if choice.noise == noise)
            one.loglog(*zip(*line, strict=True) if line else ([], []), marker="o", color=color, label=noise)
        one.set(title=title, xlabel="ε")
        one.grid(alpha=0.3)
    axes[0].set_ylabel("error of sums / C")
    axes[0].legend(fontsize="small")
    return figure


def plan(choices: Sequence[Choice]) -> Figure:
    """Plot the noise that batch sizes and epochs cost, of :func:`privcalc.plan.plan`."""
    figure, panels = new_figure(3, (10, 4))
    fields = {
        "noise_multiplier": "noise multiplier",
        "step_noise": "noise per step / C",
        "run_noise": "noise per run / C",
    }
    for axes, (field, label) in zip(panels, fields.items(), strict=True):
        for many in dict.fromkeys(choice.epochs for choice in choices):
            line = [choice for choice in choices if choice.epochs == many]
            axes.loglog(
                [c.batch_size for c in line], [getattr(c, field) for c in line], marker="o", label=f"{many:g} epochs"
            )
        axes.set(xlabel="expected batch size", ylabel=label)
    panels[0].legend(fontsize="small")
    return figure


def spending(times: Sequence[datetime.datetime], charged: Sequence[float], spent: Sequence[float]) -> Figure:
    """Plot the shares of a budget that were charged over time, and those charged for good.

    Args:
        times: of each change, ascending.
        charged: shares of the cap after it, reserved parts included.
        spent: shares that are charged for good.

    Raises:
        PrivcalcError: if there are none, or not as many of each, or matplotlib is missing.

    Example:
        >>> from datetime import datetime
        >>> figure = spending([datetime(2026, 1, 1), datetime(2026, 2, 1)], [0.0, 0.4], [0.0, 0.1])
        >>> figure.axes[0].lines[0].get_ydata().tolist()
        [0.0, 40.0]
    """
    if not times or not len(times) == len(charged) == len(spent):
        sizes = f"{len(times)}, {len(charged)} and {len(spent)}"
        raise PrivcalcError(f"times, charged, spent: must be as many each, at least one, not {sizes}")
    figure, (axes,) = new_figure(1, (8, 4))
    dates = np.array([time.replace(tzinfo=None) for time in times], dtype="datetime64[s]")  # of one time zone
    percent = [100 * value for value in charged]
    good = [100 * value for value in spent]
    axes.step(dates, percent, where="post", color="tab:blue", label="charged, reservations included", marker=".")
    axes.step(dates, good, where="post", color="tab:red", label="charged for good")
    axes.fill_between(dates, good, percent, step="post", color="tab:blue", alpha=0.15)
    axes.axhline(100, color="black", linewidth=1, label="cap")
    axes.set(ylabel="share of the cap in %", ylim=(0, max(105, *(1.05 * value for value in percent if value < np.inf))))
    axes.tick_params(axis="x", rotation=30)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="center left", framealpha=1.0)
    return figure
