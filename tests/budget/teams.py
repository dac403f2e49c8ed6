"""What several processes do with one budget, and what their ledgers' files say of it."""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import os
import time
from collections import Counter

import privcalc as pc
from privcalc.ledger.book import Book
from privcalc.log.file import read

STEP = pc.Gaussian(noise_multiplier=10.0)  # rho = 1/200
CAP = pc.ZCDP(0.5)  # 100 of them


def draw(ledger, times=1):
    for _ in range(times):
        ledger.gaussian([0.0], STEP, clip_norm=1.0)


def recorded(*paths):
    """Offline: what the files of ledgers say."""
    total = Counter()
    for path in paths:
        with read(path) as (lines, _):
            book = Book.read(lines)
        run = book.recorded if book.closed else book.terms.bound
        total.update(dict(run.entries))
    return dict(total)


def started(work, *arguments):
    """A fork that has imported everything; returns it, and where it writes a byte for each thing done."""
    reading, writing = os.pipe()
    worker = mp.get_context("fork").Process(target=work, args=(writing, *arguments))
    worker.start()
    os.close(writing)
    return worker, reading


def told(reading):
    """How many bytes were written, once nobody writes any more."""
    with open(reading, "rb") as file:
        return len(file.read())


def race(done, url, dataset="visits"):
    budget = pc.Budget(url, dataset=dataset)
    with contextlib.suppress(pc.BudgetExceeded):
        while budget.reserve(STEP):
            os.write(done, b".")


def work(done, url, path, dataset):
    budget = pc.Budget(url, dataset=dataset)
    with pc.Ledger(path, plan=STEP * 20, budget=budget) as ledger:
        for _ in range(12):
            draw(ledger)
            os.write(done, b".")


def killed_at_random(url, folder, kills, generator, dataset="visits"):
    """Ledgers whose processes are killed, and gone on with; returns what each is known to have drawn."""
    drawn = Counter()
    for number in range(kills):
        path = folder / f"ledger{number % 3}"
        worker, reading = started(work, url, path, dataset)
        time.sleep(generator.uniform(0.0, 0.15))
        worker.kill()
        drawn[path] += told(reading)
        worker.join(60)
    return drawn


def check_kills(budget, drawn, most):
    """Nothing is undercharged, and what closes returns the rest."""
    assert dict(budget.charged.entries).get(STEP, 0) >= sum(drawn.values())
    for path in drawn:
        if path.exists():
            with contextlib.suppress(pc.PrivcalcError):  # it is closed already
                pc.Ledger(path, plan=STEP * 20, budget=budget).close()
            budget.settle(path)
    assert dict(budget.charged.entries) == (recorded(*(path for path in drawn if path.exists())) or {})
    assert sum(drawn.values()) <= budget.charged.entries[0][1] <= most if sum(drawn.values()) else True
