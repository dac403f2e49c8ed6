"""The page in headless Chromium: it says what ``verify`` does, runs nothing of a text, and asks for nothing."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from test_room import FIXTURES, FORGED, NEW, checks, first_line

import privcalc as pc
from docs.verifier.__main__ import main
from privcalc.certificate.schema import digest
from privcalc.cli import main as command

__all__ = ["checks"]

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]
INJECTIONS = (
    '<img src=x onerror="window.ran=1">',
    "</script><script>window.ran=1</script>",
    "javascript:window.ran=1",
    "${window.ran=1}",
    "<svg onload=window.ran=1><a href='https://example.com/'>",
)


KINDS = (
    *("0.1.0/answers", "0.1.0/cap-zcdp", "0.1.0/composed", "0.1.0/described", "0.1.0/noises", "0.1.0/parts"),
    *("0.1.0/recorded", "0.1.0/seeded", "version3/cap", "version3/composed", "version3/gates", "version3/mixed"),
)


class Asked:
    """A page, and every address it asked for."""

    def __init__(self, page: Any, address: str) -> None:
        self.page, self.address, self.requests, self.problems = page, address, list[str](), list[str]()
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.goto(address)

    def check(self, *paths: Path, seconds: int = 20) -> str:
        self.page.click("#clear")
        self.page.fill("#seconds", str(seconds))
        self.page.set_input_files("#file", [str(path) for path in paths])
        self.page.wait_for_selector(f"#given li:nth-child({len(paths)})")
        self.page.click("#start")
        if self.page.inner_text("#progress").startswith("No certificate"):
            return "NOTHING"
        self.page.wait_for_selector("#answer:not([hidden])", timeout=240_000)
        return str(self.page.inner_text("#verdict"))


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None or shutil.which("npm") is None:
        pytest.skip("there is no Chromium, or no npm")
    playwright = pytest.importorskip("playwright.sync_api")
    folder = tmp_path_factory.mktemp("verifier")
    main(str(folder), str(ROOT / "build/verifier"))
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        yield Asked(chromium.new_page(), (folder / "verify.html").as_uri())
        chromium.close()


def _saved(folder: Path, document: dict[str, Any]) -> Path:
    path = folder / "some.cert.json"
    path.write_text(json.dumps(document))
    return path


def test_it_is_the_same_to_the_byte(asked: Asked, tmp_path: Path) -> None:
    """Built in another folder, by another process, whose hashes have another seed."""
    command = [sys.executable, "-m", "docs.verifier", str(tmp_path), "build/verifier"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "7"}, check=True)
    first = Path(urlsplit(asked.page.url).path)
    assert (tmp_path / "verify.html").read_bytes() == first.read_bytes()
    assert (tmp_path / "SHA256SUMS").read_text() == first.with_name("SHA256SUMS").read_text()


def test_it_says_the_same_as_verify(asked: Asked, tmp_path: Path) -> None:
    """The same sentence, word by word: of every format and basis; forged ones among them."""
    kept = [json.loads((FIXTURES / f"{name}.cert.json").read_text()) for name in KINDS]
    documents = [*kept, NEW, *FORGED.values()]
    assert len(documents) > 20
    for document in documents:
        assert asked.check(_saved(tmp_path, document)) == first_line(document, tmp_path), document["run"]
    assert asked.problems == []
    assert {address.partition(":")[0] for address in asked.requests} <= {"file", "blob"}
    assert sum(address.startswith("file") for address in asked.requests) == 1


def test_signatures_and_ledgers(asked: Asked, tmp_path: Path) -> None:
    from privcalc.signatures import generate, sign

    ledger = pc.Ledger(tmp_path / "run.jsonl", plan=pc.Gaussian(4.0) * 2)
    ledger.record(pc.Gaussian(4.0))
    ledger.close()
    cert, key, other = tmp_path / "c.json", generate(tmp_path / "key"), generate(tmp_path / "other")
    pc.certify(tmp_path / "run.jsonl", delta=1e-5).save(cert)
    sign(cert, tmp_path / "key").save(tmp_path / "c.sig")
    found = asked.check(cert, tmp_path / "c.sig", key, tmp_path / "run.jsonl")
    assert found.startswith("VERIFIED")
    lines = asked.page.inner_text("#lines")
    assert "signed, with the key that was given" in lines
    assert "the ledger is whole" in lines
    assert asked.check(cert, tmp_path / "c.sig", other).startswith("WRONG: the signature is of another key")
    said = json.loads((tmp_path / "c.sig").read_text())
    (tmp_path / "d.sig").write_text(json.dumps({**said, "time": "2020-01-01T00:00:00+00:00"}))
    assert asked.check(cert, tmp_path / "d.sig", key).startswith("WRONG: the signature is wrong")
    pc.certify(pc.Gaussian(9.0), delta=1e-5).save(tmp_path / "e.json")
    assert asked.check(tmp_path / "e.json", tmp_path / "c.sig", key).startswith("WRONG: the signature is of another")


def test_revocations(asked: Asked, tmp_path: Path) -> None:
    """As of ``verify``: a key tells whose word counts, and a list that cannot be read is none that is empty."""
    from privcalc.signatures import generate

    cert, key, other = tmp_path / "c.json", generate(tmp_path / "key"), generate(tmp_path / "other")
    pc.certify(pc.Gaussian(9.0), delta=1e-5).save(cert)
    command(["revoke", str(cert), "--key", str(tmp_path / "key"), "--reason", "<b>a slip"])
    revocations = tmp_path / "revocations.json"
    assert asked.check(cert, revocations).startswith("WRONG: REVOKED: the certificate ")
    assert asked.check(cert, revocations, key).endswith("…: <b>a slip")
    assert asked.check(cert, revocations, other).startswith("VERIFIED: ")
    assert "another key than the one given says that it is revoked" in asked.page.inner_text("#lines")
    said = revocations.read_text()
    revocations.write_text(said.replace("a slip", "a trip"))
    assert asked.check(cert, revocations, key).startswith("WRONG: REVOKED, by a statement of which this is wrong")
    revocations.write_text(said.replace("reason", "cause"))
    assert asked.check(cert, revocations).startswith("WRONG: the list of revocations cannot be read")


def test_hostile_texts(asked: Asked, tmp_path: Path) -> None:
    """Nothing of them runs, or is more than text; nothing hangs."""
    texts = [INJECTIONS[n % len(INJECTIONS)] + str(n) for n in range(10_000)]
    document = {**NEW, "not_accounted": texts, "unit": INJECTIONS[0], "public": {INJECTIONS[1]: INJECTIONS[2]}}
    assert asked.check(_saved(tmp_path, {**document, "hash": digest(document)})).startswith("VERIFIED: ")
    assert texts[-1] in asked.page.inner_text("#facts")
    assert asked.page.locator("main :is(img, script, a, svg svg, [onload])").count() == 0
    huge = {**NEW, "run": [{**NEW["run"][0], "count": 10**400}]}
    for text in (
        "[" * 10**6,
        '{"a":' * 10**5,
        '{"format":"privcalc certificate","version":4,"a":' + "9" * 10**6 + "}",
        json.dumps({**huge, "hash": digest(huge)}),
        INJECTIONS[1],
    ):
        (tmp_path / "text").write_text(text)
        assert not asked.check(tmp_path / "text").startswith(("VERIFIED", "NOTHING"))
    (tmp_path / "large").write_text(" " * 50_000_000)
    assert asked.check(tmp_path / "large") == "NOTHING"
    assert asked.page.evaluate("window.ran") is None
    assert asked.problems == []


def test_what_takes_too_long_is_ended(asked: Asked, tmp_path: Path) -> None:
    """By the clock, and by whoever looks on."""
    page = asked.page.context.browser.new_page()
    page.clock.install()
    page.goto(asked.address)
    for ended in ("by the clock", "by hand"):
        page.click("#clear")
        page.set_input_files("#file", str(_saved(tmp_path, dict(NEW))))
        page.wait_for_selector("#given li")
        page.click("#start")
        page.wait_for_selector("#progress:has-text('starting Python')")
        if ended == "by hand":
            page.click("#stop")
        else:
            page.clock.fast_forward(91_000)
        page.wait_for_selector("#answer:not([hidden])")
        assert page.inner_text("#verdict").startswith("UNDECIDED: ")
        assert page.evaluate("worker === null")
    page.close()


TRIES = """async () => {
    await fetch("/fetch").catch(() => 0);
    const image = new Image();
    await new Promise((done) => { image.onload = image.onerror = done; image.src = "/image"; });
    const text = `fetch("${location.origin}/worker").catch(() => 0).then(() => postMessage(0))`;
    const made = new Worker(URL.createObjectURL(new Blob([text])));
    await new Promise((done) => { made.onmessage = made.onerror = done; });
}"""


def test_its_policy_forbids_every_request(asked: Asked, tmp_path: Path) -> None:
    """Were there a line that asked: of a server of files it gets itself alone; a page without its policy gets more."""
    heard = list[str]()

    class Files(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given, directory=str(tmp_path))

        def log_message(self, *_: object) -> None:
            heard.append(self.path)

    shutil.copy(urlsplit(asked.address).path, tmp_path)
    (tmp_path / "free.html").write_text("<!doctype html><link rel=icon href=data:,>")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = asked.page.context.browser.new_page()
        for name in ("verify.html", "free.html"):
            page.goto(f"http://127.0.0.1:{server.server_port}/{name}")
            page.evaluate(TRIES)
        page.close()
        server.shutdown()
    asked_for = list(dict.fromkeys(path for path in heard if path != "/favicon.ico"))
    assert asked_for == ["/verify.html", "/free.html", "/fetch", "/image", "/worker"]


@pytest.mark.parametrize("width", [380, 1200])
def test_it_fits_its_window(asked: Asked, tmp_path: Path, width: int) -> None:
    asked.page.set_viewport_size({"width": width, "height": 900})
    assert asked.check(_saved(tmp_path, dict(NEW))).startswith("VERIFIED")
    assert asked.page.evaluate("document.documentElement.scrollWidth") <= width
