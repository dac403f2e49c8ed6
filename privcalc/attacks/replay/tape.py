"""The tape of a run: what passes its doors, recorded in one run and replayed in another.

In the other run the doors open for the same releases.

A door is a function through which noisy values leave, such as ``Ledger.gaussian``. What it is given is private;
everything else about the call is public. While a tape is played, a door lets out what it let out in the recorded run.
So two runs that differ are different in what passes beside the doors.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privcalc import errors
from privcalc.numerics.floats import Floats

DOORS = {"gaussian": "values", "laplace": "values", "select": "scores"}
"""Functions that release something, and the argument that is private; ``clip_norm`` or ``sensitivity`` bounds it."""

BATCHES = ("batch", "poisson_batch", "fixed_size_batch")
"""Functions that draw a batch; ``records``, how many there are, is private."""

PRIVATE = {"self", "batch", "records", "persons", "size", *DOORS.values()}


class Diverged(Exception):
    """The public side of a call is not that of the recorded run: nothing later can be compared."""


class Enough(BaseException):
    """The run made as many releases as are looked at.

    Not an Exception, so that no program takes it for a failure of its own.
    """


@dataclass(frozen=True, eq=False)
class Release:
    """One call of a door.

    Attributes:
        name: of the door.
        public: its arguments, in words, and the shape and kind of the values.
        values: what it was given.
        kind: of what number, as NumPy names it.
        bound: how far one record may move them, as declared.
        norm: in which norm.
        exact: whether the sum is declared to be exact up to this error; None if nothing was said.
        sampled: whether they are of a batch: "" (no), "poisson" or "fixed".
        there: whether an added record is in that batch.
        monotone: whether a record can only raise them, or only lower them.
        released: what left.
    """

    name: str
    public: dict[str, str]
    values: Floats
    kind: str
    bound: float
    norm: float
    exact: float | None
    sampled: str
    there: bool
    monotone: bool
    released: Any

    @property
    def what(self) -> str:
        """The name of the release and its mechanism, for messages."""
        return f"{self.name} of {self.public.get('mechanism', 'noise')}"


@dataclass(eq=False)
class Tape:
    """The releases of a run.

    Attributes:
        size: how many records the run has,
        extras: of which so many, the last ones, were added.
        seed: of coins.
        again: seeds the generators again.
        phase: whether records that were added are in the first batch and every other one (0), or in the others (1).
        played: the releases of the recorded run, if it is replayed.
        most: after how many releases the run ends; None: it runs to its end.
        releases: those of this run.
        reason: why it diverged.
    """

    size: int
    extras: int
    seed: int
    again: Callable[[int], None]
    phase: int = 0
    played: Sequence[Release] | None = None
    most: int | None = None
    releases: list[Release] = field(default_factory=list)
    reason: str | None = None
    _batches: int = 0
    _drawing: bool = False
    _there: dict[int, tuple[str, bool]] = field(default_factory=dict)
    _kept: list[Any] = field(default_factory=list)

    def release(self, name: str, given: dict[str, Any], call: Callable[[], Any]) -> Any:
        """A door is called."""
        values = errors.array(DOORS[name], given[DOORS[name]])
        mechanism = given.get("mechanism")
        inner = getattr(mechanism, "mechanism", mechanism)
        norm = {"gaussian": float(getattr(inner, "norm", 2)), "laplace": 1.0, "select": np.inf}[name]
        public = {key: str(value) for key, value in given.items() if key not in PRIVATE}
        public |= {"shape": str(values.shape), "kind": str(values.dtype)}
        self._check(name, public)
        sampled, there = self._there.get(id(given.get("batch")), ("", True))
        number = len(self.releases)
        released = call() if self.played is None else self.played[number].released
        self.releases.append(
            Release(
                name,
                public,
                values.astype(np.float64),
                str(values.dtype),
                float(given.get("clip_norm", given.get("sensitivity", 0.0))),
                norm,
                given.get("error"),
                sampled,
                there,
                bool(given.get("monotone", False)),
                copy.deepcopy(released),
            )
        )
        if self.played is not None:
            call()  # which may refuse what it was given
            released = copy.deepcopy(released)
        self.again(number + 1)
        if len(self.releases) == self.most:
            raise Enough
        return released

    def _check(self, name: str, public: dict[str, str]) -> None:
        """The public side is that of the recorded run."""
        if self.played is None:
            return
        number = len(self.releases)
        if self.reason is None and number >= len(self.played):
            self.reason = f"has more than {len(self.played)} releases"
        elif self.reason is None:
            other = self.played[number]
            found = {"door": name, **public}
            named = {"door": other.name, **other.public}
            differ = [key for key in named if found.get(key) != named[key]] or [
                key for key in found if key not in named
            ]
            if differ:
                told = ", ".join(f"{key} = {found.get(key)} and not {named.get(key)}" for key in differ)
                self.reason = f"release {number + 1} has {told}"
        if self.reason is not None:
            raise Diverged(self.reason)

    def batch(self, name: str, given: dict[str, Any], draw: Callable[[], Any]) -> Any:
        """A batch is drawn: the same records in every run; those that were added are in every other one."""
        if self._drawing:  # by a function that asks another one for it
            return draw()
        self._drawing = True
        try:
            found = draw()
        finally:
            self._drawing = False
        step, there = given["step"], self._batches % 2 == self.phase
        size = given.get("records")
        if size is None and given.get("persons") is not None:
            size = len(given["persons"])
        if size is None:
            public = getattr(getattr(given.get("self"), "terms", None), "public", {})
            size = getattr(step, "dataset_size", None) if name == "fixed_size_batch" else public.get("records")
        indices = self._drawn(int(size or 0), step, there=there)
        object.__setattr__(found, "indices", indices)
        self._there[id(found)] = ("fixed" if _sized(step) else "poisson"), there or _whole(step)
        self._kept.append(found)  # so that its id stays its own
        self._batches += 1
        return found

    def _drawn(self, size: int, step: Any, *, there: bool) -> NDArray[np.int64]:
        others = size - self.extras if size == self.size else size
        extras = np.arange(others, size)
        order = np.random.Generator(np.random.PCG64([self.seed, self._batches])).random(others)
        if _sized(step):
            chosen = np.resize(np.argsort(order), max(others, step.batch_size) if others else 0)
            added = extras[: step.batch_size] if there else extras[:0]
            return np.sort(np.concatenate([chosen[: step.batch_size - added.size], added]))
        if _whole(step):
            return np.arange(size)
        coins = np.flatnonzero(order < 0.5)
        while coins.size and not step.fits(coins.size + 1):
            coins = coins[:-1]  # none makes room for another
        return np.concatenate([coins, extras if there else extras[:0]])


def _sized(step: Any) -> bool:
    """Return whether a step's batches have one size, so that a record that comes takes the place of another."""
    return bool(getattr(step, "sized", False))


def _whole(step: Any) -> bool:
    """Whether all records are in every batch."""
    return not step.sampled or bool(getattr(step, "rate", 0.0) == 1.0 and step.fits(sys.maxsize))


_PLAYING: ContextVar[Tape | None] = ContextVar("playing", default=None)
"""Of this thread (or task) alone: what others draw meanwhile is theirs."""


def playing() -> bool:
    """Whether this is within a replay."""
    return _PLAYING.get() is not None


@contextlib.contextmanager
def opened(owners: Sequence[Any], tape: Tape) -> Iterator[None]:
    """While this lasts, what passes the doors of classes or modules in this thread is on the tape."""
    with contextlib.ExitStack() as stack:
        stack.callback(_PLAYING.reset, _PLAYING.set(tape))
        for owner in owners:
            for name in (*DOORS, *BATCHES):
                if callable(original := getattr(owner, name, None)):
                    inherited = name not in vars(owner)
                    setattr(owner, name, _door(name, original, tape))
                    stack.callback(_close, owner, name, original, inherited)
        yield


def _close(owner: Any, name: str, original: Any, inherited: bool) -> None:
    if inherited:
        delattr(owner, name)
    else:
        setattr(owner, name, original)


def _door(name: str, original: Callable[..., Any], tape: Tape) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def door(*args: Any, **kwargs: Any) -> Any:
        if _PLAYING.get() is not tape:
            return original(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        call = functools.partial(original, *args, **kwargs)
        pass_through = tape.release if name in DOORS else tape.batch
        return pass_through(name, bound.arguments, call)

    return door


@contextlib.contextmanager
def replayed(seed: int) -> Iterator[Callable[[int], None]]:
    """Seed the global generators and ``numpy.random.default_rng()`` while this lasts; then all is as before.

    They are those of all threads: meanwhile no other one should draw from them.

    Yields:
        A function that seeds them again, by a number: after each release, so that what one run drew more than another
        does not shift what follows.
    """
    torch: Any = sys.modules.get("torch")
    before = random.getstate(), np.random.get_state(), None if torch is None else torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if torch is not None and torch.cuda.is_initialized() else None
    make, made = np.random.default_rng, 0

    def seeded(given: Any = None) -> np.random.Generator:
        nonlocal made
        if given is not None:
            return make(given)
        made += 1
        return make([seed, made])

    def again(number: int) -> None:
        random.seed(f"{seed}/{number}")
        np.random.seed([seed, number])
        if torch is not None:
            torch.manual_seed(seed * 2**20 + number)

    vars(np.random)["default_rng"] = seeded
    try:
        again(0)
        yield again
    finally:
        vars(np.random)["default_rng"] = make
        random.setstate(before[0])
        np.random.set_state(before[1])
        if torch is not None:
            torch.seed()  # of all devices: nobody must know what those draw whose state cannot be brought back
            torch.set_rng_state(before[2])
            if devices is not None:
                torch.cuda.set_rng_state_all(devices)
