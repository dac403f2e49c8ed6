"""``privcalc budget``: what it prints, the page and the picture; and learners that spend from one."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3

import numpy as np
import pytest

import privcalc as pc
from privcalc.budget.history import course, titles
from privcalc.budget.page import page
from privcalc.cli import main
from privcalc.log.database import SQLite

STEP = pc.Gaussian(noise_multiplier=10.0)


@pytest.fixture
def url(tmp_path):
    return str(tmp_path / "budget.db")


def told(capsys, *arguments):
    status = main([*arguments, "--json"])
    return status, json.loads(capsys.readouterr().out or "null")


def test_a_budget_from_the_command_line(url, tmp_path, capsys):
    name = ["--dataset", "visits <b>", "--witness", str(tmp_path / "witness")]
    assert told(capsys, "budget", "create", url, *name, "--rho", "0.5", "--unit", "one patient")[0] == 0
    assert main(["budget", "create", url, *name, "--rho", "0.5"]) == 2
    assert main(["budget", "create", url, "--dataset", "other", "--rho", "0.5", "--mu", "1"]) == 2
    described = tmp_path / "run.json"
    run = [{"mechanism": {"kind": "Gaussian", "noise_multiplier": 10.0}, "count": 20}]
    described.write_text(json.dumps({"format": "privcalc run", "version": 1, "relation": "add-or-remove-one",
                                     "unit": "one patient", "run": run}))  # fmt: skip
    assert told(capsys, "budget", "reserve", url, *name, str(described), "--label", "<script>")[0] == 0
    described.write_text(described.read_text().replace("one patient", "one visit"))
    assert main(["budget", "reserve", url, *name, str(described)]) == 2
    assert "is about 'one patient'" in capsys.readouterr().err
    shared = pc.Budget(url, dataset=name[1], witness=name[3])
    with pc.Ledger(tmp_path / "ledger", plan=STEP * 30, unit="one patient", budget=shared):
        status, found = told(capsys, "budget", "show", url, *name)
        assert (status, found["share"], found["open"], found["by_hand"]) == (0, pytest.approx(0.5), 1, 1)
    assert main(["budget", "settle", url, *name, str(tmp_path / "ledger")]) == 0
    html, picture = tmp_path / "page.html", tmp_path / "picture.png"
    assert main(["budget", "show", url, *name, "--html", str(html), "--picture", str(picture)]) == 0
    assert "20 % of the cap" in capsys.readouterr().out.replace("20.00 %", "20 %").replace("20.01 %", "20 %")
    text = html.read_text()
    assert "visits <b>" not in text
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert picture.read_bytes()[1:4] == b"PNG"
    assert main(["budget", "readmit", url, *name, "--reason", "nothing happened"]) == 2
    assert "has forgotten anything" in capsys.readouterr().err
    status, lines = told(capsys, "budget", "history", url, *name)
    assert [line["type"] for line in lines["history"]] == ["open", "reserve", "reserve", "settle"]
    assert main(["budget", "history", url, *name]) == 0
    assert "20 × Gaussian  <script>" in capsys.readouterr().out


def test_a_restored_store_is_used_again_from_the_command_line(url, tmp_path, capsys):
    name = ["--dataset", "visits", "--witness", str(tmp_path / "witness")]
    assert main(["budget", "create", url, *name, "--rho", "0.5"]) == 0
    shutil.copy(url, url + ".backup")
    with pc.Ledger(tmp_path / "lost", plan=STEP * 30, budget=pc.Budget(url, dataset="visits", witness=name[3])):
        pass
    shutil.copy(url + ".backup", url)
    assert main(["budget", "show", url, "--dataset", "visits"]) == 2
    assert main(["budget", "show", url, *name]) == 2
    assert "budget readmit" in capsys.readouterr().err
    reason = ["--reason", "disk <b>failed</b>"]
    status, found = told(capsys, "budget", "readmit", url, *name, *reason, "--ledger", str(tmp_path / "lost"))
    assert (status, found["share"], found["readmitted"]) == (0, pytest.approx(0.3), ["disk <b>failed</b>"])
    assert main(["budget", "show", url, *name, "--html", str(tmp_path / "page.html")]) == 0
    assert "its store had forgotten something: disk" in capsys.readouterr().out
    assert "disk &lt;b&gt;failed" in (tmp_path / "page.html").read_text()
    assert main(["budget", "history", url, *name]) == 0
    assert "readmit  disk <b>failed</b>" in capsys.readouterr().out.replace("readmit   ", "readmit  ")


def test_the_course_of_a_budget(url):
    budget = pc.Budget.create(url, dataset="visits", cap=pc.GDP(1.0))
    budget.reserve(pc.Gaussian(2.0))
    with pc.Ledger(None, plan=pc.Gaussian(2.0) * 2, budget=budget) as ledger:
        ledger.gaussian([0.0], pc.Gaussian(2.0), clip_norm=1.0)
    shares = [point[1:] for point in course(budget.history())]
    assert np.allclose(shares, [(0, 0), (0.25, 0.25), (0.75, 0.25), (0.5, 0.5)], rtol=1e-12)
    assert "Privacy budget: visits" in page(budget, delta=1e-6)


@pytest.mark.usefixtures("uncertified")
def test_a_learner_spends_from_a_budget(url):
    torch = pytest.importorskip("torch")
    from learners.noisy_gd import NoisyGD

    budget = pc.Budget.create(url, dataset="digits", cap=pc.GDP(1.0), unit="one training example")
    x, y = torch.zeros((20, 3), dtype=torch.float64), np.arange(20) % 2
    model = NoisyGD(classes=[0, 1], delta=1e-5, noise_multiplier=4.0, steps=16, records=20)
    model.fit(x, y, budget=budget)
    assert budget.would_exceed(pc.Gaussian(1000.0))
    with pytest.raises(pc.BudgetExceeded):
        type(model)(**model.get_params()).fit(x, y, budget=budget)
    other = pc.Budget.create(url, dataset="people", cap=pc.GDP(1.0), unit="one person")
    with pytest.raises(pc.PrivcalcError, match="is about 'one person'"):
        type(model)(**model.get_params()).fit(x, y, budget=other)


def test_a_store_is_not_replaced_by_what_is_told_of_it(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    path = tmp_path / "budget.db"
    pc.Budget.create(path, dataset="visits", cap=pc.ZCDP(0.1))
    before = path.read_bytes()
    assert main(["budget", "show", str(path), "--dataset", "visits", "--html", str(path)]) == 2
    assert "must not be a database, such as a store of budgets" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_the_name_of_a_store_is_no_budget():
    with pytest.raises(pc.PrivcalcError, match=r"budget = 'budget\.db': must be a Budget"):
        pc.Ledger(None, plan=pc.Gaussian(2.0), budget="budget.db")


def year(url, capsys, *more):
    """A budget of (3, 1e-6)-DP with shares of a half and a third, made by the command alone."""
    create = ["budget", "create", url, "--dataset", "visits", "--epsilon", "3", "--delta", "1e-6", *more]
    assert main(create) == 0
    for team, percent in (("cardio", "50"), ("onco", "30")):
        assert main(["budget", "share", url, "--team", team, "--percent", percent]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(("runs", "kind"), [("any", pc.RDP), ("gaussian", pc.GDP)])
def test_an_officer_plans_a_year_for_teams_by_the_command_alone(runs, kind, url, capsys):
    said = year(url, capsys, "--runs", runs)
    assert "under it all outputs together are (3, 1e-06)-DP" in said
    assert said.endswith("cardio: 50 %\nonco: 30 %\nwho names no team: 20 %\n")
    cap = pc.Budget(url, dataset="visits").cap
    assert isinstance(cap, kind)
    assert 3 - 1e-6 < cap.epsilon(delta=1e-6).upper <= 3
    reserve = ["budget", "reserve", url, "--noise-multiplier", "20"]
    assert main([*reserve, "--steps", "36", "--team", "cardio", "--label", "sums"]) == 0
    assert main([*reserve, "--steps", "60", "--team", "onco"]) == 2
    enough = float(capsys.readouterr().err.split("there is room for so many with --noise-multiplier ")[1])
    onco = pc.Budget(url, dataset="visits", team="onco")
    assert [onco.would_exceed(pc.Gaussian(z) * 60) for z in (enough, enough * 0.999)] == [False, True]
    assert main([*reserve, "--steps", "1", "--team", "radio"]) == 2
    assert "team = 'radio': has no share; those who have one are cardio, onco" in capsys.readouterr().err
    status, found = told(capsys, "budget", "show", url)
    assert (status, [one["team"] for one in found["teams"]]) == (0, ["cardio", "onco", None])
    # By hand: half of the cap is μ²/2, or ε(α)/2, of which 36 releases take 36/400, or 36·α/800.
    whole = cap.mu**2 if kind is pc.GDP else cap.epsilons[0] * 2 / cap.orders[0]
    assert found["teams"][0]["charged"] == pytest.approx(36 / 400 / (whole / 2), rel=1e-9)
    rest = whole / 2 - 36 / 400
    left = found["teams"][0]["left"]["upper"]
    assert left == pytest.approx(pc.GDP(rest**0.5).epsilon(delta=1e-6).upper, rel=1e-6)
    cardio = pc.Budget(url, dataset="visits", team="cardio")
    just = pc.noise_multiplier(epsilon=left, delta=1e-6)
    assert [cardio.would_exceed(pc.Gaussian(just * by)) for by in (1.0001, 0.9999)] == [False, True]


def test_shares_are_set_aside(url, capsys):
    year(url, capsys)
    share = ["budget", "share", url, "--team"]
    assert main([*share, "radio", "--percent", "20.1"]) == 2
    assert "all shares must be at most 1 together, not 1.001" in capsys.readouterr().err
    assert main([*share, "radio", "--percent", "20"]) == 0
    assert main(["budget", "reserve", url, "--noise-multiplier", "1000", "--steps", "1"]) == 2
    assert "teams have all of the budget; name one of them" in capsys.readouterr().err
    assert main(["budget", "reserve", url, "--noise-multiplier", "20", "--steps", "36", "--team", "cardio"]) == 0
    assert main([*share, "cardio", "--percent", "10"]) == 2  # 24 % are charged
    assert "share of team 'cardio'" in capsys.readouterr().err
    assert main([*share, "cardio", "--percent", "30"]) == 0
    assert pc.Budget(url, dataset="visits").shares == {"cardio": 0.3, "onco": 0.3, "radio": 0.2}


def test_a_ledger_spends_from_the_share_of_its_team(url, capsys):
    year(url, capsys)
    budget = pc.Budget(url, dataset="visits", team="onco")
    with pytest.raises(pc.BudgetExceeded, match="share of team 'onco'"):
        pc.Ledger(None, plan=pc.Gaussian(20.0) * 60, budget=budget)
    with pc.Ledger(None, plan=pc.Gaussian(20.0) * 30, budget=budget) as ledger:
        ledger.gaussian([0.0], pc.Gaussian(20.0), clip_norm=1.0)
        assert budget.standing(delta=1e-6)[1].charged > 0.6
    assert budget.standing(delta=1e-6)[1].charged == pytest.approx(9 / 800 / (0.3 * budget.cap.epsilons[0]))
    assert next(iter(budget.reservations.values())).team == "onco"


def test_a_data_set_is_renamed_and_closed_and_nothing_is_deleted(url, capsys):
    year(url, capsys)
    assert main(["budget", "rename", url, "--to", "visits 2026"]) == 0
    assert main(["budget", "create", url, "--dataset", "visits 2026", "--rho", "1"]) == 2
    assert "is what 'visits' goes by in this store" in capsys.readouterr().err
    for name in ("visits", "visits 2026"):
        assert pc.Budget(url, dataset=name).title == "visits 2026"
    capsys.readouterr()
    assert told(capsys, "budget", "list", url)[1] == {"budgets": [{"dataset": "visits", "title": "visits 2026"}]}
    assert main(["budget", "create", url, "--dataset", "people", "--rho", "1"]) == 0
    assert main(["budget", "rename", url, "--dataset", "people", "--to", "visits"]) == 2
    assert main(["budget", "show", url]) == 2
    assert "--dataset: must be given, one of those of" in capsys.readouterr().err
    budget = pc.Budget(url, dataset="visits")
    with pc.Ledger(None, plan=STEP * 2, budget=pc.Budget(url, dataset="visits 2026", team="cardio")) as ledger:
        assert main(["budget", "close", url, "--dataset", "visits", "--reason", "the year is over"]) == 0
        ledger.gaussian([0.0], STEP, clip_norm=1.0)  # it was reserved before
    assert budget.spent == STEP.run
    with pytest.raises(pc.PrivcalcError, match="its budget was closed: the year is over"):
        budget.reserve(pc.Gaussian(1000.0))
    capsys.readouterr()
    status, lines = told(capsys, "budget", "history", url, "--dataset", "visits")
    kinds = [line["type"] for line in lines["history"]]
    assert (status, kinds) == (0, ["open", "share", "share", "rename", "reserve", "close", "settle"])


def test_the_page_tells_teams_and_charges_in_epsilon(url, capsys):
    year(url, capsys)
    budget = pc.Budget(url, dataset="visits", team="onco")
    budget.reserve(pc.Gaussian(20.0), label="<b>one</b>")
    text = page(budget, delta=1e-6)
    assert "<td>onco</td><td>30 %</td>" in text
    alone = f"{pc.Gaussian(20.0).epsilon(delta=1e-6):.4g}"
    assert (
        f"&lt;b&gt;one&lt;/b&gt;</td><td>for good</td><td>Gaussian(noise_multiplier=20.0)</td><td>ε ≤ {alone}" in text
    )


def test_a_backup_is_restored_with_its_witness_and_without_it_says_so(url, tmp_path, capsys):
    seen, other = str(tmp_path / "witness"), str(tmp_path / "new")
    budget = pc.Budget.create(url, dataset="visits", cap=pc.ZCDP(0.5), witness=seen)
    budget.reserve(STEP)
    with contextlib.closing(sqlite3.connect(url)) as store, contextlib.closing(sqlite3.connect(url + ".bak")) as copy:
        store.backup(copy)
    assert pc.Budget(url + ".bak", dataset="visits", witness=seen).charged == STEP.run  # nothing is missing
    budget.reserve(STEP)
    shutil.copy(url + ".bak", url)
    assert main(["budget", "show", url, "--witness", seen]) == 2
    assert "the witness saw line 3" in capsys.readouterr().err
    assert main(["budget", "show", url]) == 2
    assert "was made with one, without which an older copy of its store is not seen" in capsys.readouterr().err
    assert main(["budget", "show", url, "--witness", other]) == 0
    assert "this file cannot tell" in capsys.readouterr().err


@pytest.mark.parametrize("how", ["rename", "create"])
def test_of_two_who_take_a_name_at_once_one_has_it(how, url, monkeypatch):
    """The other comes between the question whether the name is free and the line that takes it."""
    one, other = (pc.Budget.create(url, dataset=name, cap=pc.ZCDP(1.0)) for name in ("one", "other"))
    real, took = SQLite.transaction, []

    def late(self, *, create=False, naming=False):
        if (create if how == "create" else naming) and not took:
            took.append(True)
            other.rename("visits")
        return real(self, create=create, naming=naming)

    monkeypatch.setattr(SQLite, "transaction", late)
    with pytest.raises(pc.PrivcalcError, match="'visits': is what 'other' goes by"):
        pc.Budget.create(url, dataset="visits", cap=pc.ZCDP(1.0)) if how == "create" else one.rename("visits")
    assert (took, titles(url)) == ([True], {"one": None, "other": "visits"})
