"""A check that takes too long, or too much memory, ends as "not confirmed"; what is wrong is still told as wrong."""

import copy
import json
import math
import os
import sys
import threading
import tracemalloc

import made_up
import pytest

import privcalc as pc
from privcalc.certificate import verify
from privcalc.certificate.assumed import lines
from privcalc.certificate.consistency import check, log_of
from privcalc.certificate.schema import digest
from privcalc.cli import main
from privcalc.files import DOCUMENT
from privcalc.serial import canonical, parse

UNCHECKED = "import privcalc.certificate.verify as v; v.verify = lambda *a, **k: {}; "
START = UNCHECKED + "from privcalc.certificate.verify import main; main()"


@pytest.fixture(autouse=True)
def checks():
    """As they are: in a process of their own."""


@pytest.fixture(scope="module")
def small():
    return pc.certify(pc.Gaussian(2.0), delta=1e-5)


def standing_in_for(small, run):
    """A certificate of the right form of a run whose numbers were never computed."""
    document = {**small.document, "run": run, "declared": run}
    document["proofs"] = ["poisson.md", *document["proofs"]]
    document["assumptions"] = {"declared": {}, "needed": lines(log_of(document))}
    return pc.Certificate({**document, "hash": digest(document)})


def sampled(rate, count):
    """One entry of a run."""
    mechanism = {"kind": "PoissonSampled", "mechanism": {"kind": "Gaussian", "noise_multiplier": 0.25}, "rate": rate}
    return {"mechanism": mechanism, "count": count}


def test_in_time(small):
    assert small.verify() == small.verify(seconds=math.inf)


def test_wrong_is_told_as_wrong(small):
    document = copy.deepcopy(dict(small.document))
    document["guarantee"]["epsilon"] |= {"lower": 0.1, "upper": 0.1}
    for seconds in (30, math.inf):
        with pytest.raises(pc.Contradiction, match="is too small"):
            pc.Certificate({**document, "hash": digest(document)}).verify(seconds=seconds)
        with pytest.raises(pc.Contradiction, match="lacks something"):
            pc.Certificate({}).verify(seconds=seconds)
    with pytest.raises(pc.Contradiction, match="own hash"):
        pc.Certificate(document).verify(seconds=math.inf)


def test_out_of_time(small, tmp_path, capsys, monkeypatch):
    """3,000 sampled entries: every claim of them takes minutes."""
    run = [sampled(1e-3 + k * 1e-6, 100) for k in range(3000)]
    run.sort(key=str)
    certificate = standing_in_for(small, run)
    check(certificate.document)  # nothing is wrong with its form
    with pytest.raises(pc.NotConfirmed, match=r"seconds = 0\.3: were not enough"):
        certificate.verify(seconds=0.3)
    certificate.save(tmp_path / "slow.json")
    monkeypatch.setattr(verify, "PROGRAM", "import time; time.sleep(60)")
    assert main(["verify", str(tmp_path / "slow.json"), "--seconds", "0.1"]) == 3
    assert capsys.readouterr().out.startswith("UNDECIDED: not confirmed: seconds = 0.1: were not enough")
    assert main(["verify", str(tmp_path / "slow.json"), "--seconds", "0.1", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["verified"] is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the system does not limit memory")
def test_out_of_memory(small, monkeypatch):
    greedy = START.format("bytearray(8 << 30)")
    monkeypatch.setattr(verify, "PROGRAM", greedy)
    with pytest.raises(pc.NotConfirmed, match="4 GiB of memory"):
        small.verify()


def test_killed(small, monkeypatch):
    monkeypatch.setattr(verify, "PROGRAM", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(pc.NotConfirmed, match="ended the check"):
        small.verify()


def test_an_error_of_our_own_is_no_confirmation(small, monkeypatch):
    broken = START.format("1 / 0")
    monkeypatch.setattr(verify, "PROGRAM", broken)
    with pytest.raises(pc.NotConfirmed, match="ZeroDivisionError"):
        small.verify()


def test_beside_other_threads_and_elsewhere(small, tmp_path, monkeypatch):
    """No fork copies their locks; and no file of the folder one happens to be in is imported."""
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong one')")
    monkeypatch.chdir(tmp_path)
    lock = threading.Lock()
    with lock:
        thread = threading.Thread(target=lock.acquire, daemon=True)
        thread.start()
        assert small.verify()
    thread.join()
    assert os.listdir(tmp_path) == ["json.py"]


@pytest.mark.parametrize("seconds", [0, -1, math.nan, "30", None, True])
def test_seconds_are_a_number(small, seconds):
    with pytest.raises(pc.PrivcalcError, match="seconds"):
        small.verify(seconds=seconds)
    with pytest.raises(pc.PrivcalcError) as caught:
        small.verify(seconds=seconds)
    assert not isinstance(caught.value, (pc.Contradiction, pc.NotConfirmed))  # the question is wrong, not the claim


def test_ledgers_are_read_there(tmp_path):
    step = pc.Gaussian(noise_multiplier=20.0)
    for path in (None, tmp_path / "run.jsonl"):
        with pc.Ledger(path, plan=step * 3) as ledger:
            ledger.record(step)
        assert pc.certify(ledger, delta=1e-5).verify(ledger)[-1].startswith("the ledger is whole")
    with pytest.raises(FileNotFoundError):
        pc.certify(ledger, delta=1e-5).verify(tmp_path / "none")


LARGE = b'{"format":"privcalc certificate","version":3,"parts":[' + b"[]," * (12 << 20) + b"0]}"
DEEP = b'{"format":"privcalc certificate","version":3,"parts":' + b"[" * 10**5 + b"]" * 10**5 + b"}"


@pytest.mark.parametrize(("data", "why"), [(LARGE, "at most 16,777,216 bytes"), (DEEP, "at most 60 deep, not 100001")])
def test_what_is_too_large_or_too_deep_is_refused_before_it_is_read(tmp_path, capsys, data, why):
    path = tmp_path / "large.json"
    path.write_bytes(data)
    tracemalloc.start()
    with pytest.raises(pc.PrivcalcError, match=why):
        pc.Certificate.load(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2 * DOCUMENT
    for command in (["verify", "--seconds", "5"], ["show"], ["show", "--report"], ["certify", "--delta", "1e-5"]):
        assert main([command[0], str(path), *command[1:]]) == 2
        out, err = capsys.readouterr()
        assert (out, len(err.splitlines())) == ("", 1)
        assert why in err


@pytest.mark.parametrize(
    ("inside", "why"),
    [
        (b"[]," * (12 << 20), "line 2 has no end within 16,777,216 bytes"),
        (b"[" * 10**5 + b"]" * 10**5, "line 2 cannot be read"),
        (b"[" * 61 + b"]" * 61, "line 2 cannot be read"),
    ],
    ids=["long", "deep", "just too deep"],
)
def test_a_line_of_a_ledger_that_is_too_long_or_too_deep_is_refused_before_it_is_read(tmp_path, capsys, inside, why):
    """Ledgers have no limit; their lines have that of certificates, in the command's own process too."""
    path, cert = tmp_path / "run.jsonl", tmp_path / "run.json"
    with pc.Ledger(path, plan=pc.Gaussian(2.0)):
        pass
    pc.certify(path, delta=1e-5).save(cert)
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(whole[0] + b'{"n":2,"entry":{"type":"said","words":' + inside + b'},"hash":"0"}\n' + whole[1])
    for command, status in (
        (["show", path], 2),
        (["certify", path, "--delta", "1e-5"], 2),
        (["verify", cert, path], 1),
    ):
        tracemalloc.start()
        assert main(list(map(str, command))) == status
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 4 * DOCUMENT
        out, err = capsys.readouterr()
        assert why in (out if status == 1 else err)
        assert len((out + err).splitlines()) == 1
    with pytest.raises(pc.Contradiction, match=why):
        pc.Certificate.load(cert).verify(path, seconds=math.inf)


def test_brackets_in_texts_do_not_count(small):
    words = '"]' * 100 + "\\" + "[{" * 1000
    assert parse(canonical({"a": words, "b": [words]}), "text")["a"] == words
    assert pc.Certificate({**small.document, "unit": "[" * 100}).document["unit"] == "[" * 100


def test_a_mechanism_of_somebody_s_own_class_contradicts_nothing():
    certificate = pc.certify(made_up.MadeUpNoise(4.0) * 3, delta=1e-5)
    with pytest.raises(pc.NotConfirmed, match="kind = 'MadeUpNoise': must be one of"):
        certificate.verify(seconds=120.0)  # the other process has not imported it
    assert certificate.verify(seconds=math.inf)[0].startswith("UNDECIDED")
    wrong = {**certificate.document, "unit": "one town"}
    with pytest.raises(pc.Contradiction, match="does not fit its own hash"):
        pc.Certificate(wrong).verify(seconds=120.0)
