"""Other accountants, each behind one function: from a question to its answer, in our words.

``privcalc compare`` and ``python -m benchmarks.accountants`` ask them through here. Nothing is imported before
``Peer.load``. Each is asked as its own documentation does, with its defaults; where it has a parameter without default,
as it advises.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field

from privcalc.peers import packages
from privcalc.peers.question import Answer, Ask, Question

__all__ = ["PEERS", "Answer", "Ask", "Peer", "Question"]

RENYI = (
    "Rényi divergences do not determine δ: their best conversion is larger than the truth, "
    "most where few steps carry the loss"
)
GRID = (
    "losses rounded up to a grid of spacing 0.0001: the error adds up over the steps, "
    "and mass cut off at the ends counts as δ"
)
MESH = "a grid that may err by eps_error = 0.01, which is added; δ must allow for delta_error = δ/1000"
REPLACED = (
    "under REPLACE_ONE its `_maybe_compose` charges `GaussianDpEvent`, `LaplaceDpEvent` and "
    "`SampledWithoutReplacementDpEvent` as if a record moved the sum by C. The events define their noise multiplier as "
    "s/C with ‖v_i‖ ≤ C (`dp_event.py`), so that a replacement moves it by up to 2C; the same package's PLD accountant "
    "doubles it for Gaussians and refuses Laplace. `RdpAccountant` takes REPLACE_ONE (its documentation says no more "
    "than 'The neighboring relation') and refuses it for Poisson sampling. Its numbers are right where the noise "
    "multiplier is given over 2C, which is how `_compute_rdp_sample_wor_gaussian` explains its own argument, "
    "but not the event"
)
LIMIT = "a central limit, exact only for infinitely many steps at infinitely small rates; no bound"


@dataclass(frozen=True)
class Peer:
    """A peer: another accountant, and how to ask it.

    Attributes:
        package: its distribution's name.
        kind: "bound" (up to its rounding) or "estimate".
        why: what makes its ε differ, in words.
        load: imports it and returns how to ask it; ImportError, or anything else, where that fails.
        modules: what is imported.
        has_grid: whether it takes ``coarser``.
        answers: what it may be asked.
        passes_on: the accountant whose ε it passes on; else "".
        groups: whether it answers for groups of records.
        remembers: whether it keeps what it computed for one question, so that only first calls tell its cost.
        faults: why false claims of its bounds are known to be false, with the place in its code; else "".
    """

    package: str
    kind: str
    why: str
    load: Callable[[], Ask] = field(compare=False)
    modules: tuple[str, ...]
    has_grid: bool = False
    answers: tuple[str, ...] = ("epsilon",)
    passes_on: str = ""
    groups: bool = False
    remembers: bool = False
    faults: str = ""

    @property
    def version(self) -> str:
        """The installed version; PackageNotFoundError, an ImportError, where there is none."""
        metadata = importlib.import_module("importlib.metadata")  # slow to import
        return str(metadata.version(self.package))


SIGMA, RATES = ("epsilon", "sigma"), ("epsilon", "advantage", "power")
PLD = "dp-accounting PLD"
PEERS: dict[str, Peer] = {
    PLD: Peer(
        package="dp-accounting",
        kind="bound",
        why=GRID,
        load=lambda: packages.dp_accounting("dp_accounting.pld", "PLDAccountant"),
        modules=("dp_accounting", "dp_accounting.pld"),
        has_grid=True,
        answers=SIGMA,
        groups=True,
    ),
    "dp-accounting RDP": Peer(
        package="dp-accounting",
        kind="bound",
        why=RENYI,
        load=lambda: packages.dp_accounting("dp_accounting.rdp", "RdpAccountant"),
        modules=("dp_accounting", "dp_accounting.rdp"),
        answers=SIGMA,
        faults=REPLACED,
    ),
    "prv-accountant": Peer(
        "prv-accountant", "bound", MESH, packages.prv_accountant, ("prv_accountant",), has_grid=True, answers=SIGMA
    ),
    "Opacus PRV": Peer(
        "opacus",
        "bound",
        MESH,
        lambda: packages.opacus("PRVAccountant"),
        ("opacus.accountants",),
        has_grid=True,
        answers=SIGMA,
    ),
    "Opacus RDP": Peer(
        "opacus", "bound", RENYI, lambda: packages.opacus("RDPAccountant"), ("opacus.accountants",), answers=SIGMA
    ),
    "Opacus GDP": Peer(
        "opacus",
        "estimate",
        LIMIT,
        lambda: packages.opacus("GaussianAccountant"),
        ("opacus.accountants",),
        answers=SIGMA,
    ),
    "autodp RDP": Peer("autodp", "bound", RENYI, packages.autodp, ("autodp.mechanism_zoo", "autodp.transformer_zoo")),
    "opake": Peer(
        package="opake-dpsgd",
        kind="bound",
        why=GRID,
        load=packages.opake,
        modules=("opake.dpsgd.accounting",),
        has_grid=True,
        answers=(*SIGMA, "advantage", "power"),
        remembers=True,
    ),
    "riskcal": Peer(
        package="riskcal",
        kind="bound",
        why=GRID,
        load=lambda: packages.connect_the_dots("riskcal.accountants"),
        modules=("riskcal.accountants",),
        answers=RATES,
        passes_on=PLD,
    ),
    "gdpnum": Peer(
        package="gdpnum",
        kind="bound",
        why=GRID,
        load=lambda: packages.connect_the_dots("gdpnum"),
        modules=("gdpnum",),
        answers=RATES,
        passes_on=PLD,
    ),
    "PLD_accounting": Peer(
        "PLD_accounting", "bound", GRID, packages.pld_accounting, ("PLD_accounting",), has_grid=True
    ),
}
