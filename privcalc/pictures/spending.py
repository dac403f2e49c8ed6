"""A picture of a budget over time."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from privcalc.errors import PrivcalcError
from privcalc.pictures.curves import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
