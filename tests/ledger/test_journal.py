"""The ledger's file: whatever happens to it, nothing reserved is forgotten, and nothing changed is read."""

import errno
import gc
import hashlib
import itertools
import json
import math
import os
import random
import resource
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import portalocker
import pytest
from cases import SLOW

import privcalc as pc
from privcalc.certificate.schema import digest
from privcalc.certificate.story import of_given
from privcalc.ledger.assumptions import Provenance
from privcalc.ledger.book import Book
from privcalc.log import file as journal

STEP, OTHER = pc.Gaussian(noise_multiplier=20.0), pc.Laplace(scale=50.0)
PLAN = STEP * 30 + OTHER * 10


def chain(entries, start="0" * 64):
    """A ledger with right hashes, whatever its entries are; written here once more, so that the format cannot drift."""
    lines = []
    for number, entry in enumerate(entries, 1):
        text = (
            entry
            if isinstance(entry, str)
            else json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        )
        start = hashlib.sha256(f"{start}{number}{text}".encode()).hexdigest()
        lines.append(f'{{"n":{number},"entry":{text},"hash":"{start}"}}\n')
    return "".join(lines).encode()


def opening(**changes):
    """The first entry."""
    ledger = pc.Ledger(None, plan=PLAN)
    return json.loads(ledger.journal.memory[0])["entry"] | changes


def reserve(count=1, kind="reserve", **changes):
    told = Provenance(noise="other code" if kind == "record" else "exact").to_json()
    mechanism = {"kind": "Gaussian", "noise_multiplier": 20.0}
    return {"type": kind, "count": count, "mechanism": mechanism, "provenance": told} | changes


def totals(data):
    """What the complete lines of a ledger charge."""
    found = Counter()
    for line in data.split(b"\n")[:-1]:
        entry = json.loads(line)["entry"]
        if entry["type"] in {"reserve", "record", "return"}:
            found[entry["mechanism"]["kind"]] += entry["count"] * (-1 if entry["type"] == "return" else 1)
    return found


def charged(path):
    with journal.read(path) as (lines, position):
        book = Book.read(lines)
    return book, position


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.jsonl"


@pytest.fixture
def written(path):
    """A ledger with every kind of entry: one crash, one clean end."""
    ledger = pc.Ledger(path, plan=PLAN, reserve=4, public={"größe": 1.5})
    ledger._charged = 400  # blocks of four from the start
    for _ in range(6):
        ledger.gaussian(0.0, STEP, clip_norm=1.0)
    ledger.journal.close()
    ledger = pc.Ledger(path, plan=PLAN, reserve=4, public={"größe": 1.5})
    ledger._charged = 400
    ledger.record(OTHER, count=2)
    ledger.laplace([0.0], OTHER, clip_norm=1.0)
    ledger.gaussian(0.0, STEP, clip_norm=1.0)
    ledger.close(stopping="output-independent")
    return path.read_bytes()


def test_the_format_is_the_documented_one(written):
    kinds = [json.loads(line)["entry"]["type"] for line in written.splitlines()]
    assert kinds == [
        *(
            "open",
            "reserve",
            "draw",
            "reserve",
            "resume",
            "record",
            "reserve",
            "draw",
            "reserve",
            "return",
            "return",
            "close",
        )
    ]
    assert chain([json.loads(line)["entry"] for line in written.splitlines()]) == written
    assert totals(written) == {"Gaussian": 9, "Laplace": 3}


def test_truncated_at_every_byte(path, written, monkeypatch, unnumbered):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    ends = [i + 1 for i, byte in enumerate(written) if byte == ord("\n")]
    near = {size for end in [0, *ends] for size in range(end - 3, end + 4) if 0 <= size <= len(written)}
    for size in sorted({*near, *range(0, len(written) + 1, 1 if SLOW else 25)}):
        data = written[:size]
        path.write_bytes(data)
        complete, torn = data.count(b"\n"), not data.endswith(b"\n")
        if complete == 0:
            with pytest.raises(pc.PrivcalcError):
                pc.certify(path, delta=1e-5)
        elif size % 25 == 0 or data[-2:].count(b"\n") or size == len(written):
            found = pc.certify(path, delta=1e-5)
            assert found.final == (size == len(written))
            assert (found.document["basis"] == "recorded") == found.final
            assert found.document["ledgers"][0]["torn"] == torn
            recorded = {part["mechanism"]["kind"]: part["count"] for part in found.document["recorded"]}
            assert recorded == +totals(data)
            if not found.final:
                assert found.run == PLAN
                assert "OPEN, WITHIN ITS PLAN: ε ≤ " in str(found)
        if size == len(written):
            with pytest.raises(pc.PrivcalcError, match="is closed"):
                pc.Ledger(path, plan=PLAN, public={"größe": 1.5})
            continue
        ledger = pc.Ledger(path, plan=PLAN, public={"größe": 1.5})
        spent = {type(mechanism).__name__: count for mechanism, count in ledger.spent.entries}
        assert spent == +totals(data)  # all that was reserved counts as drawn
        ledger.gaussian(0.0, STEP, clip_norm=1.0)
        ledger.journal.close()
        after = path.read_bytes()
        assert after.startswith(data[: data.rfind(b"\n") + 1])
        assert totals(after) == totals(data) + Counter(Gaussian=1)


@pytest.mark.parametrize("what", [b"important\n", b"important", b"{}", b'{"n":2', b"\x00" * 9, b'{"n":1,"entry":[]}\n'])
def test_another_file_is_not_taken_for_a_ledger(path, what):
    path.write_bytes(what)
    for attempt in (lambda: pc.Ledger(path, plan=PLAN), lambda: pc.certify(path, delta=1e-5)):
        with pytest.raises(pc.PrivcalcError):
            attempt()
    assert path.read_bytes() == what


def refused(path, data, match="."):
    path.write_bytes(data)
    for attempt in (lambda: pc.certify(path, delta=1e-5), lambda: pc.Ledger(path, plan=PLAN, public={"größe": 1.5})):
        with pytest.raises(pc.PrivcalcError, match=match):
            attempt()
    assert path.read_bytes() == data


def test_lines_that_were_moved_doubled_dropped_or_changed(path, written):
    lines = written.splitlines(keepends=True)
    for k in range(len(lines) - 1):
        refused(path, b"".join([*lines[:k], lines[k + 1], lines[k], *lines[k + 2 :]]))
        refused(path, b"".join(lines[: k + 1] + lines[k:]))
        refused(path, b"".join(lines[:k] + lines[k + 1 :]))
    refused(path, written + lines[-1])
    refused(path, written + b"\n", "cannot be read")
    changed = written.replace(b'"count":4', b'"count":1', 1)
    refused(path, changed, "line 2 does not fit its hash")
    refused(path, written.replace(b'"n":3', b'"n":3.0', 1))
    refused(path, written.replace(b'"n":2', b'"n":1,"n":2', 1))  # a name twice
    refused(path, written.replace(b'"count":4', b'"count":1,"count":4', 1))
    rng = random.Random(1)
    for _ in range(150):
        at = rng.randrange(len(written) - 1)
        refused(path, written[:at] + bytes([written[at] ^ (1 << rng.randrange(8))]) + written[at + 1 :])


CLOSE = {"type": "close", "stopping": None}
BAD = {
    "version": [opening(version=1)],
    "boolean version": [opening(version="1")],
    "format": [opening(format="something else")],
    "no first line": [reserve()],
    "two first lines": [opening(), opening()],
    "a field missing": [{name: value for name, value in opening().items() if name != "seeded"}],
    "a field too many": [opening(more=1, required=["more"])],
    "relation": [opening(relation="add")],
    "relation of another type": [opening(relation=["add-or-remove-one"])],
    "unit": [opening(unit="")],
    "plan and cap": [opening(cap={"kind": "GDP", "mu": 1.0, "relation": "add-or-remove-one"})],
    "no plan, no cap": [opening(plan=None)],
    "cap of another kind": [opening(plan=None, cap={"kind": "Gaussian", "noise_multiplier": 1.0})],
    "cap of another relation": [opening(plan=None, cap={"kind": "GDP", "mu": 1.0, "relation": "zero-out"})],
    "cap with xi": [opening(plan=None, cap={"kind": "ZCDP", "rho": 1.0, "xi": 0.1, "relation": "add-or-remove-one"})],
    "infinite cap": [
        opening(plan=None, cap={"kind": "RDP", "orders": [2], "epsilons": ["inf"], "relation": "add-or-remove-one"})
    ],
    "public": [opening(public="records")],
    "not accounted": [opening(not_accounted="nothing")],
    "target": [opening(target={"epsilon": "small", "delta": 0.1})],
    "target with more": [opening(target={"mu": 1.0, "nu": 1.0})],
    "unknown mechanism": [opening(), reserve(mechanism={"kind": "Magic"})],
    "abstract mechanism": [opening(), reserve(mechanism={"kind": "Stated"})],
    "no mechanism": [opening(), reserve(mechanism=None)],
    "mechanism with more": [opening(), reserve(mechanism={"kind": "Gaussian", "noise_multiplier": 20.0, "more": 1})],
    "mechanism with less": [opening(), reserve(mechanism={"kind": "Gaussian"})],
    "negative noise": [opening(), reserve(mechanism={"kind": "Gaussian", "noise_multiplier": -20.0})],
    "noise in words": [opening(), reserve(mechanism={"kind": "Gaussian", "noise_multiplier": "20"})],
    "huge noise": [opening(), reserve(mechanism={"kind": "Gaussian", "noise_multiplier": 10**400})],
    "huge order": [opening(), reserve(mechanism={"kind": "RDP", "orders": [10**400], "epsilons": [1]})],
    "not in the plan": [opening(), reserve(mechanism={"kind": "Gaussian", "noise_multiplier": 19.0})],
    "negative count": [opening(), reserve(-1)],
    "no count": [opening(), reserve(0)],
    "float count": [opening(), reserve(1.0)],
    "boolean count": [opening(), reserve(True)],
    "count in words": [opening(), reserve("1")],
    "NaN count": [opening(), reserve(float("nan"))],
    "infinite count": [opening(), reserve(float("inf"))],
    "huge count": [opening(), reserve(10**30)],
    "more than the plan": [opening(), reserve(30), reserve(1)],
    "more than the plan, declared": [opening(), reserve(20), reserve(11, kind="record")],
    "more returned than reserved": [opening(), reserve(3), reserve(4, kind="return")],
    "declared uses returned": [opening(), reserve(3, kind="record"), reserve(1, kind="return")],
    "entry with more": [opening(), reserve(more=1, required=["more"])],
    "entry with less": [opening(), {"type": "reserve", "count": 1}],
    "unknown type": [opening(), {"type": "spend"}],
    "type of another type": [opening(), {"type": ["reserve"]}],
    "no type": [opening(), {}],
    "on after the end": [opening(), CLOSE, reserve()],
    "closed twice": [opening(), CLOSE, CLOSE],
    "stopping": [opening(), {"type": "close", "stopping": "trust me"}],
    "stopping of another type": [opening(), {"type": "close", "stopping": ["output-independent"]}],
    "half a character": [opening(), '{"type":"\\ud800"}'],
    "too deep": [opening(), '{"type":' + "[" * 100_000 + "]" * 100_000 + "}"],
    "label twice": [opening(), reserve(label="May"), reserve(label="May")],
    "label twice, declared": [opening(), reserve(label="May"), reserve(kind="record", label="May")],
    "label on what is returned": [opening(), reserve(3), reserve(1, kind="return", label="May", required=["label"])],
    "label of no kind": [opening(), reserve(label=5)],
    "label of two lines": [opening(), reserve(label="a\nb")],
    "no label": [opening(), reserve(label="")],
    "warning twice": [opening(), {"type": "warning", "text": "x"}, {"type": "warning", "text": "x"}],
    "warning of two lines": [opening(), {"type": "warning", "text": "x\ny"}],
    "warning of no words": [opening(), {"type": "warning", "text": " "}],
    "warning of no kind": [opening(), {"type": "warning", "text": 5}],
    "deep mechanism": [opening(), reserve(mechanism=json.loads('{"kind":"Parallel","parts":[' * 300 + "]}" * 300))],
}


TOO_MUCH = {"not in the plan", "more than the plan", "more than the plan, declared"}


@pytest.mark.parametrize("name", BAD)
def test_entries_that_make_no_sense(path, name):
    data = chain(BAD[name])
    path.write_bytes(data)
    for read in (lambda: pc.certify(path, delta=1e-5), lambda: pc.Ledger(path, plan=PLAN)):
        with pytest.raises(pc.PrivcalcError) as caught:
            read()
        # what was charged too much is found, not refused
        assert not isinstance(caught.value, pc.BudgetExceeded)
        assert isinstance(caught.value, pc.Contradiction) == (name in TOO_MUCH)
    assert path.read_bytes() == data


def calls_of(function):
    """What it returns, and how many functions are called meanwhile."""
    counted = itertools.count()
    sys.setprofile(lambda _, event, __: next(counted) if event in ("call", "c_call") else None)
    try:
        found = function()
    finally:
        sys.setprofile(None)
    return found, next(counted)


def test_a_long_ledger_is_read_fast(path):
    """So many calls a line, however many there are: about 100."""
    each, entry = [], reserve()
    for count in (500, 4_000):
        path.write_bytes(
            chain([opening(plan=[{"count": count, "mechanism": entry["mechanism"]}]), *[entry] * (count - 1)])
        )
        (book, position), calls = calls_of(lambda: charged(path))
        assert (book.drawn, position.lines) == ({STEP: count - 1}, count)
        each.append(calls / count)
    assert each[1] <= 1.1 * each[0]
    assert each[1] < 300


# --- writers --------------------------------------------------------------------------------------


def test_two_writers(path):
    first = pc.Ledger(path, plan=PLAN)
    with pytest.raises(pc.PrivcalcError, match="another writer"):
        pc.Ledger(path, plan=PLAN)
    code = f"import privcalc as pc; pc.Ledger({str(path)!r}, plan=pc.Gaussian(20.0) * 30 + pc.Laplace(50.0) * 10)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=Path(pc.__file__).parent.parent
    )
    assert "another writer has this ledger open" in done.stderr
    first.gaussian(0.0, STEP, clip_norm=1.0)  # and is none the worse for it
    first.close()
    assert charged(path)[0].drawn == {STEP: 1}


def test_where_a_lock_forbids_to_read_a_file_beside_the_ledger_is_locked(path, monkeypatch):
    """As on Windows: the ledger itself is read while it is open, and a second writer is refused all the same."""
    monkeypatch.setattr(journal, "POSIX", False)
    first = pc.Ledger(path, plan=PLAN)
    with path.open("rb") as other:
        portalocker.lock(other, portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING)  # nobody has it
        for _ in range(2):  # who is refused leaves the lock to who has it
            with pytest.raises(pc.PrivcalcError, match="another writer has this ledger open"):
                pc.Ledger(path, plan=PLAN)
        first.gaussian(0.0, STEP, clip_norm=1.0)
        assert first.journal.in_place
        first.close()
    with pytest.raises(pc.PrivcalcError, match="is closed"):
        pc.Ledger(path, plan=PLAN)
    assert charged(path)[0].drawn == {STEP: 1}


def test_a_forgotten_ledger_lets_its_file_go(path):
    ledger = pc.Ledger(path, plan=PLAN)
    ledger.gaussian(0.0, STEP, clip_norm=1.0)
    del ledger
    gc.collect()
    pc.Ledger(path, plan=PLAN).close()
    assert charged(path)[0].drawn == {STEP: 1}


@pytest.mark.parametrize("harm", ["removed", "replaced", "written to", "shortened"])
def test_a_file_that_others_change(path, harm):
    ledger = pc.Ledger(path, plan=PLAN)
    ledger.gaussian(0.0, STEP, clip_norm=1.0)
    data = path.read_bytes()
    if harm in {"removed", "replaced"}:
        path.unlink()
    if harm == "replaced":
        path.write_bytes(data)
    elif harm == "written to":
        with path.open("ab") as file:
            file.write(b"x")
    elif harm == "shortened":
        os.truncate(path, 10)
    for _ in range(2):
        with pytest.raises(pc.PrivcalcError, match=r"moved, removed or written to|is closed"):
            ledger.gaussian(0.0, STEP, clip_norm=1.0)


def in_child(work):
    """The exit status of a fork; 0 where ``work`` returns True."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if work() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("memory", [True, False])
def test_a_fork_cannot_draw(path, memory):
    sampled = pc.PoissonSampled(STEP, 0.5)
    ledger = pc.Ledger(None if memory else path, plan=PLAN + sampled * 10, public={"records": 5})
    ledger.gaussian(0.0, STEP, clip_norm=1.0)
    batch = ledger.poisson_batch(sampled)
    assert ledger._lock.acquire()  # as if another thread held it while the process forks

    def work():
        for attempt in (
            lambda: ledger.gaussian(0.0, STEP, clip_norm=1.0),
            lambda: ledger.gaussian(0.0, sampled, clip_norm=1.0, batch=batch),
            lambda: ledger.poisson_batch(sampled),
            lambda: ledger.record(STEP),
            ledger.close,
            lambda: ledger.__exit__(None, None, None),
        ):
            with pytest.raises(pc.PrivcalcError, match="another process"):
                attempt()
        ledger.__exit__(ValueError, ValueError(), None)  # leaves the file alone
        return True

    assert in_child(work) == 0
    ledger._lock.release()
    ledger.gaussian(0.0, sampled, clip_norm=1.0, batch=batch)
    ledger.close()


# --- faults ---------------------------------------------------------------------------------------


def draw_on(ledger):
    """Until it is refused."""
    while True:
        ledger.gaussian(0.0, STEP, clip_norm=1.0)


class Spy:
    """Counts what is drawn."""

    def __init__(self, ledger):
        self.drawn, self._noise = 0, ledger._noise
        ledger._noise = self

    def normal(self, size, scale):
        self.drawn += 1
        return self._noise.normal(size, scale)


@pytest.mark.parametrize("fault", ["half written", "nothing written", "sync"])
@pytest.mark.parametrize("undo", [True, False])
def test_a_full_disk(path, monkeypatch, fault, undo):
    ledger = pc.Ledger(path, plan=PLAN)
    spy = Spy(ledger)
    ledger.gaussian(0.0, STEP, clip_norm=1.0)
    before, write, truncate, sync = path.read_bytes(), os.write, os.ftruncate, os.fsync
    full = OSError(errno.ENOSPC, "No space left on device")

    def half(file, data):
        if fault == "half written" and len(data) > 20:
            return write(file, data[: len(data) // 2])
        raise full

    def fail(*_):
        raise full

    if fault == "sync":
        monkeypatch.setattr(os, "fsync", fail)
    else:
        monkeypatch.setattr(os, "write", half)
    if not undo:
        monkeypatch.setattr(os, "ftruncate", fail)
    for attempt in (lambda: ledger.gaussian(0.0, STEP, clip_norm=1.0), lambda: ledger.record(STEP)):
        with pytest.raises((OSError, pc.PrivcalcError)):
            attempt()
    assert spy.drawn == 1
    assert ledger.spent == pc.Run.of([STEP])
    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(os, "ftruncate", truncate)
    monkeypatch.setattr(os, "fsync", sync)
    can_go_on = undo and fault != "sync"
    assert charged(path)[0].drawn[STEP] >= 1
    if can_go_on:  # there is room again
        assert path.read_bytes() == before
        ledger.gaussian(0.0, STEP, clip_norm=1.0)
        assert charged(path)[0].drawn == {STEP: 2}
    else:
        with pytest.raises(pc.PrivcalcError, match="closed"):
            ledger.gaussian(0.0, STEP, clip_norm=1.0)
    ledger.journal.close()
    again = pc.Ledger(path, plan=PLAN)
    again.gaussian(0.0, STEP, clip_norm=1.0)
    again.close()
    assert charged(path)[0].drawn[STEP] >= (3 if can_go_on else 2)


def test_a_disk_that_is_really_full(path):
    """A limit on the size of files fails the write half-way through a line."""

    def work():
        ledger = pc.Ledger(path, plan=PLAN)
        spy = Spy(ledger)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 1100, resource.RLIM_INFINITY))
        with pytest.raises(OSError, match="File too large"):
            draw_on(ledger)
        assert charged(path)[0].drawn == {STEP: spy.drawn}
        return 1 <= spy.drawn < 9

    assert in_child(work) == 0
    with pc.Ledger(path, plan=PLAN) as again:
        again.gaussian(0.0, STEP, clip_norm=1.0)
    assert charged(path)[0].closed


def test_interrupted_while_writing(path, monkeypatch):
    ledger = pc.Ledger(path, plan=PLAN)
    ledger.gaussian(0.0, STEP, clip_norm=1.0)
    sync = os.fsync

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        ledger.gaussian(0.0, STEP, clip_norm=1.0)
    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(pc.PrivcalcError, match="closed"):  # what is in the file is known to the file only
        ledger.gaussian(0.0, STEP, clip_norm=1.0)
    with pc.Ledger(path, plan=PLAN) as again:
        again.gaussian(0.0, STEP, clip_norm=1.0)
    assert charged(path)[0].drawn == {STEP: 3}


def test_an_error_while_returning_charges_rather_than_draws_again(monkeypatch):
    """What is about to be returned cannot be drawn any more, even if the return is interrupted."""
    ledger = pc.Ledger(None, plan=PLAN)
    ledger._charged = 400
    ledger.gaussian(0.0, STEP, clip_norm=1.0)
    append = ledger.journal.append

    def interrupt(*entries):
        append(*entries)
        raise KeyboardInterrupt

    monkeypatch.setattr(ledger.journal, "append", interrupt)
    with pytest.raises(KeyboardInterrupt):
        ledger.would_exceed(STEP * 28)
    monkeypatch.undo()
    spy = Spy(ledger)
    with pytest.raises(pc.PrivcalcError, match="the plan"):
        draw_on(ledger)
    assert 1 + spy.drawn + sum(ledger._undrawn.values()) <= totals(b"".join(ledger.journal.memory))["Gaussian"] + 4
    assert 1 + spy.drawn <= 30


KILLS = 200 if SLOW else 25
STEPS = 100 * KILLS  # more than is drawn before the last kill


def test_killed_again_and_again(path):
    """kill −9 at random moments: what the file charges is at least what was drawn, until the plan is exhausted."""
    plan, rng, drawn, kills, lives = STEP * STEPS, random.Random(3), 0, 0, 0

    def live(pipe):
        ledger = pc.Ledger(path, plan=plan, reserve=7)
        ledger._charged = 700
        while not ledger.would_exceed(STEP):
            ledger.gaussian(0.0, STEP, clip_norm=1.0)
            os.write(pipe, b"x")
            time.sleep(1e-4)

    charges = []
    while True:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(reading)
                live(writing)
                status = 0
            finally:
                os._exit(status)
        os.close(writing)
        lives += 1
        if kills < KILLS:
            # some are killed while they open the file, most while they write
            if rng.random() < 0.8:
                select.select([reading], [], [], 10)
            time.sleep(rng.random() * 0.004)
            os.kill(child, signal.SIGKILL)
            kills += 1
        while data := os.read(reading, 1 << 16):
            drawn += len(data)
        os.close(reading)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in {0, -signal.SIGKILL}
        if path.exists() and path.read_bytes().count(b"\n"):
            book, position = charged(path)
            charges.append(book.drawn.get(STEP, 0))
            assert drawn <= charges[-1] <= STEPS
            assert charges == sorted(charges)
        if status == 0:
            break
    assert kills == KILLS
    assert charges[-1] == STEPS
    # A life loses at most one block, and one draw that was not told.
    assert drawn >= STEPS - 8 * lives
    assert position.lines > KILLS


# --- labels ---------------------------------------------------------------------------------------

CHOICE = pc.ExponentialMechanism(0.5)
SAMPLED = pc.PoissonSampled(STEP, 0.5)
FIXED = pc.FixedSizeSampled(STEP, batch_size=2, dataset_size=8)
YEAR = PLAN + CHOICE * 9 + SAMPLED * 9 + FIXED * 9
RELEASES = {
    "gaussian": lambda ledger, label: ledger.gaussian(0.0, STEP, clip_norm=1.0, label=label),
    "laplace": lambda ledger, label: ledger.laplace(0.0, OTHER, clip_norm=1.0, label=label),
    "select": lambda ledger, label: ledger.select([1.0, 2.0], CHOICE, sensitivity=1.0, monotone=True, label=label),
    "record": lambda ledger, label: ledger.record(OTHER + STEP * 2, label=label),
    "poisson": lambda ledger, label: ledger.poisson_batch(SAMPLED, records=5, label=label),
    "fixed size": lambda ledger, label: ledger.fixed_size_batch(FIXED, label=label),
}


@pytest.mark.parametrize("kind", RELEASES)
def test_a_label_is_used_once(path, kind):
    """A month repeated by mistake is refused before anything is charged, by whichever call, and after any end."""
    ledger = pc.Ledger(path, plan=YEAR)
    RELEASES[kind](ledger, "2026-05")
    ledger._batches = type(ledger._batches)()
    for end in ("here", "pause", "crash", "error"):
        if end == "pause":
            ledger.pause()
        elif end == "crash":
            ledger.journal.close()
        elif end == "error":
            ledger.__exit__(ValueError, ValueError(), None)
        if end != "here":
            ledger = pc.Ledger(path, plan=YEAR)
        spent, lines = ledger.spent, path.read_bytes()
        for again in RELEASES.values():
            with pytest.raises(pc.PrivcalcError, match=r"label = '2026-05': was used in this ledger already"):
                again(ledger, "2026-05")
        assert (ledger.spent, path.read_bytes()) == (spent, lines)
    RELEASES[kind](ledger, "2026-06")
    ledger._batches = type(ledger._batches)()
    ledger.close()
    assert list(charged(path)[0].labels) == of_given(str(path))["ledgers"][0]["labels"] == ["2026-05", "2026-06"]


def test_what_a_label_may_be(path):
    ledger = pc.Ledger(None, plan=YEAR)
    for bad in ("", " May", "May ", "a\nb", "x" * 101, "\u202emay", 5, b"May", ["May"], True):
        for release in RELEASES.values():
            with pytest.raises(pc.PrivcalcError, match="label = "):
                release(ledger, bad)
    assert ledger.spent == pc.Run(())
    batch = ledger.poisson_batch(SAMPLED, records=5, label="May")
    with pytest.raises(pc.PrivcalcError, match="to the call that draws its batch"):
        ledger.gaussian(0.0, SAMPLED, clip_norm=1.0, batch=batch, label="June")
    ledger.gaussian(0.0, SAMPLED, clip_norm=1.0, batch=batch)
    ledger.close()
    assert "labels" not in pc.certify(pc.Ledger(None, plan=STEP), delta=1e-5).document["ledgers"][0]


def test_a_label_is_charged_or_free(path, monkeypatch):
    """Never used without its charge, nor charged without being used: both are on one line."""
    ledger = pc.Ledger(path, plan=PLAN)
    with pytest.raises(pc.BudgetExceeded):
        ledger.record(STEP, 31, label="May")
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:9]) if len(data) > 20 else fail())

    def fail():
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        ledger.gaussian(0.0, STEP, clip_norm=1.0, label="May")
    monkeypatch.undo()
    ledger.gaussian(0.0, STEP, clip_norm=1.0, label="May")  # it was not released
    ledger.record(OTHER + STEP, label="June")
    ledger.journal.close()
    data = path.read_bytes()
    assert totals(data) == {"Gaussian": 2, "Laplace": 1}
    for size in range(data.index(b"\n") + 1, len(data) + 1):
        path.write_bytes(data[:size])
        whole = data[: data[:size].rindex(b"\n") + 1]
        book, _ = charged(path)
        assert list(book.labels) == [name for name in ("May", "June") if name.encode() in whole]
        assert book.recorded == pc.Run.of([STEP] * totals(whole)["Gaussian"] + [OTHER] * totals(whole)["Laplace"])


def test_labels_in_a_certificate_are_checked(path):
    with pc.Ledger(path, plan=STEP * 3) as ledger:
        ledger.gaussian(0.0, STEP, clip_norm=1.0, label="May")
        ledger.gaussian(0.0, STEP, clip_norm=1.0, label="June")
    found = pc.certify(path, delta=1e-5)
    assert "labels          May; June" in str(found).splitlines()
    assert found.verify(path, seconds=math.inf)[-1].startswith("the ledger is whole")
    for labels in (["May", "May"], ["June"], [], [5], ["a\nb"], "May", None):
        ledgers = [{**found.document["ledgers"][0], "labels": labels}]
        changed = {**found.document, "ledgers": ledgers}
        with pytest.raises(pc.Contradiction):
            pc.Certificate({**changed, "hash": digest(changed)}).verify(path, seconds=math.inf)


# --- pauses ---------------------------------------------------------------------------------------


def test_a_pause_is_no_end(path):
    for month in range(3):
        with pc.Ledger(path, plan=PLAN, reserve=4) as ledger:
            ledger._charged = 400
            ledger.gaussian(0.0, STEP, clip_norm=1.0, label=f"month {month}")
            ledger.gaussian(0.0, STEP, clip_norm=1.0)
            ledger.pause()
            ledger.pause()
            for attempt in (lambda ledger=ledger: ledger.gaussian(0.0, STEP, clip_norm=1.0), ledger.close):
                with pytest.raises(pc.PrivcalcError, match="is paused: open its path again"):
                    attempt()
            assert f"({path}, paused, spent=" in repr(ledger)
        book, position = charged(path)
        assert book.drawn == {STEP: 2 * (month + 1)}  # what was reserved and not drawn is returned
        assert not book.closed
        assert not position.torn
    assert pc.certify(path, delta=1e-5).document["status"] == "open"
    pc.Ledger(path, plan=PLAN).close()
    assert pc.certify(path, delta=1e-5).final
    with pytest.raises(pc.PrivcalcError, match="this ledger is closed"):
        pc.Ledger(path, plan=PLAN)


def test_what_cannot_be_paused(path):
    with pytest.raises(pc.PrivcalcError, match="path = None: a ledger in memory cannot be paused"):
        pc.Ledger(None, plan=PLAN).pause()
    ledger = pc.Ledger(path, plan=YEAR)
    batch = ledger.poisson_batch(SAMPLED, records=5)
    with pytest.raises(pc.PrivcalcError, match="was not used"):  # or batches could be chosen from
        ledger.pause()
    ledger.gaussian(0.0, SAMPLED, clip_norm=1.0, batch=batch)

    def work():
        with pytest.raises(pc.PrivcalcError, match="another process"):
            ledger.pause()
        return True

    assert in_child(work) == 0
    ledger.close()
    with pytest.raises(pc.PrivcalcError, match="is closed"):
        ledger.pause()


def test_killed_between_and_during_pauses(path):
    """kill −9 wherever it comes: a charged label stays used, every draw is charged, and half a line is cut off."""
    rng = random.Random(5)
    for life in range(20):

        def live(seed):
            ledger = pc.Ledger(path, plan=STEP * 10_000, reserve=7)
            ledger._charged = 700
            ledger.gaussian(0.0, STEP, clip_norm=1.0, label=f"month {life}")
            ledger.gaussian(0.0, STEP, clip_norm=1.0)
            append, kill = os.write, random.Random(seed)

            def die(file, data):
                append(file, data[: kill.randrange(len(data) + 1)])
                os.kill(os.getpid(), signal.SIGKILL)

            if kill.random() < 0.8:
                os.write = die
            ledger.pause()
            return True

        seed = rng.random()
        in_child(lambda seed=seed, live=live: live(seed))
        book, _ = charged(path)
        assert list(book.labels) == [f"month {number}" for number in range(life + 1)]
        assert book.drawn[STEP] >= 2 * (life + 1)
    with pytest.raises(pc.PrivcalcError, match="'month 7': was used"):
        pc.Ledger(path, plan=STEP * 10_000, reserve=7).gaussian(0.0, STEP, clip_norm=1.0, label="month 7")
