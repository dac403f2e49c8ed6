"""``privcalc attack``: numbers, picture, verdict and errors."""

from __future__ import annotations

import json

import numpy as np
import pytest

import privcalc as pc
from privcalc.cli import main


@pytest.fixture
def scores(tmp_path):
    rng = np.random.default_rng(4)
    np.save(tmp_path / "in.npy", 1 + rng.standard_normal(50_000))
    lines = ["score", *map(repr, rng.standard_normal(50_000).tolist())]
    (tmp_path / "out.csv").write_text("\n".join(lines) + "\n")
    return [str(tmp_path / "in.npy"), str(tmp_path / "out.csv")]


def certificate(tmp_path, z):
    path = str(tmp_path / f"{z}.cert.json")
    pc.certify(pc.Gaussian(z), delta=1e-3).save(path)
    return path


def test_numbers_picture_and_verdict(scores, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    out = tmp_path / "made" / "here"
    assert main(["attack", *scores, "--certificate", certificate(tmp_path, 1.0), "--out", str(out), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((out / "attack.json").read_text())
    assert (out / "attack.png").read_bytes().startswith(b"\x89PNG")
    truth = pc.Gaussian(1.0)
    assert 0.85 * truth.epsilon(delta=0.01).upper < printed["epsilon_lower"] < truth.epsilon(delta=0.01).upper
    assert 0.92 < printed["mu_lower"] < 1
    assert printed["samples"] == [50_000, 50_000]
    assert not printed["contradicted"]
    for point in printed["certified_curve"]:
        assert point["true"] == pytest.approx(1 - truth.beta(alpha=point["false"]).lower)


def test_a_false_certificate_is_contradicted(scores, tmp_path, capsys):
    assert main(["attack", *scores, "--certificate", certificate(tmp_path, 2.0)]) == 1
    assert "CONTRADICTED" in capsys.readouterr().out


def test_without_a_certificate(scores, capsys):
    assert main(["attack", *scores, "--delta", "0.001"]) == 0
    assert "at δ = 0.001" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.csv", b"1\n2\nx\n4\n5\n6\n7\n8\n9\n", "'x' must be a number"),
        ("a.csv", b"1\n2\n", "at least 8"),
        ("a.csv", b"nan\n" * 9, "NaN"),
        ("a.csv", b"\xff\xfe\x00", "must be text"),
        ("a.npy", b"nonsense", "must be a .npy array"),
        ("a.npy", b"", "must be a .npy array"),
        ("a.txt", b"1\n", "must end in .npy or .csv"),
        ("a.csv", None, "No such file"),
    ],
)
def test_bad_files_are_named_in_one_line(name, content, text, scores, tmp_path, capsys):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    assert main(["attack", scores[0], str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("privcalc attack: ")
    assert error.count("\n") == 1
    assert text in error


@pytest.mark.parametrize(("option", "value"), [("--delta", "1"), ("--confidence", "0"), ("--certificate", "none.json")])
def test_bad_options(option, value, scores, capsys):
    assert main(["attack", *scores, option, value]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_picture_without_matplotlib(scores, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    assert main(["attack", *scores, "--out", str(tmp_path / "x")]) == 2
    assert "matplotlib" in capsys.readouterr().err
