"""A budget in a PostgreSQL server: races, lost connections, a server that fails, and two teams' day with all of it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import threading
import time

import pytest
from teams import CAP, STEP, check_kills, draw, killed_at_random, race, recorded, started, told

import privcalc as pc
from benchmarks.postgresql import Server, programs
from privcalc.budget.pool import Odometer
from privcalc.errors import Unreachable

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def server():
    if importlib.util.find_spec("psycopg") is None or programs() is None:
        pytest.skip("needs psycopg and a PostgreSQL server")
    found = Server()
    yield found
    found.close()


@pytest.fixture
def budget(server, request):
    return pc.Budget.create(server.url, dataset=request.node.name[:100], cap=CAP)


def sql(server, statement):
    import psycopg

    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(statement)


def test_a_ledger_reserves_and_returns(budget, server):
    with pc.Ledger(None, plan=STEP * 60, budget=budget) as ledger:
        draw(ledger, 5)
        assert dict(budget.reserved.entries) == {STEP: 60}
        with pytest.raises(pc.BudgetExceeded):
            budget.reserve(STEP * 41)
    assert dict(pc.Budget(server.url, dataset=budget.rules.dataset).charged.entries) == {STEP: 5}
    assert "budget@" not in repr(budget)


def test_two_processes_race_at_the_cap_of_a_server(budget, server):
    budget.reserve(STEP * 40)
    racers = [started(race, server.url, budget.rules.dataset) for _ in range(3)]
    assert sum(told(reading) for _, reading in racers) == 60
    assert dict(budget.charged.entries) == {STEP: 100}


def test_two_that_create_at_once_have_one_budget(server):
    def make(done):
        with contextlib.suppress(pc.PrivcalcError):
            pc.Budget.create(server.url, dataset="made at once", cap=CAP)
            os.write(done, b".")

    makers = [started(make) for _ in range(4)]
    assert sum(told(reading) for _, reading in makers) == 1


def test_a_lost_connection_is_opened_again(budget, server):
    with pc.Ledger(None, plan=STEP * 60, budget=budget) as ledger:
        draw(ledger)
        sql(server, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'privcalc'")
        draw(ledger)
    assert dict(budget.charged.entries) == {STEP: 2}


def test_a_server_that_failed_refuses_and_forgets_nothing(budget, server, tmp_path):
    ledger = pc.Ledger(tmp_path / "a", plan=STEP * 60, budget=budget)
    draw(ledger, 2)
    server.fail()
    try:
        with pytest.raises(Unreachable):
            draw(ledger)
        with pytest.raises(Unreachable):
            pc.Budget(server.url, dataset=budget.rules.dataset)
    finally:
        server.start()
    assert dict(budget.charged.entries) == {STEP: 60}
    with pc.Ledger(tmp_path / "a", plan=STEP * 60, budget=budget) as ledger:
        draw(ledger)
    assert dict(budget.charged.entries) == recorded(tmp_path / "a")


def test_a_server_that_may_forget_is_refused(budget, server):
    server.fail()
    server.start(fsync="off")
    try:
        with pytest.raises(pc.PrivcalcError, match="fsync off"):
            pc.Budget(server.url, dataset=budget.rules.dataset)
    finally:
        server.fail()
        server.start()


def test_a_fork_has_a_connection_of_its_own(budget):
    workers = [started(lambda done: budget.reserve(STEP)) for _ in range(2)]
    for worker, _ in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert dict(budget.charged.entries) == {STEP: 2}


def test_kills_at_random_moments(budget, server, tmp_path):
    check_kills(budget, killed_at_random(server.url, tmp_path, 30, random.Random(3), budget.rules.dataset), 60)


def team(done, url, folder, dataset, seed):
    """A team's jobs, one after another: each a plan of its own noise, often stopped early; faults are tried again."""
    generator = random.Random(seed)
    for job in range(12):
        step, steps = pc.Gaussian(generator.choice([8.0, 10.0, 20.0])), generator.randint(3, 12)
        path, wanted = folder / f"{seed}-{job}", generator.randint(0, steps)
        while wanted >= 0:
            try:
                with pc.Ledger(path, plan=step * steps, budget=pc.Budget(url, dataset=dataset)) as ledger:
                    while wanted > 0 and not ledger.would_exceed(step):
                        ledger.gaussian([0.0], step, clip_norm=1.0)
                        os.write(done, b".")
                        wanted -= 1
                    wanted = -1
            except pc.BudgetExceeded:
                break
            except (Unreachable, pc.PrivcalcError) as error:
                if "is closed; what runs now" in str(error):
                    break
                time.sleep(0.05)


def faults(server, stop, generator):
    """Connections that are cut, and a server that fails and comes back."""
    while not stop.wait(generator.uniform(0.05, 0.3)):
        if generator.random() < 0.2:
            server.fail()
            time.sleep(0.1)
            server.start()
        else:
            with contextlib.suppress(Exception):
                sql(
                    server, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'privcalc'"
                )


@pytest.mark.filterwarnings("ignore::privcalc.PrivcalcWarning")
def test_a_day_of_two_teams_with_faults(server, tmp_path):
    """Killed, cut off and started again; what the budget says at the end is what the ledgers' files say."""
    cap = pc.ZCDP(2.0)
    budget = pc.Budget.create(server.url, dataset="a day", cap=cap)
    generator, stop = random.Random(11), threading.Event()
    drawn = 0
    for shift in range(3):
        for folder in (tmp_path / f"one{shift}", tmp_path / f"two{shift}"):
            folder.mkdir()
        teams = [
            started(team, server.url, tmp_path / f"{name}{shift}", "a day", seed + 10 * shift)
            for seed, name in enumerate(("one", "two"))
        ]
        stop.clear()
        trouble = threading.Thread(target=faults, args=(server, stop, generator))
        trouble.start()
        time.sleep(generator.uniform(2, 4))
        if shift == 1:
            teams[0][0].kill()
        drawn += sum(told(reading) for _, reading in teams)
        stop.set()
        trouble.join()
        for worker, _ in teams:
            worker.join(60)
    paths = [path for path in sorted(tmp_path.glob("*/*")) if b'"budget"' in path.read_bytes()]
    assert sum(dict(budget.charged.entries).values()) >= drawn
    for path in paths:  # what died between the two, or was out of reach
        with contextlib.suppress(pc.PrivcalcError):
            budget.settle(path)
    known = set(budget.reservations)
    charged = [path for path in paths if any(name.encode() in path.read_bytes() for name in known)]
    assert dict(budget.charged.entries) == recorded(*charged)
    meter = Odometer(budget.rules.orders, pc.ADD_OR_REMOVE_ONE)
    meter.charge(pc.Run(tuple(recorded(*charged).items())))
    offline, online = meter.epsilon(delta=1e-6), budget.odometer(delta=1e-6)
    assert (online.lower, online.upper) == (offline.lower, offline.upper)
    assert drawn > 50
