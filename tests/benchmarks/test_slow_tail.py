"""The benchmark of the slow tail: what it says of what it measured."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

import privcalc as pc
from benchmarks import slow_tail, where
from benchmarks.slow_tail import Found, Row, behind, main, measure, table, width_of

ROW = Found("usual case", 0.002, 0.002, 1e-10, 1e-9, 0.2, "")
OTHER = Found("other", 0.1, 0.2, 0.0, math.inf, None, "")


def test_rows_are_of_different_names() -> None:
    names = [row.name for row in slow_tail.rows()]
    assert len(names) == len(set(names)) >= 15


def test_reached_needs_time_and_width() -> None:
    assert ROW.reached
    assert not dataclasses.replace(ROW, seconds=0.0021).reached
    assert not dataclasses.replace(ROW, width=2e-9).reached
    text = table([dataclasses.replace(ROW, seconds=0.1, obstacle="a reason"), OTHER])
    assert text.splitlines()[-2].endswith("| no: a reason |")
    assert text.splitlines()[-1].endswith("| yes |")


def test_what_falls_behind_by_half_is_said() -> None:
    recorded = [asdict(ROW), asdict(OTHER)]
    assert behind([ROW, OTHER], recorded) == []
    slow_machine = [dataclasses.replace(ROW, seconds=0.008, peer=0.8), dataclasses.replace(OTHER, seconds=0.4)]
    assert behind(slow_machine, recorded) == []
    slower = [dataclasses.replace(ROW, seconds=0.0031), OTHER]
    assert [line.partition(":")[0] for line in behind(slower, recorded)] == ["usual case"]
    assert [line.partition(":")[0] for line in behind([ROW, dataclasses.replace(OTHER, seconds=0.16)], recorded)] == [
        "other"
    ]
    with pytest.raises(pc.PrivcalcError, match="must answer in both runs"):
        behind([OTHER], recorded)


def test_widths() -> None:
    answer = (pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 100).epsilon(delta=1e-5)
    assert width_of(answer) == (answer.upper - answer.lower) / answer.upper
    rows = np.array([(1.0, 2.0), (1.0, 1.0)], dtype=[("lower", float), ("upper", float)])
    assert width_of(rows) == 0.5
    assert width_of("text") == 0.0


def test_the_worst_case_is_told() -> None:
    calls: list[int] = []

    def slow() -> object:
        calls.append(1)
        return sum(x * x for x in range(200_000))

    found = measure(Row("both", 1.0, (lambda: 0, slow)), None)
    assert found.peer is None
    assert found.seconds > 1e-4
    assert len(calls) > 3


def test_where_the_time_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where, "SECONDS", 0.05)
    text = where.table([lambda: pc.Gaussian(1.0).epsilon(delta=1e-5)])
    assert "| privcalc/numerics/special.py |" in text
    assert all(name not in text for name in ("site-packages", "/lib/", str(Path.home())))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def rows() -> list[Row]:
        return [
            Row("sum", 1.0, (lambda: sum(range(1000)),), math.inf),
            Row("max", 1.0, (lambda: max(range(1000)),), math.inf),
        ]

    monkeypatch.setattr(slow_tail, "rows", rows)
    out = tmp_path / "found.json"
    assert main(["--rows", "sum", "--out", str(out)]) == 0
    assert "| sum |" in capsys.readouterr().out
    assert [row["name"] for row in json.loads(out.read_text())["rows"]] == ["sum"]
    assert "| sum |" in out.with_suffix(".md").read_text()
    assert main(["--profile", "none"]) == 2
    assert "there is no such row" in capsys.readouterr().err


def test_a_check_that_does_not_end_takes_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was counted as the seconds after which it was stopped."""

    def stopped(self: pc.Certificate) -> None:
        raise pc.NotConfirmed("seconds = 30: were not enough to check everything")

    monkeypatch.setattr(pc.Certificate, "verify", stopped)
    row = Row("verify", 2.0, (slow_tail.verified(pc.Gaussian(5.0).run),), math.inf)
    found = measure(row, None)
    assert found.seconds == math.inf
    assert not found.reached
    monkeypatch.setattr(slow_tail, "rows", lambda: [row])
    assert main(["--out", str(tmp_path / "found.json")]) == 0
    (written,) = json.loads((tmp_path / "found.json").read_text(), parse_constant=pytest.fail)["rows"]
    assert written["seconds"] is None
    assert "| verify | inf | 2 |" in (tmp_path / "found.md").read_text()
    one = Found("usual", 1.0, 1.0, 0.0, 1.0, 1.0, "")
    before = [{"name": "usual", "seconds": 1.0, "peer": 1.0}, written]
    assert behind([one, found], before) == []
    assert len(behind([one, found], [before[0], written | {"seconds": 1.0}])) == 1
