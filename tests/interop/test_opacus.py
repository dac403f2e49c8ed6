"""The adapter for Opacus: real models, trained through it."""

from __future__ import annotations

import copy
import itertools
import math
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import quick

import privcalc as pc
from privcalc import noise

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from opacus import PrivacyEngine  # noqa: E402
from opacus.accountants import create_accountant  # noqa: E402
from opacus.layers import DPLSTM, DPMultiheadAttention  # noqa: E402
from opacus.optimizers import optimizer as opacus_optimizer  # noqa: E402
from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402
from torch.utils.data import DataLoader, Subset, TensorDataset  # noqa: E402

from privcalc.interop import opacus as adapter  # noqa: E402
from privcalc.interop.opacus.optimizer import Kept  # noqa: E402

RECORDS, BATCH = 120, 30
DRAWS = (True, "noise", False)
adapter.register()


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    """What we warn of is an error here, if no test asks for it; torch and Opacus say what they like."""
    torch.manual_seed(2**40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", pc.PrivcalcWarning)
        yield


def network() -> Any:
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))


def records() -> TensorDataset:
    """The third column has the record's number."""
    x = torch.randn(RECORDS, 5)
    return TensorDataset(x, (x.sum(dim=1) > 0).long(), torch.arange(RECORDS))


class Run:
    """What ``make_private`` made, and what ``keep_ledger`` made of it."""

    def __init__(
        self,
        noise: float = 2.0,
        batch: int = BATCH,
        workers: int = 0,
        accountant: str = "privcalc",
        module: Any = None,
        data: Any = None,
        **options: Any,
    ) -> None:
        self.module = network() if module is None else module
        self.engine = PrivacyEngine(accountant=accountant)
        trained = [p for p in self.module.parameters() if p.requires_grad]
        self.plain = torch.optim.SGD(trained, lr=0.5)
        data = records() if data is None else data
        made = self.engine.make_private(
            module=self.module,
            optimizer=self.plain,
            criterion=nn.CrossEntropyLoss(),
            data_loader=DataLoader(data, batch_size=batch, num_workers=workers),
            **{"max_grad_norm": 1.0, "noise_multiplier": noise} | options,
        )
        self.model, self.optimizer, self.loader = made[0], made[1], made[-1]
        if options.get("wrap_model") is False:
            self.model = self.module
        self.criterion: Any = made[2] if len(made) == 4 else None
        self.loss: Any = self.criterion or cross_entropy
        self.given = self.optimizer, self.loader

    def keep(
        self,
        path: Path | None = None,
        *,
        draws: Any = True,
        steps: int = 40,
        ahead: int = 1,
        expected_batch_size: float | None = None,
        **terms: Any,
    ) -> pc.Ledger:
        """A ledger for it."""
        plan = adapter.step_of(self.optimizer, self.loader, draws=draws) * steps
        ledger = pc.Ledger(path, plan=plan, **terms)
        options = {
            "criterion": self.criterion,
            "draws": draws,
            "ahead": ahead,
            "expected_batch_size": expected_batch_size,
        }
        kept = adapter.keep_ledger(self.optimizer, self.loader, ledger, start="random", **options)
        self.optimizer, self.loader = kept[0], kept[-1]
        self.loss = kept[1] if self.criterion else self.loss
        return ledger

    def step(self, batch: Any) -> None:
        self.optimizer.zero_grad()
        self.loss(self.model(batch[0]), batch[1]).backward()
        self.optimizer.step()

    def train(self, epochs: int = 1, *, physical: int | None = None, most: int = 10**6) -> list[np.ndarray]:
        """Returns the numbers of the records of each physical batch."""
        found = []
        for _ in range(epochs):
            batches = self.loader
            if physical:
                batches = BatchMemoryManager(
                    data_loader=batches, max_physical_batch_size=physical, optimizer=self.optimizer
                ).__enter__()
            for number, batch in enumerate(batches):
                self.step(batch)
                found.append(batch[-1].numpy())
                if number + 1 == most:
                    break
        return found

    @property
    def state(self) -> list[Any]:
        return [p.detach().clone() for p in self.model.parameters()]


def taken(ledger: pc.Ledger) -> int:
    return sum(count for _, count in ledger.spent.entries)


# --- the accountant -------------------------------------------------------------------------------


def test_a_model_is_trained_and_accounted_for() -> None:
    run = Run()
    run.train(epochs=3)
    assert run.engine.accountant.history == [(2.0, 0.25, 12)]
    exact = (pc.PoissonSampled(pc.Gaussian(2.0), 0.25) * 12).epsilon(delta=1e-5)  # 1/4 is a multiple of 2^−24
    assert run.engine.get_epsilon(1e-5) == exact.upper
    found = run.engine.accountant.epsilon(1e-5)
    assert (found.lower, found.upper) == (exact.lower, exact.upper)
    prv = create_accountant("prv")
    prv.history = list(run.engine.accountant.history)
    assert exact.lower <= prv.get_epsilon(1e-5)
    assert run.engine.accountant.get_epsilon(1e-5, relation=pc.REPLACE_ONE) > exact.upper
    with pytest.warns(pc.PrivcalcWarning, match=f"is not below 1/{RECORDS}"):
        run.engine.get_epsilon(0.01)


def test_a_checkpoint_is_resumed_and_forgets_no_steps(tmp_path: Path) -> None:
    run, again = Run(), Run()
    run.train()
    run.engine.save_checkpoint(path=tmp_path / "run.pt", module=run.model, optimizer=run.optimizer)
    again.engine.load_checkpoint(path=tmp_path / "run.pt", module=again.model, optimizer=again.optimizer)
    again.train()
    assert again.engine.accountant.history == [(2.0, 0.25, 8)]
    with pytest.raises(pc.PrivcalcError, match="forgotten"):
        again.engine.load_checkpoint(path=tmp_path / "run.pt", module=again.model, optimizer=again.optimizer)
    assert len(again.engine.accountant) == 8


@pytest.mark.parametrize(
    "history",
    [3, [3], [(1.0, 0.1)], [(1.0, 0.1, 1.5)], [(math.nan, 0.1, 1)], [(1.0, 25, 1)], [(-1.0, 0.1, 1)]],
    ids=str,
)
def test_a_history_that_is_none_is_refused(history: Any) -> None:
    accountant = adapter.PrivcalcAccountant()
    accountant.step(noise_multiplier=1.0, sample_rate=0.1)
    with pytest.raises(pc.PrivcalcError, match=r"history|steps|noise_multiplier|sample_rate"):
        accountant.load_state_dict({"mechanism": "privcalc", "history": history})
    with pytest.raises(ValueError, match="prv"):
        accountant.load_state_dict({"mechanism": "prv", "history": []})
    assert accountant.history == [(1.0, 0.1, 1)]


def test_an_engine_that_was_made_anew_says_that_it_knows_of_no_steps() -> None:
    engine = PrivacyEngine(accountant="privcalc")
    for ask in (lambda: engine.get_epsilon(1e-5), lambda: pc.certify(engine.accountant.run, delta=1e-5)):
        with pytest.warns(pc.PrivcalcWarning, match="^history: has no steps"):
            ask()


def test_steps_without_noise_have_no_privacy() -> None:
    run = Run(noise=0.0)
    run.train()
    assert run.engine.get_epsilon(1e-5) == math.inf
    with pytest.raises(pc.PrivcalcError, match="noise_multiplier"):
        run.engine.accountant.epsilon(1e-5)


ADAPTIVE = {
    "clipping": "adaptive",
    "target_unclipped_quantile": 0.5,
    "clipbound_learning_rate": 0.2,
    "max_clipbound": 10.0,
    "min_clipbound": 0.1,
    "unclipped_num_std": 5.0,
}


def test_what_is_no_sampled_gaussian_is_refused_by_name() -> None:
    run = Run(**ADAPTIVE)
    for draws in ("noise", False):
        with pytest.raises(pc.PrivcalcError, match="AdaClipDPOptimizer"):
            adapter.step_of(run.optimizer, run.loader, draws=draws)
    with pytest.raises(pc.PrivcalcError, match="AdaClipDPOptimizer"):
        run.train()
    assert len(run.engine.accountant) == 0
    with pytest.raises(pc.PrivcalcError, match="data_loader = DataLoader"):
        Run(poisson_sampling=False).keep()
    with pytest.raises(pc.PrivcalcError, match="rand_on_empty"):
        Run(rand_on_empty=True).keep()


def test_the_accountant_alone_sees_accumulated_and_shuffled_batches() -> None:
    run = Run(poisson_sampling=False)
    for x, y, _ in list(run.loader)[:2]:
        cross_entropy(run.model(x), y).backward()
    with pytest.raises(pc.PrivcalcError, match="accumulated_iterations"):
        run.optimizer.step()
    assert len(run.engine.accountant) == 0
    run = Run(poisson_sampling=False)
    with pytest.raises(pc.PrivcalcError, match="one and the same size"):
        run.train(epochs=30)
    assert len(run.engine.accountant) < 70
    Run().train(epochs=20)  # coins are left alone
    Run(batch=1).train()
    Run().train(epochs=10, physical=7)


@pytest.mark.parametrize("how", ["accountant", "ledger"])
def test_noise_that_is_too_small_is_refused(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here Opacus is broken on purpose: with a ledger that draws its noise does not matter."""
    own = opacus_optimizer._generate_noise
    monkeypatch.setattr(opacus_optimizer, "_generate_noise", lambda **what: own(**what | {"std": what["std"] / 20}))
    module = nn.Linear(5, 40)
    data = TensorDataset(torch.randn(RECORDS, 5), torch.arange(RECORDS) % 40, torch.arange(RECORDS))
    run = Run(module=module, data=data)
    if how == "ledger":
        run.keep(draws=False)
    before = run.state
    with pytest.raises(pc.PrivcalcError, match="too small"):
        run.train()
    assert all(map(torch.equal, before, run.state))
    drawn = Run(module=nn.Linear(5, 40), data=data)
    drawn.keep()
    drawn.train()


# --- calibration ----------------------------------------------------------------------------------


def test_opacus_calibrates_through_it() -> None:
    engine, model = PrivacyEngine(accountant="privcalc"), nn.Linear(5, 2)
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
        data_loader=DataLoader(records(), batch_size=40),
        target_epsilon=2.0,
        target_delta=1e-5,
        epochs=3,
        max_grad_norm=1.0,
    )
    for _ in range(3):
        for x, y, _ in loader:
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()
    assert 1.9 < engine.get_epsilon(1e-5) <= 2.0


@pytest.mark.parametrize("rate", [0.02, 1 / 3, 1.0])
def test_own_calibration_meets_the_target_at_the_rate_of_the_coins(rate: float) -> None:
    noise = adapter.get_noise_multiplier(target_epsilon=1.0, target_delta=1e-6, sample_rate=rate, steps=50)
    accountant = adapter.PrivcalcAccountant()
    accountant.history = [(noise, rate, 50)]
    assert 1 - 1e-6 < accountant.get_epsilon(1e-6) <= 1.0


def test_epochs_are_whole_steps() -> None:
    target = {"target_epsilon": 1.0, "target_delta": 1e-5, "sample_rate": 0.07}
    by_epochs = adapter.get_noise_multiplier(**target, epochs=3)
    assert by_epochs == adapter.get_noise_multiplier(**target, steps=43)  # 42.86
    for wrong in ({}, {"steps": 1, "epochs": 1}, {"epochs": 0}):
        with pytest.raises(pc.PrivcalcError, match="epochs"):
            adapter.get_noise_multiplier(**target, **wrong)  # type: ignore[arg-type]
    with pytest.raises(pc.PrivcalcError, match="target_epsilon"):
        adapter.get_noise_multiplier(target_epsilon=0, target_delta=1e-5, sample_rate=0.1, steps=1)
    with pytest.raises(pc.PrivcalcError, match="target_delta"):
        adapter.get_noise_multiplier(target_epsilon=1, target_delta=0, sample_rate=0.1, steps=1)


@pytest.mark.parametrize("draws", DRAWS)
def test_noise_for_a_loader_meets_the_target_at_the_rate_that_opacus_makes_of_it(draws: Any) -> None:
    """121 records in batches of 30 are five batches: the rate is 1/5, and 30/121 is another."""
    data = TensorDataset(torch.randn(121, 5), torch.arange(121) % 2, torch.arange(121))
    target = {"target_epsilon": 2.0, "target_delta": 1e-5, "epochs": 2}
    loader = DataLoader(data, batch_size=30)
    found = adapter.noise_for(loader, **target)
    run = Run(noise=found, data=data)
    assert adapter.noise_for(run.loader, **target) == found
    step = adapter.step_of(run.optimizer, run.loader, draws=draws)
    assert step.rate == pytest.approx(1 / 5, rel=1e-6)
    assert 1.9999 < (step * (2 * len(run.loader))).epsilon(delta=1e-5).upper <= 2.0
    assert found == adapter.noise_for(loader, target_epsilon=2.0, target_delta=1e-5, steps=10)
    for wrong in ({}, {"steps": 1, "epochs": 1}, {"epochs": 0}):
        with pytest.raises(pc.PrivcalcError, match="epochs"):
            adapter.noise_for(loader, target_epsilon=2.0, target_delta=1e-5, **wrong)
    with pytest.raises(pc.PrivcalcError, match="length"):
        adapter.noise_for((batch for batch in loader), **target)


@pytest.mark.parametrize("rate", [0.01, 0.1, 1 / 3, 1 / 7, 1e-9, 0.25, 1 - 1e-9, 1.0])
def test_the_rate_is_that_of_the_coins(rate: float) -> None:
    share = float((torch.arange(2**24, dtype=torch.float32) / 2**24 < rate).sum()) / 2**24
    assert rate <= adapter.coin_rate(rate) <= rate + 2**-23
    assert share <= adapter.coin_rate(rate) <= max(share, rate + 2**-24)
    drawn = torch.rand(1000).double() * 2**24
    assert bool((drawn == drawn.round()).all())


# --- ledgers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("draws", "mode", "physical"),
    quick(itertools.product(DRAWS, ["hooks", "ghost", "per layer"], [None, 7]), 0, 3, 4, 7, 8, 11, 12, 15, 16),
)
def test_a_ledger_ends_in_a_certificate(tmp_path: Path, draws: Any, mode: str, physical: int | None) -> None:
    options = {"clipping": "per_layer", "max_grad_norm": [0.5] * 4} if mode == "per layer" else {}
    run = Run(grad_sample_mode="ghost" if mode == "ghost" else "hooks", **options)
    target = pc.Guarantee(epsilon=4.0, delta=1e-5)
    with run.keep(tmp_path / "run.jsonl", draws=draws, steps=8, target=target, public={"records": RECORDS}) as ledger:
        run.train(epochs=2, physical=physical)
        assert ledger.spent == ledger.terms.plan == run.engine.accountant.run
        before = run.state
        with pytest.raises(pc.BudgetExceeded, match=r"plan=step_of\(optimizer"):
            run.train(physical=physical)
        assert all(map(torch.equal, before, run.state))
    if physical is not None:
        return
    certificate = pc.certify(tmp_path / "run.jsonl", delta=1e-5)
    document = certificate.document
    assert certificate.guarantee.epsilon.upper == run.engine.get_epsilon(1e-5)
    assert document["declared"] == ([] if draws else document["run"])
    (sampling,) = (entry for entry in document["assumptions"]["needed"] if entry["name"] == "sampling")
    assert (sampling["value"], sampling["by"]) == ("poisson", "ledger" if draws is True else "nobody")
    assert mode != "hooks" or certificate.verify(tmp_path / "run.jsonl")


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_the_noise_is_the_ledgers_and_as_large_as_it_says(mode: str) -> None:
    run = Run(grad_sample_mode=mode, loss_reduction="mean")
    run.keep()
    x, y, _ = next(iter(run.loader))
    run.loss(run.model(x), y).backward()
    run.optimizer.step()
    sums = torch.cat([p.summed_grad.double().ravel() for p in run.optimizer.params])
    grid = noise.Grid.of(2.0, clip_norm=1.0, coordinates=sums.numel())
    added = torch.cat([p.grad.double().ravel() for p in run.optimizer.params]) * BATCH - sums
    assert 0.5 < float(added.std()) / grid.scale < 2


def test_batches_of_a_ledger_are_samples_at_the_nominal_rate() -> None:
    run = Run(batch=40)
    run.keep(draws=True, steps=300)
    found = run.train(epochs=100)
    counts = np.bincount(np.concatenate(found), minlength=RECORDS)
    assert len(found) == 300
    assert abs(counts.mean() - 100) < 5 * math.sqrt(300 * 2 / 9 / RECORDS)
    assert counts.min() > 50
    assert all(np.unique(batch).size == batch.size for batch in found)


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize("batch", [1, 30])
def test_empty_batches_and_workers_that_read_ahead(draws: Any, batch: int) -> None:
    """Of rate 1/120 one in three batches is empty."""
    run = Run(batch=batch, workers=0 if draws is True else 2)
    with run.keep(draws=draws) as ledger:
        for _ in range(2):
            run.train(most=20, physical=500)
    assert taken(ledger) == len(run.engine.accountant) == (40 if batch == 1 else 8)


def test_workers_are_refused_where_the_ledger_draws() -> None:
    with pytest.raises(pc.PrivcalcError, match="num_workers"):
        Run(workers=1).keep()


def test_a_plan_of_the_nominal_rate_is_refused_with_the_step_that_it_needs() -> None:
    """Single precision has no 1/3: the loader's coins have a rate a little above."""
    run = Run(batch=40)
    nominal = pc.PoissonSampled(pc.Gaussian(2.0), 1 / 3)
    assert adapter.step_of(run.optimizer, run.loader) == nominal
    ledger = pc.Ledger(None, plan=nominal * 3)
    run.optimizer, run.loader = adapter.keep_ledger(run.optimizer, run.loader, ledger, start="random", draws=False)
    with pytest.raises(pc.BudgetExceeded, match=r"not in the plan.*plan=step_of\(optimizer, data_loader\) \* \(epochs"):
        run.train()


def test_what_was_given_takes_no_more_steps() -> None:
    run = Run()
    with run.keep() as ledger:
        before, (optimizer, loader) = run.state, run.given
        for x, y, _ in loader:
            cross_entropy(run.model(x), y).backward()
            with pytest.raises(pc.PrivcalcError, match="step the one that keep_ledger returned"):
                optimizer.step()
            run.model.zero_grad()
            optimizer.zero_grad()
            cross_entropy(run.model(x), y).backward()
            with pytest.raises(pc.PrivcalcError, match="no batch was drawn"):
                run.optimizer.step()
            break
        assert all(map(torch.equal, before, run.state))
    assert taken(ledger) == 0
    with pytest.raises(pc.PrivcalcError, match="already"):
        adapter.keep_ledger(run.optimizer, run.loader, ledger, start="random")


def test_arguments_that_do_not_fit_are_refused() -> None:
    run, ghost = Run(), Run(grad_sample_mode="ghost")
    ledger = pc.Ledger(None, plan=adapter.step_of(run.optimizer, run.loader))
    for made, options, match in (
        (run, {"draws": "batches"}, "draws"),
        (run, {"ahead": 0}, "ahead"),
        (run, {"criterion": ghost.criterion}, "criterion"),
        (ghost, {}, "criterion"),
    ):
        with pytest.raises(pc.PrivcalcError, match=match):
            adapter.keep_ledger(made.optimizer, made.loader, ledger, start="random", **options)
    run.train()  # nothing was changed
    with pytest.raises(pc.PrivcalcError, match="ledger = None"):
        adapter.keep_ledger(run.optimizer, run.loader, None, start="random")
    copies = Run(data=Subset(records(), [0, 0, 1, 2] * 10))
    with pytest.raises(pc.PrivcalcError, match="several places"):
        copies.keep()


@pytest.mark.parametrize("made", ["noise", "coins"])
def test_a_generator_of_somebodys_needs_a_ledger_that_claims_nothing(made: str) -> None:
    """Each of them is made with one and the same seed."""

    def run() -> Run:
        if made == "noise":
            return Run(noise_generator=torch.Generator())
        found = Run()
        found.loader.generator = torch.Generator()
        return found

    with pytest.raises(pc.PrivcalcError, match="seed"):
        run().keep(draws=False)
    run().keep(draws=False, seed=1)
    run().keep(draws=True)
    if made == "noise":
        run().keep(draws="noise")


def test_a_process_that_was_stopped_goes_on(tmp_path: Path) -> None:
    """Checkpoint and ledger: in another process the engine has the history, and the ledger its charges."""
    run = Run()
    ledger = run.keep(tmp_path / "run.jsonl", steps=8)
    run.train()
    run.engine.save_checkpoint(path=tmp_path / "run.pt", module=run.model, optimizer=run.optimizer)
    ledger.pause()
    again = Run()
    with again.keep(tmp_path / "run.jsonl", steps=8) as ledger:
        again.engine.load_checkpoint(path=tmp_path / "run.pt", module=again.model, optimizer=again.optimizer)
        again.train()
    assert len(again.engine.accountant) == 8 == taken(ledger)
    text = (tmp_path / "run.jsonl").read_text()
    assert "digests" not in text
    assert "bits:" not in text


# --- every step sums one batch, once --------------------------------------------------------------


def by_skipping(run: Run) -> None:
    for i, (x, y, _) in enumerate(run.loader):
        run.optimizer.signal_skip_step(i % 4 != 3)
        cross_entropy(run.model(x), y).backward()
        run.optimizer.step()
        run.optimizer.zero_grad()


def by_iterators(run: Run) -> None:
    for i, (x, y, _) in enumerate([next(iter(run.loader)) for _ in range(4)]):
        run.optimizer.signal_skip_step(i != 3)
        cross_entropy(run.model(x), y).backward()
        run.optimizer.step()


def twice(run: Run) -> None:
    for batch in run.loader:
        run.step(batch)
        run.step(batch)


def one_left_out(run: Run) -> None:
    for i, batch in enumerate(run.loader):
        if i != 1:
            run.step(batch)


def of_another_loader(run: Run) -> None:
    for batch in DataLoader(run.loader.dataset, batch_size=BATCH):
        run.step(batch)


def left_unfinished(run: Run) -> None:
    with BatchMemoryManager(data_loader=run.loader, max_physical_batch_size=7, optimizer=run.optimizer) as small:
        for batch in small:
            run.step(batch)
            break
        for batch in small:
            run.step(batch)


def a_record_left_out(run: Run) -> None:
    for x, y, _ in run.loader:
        run.step((x[1:], y[1:]))


def a_record_twice(run: Run) -> None:
    for x, y, _ in run.loader:
        run.step((torch.cat([x, x[:1]]), torch.cat([y, y[:1]])))


def no_zero_grad(run: Run) -> None:
    for x, y, _ in run.loader:
        cross_entropy(run.model(x), y).backward()
        run.optimizer.step()
        for p in run.optimizer.params:
            p.grad_sample = None


def added_in_part_and_again(run: Run) -> None:
    """As where memory was too little for the second layer."""
    own = run.optimizer._factors
    for x, y, _ in run.loader:
        run.optimizer._factors = lambda norms: own(norms)[:2]
        cross_entropy(run.model(x), y).backward()
        with pytest.raises(ValueError, match="zip"):
            run.optimizer.step()
        run.optimizer._factors = own
        run.model.zero_grad()
        for p in run.optimizer.params:
            p.grad_sample = None
        cross_entropy(run.model(x), y).backward()
        run.optimizer.step()


def the_same_rows_twice(run: Run) -> None:
    """Half of a batch, and again in place of the other half."""
    for x, y, _ in run.loader:
        half = slice(len(x) // 2)
        run.optimizer.signal_skip_step(True)
        run.optimizer.signal_skip_step(False)
        cross_entropy(run.model(x[half]), y[half]).backward()
        run.optimizer.step()
        run.optimizer.step()


def infinite(run: Run) -> None:
    run.loader.dataset.tensors[0][:, 2] = math.inf
    run.train()


def in_bfloat(run: Run) -> None:
    run.model.bfloat16()
    for x, y, _ in run.loader:
        run.step((x.bfloat16(), y))


def another_divisor(run: Run) -> None:
    for batch in run.loader:
        run.optimizer.expected_batch_size = len(batch[0])
        run.step(batch)


def a_clip_norm_of_pieces(run: Run) -> None:
    with BatchMemoryManager(data_loader=run.loader, max_physical_batch_size=7, optimizer=run.optimizer) as small:
        for batch in small:
            run.step(batch)
            run.optimizer.max_grad_norm *= 0.5


def the_plain_optimizer(run: Run) -> None:
    for batch in run.loader:
        run.step(batch)
        run.optimizer.zero_grad()  # the tensors with noise stay, and are added to
        cross_entropy(run.model(batch[0]), batch[1]).backward()
        run.plain.step()


def the_plain_optimizer_first(run: Run) -> None:
    for x, y, _ in run.loader:
        cross_entropy(run.model(x), y).backward()
        run.plain.step()


def written_by_a_hook(run: Run) -> None:
    """What comes after the noise has none."""
    before = run.optimizer.step_hook

    def hook(optimizer: Any) -> None:
        before(optimizer)
        for p in optimizer.params:
            p.grad.add_(p.summed_grad)

    run.optimizer.attach_step_hook(hook)
    for batch in run.loader:
        run.step(batch)


def frozen_with_a_gradient(run: Run) -> None:
    for x, y, _ in run.loader:
        cross_entropy(run.model(x), y).backward()
        next(run.model.parameters()).requires_grad_(False)
        run.optimizer.step()


def not_clipped(run: Run) -> None:
    for x, y, _ in run.loader:
        cross_entropy(run.model(x), y).backward()
        for p in run.optimizer.params:
            p.summed_grad = None
        run.optimizer.max_grad_norm = 1e-9
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Kept, "clip_and_accumulate", unclipped)
            run.optimizer.step()


def unclipped(optimizer: Any) -> None:
    for p in optimizer.params:
        p.summed_grad = p.grad_sample.sum(dim=0)
    optimizer._summed = len(p.grad_sample)


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize(
    ("use", "steps", "match"),
    [
        (by_skipping, 0, "batch"),
        (by_iterators, 0, "batch"),
        (twice, 1, "no batch was drawn"),
        (one_left_out, 1, "was not used"),
        (of_another_loader, 0, "no batch was drawn"),
        (left_unfinished, 0, "was not used"),
        (a_record_left_out, 0, "records of this step"),
        (a_record_twice, 0, "records of this step"),
        (no_zero_grad, 1, "zero_grad"),
        (added_in_part_and_again, 0, "records of this step"),
        (the_same_rows_twice, 0, "added once"),
        (infinite, 0, "finite"),
        (in_bfloat, 0, "precision"),
        (another_divisor, 0, "expected_batch_size"),
        (a_clip_norm_of_pieces, 0, "max_grad_norm"),
        (the_plain_optimizer, 1, "without noise"),
        (the_plain_optimizer_first, 0, "without noise"),
        (written_by_a_hook, 1, "without noise"),
        (frozen_with_a_gradient, 1, "frozen"),
        (not_clipped, 0, "longer than any sum"),
    ],
)
def test_what_is_no_step_of_one_batch_is_refused(draws: Any, use: Any, steps: int, match: str) -> None:
    run = Run()
    with run.keep(draws=draws, cap=None) as ledger:
        with pytest.raises(pc.PrivcalcError, match=match):
            use(run)
        assert len(run.engine.accountant) == steps
        if draws is False:  # where it draws, it may have charged for the batch
            assert taken(ledger) == steps


def test_a_sum_whose_noise_failed_is_not_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opacus keeps it where a memory manager split the batch, and adds the next batch to it."""
    run = Run()
    run.keep(draws=False)

    def no_memory(**_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(opacus_optimizer, "_generate_noise", no_memory)
    with BatchMemoryManager(data_loader=run.loader, max_physical_batch_size=5, optimizer=run.optimizer) as small:
        batches = iter(small)
        with pytest.raises(MemoryError):
            list(map(run.step, batches))
        monkeypatch.undo()
        with pytest.raises(pc.PrivcalcError, match="was not used"):
            next(batches)
    assert len(run.engine.accountant) == 0


def test_coins_of_another_law_are_refused() -> None:
    """With eight bits every rate is a multiple of 1/256 or so."""
    run = Run()
    run.keep(draws=False)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with pytest.raises(pc.PrivcalcError, match="coins"):
            next(iter(run.loader))
    finally:
        torch.set_default_dtype(torch.float32)
    run = Run()
    run.keep(draws=False)
    run.loader.batch_sampler.sample_rate = 0.9
    with pytest.raises(pc.PrivcalcError, match=r"at rate 0\.25"):
        next(iter(run.loader))


def test_coins_that_are_seeded_in_every_step_are_refused() -> None:
    run = Run()
    run.keep(draws=False, steps=500)

    def steps() -> None:
        for _ in range(500):
            torch.manual_seed(0)
            run.step(next(iter(run.loader)))

    with pytest.raises(pc.PrivcalcError, match="one and the same size"):
        steps()


def test_other_norms_than_the_noises_are_refused() -> None:
    run = Run(clipping="per_layer", max_grad_norm=[0.5] * 4)
    run.keep()
    run.train()
    run.optimizer.max_grad_norms[0] = 3.0
    with pytest.raises(pc.PrivcalcError, match="max_grad_norm"):
        run.train()


# --- ghost clipping -------------------------------------------------------------------------------


def ghost(module: Any = None, data: Any = None, **options: Any) -> Run:
    run = Run(grad_sample_mode="ghost", module=module, data=data, **options)
    run.keep(draws=options.pop("draws", True))
    return run


def test_ghost_clipping_without_its_criterion_is_refused() -> None:
    run = ghost()
    run.loss = cross_entropy
    with pytest.raises(pc.PrivcalcError, match="criterion"):
        run.train()
    run = ghost()
    run.loss = run.criterion  # the one of make_private
    with pytest.raises(pc.PrivcalcError, match="criterion"):
        run.train()


@pytest.mark.parametrize("which", ["optimizer", "module"])
def test_ghost_clipping_by_another_norm_than_that_of_the_noise_is_refused(which: str) -> None:
    run = ghost()
    (run.optimizer if which == "optimizer" else run.model).max_grad_norm = 1e3
    with pytest.raises(pc.PrivcalcError, match="max_grad_norm"):
        run.train()


@pytest.mark.parametrize("reduction", ["column", "mean"])
def test_ghost_clipping_needs_a_loss_for_each_record(reduction: str) -> None:
    """The criterion's product of n factors and [n, 1] losses, or with one loss, clips nothing."""
    run = ghost(max_grad_norm=1e-3)
    run.loss.criterion.forward = (
        cross_entropy
        if reduction == "mean"
        else lambda scores, labels: cross_entropy(scores, labels, reduction="none")[:, None]
    )
    with pytest.raises(pc.PrivcalcError, match="one loss for each"):
        run.train()


@pytest.mark.parametrize("change", ["backward", "by hand", "another tensor"])
def test_what_is_added_to_a_ghost_clipped_sum_is_refused(change: str) -> None:
    run = ghost(max_grad_norm=1e-3)
    x, y, _ = next(iter(run.loader))
    run.loss(run.model(x), y).backward()
    weight = next(run.model.parameters())
    if change == "backward":
        (1e6 * nn.functional.linear(x, weight).sum()).backward()
    elif change == "by hand":
        weight.grad.add_(x.sum())
    else:
        weight.grad = weight.grad + x.sum()
    with pytest.raises(pc.PrivcalcError, match="gradients: must be what"):
        run.optimizer.step()


class Tied(nn.Module):
    """An output layer that has the weights of the embedding, which no hook sees."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(20, 4), nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return 30 * nn.functional.linear(self.places(self.words(x).mean(dim=1)), self.words.weight)


def test_ghost_clipping_that_takes_too_small_norms_is_refused() -> None:
    data = TensorDataset(torch.randint(20, (RECORDS, 3)), torch.arange(RECORDS) % 20, torch.arange(RECORDS))
    with pytest.raises(pc.PrivcalcError, match="too small a norm"):
        ghost(module=Tied(), data=data, max_grad_norm=1e-2).train(epochs=8)  # some records have too small a norm
    run = Run(module=Tied(), data=data, grad_sample_mode="ghost")
    run.model._module.words.scale_grad_by_freq = True
    with pytest.raises(pc.PrivcalcError, match="scale_grad_by_freq"):
        run.keep()


def test_ghost_clipping_by_norms_of_an_earlier_batch_is_refused() -> None:
    """Of a layer that this batch does not go through."""
    layers = {"body": nn.Linear(5, 5), "head": nn.Linear(5, 2)}
    run = ghost(module=Whole(lambda self, x: self.head(self.body(x) if self.deep else x), **layers))
    run.model._module.deep = True
    run.train(most=2)
    run.model._module.deep = False
    with pytest.raises(pc.PrivcalcError, match="has not taken the norms"):
        run.train()


def test_ghostly_losses_are_added_and_scaled() -> None:
    run = ghost()
    for x, y, _ in run.loader:
        run.optimizer.zero_grad()
        scores = run.model(x)
        loss = 2 * run.loss(scores, y) / 2 - 0.5 * run.loss(scores, 1 - y) + 1 - (1 - run.loss(scores, y))
        negative = -loss
        (-negative).backward()
        run.optimizer.step()
    assert len(run.engine.accountant) == 4


def test_ghost_clipping_by_norms_of_few_digits_is_refused() -> None:
    with pytest.raises(pc.PrivcalcError, match="too few digits"):
        mixed_precision(ghost())


# --- adaptive clipping ----------------------------------------------------------------------------


def test_adaptive_clipping_is_one_release_of_gradients_and_count() -> None:
    """By Opacus's own formula, noise of gradients and of the count; together they are that of its noise multiplier."""
    run = Run(**ADAPTIVE | {"unclipped_num_std": 1.5})
    run.keep()
    asked: list[tuple[np.ndarray, float]] = []
    own = run.optimizer.release

    def release(total: np.ndarray, bound: float, waiting: Any) -> np.ndarray:
        asked.append((total, bound))
        return own(total, bound, waiting)

    run.optimizer.release = release
    x, y, _ = next(iter(run.loader))
    cross_entropy(run.model(x), y).backward()
    norms = np.linalg.norm(
        [torch.linalg.vector_norm(p.grad_sample.double().flatten(1), dim=1).numpy() for p in run.optimizer.params],
        axis=0,
    )
    run.optimizer.max_grad_norm = clip_norm = 1.001 * float(np.quantile(norms, 0.7))
    run.optimizer.step()
    ((total, bound),) = asked
    clipped = norms > clip_norm
    assert 0 < clipped.sum() < len(x)
    weight = total[-1] / np.where(clipped, -0.5, 0.5).sum()
    assert np.hypot(np.minimum(norms, clip_norm), weight / 2).max() <= bound
    gradients, count = 2.0 * bound / clip_norm, 2.0 * bound / weight  # over C, and over 1
    assert gradients == pytest.approx((2.0**-2 - (2 * 1.5) ** -2) ** -0.5, rel=1e-12)
    assert count == pytest.approx(1.5, rel=1e-12)
    assert gradients**-2 + (2 * count) ** -2 == pytest.approx(2.0**-2, rel=1e-12)  # of range ½ each way
    run.optimizer.zero_grad()
    run.optimizer.unclipped_num_std = 1.0
    with pytest.raises(pc.PrivcalcError, match="unclipped_num_std"):
        run.train()


def test_an_adaptive_clip_norm_goes_to_the_quantile() -> None:
    """Also in pieces, whose counts are added; and with batches that are empty, which Opacus cannot clip."""
    data = TensorDataset(torch.randn(2000, 5), torch.arange(2000) % 2, torch.arange(2000))
    for physical in (None, 300):
        run = Run(batch=500, data=data, noise=0.5, **ADAPTIVE | {"target_unclipped_quantile": 0.9})
        run.plain.param_groups[0]["lr"] = 0.0
        run.keep(steps=80)
        run.train(epochs=20, physical=physical)
        again = Run(data=data, max_grad_norm=100.0, batch=2000)
        again.module.load_state_dict(run.module.state_dict())
        norms = adapter.NormRatios(again.optimizer)
        again.train()
        reached = float(np.mean(norms.steps[0] * 100 <= float(run.optimizer.max_grad_norm)))
        assert 0.8 < reached < 0.97
    empty = Run(batch=1, **ADAPTIVE)
    with empty.keep() as ledger:
        empty.train(most=20)
    assert taken(ledger) == 20


# --- scripts as people write them: nothing is said -------------------------------------------------


class Whole(nn.Module):
    """Layers by name, and what is done with them."""

    def __init__(self, forward: Any, **layers: Any) -> None:
        super().__init__()
        self.forward_of = forward
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x: Any) -> Any:
        return self.forward_of(self, x)


LABELS, NUMBERS = torch.arange(RECORDS) % 2, torch.arange(RECORDS)
IMAGES = TensorDataset(torch.randn(RECORDS, 1, 8, 8), LABELS, NUMBERS)
TEXTS = TensorDataset(torch.randint(9, (RECORDS, 6)), LABELS, NUMBERS)


def convolutions() -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(36, 2)
    )


def recurrent() -> Any:
    return Whole(
        lambda self, x: self.head(self.body(self.words(x))[0][:, -1]),
        words=nn.Embedding(9, 4),
        body=DPLSTM(4, 5, batch_first=True),
        head=nn.Linear(5, 2),
    )


def encoder() -> Any:
    def forward(self: Any, x: Any) -> Any:
        h = self.words(x)
        h = self.norm(h + self.attention(h, h, h, need_weights=False)[0])
        return self.head((h + self.dropout(self.inner(h))).mean(dim=1))

    return Whole(
        forward,
        words=nn.Embedding(9, 4),
        attention=DPMultiheadAttention(4, 2, batch_first=True),
        norm=nn.LayerNorm(4),
        dropout=nn.Dropout(0.1),
        inner=nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)),
        head=nn.Linear(4, 2),
    )


def second_place() -> Any:
    """Sequence first, as attention has it by default; the records are in second place from here to the mean."""

    def forward(self: Any, x: Any) -> Any:
        h = x.transpose(0, 1)
        h = h + self.attention(h, h, h, need_weights=False)[0]
        return self.head(h).mean(dim=0)

    return Whole(forward, attention=DPMultiheadAttention(4, 2), head=nn.Linear(4, 2))


def adapters() -> Any:
    """Frozen weights, and a trained product of low rank beside them."""
    frozen = nn.Linear(5, 8).requires_grad_(False)
    return Whole(
        lambda self, x: self.head(torch.relu(self.frozen(x) + self.up(self.down(x)))),
        frozen=frozen,
        down=nn.Linear(5, 2, bias=False),
        up=nn.Linear(2, 8, bias=False),
        head=nn.Linear(8, 2),
    )


SCRIPTS = {
    "conv with GroupNorm": (convolutions, IMAGES, {}),
    "DPLSTM": (recurrent, TEXTS, {}),
    "encoder": (encoder, TEXTS, {}),
    "batch in second place": (
        second_place,
        TensorDataset(torch.randn(RECORDS, 6, 4), LABELS, NUMBERS),
        {"batch_first": False},
    ),
    "low-rank adapters": (adapters, None, {}),
    "per-sample gradients of functorch": (network, None, {"grad_sample_mode": "functorch"}),
    "sums": (network, None, {"loss_reduction": "sum"}),
    "double precision": (
        lambda: network().double(),
        TensorDataset(torch.randn(RECORDS, 5).double(), LABELS, NUMBERS),
        {},
    ),
    "ghost clipping of convolutions": (convolutions, IMAGES, {"grad_sample_mode": "ghost"}),
    "a module that is not wrapped": (encoder, TEXTS, {"wrap_model": False}),
    "ghost clipping of one that is not wrapped": (network, None, {"wrap_model": False, "grad_sample_mode": "ghost"}),
    "adaptive clipping": (network, None, ADAPTIVE),
}


@pytest.mark.parametrize(
    ("name", "draws"),
    [*((name, True) for name in SCRIPTS), *((name, False) for name in ("conv with GroupNorm", "sums", "encoder"))],
)
def test_an_ordinary_script_runs_silently(name: str, draws: bool) -> None:
    module, data, options = SCRIPTS[name]
    run = Run(module=module(), data=data, **options)
    if options.get("loss_reduction") == "sum":
        run.loss = lambda scores, labels: cross_entropy(scores, labels, reduction="sum")
    with run.keep(draws=draws, steps=8) as ledger:
        before = run.state
        run.train()
        run.train(physical=7)
        assert not any(map(torch.equal, before[-1:], run.state[-1:]))
    assert taken(ledger) == 8
    pc.certify(ledger, delta=1e-5)


def test_records_in_second_place_of_some_layers_are_refused() -> None:
    """Attention as it is by default, in a model whose other layers have them in first: Opacus takes places for them."""
    module = second_place()
    module.forward_of = lambda self, x: self.head(self.attention(h := x.transpose(0, 1), h, h)[0].mean(dim=0))
    run = Run(module=module, data=TensorDataset(torch.randn(RECORDS, 6, 4), LABELS, NUMBERS))
    run.keep()
    with pytest.raises(pc.PrivcalcError, match="batch_first=True"):
        run.train()


def test_sums_are_divided_by_a_public_number() -> None:
    """Opacus's own is the rate times how many records there are, rounded down."""
    runs = [Run(), Run()]
    for run, size in zip(runs, (None, 2.0 * BATCH), strict=True):
        run.model._module.load_state_dict(runs[0].model._module.state_dict())
        run.keep(expected_batch_size=size, seed=3)
    for run in runs:
        x, y, _ = next(iter(run.loader))
        run.step((run.loader.dataset.tensors[0][: len(x)] * 0, y * 0))
    for one, two in zip(runs[0].optimizer.params, runs[1].optimizer.params, strict=True):
        assert torch.allclose(one.grad, 2 * two.grad)
    with pytest.raises(pc.PrivcalcError, match="expected_batch_size"):
        Run().keep(expected_batch_size=0)


def momentum_and_schedules(run: Run) -> None:
    schedule = torch.optim.lr_scheduler.StepLR(run.optimizer, 1, gamma=0.9)
    run.train()
    schedule.step()


def mixed_precision(run: Run) -> None:
    """The forward pass in bf16, and all that torch takes from there; weights stay in single precision."""
    for x, y, _ in run.loader:
        run.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            scores = run.model(x)
            loss = run.loss(scores, y)
        loss.backward()
        assert scores.dtype == torch.bfloat16
        run.optimizer.step()


def gradual_unfreezing(run: Run) -> None:
    first = run.model._module[0]
    first.requires_grad_(False)
    run.optimizer.zero_grad()
    run.train()
    first.requires_grad_(True)
    run.train()


def averaged_weights(run: Run) -> None:
    average = torch.optim.swa_utils.AveragedModel(
        run.model._module, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    run.train()
    average.update_parameters(run.model._module)
    run.model._module.load_state_dict(average.module.state_dict())
    run.train()


def projection(run: Run) -> None:
    for batch in run.loader:
        run.step(batch)
        with torch.no_grad():
            for p in run.model.parameters():
                p.clamp_(-1, 1)


def lookahead(run: Run) -> None:
    slow = [p.detach().clone() for p in run.model.parameters()]
    for batch in run.loader:
        run.step(batch)
        with torch.no_grad():
            for p, own in zip(run.model.parameters(), slow, strict=True):
                own.lerp_(p, 0.5)
                p.copy_(own)


def a_second_step_along_noisy_gradients(run: Run) -> None:
    for batch in run.loader:
        run.step(batch)
        run.plain.step()


def closures(run: Run) -> None:
    for x, y, _ in run.loader:

        def closure(x: Any = x, y: Any = y) -> None:
            run.optimizer.zero_grad()
            cross_entropy(run.model(x), y).backward()

        run.optimizer.step(closure)


def evaluation_between(run: Run) -> None:
    run.train()
    run.model.eval()
    with torch.no_grad():
        run.model(torch.randn(7, 5))
    run.model.train()
    run.train()


def in_pieces_by_hand(run: Run) -> None:
    for x, y, _ in run.loader:
        half = len(x) // 2
        for part, last in ((slice(half), False), (slice(half, None), True)):
            run.optimizer.signal_skip_step(not last)
            cross_entropy(run.model(x[part]), y[part]).backward()
            run.optimizer.step()
            run.optimizer.zero_grad()


def a_noise_schedule(run: Run) -> None:
    run.optimizer.noise_multiplier *= 1.5  # charged as it is drawn: more private than what was planned here
    with pytest.raises(pc.BudgetExceeded):
        run.train()


@pytest.mark.parametrize("draws", [True, False])
@pytest.mark.parametrize(
    "loop",
    [
        momentum_and_schedules,
        mixed_precision,
        gradual_unfreezing,
        averaged_weights,
        projection,
        lookahead,
        a_second_step_along_noisy_gradients,
        closures,
        evaluation_between,
        in_pieces_by_hand,
        a_noise_schedule,
    ],
)
def test_an_ordinary_loop_runs_silently(loop: Any, draws: bool) -> None:
    run = Run()
    with run.keep(draws=draws) as ledger:
        loop(run)
        assert taken(ledger) == len(run.engine.accountant)
    copy.deepcopy(run.model._module)


def test_made_private_twice_goes_on_with_another_ledger() -> None:
    """The same module and optimizer, other noise: the second run has a ledger of its own."""
    run = Run()
    run.keep(steps=4)
    run.train()
    model, optimizer, loader = run.engine.make_private(
        module=run.model,
        optimizer=run.optimizer,
        data_loader=DataLoader(records(), batch_size=BATCH),
        noise_multiplier=3.0,
        max_grad_norm=1.0,
    )
    assert not isinstance(optimizer, Kept)
    run.model, run.optimizer, run.loader = model, optimizer, loader
    run.keep(steps=4)
    run.train()
    assert run.engine.accountant.history == [(2.0, 0.25, 4), (3.0, 0.25, 4)]


# --- nothing of torch or Opacus is replaced --------------------------------------------------------

SCRIPT = """
import sys, types, warnings
warnings.simplefilter("ignore")
import torch, opacus
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager

def private(accountant, mode):
    module = torch.nn.Linear(3, 2)
    return PrivacyEngine(accountant=accountant).make_private(
        module=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.1), criterion=torch.nn.CrossEntropyLoss(),
        data_loader=torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(torch.randn(40, 3), torch.arange(40) % 2), batch_size=10),
        noise_multiplier=1.0, max_grad_norm=1.0, grad_sample_mode=mode)

def train(model, optimizer, criterion, loader):
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=5, optimizer=optimizer) as small:
        for x, y in small:
            optimizer.zero_grad(); criterion(model(x), y).backward(); optimizer.step()

def both(accountant, keep):
    for mode in ("hooks", "ghost"):
        made = private(accountant, mode)
        criterion = made[2] if mode == "ghost" else torch.nn.CrossEntropyLoss()
        train(made[0], *keep(made[1], criterion, made[-1], mode))

def attributes():
    found = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("torch", "opacus") and isinstance(module, types.ModuleType):
            for key, value in list(vars(module).items()):
                if callable(value):
                    found[name, key] = value
                if isinstance(value, type) and value.__module__.split(".")[0] in ("torch", "opacus"):
                    for own, one in list(vars(value).items()):
                        if callable(one) or isinstance(one, (property, classmethod, staticmethod)):
                            found[value, own] = one
    return found

both("rdp", lambda optimizer, criterion, loader, mode: (optimizer, criterion, loader))
before = attributes()
import privcalc as pc
from privcalc.interop import opacus as adapter
adapter.register()
assert len(before) > 10_000

def keep(optimizer, criterion, loader, mode):
    ledger = pc.Ledger(None, plan=adapter.step_of(optimizer, loader, draws=draws) * 4)
    kinds = type(optimizer), type(loader), type(loader.batch_sampler)
    methods = set(vars(optimizer)), set(vars(loader.batch_sampler))
    given = {"draws": draws, "criterion": criterion if mode == "ghost" else None}
    made = adapter.keep_ledger(optimizer, loader, ledger, start="random", **given)
    assert kinds == (type(optimizer), type(loader), type(loader.batch_sampler))
    assert methods == (set(vars(optimizer)), set(vars(loader.batch_sampler)))
    return made if mode == "ghost" else (made[0], criterion, made[1])

for draws in (False, "noise", True):
    both("privcalc", keep)
after = attributes()
changed = [key for key, value in before.items() if after.get(key) is not value]
print(changed)
"""


def test_nothing_of_torch_or_opacus_is_replaced() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


# --- norms for audits -----------------------------------------------------------------------------


def test_norms_are_those_of_single_records() -> None:
    run = Run(max_grad_norm=0.7)
    norms = adapter.NormRatios(run.optimizer)
    x, y, _ = next(iter(run.loader))
    cross_entropy(run.model(x), y).backward()
    plain = network()
    plain.load_state_dict(run.model._module.state_dict())
    alone = []
    for i in range(len(x)):
        plain.zero_grad()
        cross_entropy(plain(x[i : i + 1]), y[i : i + 1]).backward()
        alone.append(min(math.sqrt(sum(float(p.grad.double().square().sum()) for p in plain.parameters())) / 0.7, 1.0))
    run.optimizer.step()
    assert len(norms.steps) == 1
    assert norms.steps[0] == pytest.approx(alone, rel=1e-5)
    assert len(run.engine.accountant) == 1
    for options in ({"clipping": "per_layer", "max_grad_norm": [0.5] * 4}, {"grad_sample_mode": "ghost"}):
        with pytest.raises(pc.PrivcalcError, match="per-sample"):
            adapter.NormRatios(Run(**options).optimizer)


@pytest.mark.parametrize("first", ["norms", "ledger"])
def test_norms_feed_the_audit(first: str) -> None:
    run = Run(batch=RECORDS, max_grad_norm=3.0)
    norms = adapter.NormRatios(run.optimizer) if first == "norms" else None
    run.keep()
    norms = norms or adapter.NormRatios(run.optimizer)
    batches = run.train(epochs=2)
    losses = pc.RealisedLosses(records=RECORDS, noise_multiplier=2.0, rate=1.0)
    for ratios, numbers in zip(norms.steps, batches, strict=True):
        losses.update(ratios, indices=numbers)
    assert losses.worst_case == run.engine.accountant.run
    own = np.asarray(losses.epsilon(delta=1e-5))
    assert own.max() <= run.engine.get_epsilon(1e-5)
    assert own.min() < 0.9 * run.engine.get_epsilon(1e-5)


def test_norms_of_batches_in_pieces_are_refused() -> None:
    run = Run()
    adapter.NormRatios(run.optimizer)
    with pytest.raises(pc.PrivcalcError, match="in pieces"):
        run.train(physical=7)


# --- the guide ------------------------------------------------------------------------------------


def test_the_guide_runs_as_it_stands() -> None:
    text = (Path(__file__).parents[2] / "docs" / "guides" / "elsewhere.md").read_text(encoding="utf-8")
    (snippet,) = (block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "keep_ledger" in block)
    names: dict[str, Any] = {}
    exec(snippet, names)
    certificate, engine = names["certificate"], names["engine"]
    assert f"# {certificate.guarantee}\n" in snippet
    assert certificate.guarantee.epsilon.upper <= engine.get_epsilon(1e-5)
