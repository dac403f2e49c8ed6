"""The frame of our web pages: their head, and words in them: escaped, printable, and nothing is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from html import escape
from importlib.resources import files
from string import Template

from privcalc.certificate.text import plain

__all__ = ["clean", "template", "warned"]


@cache
def template(name: str) -> Template:
    """A page of ``pages/``, after the lines that all of them begin with, which ask for ``kind`` and ``title``."""
    folder = files(__package__) / "pages"
    return Template("".join((folder / f"{part}.html").read_text(encoding="utf-8") for part in ("head", name)))


def clean(value: object) -> str:
    """Words for a page, on one line."""
    return escape(plain(str(value)))


def warned(lines: Iterable[str]) -> str:
    """What must be read before anything else."""
    return "\n".join(f'<p class="warning">{clean(line)}</p>' for line in lines)
