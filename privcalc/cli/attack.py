"""``privcalc attack SCORES_IN SCORES_OUT``: what scores prove, and whether they contradict a certificate."""

from __future__ import annotations

import os
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray

import privcalc as pc
from privcalc import errors, pictures
from privcalc.cli.options import SOURCE, Answered, Command, finite
from privcalc.enclosure import downward, upward
from privcalc.files import TEXT, folder, read_whole, regular, write_whole
from privcalc.numerics.floats import Floats
from privcalc.pictures.curves import ALPHAS
from privcalc.serial import indented
from privcalc.terminal import WRONG

if TYPE_CHECKING:
    from privcalc.attacks import Measured

POINTS = 400
LARGEST = 8 * TEXT
"""Most bytes of an array of scores."""


@click.command(cls=Command)
@click.argument("scores_in", type=SOURCE)
@click.argument("scores_out", type=SOURCE)
@click.option("--delta", type=float, default=1e-2, show_default=True, help="δ.")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of all statements together.")
@click.option("--certificate", metavar="CERT", help="A certificate to hold against the scores.")
@click.option("--out", metavar="FOLDER", help="Folder for attack.json and attack.png (needs matplotlib).")
def attack(
    scores_in: str, scores_out: str, delta: float, confidence: float, certificate: str | None, out: str | None
) -> Answered:
    """Lower bounds of ε and μ from attack scores of two neighbouring worlds.

    Shows the measured ROC beside the certified curve.

    SCORES_IN and SCORES_OUT are .npy or .csv files: scores from runs with the record, and without it; larger scores
    must speak for the record. Exit status 1 if they contradict the certificate.
    """
    from privcalc.attacks import auc, from_scores

    errors.delta("delta", delta)
    target = None if out is None else folder(out, name="--out")
    held = None if certificate is None else pc.Certificate.load(certificate)
    deltas = [delta] if held is None else sorted({delta, _claim(held)[1]})
    one, other = read_scores(scores_in), read_scores(scores_out)
    measured = from_scores(one, other, delta=deltas, confidence=confidence)
    roc = roc_curve(one, other)
    area = auc(one, other)
    found: dict[str, Any] = {
        "samples": [one.size, other.size],
        "confidence": measured.confidence,
        "delta": delta,
        "epsilon_lower": measured.epsilon(delta=delta),
        "mu_lower": measured.mu(),
        "advantage_lower": measured.advantage(),
        "epsilon_lower_if_gaussian": measured.gaussian_epsilon(delta=delta),
        "auc": area,
        "events": [
            {"power_lower": p, "false_upper": q, "order": "in, out" if f else "out, in"}
            for p, q, f in zip(measured.power.tolist(), measured.false.tolist(), measured.forward.tolist(), strict=True)
        ],
        "roc": [{"false": a, "true": t} for a, t in zip(*(side.tolist() for side in roc), strict=True)],
        "version": pc.__version__,
    }
    lines = [
        f"ε ≥ {downward(measured.epsilon(delta=delta), '.6g')} at δ = {downward(delta, 'g')}",
        f"μ ≥ {downward(measured.mu(), '.6g')}, advantage ≥ {downward(measured.advantage(), '.6g')}",
        f"all of it with confidence {measured.confidence:g}",
        f"ε ≥ {downward(found['epsilon_lower_if_gaussian'], '.6g')} if the two worlds are a Gaussian pair",
        f"AUC {area:.4g}, from {one.size} and {other.size} scores",
        "assumed: scores of runs independent of each other, "
        "in two worlds that are neighbours (under the certificate's relation)",
    ]
    curve = None
    if held is not None:
        against, curve = _against(measured, held)
        found |= against
        lines.append(
            f"certified: ε ≤ {upward(_claim(held)[0], '.6g')} at δ = {upward(_claim(held)[1], 'g')}, "
            f"where the scores show {downward(against['epsilon_lower_at_certified_delta'], '.6g')}: "
            + ("CONTRADICTED" if against["contradicted"] else "not contradicted")
        )
    if target is not None and out is not None:
        figure = pictures.tradeoff(curve, attack=measured, roc=roc)
        target.mkdir(parents=True, exist_ok=True)
        pictures.save(figure, target / "attack.png")
        write_whole(target / "attack.json", indented(found))
        lines.append(f"wrote {os.path.join(out, 'attack.json')} and {os.path.join(out, 'attack.png')}")
    return Answered(found, "\n".join(lines), WRONG if found.get("contradicted") else 0)


def _claim(certificate: pc.Certificate) -> tuple[float, float]:
    """The claimed ε, and its δ."""
    claim = certificate.guarantee
    return float(claim.epsilon or 0.0), float(claim.delta or 0.0)


def _against(measured: Measured, certificate: pc.Certificate) -> tuple[dict[str, Any], NDArray[np.void]]:
    """What the certificate allows, and whether an event goes beyond it; the certified trade-off curve."""
    (epsilon, delta), whole, relation = _claim(certificate), certificate.run, certificate.relation
    curve = pc.tradeoff_table(whole, ALPHAS, relation=relation)
    powers = zip(curve["alpha"].tolist(), (1 - curve["lower"]).tolist(), strict=True)
    beyond = measured.epsilon(delta=delta) > epsilon or any(
        power > 1 - whole.beta(alpha=false, relation=relation).lower
        for false, power in zip(measured.false.tolist(), measured.power.tolist(), strict=True)
    )
    against = {
        "certified": {"epsilon_upper": finite(epsilon), "delta": delta, "relation": str(relation)},
        "certified_curve": [{"false": alpha, "true": power} for alpha, power in powers],
        "epsilon_lower_at_certified_delta": measured.epsilon(delta=delta),
        "contradicted": beyond,
    }
    return against, curve


def read_scores(path: str) -> Floats:
    """One number per run: a ``.npy`` array, or a text file with a number per line, the first line possibly a heading.

    Args:
        path: the file.

    Returns:
        The scores, flat.

    Raises:
        PrivcalcError: if the file is neither, or holds anything but numbers.
    """
    name = f"{path!r}"
    if path.endswith(".npy"):
        regular(path, name="scores", limit=LARGEST)
        try:
            values = np.load(path, mmap_mode="r", allow_pickle=False)  # which holds the shape against the size
        except (ValueError, EOFError, OverflowError, TokenError) as error:  # the last two of a heading
            raise pc.PrivcalcError(f"{name}: must be a .npy array of numbers") from error
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "biuf":
            raise pc.PrivcalcError(f"{name}: must be a .npy array of numbers")
        found = values.astype(np.float64).ravel()
    elif path.endswith(".csv"):
        found = _numbers(name, read_whole(path, name="scores"))
    else:
        raise pc.PrivcalcError(f"{name}: must end in .npy or .csv")
    if found.size < 8 or np.isnan(found).any():
        raise pc.PrivcalcError(f"{name}: must hold at least 8 scores, none of them NaN; has {found.size}")
    return found


def _numbers(name: str, data: bytes) -> Floats:
    try:
        cells = [line.strip() for line in data.decode("utf-8-sig").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise pc.PrivcalcError(f"{name}: must be text, one number per line") from error
    values: list[float] = []
    for number, cell in enumerate(cells):
        try:
            values.append(float(cell))
        except ValueError as error:
            if number:
                raise pc.PrivcalcError(f"{name}: {cell[:60]!r} must be a number, one per line") from error
    return np.array(values, dtype=np.float64)


def roc_curve(one: Floats, other: Floats) -> tuple[Floats, Floats]:
    """False and true positive rates as seen, thinned out to a few hundred points, dense near 0.

    Example:
        >>> import numpy as np
        >>> false, true = roc_curve(np.array([1.0, 2.0]), np.array([0.0, 1.0]))
        >>> print(false, true)
        [0.  0.  0.5 1. ] [0.  0.5 1.  1. ]
    """
    first, second = np.sort(one), np.sort(other)
    thresholds = np.unique(np.concatenate([first, second]))[::-1]
    if thresholds.size > POINTS:
        places = np.unique(np.geomspace(1, thresholds.size, POINTS).astype(np.int64)) - 1
        thresholds = thresholds[np.union1d(places, thresholds.size - 1 - places)]
    rates = [1 - np.searchsorted(scores, thresholds) / scores.size for scores in (second, first)]
    return np.concatenate([[0.0], rates[0]]), np.concatenate([[0.0], rates[1]])
