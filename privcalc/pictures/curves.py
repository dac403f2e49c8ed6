"""Curves of a run's guarantee and of accountants side by side. Need the extra ``pictures``.

    import privcalc as pc
    from privcalc import pictures
    pictures.profile(pc.Gaussian(1.0) * 3).savefig("profile.svg")

Nothing is drawn through ``pyplot``: no window opens, no state is shared. Between the points at which a curve was asked
for, the picture has straight lines, which prove nothing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.files import whole
from privcalc.numerics.floats import Floats
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation
from privcalc.run import Mechanism, Run
from privcalc.tables import profile_table, tradeoff_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from privcalc.attacks import Measured

__all__ = ["epsilon_over_steps", "profile", "risk", "save", "tradeoff"]

ALPHAS = (0.0, *np.geomspace(1e-4, 0.1, 19).tolist(), *np.linspace(0.125, 0.975, 18).tolist(), 1.0)
"""False positive rates at which a trade-off curve is asked for."""


NAME = 40
"""Most letters of a run in a legend."""

Curve = Mechanism | Run | NDArray[np.void]
"""What has a curve, or is one."""

Curves = Curve | Sequence[Curve] | Mapping[str, Curve]
"""One, several, or several by name."""


def _by_name(runs: Curves | None, names: Sequence[str] = ()) -> list[tuple[str, Curve]]:
    """Each with its name in a legend: what it is, where none was given; one alone needs none."""
    if isinstance(runs, Mapping):
        return [(str(name), one) for name, one in runs.items()]
    found: list[Curve] = [] if runs is None else [runs] if isinstance(runs, (Mechanism, Run, np.ndarray)) else [*runs]
    if names and len(names) != len(found):
        raise PrivcalcError(f"names = {list(names)!r}: must be as many as there are runs, {len(found)}")
    said = ["a table" if isinstance(one, np.ndarray) else str(one) for one in found]
    short = [text if len(text) <= NAME else f"{text[: NAME - 1]}…" for text in said]
    return list(zip(names or ([""] if len(found) == 1 else short), found, strict=True))


def _tables(
    runs: Curves | None, names: Sequence[str], made: Callable[[Mechanism | Run], NDArray[np.void]]
) -> list[tuple[str, NDArray[np.void]]]:
    return [(name, one if isinstance(one, np.ndarray) else made(one)) for name, one in _by_name(runs, names)]


def _drawn(name: str, number: int, of: int, label: str) -> dict[str, Any]:
    """Colour and label of one curve of several: red if it is alone."""
    return {"color": "tab:red" if of == 1 else f"C{number}", "label": f"{name}: {label}" if name else label}


def profile(
    run: Curves,
    *,
    names: Sequence[str] = (),
    relation: Relation = ADD_OR_REMOVE_ONE,
    epsilons: ArrayLike | None = None,
    points: Sequence[tuple[float, float]] = (),
) -> Figure:
    """The privacy profile δ(ε), between its proved lower and upper end; logarithmic where anything is > 0.

    Args:
        run: a run or mechanism; a table that ``profile_table`` made of one; a list of some, or a dictionary by name.
        names: of several runs in a list, for the legend; what they are, if none are given.
        relation: the neighbouring relation.
        epsilons: where to ask; default 61 of them from 0 to where δ is 1e-12, if it gets that small.
        points: (ε, δ) to mark, such as those that a certificate states.

    Raises:
        PrivcalcError: if an argument is out of range, or matplotlib is missing.

    Example:
        >>> import privcalc as pc
        >>> figure = profile(pc.Gaussian(1.0), epsilons=[0.0, 1.0])
        >>> figure.axes[0].lines[0].get_ydata().round(6)
        array([0.382925, 0.126937])
    """

    def made(one: Mechanism | Run) -> NDArray[np.void]:
        return profile_table(one, reach(one, relation) if epsilons is None else epsilons, relation=relation)

    figure, (axes,) = new_figure(1, (5.5, 4))
    tables, uppers = _tables(run, names, made), []
    for number, (name, table) in enumerate(tables):
        look = _drawn(name, number, len(tables), "proved: at most")
        axes.plot(table["epsilon"], table["upper"], **look)
        look["label"] = "cannot be told" if len(tables) == 1 else ""
        axes.fill_between(table["epsilon"], table["lower"], table["upper"], alpha=0.2, **look)
        uppers += table["upper"][table["upper"] > 0].tolist()
    if points:
        axes.plot(*zip(*points, strict=True), "ko", markersize=4, label="stated")
    axes.set(xlabel="ε", ylabel="δ", title=f"privacy profile, {relation}")
    if uppers:
        axes.set_yscale("log", nonpositive="clip")
        axes.set_ylim(max(min(uppers), 1e-15) / 2, max(uppers) * 1.5)
    axes.legend(fontsize="small")
    return figure


def reach(run: Mechanism | Run, relation: Relation) -> Floats:
    """Where a profile is worth drawing: 61 ε."""
    ends = (run.epsilon(delta=delta, relation=relation).upper for delta in (1e-12, 1e-9, 1e-6, 1e-3, 0.1))
    return np.linspace(0.0, next((end or 1.0 for end in ends if math.isfinite(end)), 10.0), 61)


def tradeoff(
    run: Curves | None,
    *,
    names: Sequence[str] = (),
    relation: Relation = ADD_OR_REMOVE_ONE,
    attack: Measured | None = None,
    roc: tuple[Floats, Floats] | None = None,
    points: Sequence[tuple[float, float]] = (),
) -> Figure:
    """The trade-off curve, and attacks: error rates against each other, and the power at low false positive rates.

    Args:
        run: a run or mechanism; a table that ``tradeoff_table`` or ``tradeoff_of_profile`` made of one; a list of some,
            or a dictionary by name; None for attacks alone.
        names: of several runs in a list, for the legend; what they are, if none are given.
        relation: the neighbouring relation.
        attack: what attacks have shown; its points must lie on the side of the curve that is not coloured.
        roc: false and true positive rates as counted, which show nothing for certain.
        points: (α, β) to mark, such as those that a certificate states.

    Raises:
        PrivcalcError: if the relation does not fit, or matplotlib is missing.

    Example:
        >>> import privcalc as pc
        >>> from privcalc import attacks
        >>> seen = attacks.from_counts([400], 1000, [50], 1000)
        >>> figure = tradeoff(pc.Gaussian(1.0), attack=seen)
        >>> [line.get_label() for line in figure.axes[0].lines]
        ['no attack is below', 'guessing', 'shown, with confidence 0.95']
    """
    tables = _tables(run, names, lambda one: tradeoff_table(one, ALPHAS, relation=relation))
    figure, (errors_axes, power_axes) = new_figure(2, (10, 4.2))
    for axes, power in ((errors_axes, False), (power_axes, True)):

        def shown(beta: Floats, power: bool = power) -> Floats:
            return 1 - beta if power else beta

        side = "no attack is above" if power else "no attack is below"
        for number, (name, table) in enumerate(tables):
            beta, look = shown(table["lower"]), _drawn(name, number, len(tables), side)
            axes.plot(table["alpha"], beta, **look)
            if len(tables) == 1:
                axes.fill_between(table["alpha"], beta, 1.0 if power else 0.0, color=look["color"], alpha=0.1)
        guess = np.geomspace(1e-4, 1.0, 200)
        axes.plot(guess, shown(1 - guess), color="tab:gray", linestyle=":", label="guessing")
        if roc is not None:
            axes.plot(roc[0], shown(1 - roc[1]), color="tab:blue", label="as counted")
        if attack is not None:
            label = f"shown, with confidence {attack.confidence:g}"
            axes.plot(attack.false, shown(1 - attack.power), "k^", markersize=5, label=label)
        if points:
            alphas, betas = np.array(points, dtype=np.float64).T
            axes.plot(alphas, shown(betas), "ko", markersize=4, label="stated")
        axes.grid(alpha=0.3)
    errors_axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="false positive rate α", ylabel="false negative rate β")
    power_axes.set(xscale="log", yscale="log", xlim=(1e-4, 1), ylim=(1e-4, 1))
    power_axes.set(xlabel="false positive rate α", ylabel="true positive rate 1 − β")
    errors_axes.legend(fontsize="small")
    return figure


def risk(run: Curves, *, names: Sequence[str] = (), relation: Relation = ADD_OR_REMOVE_ONE) -> Figure:
    """Plot how often any attack is right, at most.

    Whether the record is there, over its prior; which one it is, over a blind guess.

    Args:
        run: a run or mechanism; a list of some, or a dictionary by name.
        names: of several runs in a list.
        relation: the neighbouring relation.

    Raises:
        PrivcalcError: if the relation does not fit, or matplotlib is missing.

    Example:
        >>> import privcalc as pc
        >>> [axes.get_xlabel() for axes in risk(pc.Gaussian(1.0)).axes]
        ['probability that the record is there', 'success of a blind guess at the record']
    """
    figure, panels = new_figure(2, (10, 4.2))
    priors, blind = np.linspace(0.02, 0.98, 49), np.geomspace(1e-4, 1.0, 41)
    runs = _by_name(run, names)
    for number, (name, one) in enumerate(runs):
        if isinstance(one, np.ndarray):
            raise PrivcalcError("run = a table: must be a run or a mechanism")
        there = [1 - one.bayes_risk(prior=prior, relation=relation).lower for prior in priors.tolist()]
        which = [one.reconstruction(baseline=rate, relation=relation).upper for rate in blind.tolist()]
        look = _drawn(name, number, len(runs), "no attack is above")
        for axes, at, right in zip(panels, (priors, blind), (there, which), strict=True):
            axes.plot(at, right, **look)
            if len(runs) == 1:
                axes.fill_between(at, right, 1.0, color=look["color"], alpha=0.1)
    for axes, at, guess in zip(panels, (priors, blind), (np.maximum(priors, 1 - priors), blind), strict=True):
        axes.plot(at, guess, color="tab:gray", linestyle=":", label="guessing")
        axes.set(ylabel="probability that the attack is right")
        axes.grid(alpha=0.3)
    panels[0].set(xlim=(0, 1), ylim=(0.5, 1), xlabel="probability that the record is there")
    panels[1].set(
        xscale="log", yscale="log", xlim=(1e-4, 1), ylim=(1e-4, 1), xlabel="success of a blind guess at the record"
    )
    panels[0].legend(fontsize="small")
    return figure


def epsilon_over_steps(
    step: Mechanism, steps: int | Sequence[int], *, delta: float, relation: Relation = ADD_OR_REMOVE_ONE
) -> Figure:
    """How ε grows with the number of steps, between its proved ends.

    Args:
        step: the mechanism of one step.
        steps: the last one (up to 25 numbers from 1 to it are asked about), or where to ask.
        delta: δ in [0, 1).
        relation: the neighbouring relation.

    Raises:
        PrivcalcError: if an argument is out of range, or matplotlib is missing.

    Example:
        >>> import privcalc as pc
        >>> figure = epsilon_over_steps(pc.Gaussian(20.0), [1, 206], delta=1e-5)
        >>> figure.axes[0].lines[0].get_ydata().round(6)
        array([0.160042, 2.992983])
    """
    if np.ndim(steps):
        numbers = [errors.count("steps", number) for number in np.asarray(steps).tolist()]
    else:
        numbers = np.unique(np.geomspace(1, errors.count("steps", steps, least=1), 25).round().astype(int)).tolist()
    enclosures = [(step * number).epsilon(delta=delta, relation=relation) for number in numbers]
    figure, (axes,) = new_figure(1, (5.5, 4))
    axes.plot(numbers, [one.upper for one in enclosures], color="tab:red", marker=".", label="proved: at most")
    axes.fill_between(
        numbers, [one.lower for one in enclosures], [one.upper for one in enclosures], color="tab:red", alpha=0.2
    )
    axes.set(xlabel="steps", ylabel=f"ε at δ = {delta:g}", title=f"ε over steps, {relation}")
    axes.grid(alpha=0.3)
    return figure


def save(figure: Figure, path: str | os.PathLike[str], *, mode: int = 0o644, dpi: float = 120) -> None:
    """Write a picture, all of it or nothing; the ending says the format (PNG without one).

    Args:
        figure: any.
        path: a regular file, or a new one.
        mode: permissions; 0o600 for what is sensitive.
        dpi: dots per inch, > 0.

    Raises:
        PrivcalcError: if something else has the name, or matplotlib has no such format.
        OSError: if it cannot be written.

    Example:
        >>> import pathlib, tempfile
        >>> import privcalc as pc
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "profile.png"
        >>> save(profile(pc.Gaussian(noise_multiplier=2.0)), path)
        >>> path.read_bytes()[1:4]
        b'PNG'
    """
    known, ending = figure.canvas.get_supported_filetypes(), Path(path).suffix[1:].lower() or "png"
    if ending not in known:
        raise PrivcalcError(f"path = {str(path)!r}: must end in one of {', '.join(f'.{name}' for name in known)}")
    with whole(path, mode=mode) as file:
        figure.savefig(file, format=ending, dpi=dpi)


def new_figure(panels: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """An empty figure, side by side."""
    try:
        from matplotlib import figure as made
    except ImportError as error:
        raise PrivcalcError("pictures: need matplotlib, which is not installed; pip install matplotlib") from error
    figure = made.Figure(figsize=size, layout="constrained")
    axes: list[Axes] = list(np.atleast_1d(figure.subplots(1, panels)))
    return figure, axes
