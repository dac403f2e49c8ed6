"""Many questions in one call: as if each had been asked alone, and none stopped by another."""

from __future__ import annotations

import csv
import json
import math

import numpy as np
import pytest
from mpmath import mp, mpf

import privcalc as pc
from privcalc import bulk, parts
from privcalc.cli import main

LOCAL = parts.LOCAL


@pytest.fixture
def asked(monkeypatch):
    """The questions that were asked."""
    done, answer = [], bulk._answer

    def counted(*question):
        done.append(question[:-1])
        return answer(*question)

    monkeypatch.setattr(bulk, "_answer", counted)
    return done


def test_every_row_is_asked_as_if_alone():
    found = bulk.epsilons(
        [1.0, 2.0, 1.0], [0.01, 1.0, 0.01], [100, 7, 100], [1e-5, 1e-5, 1e-9], relation=pc.REPLACE_ONE
    )
    runs = [pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 100, pc.PoissonSampled(pc.Gaussian(2.0), 1.0) * 7]
    for row, run, delta in zip(found, [*runs, runs[0]], [1e-5, 1e-5, 1e-9], strict=True):
        alone = run.epsilon(delta=delta, relation=pc.REPLACE_ONE)
        assert (row["lower"], row["upper"], row["error"]) == (alone.lower, alone.upper, "")


def test_full_batches_against_the_closed_form():
    """δ(ε) of T steps at noise z is that of μ-GDP, μ = √T/z: it is above δ at the lower end, and below at the upper."""
    found = bulk.epsilons(4.0, 1.0, [1, 30, 1000], 1e-6)
    with mp.workdps(40):
        for steps, row in zip((1, 30, 1000), found, strict=True):
            mu = mp.sqrt(steps) / 4

            def delta(epsilon, mu=mu):
                e = mpf(float(epsilon))
                return mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu)

            assert delta(row["upper"]) <= mpf(1e-6) <= delta(row["lower"])
            assert row["upper"] <= row["lower"] * (1 + 1e-8)


def test_equal_questions_are_asked_once_and_answers_are_in_order(asked):
    rng = np.random.default_rng(0)
    noise, delta = rng.choice([20.0, 30.0, 40.0], 300), rng.choice([1e-5, 1e-6], 300)
    found = bulk.epsilons(noise, 1.0, 1, delta)
    assert len(asked) == len(set(asked)) == 6
    for z in (20.0, 30.0, 40.0):
        for d in (1e-5, 1e-6):
            assert set(found["upper"][(noise == z) & (delta == d)]) == {pc.Gaussian(z).epsilon(delta=d).upper}
    assert bulk.epsilons([], 1.0, 1, 1e-5).shape == (0,)


BAD = [
    (-1.0, 0.1, 1, 0.1, "noise_multiplier = -1.0"),
    (math.nan, 0.1, 1, 0.1, "noise_multiplier = nan"),
    (math.inf, 0.1, 1, 0.1, "noise_multiplier = inf"),
    (1.0, 0.0, 1, 0.1, "sample_rate = 0.0"),
    (1.0, 1.5, 1, 0.1, "sample_rate = 1.5"),
    (1.0, 0.1, 0, 0.1, "steps = 0"),
    (1.0, 0.1, 2.5, 0.1, "steps = 2.5"),
    (1.0, 0.1, math.nan, 0.1, "steps = nan"),
    (1.0, 0.1, -math.inf, 0.1, "steps = -inf"),
    (1.0, 0.1, 2.0**53, 0.1, "steps = 9007199254740992.0"),
    (1.0, 0.1, 1, 1.0, "delta = 1.0"),
    (1.0, 0.1, 1, -0.1, "delta = -0.1"),
    (1.0, 0.1, 1, math.nan, "delta = nan"),
]


def test_bad_rows_say_so_and_stop_no_others():
    *columns, words = zip(*BAD, (3.0, 1.0, 2, 1e-5, ""), strict=True)
    found = bulk.epsilons(*columns)
    for number, (row, text) in enumerate(zip(found[:-1], words[:-1], strict=True)):
        assert row["error"].startswith(f"row {number}: {text}")
        assert (row["lower"], row["upper"]) == (0.0, math.inf)
    assert found["error"][-1] == ""
    assert found["upper"][-1] == (pc.Gaussian(3.0) * 2).epsilon(delta=1e-5).upper


def test_what_fails_in_a_row_is_infinite(monkeypatch):
    class Broken:
        def __init__(self, noise):
            raise FloatingPointError("no\nbound")

    monkeypatch.setattr(bulk, "Gaussian", Broken)
    found = bulk.epsilons(1.0, 1.0, 1, 1e-5)[0]
    assert (found["upper"], found["error"]) == (math.inf, "row 0: FloatingPointError: no bound")


def test_whole_numbers_that_no_double_holds_are_not_rounded():
    found = bulk.epsilons(1.0, 1.0, np.array([2**53 + 1, 1, -(2**63)]), 1e-5)
    assert (found["error"] == "").tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ((["1"], 1.0, 1, 1e-5), "noise_multiplier: must be numbers"),
        (([1.0, 2.0], [1.0, 1.0, 1.0], 1, 1e-5), "must have one length"),
        (([[1.0]], 1.0, 1, 1e-5), "must be numbers or lists"),
        ((1.0, 1.0, [True], 1e-5), "steps: must be numbers"),
    ],
    ids=["text", "lengths", "matrix", "truth"],
)
def test_what_is_no_table(question, words):
    with pytest.raises(pc.PrivcalcError, match=words):
        bulk.epsilons(*question)


def test_who_goes_on_asks_nothing_again(asked, tmp_path, monkeypatch):
    monkeypatch.setattr(bulk, "PART", 3)
    noise = np.arange(10.0, 20.0)
    first = bulk.epsilons(noise, 1.0, 1, 1e-5, engine=LOCAL)
    asked.clear()
    write = parts.write_arrays

    def full(path, *more, **how):
        if "000002" in str(path):
            raise OSError("no space left on device")
        write(path, *more, **how)

    monkeypatch.setattr(parts, "write_arrays", full)
    with pytest.raises(OSError, match="no space"):
        bulk.epsilons(noise, 1.0, 1, 1e-5, engine=LOCAL, folder=tmp_path)
    monkeypatch.setattr(parts, "write_arrays", write)
    asked.clear()
    again = bulk.epsilons(noise, 1.0, 1, 1e-5, engine=LOCAL, folder=tmp_path)
    assert again.tobytes() == first.tobytes()
    assert [question[0] for question in asked] == [12.0, 16.0, 13.0, 17.0]  # the third and fourth of four parts
    with pytest.raises(pc.PrivcalcError, match="must be numbers"):
        bulk.epsilons("1", 1.0, 1, 1e-5, folder=tmp_path)


def test_answers_are_those_to_the_questions_that_were_asked(tmp_path, monkeypatch):
    """A file of questions that was changed under the workers is noticed."""
    save = np.save

    def other(file, array, *more, **how):
        save(file, array * 1.5, *more, **how)

    monkeypatch.setattr(bulk.np, "save", other)
    with pytest.raises(pc.PrivcalcError, match="must have the questions that were asked"):
        bulk.epsilons([20.0, 30.0], 1.0, 1, 1e-5, folder=tmp_path)


LINES = [
    ["name", "noise_multiplier", "sample_rate", "steps", "delta"],
    ["a", "20", "1", "3", "1e-5"],
    ["b, c", "-1", "1", "3", "1e-5"],
    ["d", "20", "one", "3", "1e-5"],
    [],
    ["e", "20", "1"],
    ["f", "30", "1", "3.0", "1e-5"],
]


@pytest.mark.parametrize(("end", "mark"), [(".csv", ","), (".tsv", "\t")])
def test_a_table_of_text(end, mark, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with open(f"in{end}", "w", newline="") as file:
        csv.writer(file, delimiter=mark).writerows(LINES)
    assert main(["bulk", f"in{end}", "--out", f"out{end}"]) == 2
    out, err = capsys.readouterr()
    assert out == f"2 of 5 lines answered: out{end}\n"
    assert "3 lines without an answer; line 3: noise_multiplier = -1.0: must be" in err
    with open(f"out{end}", newline="") as file:
        names, *rows = csv.reader(file, delimiter=mark)
    assert names == [*LINES[0], "epsilon_lower", "epsilon_upper", "relation", "error"]
    assert [row[0] for row in rows] == ["a", "b, c", "d", "e", "f"]
    for row, noise in ((rows[0], 20.0), (rows[4], 30.0)):
        alone = (pc.Gaussian(noise) * 3).epsilon(delta=1e-5)
        assert row[5:] == [repr(alone.lower), repr(alone.upper), "add-or-remove-one", ""]
    assert [row[5:7] for row in rows[1:4]] == [["0.0", "inf"]] * 3
    assert [row[8].partition(": ")[0] for row in rows[1:4]] == ["line 3", "line 4", "line 6"]
    assert {path.name for path in tmp_path.iterdir()} == {f"in{end}", f"out{end}"}


def test_a_table_in_parquet(tmp_path, monkeypatch, capsys):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.chdir(tmp_path)
    made = pa.table(
        {"noise_multiplier": [20.0, None, 30.0], "sample_rate": 3 * [1.0], "steps": [1, 2, 3], "delta": 3 * [1e-5]}
    )
    parquet.write_table(made, "in.parquet")
    assert main(["bulk", "in.parquet", "--out", "out.parquet", "--engine", "local", "--json"]) == 2
    assert json.loads(capsys.readouterr().out) == {
        "rows": 3,
        "answered": 2,
        "relation": "add-or-remove-one",
        "out": "out.parquet",
    }
    found = parquet.read_table("out.parquet").to_pydict()
    assert found["epsilon_upper"][0] == pc.Gaussian(20.0).epsilon(delta=1e-5).upper
    assert (found["epsilon_upper"][1], found["error"][1][:30]) == (math.inf, "line 1: noise_multiplier = nan")
    assert found["steps"] == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "text", "out", "words"),
    [
        ("in.csv", "noise_multiplier,rate,steps,delta\n", "out.csv", "has not sample_rate"),
        ("in.csv", "noise_multiplier,sample_rate,steps,delta,delta\n", "out.csv", "has not delta"),
        ("in.csv", "noise_multiplier,sample_rate,steps,delta,error\n", "out.csv", "must not have the columns error"),
        ("in.csv", "", "out.csv", "must have the columns"),
        ("in.csv", 'noise_multiplier,sample_rate,steps,delta\n"1,1,1,1', "out.csv", "must be text in UTF-8"),
        ("in.csv", "", "in.csv", "--out = 'in.csv': must be another file"),
        ("in.csv", "", "out.parquet", "--out = 'out.parquet': must be another file, whose name ends in '.csv'"),
        ("in.xls", "", "out.xls", "must be a table"),
    ],
    ids=["rate", "twice", "there", "empty", "quote", "same", "kind", "xls"],
)
def test_files_that_are_no_tables(name, text, out, words, tmp_path, monkeypatch, capsys):
    """A misspelt column is no default: of steps it would make ε too small."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(text)
    assert main(["bulk", name, "--out", out]) == 2
    assert words in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_folder_that_has_the_name_of_the_parts_keeps_what_is_in_it(tmp_path):
    """Only files of questions and answers go, also those that a killed process left; the folder, if then empty."""
    table, out, kept = tmp_path / "runs.csv", tmp_path / "answers.csv", tmp_path / "answers.csv.parts"
    table.write_text("noise_multiplier,sample_rate,steps,delta\n2.0,1.0,3,1e-5\n")
    names = [
        "thesis.txt",
        "0123456789abcdef.npz",
        "0123456789ABCDEF.npy",
        "f" * 16 + "-000000.npz.bak",
        "inner/" + "f" * 16 + ".npy",
    ]
    own = ["f" * 16 + ".npy", "0123456789abcdef-1000000.npz", ".privcalc-0123456789abcdef"]
    for name in [*names, *own]:
        (kept / name).parent.mkdir(parents=True, exist_ok=True)
        (kept / name).write_text("mine")
    assert main(["bulk", str(table), "--out", str(out)]) == 0
    left = sorted(path.relative_to(kept).as_posix() for path in kept.rglob("*") if path.is_file())
    assert left == sorted(names)
    assert main(["bulk", str(table), "--out", str(tmp_path / "other.csv")]) == 0
    assert not (tmp_path / "other.csv.parts").exists()


@pytest.mark.parametrize("name", ["sampler", "records", "counted", "epoch_steps", "passes", "choices"])
def test_columns_that_would_mean_another_sampler_are_refused(tmp_path, capsys, name):
    """They are options of one question; carried along unread, a line for persons would have the ε of one record."""
    table = tmp_path / "runs.csv"
    table.write_text(f"noise_multiplier,sample_rate,steps,delta,{name}\n2.0,1.0,3,1e-5,8\n")
    assert main(["bulk", str(table), "--out", str(tmp_path / "answers.csv")]) == 2
    assert f"{name}" in capsys.readouterr().err
    assert not (tmp_path / "answers.csv").exists()
