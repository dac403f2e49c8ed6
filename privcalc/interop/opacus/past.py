"""Under Opacus: what earlier steps of one ledger have left, also in other processes (``proofs/interop.md``, §3)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import NamedTuple

import torch

from privcalc.ledger.ledger import Ledger

__all__ = ["Past", "State", "Used", "state_of"]

COST = {"n": 2**15, "r": 8, "p": 1, "maxmem": 2**26}
"""Of scrypt: a third of a second for each seed that is tried."""


class State(NamedTuple):
    """Of a generator: a digest, which is no secret of the records' but of the noise, and the seed that it comes from."""

    digest: bytes
    seed: int


def state_of(generator: torch.Generator | None, device: torch.device | str = "cpu") -> State:
    """The state of a generator, or of torch's own for a device. On the CPU seeds have 32 bits, and others are names of these."""
    where = torch.device(device) if generator is None else generator.device
    if generator is not None:
        state, seed = generator.get_state(), generator.initial_seed()
    elif where.type == "cpu":
        state, seed = torch.get_rng_state(), torch.initial_seed()
    else:
        own = torch.get_device_module(where)
        state, seed = own.get_rng_state(where), own.initial_seed()
    bits = state.cpu().numpy().tobytes()
    if where.type == "cpu":
        bits, seed = bits[8:], seed % 2**32  # the state begins with the seed as it was given
    return State(hashlib.sha256(f"{where}".encode() + bits).digest()[:16], seed)


class Past:
    """What the steps of a ledger began with and have left, of all processes.

    Weights are released by the steps that made them, so that their digests may be in the ledger's file, which others see. A
    state of a generator is as secret as the noise: what is written down of it costs as much time for each seed that somebody
    tries as :data:`COST` says, so that nobody learns the noise from it who does not learn it from the weights sooner.

    Args:
        ledger: where it is written down.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        lines = ledger.journal
        self._salt = (lines.hash_of(1) or "").encode()
        self._secret = lines.path is not None  # else nobody sees it, and it need not be slow
        self._keys: dict[int, bytes] = {}
        self._new: list[str] = []

    @property
    def begun(self) -> bool:
        """Whether any weights are known."""
        return any(each.startswith("weights:") for each in self._ledger.marks)

    @property
    def ended(self) -> bool:
        """Whether nothing more is written down."""
        return self._ledger.ended

    def knows(self, kind: str, digest: bytes) -> bool:
        """Whether a step has left this."""
        return _mark(kind, digest) in self._ledger.marks

    def left(self, **digests: bytes) -> None:
        """A step has left this; states of generators that were used since the last are written down with it."""
        self._ledger.mark([*self._new, *(_mark(kind, digest) for kind, digest in digests.items())])
        self._new.clear()

    def had(self, state: State) -> bool:
        """Whether bits were drawn in this state. Where nobody claims privacy it does not matter."""
        return not self._ledger.terms.seeded and self._name(state) in self._ledger.marks

    def use(self, states: Iterable[State]) -> None:
        """Bits are drawn in these."""
        if not self._ledger.terms.seeded:
            self._new += map(self._name, states)

    def _name(self, state: State) -> str:
        if state.seed not in self._keys:
            seed = state.seed.to_bytes(8, "little", signed=state.seed < 0)
            self._keys[state.seed] = hashlib.scrypt(seed, salt=self._salt, **COST) if self._secret else seed
        return _mark("bits", hmac.digest(self._keys[state.seed], state.digest, "sha256"))


class Used:
    """States of generators that bits were drawn in, in this run."""

    def __init__(self) -> None:
        self._own: set[State] = set()
        self._past: Past | None = None

    def goes_to(self, past: Past) -> None:
        """A ledger is kept from now on."""
        past.use(self._own)
        self._past = past

    def had(self, states: Iterable[State]) -> bool:
        """Whether one of these was there before."""
        return any(each in self._own or (self._past is not None and self._past.had(each)) for each in states)

    def add(self, states: Iterable[State]) -> None:
        """Bits were drawn in these."""
        new = set(states) - self._own
        self._own |= new
        if self._past is not None:
            self._past.use(new)


def _mark(kind: str, digest: bytes) -> str:
    return f"{kind}:{digest.hex()[:32]}"
