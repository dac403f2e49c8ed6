"""Pictures and the web page: what is drawn, not how it looks."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import privcalc as pc
from privcalc import attacks, pictures
from privcalc.calibration.plans import plan
from privcalc.certificate.certificate import Certificate
from privcalc.certificate.schema import digest
from privcalc.cli import main

pytest.importorskip("matplotlib")

from privcalc.certificate.html import page
from privcalc.certificate.text import box, facts
from privcalc.pictures.curves import reach


def line(figure: Any, number: int = 0, axes: int = 0) -> tuple[list[float], list[float]]:
    drawn = figure.axes[axes].lines[number]
    return list(drawn.get_xdata()), list(drawn.get_ydata())


def area(figure: Any, axes: int = 0) -> np.ndarray:
    """The corners of the coloured area."""
    return np.asarray(figure.axes[axes].collections[0].get_paths()[0].vertices)


def test_risk() -> None:
    """The formulas at 1-GDP, and guessing."""
    there, which = pictures.risk(pc.Gaussian(1.0)).axes
    (x, right), (_, guess) = ([np.asarray(data) for data in line.get_data()] for line in there.lines)
    assert right[np.argmin(np.abs(x - 0.5))] == pytest.approx(0.691462, abs=1e-6)
    assert np.all(right >= guess)
    (x, right), (_, guess) = ([np.asarray(data) for data in line.get_data()] for line in which.lines)
    assert right[np.argmin(np.abs(x - 0.01))] == pytest.approx(0.092363, abs=1e-3)
    assert np.all(right >= guess)


def test_profile_is_the_closed_form() -> None:
    figure = pictures.profile(pc.Gaussian(1.0), epsilons=[0.0, 0.5, 2.0], points=[(1.0, 0.127)])
    x, y = line(figure)
    truth = [norm.cdf(0.5 - e) - math.exp(e) * norm.cdf(-0.5 - e) for e in x]
    assert y == pytest.approx(truth, rel=1e-12)
    assert line(figure, 1) == ([1.0], [0.127])


def test_profile_has_both_ends() -> None:
    run = pc.ExponentialMechanism(0.5) * 10  # an interval
    figure = pictures.profile(run, epsilons=[0.1, 1.0])
    corners = {(round(x, 12), round(y, 12)) for x, y in area(figure).tolist()}
    for epsilon in (0.1, 1.0):
        found = run.delta(epsilon=epsilon)
        assert found.lower < found.upper
        assert {(epsilon, round(found.lower, 12)), (epsilon, round(found.upper, 12))} <= corners


@pytest.mark.parametrize("run", [pc.Gaussian(1.0) * 2, pc.PureDP(0.7), pc.ApproxDP(0.5, 1e-4), pc.Run()], ids=str)
def test_profile_reaches_far_enough(run: pc.Run) -> None:
    x, y = line(pictures.profile(run))
    assert x[0] == 0
    assert x[-1] > 0
    assert y[-1] <= (1.01e-3 if "ApproxDP" in str(run) else 1.01e-12)  # below its leak nothing is enough


def test_tradeoff_and_attack_points() -> None:
    run = pc.Gaussian(1.0)
    seen = attacks.from_counts([400, 700], 1000, [60, 300], 1000)
    figure = pictures.tradeoff(
        run, attack=seen, roc=(np.array([0.0, 1.0]), np.array([0.2, 1.0])), points=[(0.05, 0.74)]
    )
    alpha, beta = line(figure)
    assert beta == pytest.approx(norm.cdf(norm.ppf(1 - np.array(alpha)) - 1), abs=1e-7)
    assert line(figure, 0, axes=1)[1] == pytest.approx(1 - np.array(beta))
    assert line(figure, 2) == ([0.0, 1.0], [0.8, 0.0])
    assert line(figure, 3) == (seen.false.tolist(), (1 - seen.power).tolist())
    assert line(figure, 3, axes=1) == (seen.false.tolist(), seen.power.tolist())
    assert line(figure, 4) == ([0.05], [0.74])
    corners = area(figure)
    assert corners[:, 1].min() == 0  # forbidden: below the curve, and above it for powers
    assert area(figure, axes=1)[:, 1].max() == 1
    assert pictures.tradeoff(None, attack=seen).axes[0].lines[0].get_label() == "guessing"


def test_tradeoff_takes_a_table_and_uses_its_lower_end() -> None:
    run = pc.ExponentialMechanism(0.5) * 10
    table = pc.tradeoff_table(run, [0.1, 0.5])
    assert np.all(table["lower"] < table["upper"])
    assert line(pictures.tradeoff(table)) == ([0.1, 0.5], table["lower"].tolist())


@pytest.mark.parametrize(
    "run", [pc.Gaussian(1.0), pc.PoissonSampled(pc.Gaussian(0.8), 0.1) * 20, pc.ApproxDP(0.5, 1e-4)], ids=str
)
def test_tangents_bound_the_tradeoff_curve(run: pc.Run) -> None:
    """Never above the truth, and close to it where the curve is convex."""
    alphas = [0.0, 1e-3, 0.3, 1.0]
    found = pc.tradeoff_of_profile(pc.profile_table(run, reach(run, pc.ADD_OR_REMOVE_ONE)), alphas)
    for alpha, low, high in found.tolist():
        truth = run.beta(alpha=alpha)
        assert low <= truth.upper
        assert truth.lower <= high + 1e-12
        assert truth.lower - low < 0.02
    exact = [norm.cdf(norm.ppf(1 - alpha) - 1) for alpha in alphas]
    if isinstance(run, pc.Gaussian):
        assert found["lower"] == pytest.approx(exact, abs=1e-3)
        assert np.all(found["lower"] <= exact)
    with pytest.raises(pc.PrivcalcError, match="alphas"):
        pc.tradeoff_of_profile(pc.profile_table(run, [0.0]), [1.5])


def test_a_profile_far_out_claims_no_more_than_is_true() -> None:
    """e^ε overflows, α underflows: their product is what counts."""
    profile = pc.profile_table(pc.PureDP(800.0), [0.0, 800.0])
    assert pc.tradeoff_of_profile(profile, [1e-305, 1e-320])["lower"].tolist() == [0.0, 0.0]  # β = e^{−800}(1 − α)
    assert 1 - 1e-12 < pc.tradeoff_of_profile(profile, [0.0])["lower"][0] <= 1


def test_epsilon_over_steps() -> None:
    run = pc.ExponentialMechanism(0.5)
    figure = pictures.epsilon_over_steps(run, np.array([1, 10]), delta=1e-6, relation=pc.ZERO_OUT)
    found = [(run * n).epsilon(delta=1e-6, relation=pc.ZERO_OUT) for n in (1, 10)]
    assert line(figure) == ([1, 10], [one.upper for one in found])
    assert found[1].lower in area(figure)[:, 1]
    many, _ = line(pictures.epsilon_over_steps(pc.Gaussian(20.0), 206, delta=1e-5))
    assert (many[0], many[-1]) == (1, 206)
    assert many == sorted(set(many))
    with pytest.raises(pc.PrivcalcError, match="steps"):
        pictures.epsilon_over_steps(pc.Gaussian(20.0), [1.5], delta=1e-5)  # type: ignore[list-item]


def test_map_of_noise_and_steps() -> None:
    sigmas, steps = [5.0, 10.0, 20.0], [10, 40]
    figure = pictures.noise_and_steps(pc.Gaussian, noise_multipliers=sigmas, steps=steps, delta=1e-5)
    found = np.asarray(figure.axes[0].collections[0].get_array())
    mu = np.sqrt(np.array(steps))[:, None] / np.array(sigmas)[None, :]
    truth = [[pc.GDP(float(one)).epsilon(delta=1e-5).upper for one in row] for row in mu]
    assert found == pytest.approx(np.array(truth), rel=1e-9)
    assert found[1, 1] == pytest.approx(found[0, 0], rel=1e-9)  # σ√4 at 4T
    leaks = pictures.noise_and_steps(
        lambda z: pc.ApproxDP(1.0, z), noise_multipliers=[1e-9, 0.1], steps=[1, 2], delta=1e-5
    )
    assert (
        np.ma.getmaskarray(leaks.axes[0].collections[0].get_array()).tolist() == [[False, True]] * 2
    )  # ∞ has no colour
    with pytest.raises(pc.PrivcalcError, match="finite"):
        pictures.noise_and_steps(lambda z: pc.ApproxDP(1.0, z), noise_multipliers=[0.1, 0.2], steps=[1, 2], delta=1e-5)
    for wrong in (
        {"steps": [2, 1]},
        {"steps": [1]},
        {"noise_multipliers": [2.0, 2.0]},
        {"noise_multipliers": [0.0, 1.0]},
    ):
        with pytest.raises(pc.PrivcalcError, match=next(iter(wrong))):
            pictures.noise_and_steps(
                pc.Gaussian, **{"noise_multipliers": sigmas, "steps": steps, "delta": 1e-5} | wrong
            )


def test_sorted_realised_losses() -> None:
    losses = pc.RealisedLosses(records=4, noise_multiplier=10.0)
    losses.update([0.5, 1.0, 0.1, 0.2])
    found = losses.epsilon(delta=1e-5)
    figure = pictures.realised({"this run": found}, delta=1e-5)
    x, y = line(figure)
    assert x == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert y == sorted(np.asarray(found).tolist(), reverse=True)
    assert set(line(figure, 1)[1]) == {found.worst}
    assert "SENSITIVE" in figure.axes[0].get_title()


def test_accuracy_against_epsilon() -> None:
    figure = pictures.accuracy({"a": {1.0: [0.8, 0.9], 0.1: [0.5]}, "not private": {math.inf: [0.9, 0.94]}})
    assert line(figure) == ([0.1, 1.0], pytest.approx([0.5, 0.85]))
    ends = [segment[:, 1].tolist() for segment in figure.axes[0].collections[0].get_segments()]
    assert ends[0] == pytest.approx([0.5, 0.5])
    assert ends[1] == pytest.approx([0.85 - math.sqrt(0.005), 0.85 + math.sqrt(0.005)])
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert sorted(labels) == ["a", "not private"]
    assert any(list(drawn.get_ydata()) == pytest.approx([0.92, 0.92]) for drawn in figure.axes[0].lines)
    for wrong in ({}, {1.0: []}):
        with pytest.raises(pc.PrivcalcError, match="accuracies"):
            pictures.accuracy({"a": wrong})


def test_plan() -> None:
    choices = plan(records=100, epsilon=1.0, delta=1e-3, epochs=[1, 2], batch_sizes=[50, 100])
    figure = pictures.plan(choices)
    for number, field in enumerate(("noise_multiplier", "step_noise", "run_noise")):
        for epochs in (0, 1):
            x, y = line(figure, epochs, axes=number)
            assert x == [50, 100]
            assert y == [getattr(choice, field) for choice in choices[2 * epochs : 2 * epochs + 2]]


def test_without_matplotlib(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pc.certify(pc.Gaussian(1.0), delta=1e-5).save(tmp_path / "c.json")
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(pc.PrivcalcError, match=r"pip install matplotlib"):
        pictures.profile(pc.Gaussian(1.0))
    assert main(["show", str(tmp_path / "c.json"), "--html", str(tmp_path / "out.html")]) == 2
    assert "matplotlib" in capsys.readouterr().err
    assert not (tmp_path / "out.html").exists()


# --- the page -------------------------------------------------------------------------------------


class Reader(HTMLParser):
    """What a browser would find: tags with attributes, and the text in them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.pieces: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "img"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.pieces.append((self.open[-1] if self.open else "", data))

    @property
    def text(self) -> str:
        return "".join(data for _, data in self.pieces)


TAGS = "html head meta title style body h1 h2 p strong table tr th td figure img figcaption pre code details summary a"
ALLOWED = set(TAGS.split())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Certificate, str]:
    path = tmp_path_factory.mktemp("page") / "run.jsonl"
    step = pc.PoissonSampled(pc.Gaussian(2.0), rate=0.1)
    with pc.Ledger(path, plan=step * 10, public={"records": 100}, not_accounted=["learning rate tuned"]) as ledger:
        ledger.gaussian([0.0], step, clip_norm=1.0, batch=ledger.poisson_batch(step))
    certificate = pc.certify(path, delta=1e-5)
    return certificate, page(certificate)


def test_page_says_what_the_certificate_says(made: tuple[Certificate, str]) -> None:
    certificate, text = made
    reader = Reader(text)
    assert {tag for tag, _ in reader.tags} == ALLOWED
    assert not reader.open
    assert certificate.guarantee.epsilon.stated("ε") in reader.text
    for point in certificate.document["curve"]:
        assert certificate.run.epsilon(delta=point["delta"]).stated("ε") in reader.text
    told = [part for fact in (*box(certificate.document), *facts(certificate.document)) for part in fact[1:3]]
    for words in ("learning rate tuned", "records = 100", "privcalc verify", "--rigorous", *told):
        assert words in reader.text
    assert certificate.document["ledgers"][0]["hash"] in reader.text
    assert page(certificate) == text


def test_page_carries_the_certificate(made: tuple[Certificate, str], tmp_path: Path) -> None:
    certificate, text = made
    whole = [data for tag, data in Reader(text).pieces if tag == "pre"][-1]
    (tmp_path / "again.json").write_text(whole)
    again = Certificate.load(tmp_path / "again.json")
    assert again == certificate
    assert digest(again.document) == certificate.document["hash"]


def test_page_needs_nothing_from_elsewhere(made: tuple[Certificate, str]) -> None:
    _, text = made
    tags = Reader(text).tags
    sources = [attributes["src"] or "" for tag, attributes in tags if tag == "img"]
    assert len(sources) == 2
    names = {name for _, attributes in tags for name in attributes}
    assert names == {"lang", "charset", "http-equiv", "content", "name", "alt", "src", "class", "href"}
    assert [attributes["href"] for tag, attributes in tags if tag == "a"] == ["verify.html"]
    assert "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\"" in text
    assert not re.search(r"url\(|@import|https?:", text)
    for source in sources:
        kind, _, data = source.partition(",")
        assert kind == "data:image/svg+xml;base64"
        svg = base64.b64decode(data).decode()
        assert "<svg" in svg
        assert not re.search(r"<script|<image|<foreignObject|\son\w+=|href=\"(?!#)", svg)


HOSTILE = (
    "</pre></title><script>alert(1)</script><img src=x onerror=alert(2)>\"'&$title ${unit} \u202e\x00\x1b[31m $\\alpha$"
)


def replaced(value: Any, path: str = "") -> Any:
    """Every (document, place) with one text replaced by a hostile one, or one added where there may be more."""
    if isinstance(value, str):
        yield path, HOSTILE
    elif isinstance(value, dict):
        for name, part in value.items():
            for place, other in replaced(part, f"{path}/{name}"):
                yield place, {**value, name: other}
        yield f"{path}+", {**value, HOSTILE: HOSTILE}
    elif isinstance(value, list):
        for number, part in enumerate(value):
            for place, other in replaced(part, f"{path}/{number}"):
                yield place, [*value[:number], other, *value[number + 1 :]]
        yield f"{path}+", [*value, HOSTILE]
    else:
        yield path, HOSTILE


def test_a_hostile_certificate_injects_nothing(made: tuple[Certificate, str], monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, _ = made
    drawn: list[Any] = []
    monkeypatch.setattr(
        "privcalc.certificate.html.profile_table",
        lambda run, epsilons, relation: pc.profile_table(pc.Gaussian(1.0), [0.0, 1.0]),
    )
    for name in ("profile", "tradeoff"):
        monkeypatch.setattr(pictures, name, lambda run, **options: drawn.append(options["points"]))
    monkeypatch.setattr("privcalc.certificate.html.embedded", lambda figure, caption: "")
    told, refused = 0, 0
    places = {re.sub(r"\d+", "*", place): (place, other) for place, other in replaced(dict(certificate.document))}
    for place, document in places.values():  # one of each list
        for rehashed in (False, True):
            changed = Certificate({**document, "hash": digest(document)} if rehashed and place != "/hash" else document)
            try:
                text = page(changed)
            except pc.PrivcalcError:
                refused += 1
                continue
            told += 1
            reader = Reader(text)
            assert {tag for tag, _ in reader.tags} <= ALLOWED, place
            assert {name for _, attributes in reader.tags for name in attributes} <= {
                *("lang", "charset", "http-equiv", "content", "name", "alt", "src", "class", "href"),
            }, place
            assert [attributes["href"] for tag, attributes in reader.tags if tag == "a"] == ["verify.html"], place
            assert text.count("<script") == text.count("onerror=alert(2)>") == 0, place
            assert not set("\u202e\x00\x1b") & set(text), place
            assert ("CHANGED" in text) == (changed.document["hash"] != digest(changed.document)), place
    assert told > 30
    assert refused > 30
    assert all(isinstance(number, float) for points in drawn for point in points for number in point)


def test_warnings_come_first(tmp_path: Path) -> None:
    step = pc.Gaussian(10.0)
    ledger = pc.Ledger(tmp_path / "open.jsonl", plan=step * 3, seed=1)
    ledger.gaussian([0.0], step, clip_norm=1.0)
    text = page(pc.certify(tmp_path / "open.jsonl", delta=1e-5))
    head = text[: text.index("<table")]
    assert "NO PRIVACY CLAIM" in head
    assert "OPEN" in head
    ledger.close()


def test_the_command(made: tuple[Certificate, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificate, text = made
    certificate.save(tmp_path / "c.json")
    out = tmp_path / "out.html"
    assert main(["show", str(tmp_path / "c.json"), "--html", str(out)]) == 0
    assert capsys.readouterr().out == f"{certificate}\n"
    assert hashlib.sha256(out.read_bytes()).digest() == hashlib.sha256(text.encode()).digest()
    assert main(["show", str(tmp_path / "c.json"), "--html", str(tmp_path / "no" / "folder")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    broken = json.loads((tmp_path / "c.json").read_text())
    del broken["curve"]
    (tmp_path / "b.json").write_text(json.dumps(broken))
    assert main(["show", str(tmp_path / "b.json"), "--html", str(tmp_path / "b.html")]) == 2
    assert not (tmp_path / "b.html").exists()


def shown_in_notebooks(folder):
    """One of each thing that a notebook shows, with a name that would run if it were not escaped."""
    run = pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 1000
    losses = pc.RealisedLosses(records=3, noise_multiplier=20.0)
    losses.update([0.4, 1.0, 0.1])
    ledger = pc.Ledger(None, plan=pc.Gaussian(10.0), unit="one <script>")
    answer = ledger.count([1, 2], pc.Gaussian(10.0), rows_per_person=1, label="<script>alert(1)</script>")
    budget = pc.Budget.create(f"{folder}/budget.db", dataset="<script>", cap=pc.ZCDP(1.0))
    certificate = pc.certify(run, delta=1e-5, unit="one <script>")
    return [run.epsilon(1e-5), run, pc.Gaussian(1.0), certificate, ledger, answer, budget, losses.epsilon(delta=1e-5)]


def test_what_a_notebook_shows_is_escaped_and_short(tmp_path):
    for thing in shown_in_notebooks(tmp_path):
        page = thing._repr_html_()
        assert page.startswith("<div><strong>"), type(thing)
        assert "<script" not in page
        assert len(repr(thing)) < 200, type(thing)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (pc.Gaussian(1.0).epsilon(1e-5), "Enclosure(ε ≤ 4.3772 at δ = 1e-05)"),
        (pc.Gaussian(1.0).epsilon(1e-5, relation=pc.REPLACE_ONE), "Enclosure(ε ≤ 9.9973 at δ = 1e-05, replace-one)"),
        (pc.Gaussian(1.0).delta(1.0), "Enclosure(δ ≤ 0.12694 at ε = 1)"),
        (pc.Gaussian(1.0).beta(0.05), "Enclosure(β ≥ 0.74048 at α = 0.05)"),
        (pc.Gaussian(1.0).advantage(), "Enclosure(advantage ≤ 0.38293)"),
        ((pc.Gaussian(2.0) * 16).gdp_mu(), "Enclosure(μ ≤ 2)"),
        (pc.Gaussian(1.0).epsilon([1e-5])[0], "Enclosure(ε ≤ 4.3772 at δ = 1e-05)"),
        (pc.certify(pc.Gaussian(1.0), delta=1e-5), "Certificate((4.3771781, 1e-05)-DP under add-or-remove-one)"),
    ],
    ids=str,
)
def test_an_answer_says_what_it_is_of_in_a_short_line(answer, said):
    """The numbers are those of the closed forms, rounded to their safe side."""
    assert repr(answer) == said


def test_several_runs_in_one_picture():
    runs = [pc.Gaussian(1.0), pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 100]
    lines = pictures.tradeoff(runs, names=["one", "many"]).axes[0].lines
    assert [line.get_label() for line in lines[:2]] == ["one: no attack is below", "many: no attack is below"]
    for run, line in zip(runs, lines, strict=False):
        alphas, betas = line.get_data()
        assert betas[20] == run.beta(alpha=float(alphas[20])).lower
    for draw, label in ((pictures.tradeoff, "no attack is below"), (pictures.profile, "proved: at most"),
                        (pictures.risk, "no attack is above")):  # fmt: skip
        with pytest.raises(pc.PrivcalcError, match=r"names = \['one'\]: must be as many as there are runs, 2"):
            draw(runs, names=["one"])
        named = draw(dict(zip(("one", "many"), runs, strict=True))).axes[0].lines
        assert [line.get_label() for line in named[:2]] == [f"one: {label}", f"many: {label}"]
    several, alone = pictures.profile(runs), [pictures.profile(run) for run in runs]
    for curve, one in zip(several.axes[0].lines, alone, strict=True):
        assert np.array_equal(curve.get_data(), one.axes[0].lines[0].get_data())
    drawn = [figure.axes[0].lines[0].get_data() for figure in (runs[1].plot(), pictures.tradeoff(runs[1]))]
    assert np.array_equal(*drawn)
    assert pc.certify(runs[0], delta=1e-5).plot().axes


@pytest.mark.browser
def test_a_notebook_in_a_browser(tmp_path):
    """Executed by nbconvert, which has an interpreter of its own, and looked at in headless Chromium."""
    convert, browser = shutil.which("jupyter-nbconvert"), shutil.which("chromium") or shutil.which("google-chrome")
    if convert is None or browser is None:
        pytest.skip("needs nbconvert with ipykernel, and Chromium")
    cells = [
        "import privcalc as pc\nfrom tests.pictures.test_pictures import shown_in_notebooks",
        f"found = shown_in_notebooks({str(tmp_path)!r})",
        *(f"found[{i}]" for i in range(8)),
    ]
    source = [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": c} for c in cells]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = {"cells": source, "metadata": kernel, "nbformat": 4, "nbformat_minor": 4}
    (tmp_path / "page.ipynb").write_text(json.dumps(notebook))
    command = [convert, "--to", "html", "--execute", str(tmp_path / "page.ipynb")]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--dump-dom"]
    page = (tmp_path / "page.html").as_uri()
    done = subprocess.run([browser, *options, page], capture_output=True, text=True, check=True, timeout=120)
    assert "ε ≤ 1.8283 at δ = 1e-05" in done.stdout
    assert done.stdout.count("<td style=") > 20
    assert "<script>alert(1)" not in done.stdout
