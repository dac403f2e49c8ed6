"""Proofs are enforced: every claim has a page, every page its code and tests, and was read against code as it is."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import shutil
from pathlib import Path

import pytest

import privcalc as pc
import privcalc.attacks
from privcalc import errors
from privcalc.certificate.schema import ROUTES
from privcalc.composition.ladder import LADDER, LAST
from proofs import check as proofcheck
from proofs.check import ROOT, changed, code_hash, read_pages, update

PAGES = {page.name: page for page in read_pages()}
LISTED = {name.partition("::")[0] for page in PAGES.values() for name in page.code}
NO_CLAIM = {
    "privcalc": "__main__ cli/audit cli/bulk cli/options cli/plan "
    "peers/compare peers/packages peers/question pictures/curves "
    "bulk errors files keywords notebook questions relation terminal version",
    "learners": "data/features data/sources data/tasks demo device",
}
"""Modules that claim nothing by themselves: command lines, benchmarks, checks of arguments, containers."""

CONTAINERS = {"Enclosure", "Enclosures", "Guarantee", "Mechanism", "Relation", "Run"} | set(errors.__all__)
"""Public names of such modules."""


def modules():
    free = {f"{package}/{name}.py" for package, names in NO_CLAIM.items() for name in names.split()}
    for package in NO_CLAIM:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if path.name != "__init__.py" and name not in free:
                yield name


@pytest.mark.parametrize("name", list(modules()))
def test_every_module_has_a_page(name):
    """Mechanisms, conversions, sampling, learners, routes, per-instance statements: all live in modules."""
    assert name in LISTED, (
        f'{name}: name it after "Code:" in the page that proves what it claims (or in NO_CLAIM, if it claims nothing)'
    )


def test_what_claims_nothing_exists():
    for package, names in NO_CLAIM.items():
        for name in names.split():
            assert (ROOT / package / f"{name}.py").is_file()
            assert f"{package}/{name}.py" not in LISTED


def source_of(thing):
    return Path(inspect.getsourcefile(inspect.unwrap(thing))).relative_to(ROOT).as_posix()


def below(kind):
    """All subclasses that the package defines."""
    for one in kind.__subclasses__():
        if one.__module__.startswith("privcalc."):
            if hasattr(one, "page"):  # not what others are made of
                yield one
            yield from below(one)


def test_mechanisms_name_a_page_that_names_them():
    found = set(below(pc.Mechanism))
    assert {thing for thing in vars(pc).values() if inspect.isclass(thing) and issubclass(thing, pc.Mechanism)} <= {
        *found,
        pc.Mechanism,
    }
    assert len(found) >= 16
    for thing in found:
        assert thing.page in PAGES, thing
        # what a certificate quotes must speak of the code that made it
        assert any(name.startswith(source_of(thing)) for name in PAGES[thing.page].code), (
            f"{thing.page} must name {source_of(thing)}"
        )


def names_of_routes():
    """The ladder's; those a bound is made or met with, as ``("name",)`` or the last argument; and the theorems'."""
    yield from (route.name for route in (*LADDER, LAST))
    for path in sorted((ROOT / "privcalc").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.parent.name == "composition":
            yield from re.findall(r'[(\s]\("([^"]+)",\)', text)
            yield from re.findall(r'\.meet\(.*, "([^"]+)"\)', text)
        inner = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*"  # arguments, calls in calls among them
        yield from re.findall(rf'\bPairs\({inner}\bbound=(?:[\w.]+ or )?"([^"]+)"', text)
        if path.parent.name == "pairs":
            yield from re.findall(r'\bbound="([^"]+)"', text)


def test_routes_name_a_page():
    found = set(names_of_routes())
    assert found >= {"contour", "jumps", "smoothing", "enumeration", "lattice", "direct", "axis", "fallback", "moments"}
    assert found <= set(ROUTES), found - set(ROUTES)
    assert set(ROUTES) <= found, set(ROUTES) - found
    assert set(ROUTES.values()) <= set(PAGES)


def test_a_certificate_names_the_pages_of_its_routes():
    steps = pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 1000
    found = pc.certify(steps, delta=1e-5)
    assert "contour" in found.document["guarantee"]["epsilon"]["route"]
    assert {"poisson.md", "gaussian.md", "engine.md", "gdp.md", "ledger.md", "assumptions.md", "certificate.md"} <= set(
        found.document["proofs"]
    )
    assert "jumps.md" not in found.document["proofs"]
    coins = pc.certify(pc.RandomizedResponse(0.3) + pc.RandomizedResponse(0.1) * 2, delta=1e-3)
    assert "atoms.md" in coins.document["proofs"]
    assert "engine.md" not in coins.document["proofs"]


def test_public_names_have_a_page():
    """Mechanisms, conversions, schemes, statements: all that can be imported lives in a module that a page names."""
    free = {f"{package}/{name}.py" for package, names in NO_CLAIM.items() for name in names.split()}
    for package in (pc, pytest.importorskip("learners"), privcalc.attacks):
        for name in package.__all__:
            thing = getattr(package, name)
            if not (inspect.isclass(thing) or inspect.isfunction(thing)):
                continue
            where = source_of(thing)
            assert where in LISTED or where in free, f"{name}: {where} has no page"
            # of what claims nothing there are only containers, errors and enumerations
            assert where in LISTED or name in CONTAINERS, name


def test_learners_name_a_page_that_names_them():
    learners = pytest.importorskip("learners")
    for name in learners.__all__:
        module = inspect.getmodule(getattr(learners, name))
        pages = set(re.findall(r"proofs/(\w+\.md)", module.__doc__))
        assert pages, f"{name}: its module must name the page with its proof"
        named = [page for page in pages if source_of(getattr(learners, name)) in PAGES[page].code]
        assert named, f"{name}: none of {pages} names {source_of(getattr(learners, name))}"


@pytest.mark.parametrize("page", PAGES.values(), ids=lambda page: page.name)
def test_pages_name_code_and_tests_that_exist(page):
    assert page.code, 'a page must have "Code:" with paths in backticks'
    assert page.tests, 'a page must have "Tests:" with paths in backticks, after its "Code:"'
    for name in page.code:
        folders = ("privcalc/", "learners/", "benchmarks/", "proofs/", "examples/")
        assert name.startswith(folders), f"{name}: must be a path from the root"
        code_hash(name)  # refuses what does not exist
    for name in page.tests:
        assert (ROOT / name).is_file(), f"{name}: does not exist"


@pytest.mark.parametrize("page", PAGES.values(), ids=lambda page: page.name)
def test_whatever_a_page_names_exists(page):
    text = (ROOT / "proofs" / page.name).read_text(encoding="utf-8")
    for path, _, function in re.findall(
        r"`((?:tests|privcalc|learners|benchmarks|proofs)/[\w/]+\.py)(::([\w]+))?`", text
    ):
        assert (ROOT / path).is_file(), path
        assert not function or re.search(rf"(def|class) {function}\b", (ROOT / path).read_text(encoding="utf-8")), (
            function
        )
    for link in re.findall(r"\]\(([\w.]+\.md)\)", text):
        assert (ROOT / "proofs" / link).is_file(), link


WIDTH = 130
FIELDS = "| `"
"""Rows of the certificate's table of fields: a table in code has the same lines, and a row cannot be wrapped."""


def faults_of(name, text):
    """What keeps a page from being read in an editor, on GitHub and where displays are rendered: (line, what)."""
    inside, opened, display = False, 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > WIDTH and not (name == "certificate.md" and line.startswith(FIELDS)):
            yield number, f"{len(line)} characters, at most {WIDTH} are allowed"
        if "$$" in line:
            if line != "$$":
                yield number, "a fence must stand on a line of its own"
            if inside and display.count("{") - display.count(r"\{") != display.count("}") - display.count(r"\}"):
                yield number, "braces do not match"
            inside, opened, display = not inside, number, ""
        elif inside:
            display += f"{line}\n"
            # an empty line ends a display, the rest would begin a list, a heading, a quotation, a table or a code block
            if not line.strip() or re.match(r"\s*(?:[-+*#>|=~`_]|\d+[.)]\s)", line):
                yield number, "Markdown within a display"
    if inside:
        yield opened, "the display is not closed"


@pytest.mark.parametrize("path", sorted((ROOT / "proofs").glob("*.md")), ids=lambda path: path.name)
def test_pages_can_be_read_where_they_are_rendered(path):
    assert not list(faults_of(path.name, path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("# a\n\n" + "x" * 131, 3),
        ("| `f` | " + "x" * 131, 1),
        ("$$\nx\n", 1),
        ("$$ x\n$$\n", 1),
        ("where $$ x = 1 $$\n", 1),
        ("$$\nx\n= 1\n$$\n", 3),
        ("$$\nx\n  - 1\n$$\n", 3),
        ("$$\n|x| < 1\n$$\n", 2),
        ("$$\n2. x\n$$\n", 2),
        ("$$\nx\n\ny\n$$\n", 3),
        (r"$$#\{ x_{1 \}#$$#".replace("#", "\n"), 3),
    ],
)
def test_what_could_not_be_read_is_found(text, line):
    assert line in [number for number, _ in faults_of("a.md", text)]
    assert not list(faults_of("a.md", "$$\n{} - x_{1} \\{ |y| \\}\n$$\n" + "x" * 130))


def test_every_page_is_listed():
    text = (ROOT / "proofs" / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([\w.]+\.md)\)", text)) - proofcheck.NOT_PAGES
    assert not set(PAGES) - linked, f"add to proofs/README.md: {set(PAGES) - linked}"
    assert not linked - set(PAGES), f"proofs/README.md lists what is not there: {linked - set(PAGES)}"


def test_pages_were_read_against_the_code_as_it_is():
    assert not changed(), "\n".join([*changed(), "read the pages again, then: python -m proofs.check --update PAGE …"])


# --- sections and names ---

SECTIONS = {
    path.name: {int(number) for number in re.findall(r"^## (\d+)\.", path.read_text(encoding="utf-8"), re.MULTILINE)}
    for path in (ROOT / "proofs").glob("*.md")
}
NUMBERS = r"§+(\d+(?:(?:, and |, | and |–)\d+)*)"
CITED = re.compile(rf"(\w+\.md)(?:``|`|\))?,?\s+{NUMBERS}")
CITED_BEFORE = re.compile(rf"{NUMBERS} of\s+[\[`]*(?:proofs/)?(\w+\.md)")
TEXTS = [
    path
    for folder in ("privcalc", "learners", "benchmarks", "proofs", "docs", "tests", "examples")
    for path in sorted((ROOT / folder).rglob("*.*"))
    if path.suffix in {".py", ".md"}
]


def absent_sections(text):
    """Sections of proof pages that a text cites, and that are not there."""
    for page, numbers in [*CITED.findall(text), *((page, numbers) for numbers, page in CITED_BEFORE.findall(text))]:
        for part in re.split(r", and |, | and ", numbers):
            first, _, last = part.partition("–")
            for number in range(int(first), int(last or first) + 1):
                if number not in SECTIONS.get(page, ()):
                    yield f"{page}, §{number}"


def test_sections_that_are_cited_exist():
    cited = 0
    for path in TEXTS:
        if path != Path(__file__):
            text = path.read_text(encoding="utf-8")
            cited += len(CITED.findall(text))
            assert not list(absent_sections(text)), path
    assert cited > 70


@functools.cache
def written():
    """What modules and classes define, by their names; and the bases of classes."""
    members, bases = {}, {}
    for package in ("privcalc", "learners", "benchmarks", "proofs"):
        for path in (ROOT / package).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
            for name, node in [(path.stem, tree), *((one.name, one) for one in classes)]:
                members.setdefault(name, set()).update(_defined(node))
            for one in classes:
                bases.setdefault(one.name, []).extend(base.id for base in one.bases if isinstance(base, ast.Name))
    return members, bases


def _defined(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


OTHERS = ("numpy", "torch")


def absent_names(text):
    """Dotted names in backticks of which the last is nothing of the one before."""
    for dotted in re.findall(r"`((?:\w+\.)+\w+)(?:\([^`]*\))?`", text):
        owner, name = dotted.split(".")[-2:]
        known = (
            dotted.split(".")[0] in OTHERS
            or (owner == "pc" and name in pc.__all__)
            or (
                name in {"py", "md", "json", "v"}
                and any(any((ROOT / here).rglob(dotted)) for here in ("privcalc", "proofs"))
            )
            or any(_has(one, name) for one in (owner, owner.capitalize()))  # `ledger.gaussian` is of a Ledger
        )
        if not known:
            yield dotted


def _has(owner, name):
    members, bases = written()
    return name in members.get(owner, ()) or any(_has(base, name) for base in bases.get(owner, ()))


def test_names_that_are_quoted_exist():
    for path in (ROOT / "proofs").glob("*.md"):
        assert not list(absent_names(path.read_text(encoding="utf-8"))), path


def test_what_is_cited_and_does_not_exist_is_found():
    cited = (
        "see [engine.md](engine.md), §§1–3 and 90; ``proofs/gdp.md``, §91 and §92 of [gdp.md](gdp.md); `none.md`, §1"
    )
    assert list(absent_sections(cited)) == ["engine.md, §90", "gdp.md, §91", "none.md, §1", "gdp.md, §92"]
    quoted = (
        "`Pair.profile`, `TwoPointPair.log_moment`, `contour.place(…)`, `pc.prove(run)`, `torch.rand`, `check.py`, `a`"
    )
    assert not list(absent_names(quoted))
    assert list(absent_names("`Pair.nothing`, `contour.nothing(x)`, `pc.nothing`, `none.py`")) == [
        *("Pair.nothing", "contour.nothing", "pc.nothing", "none.py")
    ]


# --- the check itself ---


@pytest.fixture
def small(tmp_path):
    (tmp_path / "proofs").mkdir()
    (tmp_path / "privcalc").mkdir()
    (tmp_path / "proofs" / "README.md").write_text("# all\n")
    (tmp_path / "proofs" / "a.md").write_text("# a\n\nCode: `privcalc/{x,y}.py`. Tests: `tests/t.py`.\n")
    (tmp_path / "proofs" / "b.md").write_text(
        "# b\n\nCode: `privcalc/x.py::F.g`.\nTests: `tests/t.py`.\n\nLater `privcalc/z.py`.\n"
    )
    (tmp_path / "privcalc" / "x.py").write_text(
        '"""x"""\nclass F:\n    def g(self):\n        """g"""\n        return 1\n\nh = 2\n'
    )
    (tmp_path / "privcalc" / "y.py").write_text("y = 1\n")
    update(["all"], tmp_path)
    return tmp_path


def test_pages_are_parsed(small):
    assert [(page.name, page.code, page.tests) for page in read_pages(small)] == [
        ("a.md", ("privcalc/x.py", "privcalc/y.py"), ("tests/t.py",)),
        ("b.md", ("privcalc/x.py::F.g",), ("tests/t.py",)),
    ]
    assert changed(small) == []


def test_wording_is_free_and_code_is_not(small):
    x = small / "privcalc" / "x.py"
    x.write_text('"""other"""\nclass F:\n\n    def g(self):  # why\n        return (1)\nh = 2\n')
    assert changed(small) == []
    x.write_text("class F:\n    def g(self):\n        return 1\nh = 3\n")
    assert changed(small) == ["proofs/a.md: privcalc/x.py has changed since the page was read"]
    for value in ("2", "''", "None", "1.0", "True"):
        x.write_text(f"class F:\n    def g(self):\n        return {value}\nh = 3\n")
        assert len(changed(small)) == 2
    hashes = set()
    for value in ("1", "2", "''", "None", "1.0", "True", "[]", "()", ""):
        x.write_text(f"def g():\n    return {value}\n")
        hashes.add(code_hash("privcalc/x.py::g", small))
    assert len(hashes) == 9
    x.write_text("class F:\n    def g(self):\n        return 2\nh = 3\n")
    assert update(["proofs/a.md"], small) == ["a.md"]
    assert changed(small) == ["proofs/b.md: privcalc/x.py::F.g has changed since the page was read"]
    update(["b.md"], small)
    assert changed(small) == []


def test_pages_that_come_and_go(small):
    shutil.copy(small / "proofs" / "b.md", small / "proofs" / "c.md")
    assert changed(small) == ["proofs/c.md: was never read against privcalc/x.py::F.g"]
    (small / "proofs" / "a.md").unlink()
    assert len(changed(small)) == 2
    update(["all"], small)
    assert changed(small) == []
    (small / "proofs" / "b.md").write_text("# b\n\nCode: `privcalc/y.py`. Tests: `tests/t.py`.\n")
    assert len(changed(small)) == 2


def test_bad_names_are_refused(small, capsys):
    with pytest.raises(pc.PrivcalcError, match=r"PAGE = 'n\.md'"):
        update(["n.md"], small)
    for name in ("privcalc/none.py", "privcalc/x.py::G", "privcalc/x.py::F.h"):
        with pytest.raises(pc.PrivcalcError, match=re.escape(name)):
            code_hash(name, small)
    with pytest.raises(pc.PrivcalcError, match="root"):
        read_pages(small / "privcalc")
    assert proofcheck.main(["--update", "nothing.md"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
