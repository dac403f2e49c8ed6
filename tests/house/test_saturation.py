"""Nothing saturates on the unsafe side: every cap at a number, and all that swallows NaN, is listed with its reason.

A cost that is capped, a bound whose overflow is cut off or a NaN that is replaced makes a claim smaller than it is,
silently. The list is ``saturations.txt``, by function and expression, so that moved lines and moved files leave it as
it is. A minimum with 0 or 1, the ends of probabilities, or of several bounds needs no reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import learners
import privcalc

LIST = Path(__file__).with_name("saturations.txt")
ALWAYS = {"clip", "clamp", "clamp_", "nan_to_num", "nan_to_num_", "fmin", "fmax", "nanmin", "nanmax", "nansum"}
AT_A_NUMBER = {"min", "minimum", "clamp_max", "clamp_max_"}


def _number(node: ast.expr) -> float | None:
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        sign, node = -1, node.operand
    return sign * node.value if isinstance(node, ast.Constant) and type(node.value) in (int, float) else None


def saturating(node: ast.AST, where: str = "") -> Iterator[str]:
    """ "function: expression" of each use."""
    for child in ast.iter_child_nodes(node):
        named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        inner = f"{where}.{child.name}".strip(".") if named else where
        if isinstance(child, ast.Call):
            function = child.func
            name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
            ends = [
                _number(end)
                for end in (*child.args, *(word.value for word in child.keywords if word.arg in {"max", "a_max"}))
            ]
            if name in ALWAYS or (name in AT_A_NUMBER and any(end not in (None, 0, 1) for end in ends)):
                yield f"{inner or 'module'}: {ast.unparse(child)}"
        yield from saturating(child, inner)


def listed() -> dict[str, str]:
    """Each use, with its reason."""
    found, reason = dict[str, str](), ""
    for line in LIST.read_text("utf-8").splitlines()[1:]:
        if line.startswith("# "):
            reason = line[2:]
        elif line:
            assert reason
            assert line not in found, f"{line}: is listed twice"
            found[line] = reason
    return found


def test_every_saturating_operation_is_listed_with_its_reason() -> None:
    used = set[str]()
    for package in (privcalc, learners):
        for path in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            used |= set(saturating(ast.parse(path.read_text("utf-8"))))
    known = listed()
    if new := sorted(used - set(known)):
        pytest.fail(f"does it make a claim smaller? if not, say in {LIST.name} why:\n" + "\n".join(new))
    if old := sorted(set(known) - used):
        pytest.fail(f"are gone: take them out of {LIST.name}:\n" + "\n".join(old))


def test_the_search_finds_what_once_was_wrong() -> None:
    source = """
class Filter:
    def cost(self, value):
        return math.expm1(min(float(value[0]), 700.0))
def edge(x): return np.exp(np.minimum(x, 700.0)) + x.clip(0, 1) + min(x, 1.0) + min(x, y) + torch.clamp(x, max=3.0)
"""
    assert list(saturating(ast.parse(source))) == [
        "Filter.cost: min(float(value[0]), 700.0)",
        "edge: np.minimum(x, 700.0)",
        "edge: x.clip(0, 1)",
        "edge: torch.clamp(x, max=3.0)",
    ]
