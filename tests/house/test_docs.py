"""The documentation is true: links lead somewhere, names are in the reference, tables agree with what computes them."""

from __future__ import annotations

import importlib
import json
import math
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from cases import quick

import privcalc as pc

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [*DOCS, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
ELSEWHERE = [path for folder in ("proofs", "results") for path in sorted((ROOT / folder).rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?:|#)([A-Za-z0-9_./-]+)(?:#[\w-]*)?\)")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


# --- pages ---


def test_readme_is_a_first_page() -> None:
    text = text_of("README.md")
    first, second = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)[:2]
    assert first == "pip install -c constraints.txt -e .\n"  # the accountant alone
    assert "learners.demo" in second


@pytest.mark.parametrize("path", [*PAGES, *ELSEWHERE], ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]+`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in LINK.findall(text):
        assert (path.parent / link).exists(), link


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_pages_are_for_a_clone(path: Path) -> None:
    """The package is on no index yet; and code fits its box."""
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"pip install ['\"]?privcalc", text)
    for block in re.findall(r"```\w*\n(.*?)```", text, re.DOTALL):
        assert max(map(len, block.splitlines()), default=0) <= 132


def test_every_page_is_in_the_menu() -> None:
    menu = set(re.findall(r": ([\w/-]+\.md)", text_of("mkdocs.yml")))
    assert {path.relative_to(ROOT / "docs").as_posix() for path in DOCS} <= menu


@pytest.mark.parametrize("name", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_files_that_are_named_exist(name: str) -> None:
    named = re.findall(r"`((?:[\w-]+/)*[\w-]+(?:\.py|\.md|\.json|/))`", text_of(name))
    assert named
    for path in named:
        assert any((ROOT / base / path).exists() for base in ("", "privcalc")) or Path(path).stem.endswith("NAME"), path


def test_modules_of_the_rooms_exist() -> None:
    """What stands behind the colon of a room is a list of its modules."""
    block = re.search(r"```text\nprivcalc/.*?```", text_of("docs/architecture.md"), re.DOTALL)
    assert block
    found = 0
    for room in re.split(r"\n(?=\w)", block[0]):
        name, _, rest = room.partition(" ")
        folder = ROOT / "privcalc" / name
        listed = re.sub(r"\([^)]*\)", "", rest.partition(": ")[2].partition("routes/")[0])
        for word in filter(None, listed.split(",")) if folder.is_dir() else ():
            assert any((folder / f"{word.strip()}{end}").exists() for end in (".py", "/__init__.py")), (name, word)
            found += 1
    assert found > 60


# --- the reference ---


@pytest.mark.parametrize(
    "module", ["privcalc", *(f"privcalc.{name}" for name in ("attacks", "audit", "ledger", "pictures"))]
)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    entries = [
        name for path in DOCS for name in re.findall(r"^::: ([\w.]+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert len(set(entries)) == len(entries)
    found = {id(_resolve(entry)) for entry in entries if "interop" not in entry}
    package = importlib.import_module(module)
    missing = [name for name in package.__all__ if id(getattr(package, name)) not in found]
    assert not missing, f"add '::: {module}.NAME' to a page in docs/api for {missing}"


def _resolve(entry: str) -> object:
    module, _, name = entry.rpartition(".")
    return getattr(importlib.import_module(module), name)


# --- tables ---


def rows(name: str, heading: str) -> list[list[str]]:
    """The cells of the table that begins with this heading."""
    lines = text_of(name).partition(f"| {heading} |")[2].splitlines()[2:]
    table = lines[: next(i for i, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


RELATIONS = (pc.ADD_OR_REMOVE_ONE, pc.ZERO_OUT, pc.REPLACE_ONE)


LOOPS = [(row[0], row[1], row[2:]) for row in rows("docs/samplers.md", "your loop")]
QUICK = [i for i, (_, code, _) in enumerate(LOOPS) if "WithReplacementSampled" not in code]


@pytest.mark.parametrize(
    ("loop", "code", "words"),
    quick(LOOPS, *QUICK),
)
def test_samplers(loop: str, code: str, words: list[str]) -> None:
    run = eval(code.strip("`"), {"pc": pc, "z": 1.5, "rate": 0.01, "steps": 200, "epochs": 3})
    for relation, word in zip(RELATIONS, words, strict=True):
        if word == "refused":
            with pytest.raises(pc.PrivcalcError, match="relation"):
                run.epsilon(delta=1e-5, relation=relation)
            continue
        found = run.epsilon(delta=1e-5, relation=relation)
        assert 0 < found.lower <= found.upper < math.inf
        width = found.upper / found.lower - 1
        assert word == ("exact" if width < 1e-3 else "interval"), (loop, relation, found)


def test_the_readme_quotes_the_benchmark() -> None:
    """The table of README.md is taken from the page of the benchmark."""
    found = {row[0]: row for row in rows("results/accountants.md", "accountant")}
    for name, answered, time, error, false in rows("README.md", "accountant"):
        page = found[name]
        assert answered == f"{page[2]}/{page[1]}", name
        assert (time, error) == (page[3], page[4].replace(" %", "%")), name
        assert false == re.sub(r"\*\*(\d+)\*\*.*", r"\1", page[6]), name


# --- versions, commands ---


def test_versions_agree() -> None:
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    assert project["version"] == pc.__version__
    assert f"\nversion: {pc.__version__}\n" in text_of("CITATION.cff")
    assert f"\n## {pc.__version__}" in text_of("CHANGELOG.md")
    assert "\n## Unreleased\n" in text_of("CHANGELOG.md")


def test_commands_that_moved_are_where_they_are_said_to_be() -> None:
    for old, new in rows("CHANGELOG.md", "old"):
        for command, there in ((old, False), (new, True)):
            module = ROOT.joinpath(*command.strip("`").removeprefix("python -m ").split("."))
            assert (module.with_suffix(".py").is_file() or (module / "__main__.py").is_file()) is there, command


def test_commands_on_the_pages_exist() -> None:
    for path in PAGES:
        if path.name != "CHANGELOG.md":
            for name in re.findall(
                r"python -m ((?:privcalc|learners|benchmarks|proofs)[\w.]*\w)", path.read_text(encoding="utf-8")
            ):
                module = ROOT.joinpath(*name.split("."))
                assert module.with_suffix(".py").is_file() or (module / "__main__.py").is_file(), name


# --- the site ---


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocstrings", reason="the extra 'docs' is not installed")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.mark.service
def test_the_site_asks_nothing_of_the_network(site: Path) -> None:
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=[\"']?([^\"'\s>]+)", text)
        for asset in loaded:
            assert not re.match(r"(?:https?:)?//", asset), (path.name, asset)
            local = asset.partition("?")[0].partition("#")[0]
            assert (
                local in ("", ".")
                or local.startswith("data:")
                or (path.parent / local).exists()
                or path.name == "404.html"
            ), asset
    for path in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//", path.read_text(encoding="utf-8")), path.name


@pytest.mark.service
def test_formulas_are_typeset(site: Path) -> None:
    architecture = (site / "architecture.html").read_text(encoding="utf-8")
    assert architecture.count('class="arithmatex"') > 5
    assert "assets/tex-svg.js" in architecture
    assert (site / "assets" / "tex-svg.js").stat().st_size > 1_000_000
    for path in (site / "proofs").rglob("*.html"):
        assert "$$" not in re.sub(r"<(code|pre)\b.*?</\1>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL), (
            path.name
        )


@pytest.mark.service
def test_proofs_results_and_examples_are_pages(site: Path) -> None:
    for path in ELSEWHERE:
        name = path.relative_to(ROOT).with_suffix(".html").as_posix().replace("README", "index")
        assert (site / name).is_file(), name
    assert (site / "examples" / "calibrate_pytorch.py.html").is_file()
    assert 'id="privcalc.PoissonSampled"' in (site / "api" / "mechanisms.html").read_text(encoding="utf-8")


def test_plain_formulas_become_raised() -> None:
    pytest.importorskip("mkdocs", reason="the extra 'docs' is not installed")
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        hooks = importlib.import_module("hooks")
    finally:
        sys.path.pop(0)
    assert hooks._raised("e^{K_i(s)} ≤ x_∞") == "e<sup>K<sub>i</sub>(s)</sup> ≤ x<sub>∞</sub>"
    assert hooks._raised("(1 − e^{−x})_+ over ∫_stop of not_accounted, max_loss") == (
        "(1 − e<sup>−x</sup>)<sub>+</sub> over ∫<sub>stop</sub> of not_accounted, max_loss"
    )


READ = """<iframe id=f style="width:%dpx; height:1000px; border:0"></iframe><pre id=out></pre><script>
(async () => {
  const found = {};
  for (const page of %s) {
    await new Promise(done => { f.onload = done; f.src = page; });
    if (f.contentWindow.MathJax) await f.contentWindow.MathJax.startup.promise;
    const d = f.contentDocument, all = s => [...d.querySelectorAll(s)];
    found[page] = {
      formulas: all(".arithmatex").length, typeset: all("mjx-container > svg").length,
      invisible: all("mjx-container > svg").filter(one => one.getBoundingClientRect().width < 5).length,
      errors: all("[data-mjx-error], merror").length, broken: [...d.images].filter(one => !one.naturalWidth).length,
      width: d.documentElement.scrollWidth,
    };
  }
  out.textContent = "FOUND" + JSON.stringify(found) + "END";
})();
</script>"""


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1400])
def test_pages_in_a_browser(site: Path, tmp_path: Path, width: int) -> None:
    """Every formula is typeset and can be seen, every picture is there, and no page is wider than the window."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("there is no Chromium")
    pages = {
        path.relative_to(site).as_posix(): path.as_uri()
        for path in sorted(site.rglob("*.html"))
        if path.name != "404.html"
    }
    start = tmp_path / "read.html"
    start.write_text(READ % (width, json.dumps(list(pages.values()))), encoding="utf-8")
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--allow-file-access-from-files",
        "--virtual-time-budget=600000",
    ]
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    command = [browser, *options, profile, f"--window-size={max(width, 600)},1200", "--dump-dom", start.as_uri()]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    found = json.loads(done.stdout.partition('id="out">FOUND')[2].partition("END")[0])
    assert len(found) == len(pages)
    for name, uri in pages.items():
        seen = found[uri]
        assert seen["typeset"] >= seen["formulas"], name
        assert (seen["invisible"], seen["errors"], seen["broken"]) == (0, 0, 0), name
        assert seen["width"] <= width, name
