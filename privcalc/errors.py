"""The exceptions, one kind for all that is refused, the checks that raise it, and the warning.

Every argument check of the library is one of the functions below, so that an error always names the
argument, the value that was given and what is allowed.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
import re
import sys
import warnings
from abc import ABCMeta
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsFloat, TypeVar, cast

from privcalc import keywords

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

__all__ = ["BudgetExceeded", "Contradiction", "NotConfirmed", "PrivcalcError", "PrivcalcWarning", "Unreachable"]

Call = TypeVar("Call", bound=Callable[..., Any])

PACKAGE = str(Path(__file__).parent)


class PrivcalcError(ValueError):
    """A question that cannot be answered as asked: an argument out of range, or a relation that does not fit.

    Example:
        >>> import privcalc as pc
        >>> pc.Gaussian(noise_multiplier=-1.0)
        Traceback (most recent call last):
            ...
        privcalc.errors.PrivcalcError: noise_multiplier = -1.0: must be a finite number > 0 (1e-100 to 1e100)
    """

    def __init__(self, *args: object) -> None:
        """Make the message one line, also if it shows a value printed on several, such as a column of a table."""
        super().__init__(*(re.sub(r"\s*\n\s*", " ", arg) if isinstance(arg, str) else arg for arg in args))


class UnknownArgument(PrivcalcError, TypeError):
    """A keyword that the function does not have.

    Example:
        >>> import privcalc as pc
        >>> pc.noise_multiplier(target_epsilon=3.0, delta=1e-5)
        Traceback (most recent call last):
            ...
        privcalc.errors.UnknownArgument: target_epsilon: is no argument of noise_multiplier; did you mean epsilon=?
    """


class BudgetExceeded(PrivcalcError):
    """A charge beyond what is left of a plan, cap or budget: nothing was charged, and the mechanism must not run.

    Example:
        >>> import privcalc as pc
        >>> cap = pc.Filter(mu=1.0)
        >>> try:
        ...     cap.charge(pc.Gaussian(noise_multiplier=0.5))
        ... except pc.BudgetExceeded:
        ...     cap.charge(pc.Gaussian(noise_multiplier=2.0))  # less still fits
        >>> cap.spent
        0.5
    """


class Contradiction(PrivcalcError):
    """A check showed that a claim is wrong, or does not follow from what is said with it.

    Raised by ``Certificate.verify`` and ``prove``.
    """


class NotConfirmed(PrivcalcError):
    """A check that came to no end: nothing was found wrong, and the claim is not confirmed (``Certificate.verify``)."""


class Unreachable(PrivcalcError):
    """A budget's store could not be asked, or did not say whether it wrote.

    Nothing may be drawn, and what it may hold is charged.
    """


class PrivcalcWarning(UserWarning):
    """An answer that was given, although something does not hold that it rests on: what, and what to do about it.

    Example:
        >>> import warnings
        >>> import privcalc as pc
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", pc.PrivcalcWarning)  # an exception instead
        ...     pc.noise_multiplier(epsilon=3.0, delta=0.01, batch_size=10, dataset_size=100, epochs=1)
        Traceback (most recent call last):
            ...
        privcalc.errors.PrivcalcWarning: delta = 0.01: is not below 1/100, one over the number of records: to publish
        one of them, drawn at random, has such a δ at ε = 0. Choose a δ well below, such as 0.0001
    """


def warn(message: str) -> None:
    """Warn where the library is used, not in itself."""
    frame, depth = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(message, PrivcalcWarning, stacklevel=depth)


def check_delta(delta: float, *records: object) -> None:
    """Warn where δ is no privacy: not below one over the number of records, where one is known."""
    known = max((n for n in records if isinstance(n, int) and not isinstance(n, bool)), default=0)
    if delta * known >= 1:
        warn(
            f"delta = {delta!r}: is not below 1/{known}, one over the number of records: to publish one of them, drawn "
            f"at random, has such a δ at ε = 0. Choose a δ well below, such as {0.01 / known:.1g}"
        )


def check_pass(steps: int, rate: float) -> None:
    """Warn where steps do not go through the data once: they may be epochs."""
    if steps > 1 and steps * rate < 1:
        warn(
            f"steps = {steps!r}: are {steps * rate:.2g} of a pass over the data, at the sampling rate {rate:.6g}: did "
            f"you mean epochs={steps!r}?"
        )


def may_be_swapped(epsilon: float, delta: float) -> bool:
    """Whether δ is so large beside ε that the two may stand in each other's place."""
    return 0 < epsilon < delta and delta >= 0.1


def check_free(delta: float, free: bool) -> None:
    """Warn where δ alone meets a target: it is at least the probability that a record is drawn at all."""
    if free:
        warn(
            f"delta = {delta!r}: is met with next to no noise, because a record is drawn at all with no larger "
            "probability: whoever is drawn may lose everything. Choose a δ well below one over the number of records"
        )


def real(
    name: str,
    value: SupportsFloat,
    allowed: str,
    *,
    low: float,
    high: float,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """Return ``value`` as a float, or raise because it is not a number in the allowed interval."""
    if not _is_scalar(value):
        raise PrivcalcError(f"{name} = {value!r}: must be {allowed}")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise PrivcalcError(f"{name} = {value!r}: must be {allowed}") from error
    below = number <= low if open_low else number < low
    above = number >= high if open_high else number > high
    if math.isnan(number) or below or above:
        raise PrivcalcError(f"{name} = {value!r}: must be {allowed}")
    return number


def positive(name: str, value: SupportsFloat) -> float:
    """Return a finite float > 0."""
    return real(name, value, "a finite number > 0", low=0.0, high=math.inf, open_low=True, open_high=True)


def scale(name: str, value: SupportsFloat) -> float:
    """Return a noise scale: a float in [1e-100, 1e100], so that its square and inverse exist."""
    return real(name, value, "a finite number > 0 (1e-100 to 1e100)", low=1e-100, high=1e100)


def level(name: str, value: SupportsFloat) -> float:
    """Return the ε of a stated guarantee: 0, or a scale."""
    number = real(name, value, allowed := "0, or a finite number > 0 (1e-100 to 1e100)", low=0.0, high=1e100)
    return number and real(name, value, allowed, low=1e-100, high=1e100)


def rate(name: str, value: SupportsFloat) -> float:
    """Return a probability in (0, 1]."""
    return real(name, value, "a probability in (0, 1] (at least 1e-100)", low=1e-100, high=1.0)


def delta(name: str, value: SupportsFloat) -> float:
    """Return a δ in [0, 1)."""
    return real(name, value, "a probability in [0, 1)", low=0.0, high=1.0, open_high=True)


def epsilon(name: str, value: SupportsFloat) -> float:
    """Return a finite ε ≥ 0."""
    return real(name, value, "a finite number >= 0", low=0.0, high=math.inf, open_high=True)


def count(name: str, value: object, *, least: int = 0) -> int:
    """Return a whole number ≥ ``least``; floats are refused, because 9_999.7 steps mean nothing."""
    message = f"{name} = {value!r}: must be a whole number (int) >= {least}"
    if not _is_scalar(value):
        raise PrivcalcError(message)
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except (TypeError, RuntimeError) as error:
        raise PrivcalcError(message) from error
    if number < least:
        raise PrivcalcError(message)
    if number > 2**53:
        raise PrivcalcError(f"{name} = {value!r}: must be at most 2^53")
    return number


RENAMED = 32
"""Up to which a group's old name is still read: a larger number is the size of a data set, in the wrong place."""


def group_size(size: object, records: object = None) -> int:
    """Return the size of a group; its old name is read, with a warning, where it can be one."""
    if records is None:
        return count("group_size", size, least=1)
    old = count("records", records, least=1)
    if size != 1:
        raise PrivcalcError(f"records = {records!r}: is group_size under its old name; give one of them")
    if old > RENAMED:
        raise PrivcalcError(
            f"records = {records!r}: must be left out, or be group_size, how many records are protected together; the "
            "number of records of a data set is not asked here"
        )
    warn(f"records = {records!r}: is now called group_size, how many records are protected together")
    return old


NUMPY_BOOL = ("numpy.bool", "numpy.bool_")


def flag(name: str, value: object) -> bool:
    """Return True or False, and nothing that only counts as one of them."""
    if not isinstance(value, bool) and f"{type(value).__module__}.{type(value).__name__}" not in NUMPY_BOOL:
        raise PrivcalcError(f"{name} = {value!r}: must be True or False")
    return bool(value)


def one_of(name: str, value: object, *allowed: object) -> None:
    """Raise unless the value is one of those that are allowed; it may be anything, such as an array."""
    if not any(type(value) is type(each) and value == each for each in allowed):
        raise PrivcalcError(f"{name} = {value!r}: must be {' or '.join(map(repr, allowed))}")


def function(name: str, value: object, what: str) -> None:
    """Raise unless the value can be called."""
    if not callable(value):
        raise PrivcalcError(f"{name} = {value!r}: must be a function, {what}")


def orders(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """Return Rényi orders: an array of numbers > 1, ∞ included."""
    array = floats(name, value, "numbers > 1 (inf included)")
    if array.size == 0 or not (array > 1).all():
        raise PrivcalcError(f"{name} = {value!r}: must be numbers > 1 (inf included)")
    return array


def dense(name: str, tensor: Any) -> Any:
    """Return a torch tensor without its history, or raise because it has no real numbers in memory."""
    kind = f"{tensor.dtype}".removeprefix("torch.")
    if tensor.is_nested or f"{tensor.layout}" != "torch.strided":
        raise PrivcalcError(f"{name}: must be a dense tensor, not sparse or nested; use to_dense()")
    if tensor.is_meta:
        raise PrivcalcError(f"{name}: must have values, which a tensor on the device 'meta' has not")
    if tensor.is_quantized or tensor.is_complex():
        raise PrivcalcError(f"{name}: must be a tensor of real numbers, not of {kind}")
    return tensor.detach()


def array(name: str, values: object) -> NDArray[Any]:
    """Return a NumPy array, of any kind, of what an array, tensor or list holds.

    Errors show no values, which may be private.
    """
    import numpy as np  # arrays only: what a certificate says is checked without it

    if isinstance(values, np.ma.MaskedArray):
        raise PrivcalcError(f"{name}: must not be masked, because what is behind the mask would be used; fill it first")
    if is_tensor(values):
        tensor = dense(name, values)
        # bfloat16 has no NumPy type
        values = (tensor.double() if tensor.is_floating_point() else tensor).cpu().numpy()
    try:
        return np.asarray(values)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise PrivcalcError(f"{name}: must be an array, with rows of equal length and no tensors in lists") from error


def numbers(name: str, values: object) -> NDArray[Any]:
    """Return data as a NumPy array of floats, integers that doubles hold, or truth values, which are 0 and 1.

    Raises:
        PrivcalcError: for anything else: complex numbers, text, times, objects.
    """
    found = array(name, values)
    if found.dtype.kind not in "biuf" or found.dtype.itemsize > 8:
        raise PrivcalcError(f"{name}: must be an array of real numbers of at most 64 bits, not of {found.dtype}")
    if found.dtype.kind in "iu" and found.size and (found.max() > 2**53 or found.min() < -(2**53)):
        raise PrivcalcError(f"{name}: must be integers of at most 2^53 in absolute value")
    return found


def floats(name: str, values: object, allowed: str) -> NDArray[np.float64]:
    """Return public parameters as doubles: of any numbers, also such as fractions."""
    import numpy as np

    found = array(name, values)
    if found.dtype.kind == "O":
        flat = [real(name, value, allowed, low=-math.inf, high=math.inf) for value in found.ravel()]
        return np.array(flat, dtype=np.float64).reshape(found.shape)
    if found.dtype.kind not in "iuf":
        raise PrivcalcError(f"{name} = {values!r}: must be {allowed}")
    return found.astype(np.float64)


def each(name: str, values: object, check: Callable[[str, Any], float]) -> NDArray[np.float64]:
    """Return public parameters as doubles, each of which passes the check of a single one; errors name its place."""
    import numpy as np

    found = array(name, values).astype(object) if hasattr(values, "dtype") else np.asarray(values, dtype=object)
    flat = found.ravel()
    where = (", ".join(map(str, place)) for place in np.ndindex(found.shape))
    checked = [check(f"{name}[{place}]", value) for place, value in zip(where, flat, strict=True)]
    return np.array(checked, dtype=np.float64).reshape(found.shape)


def is_array(values: object) -> bool:
    """Whether it is an array, tensor or list of some, and not one number."""
    return isinstance(values, (list, tuple)) or bool(getattr(values, "ndim", 0))


def is_tensor(values: object) -> bool:
    """Whether it is of torch, which need not be installed."""
    return type(values).__module__.partition(".")[0] == "torch" and hasattr(values, "is_quantized")


def _is_scalar(value: object) -> bool:
    """Whether it may be one real number: no array, and no kind that float() makes one of."""
    if type(value) in (float, int):  # what nearly all are
        return True
    dimensions: object = getattr(value, "ndim", 0)
    if isinstance(value, (bool, str, bytes)) or hasattr(value, "mask") or dimensions:
        return False
    kind = f"{getattr(value, 'dtype', 'int')}".removeprefix("torch.")
    return kind.startswith(("int", "uint", "float", "bfloat"))


def check_keywords(function: Callable[..., Any], name: str, given: Iterable[str]) -> None:
    """Raise UnknownArgument for the first keyword that a function does not take, and nothing if there is none."""
    try:
        known = keywords.arguments(function)
    except (LookupError, NameError, ValueError):  # any are taken, or nobody can tell
        return
    for word in given:
        if word not in known:
            one = keywords.meant(word, known)
            hint = f"did you mean {one}=?" if one else f"it takes {', '.join(known) or 'none'}"
            raise UnknownArgument(f"{word}: is no argument of {name}; {hint}")


def suggests(function: Call) -> Call:
    """Have a function say what was meant where a keyword is not its own; what it does is unchanged."""
    name = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]

    @functools.wraps(function)
    def called(*values: Any, **given: Any) -> Any:
        try:
            return function(*values, **given)
        except TypeError:
            check_keywords(function, name, given)
            raise

    return cast(Call, called)


class Suggesting(ABCMeta):
    """The type of classes that say so of the keywords they are made with."""

    if not TYPE_CHECKING:

        def __call__(cls, *values: Any, **given: Any) -> Any:
            try:
                return super().__call__(*values, **given)
            except TypeError:
                check_keywords(cls.__init__, cls.__name__, given)
                raise

        @property
        def __signature__(cls) -> inspect.Signature:
            """The signature of what makes them, not of ``__call__`` above: editors and ``help`` show it."""
            made = inspect.signature(cls.__init__)
            return made.replace(parameters=list(made.parameters.values())[1:])
