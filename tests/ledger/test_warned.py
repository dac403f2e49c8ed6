"""Warnings of a run: what may be published is in its ledger, and in every certificate made of that; nothing else is."""

import math
import warnings

import pytest

import privcalc as pc
from privcalc.certificate.html import page
from privcalc.certificate.schema import digest

STEP = pc.Gaussian(noise_multiplier=20.0)
TEXT = "weights: were written by hand"


def said(source):
    """What a certificate has, and that every way of reading it says so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        certificate = pc.certify(source, delta=1e-5)
    found = [text for ledger in certificate.document["ledgers"] for text in ledger.get("warnings", [])]
    first = [line for line in str(certificate).splitlines() if line.startswith("WARNED: ")]
    assert first == [f"WARNED: {text}." for text in found]
    assert [line for line in str(certificate).splitlines() if line.startswith("WARNED: ")] == first
    return found


def test_a_warning_is_in_every_certificate_whatever_becomes_of_the_run(tmp_path):
    path = tmp_path / "run.jsonl"
    ledger = pc.Ledger(path, plan=STEP * 3)
    assert said(path) == []
    with pytest.warns(pc.PrivcalcWarning, match=TEXT) as told:
        ledger.warn(TEXT)
    assert told[0].filename == __file__
    assert said(path) == [TEXT]  # as a crash would leave it
    with pytest.warns(pc.PrivcalcWarning, match=TEXT):
        ledger.warn(TEXT)
    ledger.pause()
    with pytest.warns(pc.PrivcalcWarning, match="paused"):
        ledger.warn("paused")  # is not written down
    with pc.Ledger(path, plan=STEP * 3) as again:
        for text in (TEXT, "another"):
            with pytest.warns(pc.PrivcalcWarning, match=text):
                again.warn(text)
        again.gaussian(0.0, STEP, clip_norm=1.0)
    with pytest.warns(pc.PrivcalcWarning, match="too late"):
        again.warn("too late")
    assert said(path) == [TEXT, "another"]
    with pytest.warns(pc.PrivcalcWarning, match=f"^the run was warned: {TEXT}$"):
        certificate = pc.certify(path, delta=1e-5)
    assert f"the run was warned: {TEXT}" in certificate.verify(path, seconds=math.inf)
    with pytest.warns(pc.PrivcalcWarning, match=TEXT):
        both = pc.certify([certificate, certificate], delta=1e-5)
    assert str(both).splitlines()[0] == f"WARNED: {TEXT}."
    pytest.importorskip("matplotlib")
    assert f'<p class="warning">WARNED: {TEXT}.</p>' in page(certificate)


def test_it_is_written_before_anybody_is_warned(tmp_path):
    """Where warnings are errors, the run may end there."""
    ledger = pc.Ledger(tmp_path / "run.jsonl", plan=STEP)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(pc.PrivcalcWarning):
            ledger.warn(TEXT)
    assert said(tmp_path / "run.jsonl") == [TEXT]


@pytest.mark.parametrize("text", ["", " ", "a\nb", "\u202e", "x" * 2001, 5, None])
def test_it_is_one_line(text):
    ledger = pc.Ledger(None, plan=STEP)
    with pytest.raises(pc.PrivcalcError, match=r"^text = .*: must be one line"):
        ledger.warn(text)
    assert said(ledger) == []


def test_a_certificate_cannot_leave_it_out(tmp_path):
    path = tmp_path / "run.jsonl"
    with pc.Ledger(path, plan=STEP) as ledger:
        with pytest.warns(pc.PrivcalcWarning):
            ledger.warn(TEXT)
        ledger.gaussian(0.0, STEP, clip_norm=1.0)
    with pytest.warns(pc.PrivcalcWarning):
        document = pc.certify(path, delta=1e-5).document
    (entry,) = document["ledgers"]
    for found in ([], ["another"], [TEXT, TEXT], [5], ["a\nb"], TEXT, None):
        changed = {**document, "ledgers": [{**entry, "warnings": found}]}
        with pytest.raises(pc.Contradiction):
            pc.Certificate({**changed, "hash": digest(changed)}).verify(path, seconds=math.inf)
