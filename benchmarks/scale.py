"""Audits of ten million records and tables of many runs, as a user asks for them: by the command, on each engine.

    python -m benchmarks.scale                              the table; --records, --lines N; --rate Q (Poisson samples)
    python -m benchmarks.scale --out results/scale.json     keep it, with a page beside it

Seconds are those of the clock; processor seconds are of all processes together. Norms are log-normal with decaying
scale, clipped at 1, in one file, sorted by step and record. Bytes are compared by their digests.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import privcalc as pc
from privcalc.errors import PrivcalcError
from privcalc.files import write_whole
from privcalc.parts import extra
from privcalc.terminal import command

ENGINES = {"local": [], "processes": ["--workers", "2"], "dask": ["--workers", "2"]}
CHUNK = 1 << 20
DELTA = 1e-8

Json = dict[str, Any]


def norms(path: Path, records: int, steps: int) -> None:
    """Write the file, a row group at a time."""
    arrow, parquet = extra("pyarrow", "audit"), extra("pyarrow.parquet", "audit")
    schema = arrow.schema([("record", arrow.int64()), ("step", arrow.int32()), ("norm_ratio", arrow.float32())])
    how = {"use_dictionary": ["step"], "column_encoding": {"record": "DELTA_BINARY_PACKED", "norm_ratio": "PLAIN"}}
    with parquet.ParquetWriter(path, schema, compression="zstd", **how) as file:
        for step in range(steps):
            for start in range(0, records, CHUNK):
                n = min(CHUNK, records - start)
                scale = np.exp(np.random.default_rng([0, start]).normal(-1.0, 0.8, n)) * (1.2 - 0.6 * step / steps)
                own = np.minimum(1.0, scale * np.exp(0.3 * np.random.default_rng([start, step + 1]).standard_normal(n)))
                columns = [np.arange(start, start + n), np.full(n, step, dtype=np.int32), own.astype(np.float32)]
                file.write_table(arrow.table(columns, schema=schema), row_group_size=CHUNK)


def lines(path: Path, count: int) -> None:
    """A table of runs, a fifth of them twice."""
    rng = np.random.default_rng(0)
    noise, rate = rng.uniform(0.7, 5.0, count).round(3), 10.0 ** rng.uniform(-3, -1, count).round(3)
    steps, delta = rng.integers(100, 20_000, count), 10.0 ** -rng.integers(5, 10, count)
    rows = list(zip(noise.tolist(), rate.tolist(), steps.tolist(), delta.tolist(), strict=True))
    rows[-(count // 5) :] = rows[: count // 5]
    text = "\n".join(",".join(map(repr, row)) for row in rows)
    write_whole(path, f"noise_multiplier,sample_rate,steps,delta\n{text}\n")


def asked(arguments: list[str], made: Path) -> Json:
    """Seconds, megabytes and a digest of what a command of ours made."""
    start = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "privcalc", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as ran:
        told = ran.stderr.read().decode() if ran.stderr else ""
        _, status, used = os.wait4(ran.pid, 0)  # its processes, too
        ran.returncode = os.waitstatus_to_exitcode(status)
    if ran.returncode:
        raise PrivcalcError(f"arguments = {arguments}: must be answered: {told}")
    return {
        "seconds": round(time.monotonic() - start, 1),
        "processor": round(used.ru_utime + used.ru_stime, 1),
        "worker_mb": int(re.findall(r"at most (\d+) MB per worker", told)[-1]),
        "largest_mb": used.ru_maxrss // 1024,
        "sha256": hashlib.sha256(made.read_bytes()).hexdigest(),
    }


def measure(records: int, steps: int, rate: float, count: int, engines: Sequence[str]) -> list[Json]:
    """A row for each question and engine."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if records:
            norms(folder / "norms.parquet", records, steps)
        if count:
            lines(folder / "runs.csv", count)
        for engine in engines:
            where = ["--engine", engine, *ENGINES[engine]]
            out = folder / engine
            if records:
                audit = ["audit", f"{folder}/norms.parquet", "--noise-multiplier", "2", "--sample-rate", str(rate)]
                more = ["--delta", str(DELTA), "--out", str(out), *where]
                what = (
                    f"audit of {records:,} records, {steps} steps, {'full batches' if rate == 1 else f'rate {rate:g}'}"
                )
                found.append({"what": what, "engine": engine, **asked([*audit, *more], out / "epsilon.parquet")})
                print(json.dumps(found[-1]), flush=True)
            if count:
                made = folder / f"{engine}.csv"
                what = f"ε of {count:,} runs of Poisson samples"
                found.append(
                    {
                        "what": what,
                        "engine": engine,
                        **asked(["bulk", f"{folder}/runs.csv", "--out", str(made), *where], made),
                    }
                )
                print(json.dumps(found[-1]), flush=True)
    return found


def page(told: Json) -> str:
    """The rows as a table, with how they came about."""
    rows = sorted(told["rows"], key=lambda row: str(row["what"]))
    first: dict[str, str] = {}
    text = [
        "# Scale",
        "",
        "Written by `python -m benchmarks.scale --out results/scale.json`: commands as users give them, "
        "from the start of the",
        f"process to the last file; privcalc {told['privcalc']}, Python {told['python']}, NumPy {told['numpy']};",
        f"{told['cores']} cores with a load of {told['load']:.0f} from other work, "
        "so that seconds of the clock say little here.",
        "A part is 262,144 records, or 500 runs; a worker holds one, "
        "and the process that was asked all answers at the end. Two",
        "workers, where not local. The bytes are those of the file of answers.",
        "",
        "| what | engine | seconds | processor seconds | MB per worker | MB, largest process | bytes |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        numbers = " | ".join(str(row[name]) for name in ("seconds", "processor", "worker_mb", "largest_mb"))
        same = "the same" if first.setdefault(row["what"], row["sha256"]) == row["sha256"] else "**OTHERS**"
        same = f"`{row['sha256'][:12]}`" if row is next(r for r in rows if r["what"] == row["what"]) else same
        text.append(f"| {row['what']} | {row['engine']} | {numbers} | {same} |")
    return "\n".join([*text, ""])


@command("python -m benchmarks.scale")
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print, or keep."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=10_000_000, help="0: none")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rate", type=float, default=1.0)
    parser.add_argument("--lines", type=int, default=10_000, help="0: none")
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--out", type=Path, help="adds rows to this file, and writes a page beside it")
    options = parser.parse_args(arguments)
    engines = [name for name in options.engines if name != "dask" or importlib.util.find_spec("distributed")]
    rows = measure(options.records, options.steps, options.rate, options.lines, engines)
    told: Json = {
        "privcalc": pc.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }
    if options.out:
        before = json.loads(options.out.read_text(encoding="utf-8"))["rows"] if options.out.exists() else []
        new = {(row["what"], row["engine"]) for row in rows}
        told["rows"] = [row for row in before if (row["what"], row["engine"]) not in new] + rows
        write_whole(options.out, json.dumps(told, indent=1, ensure_ascii=False) + "\n")
        write_whole(options.out.with_suffix(".md"), page(told))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
