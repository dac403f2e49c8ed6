"""Certificates checked where nothing is but python-flint: the same is said as by ``verify``."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import cases
import flint
import pytest

import privcalc as pc
from docs.verifier.room import room
from privcalc.certificate.schema import digest
from privcalc.certificate.text import facts
from privcalc.cli import main

FIXTURES = Path(__file__).parents[1] / "fixtures"
SLOW = {"batches"}  # a minute and more, to no avail
if not cases.SLOW:
    SLOW |= {"mixed", "noises", "open", "sampled", "torn"}
KEPT = sorted(p for p in FIXTURES.rglob("*.cert.json") if p.name.partition(".")[0] not in SLOW)

ALONE = """
import json, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in sys.stdlib_module_names | {"flint", "privcalc"}:
            raise ImportError("BLOCKED " + name)

sys.meta_path.insert(0, Refuse())
sys.path[:0] = ["."]
sys.path.append(sys.argv[1])
from privcalc.certificate.alone import confirm, enter
enter(json.load(open("mechanisms.json")))
for text, ledgers in json.load(sys.stdin):
    print(confirm(text, ledgers, 20.0, lambda line: None), flush=True)
"""


@pytest.fixture(autouse=True)
def checks() -> None:
    """Every claim is proved here."""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """Asks the room, copied to where nothing else of the library is."""
    folder = tmp_path_factory.mktemp("room")
    for name, text in room().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    site = str(Path(flint.__file__).parents[1])

    def ask(*questions: tuple[str, list[str]]) -> list[dict[str, object]]:
        command = [sys.executable, "-S", "-P", "-c", ALONE, site]
        given = json.dumps(questions).encode()
        done = subprocess.run(command, cwd=folder, env={}, input=given, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return [json.loads(line) for line in done.stdout.splitlines()]

    return ask


def first_line(document: dict[str, object], folder: Path) -> str:
    """What ``privcalc verify`` prints first."""
    (path := folder / "some.cert.json").write_text(json.dumps(document))
    with contextlib.redirect_stdout(io.StringIO()) as out:
        main(["verify", str(path), "--seconds", "inf"])
    return out.getvalue().partition("\n")[0]


def test_it_says_the_same_as_verify(alone, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """The same sentence, word by word: of every format, forged ones among them."""
    texts = [*(path.read_text() for path in KEPT), *map(json.dumps, FORGED.values())]
    answers = alone(*((text, []) for text in texts))
    found = [each["lines"][0] for each in answers]
    assert found == [first_line(json.loads(text), tmp_path) for text in texts]
    assert sum(line.startswith("VERIFIED: ") for line in found) > 20
    for text, each in zip(texts, answers, strict=True):  # runs are shown by the calls that JSON names
        said, right = (
            [fact for fact in found if not fact[1]] for found in (each.get("facts", []), facts(json.loads(text)))
        )
        assert said in ([], [list(fact) for fact in right])


def _with(path: str, **changed: object) -> dict[str, object]:
    document = {**json.loads((FIXTURES / path).read_text()), **changed}
    return {**document, "hash": digest(document)}


def _lower(document: dict[str, object], factor: float) -> dict[str, object]:
    claim = document["guarantee"]
    epsilon = {**claim["epsilon"], "upper": claim["epsilon"]["upper"] * factor, "lower": 0.0}  # type: ignore[index]
    new = {**document, "guarantee": {**claim, "epsilon": epsilon}}  # type: ignore[dict-item]
    return {**new, "hash": digest(new)}


NEW = pc.certify(pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 200, delta=1e-5).document
LISTED = {**NEW["assumptions"], "needed": NEW["assumptions"]["needed"][:-1]}
FORGED = {
    "text": {**NEW, "unit": "one person"},
    "number": _lower(NEW, 0.9),
    "run": {**(new := {**NEW, "run": [{**NEW["run"][0], "count": 100}]}), "hash": digest(new)},
    "assumptions": {**(new := {**NEW, "assumptions": LISTED}), "hash": digest(new)},
    "pages": {**(new := {**NEW, "proofs": NEW["proofs"][1:]}), "hash": digest(new)},
    "part": _lower(_with("version3/composed.cert.json"), 0.5),
    "recorded": _with("version3/recorded.cert.json", recorded=[]),
    "status": _with("version3/plan.cert.json", status="open", stopping="output-independent"),
}


def test_what_was_forged_is_wrong(alone) -> None:  # type: ignore[no-untyped-def]
    found = alone(*((json.dumps(each), []) for each in FORGED.values()))
    assert {each["status"] for each in found} == {"wrong"}


def _met(epsilon: float) -> dict[str, object]:
    """A plan whose target is this ε at δ = 1e-5; it has 1.3022."""
    document = json.loads((FIXTURES / "version3/plan.cert.json").read_text())
    document["target"] = {"epsilon": epsilon, "delta": 1e-5}
    return {**document, "hash": digest(document)}


def test_advantage_and_target_are_claims_of_delta(alone) -> None:  # type: ignore[no-untyped-def]
    """δ(0), and δ at the target's ε: proved here as well; what is too small is refuted."""
    wide = NEW["advantage"]
    less = {**NEW, "advantage": {**wide, "lower": 0.0, "upper": wide["upper"] * 0.99}}
    documents = [NEW, {**less, "hash": digest(less)}, _met(1.31), _met(1.3)]
    found = alone(*((json.dumps(each), []) for each in documents))
    assert [each["status"] for each in found] == ["verified", "wrong", "verified", "wrong"]
    said = f"the advantage is at most {pc.enclosure.upward(wide['upper'], '.9g')}"
    assert f"{said}: proved in ball arithmetic" in found[0]["lines"]
    assert found[1]["lines"][0].startswith("WRONG: the advantage is at most")
    assert "the target (1.31, 1e-05)-DP under add-or-remove-one is met: proved in ball arithmetic" in found[2]["lines"]
    assert found[3]["lines"][0].startswith("WRONG: the target (1.3, 1e-05)-DP")


def test_ledgers(alone) -> None:  # type: ignore[no-untyped-def]
    """The one that is named, whole; and none other."""
    text, other = (FIXTURES / f"version3/{name}.cert.json" for name in ("plan", "recorded"))
    ledger = (FIXTURES / "version3/plan.jsonl").read_text()
    cut = ledger.rpartition("\n")[0].rpartition("\n")[0] + "\n"
    asked = [(text, ledger), (other, ledger), (text, cut), (text, ledger.replace('"count":1', '"count":2', 1))]
    found = alone(*((path.read_text(), [lines]) for path, lines in asked))
    assert [each["status"] for each in found] == ["verified", "wrong", "wrong", "wrong"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "[" * 10**6, '{"a":' * 100 + "1" + "}" * 100, '{"format": NaN}', '{"a": ' + "9" * 10**6 + "}"],
    ids=lambda text: text[:10],
)
def test_what_is_none(alone, text: str) -> None:  # type: ignore[no-untyped-def]
    (found,) = alone((text, []))
    assert found["status"] == "unreadable"


def test_nothing_of_it_is_larger_than_it_must_be() -> None:
    """Nothing that computes or that ledgers need; whoever reads it all has these files and lines to read."""
    files = {name: text for name, text in room().items() if name.endswith(".py")}
    others = ("numerics", "composition", "pairs/", "/mechanisms/", "ledger/terms", "digests", "story", "verify.py")
    assert not [name for name in files if any(part in name for part in others) and "rigorous" not in name]
    assert len(files) <= 33
    assert sum(len(text.splitlines()) for text in files.values()) <= 8050


def test_the_documentation_says_its_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And links the page that was built beside it; neither where none was."""
    hooks = pytest.importorskip("docs.hooks")
    text = (hooks.ROOT / "docs/guides/read.md").read_text()
    page = SimpleNamespace(file=SimpleNamespace(src_uri="guides/read.md"), meta={})
    monkeypatch.setattr(hooks, "VERIFIER", tmp_path)
    assert "SHA-256" not in hooks.on_page_markdown(text, page)
    (tmp_path / "SHA256SUMS").write_text(f"{'ab' * 32}  verify.html\n")
    found = hooks.on_page_markdown(text, page)
    assert f"SHA-256 `{'ab' * 32}`" in found
    assert "[verify.html](../verify.html)" in found
