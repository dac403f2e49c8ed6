"""Questions to a table beside the engine's own plain group-by: ``python -m benchmarks.tables --rows 10000000``.

Each line is of one engine: seconds of the plain group-by of sums and counts, of ``ledger.sum`` with ``person`` and with
the caller's word, their ratios, and the most memory of the process.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import privcalc as pc

SHOPS = ["North", "South", "East", "West"]


def written(folder: Path, rows: int, persons: int) -> str:
    """A Parquet file of visits, in pieces of a million rows."""
    import polars as pl

    rng, size = np.random.default_rng(0), 1_000_000
    for part in range(-(-rows // size)):
        pl.DataFrame(
            {
                "visit": np.arange(part * size, min((part + 1) * size, rows)),
                "customer": rng.integers(0, persons, min(size, rows - part * size)),
                "shop": rng.integers(0, len(SHOPS), min(size, rows - part * size)),
                "spent": rng.exponential(30.0, min(size, rows - part * size)),
            }
        ).with_columns(pl.col("shop").replace_strict(dict(enumerate(SHOPS)))).write_parquet(folder / f"{part}.parquet")
    return f"{folder}/*.parquet"


def engines(path: str) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """For each engine the table and its plain group-by."""
    import duckdb
    import polars as pl

    query = f"select shop, sum(spent), count(*) from '{path}' group by shop"
    groups = pl.scan_parquet(path).group_by("shop").agg(pl.col("spent").sum(), pl.len())
    return {
        "duckdb": (lambda: duckdb.read_parquet(path), lambda: duckdb.execute(query).fetchall()),
        "polars lazy": (lambda: pl.scan_parquet(path), lambda: groups.collect(engine="streaming")),
    }


def seconds(ask: Callable[[], Any]) -> float:
    """Of one call."""
    start = time.perf_counter()
    ask()
    return time.perf_counter() - start


def asked(table: Any, persons: dict[str, Any]) -> float:
    """Seconds of a question, the second time that it is asked."""
    noise = pc.Gaussian(20.0)
    options: dict[str, Any] = {"column": "spent", "lower": 0, "upper": 200, "by": "shop", "groups": SHOPS}
    with pc.Ledger(None, plan=noise * 2) as ledger:
        return [seconds(lambda: ledger.sum(table, noise, rows_per_person=4, **options, **persons)) for _ in range(2)][1]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--persons", type=int, default=1_000_000)
    parser.add_argument("--engine", action="append")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), given.rows, given.persons)
        print("| engine | plain group-by, s | caller's word | with `person` | most memory, GB |\n|---|---|---|---|---|")
        for name, (table, plain) in engines(path).items():
            if given.engine and name not in given.engine:
                continue
            base = min(seconds(plain) for _ in range(3))
            word = asked(table(), {"person": None})
            known = asked(table(), {"person": "customer", "order": "visit"})
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            print(f"| {name} | {base:.2f} | × {word / base:.1f} | × {known / base:.1f} | {memory:.1f} |")


if __name__ == "__main__":
    main()
