"""The report on one sheet of paper, in a browser; and the record for the registry of deployments."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

import privcalc as pc
from privcalc.certificate.html import sheet
from privcalc.certificate.registry import OPEN, record
from privcalc.certificate.schema import digest
from privcalc.cli import main
from privcalc.run import Run

STEP = pc.Gaussian(noise_multiplier=10.0)

FREE = str
SCHEMA = {  # the registry's deployments-schema.yaml, at its commit 057e5d8; a set is one of its lists of words
    "url_slug": FREE,
    "deployment": {
        "basic": {
            **dict.fromkeys(["name", "description", "intended_use", "data_product_region", "publication_date"], FREE),
            "data_product_type": {"Summary statistics", "Machine learning model", "Dataset"},
            "data_curators": [
                {"data_curator_name": FREE, "data_curator_type": {"Government", "Industry", "Nonprofit"}}
            ],
        },
        "dp_variant": {
            "variant_name": {"Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"},
            **dict.fromkeys(["data_domain", "unprotected_quantities"], FREE),
        },
        "privacy_loss": {
            **dict.fromkeys(["privacy_unit", "privacy_unit_details", "privacy_parameters_details"], FREE),
            "number_of_privacy_units": int,
            "privacy_parameters": {"epsilon": float, "delta": float},
        },
        "deployment_model": {"trust_assumptions": FREE, "actors": FREE},
        "implementation": dict.fromkeys(
            (
                *(
                    "preprocessing_and_hyperparameter_tuning",
                    "mechanisms",
                    "composition",
                    "post_processing",
                    "justification",
                ),
                *("utility", "additional_information"),
            ),
            FREE,
        ),
        "administrative": {"evidence_sources": dict, "status": {"Draft"}, "registry_authors": [FREE], "tier": int},
    },
}


def misfits(value, wanted, path=""):
    """Where a record is none of the registry's."""
    if isinstance(wanted, dict):
        assert isinstance(value, dict), path
        return [found for name in value for found in misfits(value[name], wanted[name], f"{path}/{name}")]
    if isinstance(wanted, list):
        return [found for each in value for found in misfits(each, wanted[0], path)]
    fits = value in wanted if isinstance(wanted, set) else type(value) is wanted
    return [] if fits else [path]


def many(times):
    """A certificate with far more than a page can hold."""
    run = (
        Run.of(pc.PoissonSampled(pc.Gaussian(1.1 + i / 100), 0.01) * 10 for i in range(3))
        + pc.DiscreteGaussian(7.0) * 4
    )
    one = pc.certify(run, delta=1e-5, unit="W" * 300, not_accounted=["it was tuned " * 9] * 30)
    return pc.certify([one] * times, delta=1e-5) if times > 1 else one


def test_a_record_has_the_fields_of_the_registry_and_guesses_nothing(tmp_path, capsys):
    with pc.Ledger(tmp_path / "a", plan=STEP * 9, unit="one patient\x1b[2J", public={"records": 700}) as ledger:
        ledger.gaussian([0.0], STEP, clip_norm=1.0)
    pc.certify(tmp_path / "a", delta=1e-5).save(tmp_path / "c.json")
    assert main(["show", str(tmp_path / "c.json"), "--registry", str(tmp_path / "record.json")]) == 0
    found = json.loads((tmp_path / "record.json").read_text())
    # What people must fill in, or the registry refuses the draft.
    assert misfits(found, SCHEMA) == [
        "/deployment/basic/data_product_type",
        "/deployment/basic/data_curators/data_curator_type",
    ]
    loss = found["deployment"]["privacy_loss"]
    true = (STEP * 9).epsilon(delta=1e-5)
    assert true.lower <= loss["privacy_parameters"]["epsilon"] <= true.upper * (1 + 1e-12)
    assert loss["number_of_privacy_units"] == 700
    assert "\x1b" not in loss["privacy_unit"]
    assert [
        each
        for each in ("membership", "Bayes risk", "reconstruction")
        if each not in loss["privacy_parameters_details"]
    ] == []
    assert found["deployment"]["basic"]["name"] == found["deployment"]["implementation"]["justification"] == OPEN
    assert main(["show", str(tmp_path / "c.json"), "--registry", str(tmp_path / "c.json")]) == 2
    assert "is what the record is to be made of" in capsys.readouterr().err


def test_a_pure_run_has_no_delta_and_a_seeded_one_no_record():
    pure = record(pc.certify(pc.Laplace(2.0), delta=0.0).document)["deployment"]
    assert (pure["dp_variant"]["variant_name"], pure["privacy_loss"]["privacy_parameters"]) == (
        "Pure DP",
        {"epsilon": pytest.approx(0.5)},
    )
    document = {**pc.certify(STEP, delta=1e-5).document, "seeded": True}
    with pytest.raises(pc.PrivcalcError, match="reproducible run"):
        record({**document, "hash": digest(document)})


def test_no_record_is_made_of_what_was_changed():
    document = pc.certify(STEP, delta=1e-5).document
    claim = {**document["guarantee"], "epsilon": {**document["guarantee"]["epsilon"], "lower": 0.001, "upper": 0.001}}
    with pytest.raises(pc.PrivcalcError, match=r"^hash: does not fit"):
        record({**document, "guarantee": claim})


def test_a_sheet_says_what_the_report_says_and_nothing_runs_in_it(tmp_path, capsys):
    run = pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 1000
    certificate = pc.certify(run, delta=1e-5, unit="<script>alert(1)</script>", not_accounted=["tuning <b>"])
    certificate.save(tmp_path / "c.json")
    assert main(["show", str(tmp_path / "c.json"), "--report", "--html", str(tmp_path / "r.html")]) == 0
    page, told = (tmp_path / "r.html").read_text(), capsys.readouterr().out
    assert "<script" not in page
    assert "<b>" not in page
    assert "default-src 'none'" in page
    for line in re.findall(r"(?:misses|errs|where a blind).*", told):
        assert line in page
    assert page.index("NOT SAID") < page.index("6. Risk")


def test_a_sheet_says_that_it_was_cut():
    page = sheet(many(1).document)
    assert "the certificate has all" in page
    assert "REPRODUCIBLE RUN" in sheet({**many(1).document, "seeded": True})


@pytest.mark.browser
@pytest.mark.parametrize("times", [0, 1, 12])
def test_a_sheet_is_one_page_of_paper(tmp_path, times):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("there is no Chromium")
    certificate = many(times) if times else pc.certify(STEP * 9, delta=1e-5)
    (tmp_path / "r.html").write_text(sheet({**certificate.document, "seeded": times > 1}), encoding="utf-8")
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--no-pdf-header-footer",
    ]
    command = [browser, *options, f"--print-to-pdf={tmp_path / 'r.pdf'}", (tmp_path / "r.html").as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    printed = (tmp_path / "r.pdf").read_bytes()
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1
    (width, height) = map(float, re.search(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", printed).groups())
    assert (width, height) == pytest.approx((595.3, 841.9), abs=0.5)  # A4, in points
