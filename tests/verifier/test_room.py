"""Certificates checked where nothing is but python-flint: the same is said as by ``verify``."""

from __future__ import annotations

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


def verdict(document: dict[str, object]) -> str:
    """What ``verify`` says."""
    try:
        return pc.Certificate(document).verify(seconds=60)[0].partition(":")[0].lower()
    except pc.Contradiction:
        return "wrong"
    except pc.NotConfirmed:
        return "undecided"


def test_it_says_the_same_as_verify(alone) -> None:  # type: ignore[no-untyped-def]
    texts = [path.read_text() for path in KEPT]
    found = [each["status"] for each in alone(*((text, []) for text in texts))]
    assert found == [verdict(json.loads(text)) for text in texts]
    assert found.count("verified") > 20


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
    assert {verdict(each) for each in FORGED.values()} == {"wrong"}


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
    """Only what is asked for, and nothing that computes."""
    names = set(room())
    assert not any(
        part in name for name in names for part in ("numerics", "composition", "pairs/", "/mechanisms/gauss")
    )


def test_the_documentation_says_its_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the page which was built beside it, and none where none was."""
    hooks = pytest.importorskip("docs.hooks")
    text, page = (
        (hooks.ROOT / "docs/guides/read.md").read_text(),
        SimpleNamespace(file=SimpleNamespace(src_uri="a.md"), meta={}),
    )
    monkeypatch.setattr(hooks, "VERIFIER", tmp_path)
    assert "SHA-256" not in hooks.on_page_markdown(text, page)
    (tmp_path / "SHA256SUMS").write_text(f"{'ab' * 32}  verify.html\n")
    assert f"SHA-256 `{'ab' * 32}`" in hooks.on_page_markdown(text, page)
