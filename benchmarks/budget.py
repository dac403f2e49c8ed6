"""``python -m benchmarks.budget``: 100 ledgers, 10⁵ charges, 8 processes on one budget; writes ``results/budget.md``.

It is an SQLite file in a folder of its own and a PostgreSQL server, which is started for it, or that of ``--url``.
Nearly all of the time is waiting for disks: a ledger of 1,000 charges writes and anchors 330 blocks, each synced twice.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing as mp
import os
import secrets
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import privcalc as pc
from benchmarks.postgresql import Server
from privcalc.files import write_whole
from privcalc.ledger.book import Book
from privcalc.log.file import read
from privcalc.terminal import command

CHARGES, PROCESSES, DIRECT = 1000, 8, 25
SIGMAS = (200.0, 300.0, 400.0, 500.0)
TARGET = Path(__file__).parents[1] / "results" / "budget.md"


def ledgers(url: str, dataset: str, folder: str, own: list[int], done: mp.Queue[tuple[int, float, float]]) -> None:
    """What one process does: ledgers one after another, each of which draws its whole plan but for the last tenth."""
    opening, drawing = 0.0, 0.0
    budget = pc.Budget(url, dataset=dataset)
    for number in own:
        step, start = pc.Gaussian(SIGMAS[number % len(SIGMAS)]), time.perf_counter()
        with pc.Ledger(Path(folder) / str(number), plan=step * (CHARGES + CHARGES // 10), budget=budget) as ledger:
            opening += time.perf_counter() - start
            start = time.perf_counter()
            for _ in range(CHARGES):
                ledger.gaussian([0.0], step, clip_norm=1.0)
            drawing += time.perf_counter() - start
    done.put((len(own), opening, drawing))


def directly(url: str, dataset: str, times: int, done: mp.Queue[tuple[int, float, float]]) -> None:
    """Charges without ledgers."""
    budget, start = pc.Budget(url, dataset=dataset), time.perf_counter()
    for number in range(times):
        budget.reserve(pc.Gaussian(SIGMAS[number % len(SIGMAS)]))
    done.put((times, 0.0, time.perf_counter() - start))


def together(work: object, arguments: list[tuple[object, ...]]) -> tuple[float, list[tuple[int, float, float]]]:
    """Seconds from start to end, and what each process says."""
    context = mp.get_context("spawn")
    done: mp.Queue[tuple[int, float, float]] = context.Queue()
    workers = [context.Process(target=work, args=(*each, done)) for each in arguments]  # type: ignore[arg-type]
    start = time.perf_counter()
    for worker in workers:
        worker.start()
    found = [done.get() for _ in workers]
    for worker in workers:
        worker.join()
    return time.perf_counter() - start, found


def measured(url: str, number_of_ledgers: int) -> list[tuple[str, str]]:
    """The rows for one store, checked against the ledgers' files."""
    dataset = f"benchmark {secrets.token_hex(4)}"
    budget = pc.Budget.create(url, dataset=dataset, cap=pc.ZCDP(10.0))
    with tempfile.TemporaryDirectory() as folder:
        shares = [(url, dataset, folder, list(range(number_of_ledgers))[i::PROCESSES]) for i in range(PROCESSES)]
        wall, found = together(ledgers, shares)  # type: ignore[arg-type]
        total: Counter[pc.Mechanism] = Counter()
        for number in range(number_of_ledgers):
            with read(Path(folder) / str(number)) as (lines, _):
                total.update(dict(Book.read(lines).recorded.entries))
    assert dict(budget.charged.entries) == dict(total), "the budget and its ledgers differ"
    start = time.perf_counter()
    odometer = budget.odometer(delta=1e-6)
    asked = time.perf_counter() - start
    direct, _ = together(directly, [(url, dataset, DIRECT) for _ in range(PROCESSES)])
    start = time.perf_counter()
    length, _ = pc.Budget(url, dataset=dataset).head
    reading = time.perf_counter() - start
    charges = number_of_ledgers * CHARGES
    opening = sum(each[1] for each in found) / number_of_ledgers
    return [
        (
            f"{number_of_ledgers} ledgers, {charges:,} charges, {PROCESSES} processes",
            f"{wall:.0f} s, {charges / wall:,.0f} charges a second",
        ),
        ("a ledger: open and reserve", f"{1000 * opening:.0f} ms"),
        ("a charge, draw and all, in one process", f"{1e6 * sum(each[2] for each in found) / charges:.0f} µs"),
        (
            f"{DIRECT * PROCESSES:,} charges by hand, {PROCESSES} processes",
            f"{direct:.0f} s, {DIRECT * PROCESSES / direct:,.0f} a second",
        ),
        (f"read and verify a history of {length:,} lines", f"{reading:.2f} s"),
        ("odometer", f"{1000 * asked:.0f} ms: ε in [{odometer.lower:.4f}, {odometer.upper:.4f}] at δ = 1e-6"),
    ]


@command("python -m benchmarks.budget")
def main() -> int:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.budget", description="Budgets under load.")
    parser.add_argument("--url", help="a PostgreSQL server, instead of one that is started here")
    parser.add_argument("--ledgers", type=int, default=100)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tables, start = {}, time.perf_counter()
        with contextlib.ExitStack() as stack:
            url = args.url or stack.enter_context(contextlib.closing(Server())).url
            tables["PostgreSQL, on the same machine"] = measured(url, args.ledgers)
        tables["SQLite"] = measured(f"{folder}/budget.db", args.ledgers)
        took = time.perf_counter() - start
    text = [
        "# Budgets under load",
        "",
        f"`python -m benchmarks.budget --ledgers {args.ledgers}`, {mp.cpu_count()} cores, load "
        f"{os.getloadavg()[1]:.0f} (with",
        f"{PROCESSES} processes of its own), {took / 60:.1f} minutes. "
        "Every line of every ledger is synced to its file and",
        "anchored in the store before it is drawn on; afterwards the budget says exactly what the ledgers' files say.",
    ]
    for name, rows in tables.items():
        text += [
            "",
            f"## {name}",
            "",
            "| what | figure |",
            "|---|---|",
            *(f"| {what} | {figure} |" for what, figure in rows),
        ]
    write_whole(TARGET, "\n".join(text) + "\n")
    print("\n".join(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
