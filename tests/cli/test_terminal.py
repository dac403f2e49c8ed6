"""Files that commands read and write, readers of what they print: pipes, devices, links, closed and narrow streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import privcalc as pc
from privcalc.cli import main
from privcalc.files import whole, write_whole
from privcalc.terminal import command

ROOT = Path(__file__).parents[2]
STEP = pc.Gaussian(noise_multiplier=4.0)
EPSILON = ["epsilon", "--noise-multiplier", "1", "--delta", "1e-5"]


@pytest.fixture
def cert(tmp_path):
    path = tmp_path / "run.cert.json"
    pc.certify(STEP, delta=1e-5, unit="one pupil’s ε").save(path)
    return str(path)


@pytest.fixture
def described(tmp_path):
    path = tmp_path / "run.json"
    run = pc.certify(STEP, delta=1e-5).document["run"]
    text = {
        "format": "privcalc run",
        "version": 1,
        "relation": "add-or-remove-one",
        "unit": "one pupil’s ε",
        "run": run,
    }
    path.write_text(json.dumps(text))
    return str(path)


def call(*arguments, encoding=None, **options):
    """The command in a process of its own, in the locale that has no other letters."""
    narrow = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": encoding or "utf-8"}
    where = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run(
        [sys.executable, *arguments], env=os.environ | where | narrow, check=False, timeout=120, **options
    )


IN_TURN = """
import contextlib, io, json, runpy, sys
told, streams = [], (sys.stdout, sys.stderr)
for module, *arguments in json.loads(sys.argv[1]):
    made = [io.TextIOWrapper(io.BytesIO(), stream.encoding, stream.errors) for stream in streams]
    sys.argv, (sys.stdout, sys.stderr), status = [module, *arguments], made, 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ending:
        status = ending.code or 0
    sys.stdout, sys.stderr = streams
    for stream in made:
        stream.flush()
    told.append([status, *(stream.buffer.getvalue().decode("latin-1") for stream in made)])
print(json.dumps(told))
"""


def calls(*commands, encoding=None):
    """Several commands, one after another, in one process of their own, each with streams like the standard ones."""
    done = call("-c", IN_TURN, json.dumps(commands), encoding=encoding)
    assert done.returncode == 0, done.stderr
    for status, *streams in json.loads(done.stdout):
        yield subprocess.CompletedProcess([], status, *(text.encode("latin-1") for text in streams))


def refused(capsys, words, *arguments):
    assert main([*map(str, arguments)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"privcalc {arguments[0]}: ")
    assert error.count("\n") == 1
    assert words in error


# --- writing --------------------------------------------------------------------------------------


def others(folder):
    """What has a name and is no regular file, with its kind."""
    (folder / "directory").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "file").write_text("kept")
    (folder / "link").symlink_to(folder / "file")
    (folder / "device").symlink_to("/dev/full")
    return {"directory": "a directory", "pipe": "a pipe", "link": "a symbolic link", "device": "a symbolic link"}


def test_only_regular_files_are_replaced(tmp_path, described, capsys):
    for name, kind in others(tmp_path).items():
        refused(
            capsys,
            f"must be a regular file, or a new one, not {kind}",
            "certify",
            described,
            "--delta",
            "1e-5",
            "--out",
            tmp_path / name,
        )
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "file").read_text() == "kept"
    assert not list(tmp_path.glob(".*"))


def test_a_device_is_not_replaced(tmp_path):
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o600 | 0o020000, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")
    with pytest.raises(pc.PrivcalcError, match="not a device"):
        write_whole(device, "text")
    assert device.is_char_device()


def test_names_that_cannot_be_written(tmp_path, described, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    locked = tmp_path / "locked"
    locked.write_text("kept")
    locked.chmod(0o444)
    for name, words in (
        ("-", "standard output has what is printed"),
        (locked, "must not be write-protected"),
        (tmp_path / "none" / "file", f"No such file or directory: '{tmp_path / 'none' / 'file'}'"),
        (locked / "file", "Not a directory"),
        ("x" * 300, "File name too long"),
        ("a\0b", "must be the name of a file"),
    ):
        refused(capsys, words, "certify", described, "--delta", "1e-5", "--out", name)
    assert sorted(os.listdir()) == ["locked", "run.json"]
    pc.certify(STEP, delta=1e-5).save("y" * 255)  # a name of any length that the system takes


def test_permissions_never_grow(tmp_path):
    old = os.umask(0o027)
    try:
        write_whole(tmp_path / "new", "text")
        with whole(tmp_path / "secret", mode=0o600) as file:
            file.write(b"text")
    finally:
        os.umask(old)
    write_whole(tmp_path / "secret", "other")
    found = {name: (tmp_path / name).stat().st_mode & 0o777 for name in ("new", "secret")}
    assert found == {"new": 0o640, "secret": 0o600}


@pytest.mark.parametrize("path", ["/dev/null", "pipe", "link"])
def test_ledgers_are_regular_files(path, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    with pytest.raises(pc.PrivcalcError, match="must be a regular file, not a"):
        pc.Ledger(tmp_path / path, plan=STEP)


# --- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["pipe", "/dev/zero", "directory", "huge"])
def test_what_is_no_file_ends_with_a_line(source, tmp_path, cert):
    others(tmp_path)
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    path = str(tmp_path / source)
    words = b"must have at most 16,777,216 bytes" if source == "huge" else b"must be a regular file, not a"
    commands = [["verify", path], ["verify", cert, path], ["certify", path, "--delta", "1e-5"], ["show", path]]
    if source == "pipe":
        (tmp_path / "scores.npy").symlink_to(path)
        scores = str(tmp_path / "scores.npy")
        audit = ["audit", scores, "--noise-multiplier", "2", "--delta", "1e-5", "--out", str(tmp_path / "out")]
        commands += [["attack", scores, scores], ["compare", path, "--delta", "1e-5"], audit]
    for arguments, done in zip(commands, calls(*(["privcalc", *arguments] for arguments in commands)), strict=True):
        if (source, arguments) == ("huge", ["verify", cert, path]):
            assert (done.returncode, done.stdout.count(b"\n"), done.stderr) == (1, 1, b"")
            assert done.stdout.startswith(b"WRONG: ")
            assert words in done.stdout
            continue
        assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1), done.stderr
        assert words in done.stderr


def test_a_line_without_an_end(tmp_path, monkeypatch):
    path = tmp_path / "run.jsonl"
    with pc.Ledger(path, plan=STEP):
        pass
    with path.open("ab") as file:
        file.truncate(1 << 40)
    with pytest.raises(pc.PrivcalcError, match="has no end"):
        pc.certify(path, delta=1e-5)


def test_scores_that_are_not_there(tmp_path, capsys):
    """A heading may promise any number of them."""
    path = tmp_path / "scores.npy"
    for shape in ("(99999999999999,)", "(99999999999999", "(10**99,)"):
        heading = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
        path.write_bytes(b"\x93NUMPY\x01\x00" + len(heading).to_bytes(2, "little") + heading + bytes(80))
        refused(capsys, "must be a .npy array", "attack", path, path)


# --- streams --------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["ascii", pytest.param("latin-1", marks=pytest.mark.slow)])
def test_letters_that_a_terminal_lacks_are_spelled(encoding, cert, described):
    asked = [
        (["--help"], "epsilon of a run at a delta"),
        (EPSILON, "epsilon <= 4.377"),
        (["show", cert], "one pupil"),
        (["certify", described, "--delta", "1e-5"], "pupil's epsilon"),
        (["verify", cert], "delta("),
        (
            ["plan", "--records", "100", "--epsilon", "1", "--delta", "1e-5", "--epochs", "1"],
            "(1, 1e-05)-DP under",
        ),
        (["curve", "--noise-multiplier", "2", "--delta", "1e-5"], "delta           epsilon"),
    ]
    *told, shown = calls(
        *(["privcalc", *arguments] for arguments, _ in asked), ["privcalc", "show", cert, "--json"], encoding=encoding
    )
    for (_, words), done in zip(asked, told, strict=True):
        assert (done.returncode, done.stderr) == (0, b"")
        assert words in done.stdout.decode(encoding)
    assert json.loads(shown.stdout) == pc.Certificate.load(cert).document  # its hash still fits
    alone = call("-m", "privcalc", *EPSILON, encoding=encoding)
    assert (alone.returncode, alone.stdout, alone.stderr) == (0, told[1].stdout, b"")
    done = call("-m", "privcalc", "verify", "nowhere-ε-\udcff", encoding=encoding)
    assert (done.returncode, done.stderr.count(b"\n"), b"Traceback" in done.stderr) == (2, 1, False)


def test_the_other_commands_speak_ascii():
    pytest.importorskip("torch")
    modules = ("proofs.check", "proofs.errata", "benchmarks.accountants.run", "benchmarks.attacks", "learners.demo")
    for module, done in zip(modules, calls(*([module, "--help"] for module in modules), encoding="ascii"), strict=True):
        assert (done.returncode, done.stderr) == (0, b""), module
        assert done.stdout.isascii()
    assert b"epsilon (default 1)" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "status"), [(EPSILON, 0), (["--help"], 0), ([*EPSILON, "--sample-rate", "2"], 2)], ids=str
)
def test_closed_streams(arguments, status):
    for closed in ([1], [0, 1, 2]) if arguments == EPSILON else ([1, 2],) if status == 0 else ([2], [0, 1, 2]):
        done = call("-m", "privcalc", *arguments, preexec_fn=lambda: [os.close(number) for number in closed])
        assert done.returncode == status
        assert b"Traceback" not in done.stdout + done.stderr
        assert b"--sample-rate" not in done.stdout  # errors do not move there


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_does_not_change_the_verdict(unbuffered, cert, monkeypatch):
    document = json.loads(Path(cert).read_text())
    Path(cert).write_text(json.dumps({**document, "unit": "another"}))
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        options = [] if not unbuffered else ["-u"]
        command = [sys.executable, *options, "-m", "privcalc", "verify", cert, "--json"]
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, check=False, cwd=ROOT)
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="has no full device")
@pytest.mark.parametrize("arguments", [EPSILON, ["--help"]], ids=str)
def test_an_answer_that_could_not_be_written_is_an_error(arguments):
    with open("/dev/full", "wb") as full:
        done = call("-m", "privcalc", *arguments, stdout=full)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"No space left" in done.stderr


def test_one_thread_for_each_process_of_the_tests():
    assert all(os.environ[f"{name}_NUM_THREADS"] for name in ("OMP", "OPENBLAS", "MKL"))
    torch = pytest.importorskip("torch")
    assert torch.get_num_threads() == int(os.environ["OMP_NUM_THREADS"])


def test_a_ledger_is_not_written_over(tmp_path: Path) -> None:
    """``privcalc certify run.jsonl --out run.jsonl`` lost it."""
    path = tmp_path / "run.jsonl"
    with pc.Ledger(path, plan=pc.Gaussian(2.0)) as ledger:
        ledger.record(pc.Gaussian(2.0))
    before = path.read_bytes()
    with pytest.raises(pc.PrivcalcError, match="must not be a ledger"):
        pc.certify(path, delta=1e-5).save(path)
    assert path.read_bytes() == before


def test_control_c_is_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    @command("privcalc test")
    def stopped() -> int:
        raise KeyboardInterrupt

    assert stopped() == 130
    assert capsys.readouterr().err == "privcalc test: interrupted\n"
