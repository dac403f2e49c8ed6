"""A mechanism is the only place that knows of itself: one that says too little is no class; one that is made up works."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, ClassVar

import pytest

import privcalc as pc
from privcalc.ledger.assumptions import PAGES
from privcalc.mechanisms import known
from privcalc.pairs.dominating import Pairs
from privcalc.run import KINDS, NEEDS, Mechanism

SAID: dict[str, Any] = {"kind": None, "page": "custom.md", "needs": (), "draws": None, "scheme": None}


def made_up(said: dict[str, Any]) -> type[Mechanism]:
    return type("MadeUp", (Mechanism,), {**said, "pairs": lambda self, relation: pc.Gaussian(1.0).pairs(relation)})


@pytest.mark.parametrize("name", SAID)
def test_a_mechanism_that_does_not_say_all_is_no_class(name: str) -> None:
    assert made_up(SAID)
    with pytest.raises(pc.PrivcalcError, match=f"MadeUp: must say {name}"):
        made_up({key: value for key, value in SAID.items() if key != name})


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"needs": ("normalizer",)}, "needs = .'normalizer',.: must be a tuple of some of normaliser"),
        ({"needs": "keys"}, "needs = 'keys'"),
        ({"draws": "batch"}, "scheme = None"),
        ({"kind": "Gaussian"}, "kind = 'Gaussian': is privcalc.mechanisms.gaussian.Gaussian already"),
    ],
)
def test_what_it_says_is_checked(said: dict[str, Any], message: str) -> None:
    before = dict(KINDS)
    with pytest.raises(pc.PrivcalcError, match=message):
        made_up({**SAID, **said})
    assert before == KINDS


def test_what_others_are_made_of_need_not_say_it() -> None:
    class Room(Mechanism):
        """No pairs yet."""

    class Inside(Room):
        """Some."""

        kind: ClassVar[str | None] = None
        page: ClassVar[str] = "custom.md"
        needs: ClassVar[tuple[str, ...]] = ()
        draws: ClassVar[str | None] = None
        scheme: ClassVar[str | None] = None

        def pairs(self, relation: pc.Relation) -> Pairs:
            return pc.Gaussian(1.0).pairs(relation)

    assert Inside() * 2


def test_every_need_is_a_line_of_certificates() -> None:
    assert set(NEEDS) <= set(PAGES)
    for kind in known().values():
        assert kind.draws is None or callable(getattr(pc.Ledger, kind.draws)), kind


def test_a_mechanism_that_nobody_asked_for_is_read_all_the_same() -> None:
    """The public names are loaded when they are asked for."""
    code = 'from privcalc.serial import mechanism_from_json; print(mechanism_from_json({"kind": "Laplace", "scale": 2}))'
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "Laplace(scale=2.0)\n"
    )
