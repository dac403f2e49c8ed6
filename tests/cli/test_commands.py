"""One convention for all commands: options have one name in use and in errors, and nothing is loaded unasked."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import privcalc as pc
from privcalc.cli import main
from privcalc.serial import run_to_json

RUN = {"format": "privcalc run", "version": 1, "relation": "add-or-remove-one", "unit": "one record"}
ASKED = ["--noise-multiplier", "1", "--delta", "1e-5"]


def told(capsys, *arguments):
    """The one line of an error."""
    assert main([*map(str, arguments)]) == 2
    out, line = capsys.readouterr()
    assert (out, line.count("\n")) == ("", 1)
    return line


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({**RUN, "run": run_to_json(pc.Gaussian(1.0))}))
    np.save("scores.npy", np.arange(10.0))
    np.save("norms.npy", np.full((2, 3), 0.5))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "option", "value"),
    [
        (["epsilon", *ASKED], "--sample-rate", "3.0"),  # the library calls it rate
        (["epsilon", *ASKED], "--steps", "-1"),  # and this count
        (["epsilon", *ASKED, "--sampler", "persons"], "--records", "0"),
        (["epsilon", *ASKED, "--sampler", "persons", "--records", "3"], "--counted", "4"),
        (
            ["noise", "--epsilon", "1", "--delta", "1e-5", "--sampler", "fixed", "--dataset-size", "9"],
            "--batch-size",
            "10",
        ),
        (["delta", *ASKED[:2], "--epsilon", "1"], "--epsilon", "-1.0"),
        (["noise", "--epsilon", "1", "--delta", "1e-5"], "--steps", "0"),
        (["steps", *ASKED, "--epsilon", "1"], "--noise-multiplier", "-2.0"),
        (["curve", "--noise-multiplier", "1"], "--delta", "2.0"),
        (["certify", "run.json"], "--delta", "2.0"),
        (["compare", "run.json"], "--delta", "2.0"),
        (["attack", "scores.npy", "scores.npy"], "--delta", "2.0"),
        (["attack", "scores.npy", "scores.npy"], "--confidence", "0.0"),
        (["audit", "norms.npy", *ASKED, "--out", "out"], "--sample-rate", "3.0"),
        (["audit", "norms.npy", *ASKED, "--out", "out"], "--steps", "1"),
        (["plan", "--records", "9", "--epsilon", "1", "--delta", "1e-5"], "--batch-sizes", "10"),
    ],
    ids=str,
)
def test_errors_name_the_option(arguments, option, value, files, capsys):
    assert told(capsys, *arguments, option, value).startswith(f"privcalc {arguments[0]}: {option} = {value}: must be ")


@pytest.mark.parametrize("relation", list(pc.Relation))
@pytest.mark.parametrize(
    ("options", "step"),
    [
        (["poisson", "--sample-rate", "0.1"], lambda release: pc.PoissonSampled(release, 0.1)),
        (["poisson"], lambda release: release),
        (["persons", "--sample-rate", "0.1", "--records", "3"], lambda release: pc.UserSampled(release, 0.1, 3)),
        (["persons", "--records", "3", "--counted", "2"], lambda release: pc.UserSampled(release, 1.0, 3, 2)),
        (
            ["fixed", "--batch-size", "10", "--dataset-size", "100"],
            lambda release: pc.FixedSizeSampled(release, 10, 100),
        ),
        (
            ["replacement", "--batch-size", "10", "--dataset-size", "100"],
            lambda release: pc.WithReplacementSampled(release, 10, 100),
        ),
        (
            ["truncated", "--sample-rate", "0.1", "--batch-size", "40", "--dataset-size", "100"],
            lambda release: pc.TruncatedPoissonSampled(release, 0.1, 40, 100),
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.usefixtures("asked_once")
def test_every_sampler_is_what_its_mechanism_is(options, step, relation, capsys):
    asked = ["--delta", "1e-5", "--relation", relation.value, "--json", "--sampler", *options]
    assert main(["epsilon", "--noise-multiplier", "2", "--steps", "20", *asked]) == 0
    found = json.loads(capsys.readouterr().out)
    run = step(pc.Gaussian(2.0)) * 20
    assert found["epsilon"]["upper"] == run.epsilon(delta=1e-5, relation=relation).upper
    if relation is pc.ADD_OR_REMOVE_ONE:
        assert main(["noise", "--epsilon", "1", "--steps", "20", *asked]) == 0
        noise = json.loads(capsys.readouterr().out)["noise_multiplier"]
        ends = [(step(pc.Gaussian(z)) * 20).epsilon(delta=1e-5) for z in (noise, noise * 0.999)]
        assert ends[0].upper <= 1 < ends[1].upper
        assert main(["steps", "--epsilon", "1", "--noise-multiplier", "8", *asked]) == 0
        steps = json.loads(capsys.readouterr().out)["steps"]
        ends = [(step(pc.Gaussian(8.0)) * count).epsilon(delta=1e-5) for count in (steps, steps + 1)]
        assert ends[0].upper <= 1 < ends[1].upper


def test_what_is_assumed_of_batches_is_said(capsys):
    persons = "--sampler persons --records 3 --counted 2 --sample-rate 0.5 --steps 1"
    assert main(["epsilon", *ASKED, *persons.split()]) == 0
    assert "a person has 3 at most, and of those in a batch 2 count" in (out := capsys.readouterr().out)
    assert "(one person, each of whose contributions" in out
    assert (
        main(["epsilon", *ASKED, "--sampler", "fixed", "--batch-size", "3", "--dataset-size", "9", "--steps", "1"]) == 0
    )
    assert "a uniformly random 3 of at least 9 records" in capsys.readouterr().out


def test_epochs_of_an_allocation(capsys):
    asked = ["--delta", "1e-5", "--json", "--sampler", "allocation", "--epoch-steps", "50"]
    assert main(["epsilon", "--noise-multiplier", "2", "--steps", "1", *asked, "--passes", "3"]) == 0
    found = json.loads(capsys.readouterr().out)["epsilon"]["upper"]
    assert found == pc.RandomAllocation(pc.Gaussian(2.0), 50, 3).epsilon(delta=1e-5).upper
    assert main(["epsilon", "--noise-multiplier", "2", "--steps", "1", *asked, "--choices", "50"]) == 0
    found = json.loads(capsys.readouterr().out)["epsilon"]["upper"]
    assert found == pc.RandomAllocation(pc.Gaussian(2.0), 50, choices=50).epsilon(delta=1e-5).upper


def test_shuffled_epochs(capsys):
    asked = ["epsilon", "--noise-multiplier", "2", "--steps", "3", "--delta", "1e-5", "--sampler", "shuffled"]
    assert main([*asked, "--relation", "zero-out", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["epsilon"]["upper"]
    assert found == (pc.ShuffledEpoch(pc.Gaussian(2.0)) * 3).epsilon(delta=1e-5, relation=pc.ZERO_OUT).upper
    assert main(asked) == 2
    assert "relation" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["fixed", "--batch-size", "3"], "--dataset-size: must be given with --sampler fixed"),
        (["persons"], "--records: must be given with --sampler persons"),
        (
            ["fixed", "--sample-rate", "0.1", "--batch-size", "3", "--dataset-size", "9"],
            "--sample-rate = 0.1: is not for",
        ),
        (["poisson", "--sample-rate", "0.1"], "--steps: must be given where batches are drawn"),
        (["fixed", "--batch-size", "3", "--dataset-size", "9"], "--steps: must be given where batches are drawn"),
        (["poisson", "--records", "3"], "--records = 3: is not for --sampler poisson"),
        (["shuffled", "--choices", "2"], "--choices = 2: is not for"),
        (["hashed"], "'hashed' is not one of"),
    ],
    ids=str,
)
def test_options_of_another_sampler(options, line, capsys):
    assert main(["epsilon", *ASKED, "--sampler", *options]) == 2
    assert line in capsys.readouterr().err


def test_an_audit_is_asked_and_answers_as_the_others(files, capsys):
    pytest.importorskip("pyarrow")
    told = []
    for option in ("--sample-rate", "--rate"):  # the second is of 0.1.0
        assert main(["audit", "norms.npy", *ASKED, option, "0.1", "--out", "out", "--json"]) == 0
        told.append(json.loads(capsys.readouterr().out))
    assert told[0] == told[1] == json.loads((files / "out" / "summary.json").read_text())
    assert (told[0]["rate"], told[0]["all"]["records"]) == (0.1, 3)


def test_an_audit_takes_norms_as_they_are_with_the_clip_norm(files, capsys):
    pytest.importorskip("pyarrow")
    np.save("over.npy", norms := np.array([[0.0, 0.25, 1.0]] * 3))
    np.save("asis.npy", norms * 8)
    assert "--clip-norm" in told(capsys, "audit", "asis.npy", *ASKED, "--out", "out")
    found = []
    for name, more in (("over.npy", []), ("asis.npy", ["--clip-norm", "8"])):
        assert main(["audit", name, *ASKED, *more, "--out", "out", "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[1].pop("clip_norm") == 8
    assert found[1].pop("all")["quantiles"] == pytest.approx(found[0].pop("all")["quantiles"], rel=1e-9)
    assert found[0] == found[1]


@pytest.mark.parametrize("command", ["certify", "compare"])
def test_a_number_of_a_file_is_not_the_option(command, files, capsys):
    mechanism = {"kind": "ApproxDP", "epsilon": 1.0, "delta": 2.0}
    (files / "bad.json").write_text(json.dumps({**RUN, "run": [{"mechanism": mechanism, "count": 1}]}))
    assert told(capsys, command, "bad.json", "--delta", "1e-5").startswith(f"privcalc {command}: delta = 2.0: ")


def test_paths_are_told_as_they_are(files, capsys):
    assert told(capsys, "certify", ".", "--delta", "1e-5") == (
        "privcalc certify: source = '.': must be a regular file, not a directory\n"
    )
    for command in ("show", "verify"):
        assert (
            told(capsys, command, ".") == f"privcalc {command}: path = '.': must be a regular file, not a directory\n"
        )


def test_only_what_is_asked_for_is_loaded():
    heavy = ("scipy", "mpmath", "flint", "matplotlib", "pyarrow", "dp_accounting", "opacus", "autodp", "torch")
    code = f"import sys, privcalc.cli as c; c.main(sys.argv[1:]); print([m for m in {heavy} if m in sys.modules])"
    asked = [*ASKED, "--steps", "1000", "--sample-rate", "0.01"]
    done = subprocess.run([sys.executable, "-c", code, "epsilon", *asked], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", ["audit", "attack"])
@pytest.mark.parametrize("out", ["", "file", "file/below", "file/below/more", "dangling"])
def test_what_is_no_folder_is_refused_before_the_work(command, out, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    asked = {"audit": ["no.npy", "--noise-multiplier", "2", "--delta", "1e-5"], "attack": ["no.npy", "no.npy"]}[command]
    assert main([command, *asked, "--out", out]) == 2
    assert f"privcalc {command}: --out = {out!r}: must be " in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "file"]


def test_a_certificate_is_not_written_over_what_it_was_made_of(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pc.certify(pc.Gaussian(1.0), delta=1e-5).save("one.json")
    before = (tmp_path / "one.json").read_bytes()
    assert main(["certify", "one.json", "one.json", "--delta", "1e-5", "--out", "./one.json"]) == 2
    assert "--out = './one.json': is what the certificate is to be made of" in capsys.readouterr().err
    assert (tmp_path / "one.json").read_bytes() == before


def test_a_page_is_not_written_over_its_certificate(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    pc.certify(pc.Gaussian(1.0), delta=1e-5).save("one.json")
    before = (tmp_path / "one.json").read_bytes()
    assert main(["show", "one.json", "--html", "./one.json"]) == 2
    assert "--html = './one.json': is what the page is to be made of" in capsys.readouterr().err
    assert (tmp_path / "one.json").read_bytes() == before


def test_a_ledger_in_the_place_of_its_certificate_is_told(tmp_path, capsys):
    with pc.Ledger(tmp_path / "run.jsonl", plan=pc.Gaussian(1.0)) as ledger:
        ledger.record(pc.Gaussian(1.0))
    assert main(["verify", str(tmp_path / "run.jsonl")]) == 2
    assert "is a ledger; name its certificate first" in capsys.readouterr().err


def test_the_example_of_a_described_run_is_one(tmp_path, capsys):
    (tmp_path / "run.json").write_text('{"kind":"Gaussian","noise_multiplier":10.0}')
    assert main(["certify", str(tmp_path / "run.json"), "--delta", "1e-5"]) == 2
    (tmp_path / "run.json").write_text(capsys.readouterr().err.split("such as ")[1])
    assert main(["certify", str(tmp_path / "run.json"), "--delta", "1e-5"]) == 0


def test_the_words_of_an_allocation_count_epochs(capsys):
    asked = "--sampler allocation --epoch-steps 20 --steps 3 --noise-multiplier 4 --delta 1e-5"
    assert main(["epsilon", *asked.split()]) == 0
    assert "assumed: 3 epochs of 20 Gaussian steps" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["audit", "blocks", "bulk"])
def test_what_is_not_installed_is_told_by_the_extra_that_has_it(command, tmp_path, monkeypatch, capsys):
    """As README and the guides say it, whichever command misses it."""
    (tmp_path / "in.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    asked = {
        "audit": ["audit", "in.parquet", "--noise-multiplier", "20", "--delta", "1e-5", "--out", "out"],
        "blocks": [
            "audit",
            "in.parquet",
            "--noise-multiplier",
            "20",
            "--delta",
            "1e-5",
            "--out",
            "out",
            "--engine",
            "local",
        ],
        "bulk": ["bulk", "in.parquet", "--out", "out.parquet"],
    }
    monkeypatch.chdir(tmp_path)
    assert main(asked[command]) == 2
    assert "pyarrow: is not installed; pip install -e '.[audit]'" in capsys.readouterr().err


def test_several_ledgers_are_certified_one_by_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("may.jsonl", "june.jsonl"):
        with pc.Ledger(name, plan=pc.Gaussian(20.0)) as ledger:
            ledger.gaussian(5.0, pc.Gaussian(20.0), clip_norm=1.0)
    assert main(["certify", "may.jsonl", "june.jsonl", "--delta", "1e-5"]) == 2
    said = capsys.readouterr().err
    assert "may.jsonl: is a ledger: certify each by itself (--out), and then these certificates together" in said
    for name in ("may", "june"):
        assert main(["certify", f"{name}.jsonl", "--delta", "1e-5", "--out", f"{name}.json"]) == 0
    assert main(["certify", "may.json", "june.json", "--delta", "1e-5"]) == 0


def test_a_certificate_that_is_older_than_its_ledger_is_told_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    step = pc.Gaussian(20.0)
    for month in ("05", "06"):
        with pc.Ledger("year.jsonl", plan=step * 12) as ledger:
            ledger.gaussian(5.0, step, clip_norm=1.0, label=month)
            ledger.pause()
        if month == "05":
            assert main(["certify", "year.jsonl", "--delta", "1e-5", "--out", "year.json"]) == 0
    assert main(["verify", "year.json", "year.jsonl"]) == 1
    assert "if the ledger was gone on with since, certify it again" in capsys.readouterr().out


@pytest.mark.parametrize("asked", [["--workers", "2"], ["--engine", "processes"]], ids=["workers", "engine"])
def test_an_engine_for_an_array_is_told_to_be_left_out(asked, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("norms.npy", np.full((2, 3), 0.5))
    assert main(["audit", "norms.npy", "--noise-multiplier", "20", "--delta", "1e-5", "--out", "out", *asked]) == 2
    assert "norms.npy" in (said := capsys.readouterr().err)
    assert "leave out --engine, --workers and --scheduler" in said


def test_at_most_ten_commands_and_groups_are_shown_and_the_rest_may_be_named_without_its_group(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert len(shown.partition("Commands:")[2].split("\n  ")[1:]) <= 10
    asked = [*ASKED[:2], "--epsilon", "1", "--json"]
    assert main(["delta", *asked]) == main(["ask", "delta", *asked]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == second
    assert main(["dleta", *asked]) == 2
    assert "No such command 'dleta'" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_options(shell):
    words = {"bash": "privcalc noise --ep", "zsh": "privcalc noise --ep", "fish": "privcalc noise --ep"}[shell]
    asked = {"COMP_WORDS": words, "COMP_CWORD": "--ep" if shell == "fish" else "2"}
    environment = {**os.environ, **asked, "_PRIVCALC_COMPLETE": f"{shell}_complete"}
    done = subprocess.run(
        [sys.executable, "-m", "privcalc"], capture_output=True, text=True, check=False, env=environment
    )
    assert "--epochs" in done.stdout
    assert "--epsilon" in done.stdout


@pytest.mark.usefixtures("asked_once")
@pytest.mark.parametrize(
    ("more", "other"),
    [
        (["--epochs", "20", "--batch-size", "256", "--dataset-size", "50000"], {"epochs": 20}),
        (["--steps", "4000", "--batch-size", "256", "--dataset-size", "50000"], {"steps": 4000}),
    ],
)
def test_noise_is_asked_for_as_in_python(more, other, capsys):
    assert main(["noise", "--epsilon", "3", "--delta", "1e-6", *more, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["noise_multiplier"]
    assert found == pc.noise_multiplier(epsilon=3.0, delta=1e-6, batch_size=256, dataset_size=50000, **other)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--batch-size", "10"], "--batch-size = 10, --dataset-size = None: give both or neither"),
        (
            ["--batch-size", "10", "--dataset-size", "100", "--sample-rate", "0.1"],
            "--sample-rate = 0.1: give it or batch_size and dataset_size, not both",
        ),
        (["--sample-rate", "0.1", "--epochs", "2", "--steps", "20"], "--epochs = 2.0: give it or --steps, not both"),
    ],
)
def test_what_says_the_same_twice_is_refused(more, words, capsys):
    assert words in told(capsys, "epsilon", *ASKED, *more)


def test_epochs_of_epochs_are_counted_as_they_are(capsys):
    asked = [*ASKED, "--sampler", "allocation", "--epoch-steps", "20", "--json"]
    assert main(["epsilon", *asked, "--steps", "3"]) == main(["epsilon", *asked, "--epochs", "3"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == second


def test_warnings_are_lines_without_a_place_in_our_code(capsys):
    assert main(["epsilon", *ASKED, "--sample-rate", "0.01", "--steps", "10"]) == 0
    said = capsys.readouterr().err
    assert said.startswith("privcalc: warning: steps = 10: are 0.1 of a pass over the data")
    assert said.count("\n") == 1


def test_a_file_may_be_standard_input(files, monkeypatch, capsys):
    for text, arguments in (
        ((files / "run.json").read_text(), ["certify", "-", "--delta", "1e-5"]),
        ("noise_multiplier,sample_rate,steps,delta\n1,0.01,1000,1e-5\n", ["bulk", "-", "--out", "answers.csv"]),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert main(arguments) == 0
    assert (files / "answers.csv").read_text().count("\n") == 2
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"no JSON")))
    capsys.readouterr()
    assert "'-'" in told(capsys, "certify", "-", "--delta", "1e-5")


@pytest.mark.parametrize(
    ("command", "option", "ours"),
    [
        ("epsilon", "--sigma", "--noise-multiplier"),
        ("epsilon", "--q", "--sample-rate"),
        ("noise", "--target-epsilon", "--epsilon"),
        ("noise", "--max-iter", "--steps"),
        ("plan", "--dataset-size", "--records"),
    ],
)
def test_an_option_of_another_library_is_known(command, option, ours, capsys):
    assert (
        told(capsys, command, option, "1") == f"privcalc {command}: No such option '{option}'. Did you mean '{ours}'?\n"
    )


def test_half_a_target_is_told_by_options(capsys):
    words = "a target is --epsilon with --delta, or --advantage, or --beta with --alpha; give one"
    for target in (
        ["--epsilon", "3"],
        ["--beta", "0.9"],
        [],
        ["--epsilon", "3", "--delta", "1e-5", "--advantage", "0.1"],
    ):
        assert words in told(capsys, "noise", "--steps", "10", *target)


def test_a_certificate_that_is_written_is_not_printed_whole(files, capsys):
    assert main(["certify", "run.json", "--delta", "1e-5", "--out", "cert.json"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("verdict            NOT CHECKED")
    assert out.endswith("written: cert.json; privcalc show cert.json prints all that it says\n")
    assert len(out.splitlines()) < 10
    assert main(["show", "cert.json"]) == 0
    assert capsys.readouterr().out.startswith(out.partition("\n\nwritten")[0])
