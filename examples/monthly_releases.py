"""Release every month: counts, sums, a mean and a choice from a table of customers, all of a year in one ledger."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import privcalc as pc
from privcalc.ledger import Answer

NOISE = pc.Gaussian(noise_multiplier=20.0)
CHOICE = pc.ExponentialMechanism(epsilon=0.05, monotone=False)
YEAR = (NOISE * 3 + CHOICE) * 12
SHOPS = ["North", "South"]
PEOPLE: dict[str, Any] = {"person": "customer", "rows_per_person": 4}


def release(path: Path, month: str, visits: Any) -> list[Answer]:
    """One month's answers from a data frame, or a dictionary of columns; the same month a second time is refused."""
    with pc.Ledger(path, plan=YEAR, unit="one customer") as ledger:
        answers = [
            ledger.count(visits, NOISE, by="shop", groups=SHOPS, label=f"{month} visits", **PEOPLE),
            ledger.sum(visits, NOISE, column="spent", lower=0, upper=200, label=f"{month} turnover", **PEOPLE),
            ledger.mean(visits, NOISE, column="spent", lower=0, upper=200, label=f"{month} basket", **PEOPLE),
            ledger.quantile(
                visits, CHOICE, column="age", share=0.5, candidates=range(18, 100), label=f"{month} age", **PEOPLE
            ),
        ]
        ledger.pause()  # not the end: next month the same call goes on
    return answers


def made_up(seed: int, size: int = 20_000) -> dict[str, Any]:
    """A month of visits."""
    rng = np.random.default_rng(seed)
    customer = rng.integers(0, 8_000, size)
    return {
        "customer": customer,
        "shop": rng.choice(SHOPS, size),
        "spent": rng.exponential(30.0, size),
        "age": 18 + customer % 70,
    }


def main(folder: Path) -> tuple[list[list[Answer]], pc.Certificate]:
    """Three months, and the certificate of the whole year, which holds from the first month on."""
    path = folder / "year.jsonl"
    answers = [release(path, f"2026-{month:02}", made_up(month)) for month in (1, 2, 3)]
    return answers, pc.certify(path, delta=1e-6)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        found, certificate = main(Path(name))
        print("\n".join(str(answer) for month in found for answer in month), certificate, sep="\n\n")
