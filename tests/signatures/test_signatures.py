"""Signatures and keys: what was forged, cut, replayed, swapped or confused is refused."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil

import pytest

pytest.importorskip("cryptography")

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa, x25519
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

import privcalc as pc
from privcalc.certificate.schema import digest
from privcalc.cli import main
from privcalc.serial import canonical
from privcalc.signatures import Signature, check, fingerprint, generate, private_key, public_key, sign

STEP = pc.Gaussian(noise_multiplier=10.0)
PEM = serialization.Encoding.PEM


def draw(ledger, times):
    for _ in range(times):
        ledger.gaussian([0.0], STEP, clip_norm=1.0)


@pytest.fixture
def key(tmp_path):
    generate(tmp_path / "key")
    return tmp_path / "key"


@pytest.fixture
def ledger(tmp_path):
    with pc.Ledger(tmp_path / "ledger", plan=STEP * 9) as found:
        draw(found, 3)
        found.pause()
    return tmp_path / "ledger"


@pytest.fixture(params=["certificate", "ledger"])
def signed(request, tmp_path, key, ledger):
    """A file, its signature, and the public key."""
    path = ledger
    if request.param == "certificate":
        path = tmp_path / "certificate"
        pc.certify(STEP * 9, delta=1e-5).save(path)
    sign(path, key).save(tmp_path / "sig")
    return path, tmp_path / "sig", tmp_path / "key.pub"


def changed(path, **fields):
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, **fields}))


def test_what_was_signed_is_confirmed_by_the_standard(signed):
    """RFC 8032's algorithm over the bytes that the page states, with no code of ours."""
    _, sig, public = signed
    assert "all of this" in check(*signed)[0]
    document = json.loads(sig.read_text())
    made = base64.b64decode(document.pop("signature"))
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    raw = serialization.load_pem_public_key(public.read_bytes()).public_bytes(
        serialization.Encoding.Raw, serialization.PublicFormat.Raw
    )
    Ed25519PublicKey.from_public_bytes(raw).verify(made, b"privcalc signature, version 1\n" + text.encode())
    assert document["key"] == fingerprint(public_key(public))


@pytest.mark.parametrize("name", ["hash", "time", "lines", "closed", "of"])
def test_a_changed_statement_is_refused(signed, name):
    other = {"hash": "0" * 64, "time": "2020-01-01T00:00:00+00:00", "lines": 3, "closed": True}
    document = json.loads(signed[1].read_text())
    other["of"] = "ledger" if document["of"] == "certificate" else "certificate"
    changed(signed[1], **{name: other[name]})
    with pytest.raises(pc.Contradiction, match="is wrong"):
        check(*signed)


@pytest.mark.parametrize("place", [0, 31, 32, 63])
def test_every_byte_of_a_signature_counts(signed, place):
    made = bytearray(base64.b64decode(json.loads(signed[1].read_text())["signature"]))
    made[place] ^= 1
    changed(signed[1], signature=base64.b64encode(made).decode())
    with pytest.raises(pc.Contradiction, match="is wrong"):
        check(*signed)


def test_a_signature_has_one_form(signed):
    """Ed25519's S + L, other base64, and lengths: nothing but the signature that was made."""
    text = json.loads(signed[1].read_text())["signature"]
    made = base64.b64decode(text)
    order = 2**252 + 27742317777372353535851937790883648493
    larger = made[:32] + (int.from_bytes(made[32:], "little") + order).to_bytes(32, "little")
    for other in (
        base64.b64encode(larger).decode(), "", text + "=", text + "\n", text[:-4], text[:-3] + "B==",
        base64.b64encode(made * 2).decode(),
    ):  # fmt: skip
        changed(signed[1], signature=other)
        with pytest.raises(pc.Contradiction, match=r"is wrong|base64"):
            check(*signed)


def test_another_key_is_refused_also_if_the_signature_names_it(signed, tmp_path):
    path, sig, public = signed
    other = generate(tmp_path / "other")
    with pytest.raises(pc.Contradiction, match="not of"):
        check(path, sig, other)
    changed(sig, key=fingerprint(public_key(other)))  # claims to be of the key that is trusted
    with pytest.raises(pc.Contradiction, match="is wrong"):
        check(path, sig, other)
    sign(path, tmp_path / "other").save(tmp_path / "forged")
    changed(tmp_path / "forged", key=fingerprint(public_key(public)))
    with pytest.raises(pc.Contradiction, match="is wrong"):
        check(path, tmp_path / "forged", public)


P = 2**255 - 19
EIGHTH = 2707385501144840649318225287225658788936804267575313519463743609750303402022  # y of a point of order 8


@pytest.mark.parametrize("sign_bit", [0, 1])
@pytest.mark.parametrize(
    "y", [0, 1, P - 1, P, P + 1, EIGHTH, P - EIGHTH], ids=["0", "1", "-1", "p", "p+1", "8th", "-8th"]
)
def test_a_key_of_small_order_is_refused(signed, tmp_path, y, sign_bit):
    """Anybody makes signatures of it: with (the point 1, 0) for one in eight messages, of which the time makes many."""
    path, sig, _ = signed
    weak = Ed25519PublicKey.from_public_bytes((y + (sign_bit << 255)).to_bytes(32, "little"))
    forged = base64.b64encode(b"\x01" + bytes(63)).decode()
    for second in range(150):
        changed(sig, key=fingerprint(weak), time=f"{second}", signature=forged)
        with contextlib.suppress(InvalidSignature):
            weak.verify(base64.b64decode(forged), Signature.load(sig).signed)
            break
    else:
        assert y in (P, P + 1) or (sign_bit and y in (1, P - 1))  # encodings that this verifier reads otherwise, or not
    (tmp_path / "weak").write_bytes(weak.public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(pc.PrivcalcError, match="small order"):
        check(path, sig, tmp_path / "weak")


def test_a_signature_of_something_else_is_refused(signed, key, tmp_path):
    _, sig, public = signed
    pc.certify(STEP * 8, delta=1e-5).save(tmp_path / "other")
    with pytest.raises(pc.Contradiction, match="is of another"):
        check(tmp_path / "other", sig, public)
    # Raw bytes of the same content, signed with the same key for another purpose.
    document = json.loads(sig.read_text())
    body = {name: value for name, value in document.items() if name != "signature"}
    changed(sig, signature=base64.b64encode(private_key(key).sign(canonical(body).encode())).decode())
    with pytest.raises(pc.Contradiction, match="is wrong"):
        check(*signed)


@pytest.mark.parametrize(
    ("field", "value"),
    [("algorithm", "none"), ("algorithm", "HS256"), ("algorithm", ""), ("version", 2), ("version", True), ("extra", 1)],
)
def test_no_other_algorithm_version_or_field(signed, field, value):
    changed(signed[1], **{field: value})
    with pytest.raises(pc.PrivcalcError, match="signature"):
        check(*signed)


def test_bytes_after_the_end_are_seen(signed):
    path, sig, public = signed
    whole = path.read_bytes()
    for more in (b"x", b"{}\n", b"\0"):
        path.write_bytes(whole + more)
        with pytest.raises(pc.PrivcalcError):
            check(path, sig, public)
    path.write_bytes(whole)
    text = sig.read_text()
    sig.write_text(text + "{}")
    with pytest.raises(pc.PrivcalcError, match="one whole JSON object"):
        check(path, sig, public)
    sig.write_text(text.replace('"of"', '"of": "ledger", "of"', 1))
    with pytest.raises(pc.PrivcalcError, match="occurs twice"):
        check(path, sig, public)


def test_a_cut_grown_or_rewritten_ledger_is_seen(ledger, key, tmp_path):
    public = key.with_name("key.pub")
    sign(ledger, key).save(tmp_path / "sig")
    whole = ledger.read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in range(1, len(lines)):
        ledger.write_bytes(b"".join(lines[:cut]))
        with pytest.raises(pc.Contradiction, match=f"first {len(lines)} lines"):
            check(ledger, tmp_path / "sig", public)
    ledger.write_bytes(whole)
    shutil.copy(ledger, tmp_path / "older")
    with pc.Ledger(ledger, plan=STEP * 9) as gone_on:
        draw(gone_on, 1)
    with pytest.raises(pc.Contradiction, match="and it has"):
        check(ledger, tmp_path / "sig", public)
    with pc.Ledger(tmp_path / "new", plan=STEP * 9) as other:  # as many lines, and a whole chain
        other.record(STEP)
        for _ in range(len(lines) - 2):
            other.record(STEP * 2)
        other.pause()
    with pytest.raises(pc.Contradiction, match="another ledger"):
        check(tmp_path / "new", tmp_path / "sig", public)
    check(
        tmp_path / "older", tmp_path / "sig", public
    )  # replayed together: no signature can tell; the budget's anchors do


def test_private_keys_are_their_owners_alone(key, ledger, tmp_path):
    assert key.stat().st_mode & 0o777 == 0o600
    for mode in (0o640, 0o604, 0o620, 0o644):
        key.chmod(mode)
        with pytest.raises(pc.PrivcalcError, match="its owner's alone"):
            sign(ledger, key)
    key.chmod(0o400)
    sign(ledger, key)
    for there in (tmp_path / "key", tmp_path / "x"):
        (tmp_path / "x.pub").touch()
        with pytest.raises(pc.PrivcalcError, match="is there already"):
            generate(there)


def test_encrypted_keys_need_their_passphrase(ledger, tmp_path):
    public = generate(tmp_path / "locked", passphrase="correct horse")
    assert b"ENCRYPTED" in (tmp_path / "locked").read_bytes()
    for wrong in (None, "wrong"):
        with pytest.raises(pc.PrivcalcError, match="passphrase"):
            sign(ledger, tmp_path / "locked", passphrase=wrong)
    assert check(ledger, sign(ledger, tmp_path / "locked", passphrase="correct horse"), public)
    generate(tmp_path / "open")
    with pytest.raises(pc.PrivcalcError, match="is not encrypted"):
        sign(ledger, tmp_path / "open", passphrase="correct horse")
    with pytest.raises(pc.PrivcalcError, match="must not be empty"):
        generate(tmp_path / "empty", passphrase="")


@pytest.mark.parametrize(
    "make",
    [
        lambda: rsa.generate_private_key(public_exponent=65537, key_size=1024),
        lambda: ec.generate_private_key(ec.SECP256R1()),
        x25519.X25519PrivateKey.generate,
        ed448.Ed448PrivateKey.generate,
    ],
    ids=["rsa", "ecdsa", "x25519", "ed448"],
)
def test_no_other_kinds_of_keys(ledger, key, tmp_path, make):
    other = make()
    (tmp_path / "other").write_bytes(
        other.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    (tmp_path / "other").chmod(0o600)
    with pytest.raises(pc.PrivcalcError, match="must be an Ed25519 key"):
        sign(ledger, tmp_path / "other")
    (tmp_path / "pub").write_bytes(
        other.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    with pytest.raises(pc.PrivcalcError, match="must be an Ed25519 key"):
        check(ledger, sign(ledger, key), tmp_path / "pub")


def test_a_private_key_is_not_asked_for_to_verify(signed, key, tmp_path):
    with pytest.raises(pc.PrivcalcError, match="is a private key"):
        check(signed[0], signed[1], key)
    (tmp_path / "junk").write_text("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")
    with pytest.raises(pc.PrivcalcError, match="is no public key"):
        check(signed[0], signed[1], tmp_path / "junk")


def test_keys_are_never_in_a_ledger_or_signature(ledger, key, tmp_path):
    secret = private_key(key).private_bytes_raw()
    sign(ledger, key).save(tmp_path / "sig")
    for path in (ledger, tmp_path / "sig", tmp_path / "key.pub"):
        data = path.read_bytes()
        assert secret not in data
        assert secret.hex().encode() not in data
        assert base64.b64encode(secret) not in data
    assert isinstance(private_key(key), ed25519.Ed25519PrivateKey)


def test_the_commands(tmp_path, capsys, ledger):
    certificate = tmp_path / "certificate"
    pc.certify(STEP * 9, delta=1e-5).save(certificate)
    (tmp_path / "pass").write_text("correct horse\n")
    names = [str(tmp_path / name) for name in ("key", "pass", "key.pub")]
    assert main(["key", names[0], "--passphrase-file", names[1]]) == 0
    for path in (certificate, ledger):
        assert main(["sign", str(path), "--key", names[0], "--passphrase-file", names[1]]) == 0
        capsys.readouterr()
        assert main(["verify", str(path), "--key", names[2]]) == 0
        out = capsys.readouterr().out
        assert out.startswith("VERIFIED: ")
        assert "signed, with the key that was given" in out
    shutil.copy(f"{ledger}.sig", f"{certificate}.sig")
    assert main(["verify", str(certificate), "--key", names[2]]) == 1
    assert main(["verify", str(ledger), "--key", names[2], "--signature", names[1]]) == 2
    assert main(["verify", str(certificate), "--signature", f"{ledger}.sig"]) == 2
    with pc.Ledger(ledger, plan=STEP * 9):
        pass
    assert main(["verify", str(ledger), "--key", names[2]]) == 1
    assert main(["sign", str(ledger), "--key", names[0]]) == 2
    assert "there is none; give --passphrase-file" in capsys.readouterr().err


def test_a_signature_is_read_as_it_was_saved(signed):
    assert canonical(dict(Signature.load(signed[1]).document)) == canonical(json.loads(signed[1].read_text()))


def test_public_and_private_keys_are_told_apart_and_kept(key, ledger, tmp_path):
    public = key.with_name(key.name + ".pub")
    with pytest.raises(pc.PrivcalcError, match="is a public key; signing needs the private one"):
        sign(ledger, public)
    before = key.read_bytes()
    with pytest.raises(pc.PrivcalcError, match="must not be a key, which would be lost"):
        sign(ledger, key).save(key)
    assert key.read_bytes() == before


# What is signed is what the file says: however it is written, and nothing else


@pytest.fixture
def certified(tmp_path, key):
    """A signed certificate with words in it, its signature, and the public key."""
    path = tmp_path / "certificate"
    pc.certify(STEP * 9, delta=1e-5, unit="one café", not_accounted=["x"]).save(path)
    sign(path, key).save(tmp_path / "sig")
    return path, tmp_path / "sig", key.with_name("key.pub")


def test_one_text_written_in_other_ways_is_the_same_text(certified):
    path, sig, public = certified
    document = json.loads(path.read_text())
    for text in (
        json.dumps(document),
        json.dumps(document, ensure_ascii=False, indent=7, sort_keys=True),
        json.dumps(dict(reversed(document.items()))).replace("1e-05", "0.00001"),
    ):
        path.write_text(text, encoding="utf-8")
        assert "all of this" in check(path, sig, public)[0]


@pytest.mark.parametrize(
    ("this", "that"),
    [
        ("caf\\u00e9", "cafe\\u0301"),  # looks the same, and is another text
        ("caf\\u00e9", "c\\u0430f\\u00e9"),  # a Cyrillic letter
        ('"seeded": false', '"seeded": 0'),
        ('"seeded": false', '"seeded": null'),
        ('"version": 4', '"version": 4.0'),
        ('"count": 9', '"count": 9.0'),
        ('"confirmed": []', '"confirmed": [{}]'),  # a flag that says that it was proved
        ('"unit":', '"unit ":'),
    ],
)
def test_another_text_that_looks_or_compares_the_same_is_refused(certified, this, that):
    path, sig, public = certified
    text = json.dumps(json.loads(path.read_text()))
    assert this in text
    path.write_text(text.replace(this, that, 1))
    with pytest.raises(pc.PrivcalcError):
        check(path, sig, public)


@pytest.mark.parametrize(
    "more",
    ['"unit": "one visit", ', '"\\u0075nit": "one visit", ', '"hash": "0", ', '"x": "\\ud800", ', '"x": NaN, ',
     '"x": 1e999, ',
     '"x": ' + "[" * 100_000 + ", ", '"x": ' + "9" * 10_000 + ", "],
    ids=["twice", "escaped", "hash", "surrogate", "nan", "infinity", "deep", "long"],
)  # fmt: skip
def test_what_parsers_disagree_on_is_refused(certified, more):
    """Of names that occur twice one parser takes the first, another the last: both would see a right signature."""
    path, sig, public = certified
    text = json.dumps(json.loads(path.read_text()))
    for changed_text in ("{" + more + text[1:], text[:-1] + ", " + more.rstrip(", ") + "}"):
        path.write_text(changed_text)
        with pytest.raises(pc.PrivcalcError):
            check(path, sig, public)
    path.write_text(text)
    document = sig.read_text()
    sig.write_text("{" + more + document.strip()[1:])
    with pytest.raises(pc.PrivcalcError):
        check(path, sig, public)


def test_a_signature_is_no_verification(certified, key, tmp_path, capsys):
    """Who signs a number that is wrong has signed it; verify --key asks for both."""
    path, _, public = certified
    document = json.loads(path.read_text())
    document["guarantee"]["epsilon"]["upper"] = document["guarantee"]["epsilon"]["lower"] = 0.01
    path.write_text(json.dumps({**document, "hash": digest(document)}))
    sign(path, key).save(tmp_path / "forged")
    assert check(path, tmp_path / "forged", public)
    assert main(["verify", str(path), "--key", str(public), "--signature", str(tmp_path / "forged")]) == 1
    assert capsys.readouterr().out.startswith("WRONG: ")


def test_the_name_of_a_file_is_not_signed_and_proves_nothing(certified, key, tmp_path):
    """An old signature beside a new certificate, and a part's beside the composition."""
    path, sig, public = certified
    pc.certify([pc.Certificate.load(path)] * 2, delta=1e-5).save(tmp_path / "both")
    shutil.copy(sig, tmp_path / "both.sig")
    assert main(["verify", str(tmp_path / "both"), "--key", str(public)]) == 1
    for fields in ({"of": "certificate", "lines": 3}, {"of": "certificate", "closed": True}):
        secret = private_key(key)
        body = {**{name: value for name, value in json.loads(sig.read_text()).items() if name != "signature"}, **fields}
        made = base64.b64encode(secret.sign(Signature(body).signed)).decode()
        with pytest.raises(pc.Contradiction, match="is of another"):
            check(path, Signature({**body, "signature": made}), public)


def test_a_file_of_several_keys_is_refused(certified, tmp_path):
    path, sig, public = certified
    other = generate(tmp_path / "other")
    sign(path, tmp_path / "other").save(tmp_path / "others")
    two = tmp_path / "two.pub"
    two.write_bytes(other.read_bytes() + public.read_bytes())
    for made in (sig, tmp_path / "others"):
        with pytest.raises(pc.PrivcalcError, match="one key"):
            check(path, made, two)


def test_no_text_of_a_signature_reaches_the_terminal_as_it_is(certified):
    path, sig, public = certified
    for name in ("key", "time"):
        before = sig.read_text()
        changed(sig, **{name: "\x1b]0;signed, with the key that was given\x07\nsigned"})
        with pytest.raises(pc.Contradiction) as caught:
            check(path, sig, public)
        assert str(caught.value).isprintable()
        sig.write_text(before)
