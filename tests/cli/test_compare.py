"""``privcalc compare``: peers beside us, with the reasons."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import privcalc as pc
from privcalc import peers
from privcalc.cli import main
from privcalc.peers import PEERS, compare
from privcalc.serial import run_to_json


def described(folder: Path, run: pc.Run, relation: pc.Relation = pc.ADD_OR_REMOVE_ONE) -> str:
    path = folder / "run.json"
    fields = {
        "format": "privcalc run",
        "version": 1,
        "relation": str(relation),
        "unit": "one record",
        "run": run_to_json(run),
    }
    path.write_text(json.dumps(fields))
    return str(path)


def rows(run: Any, names: str = "", **options: Any) -> dict[str, compare.Row]:
    """Only peers of that package, because some are slow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "PEERS", {k: v for k, v in PEERS.items() if k.startswith(names)})
        return {row.accountant: row for row in compare.compare(run, delta=1e-5, **options)}


def test_ours_stands_first_and_alone_where_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    run = pc.Gaussian(1.0) * 3  # names of ours are imported when they are first asked for, too
    epsilon = run.epsilon(delta=1e-5).upper
    monkeypatch.setattr(peers.importlib, "import_module", absent)
    (row,) = compare.compare(run, delta=1e-5)
    assert (row.accountant, row.epsilon) == ("privcalc", epsilon)


def test_a_peer_that_does_not_import_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise TypeError("__weakref__ slot disallowed")

    monkeypatch.setattr(compare, "PEERS", {"broken": peers.Peer("broken", "bound", "", broken, ("broken",))})
    _, row = compare.compare(pc.Gaussian(1.0), delta=1e-5)
    assert math.isnan(row.epsilon)
    assert row.why == ("no answer: __weakref__ slot disallowed",)


def test_dp_accounting_and_its_reasons() -> None:
    pytest.importorskip("dp_accounting")
    run = pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 1000
    found = rows(run, "dp-accounting")
    grid, renyi = found["dp-accounting PLD"], found["dp-accounting RDP"]
    assert 0 < grid.excess < 1e-4
    assert any("grid" in line for line in grid.why)
    assert 0.1 < renyi.excess < 0.2
    assert any("best at order" in line for line in renyi.why)
    assert any("Rényi" in line for line in renyi.why)


def test_a_number_for_another_relation_is_recognised() -> None:
    pytest.importorskip("dp_accounting")
    renyi = rows(pc.Gaussian(1.0), "dp-accounting", relation=pc.REPLACE_ONE)["dp-accounting RDP"]
    assert renyi.excess < -0.5
    assert any("too small for replace-one" in line for line in renyi.why)
    assert any("fits add-or-remove-one" in line and "2C" in line for line in renyi.why)


def test_order_at_the_end_of_the_grid_is_said() -> None:
    pytest.importorskip("dp_accounting")
    renyi = rows(pc.Gaussian(1e4), "dp-accounting")["dp-accounting RDP"]
    assert any("an end of its grid" in line for line in renyi.why)


def test_opacus_estimates_are_called_that() -> None:
    pytest.importorskip("opacus")
    found = rows(
        pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 1000 + pc.PoissonSampled(pc.Gaussian(2.0), 0.01) * 10, "Opacus"
    )
    assert found["Opacus PRV"].excess > 0
    assert any("one kind" in line for line in found["Opacus GDP"].why)
    limit = rows(pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 1000, "Opacus")["Opacus GDP"]
    assert limit.kind == "estimate"
    assert limit.excess < 0
    assert any("central limit" in line for line in limit.why)
    elsewhere = rows(pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 1000, names="Opacus", relation=pc.REPLACE_ONE)[
        "Opacus PRV"
    ]
    assert elsewhere.relation == "add-or-remove-one"
    assert any("replace-one was asked" in line for line in elsewhere.why)


def test_what_a_peer_cannot_describe_is_said() -> None:
    for name, row in rows(pc.TopK(0.5, 3)).items():
        if name != "privcalc":
            assert math.isnan(row.epsilon)
            assert row.why[0].startswith("no answer")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = described(tmp_path, pc.Gaussian(1.0) * 3)
    assert main(["compare", path, "--delta", "1e-5"]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0] == "3 × Gaussian(noise_multiplier=1.0)"
    assert "proved interval" in text
    assert main(["compare", path, "--delta", "1e-5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["accountants"][0]["epsilon"] == (pc.Gaussian(1.0) * 3).epsilon(delta=1e-5).upper
    assert main(["compare", path, "--delta", "2"]) == 2
    assert "--delta" in capsys.readouterr().err
    assert main(["compare", str(tmp_path / "none.json"), "--delta", "1e-5"]) == 2
    (tmp_path / "bad.json").write_text("{}")
    assert main(["compare", str(tmp_path / "bad.json"), "--delta", "1e-5"]) == 2


def test_a_peer_that_forgets_the_count_is_caught() -> None:
    pytest.importorskip("dp_accounting")
    row = rows(pc.RandomizedResponse(1.0) * 20, "dp-accounting PLD", relation=pc.REPLACE_ONE)["dp-accounting PLD"]
    if row.excess < 0:  # dp-accounting 0.6.0 composes 20 uses as one
        assert any("too small for replace-one" in line for line in row.why)
        assert row.epsilon == pytest.approx(1.0, abs=1e-3)
