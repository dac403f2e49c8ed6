"""The transform of a person's records, each with its own coin: k removed or added, or i removed and j added.

With w the ratio of ``counts.py`` for those removed, w' for those added,

    M(s) = E[w(t)^{s+1} w'(−t)^{−s}],      t ~ N(0, 1).

Where t has an imaginary part both arguments of L = log w(t) − log w'(−t) are ≥ 0. Proofs: ``proofs/users.md``, §3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from privcalc.numerics.counts import Counts, TurnedLogRatio
from privcalc.numerics.faces import Complexes
from privcalc.numerics.floats import Floats
from privcalc.numerics.normal import log_normal_tail
from privcalc.numerics.normal_loss import Logs, NormalLoss


@dataclass(frozen=True)
class UsersTransform(NormalLoss):
    """Σ_j P(J = j)·N(jμ, 1) against Σ_j P(J' = j)·N(−jμ, 1); None for a J that is always 0."""

    shift: float
    up: Counts | None
    down: Counts | None
    mu: float = field(init=False, default=0.0)
    """How far a unit of Im t turns the ratios."""

    @property
    def _laws(self) -> list[Counts]:
        return [law for law in (self.up, self.down) if law is not None]

    @property
    def _turns(self) -> int:
        """1 where all zeros of w and w' are real, else the largest J: each r_j may then turn by π in all."""
        return 1 if all(law.most == law.records for law in self._laws) else max(law.largest for law in self._laws)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", self.shift * self._turns)

    def logs(self, t: Floats) -> Logs[Floats]:
        """A = log w(t), L = log w(t) − log w'(−t)."""
        none = np.zeros_like(t)
        up, up_size = (none, none) if self.up is None else self.up.log_ratio(self.shift, t)
        down, down_size = (none, none) if self.down is None else self.down.log_ratio(self.shift, -t)
        return Logs(up, up - down, up_size, up_size + down_size)

    def turned(self, t: Floats, angle: float | Floats) -> Logs[Complexes]:
        none = np.zeros(np.broadcast_shapes(np.shape(t), np.shape(angle)))
        inner = angle / self._turns
        zero = TurnedLogRatio(np.zeros(none.shape, dtype=np.complex128), none)
        up, up_size = zero if self.up is None else self.up.turned_log_ratio(self.shift, t, inner)
        down, down_size = zero if self.down is None else self.down.turned_log_ratio(self.shift, -t, inner)
        return Logs(up, np.asarray(up - np.conj(down), dtype=np.complex128), up_size, up_size + down_size)

    def log_kappa(self, angle: Floats, c: float | Floats) -> Floats:
        """Return log κ of w'(−t)^{−c}: |w'| is at least (cos ½α)^m times what it is at α = 0."""
        if self.down is None:
            return np.zeros_like(angle)
        power = 1.0 if self._turns > 1 else min(self.down.records, -2 / math.expm1(-0.5 * self.shift**2))
        return np.asarray(-c * power * np.log(np.cos(0.5 * angle)), dtype=np.float64)

    def ends(self, c: float, step: float, log_tol: float) -> tuple[float, float | None]:
        """Ends of the rule: for t ≤ 0 w(t) ≤ 1, and w'(−t) ≥ 1 from a mean shift on.

        On the right w'^{−c} is below a tangent, if w = 1.
        """
        z = math.sqrt(-2 * log_tol)
        left, law = z, self.down
        if law is not None:
            left = max(z, 0.5 * self.shift * law.means[1] / law.means[0] * (1 + 1e-9))
        if self.up is not None or law is None:
            return -left - step, None
        far = -math.sqrt(2 * (-log_tol - c * law.log_never)) - step
        # With x = −t, −c·log w'(x) is concave: below its tangent at b, of slope −k.
        b = np.linspace(-z, far, 65)[:-1] - step
        log_b = law.log_ratio(self.shift, b + step).value
        slope = c * self.shift * law.mean_at(self.shift, b + step)
        log_tail = -c * log_b + slope * (b + step) + 0.5 * slope**2 + log_normal_tail(-(b + step) - slope)
        good = (log_tail <= log_tol) & (-(b + step) >= slope)
        if good.any():
            far = float(b[int(np.argmax(good))])
        return -left - step, -far

    def log_beyond(self, b: float) -> float:
        """For the mixture of those removed."""
        if self.up is None:
            return float(log_normal_tail(np.array(b)))
        value, size = self.up.log_beyond(self.shift, np.array([b]))
        return float(value[0] + 1e-15 * size[0])

    def beyond(self, log_mass: float) -> float:
        """Each of the n + 1 normal tails by Φ(−z) ≤ e^{−z²/2}/2, and a share of 2/(n + 1) for it."""
        assert self.up is not None
        j = np.arange(self.up.weights.size)
        room = self.up.log_weights + math.log(0.5 * j.size) - log_mass
        return float(np.max(j * self.shift + np.sqrt(2 * np.maximum(room, 0.0))))

    def reach(self, c: float, log_tol: float) -> float:
        """The modes of r_j^{c+1}φ, each with its weight, times w'^{−c} at most."""
        assert self.up is not None
        j = np.arange(self.up.weights.size)
        rest = -c * self.down.log_never if self.down is not None else 0.0
        size = (c + 1) * self.up.log_weights + 0.5 * c * (c + 1) * (j * self.shift) ** 2 + rest
        return float(np.max((c + 1) * j * self.shift + np.sqrt(2 * np.maximum(size - log_tol + 8, 0.0)))) + 4
