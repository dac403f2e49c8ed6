"""Both columns of the pages for those who come from another package say what is printed beside them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGES = sorted((Path(__file__).parents[2] / "docs" / "coming").glob("*.md"))


def same(value: Any, printed: str) -> bool:
    """Whether the printed number is the value to all its digits; other values are printed as they are."""
    try:
        digits = len(printed.partition(".")[2])
        return abs(float(value) - float(printed)) <= 0.51 * 10.0**-digits
    except (TypeError, ValueError):
        return str(value) == printed


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_both_columns(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    source = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert source
    packages = set(re.findall(r"^(?:import|from) (\w+)", source[1], re.MULTILINE)) - {"privcalc"}
    for package in packages:
        pytest.importorskip(package)
    exec(source[1], names)
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in text.splitlines() if line.startswith("| ")]
    asked = [row for row in rows if row[0] not in ("question", "---")]
    assert len(asked) >= 10
    for question, theirs, they_say, ours, we_say in asked:
        for code, said in ((theirs, they_say), (ours, we_say)):
            if said:
                assert same(value := eval(code.strip("`"), names), said), (question, code, value)
