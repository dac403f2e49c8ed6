"""The accountants' benchmark: what it asks, how it measures and judges, and the quick form as a whole."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import threading
import time
from collections import Counter
from itertools import combinations
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest

import privcalc as pc
from benchmarks.accountants import run as benchmark
from benchmarks.accountants import worker as benchmark_worker
from benchmarks.accountants.cases import DELTA, NOISE, RATE, STEPS, cases
from benchmarks.accountants.grid import GROUPS
from benchmarks.accountants.page import cells, judge, page
from benchmarks.accountants.worker import in_child, masses, measured, ours, truth
from privcalc import peers
from privcalc.errors import PrivcalcError

ROOT = Path(__file__).parents[2]
REPLACED = [
    "replace: 1 × Gaussian(1), δ=1e-05",
    "replace: 1000 × Gaussian(1) at q=0.01, δ=1e-05",
    "groups: 10 × Gaussian(4), k=2, δ=1e-05",
]
CASES = {case.key: case for case in cases()}


def installed(name: str) -> bool:
    try:
        return bool(peers.PEERS[name].version)
    except importlib.metadata.PackageNotFoundError:
        return False


# --- what is asked --------------------------------------------------------------------------------


def test_the_grid_is_drawn_in_a_process_with_one_thread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # so that it starts itself again
    out = tmp_path / "grid.json"
    assert benchmark.main(["--grid", "1", "--seed", "1", "--out", str(out)]) == 0
    assert [draw["group"] for draw in json.loads(out.read_text())["grid"]] == list(GROUPS)


def test_every_pair_of_levels_occurs_once_in_the_grid() -> None:
    assert len(CASES) == len(list(cases()))
    levels = []
    for case in CASES.values():
        if case.family == "grid":
            ((step, count),) = case.question.run.entries
            levels.append((step.rate, step.mechanism.noise_multiplier, count, case.question.delta))
    assert [sorted(set(column)) for column in zip(*levels, strict=True)] == [
        sorted(x) for x in (RATE, NOISE, STEPS, DELTA)
    ]
    for i, j in combinations(range(4), 2):
        assert set(Counter((row[i], row[j]) for row in levels).values()) == {1}


def test_the_quick_form_has_every_family() -> None:
    assert {case.family for case in CASES.values() if case.quick} == {case.family for case in CASES.values()}


# --- measuring ------------------------------------------------------------------------------------


def test_a_hang_a_crash_and_an_exception_end_one_question_only() -> None:
    def spin() -> dict[str, float]:
        while True:
            math.sqrt(2.0)

    def crash() -> dict[str, float]:
        os._exit(7)

    def wrong() -> dict[str, float]:
        raise ValueError("no\nsuch thing")

    def refuse() -> dict[str, float]:
        raise PrivcalcError("not mine")

    assert in_child(spin, 1.0) == {"failed": "more than 1 s", "late": True}
    assert in_child(lambda: {"waited": threading.Event().wait()}, 0.05)["late"]  # for ever, if it was not ended
    assert in_child(crash, 5.0) == {"failed": "the process ended (exit status 7)"}
    assert in_child(wrong, 5.0) == {"failed": "ValueError: no such thing"}
    assert in_child(refuse, 5.0) == {"cannot": "not mine"}
    assert in_child(lambda: {"value": 2.0}, 5.0) == {"value": 2.0}


def test_memory_is_that_of_one_question_and_bounded() -> None:
    question = CASES["steps: T=1"].question
    small, large = (
        in_child(lambda size=size: measured(lambda _: {"value": float(len(bytes(size) + b"x"))}, question, 0), 20.0)[
            "memory"
        ]
        for size in (1, 200 << 20)
    )
    assert 150 < large - small < 600  # MiB; the copy takes as much again
    assert in_child(lambda: {"value": len(bytes(16 << 30))}, 20.0)["failed"].startswith("MemoryError")


# --- judging --------------------------------------------------------------------------------------


def test_claims_are_judged_against_the_lower_end() -> None:
    right = {"low": 2.0, "high": 2.1}
    low, high, fair = (judge({"value": value, "warm": 0.5}, right, 0.25) for value in (1.99, 3.0, 2.0 * (1 - 1e-12)))
    assert (low.outcome, high.outcome, fair.outcome) == ("unsafe", "safe", "safe")
    assert (low.error, high.error) == (pytest.approx(-0.005), pytest.approx(0.5))
    assert high.ratio == 2.0
    assert judge({"value": 3.0, "warm": 0.0}, right, 0.25).seconds > 0  # the clock did not tick
    for value in ("inf", "nan"):
        assert judge({"value": value, "warm": 1.0}, right, 1.0).outcome == "failed"
    assert judge({"failed": "x"}, right, 1.0).outcome == "failed"
    assert judge({"cannot": "x"}, right, 1.0).outcome == "cannot"
    nothing = {"low": 0.0, "high": 0.0}
    assert judge({"value": -1e-18, "warm": 1.0}, nothing, 1.0).outcome == "unsafe"
    assert judge({"value": 0.0, "warm": 1.0}, nothing, 1.0).error == 0
    assert math.isnan(judge({"value": 0.1, "warm": 1.0}, nothing, 1.0).error)


def test_the_page_says_where_we_lose() -> None:
    key, other = "usual: q=0.01 σ=1 T=1000 δ=1e-05", "entries: 40 distinct"
    answer = {"first": 0.5, "memory": 100.0, "relation": "add-or-remove-one", "remark": ""}
    run = {
        "setup": {"quick": False, "limit": 30.0, "names": ["opake", "riskcal"], "versions": {"privcalc": "0"}},
        "missing": {"riskcal": "ModuleNotFoundError: riskcal"},
        "imports": {"privcalc": 0.3, "opake-dpsgd": 1.0},
        "seconds": 60.0,
        "file": "results/x.json",
        "truth": {
            key: {"low": 1.8282, "high": 1.8283, "source": "proved"},
            other: {"low": 0.2, "high": 0.3, "source": "engine"},
        },
        "answers": {
            "privcalc": {
                key: answer | {"value": 1.8283, "lower": 1.8282, "warm": 2.0},
                other: {"failed": "more than 30 s"},
            },
            "opake": {key: answer | {"value": 1.82825, "warm": 1.0}, other: answer | {"value": 0.1, "warm": 1.0}},
        },
    }
    text = page(run)
    top = next(line for line in text.splitlines() if line.startswith("| opake"))
    assert top.split(" | ")[1:4] == ["2", "2", "0.5"]
    assert "**1**, worst -50 %" in top
    assert "riskcal: not installed: ModuleNotFoundError: riskcal." in text
    assert "opake is tighter, 1.82825; opake, 2 times faster (error 3e-05)" in text
    assert "no answer: more than 30 s" in text
    assert "| entries | 40 distinct | opake | 0.1 | 0.2 | -50 % |" in text
    assert "0.2¹" in text
    assert cells(run, "opake")[key].ratio == 0.5


def test_the_page_is_written_from_the_run() -> None:
    run = json.loads((ROOT / "results/accountants.json").read_text("utf-8")) | {"file": "results/accountants.json"}
    assert page(run) == (ROOT / "results/accountants.md").read_text("utf-8")
    assert f"It has {len(CASES)} questions" in (ROOT / "docs/guides/accuracy.md").read_text("utf-8")


def test_families_are_added_to_a_run_of_other_versions(tmp_path: Path) -> None:
    path, names = tmp_path / "run.json", ["opake"]
    first = benchmark.started(True, names, path)
    first["setup"]["versions"] = {"privcalc": "0"}
    first["truth"] = {key: {} for key, case in CASES.items() if case.quick and case.family != "groups"}
    path.write_text(json.dumps(first), "utf-8")
    with pytest.raises(PrivcalcError, match="of another run"):
        benchmark.started(True, names, path)
    with pytest.raises(PrivcalcError, match="of another run"):
        benchmark.started(False, names, path, add=True)
    run = benchmark.started(True, names, path, add=True)
    assert {case.family for case in benchmark.questions(run)} == {"groups"}
    assert run["added"] == [{"families": ["groups"], "versions": benchmark.versions(), "missing": {}}]
    path.write_text(json.dumps(run), "utf-8")
    assert benchmark.started(True, names, path) == run
    # Later, with the same versions, a question that was not asked, and one that is new by then.
    del run["truth"][next(key for key, case in CASES.items() if case.quick and case.family == "users")]
    path.write_text(json.dumps(run), "utf-8")
    later = benchmark.started(True, names, path, add=True)
    assert [set(part["families"]) for part in later["added"]] == [{"groups", "users"}]


# --- asking ---------------------------------------------------------------------------------------


def test_masses_of_bins_have_their_digits_in_both_tails() -> None:
    """A bin of Q that came out as 0, or as a rounding of 1, would make the truth of a group larger than it is."""
    left = masses(np.array([-14.01, -14.0, -1.0, 0.5]))
    right = masses(np.array([-0.5, 1.0, 14.0, 14.01]))[::-1]
    assert right == pytest.approx(left, rel=1e-12, abs=0.0)
    with mp.workdps(40):
        truth = mp.ncdf(mp.mpf(-14.0)) - mp.ncdf(mp.mpf(-14.01))
    assert left[0] == pytest.approx(float(truth), rel=1e-10, abs=0.0)


@pytest.mark.slow
def test_replace_one_and_groups_are_asked_of_those_who_answer_them() -> None:
    gaussian, sample, group = (CASES[key].question for key in REPLACED)
    assert truth(gaussian)["low"] == pytest.approx(pc.Gaussian(0.5).epsilon(delta=1e-5).lower, rel=1e-9)
    assert truth(group)["low"] == pytest.approx((pc.Gaussian(2.0) * 10).epsilon(delta=1e-5).lower, rel=1e-9)
    few = next(
        case.question for case in CASES.values() if case.family == "groups" and case.question.run.entries[0][1] == 100
    )
    assert (side := truth(few))["low"] <= side["high"] <= 1.01 * side["low"]
    pytest.importorskip("dp_accounting")
    renyi, losses = (benchmark_worker.load(f"dp-accounting {name}") for name in ("RDP", "PLD"))
    assert renyi(gaussian)["value"] < 0.5 * truth(gaussian)["low"]
    for question in (gaussian, sample, group):
        assert losses(question)["value"] == pytest.approx(ours(question)["value"], rel=1e-5)
    for question in (sample, group):
        with pytest.raises(PrivcalcError):
            renyi(question)


def test_a_group_is_charged_whole_by_a_peer_that_knows_only_the_level() -> None:
    """A group of two is one record twice as far from the others."""
    pytest.importorskip("dp_accounting")
    ask = benchmark_worker.load("dp-accounting PLD")
    run = pc.Laplace(10.0) * 10 + pc.Gaussian(5.0) * 10 + pc.ExponentialMechanism(0.1) * 10
    twice = pc.Laplace(5.0) * 10 + pc.Gaussian(2.5) * 10 + pc.ExponentialMechanism(0.2) * 10
    there = ask(peers.Question(run, 1e-6, group_size=2))["value"]
    assert twice.epsilon(delta=1e-6).lower <= there <= 1.1 * twice.epsilon(delta=1e-6).upper
    sampled = pc.PoissonSampled(pc.Gaussian(5.0), 0.1).run + pc.PureDP(0.1)
    with pytest.raises(PrivcalcError, match="no group in a sampled batch"):
        ask(peers.Question(sampled, 1e-6, group_size=2))


@pytest.mark.slow
@pytest.mark.parametrize("key", [key for key, case in CASES.items() if case.family == "groups"])
def test_groups_have_a_truth_beside_our_answer(key: str) -> None:
    question = CASES[key].question
    found, right = ours(question), truth(question)
    assert found["lower"] <= right["high"]
    assert right["low"] <= found["value"]


@pytest.mark.parametrize(
    "key", ["usual: q=0.01 σ=10 T=1000 δ=1e-05", "sigma: ε=50 q=1 T=100 δ=1e-10", "attack: advantage"]
)
def test_the_truth_is_proved_beside_our_answer(key: str) -> None:
    pytest.importorskip("flint")
    question = CASES[key].question
    found, right = ours(question), truth(question)
    assert right["source"] == "proved"
    assert found["value"] * (1 - 1e-5) <= right["low"] <= found["value"] <= right["high"]


def test_a_false_answer_of_ours_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flint")
    question, right = CASES["usual: q=0.01 σ=10 T=1000 δ=1e-05"].question, 0.09775338555
    too_small = {"value": right * (1 - 1e-5), "lower": right * (1 - 2e-5), "warm": 1.0}
    monkeypatch.setattr(benchmark_worker, "ours", lambda _: too_small)
    found = truth(question)
    assert found["source"] == "proved"
    assert too_small["value"] < found["low"] <= right * (1 + 1e-9) <= found["high"] * (1 + 1e-9)
    assert judge(too_small, found, 1.0).outcome == "unsafe"


@pytest.mark.parametrize("name", list(peers.PEERS))
def test_peers_answer_as_they_should(name: str) -> None:
    if not installed(name):
        pytest.skip(f"{name} is not installed")
    peer = peers.PEERS[name]
    try:
        ask = peer.load()
    except TypeError as error:  # opake 0.16.1 on Python 3.11.7
        pytest.skip(f"{name} does not import: {error}")
    question = CASES["usual: q=0.01 σ=1 T=1000 δ=1e-05"].question
    value = ask(question).value
    if peer.kind == "estimate":
        assert 1.5 < value < 1.8282366665
    else:
        assert 1.82823666 < value < 2.2
    with pytest.raises(PrivcalcError):
        ask(peers.Question(pc.TopK(0.5, 3).run, 1e-5))


@pytest.mark.slow
def test_the_quick_form(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in benchmark.THREADS:
        monkeypatch.setenv(name, "1")
    out = tmp_path / "run.json"
    assert benchmark.main(["--quick", "--no-progress", "--out", str(out)]) == 0
    run = json.loads(out.read_text(encoding="utf-8"))
    assert (tmp_path / "run.md").read_text(encoding="utf-8") == page(run | {"file": str(out)})
    mine = cells(run, "privcalc")
    assert set(mine) == {case.key for case in CASES.values() if case.quick}
    assert {cell.outcome for cell in mine.values()} == {"safe"}
    wide = {"several": 0.06, "truncated": 2e-3}  # where theorems leave a gap: allocation.md and truncated.md
    for key, cell in mine.items():
        if "Exponential" not in key:
            assert cell.error < wide.get(CASES[key].family, 1e-5), key
    for name in peers.PEERS:
        if installed(name) and name not in run["missing"]:
            assert any(cell.outcome in {"safe", "unsafe"} for cell in cells(run, name).values()), name
    start = time.monotonic()
    assert benchmark.main(["--quick", "--no-progress", "--out", str(out)]) == 0  # nothing is left to ask
    again = json.loads(out.read_text(encoding="utf-8"))
    assert again["answers"] == run["answers"]
    assert time.monotonic() - start < max(60, run["seconds"])
    with pytest.raises(SystemExit):
        benchmark.main(["--no-progress", "--out", str(out)])  # another run's file is not overwritten
    assert "another run" in capsys.readouterr().err
