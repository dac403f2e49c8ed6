"""``privcalc budget``: what it prints, the page and the picture; and learners that spend from one."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import privcalc as pc
from privcalc.budget.page import course, page
from privcalc.cli import main

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
