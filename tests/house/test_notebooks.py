"""The notebooks run, and what is printed in them is what they print."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))


def printed(cells: list[dict[str, Any]]) -> list[str]:
    """Values and lines that do not depend on random numbers: every word of a line but those after a percentage."""
    outputs = [output for cell in cells if cell["cell_type"] == "code" for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    texts = ["".join(output.get("text", output.get("data", {}).get("text/plain", ""))) for output in outputs]
    return [re.sub(r"^\d+%", "some", text) for text in texts]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_for_readers(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert printed(cells)
    code = [line for cell in cells if cell["cell_type"] == "code" for line in "".join(cell["source"]).splitlines()]
    assert max(map(len, code)) <= 95


@pytest.mark.service
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path) -> None:
    nbformat, client = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("sklearn")
    notebook = nbformat.read(path, as_version=4)
    before = printed(notebook.cells)
    client.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    assert printed(notebook.cells) == before
