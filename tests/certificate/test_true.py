"""What certificates say is true of what ran: each was false, or missing, once."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from strategies import EXAMPLES

import privcalc as pc
from privcalc.certificate.assumed import SEEN, words
from privcalc.certificate.html import sheet
from privcalc.certificate.registry import record
from privcalc.certificate.schema import digest
from privcalc.certificate.text import facts, plain
from privcalc.ledger.assumptions import PAGES
from privcalc.serial import parts

STEP = pc.Gaussian(noise_multiplier=20.0)
ONE_WAY = [pc.ExponentialMechanism(0.1), pc.PermuteAndFlip(0.1), pc.NoisyMax(0.1, noise="laplace"), pc.TopK(0.1, k=1)]


def drawn(*releases, close=True, **terms):
    """A certificate of a ledger that made some releases, each a function of it."""
    ledger = pc.Ledger(None, **terms)
    for release in releases:
        release(ledger)
    if close:
        ledger.close()
    return pc.certify(ledger, delta=1e-5)


def summed(ledger):
    return ledger.gaussian([1.0], STEP, clip_norm=1.0)


def said(certificate, name):
    """Each line about something: its value, who saw to it, and of which parts it is."""
    needed = certificate.document["assumptions"]["needed"]
    return [(each["value"], each["by"], each.get("parts")) for each in needed if each["name"] == name]


def test_every_line_has_its_place_and_its_words():
    assert set(words()) == {*PAGES, *SEEN, "basis"}


# --- scores that a record can only raise --------------------------------------------------------


@pytest.mark.parametrize("mechanism", ONE_WAY, ids=lambda one: type(one).__name__)
def test_whose_word_it_is_that_scores_are_monotone(mechanism):
    """Half the noise was taken on the caller's word, of which the certificate said nothing."""
    assert said(pc.certify(mechanism, delta=1e-5), "monotone") == [("one way", "nobody", None)]
    own = pc.certify(mechanism, delta=1e-5, assumptions=pc.Assumptions(monotone="one way"))
    assert said(own, "monotone") == [("one way", "caller", None)]
    asked = drawn(lambda ledger: ledger.select([1.0, 2.0], mechanism, sensitivity=1.0, monotone=True), plan=mechanism)
    assert said(asked, "monotone") == [("one way", "caller", None)]
    assert "monotone: NOT SAID, taken to be one way: a record can only raise" in str(pc.certify(mechanism, delta=1e-5))
    assert asked.verify(seconds=math.inf)


def test_a_gate_and_a_table_say_it_too():
    gate = pc.AboveThreshold.of(epsilon=1.0, monotone=True)
    opened = drawn(lambda ledger: ledger.above(gate, sensitivity=1.0), plan=gate)
    assert said(opened, "monotone") == [("one way", "caller", None)]
    rows = {"candidates": [1, 2], "rows_per_person": 1}
    table = drawn(lambda ledger: ledger.top([1, 2, 2], pc.TopK(0.1, 1), **rows), cap=pc.GDP(1.0))
    assert said(table, "monotone") == [("one way", "ledger", None)]


@pytest.mark.parametrize("one", [each for each in EXAMPLES if hasattr(each, "monotone")], ids=str)
def test_a_flag_is_said_of_every_mechanism_that_has_one(one):
    assert "monotone" in one.needs
    value = "one way" if one.monotone else "either way"
    (found,) = said(pc.certify(one, delta=1e-5), "monotone")
    assert found == (value, "nobody" if one.monotone else "code", None)


def test_of_two_ways_the_one_that_is_assumed_is_listed():
    both = pc.ExponentialMechanism(1.0) + pc.ExponentialMechanism(1.0, monotone=False)
    assert said(pc.certify(both, delta=1e-5), "monotone") == [("one way", "nobody", None)]


# --- compositions --------------------------------------------------------------------------------


def test_a_composition_says_of_which_parts_its_lines_are():
    """It said "steps: public: fixed in advance" of parts of which one was capped, and "start" of all."""
    capped, by_hand = drawn(summed, cap=pc.GDP(1.0)), pc.certify(STEP, delta=1e-5)
    both = pc.certify([capped, by_hand], delta=1e-5)
    assert said(both, "steps") == [("released", "nobody", [1]), ("public", "nobody", [2])]
    assert "steps (part 2): NOT SAID, taken to be public: fixed in advance" in str(both)
    assert "part 1          by its cap run" in str(both)

    def begin(ledger):
        ledger.say(start=by_hand)
        summed(ledger)

    tuned = pc.certify([by_hand, drawn(begin, plan=STEP)], delta=1e-5)
    assert said(tuned, "start") == [("public", "nobody", [1])]  # the other one's is said, by its hash
    for found in (both, tuned, pc.certify([both, tuned], delta=1e-5)):
        assert found.verify(seconds=math.inf)


def test_a_line_of_another_part_contradicts():
    both = pc.certify([drawn(summed, cap=pc.GDP(1.0)), pc.certify(STEP, delta=1e-5)], delta=1e-5).document
    for parts_of in ([2], [1, 2], [3], ["1"], None):
        needed = [{**each, "parts": parts_of} if "parts" in each else each for each in both["assumptions"]["needed"]]
        forged = {**both, "assumptions": {**both["assumptions"], "needed": needed}}
        with pytest.raises(pc.Contradiction, match="assumptions"):
            pc.Certificate({**forged, "hash": digest(forged)}).verify(seconds=math.inf)


# --- pages ---------------------------------------------------------------------------------------


def test_a_cap_cites_the_filter_and_what_it_admitted():
    """Only the page of the one guarantee was cited."""
    poisson = pc.PoissonSampled(pc.Gaussian(9.0), 0.1)
    capped = drawn(summed, lambda ledger: ledger.record(poisson + pc.Laplace(50.0)), cap=pc.RDP([2.0, 8.0], [1.0, 4.0]))
    composed = pc.certify([capped, pc.certify(STEP, delta=1e-5)], delta=1e-5)
    for found in (capped, composed):
        assert {"filters.md", "poisson.md", "gaussian.md", "laplace.md"} <= set(found.document["proofs"])
        assert found.verify(seconds=math.inf)
    assert "filters.md" not in drawn(summed, plan=STEP).document["proofs"]
    forged = {**capped.document, "proofs": [page for page in capped.document["proofs"] if page != "filters.md"]}
    with pytest.raises(pc.Contradiction, match="proofs: must be"):
        pc.Certificate({**forged, "hash": digest(forged)}).verify(seconds=math.inf)


def test_learners_cite_their_own_page():
    learners = pytest.importorskip("learners")
    root = Path(pc.__file__).parents[1]
    for name in learners.__all__:
        kind = getattr(learners, name)
        if hasattr(kind, "page"):
            assert (root / "proofs" / kind.page).is_file(), name
    model = learners.NoisyGD(classes=[0, 1], delta=1e-5, noise_multiplier=20.0, steps=2, records=40)
    features, labels = np.eye(2).repeat(20, axis=0), [0] * 20 + [1] * 20
    certificate = model.fit(features, labels).certificate_
    assert "noisy_gd.md" in certificate.document["proofs"]
    assert certificate.verify(model.ledger_, seconds=math.inf)

    class Mine(learners.NoisyGD):
        """Somebody else's, for whom our page vouches for nothing."""

    other = (
        Mine(classes=[0, 1], delta=1e-5, noise_multiplier=20.0, steps=2, records=40).fit(features, labels).certificate_
    )
    assert "noisy_gd.md" not in other.document["proofs"]


# --- noise ---------------------------------------------------------------------------------------


def test_noise_from_a_seed_protects_nobody_and_is_not_called_exact():
    seeded = drawn(summed, plan=STEP, seed=3)
    assert said(seeded, "noise") == [("from a seed", "caller", None)]
    assert said(seeded, "randomness") == [("from a seed", "caller", None)]
    assert seeded.document["noise"] == "from a seed"
    assert "it protects nobody" in str(seeded)
    both = pc.certify([drawn(summed, plan=STEP), seeded], delta=1e-5)
    assert said(both, "noise") == [("exact", "ledger", [1]), ("from a seed", "caller", [2])]
    assert both.document["noise"] == "in part from a seed"
    assert "exact" not in str(seeded)
    for found in (seeded, both):
        assert found.verify(seconds=math.inf)


def test_a_learners_choice_needs_that_nobody_is_there_twice():
    """A vote was certified without a word on copies, preprocessing, or how many records a person has."""
    learners = pytest.importorskip("learners")
    features, labels = np.eye(2).repeat(20, axis=0), [0] * 20 + [1] * 20
    model = learners.DPPLPublic(classes=[0, 1], epsilon=1.0).fit(features, labels, X_public=np.eye(2) * 0.9)
    for name in ("copies", "preprocessing"):
        assert [by for _, by, _ in said(model.certificate_, name)] == ["nobody"]
    assert said(model.certificate_, "records_per_unit") == [("by definition", "always", None)]


def test_a_private_search_says_what_our_code_did():
    """Its trials, clipping, noise and batches were "declared by the caller"."""
    learners = pytest.importorskip("learners")
    features, labels = np.eye(2).repeat(20, axis=0), [0] * 20 + [1] * 20
    one = learners.DPSGD(classes=[0, 1], delta=1e-5, noise_multiplier=20.0, steps=2, sample_rate=0.5, records=40)
    tries = {"params": {"learning_rate": [1.0]}, "mean": 2, "distribution": "geometric"}
    search = learners.PrivateSearch(estimator=one, score_noise=pc.Gaussian(20.0), **tries).fit(features, labels)
    found = search.certificate_
    for name in ("trials", "sensitivity", "normaliser", "sampling", "noise", "steps", "start"):
        assert [by for _, by, _ in said(found, name)] == ["code"], name
    assert found.document["noise"] == "by our code"
    assert "caller" not in "".join(line for line in str(found).splitlines() if line.startswith("seen to"))
    assert "dpsgd.md" in found.document["proofs"]
    assert found.verify(search.ledger_, seconds=math.inf)


# --- forms ---------------------------------------------------------------------------------------


def test_every_form_prints_every_line():
    """Once forms lacked parts, targets, labels and public numbers, or Bayes risk and reconstruction."""
    target = pc.Guarantee(epsilon=3.0, delta=1e-5)
    terms = {"plan": STEP * 9, "target": target, "public": {"records": 50}}
    one = drawn(lambda ledger: ledger.gaussian([1.0], STEP, clip_norm=1.0, label="May"), **terms)
    for certificate in (one, drawn(summed, summed, cap=pc.GDP(1.0)), pc.certify([one, one], delta=1e-5)):
        document = certificate.document
        lines = [plain(fact.text) for fact in facts(document)]
        assert all(line in str(certificate) for line in lines)
        made = record(document)["deployment"]
        assert str(document["ledgers"][0]["hash"]) in made["implementation"]["additional_information"]
    assert "Bayes risk" in str(one)
    for line in ("May", "records = 50", "epsilon = 3.0", "recorded", "also"):
        assert line in str(one)
    assert "part 2" in str(pc.certify([one, one], delta=1e-5))
    assert re.search(r"May", sheet(one.document))


def test_a_page_shouts_what_was_not_said_and_has_no_empty_table():
    pytest.importorskip("matplotlib")
    from privcalc.certificate.html import page

    by_hand = page(pc.certify(STEP, delta=1e-5))
    assert "<strong>NOT SAID</strong>" in by_hand
    assert "<strong>NOBODY</strong>: steps, " in by_hand
    assert "not said" not in by_hand
    assert not re.search(r"<table>\s*</table>", by_hand)


@pytest.mark.usefixtures("unnumbered")
def test_what_every_mechanism_is_made_of_is_looked_at():
    """A wrapped choice has the line of what it wraps."""
    tried = pc.RandomTrials(pc.ExponentialMechanism(0.1) * 2, mean=2, distribution="geometric")
    assert parts(tried)
    assert said(pc.certify(tried, delta=1e-5), "monotone") == [("one way", "nobody", None)]


def test_a_table_asked_both_ways_does_not_deny_the_cheaper_one():
    """It said "either way: the price is that of scores that a record may move either way" of a top that cost half."""
    rows = {"candidates": [1, 2], "rows_per_person": 1}
    either = pc.ExponentialMechanism(0.1, monotone=False)
    both = drawn(
        lambda ledger: ledger.quantile([1, 2, 2], either, share=0.5, **rows),
        lambda ledger: ledger.top([1, 2, 2], pc.TopK(0.1, 1), **rows),
        cap=pc.GDP(1.0),
    )
    assert said(both, "monotone") == [("one way", "ledger", None)]
    assert "but those that are priced for either way" in str(both)  # the quantile is one
    assert both.verify(seconds=600)


@pytest.mark.usefixtures("unnumbered")
def test_nobody_said_whose_records_are_where_nobody_was_asked():
    """Of a run by hand it said that whose each record is "was said (declared by the caller)"."""
    users = pc.UserSampled(pc.Gaussian(20.0), rate=0.5, records=2)
    assert said(pc.certify(users, delta=1e-5), "records_per_unit") == [("grouped", "nobody", None)]
    recorded = drawn(lambda ledger: ledger.record(users), plan=users)
    assert said(recorded, "records_per_unit") == [("grouped", "nobody", None)]

    def asked(ledger):
        batch = ledger.batch(users, persons=[0, 0, 1])
        ledger.gaussian([0.0], users, clip_norm=1.0, batch=batch)

    assert said(drawn(asked, plan=users), "records_per_unit") == [("grouped", "caller", None)]
    assert "was said" not in str(pc.certify(users, delta=1e-5))


def test_a_choice_that_was_only_recorded_is_not_said_to_have_been_charged_for_each_row():
    """The ledger, which drew one choice, vouched for what it never saw of another."""
    one = pc.ExponentialMechanism(0.1)
    mixed = drawn(
        lambda ledger: ledger.select([1.0, 2.0], one, sensitivity=1.0, monotone=True),
        lambda ledger: ledger.record(one),
        plan=one * 2,
    )
    assert said(mixed, "parts") == said(pc.certify(one, delta=1e-5), "parts") == [("as counted", "caller", None)]
    assert "a choice that no ledger drew was of one row of scores, or was written down once for each" in str(mixed)
    disjoint = pc.certify(one, delta=1e-5, assumptions=pc.Assumptions(parts="disjoint"))
    assert said(disjoint, "parts") == [("disjoint", "caller", None)]


def test_a_seed_that_drew_nothing_is_not_blamed():
    """It said "from a seed", and "by other code", of the same noise."""
    recorded = drawn(lambda ledger: ledger.record(STEP), plan=STEP, seed=3)
    assert said(recorded, "randomness") == [("perfect", "always", None)]
    assert recorded.document["noise"] == "by other code"
    assert "NO PRIVACY CLAIM" in str(recorded)  # a seeded ledger claims none, whatever it drew
    opened = drawn(lambda ledger: ledger.record(STEP), plan=STEP * 2, seed=3, close=False)
    assert said(opened, "randomness") == [("from a seed", "caller", None)]  # what it may still draw


def test_weak_noise_hides_no_other():
    """Of a seed, and noise of other code, only the former was named."""
    seeded, other = drawn(summed, plan=STEP, seed=3), drawn(lambda ledger: ledger.record(STEP), plan=STEP)
    both = pc.certify([seeded, other], delta=1e-5)
    assert said(both, "noise") == [("from a seed", "caller", [1]), ("by other code", "caller", [2])]
    mixed = drawn(summed, lambda ledger: ledger.record(STEP), plan=STEP * 2, seed=3)
    for found in (both, mixed, pc.certify([both, mixed], delta=1e-5)):
        assert found.document["noise"] == "in part from a seed, in part by other code"
        assert found.verify(seconds=math.inf)
    assert "it protects nobody" in str(mixed)
    assert "that part on the caller's word" in str(mixed)


@pytest.mark.usefixtures("unnumbered")
def test_a_line_cites_all_its_pages():
    """Two samplers cited the page of one."""
    cut = pc.TruncatedPoissonSampled(STEP, 0.1, batch_size=100, dataset_size=500)
    several = pc.certify(pc.PoissonSampled(STEP, 0.1) + cut, delta=1e-5)
    (line,) = [each for each in several.document["assumptions"]["needed"] if each["name"] == "sampling"]
    assert (line["value"], line["page"]) == ("poisson; poisson, cut", "poisson.md, truncated.md")


def test_a_line_stands_once():
    """A clip norm stood there twice, once for each page."""
    kinds_of = pc.certify(STEP + pc.Laplace(20.0), delta=1e-5)
    parts_of = pc.certify([pc.certify(STEP, delta=1e-5), pc.certify(pc.Laplace(20.0), delta=1e-5)], delta=1e-5)
    for found in (kinds_of, parts_of):
        assert said(found, "clip_norm") == [("public", "nobody", None)]
        assert {"gaussian.md", "laplace.md"} <= set(found.document["proofs"])
        assert not any("," in page for page in found.document["proofs"])
        assert found.verify(seconds=math.inf)


STATED = [
    *(pc.PureDP(0.1), pc.ZCDP(0.1), pc.RDP([2.0, 4.0], [0.1, 0.2]), pc.GDP(0.1), pc.ApproxDP(0.1, 1e-9)),
    pc.CustomMechanism.from_probabilities([0.75, 0.25], [0.25, 0.75]),
]


@pytest.mark.parametrize("one", STATED, ids=lambda one: type(one).__name__)
def test_a_guarantee_that_is_given_is_somebodys_word(one):
    """Its certificate said that its noise was drawn, and nothing of whether what ran has the guarantee."""
    assert said(pc.certify(one * 2, delta=1e-5), "guarantee") == [("stated", "caller", None)]
    assert said(pc.certify(pc.PureDP(0.1) + STEP, delta=1e-5), "guarantee") == [("stated", "caller", None)]


def test_a_cap_is_no_guarantee_of_what_ran():
    for close in (True, False):
        assert not said(drawn(summed, cap=pc.GDP(1.0), close=close), "guarantee")


def test_a_gate_has_no_clip_norm():
    """The sensitivity of its questions was listed as one."""
    gate = pc.AboveThreshold.of(epsilon=1.0)
    found = drawn(lambda ledger: ledger.above(gate, sensitivity=1.0), plan=gate)
    assert not said(found, "clip_norm")
    assert said(found, "questions") == [("public", "nobody", None)]
    assert said(found, "sensitivity") == [("stated", "caller", None)]
    word = pc.Assumptions(clip_norm="released")  # as such a word is given
    told = pc.certify(gate, delta=1e-5, assumptions=word)
    assert (said(told, "questions"), said(told, "clip_norm")) == ([("released", "caller", None)], [])
    assert said(pc.certify(gate, delta=1e-5, assumptions=pc.Assumptions(clip_norm="private")), "questions")


def test_a_unit_that_nobody_stated_is_not_called_one():
    """ "one record is one record" was said, also of a table whose rows were grouped by person."""
    rows = {"rows_per_person": 1}
    table = drawn(
        lambda ledger: ledger.count([1, 2], pc.Gaussian(9.0), person=["a", "b"], **rows), plan=pc.Gaussian(9.0)
    )
    assert "one record is   not stated (of tables, all rows of one person)" in str(table)
    assert "one record is   not stated\n" in str(pc.certify(STEP, delta=1e-5))
    assert "one record is   one house" in str(pc.certify(STEP, delta=1e-5, unit="one house"))


def test_reports_are_sent_by_all():
    """Nothing said that who is absent reports, too, without which no ε holds; and how many report is public."""
    found = pc.certify(pc.RandomizedResponse(1.0), delta=1e-5, unit="one person")
    assert said(found, "reports") == [("always sent", "nobody", None)]
    assert "not the number of records, which is taken as public" in str(found)
    assert "randomized_response.md" in found.document["proofs"]


def test_turns_are_nobody_elses():
    """Nothing said that others keep their steps where one record leaves; in a loop over a file in order they do not."""
    order = pc.strategies.FixedOrder(epoch=2)
    run = pc.CorrelatedGaussian(5.0, pc.strategies.Toeplitz([1.0, 0.5], steps=4), order)
    found = pc.certify(run, delta=1e-5)
    assert said(found, "sampling") == [("in turns", "nobody", None)]
    assert "in which is not changed by who else is there, by any value, or by any output" in str(found)


def test_a_replaced_record_may_be_longer_than_the_clip_norm():
    """Least squares adds products of norm up to √2 where C = √4.5/2: "each of norm at most C" was said of them."""
    learners = pytest.importorskip("learners")
    two = np.eye(2).repeat(20, axis=0), [0] * 20 + [1] * 20
    kind = {"epsilon": 1.0, "delta": 1e-5, "relation": pc.REPLACE_ONE}
    found = str(learners.DPLS(classes=[0, 1], **kind).fit(*two).certificate_)
    assert "each of norm at most C" not in found
    assert "a record moves by at most C (replaced: 2C)" in found


def test_steps_that_are_bounded_together_are_not_said_to_be_bounded_one_by_one():
    """A filter's stream: one step of a record may be longer than the stream's clip norm, which bounds all of them."""
    filtered = pytest.importorskip("examples.filtered")
    model = filtered.FilteredGD(classes=[0, 1], epsilon=1.0, delta=1e-5, steps=4, records=40)
    certificate = model.fit(np.eye(2).repeat(20, axis=0), [0] * 20 + [1] * 20).certificate_
    assert "in all to the sums of a stream whose steps are bounded together" in str(certificate)
