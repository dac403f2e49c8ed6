"""Public data by digest, and the private data set by name: what certificates say of both, never of private records."""

from __future__ import annotations

import hashlib
import json

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given

import privcalc as pc
from privcalc.ledger import digest
from privcalc.ledger import digests as module

STEP = pc.Gaussian(20.0)
DATA = np.random.default_rng(0).standard_normal((20, 3))


def certified(public, plan=STEP * 2, path=None):
    with pc.Ledger(path, plan=plan, public=public) as ledger:
        ledger.gaussian(np.zeros(2), STEP, clip_norm=1.0)
    return pc.certify(ledger, delta=1e-5)


def line(kind, what):
    return b"privcalc digest 1\n" + json.dumps([kind, what], separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def test_what_is_hashed_is_what_the_page_says():
    """By hand, from the page."""
    array = np.array([[1, 2, 3], [4, 5, 6]], dtype=np.int16)
    little = b"\x01\x00\x02\x00\x03\x00\x04\x00\x05\x00\x06\x00"
    expected = line("array", ["int16", [2, 3]]) + little
    assert digest(array) == hashlib.sha256(expected).hexdigest()
    value = {"b": [None, "ü", 1.5], "a": array}
    expected = line("mapping", ["a", "b"]) + expected + line("list", 3) + line("value", None) + line("value", "ü")
    assert digest(value) == hashlib.sha256(expected + line("value", 1.5)).hexdigest()
    texts = line("items", [2]) + line("value", "x") + line("value", "yy")
    assert digest(np.array(["x", "yy"])) == hashlib.sha256(texts).hexdigest()


@given(
    arrays.arrays(
        dtype=arrays.scalar_dtypes().filter(lambda kind: kind.kind in "biufc" and kind.itemsize <= 8), shape=(2, 3)
    )
)
def test_layout_does_not_matter_and_every_bit_does(array):
    same = [np.asfortranarray(array), array.astype(array.dtype.newbyteorder(">")), np.repeat(array, 2, axis=0)[::2]]
    assert {digest(each) for each in same} == {digest(array)}
    other = array.copy()
    other.view(np.uint8)[1, -1] ^= 1
    assert (
        len({digest(each) for each in (array, other, array.reshape(3, 2), array.reshape(6), [array], array[:1])}) == 6
    )


def test_kinds_are_told_apart():
    values = [
        [],
        {},
        "",
        None,
        False,
        0,
        0.0,
        "0",
        [0],
        np.zeros(0),
        np.zeros((0, 2)),
        np.zeros(2),
        np.zeros(2, np.float32),
    ]
    values += [
        np.zeros(2, bool),
        np.zeros(16, np.uint8),
        {"a": []},
        {"a": {}},
        ["a", []],
        [["a"], []],
        np.array(["", ""]),
    ]
    assert len({digest(value) for value in values}) == len(values)


def test_tensors_are_what_their_arrays_are():
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    state = {name: value.numpy() for name, value in module.state_dict().items()}
    assert digest(module) == digest(module.state_dict()) == digest(dict(reversed(state.items())))
    assert digest(torch.tensor(DATA).T) == digest(DATA.T)
    half = torch.tensor(DATA, dtype=torch.bfloat16)
    assert digest(half) not in (digest(half.float()), digest(half.view(torch.int16)), digest(half.half()))
    jax = pytest.importorskip("jax")
    assert digest(jax.numpy.asarray(DATA.astype(np.float32))) == digest(torch.tensor(DATA).float())
    assert digest(jax.numpy.asarray(half.float().numpy(), dtype="bfloat16")) == digest(half)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, 2},
        b"raw",
        np.ma.masked_array(DATA),
        np.array(["2020"], dtype="datetime64[Y]"),
        [np.longdouble(1)],
        [float("nan")],
    ],
    ids=["object", "set", "bytes", "masked", "time", "long", "nan"],
)
def test_what_has_no_one_form_has_no_digest(value):
    with pytest.raises(pc.PrivcalcError):
        digest(value)


# --- in ledgers and certificates ---


def test_public_data_are_in_the_certificate_and_are_checked(tmp_path):
    network = {"w": DATA[:2], "step": [1, 2]}
    certificate = certified({"records": 20, "shared": DATA, "network": network, "classes": ["a", "b"]})
    public = certificate.document["public"]
    assert public["shared"] == {"sha256": digest(DATA), "of": "float64 (20, 3)"}
    assert public["classes"] == ["a", "b"]
    assert f"shared: float64 (20, 3), SHA-256 {digest(DATA)}" in str(certificate)
    certificate.save(tmp_path / "cert")
    again = pc.Certificate.load(tmp_path / "cert")
    found = again.verify(public={"shared": DATA.copy(), "network": network, "classes": ("a", "b"), "records": 20})
    assert "public data 'shared' are those that were given" in found
    other = DATA.copy()
    other[3, 1] = np.nextafter(other[3, 1], 9)
    for wrong in (
        {"shared": other},
        {"shared": DATA.astype(np.float32)},
        {"network": {**network, "step": [1, 3]}},
        {"records": 21},
    ):
        with pytest.raises(pc.Contradiction, match="the certificate says"):
            again.verify(public=wrong)
    with pytest.raises(pc.PrivcalcError, match="does not name it, only classes, network, records, shared") as info:
        again.verify(public={"start": DATA})
    assert not isinstance(info.value, pc.Contradiction)


def test_every_part_of_a_composition_is_about_the_same_public_data():
    one, other = certified({"shared": DATA}), certified({"shared": DATA[1:]})
    both = pc.certify([one, certified({"records": 20})], delta=1e-5)
    assert both.verify(public={"shared": DATA})[-1] == "public data 'shared' are those that were given"
    with pytest.raises(pc.Contradiction):
        pc.certify([one, other], delta=1e-5).verify(public={"shared": DATA})


def test_a_ledger_is_gone_on_with_on_the_same_public_data(tmp_path):
    path = tmp_path / "run.jsonl"
    ledger = pc.Ledger(path, plan=STEP * 2, public={"shared": DATA})
    ledger.pause()
    with pytest.raises(pc.PrivcalcError, match=r"other terms \(public\)"):
        pc.Ledger(path, plan=STEP * 2, public={"shared": DATA[::-1]})
    pc.Ledger(path, plan=STEP * 2, public={"shared": DATA.copy()}).close()
    with pytest.raises(pc.PrivcalcError, match="JSON"):
        pc.Ledger(None, plan=STEP, public={"scale": np.float32(3)})  # a number is a number, and no digest


@pytest.mark.parametrize("value", [DATA, DATA.tolist(), 7, "", " x", "a\nb", "n" * 101])
def test_a_private_data_set_has_a_name_and_never_a_digest(value):
    with pytest.raises(pc.PrivcalcError, match="must be a name"):
        pc.Ledger(None, plan=STEP, public={"dataset": value})


def test_a_digest_is_no_name():
    for value in (
        digest(DATA),
        f"sha256:{digest(DATA)}",
        hashlib.md5(b"x").hexdigest(),
        "6fa459ea-ee8a-3ca4-894e-db77e160355e",
    ):
        with pytest.raises(pc.PrivcalcError, match="looks like a digest"):
            pc.Ledger(None, plan=STEP, public={"dataset": value})
    certificate = certified({"dataset": "customers, export of May"})
    assert "dataset = customers, export of May (a name; what other ledgers of it released is not counted here)" in str(
        certificate
    )
    assert certificate.verify(public={"dataset": "customers, export of May"})


# --- learners ---


def learnt(monkeypatch, model, *public):
    """The certificate of a fit, and everything of which a digest was taken."""
    seen, take = [], module._parts

    def spy(value):
        seen.append(value)
        return take(value)

    monkeypatch.setattr(module, "_parts", spy)
    labels = np.arange(len(DATA)) % 2
    model.fit(DATA, labels, *public)
    monkeypatch.undo()
    private = {digest(kind(each)) for each in (DATA, labels) for kind in (np.float64, np.float32, np.int64)}
    taken = [digest(value) for value in seen]
    assert not private & set(taken)
    text = str(model.certificate_.document)
    assert not any(each in text for each in private)
    return model.certificate_, taken


def test_learners_declare_public_data_and_take_no_digest_of_private_ones(monkeypatch):
    torch = pytest.importorskip("torch")
    from learners import DPSGD, AdaMix, NoisyGD

    common = {"classes": [0, 1], "epsilon": 1.0, "delta": 1e-5, "records": 20, "steps": 3}
    shared, labels = DATA[:6] + 1, [0, 1] * 3
    certificate, _ = learnt(monkeypatch, AdaMix(**common, start=np.ones((3, 2)), dimension=None), shared, labels)
    assert certificate.document["public"]["X_public"]["sha256"] == digest(shared)
    assert module.same(
        [certificate.document], {"X_public": shared, "y_public": np.asarray(labels), "start": np.ones((3, 2))}
    )
    with pytest.raises(pc.Contradiction):
        module.same([certificate.document], {"start": np.zeros((3, 2))})

    plain, taken = learnt(monkeypatch, NoisyGD(**common))
    assert set(plain.document["public"]) == {"records", "classes", "learner"}
    assert taken == []

    first = torch.nn.Linear(3, 2)
    before = {name: value.clone() for name, value in first.state_dict().items()}
    certificate, taken = learnt(monkeypatch, DPSGD(**common, sample_rate=0.5, model=lambda: first))
    assert module.same([certificate.document], {"start": before})
    assert digest(before) in taken

    once = NoisyGD(**common).fit(DATA, np.arange(20) % 2)
    certificate, _ = learnt(monkeypatch, AdaMix(**common, start=once, dimension=None), shared, labels)
    assert module.same(certificate.document["parts"], {"start": once.weights_})


def test_data_are_those_of_a_digest_that_was_made_by_hand():
    data = np.arange(6.0).reshape(2, 3)
    parts = [{"public": {"means": digest(data), "list": digest([1, 2])}}]
    assert len(module.same(parts, {"means": data, "list": [1, 2]})) == 2
    for wrong in (data + 1, data.astype(np.float32), digest(data)[::-1], [1, 2]):
        with pytest.raises(pc.Contradiction):
            module.same(parts, {"means": wrong})


def test_a_table_is_told_what_to_give():
    with pytest.raises(pc.PrivcalcError, match="of a table give"):
        module.constants({"table": pytest.importorskip("pandas").DataFrame({"a": [1]})})


def test_texts_of_any_length_have_a_digest():
    names = ["soc.religion.christian", "b", ""]
    assert digest(np.array(names)) == digest(np.array(names, dtype=object)) == digest(np.array(names).astype("<U99"))
    assert digest(np.array(names)) != digest(np.array([*names[:2], "c"]))


def test_the_number_of_records_may_be_of_numpy():
    """As a sum of a mask is: it was refused as no JSON."""
    public = pc.Ledger(None, plan=pc.Gaussian(2.0), public={"records": np.arange(20).astype(bool).sum()}).terms.public
    assert public == {"records": 19}
    assert type(public["records"]) is int
