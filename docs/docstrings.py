"""How docstrings become reference pages: what griffe, which reads them for mkdocstrings, is told about ours."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^( *)Example:$", re.MULTILINE)
ROLE = re.compile(r":(?:class|func|meth|mod|attr):`~?([\w.]+)`")


class Docstrings(Extension):
    """One example is a section like several; roles (``:class:`X```) link to the reference."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite a docstring before it is parsed."""
        if obj.docstring:
            text = EXAMPLE.sub(r"\1Examples:", obj.docstring.value)
            obj.docstring.value = ROLE.sub(
                r'<autoref optional identifier="privcalc.\1"><code>\1</code></autoref>', text
            )
