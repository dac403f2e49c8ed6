"""The adapter for Opacus: real models, trained through it."""

from __future__ import annotations

import copy
import math
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privcalc as pc
from privcalc import noise
from privcalc.noise import Noise, SeededBits

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from opacus import PrivacyEngine  # noqa: E402
from opacus.accountants import create_accountant  # noqa: E402
from opacus.optimizers import optimizer as opacus_optimizer  # noqa: E402
from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: E402

from privcalc.interop import opacus as adapter  # noqa: E402

pytestmark = pytest.mark.service  # an engine of its own

RECORDS, BATCH = 120, 30
adapter.register()


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    torch.manual_seed(2**40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def private(
    noise: float = 2.0, batch: int = BATCH, workers: int = 0, accountant: str = "privcalc", **options: Any
) -> tuple[Any, Any, Any, Any]:
    """Engine, model, optimizer, loader. The third column of the data has the record's number."""
    x = torch.randn(RECORDS, 5)
    data = torch.utils.data.TensorDataset(x, (x.sum(dim=1) > 0).long(), torch.arange(RECORDS))
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    engine = PrivacyEngine(accountant=accountant)
    options = {"max_grad_norm": 1.0, "noise_multiplier": noise} | options
    model, optimizer, *_, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
        data_loader=torch.utils.data.DataLoader(data, batch_size=batch, num_workers=workers),
        **options,
    )
    return engine, model, optimizer, loader


def train(
    model: Any,
    optimizer: Any,
    loader: Any,
    epochs: int = 1,
    *,
    loss: Any = torch.nn.functional.cross_entropy,
    times: int = 1,
    copies: int = 1,
    shrink: float = 1.0,
) -> list[np.ndarray]:
    """Returns the numbers of the records of each batch.

    What is right has one step on every batch, each record once in it, and one clip norm.
    """
    batches = []
    for _ in range(epochs):
        for x, y, number in loader:
            for _ in range(times):
                optimizer.zero_grad()
                loss(model(torch.cat([x] * copies)), torch.cat([y] * copies)).backward()
                optimizer.step()
                optimizer.max_grad_norm *= shrink
            batches.append(number.numpy())
    return batches


def test_a_model_is_trained_and_accounted_for() -> None:
    engine, model, optimizer, loader = private()
    train(model, optimizer, loader, epochs=3)
    assert len(engine.accountant) == 12
    assert engine.accountant.history == [(2.0, 0.25, 12)]
    exact = (pc.PoissonSampled(pc.Gaussian(2.0), 0.25) * 12).epsilon(delta=1e-5)  # 1/4 is a multiple of 2^−24
    assert engine.get_epsilon(1e-5) == exact.upper
    found = engine.accountant.epsilon(1e-5)
    assert (found.lower, found.upper) == (exact.lower, exact.upper)
    prv = create_accountant("prv")
    prv.history = list(engine.accountant.history)
    assert exact.lower <= prv.get_epsilon(1e-5)
    assert engine.accountant.get_epsilon(1e-5, relation=pc.REPLACE_ONE) > exact.upper


def test_a_checkpoint_is_resumed(tmp_path: Path) -> None:
    engine, model, optimizer, loader = private()
    train(model, optimizer, loader)
    engine.save_checkpoint(path=tmp_path / "run.pt", module=model, optimizer=optimizer)
    again, model, optimizer, loader = private()
    again.load_checkpoint(path=tmp_path / "run.pt", module=model, optimizer=optimizer)
    train(model, optimizer, loader)
    assert again.accountant.history == [(2.0, 0.25, 8)]
    assert len(again.accountant) == 8


@pytest.mark.parametrize(
    "history", [3, [3], [(1.0, 0.1)], [(1.0, 0.1, 1.5)], [(math.nan, 0.1, 1)], [(1.0, 25, 1)], [(-1.0, 0.1, 1)]], ids=str
)
def test_a_history_that_is_none_is_refused(history: Any) -> None:
    accountant = adapter.PrivcalcAccountant()
    accountant.step(noise_multiplier=1.0, sample_rate=0.1)
    with pytest.raises(pc.PrivcalcError, match=r"history|steps|noise_multiplier|sample_rate"):
        accountant.load_state_dict({"mechanism": "privcalc", "history": history})
    with pytest.raises(ValueError, match="prv"):
        accountant.load_state_dict({"mechanism": "prv", "history": []})
    assert accountant.history == [(1.0, 0.1, 1)]


def test_opacus_calibrates_through_it() -> None:
    engine = PrivacyEngine(accountant="privcalc")
    x = torch.randn(RECORDS, 5)
    model = torch.nn.Linear(5, 2)
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
        data_loader=torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1)), batch_size=40),
        target_epsilon=2.0,
        target_delta=1e-5,
        epochs=3,
        max_grad_norm=1.0,
    )
    for _ in range(3):
        for a, b in loader:
            optimizer.zero_grad()
            ((model(a).sum(1) - b) ** 2).mean().backward()
            optimizer.step()
    assert 1.9 < engine.get_epsilon(1e-5) <= 2.0


@pytest.mark.parametrize("rate", [0.01, 1 / 3, 1.0])
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


@pytest.mark.parametrize("rate", [0.01, 0.1, 1 / 3, 1 / 7, 1e-9, 0.25, 1 - 1e-9, 1.0])
def test_the_rate_is_that_of_the_coins(rate: float) -> None:
    share = float((torch.arange(2**24, dtype=torch.float32) / 2**24 < rate).sum()) / 2**24
    assert rate <= adapter.coin_rate(rate) <= rate + 2**-23
    assert share <= adapter.coin_rate(rate) <= max(share, rate + 2**-24)
    drawn = torch.rand(1000).double() * 2**24
    assert bool((drawn == drawn.round()).all())


def test_steps_without_noise_have_no_privacy() -> None:
    engine, model, optimizer, loader = private(noise=0.0)
    train(model, optimizer, loader)
    assert engine.get_epsilon(1e-5) == math.inf
    with pytest.raises(pc.PrivcalcError, match="noise_multiplier"):
        engine.accountant.epsilon(1e-5)


# --- ledgers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [1, 5, 10])
def test_a_ledger_ends_in_a_certificate(tmp_path: Path, ahead: int) -> None:
    engine, model, optimizer, loader = private()
    plan = adapter.step_of(optimizer, loader) * len(loader) * 2
    target = pc.Guarantee(epsilon=4.0, delta=1e-5)
    with pc.Ledger(tmp_path / "run.jsonl", plan=plan, target=target, public={"records": RECORDS}) as ledger:
        adapter.keep_ledger(optimizer, loader, ledger, ahead=ahead)
        with pytest.raises(pc.PrivcalcError, match="already"):
            adapter.keep_ledger(optimizer, loader, ledger)
        train(model, optimizer, loader, epochs=2)
        assert ledger.spent == plan == engine.accountant.run
        before = [p.detach().clone() for p in model.parameters()]
        with pytest.raises(pc.PrivcalcError, match="plan"):
            train(model, optimizer, loader)
        assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    certificate = pc.certify(tmp_path / "run.jsonl", delta=1e-5)
    assert certificate.guarantee.epsilon.upper == engine.get_epsilon(1e-5)
    assert certificate.document["declared"] == certificate.document["run"]
    certificate.verify(tmp_path / "run.jsonl")


@pytest.mark.parametrize("options", [{"clipping": "per_layer", "max_grad_norm": [0.5] * 4}, {"grad_sample_mode": "ghost"}])
def test_other_clipping_is_still_a_sampled_gaussian(options: dict[str, Any]) -> None:
    _, _, optimizer, loader = private(**options)
    assert adapter.step_of(optimizer, loader) == pc.PoissonSampled(pc.Gaussian(2.0), 0.25)
    with pytest.raises(pc.PrivcalcError, match="per-sample"):
        adapter.NormRatios(optimizer)


def test_what_is_no_sampled_gaussian_is_refused_by_name() -> None:
    engine, model, optimizer, loader = private(
        clipping="adaptive",
        target_unclipped_quantile=0.5,
        clipbound_learning_rate=0.2,
        max_clipbound=10.0,
        min_clipbound=0.1,
        unclipped_num_std=5.0,
    )
    with pytest.raises(pc.PrivcalcError, match="AdaClipDPOptimizer"):
        adapter.step_of(optimizer, loader)
    with pytest.raises(pc.PrivcalcError, match="AdaClipDPOptimizer"):
        train(model, optimizer, loader)
    assert len(engine.accountant) == 0
    _, _, optimizer, loader = private(poisson_sampling=False)
    with pytest.raises(pc.PrivcalcError, match="data_loader = DataLoader"):
        adapter.keep_ledger(optimizer, loader, pc.Ledger(None, plan=pc.Gaussian(1.0)))
    _, _, optimizer, loader = private(rand_on_empty=True)
    with pytest.raises(pc.PrivcalcError, match="rand_on_empty"):
        adapter.step_of(optimizer, loader)


def test_accumulated_batches_are_refused() -> None:
    engine, model, optimizer, loader = private(poisson_sampling=False)
    optimizer.zero_grad()
    for x, y, _ in list(loader)[:2]:
        torch.nn.functional.cross_entropy(model(x), y).backward()
    with pytest.raises(pc.PrivcalcError, match="accumulated_iterations"):
        optimizer.step()
    assert len(engine.accountant) == 0


# --- norms for audits -----------------------------------------------------------------------------


def test_norms_are_those_of_single_records() -> None:
    _, model, optimizer, loader = private(max_grad_norm=0.7)
    norms = adapter.NormRatios(optimizer)
    optimizer.zero_grad()
    x, y, number = next(iter(loader))
    torch.nn.functional.cross_entropy(model(x), y).backward()
    plain = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    plain.load_state_dict(model._module.state_dict())
    alone = []
    for i in range(len(x)):
        plain.zero_grad()
        torch.nn.functional.cross_entropy(plain(x[i : i + 1]), y[i : i + 1]).backward()
        alone.append(min(math.sqrt(sum(float(p.grad.double().square().sum()) for p in plain.parameters())) / 0.7, 1.0))
    optimizer.step()
    assert len(norms.steps) == 1
    assert norms.steps[0] == pytest.approx(alone, rel=1e-5)
    assert len(number) == len(alone)


@pytest.mark.parametrize("batch", [BATCH, RECORDS])
def test_norms_feed_the_audit(batch: int) -> None:
    engine, model, optimizer, loader = private(batch=batch, max_grad_norm=3.0)
    norms = adapter.NormRatios(optimizer)
    batches = train(model, optimizer, loader, epochs=2)
    losses = pc.RealisedLosses(records=RECORDS, noise_multiplier=2.0, rate=batch / RECORDS)
    for ratios, numbers in zip(norms.steps, batches, strict=True):
        losses.update(ratios, indices=numbers)
    assert losses.worst_case == engine.accountant.run
    own = np.asarray(losses.epsilon(delta=1e-5))
    assert own.shape == (RECORDS,)
    assert own.max() <= engine.get_epsilon(1e-5)
    if batch == RECORDS:
        assert own.min() < 0.9 * engine.get_epsilon(1e-5)


def test_a_split_batch_is_one_step() -> None:
    engine, model, optimizer, loader = private()
    norms = adapter.NormRatios(optimizer)
    ledger = pc.Ledger(None, plan=adapter.step_of(optimizer, loader) * len(loader))
    adapter.keep_ledger(optimizer, loader, ledger)
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=7, optimizer=optimizer) as small:
        batches = train(model, optimizer, small)
    assert len(batches) > len(loader) == len(norms.steps) == len(engine.accountant)
    assert sum(map(len, batches)) == sum(map(len, norms.steps))
    assert ledger.spent == engine.accountant.run


# --- every step sums one Poisson batch, once ------------------------------------------------------


def gradient(model: Any, batch: Any) -> None:
    torch.nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()


def kept(tmp_path: Path, optimizer: Any, loader: Any, seed: int | None = None) -> pc.Ledger:
    ledger = pc.Ledger(tmp_path / "run.jsonl", plan=adapter.step_of(optimizer, loader) * 40, seed=seed)
    adapter.keep_ledger(optimizer, loader, ledger, ahead=1)
    return ledger


def state(model: Any) -> list[Any]:
    return [p.detach().clone() for p in model.parameters()]


@pytest.fixture(params=["accountant", "ledger"])
def refused(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A check that what a function does is refused before its noise is drawn, by the accountant alone and with a ledger."""

    def check(use: Any, *, steps: int, match: str) -> None:
        engine, model, optimizer, loader = private()
        ledger = kept(tmp_path, optimizer, loader) if request.param == "ledger" else None
        drawn: list[int] = []
        noise = opacus_optimizer._generate_noise

        def draw(**what: Any) -> Any:
            drawn.append(1)
            return noise(**what)

        monkeypatch.setattr("privcalc.interop.opacus.own.FUNCTIONS", ())  # else this is refused itself
        monkeypatch.setattr(opacus_optimizer, "_generate_noise", draw)
        with pytest.raises(pc.PrivcalcError, match=match):
            use(model, optimizer, loader)
        assert len(engine.accountant) == steps
        assert len(drawn) == steps * len(optimizer.params)
        if ledger is not None:
            assert sum(count for _, count in ledger.spent.entries) == steps if steps else not ledger.spent.entries

    return check


def test_several_batches_are_not_summed_by_skipping(refused: Any) -> None:
    def use(model: Any, optimizer: Any, loader: Any) -> None:
        for i, batch in enumerate(loader):
            optimizer.signal_skip_step(i % 4 != 3)
            gradient(model, batch)
            optimizer.step()
            optimizer.zero_grad()

    refused(use, steps=0, match="batch")


def test_batches_kept_in_a_list_are_not_summed_either(refused: Any) -> None:
    def use(model: Any, optimizer: Any, loader: Any) -> None:
        kept = [next(iter(loader)) for _ in range(4)]
        for i, batch in enumerate(kept):
            optimizer.signal_skip_step(i != 3)
            gradient(model, batch)
            optimizer.step()
            optimizer.zero_grad()

    refused(use, steps=0, match="batch")


def test_a_batch_is_not_used_twice(refused: Any) -> None:
    def use(model: Any, optimizer: Any, loader: Any) -> None:
        train(model, optimizer, loader, times=10)

    refused(use, steps=1, match="batch")


def test_an_empty_batch_is_not_left_out(refused: Any) -> None:
    def use(model: Any, optimizer: Any, loader: Any) -> None:
        for i, batch in enumerate(loader):
            if i != 1:
                optimizer.zero_grad()
                gradient(model, batch)
                optimizer.step()

    refused(use, steps=1, match="batch")


def test_batches_of_a_foreign_loader_are_refused(refused: Any) -> None:
    def use(model: Any, optimizer: Any, loader: Any) -> None:
        train(model, optimizer, torch.utils.data.DataLoader(loader.dataset, batch_size=BATCH))

    refused(use, steps=0, match="batch")


def test_a_batch_that_was_left_unfinished_is_not_gone_on_with(refused: Any) -> None:
    def use(model: Any, optimizer: Any, loader: Any) -> None:
        with BatchMemoryManager(data_loader=loader, max_physical_batch_size=7, optimizer=optimizer) as small:
            for batch in small:
                gradient(model, batch)
                optimizer.step()
                optimizer.zero_grad()
                break
            train(model, optimizer, small)

    refused(use, steps=0, match="batch")


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_record_that_is_not_finite_is_refused(refused: Any, value: float) -> None:
    def use(model: Any, optimizer: Any, loader: Any) -> None:
        before = state(model)
        loader.dataset.tensors[0][:, 2] = value
        try:
            train(model, optimizer, loader)
        finally:
            assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))

    refused(use, steps=0, match="finite")


def test_without_poisson_samples_nothing_is_accounted_for() -> None:
    engine, model, optimizer, loader = private(poisson_sampling=False)
    with pytest.raises(pc.PrivcalcError, match="data_loader = DataLoader"):
        train(model, optimizer, loader)
    assert len(engine.accountant) == 0


def test_what_was_made_private_before_registering_is_refused() -> None:
    _, model, _, loader = private()
    accountant = adapter.PrivcalcAccountant()
    plain = opacus_optimizer.DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=1
    )
    plain.attach_step_hook(accountant.get_optimizer_hook_fn(0.25))
    gradient(model, next(iter(loader)))
    before = state(model)
    with pytest.raises(pc.PrivcalcError, match="register"):
        plain.step()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert len(accountant) == 0


def test_another_loader_than_the_one_of_the_optimizer_is_refused() -> None:
    _, _, optimizer, _ = private()
    _, _, _, other = private()
    with pytest.raises(pc.PrivcalcError, match="data_loader"):
        adapter.keep_ledger(optimizer, other, pc.Ledger(None, plan=pc.Gaussian(1.0)))


@pytest.mark.parametrize("physical", [None, 7, 500])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("records", [1, 30])
def test_what_is_used_rightly_goes_on_working(physical: int | None, workers: int, records: int, tmp_path: Path) -> None:
    """Also with batches that are empty (rate 1/120), memory managers, and loaders that draw ahead."""
    engine, model, optimizer, loader = private(batch=records, workers=workers)
    ledger = kept(tmp_path, optimizer, loader)
    steps = 0
    for _ in range(2):
        if physical is None:
            batches = loader
        else:
            batches = BatchMemoryManager(data_loader=loader, max_physical_batch_size=physical, optimizer=optimizer).__enter__()
        for batch in batches:
            optimizer.zero_grad()
            gradient(model, batch)
            optimizer.step()
            steps += not optimizer._is_last_step_skipped
            if steps and steps % 20 == 0:
                break
    assert len(engine.accountant) == steps == sum(count for _, count in ledger.spent.entries) == (40 if records == 1 else 8)


def ghost(**options: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Engine, model, optimizer, loader, and the criterion, which clips."""
    criterion = []
    make_private = PrivacyEngine.make_private

    def made(*args: Any, **kwargs: Any) -> Any:
        model, optimizer, own, loader = make_private(*args, **kwargs)
        criterion.append(own)
        return model, optimizer, own, loader

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrivacyEngine, "make_private", made)
        return *private(grad_sample_mode="ghost", **options), criterion[0]


@pytest.mark.parametrize("physical", [7, 500])
@pytest.mark.parametrize("records", [1, 30])
def test_ghost_clipping_goes_on_working(physical: int, records: int, tmp_path: Path) -> None:
    engine, model, optimizer, loader, criterion = ghost(batch=records)
    ledger = kept(tmp_path, optimizer, loader)
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=physical, optimizer=optimizer) as small:
        steps = 0
        for x, y, _ in small:
            criterion(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            steps += not optimizer._is_last_step_skipped
            if steps == 20:
                break
    assert len(engine.accountant) == steps == sum(count for _, count in ledger.spent.entries) == (20 if records == 1 else 4)


@pytest.mark.parametrize("ghostly", [False, True])
def test_exact_noise_takes_the_place_of_opacus_own(ghostly: bool, tmp_path: Path) -> None:
    """All parameters' sums at once, with one clip norm; checked and charged as before."""
    _, model, optimizer, loader, criterion = ghost() if ghostly else (*private(), torch.nn.functional.cross_entropy)
    ledger = kept(tmp_path, optimizer, loader, seed=1)
    adapter.exact_noise(optimizer, Noise(SeededBits(1)))
    optimizer.scale_grad = lambda: None
    x, y, _ = next(iter(loader))
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    optimizer.step()
    sums = torch.cat([p.summed_grad.double().ravel() for p in optimizer.params])
    expected = noise.gaussian(sums, 2.0, clip_norm=1.0, noise=Noise(SeededBits(1)))
    found = torch.cat([p.grad.ravel() for p in optimizer.params])
    assert torch.equal(found, expected.float())
    assert float((expected - sums).std()) == pytest.approx(2.0, rel=0.5)
    assert len(ledger.spent.entries) == 1
    with pytest.raises(pc.PrivcalcError, match="no batch was drawn"):
        optimizer.add_noise()


@pytest.mark.parametrize("ghostly", [False, True])
@pytest.mark.parametrize("first", ["ledger", "noise"])
def test_a_ledger_draws_exact_noise_itself_and_its_certificate_says_so(ghostly: bool, first: str, tmp_path: Path) -> None:
    """What is exact, and what is still taken for granted: the sum in single precision, and Opacus's coins."""
    engine, model, optimizer, loader, criterion = ghost() if ghostly else (*private(), torch.nn.functional.cross_entropy)
    step = adapter.step_of(optimizer, loader)
    if first == "noise":
        adapter.exact_noise(optimizer)
    with pc.Ledger(tmp_path / "run.jsonl", plan=step * 8, public={"records": RECORDS}) as ledger:
        adapter.keep_ledger(optimizer, loader, ledger)
        if first == "ledger":
            adapter.exact_noise(optimizer)
        x, y, _ = next(iter(loader))
        criterion(model(x), y).backward()
        optimizer.scale_grad, scale = lambda: None, optimizer.scale_grad
        optimizer.step()
        sums = torch.cat([p.summed_grad.double().ravel() for p in optimizer.params])
        grid = noise.Grid.of(2.0, clip_norm=1.0, coordinates=sums.numel())
        added = torch.cat([p.grad.double().ravel() for p in optimizer.params]) - sums
        assert 0.5 < float(added.std()) / grid.scale < 2
        optimizer.scale_grad = scale
        train(model, optimizer, loader, loss=criterion)
        assert ledger.spent == step * 5 == engine.accountant.run
        with pytest.raises(pc.BudgetExceeded, match=r"plan=step_of\(optimizer"):
            train(model, optimizer, loader, loss=criterion)
    assert ledger.spent == step * 8
    certificate = pc.certify(tmp_path / "run.jsonl", delta=1e-5)
    document = certificate.document
    assert document["noise"] == "exact"
    assert document["declared"] == []
    assert [text.split()[0] for text in document["idealised"]] == ["random", "sums", "the"]
    assert "rounding" in document["idealised"][1]
    (sampling,) = (entry for entry in document["assumptions"]["needed"] if entry["name"] == "sampling")
    assert (sampling["value"], sampling["by"]) == ("poisson", "nobody")
    assert certificate.verify(tmp_path / "run.jsonl")


def test_noise_of_opacus_or_of_bits_of_ones_own_stays_idealised(tmp_path: Path) -> None:
    for number, own in enumerate((None, Noise())):
        _, model, optimizer, loader = private()
        if own is not None:
            adapter.exact_noise(optimizer, own)
        with pc.Ledger(tmp_path / f"{number}.jsonl", plan=adapter.step_of(optimizer, loader) * 4) as ledger:
            adapter.keep_ledger(optimizer, loader, ledger)
            train(model, optimizer, loader)
        document = pc.certify(tmp_path / f"{number}.jsonl", delta=1e-5).document
        assert document["declared"] == document["recorded"]
        assert any("noise that other code drew is taken as real-valued" in text for text in document["idealised"])


def test_exact_noise_without_an_accountant_of_ours() -> None:
    _, model, optimizer, loader = private()
    train(model, optimizer, loader)
    with pytest.raises(pc.PrivcalcError, match="optimizer"):
        adapter.exact_noise(torch.optim.SGD(model.parameters(), lr=0.1))


@pytest.mark.parametrize("clipping", ["flat", "per_layer"])
def test_a_sum_that_was_not_clipped_is_refused(clipping: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opacus's own clipping is put out of order; all records pull one way."""
    norm: Any = [0.01] * 4 if clipping == "per_layer" else 0.01
    engine, model, optimizer, loader = private(clipping=clipping, max_grad_norm=norm)

    def unclipped(optimizer: Any) -> None:
        for p in optimizer.params:
            p.summed_grad = torch.einsum("i...->...", p.grad_sample)
            p.grad_sample._processed = True

    train(model, optimizer, loader)
    monkeypatch.setattr(type(optimizer), "clip_and_accumulate", unclipped)
    monkeypatch.setattr("privcalc.interop.opacus.batches.check_own", lambda _: None)  # which would say so before
    before = state(model)
    x, _, _ = next(iter(loader))
    optimizer.zero_grad()
    model(x).sum().backward()
    with pytest.raises(pc.PrivcalcError, match="longer than any sum over this batch"):
        optimizer.step()
    assert len(engine.accountant) == 4
    assert all(torch.equal(one, other) for one, other in zip(before, state(model), strict=True))


def test_ghost_clipping_that_does_not_clip_is_refused() -> None:
    engine, model, optimizer, loader, criterion = ghost()
    with pytest.raises(pc.PrivcalcError, match="criterion"):
        train(model, optimizer, loader)
    engine, model, optimizer, loader, criterion = ghost()
    with pytest.raises(pc.PrivcalcError, match="max_grad_norm"):
        train(model, optimizer, loader, loss=criterion, shrink=0.5)  # the module goes on with the old one
    assert len(engine.accountant) == 1


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_ghost_and_plain_steps_use_a_batch_once(mode: str) -> None:
    engine, model, optimizer, loader, criterion = ghost() if mode == "ghost" else (*private(), torch.nn.CrossEntropyLoss())
    with pytest.raises(pc.PrivcalcError, match="batch"):
        train(model, optimizer, loader, loss=criterion, times=2)
    assert len(engine.accountant) == 1


def test_other_noise_than_the_clip_norms_is_refused() -> None:
    engine, model, optimizer, loader = private(clipping="per_layer", max_grad_norm=[0.5] * 4)
    train(model, optimizer, loader)
    optimizer.max_grad_norms[0] = 3.0
    with pytest.raises(pc.PrivcalcError, match="max_grad_norm"):
        train(model, optimizer, loader)
    assert len(engine.accountant) == 4
    _, model, optimizer, loader = private()
    with (
        BatchMemoryManager(data_loader=loader, max_physical_batch_size=7, optimizer=optimizer) as small,
        pytest.raises(pc.PrivcalcError, match="max_grad_norm"),
    ):
        train(model, optimizer, small, shrink=0.5)
    _, model, optimizer, loader, _ = ghost()
    optimizer._adjusted_noise_multiplier = 0.1
    with pytest.raises(pc.PrivcalcError, match="adaptively"):
        train(model, optimizer, loader)


def test_a_batch_may_be_split_by_hand_and_its_size_changes_nothing() -> None:
    engine, model, optimizer, loader = private()
    for x, y, _ in loader:
        half = len(x) // 2
        for part, last in ((slice(half), False), (slice(half, None), True)):
            optimizer.signal_skip_step(not last)
            gradient(model, (x[part], y[part]))
            optimizer.step()
            optimizer.zero_grad()
    assert len(engine.accountant) == 4
    with pytest.raises(pc.PrivcalcError, match="records"):
        train(model, optimizer, loader, copies=2)
    assert len(engine.accountant) == 4


# --- what was changed after make_private ----------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda _, optimizer, loader: optimizer.attach_step_hook(lambda _: None), "step_hook"),  # ε was 0
        (lambda _, optimizer, loader: setattr(loader.batch_sampler, "sample_rate", 0.9), "sample_rate"),  # counted as 0.25
        (lambda _, optimizer, loader: setattr(optimizer, "expected_batch_size", 27), "expected_batch_size"),
        (lambda model, optimizer, loader: model.to(torch.bfloat16), "precision"),
    ],
    ids=["hook", "rate", "divisor", "half precision"],
)
def test_what_is_changed_after_make_private_is_refused(change: Any, match: str, refused: Any) -> None:
    def use(model: Any, optimizer: Any, loader: Any) -> None:
        change(model, optimizer, loader)
        for x, y, _ in loader:
            gradient(model, (x.to(next(model.parameters()).dtype), y))
            optimizer.step()

    refused(use, steps=0, match=match)


def test_gradients_in_half_precision_are_refused(refused: Any) -> None:
    def use(model: Any, optimizer: Any, loader: Any) -> None:
        for batch in loader:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                gradient(model, batch)
            optimizer.step()

    refused(use, steps=0, match="precision")


def test_coins_of_few_bits_are_refused(refused: Any) -> None:
    """With eight bits every rate is a multiple of 1/256 or so."""

    def use(model: Any, optimizer: Any, loader: Any) -> None:
        torch.set_default_dtype(torch.bfloat16)
        try:
            train(model, optimizer, loader)
        finally:
            torch.set_default_dtype(torch.float32)

    refused(use, steps=0, match="coins")


@pytest.mark.parametrize("frozen", [slice(0, 1), slice(None)], ids=["one", "all"])
def test_a_frozen_parameter_is_not_moved_by_a_gradient_without_noise(frozen: slice, refused: Any) -> None:
    def use(model: Any, optimizer: Any, loader: Any) -> None:
        for batch in loader:
            gradient(model, batch)
            before = state(model)
            for p in list(model.parameters())[frozen]:
                p.requires_grad_(False)
            try:
                optimizer.step()
            finally:
                assert all(map(torch.equal, before, state(model)))

    refused(use, steps=0, match="frozen")


def test_a_layer_may_be_frozen_between_steps() -> None:
    engine, model, optimizer, loader = private()
    train(model, optimizer, loader)
    optimizer.zero_grad()
    next(model.parameters()).requires_grad_(False)
    train(model, optimizer, loader)
    assert len(engine.accountant) == 8


def test_steps_are_not_forgotten_with_a_checkpoint(tmp_path: Path) -> None:
    engine, model, optimizer, loader = private()
    train(model, optimizer, loader)
    engine.save_checkpoint(path=tmp_path / "best.pt", module=model, optimizer=optimizer)
    train(model, optimizer, loader)
    with pytest.raises(pc.PrivcalcError, match="forgotten"):
        engine.load_checkpoint(path=tmp_path / "best.pt", module=model, optimizer=optimizer)
    assert len(engine.accountant) == 8


def test_a_sum_whose_noise_failed_is_not_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opacus keeps it where a memory manager split the batch, and adds the next batch to it."""
    engine, model, optimizer, loader = private()

    def no_memory(**_: Any) -> Any:
        raise MemoryError

    def use() -> None:
        with BatchMemoryManager(data_loader=loader, max_physical_batch_size=5, optimizer=optimizer) as small:
            for batch in small:
                try:
                    gradient(model, batch)
                    optimizer.step()
                except MemoryError:
                    monkeypatch.undo()
                optimizer.zero_grad()

    monkeypatch.setattr("privcalc.interop.opacus.own.FUNCTIONS", ())
    monkeypatch.setattr(opacus_optimizer, "_generate_noise", no_memory)
    with pytest.raises(pc.PrivcalcError, match="every optimizer step"):
        use()
    assert len(engine.accountant) == 0


@pytest.mark.parametrize("reduction", ["column", "mean"])
def test_ghost_clipping_needs_a_loss_for_each_record(reduction: str) -> None:
    """The criterion's product of n factors and [n, 1] losses, or with one loss, clips nothing."""

    def by_column(scores: Any, labels: Any) -> Any:
        return torch.nn.functional.cross_entropy(scores, labels, reduction="none")[:, None]

    engine, model, optimizer, loader, criterion = ghost(max_grad_norm=1e-3)
    criterion.criterion = torch.nn.CrossEntropyLoss()
    criterion.criterion.forward = by_column if reduction == "column" else torch.nn.functional.cross_entropy
    with pytest.raises(pc.PrivcalcError, match="one loss for each"):
        train(model, optimizer, loader, loss=criterion)
    assert len(engine.accountant) == 0


def test_ghost_clipping_by_another_norm_than_that_of_the_noise_is_refused() -> None:
    engine, model, optimizer, loader, criterion = ghost()
    optimizer.max_grad_norm = 1e-3  # before the first step
    with pytest.raises(pc.PrivcalcError, match="max_grad_norm"):
        train(model, optimizer, loader, loss=criterion)
    engine, model, optimizer, loader, criterion = ghost()
    model.max_grad_norm = 1e3  # as a module has that was made private before with another
    with pytest.raises(pc.PrivcalcError, match="max_grad_norm"):
        train(model, optimizer, loader, loss=criterion)
    assert len(engine.accountant) == 0


@pytest.mark.parametrize("change", ["data", "by hand", "another tensor"])
def test_what_is_added_to_a_ghost_clipped_sum_is_refused(change: str) -> None:
    """It is not clipped: a term in the data that no module's hook sees, or a gradient changed by hand."""
    engine, model, optimizer, loader, criterion = ghost(max_grad_norm=1e-3)
    before = state(model)
    x, y, _ = next(iter(loader))
    criterion(model(x), y).backward()
    weight = next(model.parameters())
    if change == "data":
        (1e6 * torch.nn.functional.linear(x, weight).sum()).backward()
    elif change == "by hand":
        weight.grad.add_(x.sum())
    else:
        weight.grad = weight.grad + x.sum()
    with pytest.raises(pc.PrivcalcError, match="stay what the criterion"):
        optimizer.step()
    assert len(engine.accountant) == 0
    assert all(torch.equal(one, other) for one, other in zip(before, state(model), strict=True))


def test_steps_are_told_to_the_engines_own_accountant() -> None:
    """One that takes its place would say ε = 0."""
    engine, model, optimizer, loader = private()
    train(model, optimizer, loader)
    engine.accountant = adapter.PrivcalcAccountant()
    before = state(model)
    with pytest.raises(pc.PrivcalcError, match="accountant: must stay"):
        train(model, optimizer, loader)
    assert all(torch.equal(one, other) for one, other in zip(before, state(model), strict=True))


# --- coins that are none --------------------------------------------------------------------------


def steps_of_one_size(model: Any, optimizer: Any, loader: Any, epochs: int, *, broken: bool = True) -> None:
    """A generator that is none makes every batch the same one."""
    torch_rand, same = torch.rand, torch.rand(RECORDS)
    for _ in range(epochs):
        batches = iter(loader)
        for _ in range(len(loader)):
            torch.rand = (lambda *_, **__: same) if broken else torch_rand
            try:
                batch = next(batches)
            finally:
                torch.rand = torch_rand
            torch_rand(1)
            optimizer.zero_grad()
            gradient(model, batch)
            optimizer.step()


@pytest.mark.parametrize("every", ["step", "epoch"])
@pytest.mark.parametrize("batch", [BATCH, RECORDS])
def test_a_seed_that_is_set_again_is_refused(every: str, batch: int, tmp_path: Path) -> None:
    """It repeats batches and noise, in every step or every epoch; the noise also where all records are in every batch."""
    engine, model, optimizer, loader = private(batch=batch)
    ledger = kept(tmp_path, optimizer, loader)
    torch.manual_seed(3)  # once is right
    train(model, optimizer, loader)
    steps = len(engine.accountant)

    def use() -> None:
        for _ in range(3):
            torch.manual_seed(7)
            for one in loader:
                optimizer.zero_grad()
                gradient(model, one)
                optimizer.step()
                if every == "step":
                    torch.manual_seed(7)

    with pytest.raises(pc.PrivcalcError, match="coins are those of an earlier batch"):
        use()
    done = len(engine.accountant) - steps
    assert done == (len(loader) if every == "epoch" else min(2, len(loader)))
    assert sum(count for _, count in ledger.spent.entries) == steps + done


def test_batches_of_one_size_are_warned_of_in_training_and_in_every_answer() -> None:
    engine, model, optimizer, loader = private()
    with pytest.warns(pc.PrivcalcWarning, match=r"the last \d+ batches had one and the same size.*not Poisson") as seen:
        steps_of_one_size(model, optimizer, loader, epochs=4)
    (said,) = (str(one.message) for one in seen if one.category is pc.PrivcalcWarning)
    assert re.findall(r"\d+", said) == ["10", "1", "09"]  # how many batches, and 1e-09; their size is secret
    for ask in (
        lambda: engine.get_epsilon(1e-5),
        lambda: engine.accountant.epsilon(1e-5),
        lambda: pc.certify(engine.accountant.run, delta=1e-5),
    ):
        with pytest.warns(pc.PrivcalcWarning, match="ε does not hold"):
            ask()


def test_batches_of_one_size_are_refused_when_no_chance_is_left(refused: Any) -> None:
    """The 38th batch of 120 coins at 1/4 of one size: none is likelier than .0839, and 4 · .0839^37 < 2^-128."""
    refused(lambda *made: steps_of_one_size(*made, epochs=20), steps=37, match="below 2\\^-128")


@pytest.mark.parametrize("batch", [BATCH, RECORDS, 1])
def test_real_coins_are_not_warned_of(batch: int) -> None:
    """Also where all records are in every batch, or nearly every batch is empty."""
    engine, model, optimizer, loader = private(batch=batch)
    with warnings.catch_warnings():
        warnings.simplefilter("error", pc.PrivcalcWarning)
        steps_of_one_size(model, optimizer, loader, epochs=60 if batch > 1 else 1, broken=False)
        assert engine.get_epsilon(1e-5) > 0


def test_a_delta_of_one_over_the_records_of_the_loader_is_warned_of() -> None:
    engine, model, optimizer, loader = private()
    train(model, optimizer, loader)
    with pytest.warns(pc.PrivcalcWarning, match=f"is not below 1/{RECORDS}"):
        engine.get_epsilon(0.01)


def test_an_engine_that_was_made_anew_says_that_it_knows_of_no_steps() -> None:
    """In a notebook: the cell that makes the engine is run again, the one that makes private is not."""
    _, model, optimizer, loader = private()
    engine = PrivacyEngine(accountant="privcalc")
    train(model, optimizer, loader)
    for ask in (lambda: engine.get_epsilon(1e-5), lambda: pc.certify(engine.accountant.run, delta=1e-5)):
        with pytest.warns(pc.PrivcalcWarning, match="^history: has no steps"):
            ask()


@pytest.mark.parametrize("draws", [False, True])
def test_other_records_than_the_public_ones_are_warned_of(draws: bool) -> None:
    """Their number goes into certificates; of the whole, before a split, it lets a δ pass that is too large."""
    for number, count in ((RECORDS, 0), (10 * RECORDS, 1)):
        _, model, optimizer, loader = private()
        plan = adapter.step_of(optimizer, loader, draws=draws) * len(loader)
        with (
            pc.Ledger(None, plan=plan, public={"records": number}) as ledger,
            warnings.catch_warnings(record=True) as seen,
        ):
            warnings.simplefilter("always", pc.PrivcalcWarning)
            adapter.keep_ledger(optimizer, loader, ledger, draws=draws)
            train(model, optimizer, loader)
        assert sum("more than twice or less than half" in str(one.message) for one in seen) == count


def test_a_plan_of_the_nominal_rate_is_refused_with_the_step_that_it_needs() -> None:
    """Single precision has no 1/3: the loader's coins have a rate a little above."""
    _, model, optimizer, loader = private(batch=40)
    nominal = pc.PoissonSampled(pc.Gaussian(2.0), 1 / 3)
    with pc.Ledger(None, plan=nominal * 3) as ledger:
        adapter.keep_ledger(optimizer, loader, ledger)
        with pytest.raises(pc.BudgetExceeded, match=r"not in the plan.*plan=step_of\(optimizer, data_loader\) \* \(epochs"):
            train(model, optimizer, loader)


# --- a ledger that comes late, and noise that can be repeated --------------------------------------


@pytest.mark.parametrize("accountant", ["privcalc", "prv", "rdp"])
def test_a_ledger_that_comes_late_is_refused(accountant: str) -> None:
    """Its certificate would leave out what was released before."""
    _, model, optimizer, loader = private(accountant=accountant)
    train(model, optimizer, loader)
    with pc.Ledger(None, plan=adapter.step_of(optimizer, loader) * 8) as ledger:
        with pytest.raises(pc.PrivcalcError, match="has already taken 4 steps that this ledger does not see"):
            adapter.keep_ledger(optimizer, loader, ledger)
        assert not ledger.spent.entries


def test_a_ledger_that_was_charged_otherwise_has_not_seen_the_steps() -> None:
    _, model, optimizer, loader = private()
    train(model, optimizer, loader)
    step = adapter.step_of(optimizer, loader)
    ledger = pc.Ledger(None, plan=step * 20)
    ledger.record(step, 10)  # of something else: the steps of this optimizer had no ledger
    with pytest.raises(pc.PrivcalcError, match="already taken 4 steps"):
        adapter.keep_ledger(optimizer, loader, ledger)


@pytest.mark.parametrize("same", [True, False])
def test_after_a_checkpoint_the_ledger_of_its_steps_is_gone_on_with(same: bool, tmp_path: Path) -> None:
    engine, model, optimizer, loader = private()
    with kept(tmp_path, optimizer, loader) as ledger:
        train(model, optimizer, loader)
        engine.save_checkpoint(path=tmp_path / "run.pt", module=model, optimizer=optimizer)
        ledger.pause()
    again, model, optimizer, loader = private()
    again.load_checkpoint(path=tmp_path / "run.pt", module=model, optimizer=optimizer)
    if not same:
        (tmp_path / "run.jsonl").unlink()
        with pytest.raises(pc.PrivcalcError, match="already taken 4 steps"):
            kept(tmp_path, optimizer, loader)
        return
    with kept(tmp_path, optimizer, loader) as ledger:
        train(model, optimizer, loader)
    assert ledger.spent == again.accountant.run


@pytest.mark.parametrize("made", ["seeded", "not seeded", "exact, seeded first", "exact, seeded then"])
def test_noise_that_can_be_repeated_needs_a_ledger_that_says_so(made: str, tmp_path: Path) -> None:
    """A generator that torch makes has one seed in every process, if nobody sets another."""
    generator = torch.Generator().manual_seed(7) if made == "seeded" else torch.Generator()
    _, model, optimizer, loader = private(noise_generator=None if "exact" in made else generator)
    if made == "exact, seeded first":
        adapter.exact_noise(optimizer, Noise(SeededBits(7)))
    ledger = kept(tmp_path, optimizer, loader)
    if made == "exact, seeded then":
        adapter.exact_noise(optimizer, Noise(SeededBits(7)))
    before = state(model)
    with pytest.raises(pc.PrivcalcError, match=r"can be repeated.*seed="):
        train(model, optimizer, loader)
    assert all(torch.equal(one, other) for one, other in zip(before, state(model), strict=True))
    assert not ledger.spent.entries


def test_noise_that_can_be_repeated_has_no_privacy_claim(tmp_path: Path) -> None:
    _, model, optimizer, loader = private(noise_generator=torch.Generator().manual_seed(7))
    with kept(tmp_path, optimizer, loader, seed=7) as ledger:
        train(model, optimizer, loader)
    certificate = pc.certify(ledger, delta=1e-5)
    assert not certificate.private
    assert str(certificate).startswith("REPRODUCIBLE RUN: NO PRIVACY CLAIM")


def test_exact_noise_is_secret_whatever_generator_was_given(tmp_path: Path) -> None:
    _, model, optimizer, loader = private(noise_generator=torch.Generator().manual_seed(7))
    adapter.exact_noise(optimizer)
    with kept(tmp_path, optimizer, loader) as ledger, warnings.catch_warnings():
        warnings.simplefilter("error", pc.PrivcalcWarning)
        train(model, optimizer, loader)
        assert pc.certify(ledger, delta=1e-5).private


def test_without_a_ledger_noise_that_can_be_repeated_is_warned_of() -> None:
    engine, model, optimizer, loader = private(noise_generator=torch.Generator().manual_seed(7))
    with pytest.warns(pc.PrivcalcWarning, match="can be repeated") as seen:
        train(model, optimizer, loader)
    assert len([one for one in seen if one.category is pc.PrivcalcWarning]) == 1
    with pytest.warns(pc.PrivcalcWarning, match="can be repeated"):
        engine.get_epsilon(1e-5)


# --- what is trained is what the noise protects ---------------------------------------------------


def test_a_trunk_that_another_optimizer_trains_is_refused(refused: Any) -> None:
    """Its steps have no noise, and the ledger certified the head's."""

    def use(model: Any, optimizer: Any, loader: Any) -> None:
        trunk, head = list(model.parameters())[:2], list(model.parameters())[2:]
        optimizer.param_groups[0]["params"] = head
        plain = torch.optim.SGD(trunk, lr=0.5)
        for batch in loader:
            model.zero_grad()
            gradient(model, batch)
            plain.step()
            optimizer.step()

    drawn_for = "2 trainable parameters of the module are not in the private optimizer \\(0.weight, 0.bias\\)"
    refused(use, steps=0, match=drawn_for)


def test_a_trunk_that_is_frozen_needs_no_noise(tmp_path: Path) -> None:
    engine, model, optimizer, loader = private()
    for p in list(model.parameters())[:2]:
        p.requires_grad_(False)
    optimizer.param_groups[0]["params"] = list(model.parameters())[2:]
    kept(tmp_path, optimizer, loader)
    train(model, optimizer, loader)
    assert len(engine.accountant) == 4


@pytest.mark.parametrize("when", ["before the private step", "in between", "split"])
def test_the_plain_optimizer_must_not_step(when: str, refused: Any) -> None:
    """Between the forward pass and the private step the gradients have no noise; or on a batch that has no private step."""

    def use(model: Any, optimizer: Any, loader: Any) -> None:
        plain = optimizer.original_optimizer
        if when == "split":
            loader = BatchMemoryManager(data_loader=loader, max_physical_batch_size=7, optimizer=optimizer).__enter__()
        for batch in loader:
            optimizer.zero_grad()
            gradient(model, batch)
            plain.step()
            if when == "in between":
                optimizer.zero_grad()
                gradient(model, batch)
            optimizer.step()

    refused(use, steps=0, match="must not change between a batch's forward pass and its private step")


@pytest.mark.parametrize("ghostly", [False, True])
def test_parameters_may_be_changed_between_steps(ghostly: bool) -> None:
    """Averages that are put in for a test and taken out again, constraints, and one more step along noisy gradients."""
    engine, model, optimizer, loader, criterion = ghost() if ghostly else (*private(), torch.nn.functional.cross_entropy)
    own = {name: value.clone() for name, value in model.state_dict().items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error", pc.PrivcalcWarning)
        for x, y, _ in loader:
            model.eval()
            now = {name: value.clone() for name, value in model.state_dict().items()}
            model.load_state_dict(own)
            model(x)
            model.load_state_dict(now)
            model.train()
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
            optimizer.original_optimizer.step()
            with torch.no_grad():
                for p in model.parameters():
                    p.clamp_(-1, 1)
        assert engine.get_epsilon(1e-5) > 0
    assert len(engine.accountant) == 4


class Centred(torch.nn.Module):
    """Subtracts a running mean; how it is written, and what else changes in training."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.linear, self.how = torch.nn.Linear(5, 2), how
        self.register_buffer("mean", torch.zeros(5))
        self.register_buffer("num_batches_tracked", torch.tensor(0))
        self.register_buffer("cache", torch.zeros(1), persistent=False)
        self.frozen = torch.nn.Parameter(torch.zeros(5), requires_grad=False)

    def forward(self, x: Any) -> Any:
        if self.training:
            now = x.sum(0).detach() / BATCH
            self.num_batches_tracked += 1
            self.cache = torch.ones(1)
            if self.how == "in place":
                self.mean.mul_(0.9).add_(0.1 * now)
            elif self.how == "anew":
                self.mean = 0.9 * self.mean + 0.1 * now
            elif self.how == "frozen":
                with torch.no_grad():
                    self.frozen.add_(now)
        return self.linear(x - self.mean - self.frozen)


def centred(how: str) -> tuple[Any, Any, Any, Any]:
    torch.manual_seed(2**40 + 1)
    x = torch.randn(RECORDS, 5)
    data = torch.utils.data.TensorDataset(x, (x.sum(dim=1) > 0).long(), torch.arange(RECORDS))
    model, engine = Centred(how), PrivacyEngine(accountant="privcalc")
    return engine, *engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.linear.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(data, batch_size=BATCH),
        noise_multiplier=2.0,
        max_grad_norm=1.0,
    )


@pytest.mark.parametrize("how", ["in place", "anew", "frozen"])
def test_state_that_training_changes_without_noise_is_warned_of(how: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("opacus.grad_sample.GradSampleModule.validate", lambda *_, **__: [])  # as with strict=False
    engine, model, optimizer, loader = centred(how)
    kept(tmp_path, optimizer, loader)
    name = "frozen" if how == "frozen" else "mean"
    with pytest.warns(pc.PrivcalcWarning, match=f"no noise is added to \\({name}\\)") as seen:
        train(model, optimizer, loader)
    assert len([one for one in seen if one.category is pc.PrivcalcWarning]) == 1
    with pytest.warns(pc.PrivcalcWarning, match="ε does not cover it"):
        engine.get_epsilon(1e-5)


def test_counts_of_batches_and_caches_are_not_warned_of(monkeypatch: Any) -> None:
    monkeypatch.setattr("opacus.grad_sample.GradSampleModule.validate", lambda *_, **__: [])
    engine, model, optimizer, loader = centred("not at all")
    with warnings.catch_warnings():
        warnings.simplefilter("error", pc.PrivcalcWarning)
        train(model, optimizer, loader)
        assert engine.get_epsilon(1e-5) > 0


def again(model: Any, optimizer: Any, accountant: str = "privcalc", engine: Any = None) -> tuple[Any, Any, Any, Any]:
    """A private module and its optimizer are given to an engine once more."""
    x = torch.randn(RECORDS, 5)
    data = torch.utils.data.TensorDataset(x, (x.sum(dim=1) > 0).long(), torch.arange(RECORDS))
    engine = PrivacyEngine(accountant=accountant) if engine is None else engine
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH)
    return engine, *engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=2.0, max_grad_norm=1.0
    )


@pytest.mark.parametrize("first", ["privcalc", "prv"])
@pytest.mark.parametrize("unwrapped", [False, True])
def test_a_new_engine_does_not_forget_what_a_module_has_learnt(first: str, unwrapped: bool, tmp_path: Path) -> None:
    _, model, optimizer, loader = private(accountant=first)
    train(model, optimizer, loader)
    if unwrapped:
        model = model.to_standard_module()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    engine, model, optimizer, loader = again(model, optimizer)
    steps = 4 if first == "privcalc" else 1
    with pytest.warns(pc.PrivcalcWarning, match=f"at least {steps} steps, of which 0 are accounted for"):
        train(model, optimizer, loader)
    with pytest.warns(pc.PrivcalcWarning, match="does not cover the others"):
        engine.get_epsilon(1e-5)
    engine, model, optimizer, loader = again(model, optimizer)
    ledger, before = kept(tmp_path, optimizer, loader), state(model)
    with pytest.raises(pc.PrivcalcError, match="of which 0 are accounted for"):
        train(model, optimizer, loader)
    assert not ledger.spent.entries
    assert all(map(torch.equal, before, state(model)))


@pytest.mark.parametrize("kind", ["adam", "momentum"])
def test_an_optimizer_goes_on_with_its_accountants_history(kind: str, tmp_path: Path) -> None:
    def made() -> tuple[Any, Any, Any, Any]:
        model = torch.nn.Linear(5, 2)
        adam, sgd = torch.optim.Adam, torch.optim.SGD
        return again(model, adam(model.parameters()) if kind == "adam" else sgd(model.parameters(), lr=0.1, momentum=0.9))

    engine, model, optimizer, loader = made()
    train(model, optimizer, loader)
    engine.save_checkpoint(path=tmp_path / "run.pt", module=model, optimizer=optimizer)
    resumed, other, second, loader = made()
    resumed.load_checkpoint(path=tmp_path / "run.pt", module=other, optimizer=second)
    with warnings.catch_warnings():
        warnings.simplefilter("error", pc.PrivcalcWarning)
        train(other, second, loader)
        assert len(resumed.accountant) == 8
        _, other, second, loader = again(other, second, engine=resumed)  # the same engine knows of all
        train(other, second, loader)
        assert len(resumed.accountant) == 12
        assert resumed.get_epsilon(1e-5) > 0
    forgetful, other, second, loader = made()
    second.load_state_dict(optimizer.state_dict())
    with pytest.warns(pc.PrivcalcWarning, match=f"at least {4 if kind == 'adam' else 1} steps"):
        train(other, second, loader)
    with pytest.warns(pc.PrivcalcWarning, match="does not cover the others"):
        forgetful.get_epsilon(1e-5)


def test_a_ledger_that_has_the_steps_of_the_optimizers_state_is_enough(tmp_path: Path) -> None:
    """Whoever goes on with a ledger need not tell the accountant, whose own answers lack these steps."""
    model = torch.nn.Linear(5, 2)
    _, model, optimizer, loader = again(model, torch.optim.Adam(model.parameters()))
    with kept(tmp_path, optimizer, loader) as ledger:
        train(model, optimizer, loader)
        ledger.pause()
    other = torch.nn.Linear(5, 2)
    engine, other, second, loader = again(other, torch.optim.Adam(other.parameters()))
    second.load_state_dict(optimizer.state_dict())
    other._module.load_state_dict(model._module.state_dict())
    with kept(tmp_path, second, loader) as ledger, warnings.catch_warnings():
        warnings.simplefilter("error", pc.PrivcalcWarning)
        train(other, second, loader)
    assert ledger.spent == adapter.step_of(second, loader) * 8
    with pytest.warns(pc.PrivcalcWarning, match="at least 4 steps, of which 0"):
        engine.get_epsilon(1e-5)


def test_an_unwrapped_module_is_watched_too() -> None:
    """Also where its own forward pass writes to a parameter: to the rows that the batch has."""
    x = torch.arange(RECORDS) % 7
    model = torch.nn.Sequential(torch.nn.Embedding(7, 3, max_norm=0.1), torch.nn.Linear(3, 2))
    engine = PrivacyEngine(accountant="privcalc")
    _, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
        data_loader=torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x % 2, x), batch_size=BATCH),
        noise_multiplier=2.0,
        max_grad_norm=1.0,
        wrap_model=False,
    )
    with pytest.raises(pc.PrivcalcError, match="must not change"):
        train(model, optimizer, loader)
    assert len(engine.accountant) == 0


def test_a_ledger_knows_the_module_of_its_optimizer() -> None:
    _, _, optimizer, loader = private(accountant="prv")
    del optimizer.privcalc_trained  # as made before register()
    with pytest.raises(pc.PrivcalcError, match="call register"):
        adapter.keep_ledger(optimizer, loader, pc.Ledger(None, plan=pc.Gaussian(1.0)))


def test_a_watched_module_is_copied_and_kept(tmp_path: Path) -> None:
    _, model, optimizer, loader = private()
    train(model, optimizer, loader)
    copy.deepcopy(model._module)
    torch.save(model.to_standard_module(), tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    assert all(map(torch.equal, state(model), state(loaded)))


def test_the_guide_runs_as_it_stands() -> None:
    text = (Path(__file__).parents[2] / "docs" / "guides" / "elsewhere.md").read_text(encoding="utf-8")
    (snippet,) = (block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "step_of" in block)
    names: dict[str, Any] = {}
    exec(snippet, names)
    certificate, engine = names["certificate"], names["engine"]
    assert f"# {certificate.guarantee}\n" in snippet
    assert certificate.guarantee.epsilon.upper == engine.get_epsilon(1e-5)


def test_copies_of_a_record_in_the_data_set_are_warned_of_and_refused_by_a_ledger(tmp_path: Path) -> None:
    """Oversampled records count as often as they occur; ε was that of one."""

    def copied() -> tuple[Any, Any, Any, Any]:
        data = torch.utils.data.TensorDataset(torch.randn(20, 5), torch.arange(20) % 2, torch.arange(20))
        twice = torch.utils.data.Subset(data, [*range(20), *range(20)])
        model, engine = torch.nn.Linear(5, 2), PrivacyEngine(accountant="privcalc")
        made = engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
            data_loader=torch.utils.data.DataLoader(twice, batch_size=10),
            noise_multiplier=2.0,
            max_grad_norm=1.0,
        )
        return engine, *made

    engine, model, optimizer, loader = copied()
    with pytest.warns(pc.PrivcalcWarning, match="dataset: has one record in several places"):
        train(model, optimizer, loader)
    with pytest.warns(pc.PrivcalcWarning, match="dataset: has one record in several places"):
        engine.accountant.get_epsilon(1e-5)
    _, model, optimizer, loader = copied()
    kept(tmp_path, optimizer, loader)
    with pytest.raises(pc.PrivcalcError, match="dataset: has one record in several places"):
        train(model, optimizer, loader)
