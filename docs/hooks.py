"""What mkdocs does not do by itself for this site; ``mkdocs build`` calls it (``mkdocs.yml``, ``hooks``).

Pages that live beside the code (README, proofs, results, examples, changelog) become pages of the site, links that are
right in the repository are made right on the site, MathJax is copied from a package, and a page that asks the network
for anything fails the build.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Callable
from importlib.resources import files as package
from pathlib import Path
from typing import Any

import griffe
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File
from nbconvert import MarkdownExporter

from privcalc.certificate.json_schema import json_schema
from privcalc.serial import indented

ROOT = Path(__file__).parents[1]
VERIFIER = ROOT / "build" / "verify"
MATHJAX = "static/mathjax/es5/tex-svg.js"
CODE = re.compile(
    r"(^ *(?:```|~~~).*?^ *(?:```|~~~) *$|^ {4}[^\n]*$|`[^`\n]+`|\$\$.*?\$\$|\$[^$]+\$)", re.DOTALL | re.MULTILINE
)
ROLE = re.compile(r":\w+:`~?(?:\w+\.)*(\w+)`|``(?P<code>[^`]+)``")
ENTRY = re.compile(r"^::: (privcalc\.[\w.]+)$", re.MULTILINE)
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
LIST = re.compile(
    r"^(?![ *+|#-]|\d+\. )(.+)\n(?=(?:[*+-]|1\.) )", re.MULTILINE
)  # where a list follows a paragraph's line
SUPER = re.compile(r"\^(?:\{([^{}]*)\}|([^\W_]|∞)(?!\w))")
SUB = re.compile(r"(?<=[^\s_*(])_(?:\{([^{}]*)\}|([^\W_]|[∞+])(?!\w)|(?<![^\W_]{2}_)([^\W_]+)(?!\w))")
GROUP, ROW = (
    re.compile(r"^\| \*\*", re.MULTILINE),
    re.compile(r"^\| \[(\w+\.md)\]", re.MULTILINE),
)  # of the table of proofs
PROMPT = re.compile(r"^```python\n(?=>>> )", re.MULTILINE)  # a session, whose prompts and outputs are not copied
FORMULA = re.compile(r"\]\((?=[^)]*[^\x00-\x7f])")  # E[K](γ/b) is no link
ASSET = re.compile(r"<(?:script|link|img|iframe|source|video|audio)\b[^>]*?\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


def _guests() -> dict[str, str]:
    """Files outside ``docs`` that are part of the site: path in the repository -> path among the site's sources."""
    patterns = (
        "proofs/**/*.md",
        "results/**/*.md",
        "results/**/*.png",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "SECURITY.md",
    )
    found = {path: path for pattern in patterns for path in _paths(pattern)}
    return {"README.md": "start.md", **found, **{path: f"{path}.md" for path in _paths("examples/[a-z]*.py")}}


def _paths(pattern: str) -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern))


GUESTS = _guests()
HOSTS = {site: path for path, site in GUESTS.items()}


def _entries(paths: list[str]) -> list[dict[str, str]]:
    """Pages of the menu, each by its heading up to the colon."""
    headings = ((path, (ROOT / path).read_text(encoding="utf-8").partition("\n")[0]) for path in paths)
    return [
        {heading.replace("`", "").lstrip("# ").partition(": ")[0].rstrip("."): GUESTS[path]}
        for path, heading in headings
    ]


def _proofs() -> list[dict[str, Any]]:
    """The groups of the table in ``proofs/README.md``."""
    menu: list[dict[str, Any]] = _entries(["proofs/README.md", "proofs/ERRATA.md"])
    for group in GROUP.split((ROOT / "proofs/README.md").read_text(encoding="utf-8"))[1:]:
        title, _, table = group.partition("**")
        menu.append({title: _entries([f"proofs/{name}" for name in ROW.findall(table)])})
    return menu


def _results() -> list[dict[str, Any]]:
    """The accountant's pages, and those of the learners."""
    figures = _paths("results/figures/*.md")
    ours = [path for path in _paths("results/*.md") if not path.endswith(("accountants.md", "LEARNERS.md"))]
    return [
        *_entries(["results/accountants.md", "results/LEARNERS.md"]),
        {"The accountant": _entries(ours)},
        {"Figures of the papers": _entries(figures)},
    ]


MENUS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "Proofs": _proofs,
    "Results": _results,
    "Examples": lambda: _entries(_paths("examples/[a-z]*.py")),
}


def on_config(config: Any) -> None:
    """Fill the menus that ``mkdocs.yml`` leaves empty."""
    for entry in config.nav:
        for name in MENUS.keys() & entry.keys():
            entry[name] = MENUS[name]()


def on_files(files: Any, config: Any) -> None:
    """Add what stands outside ``docs``, the schemas, and MathJax."""
    for path, site in GUESTS.items():
        if path.endswith(".py"):
            text = f"# {path}\n\n```python\n{(ROOT / path).read_text(encoding='utf-8')}```\n"
            files.append(File.generated(config, site, content=text))
        else:
            files.append(File.generated(config, site, abs_src_path=str(ROOT / path)))
    for path in _paths("docs/notebooks/*.ipynb"):
        site = path.removeprefix("docs/")
        text, resources = MarkdownExporter().from_filename(str(ROOT / path))
        files.append(File.generated(config, site.replace(".ipynb", ".md"), content=text))
        for name, picture in resources["outputs"].items():
            files.append(File.generated(config, f"notebooks/{name}", content=picture))
    for kind in ("certificate", "ledger"):
        files.append(File.generated(config, f"schemas/{kind}.json", content=indented(json_schema(kind))))
    for built in VERIFIER.glob("[vS]*"):  # the page that checks certificates, where it was made: docs/verifier
        files.append(File.generated(config, built.name, abs_src_path=str(built)))
    files.append(File.generated(config, "assets/tex-svg.js", content=(package("mathjax") / MATHJAX).read_bytes()))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Make links and pictures that are right in the repository right on the site."""
    here = page.file.src_uri
    folder = posixpath.dirname(HOSTS.get(here, f"docs/{here}"))
    if (sums := VERIFIER / "SHA256SUMS").exists():
        link = posixpath.relpath("verify.html", posixpath.dirname(here) or ".")
        markdown = markdown.replace("`verify.html`", f"[verify.html]({link})")
        markdown = markdown.replace("(`SHA256SUMS`)", f"(`SHA256SUMS`; here, SHA-256 `{sums.read_text().split()[0]}`)")

    def moved(found: re.Match[str]) -> str:
        before, link, after = found.groups()
        if ":" in link:
            return found[0]
        path = posixpath.normpath(posixpath.join(folder, link))
        target = GUESTS.get(path, path.removeprefix("docs/"))
        return before + posixpath.relpath(target, posixpath.dirname(here) or ".") + after

    page.meta.setdefault("search", {"boost": 2.0 if here.startswith(("guides/", "start")) else 0.5})
    if here.startswith("api/"):
        markdown = _summary(markdown)
    markdown = PROMPT.sub("```pycon\n", markdown)
    parts = CODE.split(LIST.sub(r"\1\n\n", markdown))
    parts[::2] = [LINK.sub(moved, FORMULA.sub(r"]\(", part)) for part in parts[::2]]
    if here.startswith("proofs/"):
        parts[::2] = [_raised(part) for part in parts[::2]]
    return "".join(parts)


@functools.cache
def _names() -> Any:
    return griffe.load("privcalc", search_paths=[ROOT], resolve_aliases=True)


def _summary(markdown: str) -> str:
    """What a page of the reference has, each with the first sentence that is said of it, above the first."""
    lines = []
    for name in ENTRY.findall(markdown):
        entry = _names()[name.partition(".")[2]]
        while entry.is_alias:
            entry = entry.final_target
        said = " ".join(entry.docstring.value.partition("\n\n")[0].split()) if entry.docstring else ""
        sentence = (
            re.split(r"(?<=[.])\s", ROLE.sub(lambda found: f"`{found[1] or found[2]}`", said))[0]
            .rstrip(".:;")
            .replace("|", "\\|")
        )
        lines.append(f"| [`{name.rpartition('.')[2]}`](#{name}) | {sentence} |")
    table = "\n".join(["| name | what it is |", "|---|---|", *lines])
    return ENTRY.sub(lambda first: f"{table}\n\n{first[0]}", markdown, count=1) if len(lines) > 1 else markdown


def _raised(text: str) -> str:
    """Typeset the plain formulas of prose, e^{K(s)} and M_i, from the innermost braces outwards."""
    before = ""
    while before != text:
        before = text
        text = SUB.sub(r"<sub>\1\2\3</sub>", SUPER.sub(r"<sup>\1\2</sup>", text))
    return text


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """See to it that the site works without a network."""
    if found := ASSET.search(output):
        raise PluginError(f"{page.file.src_uri} asks the network: {found[0]}")
    return output
