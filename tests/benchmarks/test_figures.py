"""The papers' figures: the command and what it refuses; pages come from the stored rows, and say what these are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import privcalc as pc

torch = pytest.importorskip("torch")
pytest.importorskip("matplotlib")

from toys import blobs, image_files  # noqa: E402

from benchmarks.figures import (  # noqa: E402
    FIGURES,
    dope,
    dope_users,
    dppl,
    dppl_features,
    dppl_public,
    few_public,
    pda_dpmd,
    pda_table,
    pillar_pairs,
)
from benchmarks.figures import figure as frame  # noqa: E402
from benchmarks.figures.__main__ import main  # noqa: E402
from benchmarks.learners.grid import FASHION, FASHION_MIXED, NEWS, Source  # noqa: E402
from benchmarks.learners.methods import FULL, METHODS, Method  # noqa: E402
from learners.dpsgd import DPSGD  # noqa: E402

SIZES = {"private": 120, "public": 30, "unlabelled": 40}


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """Sources and settings of seconds; the options that name the files."""
    image_files(tmp_path, 90, 20)
    classes = {"classes": range(10), "dimension": 12}
    made = Source(blobs(200, **classes), blobs(60, 1, **classes), blobs(40, 2, **classes).X)

    def sources(images, texts, device):
        return ({"fashion": lambda: made} if images else {}) | ({"news": lambda: made} if texts else {})

    monkeypatch.setattr(frame, "sources", sources)
    small = {"fashion": replace(FASHION, **SIZES), "news": replace(NEWS, **SIZES)}
    for module, values in (
        (dope, {"PRIVATE": 60, "PUBLIC": 20, "TEST": 20, "TRUE": 10, "STEPS": 12, "RATE": 1.0, "ENSEMBLES": (1, 3)}),
        (
            dope,
            {
                "METHODS": {
                    **dope.METHODS,
                    "DP-SGD, cold": {**dope.METHODS["DP-SGD, cold"], "steps": 4, "sample_rate": 1.0},
                }
            },
        ),
        (dppl, {"SOURCES": small, "LEVELS": (1.0, 3.0), "RATIOS": (1.0, 5.0), "WORST": 5.0}),
        (dope_users, {"USERS": 12, "PUBLIC": 3, "EACH": 10, "LEVELS": (1.0, 3.0), "STEPS": 3, "RATE": 0.5}),
        (dppl_public, {"SOURCES": small, "LEVELS": (1.0, 3.0), "PROTOTYPES": (1, 3), "CANDIDATES": (10, 40)}),
        (dppl_features, {"VARIANTS": variants(small["fashion"]), "LEVELS": (1.0,), "DIMENSION": 5}),
        (pda_table, {"SOURCES": small, "LEVELS": (1.0, 3.0), "BATCH": 60, "EPOCHS": 2}),
        (pillar_pairs, {"SOURCES": {**small, "pixels": small["fashion"]}, "DIMENSIONS": (2, 40), "LEVELS": (1.0, 3.0)}),
        (pillar_pairs, {"LEARNERS": toy_learners(), "PAIRS": ((0, 1),)}),
        (few_public, {"STEPS": 3, "TASK": replace(FASHION_MIXED, private=120, public=30)}),
        (pda_dpmd, {"SIZES": (250,), "RATES": {"cold": (0.1,), "warm": (0.1, 0.01), "mirror": (0.01,)}}),
    ):
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)
    monkeypatch.setitem(METHODS, "DP-SGD", Method(DPSGD, {"sample_rate": 1.0, "steps": 5}))
    monkeypatch.setitem(FULL, "steps", 10)
    certificate = SimpleNamespace(guarantee=SimpleNamespace(epsilon=1.0))  # made elsewhere, and slowly
    monkeypatch.setattr(pc, "certify", lambda *_, **__: certificate)
    return ["--images", str(tmp_path), "--texts", "a wheel"]


def variants(setting):
    return {name: replace(setting, shifted=found.shifted) for name, found in dppl_features.VARIANTS.items()}


def toy_learners():
    steps = {
        "PILLARSelection, k = 40": {"steps": 3, "k": 2},
        "PILLAR, k = 40": {"steps": 3, "k": 2},
        "NoisyGD": {"steps": 3},
    }
    return {name: (pillar_pairs.LEARNERS[name][0], settings) for name, settings in steps.items()}


NAMES = [
    "dope-users",
    "dppl-6",
    "dppl-9",
    "dppl-11",
    "pillar-3",
    "pillar-selection",
    "dope-2",
    "dope-5",
    "dppl-2",
    "dppl-5",
    "few-public",
    "pda-dpmd-1",
    "pda-dpmd-table",
]
SLOW = {"pillar-selection", "pda-dpmd-table", "dope-5", "dope-users", "dppl-2", "dppl-5"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in NAMES])
def test_a_figure_runs_and_is_drawn_again(name, toy, tmp_path):
    """All that a page says comes from the stored rows."""
    out = tmp_path / "out"
    assert main([name, *toy, "--seeds", "2", "--out", str(out)]) == 0
    assert {path.name for path in out.iterdir()} == {f"{name}.json", f"{name}.png", f"{name}.md"}
    stored, page = ((out / f"{name}.{kind}").read_text(encoding="utf-8") for kind in ("json", "md"))
    rows = json.loads(stored)
    assert {row["seed"] for row in rows} == {0, 1}
    assert len(
        {
            json.dumps(
                {key: row[key] for key in row if not isinstance(row[key], (float, list))}
                | {key: row.get(key) for key in ("epsilon", "ratio", "rate", "clip_norm")}
            )
            for row in rows
        }
    ) == len(rows)  # each run once
    assert f"]({name}.png)" in page
    assert "**Found:** " in page
    assert "over 2 " in page
    assert "nan" not in page
    (out / f"{name}.md").unlink()
    (out / f"{name}.png").unlink()
    assert main([name, "--draw", "--out", str(out)]) == 0
    assert (out / f"{name}.md").read_text(encoding="utf-8") == page
    assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert (out / f"{name}.json").read_text(encoding="utf-8") == stored


STORED = Path(__file__).parents[2] / "results" / "figures"


@pytest.mark.parametrize("name", [name for name in FIGURES if (STORED / f"{name}.md").exists()])
def test_stored_pages_are_those_of_the_stored_numbers(name):
    rows = json.loads((STORED / f"{name}.json").read_text(encoding="utf-8"))
    found = FIGURES[name].page(rows)
    assert found == (STORED / f"{name}.md").read_text(encoding="utf-8")


def test_names_are_listed(capsys):
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(FIGURES)
    assert {*NAMES} <= {*FIGURES}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["dope-3"], "NAME = 'dope-3'"),
        ([], "NAME = ''"),
        (["few-public", "--seeds", "1"], "--seeds = 1: must be at least 2"),
        (["dppl-6"], "--images = None: this figure needs 'fashion'"),
        (["few-public", "--texts", "a wheel"], "--images = None: this figure needs 'fashion'"),
        (["dope-2"], "--images = None"),
        (["dope-5", "--images", "nowhere"], "nowhere"),
        (["dppl-5", "--draw"], "dppl-5.json"),
        (["dppl-5", "--draw", "--out", "/dev/null/none"], "/dev/null/none"),
    ],
)
def test_what_is_refused(asked, said, toy, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--out", str(tmp_path / "out"), *asked])
    assert stop.value.code == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.glob("out/*"))


def test_texts_are_asked_for(toy, tmp_path, monkeypatch, capsys):
    monkeypatch.delitem(dppl.SOURCES, "fashion")
    with pytest.raises(SystemExit):
        main(["dppl-2", *toy[:2], "--out", str(tmp_path / "out")])
    assert "--texts = None: this figure needs 'news'" in capsys.readouterr().err


# --- pages are true of the rows ---


def test_dppl_counts_where_the_prototypes_are_ahead():
    rows = [
        {
            "source": "fashion",
            "ratio": ratio,
            "method": method,
            "epsilon": level,
            "seed": seed,
            "accuracy": value + 0.1 * seed,
        }
        for ratio in (1.0, 10.0)
        for method, value in (("DP-SGD", 0.5), ("DPPL-Mean", 0.4), ("DPPL-Public (pure ε)", 0.45 + 0.01 * ratio))
        for level in dppl.LEVELS
        for seed in range(2)
    ]
    text = dppl.tell(rows, "accuracy")
    assert "DPPL-Mean in 0, DPPL-Public (pure ε) in 3 of 6 cases" in text  # at ratio 10, of three levels
    assert "| DP-SGD | .550 ± .635 |" in text  # 12.706·0.0707/√2


@pytest.mark.parametrize(
    ("early", "late", "said"),
    [
        (0.2, 0.0, "clearly above at step 1, steps 1-10; undecided at steps 11-20, steps 21-30."),
        (0.0, -0.2, "clearly below at steps 11-20, steps 21-30; undecided at step 1, steps 1-10."),
    ],
)
def test_dope_compares_windows(early, late, said):
    rows = [
        {
            "method": method,
            "seed": seed,
            "cosines": [0.3 + 0.01 * seed + more * sign for more in [early] * 10 + [late] * 20],
        }
        for method, sign in (("DP-SGD", 0), ("DOPE-SGD", 1))
        for seed in range(3)
    ]
    text = dope.tell_cosines(rows)
    assert said in text
    assert "| learner" not in text
    assert "| DP-SGD | .310 ± .025 | .310 ± .025 | .310 ± .025 | .310 ± .025 |" in text
    assert f"| DOPE-SGD − DP-SGD | {early:+.3f} ± .000 |".replace("0.", ".", 1) in text


def test_ensembles_are_compared_with_the_last_iterate():
    rows = [
        {"method": method, "seed": seed, "how": how, "n": n, "accuracy": 0.5 + 0.1 * seed + (gain if n != 1 else 0.0)}
        for method, gain in (("DP-SGD", 0.02), ("DOPE-SGD", -0.03))
        for how, n in [(how, n) for how in dope.COMBINE for n in (1, 5)] + [("EMA, γ = 0.9", None)]
        for seed in range(3)
    ]
    text = dope.tell_accuracies(rows)
    assert "for DP-SGD (n = 5: +0.020); clearly worse for DOPE-SGD (n = 5: -0.030)." in text
    assert "| DP-SGD | 5 | +.020 ± .000 | +.020 ± .000 | +.020 ± .000 |" in text
    same = [row | {"accuracy": 0.5} for row in rows]
    assert "for no learner and no n; clearly worse for none." in dope.tell_accuracies(same)


def test_learners_with_fewer_iterates_have_smaller_ensembles(tmp_path):
    """Ten iterates of one, a hundred of the other; nothing is said of what was not run."""
    rows = [
        {"method": method, "seed": seed, "how": how, "n": n, "accuracy": 0.5 + 0.1 * seed + 0.001 * (n or 0)}
        for method, sizes in (("DP-SGD, cold", (1, 10, 100)), ("DP-SGD", (1, 10)))
        for how, n in [(how, n) for how in dope.COMBINE for n in sizes] + [("EMA, γ = 0.9", None)]
        for seed in range(3)
    ]
    text = dope.tell_accuracies(rows)
    assert "of 3 comparisons" in text
    assert "| DP-SGD, cold | 100 | +.099 ± .000 | +.099 ± .000 |" in text
    assert "| DP-SGD | 10 | +.009 ± .000 | +.009 ± .000 |" in text
    dope.draw_accuracies(rows).savefig(tmp_path / "figure.png")


def test_few_public_compares_with_the_warm_start():
    rows = [
        {
            "learner": name,
            "epsilon": 1.0,
            "clip_norm": clip,
            "seed": seed,
            "accuracy": 0.7 + 0.01 * seed + gain * (clip < 1),
        }
        for name, gain in ((few_public.BASE, 0.0), ("PDA-DPMD, mirror step", 0.05), ("DP-SGD, cold", -0.04))
        for clip in (1.0, 0.1)
        for seed in range(3)
    ]
    rows += [
        {"learner": "Only-Public", "epsilon": None, "clip_norm": None, "seed": seed, "accuracy": 0.6}
        for seed in range(3)
    ]
    text = few_public.tell(rows)
    assert "better than DP-SGD, warm: PDA-DPMD, mirror step (ε = 1, C = 0.1: +0.050); " in text
    assert "clearly worse: DP-SGD, cold (ε = 1, C = 0.1: -0.040). Trained" in text
    assert "alone: .600 ± .000." in text
    assert "| PDA-DPMD, mirror step | .710 ± .025 | +.000 ± .000 | .760 ± .025 | +.050 ± .000 |" in text


def test_a_ratio_is_not_rounded_up():
    """2.98 times the loss is not at least 3.0 times; clip norms are told."""
    rows = [
        {"p": 500, "seed": seed, "method": method, "rate": 0.1, "loss": loss + 0.0001 * seed}
        for method, loss in (("cold", 2.98), ("warm", 1.0), ("mirror", 0.5))
        for seed in range(3)
    ]
    text = pda_dpmd.tell(rows)
    assert "a cold start has at least 2.9 times the loss" in text
    assert "It is clearly lower at p = 500." in text
    assert "PDA-DPMD: 0.1)" in text


def test_stored_rows_that_are_none(tmp_path, capsys):
    (tmp_path / "dope-2.json").write_text("[", encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["dope-2", "--draw", "--out", str(tmp_path)])
    assert "dope-2: Expecting value" in capsys.readouterr().err
