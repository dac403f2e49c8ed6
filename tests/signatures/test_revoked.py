"""Revoked certificates: who may say so, what verify and show make of it, and what no list hides."""

from __future__ import annotations

import base64
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

import privcalc as pc
from privcalc.certificate.revoked import LIST, add, beside
from privcalc.cli import main

pytest.importorskip("cryptography")
from privcalc.signatures import generate, revoke, revokes, sign

STEP = pc.Gaussian(noise_multiplier=20.0)


@pytest.fixture
def folder(tmp_path):
    generate(tmp_path / "key")
    generate(tmp_path / "other")
    pc.certify(STEP, delta=1e-5).save(tmp_path / "c.json")
    return tmp_path


def asked(capsys, *words):
    status = main(list(map(str, words)))
    found = capsys.readouterr()
    return status, found.out, found.err


def test_what_was_revoked_is_shown_so_everywhere(folder, capsys):
    cert, key = folder / "c.json", folder / "key"
    assert asked(capsys, "verify", cert)[0] == 0
    status, out, _ = asked(capsys, "revoke", cert, "--key", key, "--reason", "the data had copies")
    assert status == 0
    assert "the data had copies" in out
    for words in (["verify", cert], ["verify", cert, "--revocations", folder / LIST]):
        status, out, _ = asked(capsys, *words)
        assert status == 1
        assert out.startswith("WRONG: REVOKED: the certificate ")
        assert "the data had copies" in out
        assert "--key would check who signed that" in out
    sign(cert, key).save(folder / "c.json.sig")
    status, out, _ = asked(capsys, "verify", cert, "--key", folder / "key.pub")
    assert status == 1
    assert "--key would" not in out
    page = folder / "page.html"
    status, out, err = asked(capsys, "show", cert, "--report", "--html", page)
    assert status == 1
    assert out.startswith("REVOKED: ")
    assert "verdict            REVOKED" in out
    assert err.startswith("privcalc show: revoked: the certificate ")
    assert "REVOKED: it no longer holds" in page.read_text(encoding="utf-8")
    assert asked(capsys, "show", cert, "--registry", folder / "r.json")[0] == 1
    assert not (folder / "r.json").exists()


def test_others_are_not_revoked_and_compositions_of_it_are(folder, capsys):
    cert, both, rest = (folder / name for name in ("c.json", "both.json", "rest.json"))
    pc.certify(STEP * 2, delta=1e-5).save(rest)
    pc.certify([pc.Certificate.load(cert), pc.Certificate.load(rest)], delta=1e-5).save(both)
    for reason in ("one", "two"):  # a second statement is added to the first
        assert asked(capsys, "revoke", cert, "--key", folder / "key", "--reason", reason)[0] == 0
    assert [each["reason"] for each in json.loads((folder / LIST).read_text())["revoked"]] == ["one", "two"]
    assert asked(capsys, "show", rest)[0] == 0
    assert asked(capsys, "verify", rest)[0] == 0
    assert asked(capsys, "show", both)[0] == 1
    assert asked(capsys, "verify", both)[0] == 1


def test_anybodys_key_revokes_nothing_for_who_trusts_another(folder, capsys):
    cert = folder / "c.json"
    sign(cert, folder / "key").save(folder / "c.json.sig")
    assert asked(capsys, "revoke", cert, "--key", folder / "other", "--reason", "from spite")[0] == 0
    status, out, _ = asked(capsys, "verify", cert, "--key", folder / "key.pub")
    assert status == 0
    assert "another key than the one given says that it is revoked" in out
    assert asked(capsys, "verify", cert)[0] == 1  # without a key nobody knows whose word counts


@pytest.mark.parametrize("name", ["reason", "hash", "time", "signature"])
def test_a_statement_that_was_changed_is_not_passed_over(folder, capsys, name):
    cert, made = folder / "c.json", dict(revoke(folder / "c.json", folder / "key", reason="copies").document)
    if name == "hash":  # turned to another certificate
        pc.certify(STEP * 2, delta=1e-5).save(cert)
        made["hash"] = pc.Certificate.load(cert).document["hash"]
    elif name == "signature":
        made[name] = base64.b64encode(bytes(64)).decode()
    else:
        made[name] += "0"
    with pytest.raises(pc.Contradiction, match="signature: is wrong"):
        revokes(made, folder / "key.pub")
    document = {"format": "privcalc revocations", "version": 1, "revoked": [made]}
    (folder / LIST).write_text(json.dumps(document))
    sign(cert, folder / "key").save(folder / "c.json.sig")
    status, out, _ = asked(capsys, "verify", cert, "--key", folder / "key.pub")
    assert status == 1
    assert "REVOKED, by a statement of which this is wrong" in out


def test_a_revocation_is_no_signature_nor_the_other_way_round(folder, capsys):
    cert = folder / "c.json"
    statement = revoke(cert, folder / "key", reason="copies")
    statement.save(folder / "c.json.sig")
    assert asked(capsys, "verify", cert, "--key", folder / "key.pub")[0] == 2
    approved = dict(sign(cert, folder / "key").document)
    posing = {name: approved.get(name, "x") for name in statement.document} | {"format": "privcalc revocation"}
    with pytest.raises(pc.Contradiction, match="signature: is wrong"):
        revokes(posing, folder / "key.pub")


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "privcalc revocations", "version": 1, "revoked": [{}]}'])
def test_a_list_that_cannot_be_read_is_no_empty_one(folder, capsys, text):
    (folder / LIST).write_text(text)
    for command in ("verify", "show"):
        assert asked(capsys, command, folder / "c.json")[0] == 2
    before = (folder / LIST).read_bytes()
    assert asked(capsys, "revoke", folder / "c.json", "--key", folder / "key", "--reason", "copies")[0] == 2
    assert (folder / LIST).read_bytes() == before
    (folder / LIST).unlink()
    assert asked(capsys, "verify", folder / "c.json", "--revocations", folder / LIST)[0] == 2


@pytest.mark.parametrize("reason", ["", "  ", "a\nb", "a\x1b[2J", "x" * 501])
def test_a_reason_is_said_in_one_line(folder, reason):
    with pytest.raises(pc.PrivcalcError, match=r"^reason = "):
        revoke(folder / "c.json", folder / "key", reason=reason)
    edited = pc.Certificate({**pc.certify(STEP, delta=1e-5).document, "unit": "one house"})
    with pytest.raises(pc.PrivcalcError, match="was changed after it was made"):
        revoke(edited, folder / "key", reason="copies")


def test_the_last_line_says_what_was_checked(tmp_path, capsys):
    with pc.Ledger(tmp_path / "l.jsonl", plan=STEP) as ledger:
        ledger.gaussian([1.0], STEP, clip_norm=1.0)
    pc.certify(tmp_path / "l.jsonl", delta=1e-5).save(tmp_path / "c.json")
    pc.certify(STEP, delta=1e-5).save(tmp_path / "d.json")
    for words, last in (
        (["c.json"], "VERIFIED, but no ledger was given: only the arithmetic was checked"),
        (["c.json", "l.jsonl"], "VERIFIED, with what it was made from"),
        (["d.json"], "VERIFIED; without a ledger only the arithmetic can be checked"),
    ):
        status, out, _ = asked(capsys, "verify", *(tmp_path / word for word in words))
        assert (status, out.splitlines()[-1]) == (0, last)


def test_of_two_who_revoke_at_once_none_is_lost(folder):
    """Each reads the list, and writes it whole."""
    statement = revoke(folder / "c.json", folder / "key", reason="the data had copies").document
    reasons = [str(number) for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda reason: add(folder / "c.json", {**statement, "reason": reason}), reasons))
    assert sorted(each["reason"] for each in beside(folder / "c.json")) == sorted(reasons)
