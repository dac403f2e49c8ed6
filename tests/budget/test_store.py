"""A data set's budget: what it refuses and returns, who may draw, what it sees of copies and restored files."""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing as mp
import os
import random
import shutil
import sqlite3
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from teams import CAP, STEP, check_kills, draw, killed_at_random, race, recorded, started, told

import privcalc as pc
from privcalc.budget import readmit
from privcalc.budget.page import summary, text
from privcalc.budget.pool import Odometer, Pool
from privcalc.certificate.schema import digest
from privcalc.errors import Unreachable
from privcalc.log.database import connect


@pytest.fixture
def url(tmp_path):
    return str(tmp_path / "budget.db")


@pytest.fixture
def budget(url):
    return pc.Budget.create(url, dataset="visits", cap=CAP)


# What is charged


def test_a_ledger_reserves_its_plan_and_leaves_its_record(budget, tmp_path):
    with pc.Ledger(tmp_path / "a", plan=STEP * 60, budget=budget) as ledger:
        draw(ledger, 5)
        assert dict(budget.reserved.entries) == {STEP: 60}
        assert not budget.spent.entries
        with pytest.raises(pc.BudgetExceeded, match="remains"):
            pc.Ledger(tmp_path / "b", plan=STEP * 41, budget=budget)
    assert dict(budget.charged.entries) == {STEP: 5}
    assert dict(budget.charged.entries) == recorded(tmp_path / "a")
    with pc.Ledger(tmp_path / "b", plan=STEP * 41, budget=budget):  # the ledger that was refused
        assert dict(budget.charged.entries) == {STEP: 46}
    assert dict(budget.charged.entries) == {STEP: 5}


@pytest.mark.parametrize(
    ("cap", "mechanism", "most"),
    [
        (pc.GDP(1.0), pc.Gaussian(2.0), 4),
        (pc.ZCDP(0.5), pc.Gaussian(2.0), 4),
        (pc.PureDP(1.0), pc.Laplace(4.0), 4),
        (pc.RDP([2.0, 8.0], [1.0, 4.0]), pc.Gaussian(2.0), 4),
        (pc.GDP(1.0, relation=pc.REPLACE_ONE), pc.Gaussian(4.0), 4),
    ],
    ids=str,
)
def test_a_cap_is_met_exactly_and_not_passed(url, cap, mechanism, most):
    budget = pc.Budget.create(url, dataset="visits", cap=cap)
    for _ in range(most):
        budget.reserve(mechanism)
    assert budget.would_exceed(mechanism)
    with pytest.raises(pc.BudgetExceeded):
        budget.reserve(mechanism)
    assert dict(budget.charged.entries) == {mechanism: most}
    assert budget.share == pytest.approx(1.0)


@pytest.mark.parametrize("a", [0.3, 0.5, 1.0])
def test_a_choice_that_is_reserved_first_may_be_made_last(url, a):
    """The rest spent on a Gaussian release, whose output tells the worst offset of the choice: by quadrature."""
    budget = pc.Budget.create(url, dataset="visits", cap=pc.GDP(1.0))
    budget.reserve(pc.ExponentialMechanism(a))
    mu = budget.remaining
    z, step = np.linspace(-9.0, 10.0, 1501, retstep=True)
    p = np.exp(-0.5 * (z - mu) ** 2) / math.sqrt(2 * math.pi) * step
    t = np.linspace(0.0, a, 203)[1:-1, None]
    lost = (1 - np.exp(t - a)) / (np.exp(t) - np.exp(t - a))  # the other law's mass where the loss is t, and not t − a
    for epsilon in (0.0, 1.0, 2.0):
        odds = np.exp(epsilon - mu * z + 0.5 * mu * mu)
        won = np.maximum(np.exp(t) * lost - odds * lost, 0) + np.maximum(1 - np.exp(t) * lost - odds * (1 - lost), 0)
        assert p @ won.max(axis=0) <= budget.cap.delta(epsilon=epsilon).upper + 1e-9


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    asked=st.lists(st.tuples(st.sampled_from([3.0, 5.0, 10.0, 0.3]), st.integers(1, 9), st.integers(0, 9)), max_size=5)
)
def test_what_is_charged_is_what_was_accepted_and_not_returned(tmp_path_factory, asked):
    """A model in fractions: rho of one use is 1/(2σ²)."""
    budget = pc.Budget.create(tmp_path_factory.mktemp("model") / "b.db", dataset="d", cap=CAP)
    model = Fraction(0)
    for sigma, count, drawn in asked:
        step, rho = pc.Gaussian(sigma), 1 / (2 * Fraction(sigma) ** 2)
        fits = model + count * rho <= Fraction(0.5)
        assert budget.would_exceed(step * count) is not fits
        if not fits:
            continue
        with pc.Ledger(None, plan=step * count, budget=budget) as ledger:
            for _ in range(min(drawn, count)):
                ledger.gaussian([0.0], step, clip_norm=1.0)
        model += min(drawn, count) * rho
        assert float(budget.remaining) == pytest.approx(float(Fraction(0.5) - model), rel=1e-12, abs=1e-15)


def test_a_capped_ledger_returns_where_its_record_costs_no_more(budget):
    with pc.Ledger(None, cap=pc.ZCDP(0.25), budget=budget) as ledger:
        draw(ledger, 3)
        assert dict(budget.charged.entries) == {pc.ZCDP(0.25): 1}
    assert dict(budget.charged.entries) == {STEP: 3}


def test_a_capped_ledger_of_another_kind_returns_nothing_that_has_no_cost(url):
    budget = pc.Budget.create(url, dataset="visits", cap=pc.RDP([2.0], [1.0]))
    laplace = pc.Laplace(4.0)
    with pc.Ledger(None, cap=pc.PureDP(0.5), budget=budget) as ledger:
        ledger.laplace([0.0], laplace, clip_norm=1.0)
        ledger.laplace([0.0], laplace, clip_norm=1.0)
    assert float(Pool(budget.cap).filter(budget.charged).spent[0]) <= pc.PureDP(0.5).rdp([2.0])[0]


def test_other_relations_units_seeds_and_kinds_are_refused_before_there_is_a_file(budget, tmp_path):
    path = tmp_path / "ledger"
    for wrong, said in (
        ({"relation": pc.REPLACE_ONE}, "relation = 'replace-one': the budget of 'visits' is about 'add-or-remove-one'"),
        ({"unit": "one patient"}, "unit = 'one patient': the budget of 'visits' is about 'one record'"),
        ({"seed": 1}, "seed: noise that can be drawn again"),
    ):
        with pytest.raises(pc.PrivcalcError, match=said):
            pc.Ledger(path, plan=STEP * 2, budget=budget, **wrong)
        assert not path.exists()
    with pytest.raises(pc.PrivcalcError, match="its xi is"):
        budget.reserve(pc.ZCDP(0.1, 0.1))
    assert not budget.charged.entries


def test_an_opened_budget_is_the_one_that_was_meant(url, budget):
    assert pc.Budget(url, dataset="visits", cap=CAP, relation=pc.ADD_OR_REMOVE_ONE, unit="one record").cap == CAP
    for wrong in ({"cap": pc.ZCDP(1.0)}, {"relation": pc.ZERO_OUT}, {"unit": "one person"}):
        with pytest.raises(pc.PrivcalcError, match="was made with"):
            pc.Budget(url, dataset="visits", **wrong)
    with pytest.raises(pc.PrivcalcError, match="has no budget"):
        pc.Budget(url, dataset="vists")
    with pytest.raises(pc.PrivcalcError, match="there can be one only"):
        pc.Budget.create(url, dataset="visits", cap=CAP)
    pc.Budget.create(url, dataset="other", cap=CAP).reserve(STEP * 50)
    assert not budget.charged.entries


def test_a_ledger_keeps_its_budget(budget, tmp_path):
    with pc.Ledger(tmp_path / "a", plan=STEP * 60, budget=budget) as ledger:
        draw(ledger)
        ledger.pause()
    with pytest.raises(pc.PrivcalcError, match="spends from the budget of 'visits': give it again"):
        pc.Ledger(tmp_path / "a", plan=STEP * 60)
    with pc.Ledger(tmp_path / "b", plan=STEP * 6) as ledger:
        draw(ledger)
        ledger.pause()
    with pytest.raises(pc.PrivcalcError, match="opened without one"):
        pc.Ledger(tmp_path / "b", plan=STEP * 6, budget=budget)
    other = pc.Budget.create(budget._chain.store.path, dataset="other", cap=CAP)
    with pytest.raises(pc.PrivcalcError, match="spends from that of 'visits', not of 'other'"):
        pc.Ledger(tmp_path / "a", plan=STEP * 60, budget=other)


def test_charges_by_hand_stay(budget):
    budget.reserve(STEP * 30, label="2026 survey")
    assert [one.label for one in budget.reservations.values()] == ["2026 survey"]
    assert dict(budget.spent.entries) == {STEP: 30}
    assert [entry["type"] for entry in budget.history()] == ["open", "reserve"]


# Who may draw


def test_of_a_ledger_and_its_copy_one_draws(budget, tmp_path):
    """Both begin with the same lines, and would write the same: only the last that was opened is paid for."""
    first = pc.Ledger(tmp_path / "a", plan=STEP * 50, budget=budget)
    draw(first, 2)
    shutil.copy(tmp_path / "a", tmp_path / "copy")
    second = pc.Ledger(tmp_path / "copy", plan=STEP * 50, budget=budget)
    with pytest.raises(pc.Contradiction, match="was opened elsewhere since"):
        draw(first)
    draw(second)
    second.close()
    assert dict(budget.charged.entries) == {STEP: 3}


def test_an_older_copy_of_a_ledger_is_seen(budget, tmp_path):
    ledger = pc.Ledger(tmp_path / "a", plan=STEP * 50, budget=budget)
    draw(ledger, 2)
    shutil.copy(tmp_path / "a", tmp_path / "backup")
    draw(ledger, 2)
    ledger.pause()
    shutil.copy(tmp_path / "backup", tmp_path / "a")
    with pytest.raises(pc.Contradiction, match="has none now: it is an older copy, or was cut or rewritten"):
        pc.Ledger(tmp_path / "a", plan=STEP * 50, budget=budget)
    assert dict(budget.charged.entries) == {STEP: 50}


def test_a_rewritten_ledger_is_seen(budget, tmp_path):
    """Its chain is whole: written anew, from the same reservation, with fewer charges and more lines."""
    with pc.Ledger(tmp_path / "a", plan=STEP * 50, budget=budget) as ledger:
        draw(ledger, 3)
        ledger.pause()
    lines = (tmp_path / "a").read_bytes().splitlines(keepends=True)
    (tmp_path / "a").write_bytes(b"".join(lines[:2]))  # terms, and the reservation

    class Blind:  # what lets it be opened without asking
        keeper = staticmethod(lambda terms: Blind())
        start = advance = settle = staticmethod(lambda *_, **__: None)

    with pc.Ledger(tmp_path / "a", plan=STEP * 50, budget=Blind()) as ledger:
        for _ in range(5):
            ledger.record(STEP)
        ledger.pause()
    with pytest.raises(pc.Contradiction, match="has another now"):
        pc.Ledger(tmp_path / "a", plan=STEP * 50, budget=budget)


def test_anchors_that_were_taken_away_are_seen(budget, url, tmp_path):
    with pc.Ledger(tmp_path / "a", plan=STEP * 60, budget=budget) as ledger:
        draw(ledger)
        ledger.pause()
    with sqlite3.connect(url) as other:
        other.execute("DELETE FROM privcalc_ledgers")
    other.close()
    with pytest.raises(pc.Contradiction, match="history and anchors do not fit"):
        pc.Ledger(tmp_path / "a", plan=STEP * 60, budget=budget)


# What fails


def test_an_unreachable_store_refuses_and_loses_nothing(budget, url, tmp_path):
    ledger = pc.Ledger(tmp_path / "a", plan=STEP * 50, budget=budget)
    draw(ledger)
    os.rename(url, url + ".away")
    with pytest.raises(pc.PrivcalcError, match="no such store"):
        draw(ledger)
    with pytest.raises(pc.PrivcalcError, match="the ledger is closed"):
        draw(ledger)
    os.rename(url + ".away", url)
    with pc.Ledger(tmp_path / "a", plan=STEP * 50, budget=budget) as ledger:
        draw(ledger)
    assert dict(budget.charged.entries) == recorded(tmp_path / "a")
    assert dict(budget.charged.entries) == {STEP: 3}  # one was charged, and not drawn


def test_a_store_that_is_locked_is_unreachable(budget, url, monkeypatch):
    monkeypatch.setattr("privcalc.log.database.SECONDS", 0.01)
    other = sqlite3.connect(url, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unreachable, match="cannot be asked"):
        budget.reserve(STEP)
    other.execute("ROLLBACK")
    other.close()
    budget.reserve(STEP)


class Lossy:
    """A store whose connection is lost around a commit: before it, or after it."""

    def __init__(self, store, after):
        self.inner, self.after, self.losses = store, after, []

    url, lock = "lossy", ""

    def transaction(self, *, create=False, naming=False):
        import contextlib

        @contextlib.contextmanager
        def act():
            lost = self.losses.pop(0) if self.losses else False
            if lost and not self.after:
                around = self.inner.transaction(create=create, naming=naming)
                with contextlib.suppress(ZeroDivisionError), around as sql:
                    yield sql
                    raise ZeroDivisionError
            else:
                with self.inner.transaction(create=create, naming=naming) as sql:
                    yield sql
            if lost:
                raise Unreachable("lost")

        return act()

    def close(self):
        pass


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("times", [1, 2])
def test_an_uncertain_commit_is_asked_again_and_never_drawn_on(budget, tmp_path, after, times):
    lossy = budget._chain.store = Lossy(budget._chain.store, after)
    ledger = pc.Ledger(None, plan=STEP * 50, budget=budget)
    lossy.losses = [True] * times
    if times == 1:
        name = budget.reserve(STEP)  # the second time it is found, if it was committed
        assert list(budget.reservations).count(name) == 1
        lossy.losses = [True]
        draw(ledger)
        lossy.losses = [True]
        ledger.close()
        assert dict(budget.charged.entries) == {STEP: 2}
    else:
        with pytest.raises(Unreachable):
            budget.reserve(STEP)
        charged = dict(budget.charged.entries)
        assert charged == {STEP: 51 if after else 50}
        lossy.losses = [True] * 2
        with pytest.raises(Unreachable):
            draw(ledger)
        draw(ledger)  # of a ledger in memory; what was lost is charged
        ledger.close()
        assert dict(budget.charged.entries) == {STEP: charged[STEP] - 50 + 2}


def test_a_ledger_that_closes_without_its_store_is_settled_later(budget, url, tmp_path, monkeypatch):
    monkeypatch.setattr("privcalc.log.database.SECONDS", 0.01)
    ledger = pc.Ledger(tmp_path / "a", plan=STEP * 50, budget=budget)
    draw(ledger, 2)
    with pytest.raises(pc.PrivcalcError, match="is not closed"):
        budget.settle(tmp_path / "a")
    other = sqlite3.connect(url, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.warns(pc.PrivcalcWarning, match="stays charged until Budget.settle"):
        ledger.close()
    other.execute("ROLLBACK")
    other.close()
    assert dict(budget.charged.entries) == {STEP: 50}
    for _ in range(2):
        budget.settle(tmp_path / "a")
        assert dict(budget.charged.entries) == {STEP: 2}


def test_what_settles_must_be_what_was_anchored(budget, tmp_path):
    ledger = pc.Ledger(tmp_path / "a", plan=STEP * 50, budget=budget)
    draw(ledger)
    shutil.copy(tmp_path / "a", tmp_path / "early")
    draw(ledger, 4)
    ledger.pause()
    with pytest.MonkeyPatch.context() as patch:  # the old copy, closed without asking
        patch.setattr("privcalc.ledger.account.begin", lambda *_: None)
        pc.Ledger(tmp_path / "early", plan=STEP * 50).close()
    with pytest.raises(pc.Contradiction, match="older copy, or was cut or rewritten"):
        budget.settle(tmp_path / "early")
    assert dict(budget.charged.entries) == {STEP: 50}


# A store that was restored or changed


def test_a_restored_store_is_seen_by_ledgers_processes_and_witnesses(budget, url, tmp_path):
    witness = tmp_path / "witness"
    pc.Budget(url, dataset="visits", witness=witness)
    shutil.copy(url, url + ".backup")
    watching = pc.Budget(url, dataset="visits", witness=witness)
    ledger = pc.Ledger(tmp_path / "a", plan=STEP * 50, budget=watching)
    draw(ledger)
    ledger.pause()
    late = pc.Ledger(tmp_path / "late", plan=STEP, budget=watching)
    late.pause()
    shutil.copy(url + ".backup", url)
    with pytest.raises(pc.Contradiction, match="this process saw line 3"):
        watching.reserve(STEP)
    with pytest.raises(pc.Contradiction, match=r"the witness saw line 3 .* which it has no more"):
        pc.Budget(url, dataset="visits", witness=witness)
    fresh = pc.Budget(url, dataset="visits")  # which knows of nothing
    with pytest.raises(pc.Contradiction, match="does not know this ledger, which has drawn"):
        pc.Ledger(tmp_path / "a", plan=STEP * 50, budget=fresh)
    with pytest.raises(pc.Contradiction, match=r"the ledger .* saw line 2 .* no more"):
        pc.Ledger(tmp_path / "late", plan=STEP, budget=fresh)
    fresh.reserve(STEP * 7)  # and goes on, as if nothing had been
    with pytest.raises(pc.Contradiction, match=r"the ledger .* saw line 2 .* another"):
        pc.Ledger(tmp_path / "late", plan=STEP, budget=fresh)


def test_what_a_witness_learnt_from_others_is_asked_each_time(url, tmp_path):
    witness = tmp_path / "witness"
    pc.Budget.create(url, dataset="visits", cap=CAP)  # whoever opens it may have a witness, or not
    idle = pc.Budget(url, dataset="visits", witness=witness)
    shutil.copy(url, url + ".backup")
    pc.Budget(url, dataset="visits", witness=witness).reserve(STEP)
    shutil.copy(url + ".backup", url)
    with pytest.raises(pc.Contradiction, match="the witness saw line 2"):
        idle.reserve(STEP)  # which had seen no more than is there
    pc.Budget(url, dataset="visits").reserve(STEP * 2)  # goes on without the witness
    with pytest.raises(pc.Contradiction, match=r"the witness saw line 2 .* which it has another"):
        idle.reserve(STEP)


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM privcalc_history WHERE n = 2",
        "DELETE FROM privcalc_history WHERE n = 3",
        "UPDATE privcalc_history SET line = replace(line, '\"count\":20', '\"count\":2') WHERE n = 2",
        "UPDATE privcalc_history SET n = 9 WHERE n = 3",
        "UPDATE privcalc_heads SET lines = 2",
        "UPDATE privcalc_heads SET hash = 'x'",
        "UPDATE privcalc_history SET line = line || line WHERE n = 3",
        "UPDATE privcalc_history SET line = rtrim(line, char(10)) WHERE n = 3",
    ],
)
def test_a_changed_history_is_seen(budget, url, change):
    budget.reserve(STEP * 20)
    budget.reserve(STEP * 30)
    with sqlite3.connect(url) as other:
        other.execute(change)
    other.close()
    with pytest.raises(pc.PrivcalcError, match=r"fit|line"):
        pc.Budget(url, dataset="visits")


@pytest.mark.parametrize("bad", ["", ":memory:", "mysql://host/db", "sqlite://", "/dev/null"])
def test_what_is_no_store_is_refused(bad, tmp_path):
    with pytest.raises(pc.PrivcalcError, match="url = "):
        pc.Budget(bad, dataset="visits")
    text = tmp_path / "text"
    text.write_text("no database, " * 1000)
    with pytest.raises(pc.PrivcalcError, match="is no store"):
        pc.Budget(text, dataset="visits")
    sqlite3.connect(tmp_path / "empty").close()
    with pytest.raises(pc.PrivcalcError, match=r"is no store|no such store"):
        pc.Budget(tmp_path / "empty", dataset="visits")


# The odometer


@pytest.mark.parametrize("rho", [1e-6, 0.01, 0.5, 8.0])
def test_the_odometer_is_above_every_quantile_and_near_the_best_order(rho):
    """For one Gaussian release the loss is N(ρ, 2ρ): its quantile is known; and so is the least over all orders."""
    from mpmath import erfinv, mp, mpf, sqrt

    delta = 1e-6
    with mp.workdps(40):
        quantile = float(mpf(rho) + sqrt(4 * mpf(rho)) * erfinv(1 - 2 * mpf(delta)))
    orders = pc.budget.history.ORDERS
    meter = Odometer(orders, pc.ADD_OR_REMOVE_ONE)
    meter.charge(pc.Gaussian((2 * rho) ** -0.5))
    found = meter.epsilon(delta=delta)
    assert quantile <= found.upper
    best = rho + 2 * math.sqrt(rho * math.log((len(orders) - 1) / delta))
    if rho >= 0.01:
        assert best * (1 - 1e-9) <= found.upper <= best * 1.1
    assert found.lower <= float(pc.Gaussian((2 * rho) ** -0.5).epsilon(delta=delta)) <= found.upper
    with pytest.raises(pc.PrivcalcError, match="holds at δ = 1e-06, and not at 0"):
        pc.PureDP(found)


def test_the_odometer_of_pure_charges_is_their_sum(url):
    budget = pc.Budget.create(url, dataset="visits", cap=pc.PureDP(2.0))
    assert budget.odometer(delta=0.0).upper == 0.0
    budget.reserve(pc.Laplace(4.0) * 2)
    assert budget.odometer(delta=0.0).upper == 0.5
    assert budget.odometer(delta=1e-9).upper <= 0.5


def test_an_odometer_refuses_nothing_and_takes_back_what_was_never_released():
    meter, step = Odometer(pc.budget.history.ORDERS, pc.ADD_OR_REMOVE_ONE), pc.Gaussian(2.0)
    meter.charge(step * 3)
    before = meter.epsilon(delta=1e-6)
    assert not meter.would_exceed(pc.Gaussian(1e-3))
    meter.charge(pc.ApproxDP(1.0, 0.5))  # which no order bounds
    assert math.isinf(meter.epsilon(delta=1e-6).upper)
    meter.refund(pc.ApproxDP(1.0, 0.5))
    assert meter.epsilon(delta=1e-6) == before
    with pytest.raises(pc.PrivcalcError, match="4 uses to take back, of 3"):
        meter.refund(step * 4)
    meter.close()
    with pytest.raises(pc.PrivcalcError, match="closed"):
        meter.charge(step)


def test_the_odometer_holds_whenever_one_looks():
    """An adversary who stops at the worst moment: the loss of Gaussian steps whose noise follows the losses so far."""
    generator, delta, trials = np.random.default_rng(5), 0.05, 4000
    orders = pc.budget.history.ORDERS
    finite = np.array([order for order in orders if order < math.inf])
    loss, spent, over = np.zeros(trials), np.zeros(trials), np.zeros(trials, dtype=bool)
    for _ in range(60):
        rho = np.where(loss > spent, 0.02, 0.005)  # more, while it goes well
        loss += generator.normal(rho, np.sqrt(2 * rho))
        spent += rho
        over |= loss > (spent[:, None] * finite + math.log(len(finite) / delta) / (finite - 1)).min(axis=1)
    assert over.mean() <= delta


# Processes


def test_two_processes_race_at_the_cap(budget, url):
    budget.reserve(STEP * 60)
    racers = [started(race, url) for _ in range(2)]
    counts = [told(reading) for _, reading in racers]
    assert sum(counts) == 40
    for worker, _ in racers:
        worker.join(60)
        assert worker.exitcode == 0
    assert dict(budget.charged.entries) == {STEP: 100}


def test_kills_at_random_moments_undercharge_nothing(budget, url, tmp_path):
    check_kills(budget, killed_at_random(url, tmp_path, 6, random.Random(1)), 60)


@pytest.mark.slow
def test_many_kills_at_random_moments_undercharge_nothing(budget, url, tmp_path):
    check_kills(budget, killed_at_random(url, tmp_path, 100, random.Random(2)), 60)


def test_a_fork_asks_for_itself(budget, url):
    worker = mp.get_context("fork").Process(target=budget.reserve, args=(STEP,))
    worker.start()
    worker.join(60)
    assert worker.exitcode == 0
    assert dict(budget.charged.entries) == {STEP: 1}
    assert connect(url).url.startswith("sqlite:///")


def test_a_certificate_names_the_budget_that_its_ledger_spends_from(budget, url, tmp_path):
    """Data set, reservation and a line of its history: the store that has it is the one; no URL, with its password."""
    budget.reserve(STEP)
    with pc.Ledger(tmp_path / "a", plan=STEP * 9, budget=budget) as ledger:
        draw(ledger, 2)
    certificate = pc.certify(tmp_path / "a", delta=1e-5)
    named = certificate.document["ledgers"][0]["budget"]
    (reservation,) = [name for name, one in budget.reservations.items() if one.by == "ledger"]
    assert (named["dataset"], named["reservation"]) == ("visits", reservation)
    with contextlib.closing(sqlite3.connect(url)) as connection:
        (line,) = connection.execute("SELECT line FROM privcalc_history WHERE n = ?", (named["lines"],)).fetchone()
    assert json.loads(line)["hash"] == named["hash"]
    assert reservation in str(certificate)
    assert url not in json.dumps(certificate.document)
    assert certificate.verify(tmp_path / "a", seconds=math.inf)

    def other(**fields):
        """As somebody would write it who can hash."""
        (entry,) = certificate.document["ledgers"]
        document = {**certificate.document, "ledgers": [{**entry, "budget": {**named, **fields}}]}
        return pc.Certificate({**document, "hash": digest(document)})

    for fields in ({"dataset": "others"}, {"reservation": "0" * 32}, {"lines": 1}, {"hash": "0" * 64}):
        with pytest.raises(pc.Contradiction, match="ledgers"):
            other(**fields).verify(tmp_path / "a", seconds=math.inf)
    for fields in ({"dataset": "a\nb"}, {"lines": 0}, {"lines": True}, {"url": "postgresql://me:secret@host/x"}):
        with pytest.raises(pc.Contradiction):
            other(**fields).verify(seconds=math.inf)
    (entry,) = certificate.document["ledgers"]
    before = {**certificate.document, "ledgers": [{key: entry[key] for key in entry if key != "budget"}]}
    unnamed = pc.Certificate({**before, "hash": digest(before)})
    with pytest.raises(pc.Contradiction, match="ledgers"):  # only version 2 did not name it
        unnamed.verify(tmp_path / "a", seconds=math.inf)
    assert "; what else draws on the budget of 'visits' is counted there, not here (" in str(certificate)
    both = pc.certify([certificate, certificate], delta=1e-5)
    assert both.verify(tmp_path / "a", tmp_path / "a", seconds=math.inf)
    assert "on the budget of 'visits' is counted there" in str(both)


# A store that was made with a witness, and one that is used again


def test_a_budget_with_a_witness_is_not_used_without_one(url, tmp_path):
    """Its store remembers that it has one: opened without it, an older copy would go on as if nothing had been."""
    witness = tmp_path / "witness"
    pc.Budget.create(url, dataset="visits", cap=CAP, witness=witness)
    shutil.copy(url, url + ".backup")
    pc.Budget(url, dataset="visits", witness=witness).reserve(STEP)
    shutil.copy(url + ".backup", url)
    with pytest.raises(pc.PrivcalcError, match="was made with one"):
        pc.Budget(url, dataset="visits")
    with pytest.raises(pc.Contradiction, match="budget readmit"):
        pc.Budget(url, dataset="visits", witness=witness)
    with pytest.warns(pc.PrivcalcWarning, match="has seen nothing of the budget"):
        pc.Budget(url, dataset="visits", witness=tmp_path / "other")
    pc.Budget(url, dataset="visits", witness=tmp_path / "other")  # which has seen it now


def test_a_restored_store_is_readmitted_with_what_it_forgot(url, tmp_path):
    witness = tmp_path / "witness"
    budget = pc.Budget.create(url, dataset="visits", cap=CAP, witness=witness)
    settled = pc.Ledger(tmp_path / "settled", plan=STEP * 9, budget=budget)
    draw(settled, 2)
    settled.close()
    known = pc.Ledger(tmp_path / "known", plan=STEP * 20, budget=budget)
    draw(known, 3)
    known.pause()
    shutil.copy(url, url + ".backup")
    shutil.copy(tmp_path / "known", tmp_path / "known.backup")
    known = pc.Ledger(tmp_path / "known", plan=STEP * 20, budget=budget)
    draw(known, 15)
    known.pause()
    lost = pc.Ledger(tmp_path / "lost", plan=STEP * 30, budget=budget)
    draw(lost)
    shutil.copy(url + ".backup", url)
    shutil.copy(tmp_path / "known.backup", tmp_path / "known")
    again = {"dataset": "visits", "reason": "disk 3 failed, backup of Monday", "ledgers": [tmp_path / "lost"]}
    with pytest.raises(pc.PrivcalcError, match="must be given, one that saw something"):
        readmit(url, **again)
    with pytest.raises(pc.PrivcalcError, match="reason"):
        readmit(url, **{**again, "reason": "x\ny"}, witness=witness)
    with pytest.raises(pc.Contradiction):
        pc.Budget(url, dataset="visits", witness=witness)
    budget = readmit(url, **again, witness=witness)
    assert dict(budget.charged.entries) == {STEP: 2 + 20 + 30}
    assert budget.readmitted == ["disk 3 failed, backup of Monday"]
    with pytest.raises(pc.Contradiction):
        draw(lost, 20)
    # Of "known" 18 were drawn, its file says 3 and its store nothing else: were it to go on, 35 would be drawn of 20.
    for name, times in (("known", 20), ("lost", 30)):
        with pytest.raises(pc.Contradiction, match="stays charged, and nothing may be drawn on it"):
            pc.Ledger(tmp_path / name, plan=STEP * times, budget=budget)
    with pytest.raises(pc.PrivcalcError, match="is not closed"):
        budget.settle(tmp_path / "known")
    assert dict(pc.Budget(url, dataset="visits", witness=witness).charged.entries) == {STEP: 52}
    budget.settle(tmp_path / "settled")  # twice does nothing
    with pc.Ledger(tmp_path / "new", plan=STEP * 10, budget=budget) as ledger:
        draw(ledger)
    assert dict(budget.charged.entries) == {STEP: 53}
    assert [line["type"] for line in budget.history()][-4:] == ["readmit", "reserve", "reserve", "settle"]
    with pytest.raises(pc.PrivcalcError, match="has forgotten anything"):
        readmit(url, **again, witness=witness)


def test_a_closed_ledger_that_was_open_in_the_backup_returns_nothing(url, tmp_path):
    """A line that settled it would make the history one that nobody can read."""
    witness = tmp_path / "witness"
    budget = pc.Budget.create(url, dataset="visits", cap=CAP, witness=witness)
    ledger = pc.Ledger(tmp_path / "a", plan=STEP * 9, budget=budget)
    draw(ledger)
    shutil.copy(url, url + ".backup")
    ledger.close()
    shutil.copy(url + ".backup", url)
    budget = readmit(url, dataset="visits", reason="restored", witness=witness)
    with pytest.raises(pc.Contradiction, match="stays charged"):
        budget.settle(tmp_path / "a")
    assert dict(pc.Budget(url, dataset="visits", witness=witness).charged.entries) == {STEP: 9}


def test_what_is_readmitted_may_exceed_the_cap_which_then_refuses_everything(url, tmp_path):
    witness = tmp_path / "witness"
    budget = pc.Budget.create(url, dataset="visits", cap=CAP, witness=witness)
    with pc.Ledger(tmp_path / "a", plan=STEP * 60, budget=budget):
        shutil.copy(url, url + ".backup")
    pc.Ledger(tmp_path / "b", plan=STEP * 60, budget=budget).pause()
    shutil.copy(url + ".backup", url)
    budget = readmit(url, dataset="visits", reason="restored", witness=witness, ledgers=[tmp_path / "b"])
    assert dict(budget.charged.entries) == {STEP: 120}
    other = pc.Budget.create(f"{url}.other", dataset="visits", cap=pc.ZCDP(9.0))
    pc.Ledger(tmp_path / "c", plan=STEP * 101, budget=other).pause()
    with pytest.raises(pc.BudgetExceeded):  # was never reserved here
        readmit(url, dataset="visits", reason="restored", witness=witness, ledgers=[tmp_path / "c"])
    assert (budget.share, budget.remaining, budget.would_exceed(STEP)) == (pytest.approx(1.2), 0.0, True)
    assert budget.exceeded
    said = summary(budget, delta=1e-6)
    assert said["exceeded"]
    assert said["cap_epsilon"]["upper"] is None  # the cap is no guarantee of what was drawn
    assert said["odometer"]["lower"] > CAP.epsilon(delta=1e-6).lower
    shown = text(budget, delta=1e-6)
    assert shown.startswith("WARNING")
    assert "ε ≤ inf" in shown
    assert "120" in shown  # per cent
    with pytest.raises(pc.BudgetExceeded, match="exceeded by what was readmitted"):
        budget.reserve(STEP)
    assert budget.odometer(delta=1e-6).upper > CAP.epsilon(delta=1e-6).lower / 2


def test_a_line_that_is_too_long_or_too_deep_is_refused_before_it_is_read(tmp_path):
    """A store is a file that others may write: what its lines hold has the limits of a certificate."""
    for name, inside, why in (
        ("long", "[]," * (6 << 20), "line of more than 16,777,216"),
        ("deep", "[" * 61, "line 2 cannot be read"),
    ):
        url = str(tmp_path / name)
        pc.Budget.create(url, dataset="visits", cap=pc.ZCDP(0.5))
        with contextlib.closing(sqlite3.connect(url)) as store, store:
            line = f'{{"n":2,"entry":{{"run":{inside}{"]" * len(inside) if name == "deep" else ""}}},"hash":"0"}}\n'
            store.execute("INSERT INTO privcalc_history VALUES ('visits', 2, ?)", (line,))
            store.execute("UPDATE privcalc_heads SET lines = 2, hash = '0'")
        tracemalloc.start()
        with pytest.raises(pc.PrivcalcError, match=why):
            pc.Budget(url, dataset="visits")
        assert tracemalloc.get_traced_memory()[1] < 1 << 21
        tracemalloc.stop()
