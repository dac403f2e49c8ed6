"""Many questions in one call: ε of a table of runs, with a process per core.

Equal ones are asked once, and bad ones stop no others.
"""

from __future__ import annotations

import hashlib
import math
import re
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privcalc import errors, files, parts
from privcalc.composition.ask import usual as floats
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.numerics.floats import Floats
from privcalc.numerics.routes import many
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation, check_relation
from privcalc.version import __version__

__all__ = ["COLUMNS", "epsilons", "remove"]

COLUMNS = ("noise_multiplier", "sample_rate", "steps", "delta")

PART = 500
"""Questions of a part, at most: some seconds."""

SMALLEST = 1e-100
"""Noise multipliers and rates below are refused."""

EXACT = 2**53
"""From here on doubles are no longer all whole numbers."""

OWN = re.compile(r"[0-9a-f]{16}(\.npy|-\d{6,}\.npz)|\.privcalc-[0-9a-f]{16}")
"""Files of questions, of answers, and what a killed process had begun to write."""


@dataclass(frozen=True)
class Asked:
    """Distinct questions in a file, and the stride of each part.

    Slow questions are alike, so that every part takes one in so many.

    Args:
        path: of the file, an array with a row for each question, in the order of COLUMNS.
        count: how many parts.
        relation: the neighbouring relation.
    """

    path: str
    count: int
    relation: Relation

    def __call__(self, number: int) -> parts.Arrays:
        """The questions of a part, as they were read, and their answers."""
        asked = np.load(files.regular(self.path), mmap_mode="r", allow_pickle=False)[number :: self.count].copy()
        lower, upper = _at_once(asked, self.relation)
        words = np.full(len(asked), "", dtype=object)
        for row in np.flatnonzero(np.isnan(upper)).tolist():
            noise, rate, steps, delta = asked[row].tolist()
            lower[row], upper[row], words[row] = _answer(noise, rate, steps, delta, self.relation)
        return {"asked": asked, "lower": lower, "upper": upper, "error": words.astype(np.str_)}


def _at_once(asked: Floats, relation: Relation) -> tuple[Floats, Floats]:
    """Both ends, to the last bit those of each question alone (``many.epsilons``); NaN where that has none."""
    noise, rate, steps, delta = asked.T
    usual = (
        (noise >= SMALLEST) & (noise <= 1 / SMALLEST) & (rate >= SMALLEST) & (rate < 1) & (steps >= 2) & (steps < EXACT)
    )
    usual &= (steps == np.floor(steps)) & (relation is ADD_OR_REMOVE_ONE)
    ends = np.full((2, len(asked)), np.nan)
    with suppress(errors.PrivcalcError), floats():  # which says of each row what is wrong
        ends[:, usual] = many.epsilons(1 / noise[usual], rate[usual], steps[usual], delta[usual])
    return ends[0], ends[1]


def _answer(noise: float, rate: float, steps: float, delta: float, relation: Relation) -> tuple[float, float, str]:
    """Both ends of ε, and why there is none; whatever goes wrong, ε may be anything then."""
    try:
        if not abs(steps) < EXACT:
            raise errors.PrivcalcError(f"steps = {steps!r}: must be a whole number from 1, below 2^53")
        errors.rate("sample_rate", rate)
        count = errors.count("steps", int(steps) if steps == math.floor(steps) else steps, least=1)
        found = (PoissonSampled(Gaussian(noise), rate) * count).epsilon(delta=delta, relation=relation)
        lower, upper = float(found.lower), float(found.upper)
        if not 0 <= lower <= upper:
            raise ArithmeticError(f"[{lower}, {upper}]")
    except errors.PrivcalcError as error:
        return 0.0, math.inf, str(error)
    except Exception as error:  # one row must not cost a million others their answers
        return 0.0, math.inf, f"{type(error).__name__}: {' '.join(str(error).split())}"
    return lower, upper, ""


def _numbers(name: str, values: ArrayLike) -> Floats:
    """As doubles; whole numbers that none holds are no numbers, which concerns their rows alone."""
    found = errors.array(name, values)
    if found.dtype.kind not in "iuf" or found.dtype.itemsize > 8:
        raise errors.PrivcalcError(f"{name}: must be numbers of at most 64 bits, not of {found.dtype}")
    if found.dtype.kind == "f":
        return found.astype(np.float64)
    return np.where((found > EXACT) | (found.astype(np.float64) < -EXACT), np.nan, found.astype(np.float64))


def epsilons(
    noise_multiplier: ArrayLike,
    sample_rate: ArrayLike,
    steps: ArrayLike,
    delta: ArrayLike,
    *,
    relation: Relation = ADD_OR_REMOVE_ONE,
    engine: parts.Engine | None = None,
    folder: Path | None = None,
    progress: parts.Progress | None = None,
) -> NDArray[np.void]:
    """ε of many runs of Poisson-sampled Gaussian steps, each at its δ: as if every row had been asked alone.

    Args:
        noise_multiplier: noise standard deviation / clip norm; one for each row, or one for all, as the next three.
        sample_rate: probability with which each record takes part in a step, in (0, 1].
        steps: number of steps, from 1, below 2⁵³.
        delta: δ in [0, 1).
        relation: the neighbouring relation.
        engine: where answers are computed. None: in this process if there are few questions, else in one process per
            core. (In a script, below ``if __name__ == "__main__":``.)
        folder: where answers are kept while others are computed; who asks again there goes on. None: they are not kept.
        progress: is told how far it is.

    Returns:
        A structured array in the order of the rows: ``lower`` and ``upper`` ends of ε, and ``error``, which is empty,
        or says why the row has no answer. ε is then in [0, ∞].

    Raises:
        PrivcalcError: if arguments are no numbers, or of shapes that do not fit. A row that is out of range raises
            nothing.

    Example:
        >>> found = epsilons([1.0, 1.0, -1.0, 1.0], 0.01, 1000, [1e-5, 1e-6, 1e-5, 1e-5])
        >>> found["upper"].round(6)
        array([1.828237, 2.124515,      inf, 1.828237])
        >>> print(found["error"][2])
        row 2: noise_multiplier = -1.0: must be a finite number > 0 (1e-100 to 1e100)
    """
    given = zip(COLUMNS, (noise_multiplier, sample_rate, steps, delta), strict=True)
    columns = [np.atleast_1d(_numbers(name, value)) for name, value in given]
    try:
        rows = np.stack(np.broadcast_arrays(*columns), axis=-1) + 0.0  # no negative zeros
    except ValueError as error:
        shapes = [column.shape for column in columns]
        raise errors.PrivcalcError(
            f"{', '.join(COLUMNS)}: must have one length, or be one number, not {shapes}"
        ) from error
    if rows.ndim != 2:
        raise errors.PrivcalcError(f"{', '.join(COLUMNS)}: must be numbers or lists of them")
    check_relation(relation)
    asked, which = np.unique(rows, axis=0, return_inverse=True)
    where = parts.LOCAL if engine is None and len(asked) <= PART else engine or parts.Engine("processes")
    if folder is None:
        with tempfile.TemporaryDirectory() as made:
            answers = _answers(asked, relation, where, Path(made), progress)
    else:
        answers = _answers(asked, relation, where, Path(folder).resolve(), progress)
    found = answers[which.reshape(-1)]
    bad = np.flatnonzero(found["error"] != "")
    if bad.size:
        words = np.array([f"row {i}: {found['error'][i]}" for i in bad.tolist()])
        found = found.astype([("lower", np.float64), ("upper", np.float64), ("error", words.dtype)])
        found["error"][bad] = words
    return found


def remove(folder: Path) -> None:
    """Remove the files that :func:`epsilons` kept in a folder, and the folder if it is empty then.

    Whatever else is there stays.
    """
    for path in folder.iterdir():
        if OWN.fullmatch(path.name) and path.is_file():
            path.unlink()
    with suppress(OSError):
        folder.rmdir()


def _answers(
    asked: Floats, relation: Relation, engine: parts.Engine, folder: Path, progress: parts.Progress | None
) -> NDArray[np.void]:
    """Of distinct questions, in their order."""
    name = hashlib.sha256(asked.tobytes()).hexdigest()
    path, count = folder / f"{name[:16]}.npy", -(-len(asked) // PART)
    folder.mkdir(parents=True, exist_ok=True)
    with files.whole(path) as file:
        np.save(file, asked)
    key = f"privcalc {__version__}, numpy {np.__version__}: epsilon, {relation}, {name}, {count}"
    work = parts.Parts(Asked(str(path), count, relation), count, folder, key)
    ends = np.empty((2, len(asked)))
    words = np.full(len(asked), "", dtype=object)
    for number, part in enumerate(work.compute(engine, progress)):
        here = slice(number, None, count)
        if not np.array_equal(part["asked"], asked[here], equal_nan=True):
            raise errors.PrivcalcError(f"path = {str(path)!r}: must have the questions that were asked")
        ends[:, here], words[here] = (part["lower"], part["upper"]), part["error"]
    error = words.astype(np.str_)
    found = np.empty(len(asked), dtype=[("lower", np.float64), ("upper", np.float64), ("error", error.dtype)])
    found["lower"], found["upper"], found["error"] = *ends, error
    return found
