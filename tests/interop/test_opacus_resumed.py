"""A run under Opacus that is gone on with: by what its steps have left, and with coins and noise of its own, or it is said."""

from __future__ import annotations

import copy
import io
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

import privcalc as pc

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from opacus import PrivacyEngine  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from privcalc.certificate.story import of_given  # noqa: E402
from privcalc.interop import opacus as adapter  # noqa: E402
from privcalc.interop.opacus.past import state_of  # noqa: E402

pytestmark = pytest.mark.service  # an engine of its own

RECORDS, BATCH = 60, 15
adapter.register()


class Net(torch.nn.Module):
    """A frozen layer, a buffer, and what is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.features, self.head = torch.nn.Linear(5, 4).requires_grad_(False), torch.nn.Linear(4, 2)
        self.register_buffer("means", torch.zeros(5))

    def forward(self, x: Any) -> Any:
        return self.head(torch.tanh(self.features(x - self.means)))


class Life:
    """One process of a run, or what is like one: nothing is left of those before it but their ledger."""

    def __init__(self, where: Any, momentum: float = 0.0, draws: bool = False, **terms: Any) -> None:
        x = torch.randn(RECORDS, 5, generator=torch.Generator().manual_seed(1))
        self.data = TensorDataset(x, (x.sum(dim=1) > 0).long())
        self.module = Net()
        self.engine = PrivacyEngine(accountant="privcalc")
        self.model, self.optimizer, self.loader = self.engine.make_private(
            module=self.module,
            optimizer=torch.optim.SGD(self.module.head.parameters(), lr=0.5, momentum=momentum),
            data_loader=DataLoader(self.data, batch_size=BATCH),
            noise_multiplier=2.0,
            max_grad_norm=1.0,
        )
        plan = adapter.step_of(self.optimizer, self.loader, draws=draws) * 100
        self.ledger = where if isinstance(where, pc.Ledger) else pc.Ledger(where, plan=plan, **terms)
        adapter.keep_ledger(self.optimizer, self.loader, self.ledger, draws=draws)

    def steps(self, count: int = 4) -> None:
        for _, (x, y) in zip(range(count), self.loader, strict=False):
            self.optimizer.zero_grad()
            torch.nn.functional.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()

    def state(self) -> dict[str, Any]:
        return {name: value.clone() for name, value in self.module.state_dict().items()}

    def mean(self) -> float:
        return float(self.data.tensors[0].mean())


def told(path: Path) -> list[str]:
    (entry,) = of_given(path)["ledgers"]
    return list(entry.get("warnings", []))


def weights_from_records(life: Life, state: dict[str, Any]) -> None:
    life.module.load_state_dict({**state, "head.weight": torch.full((2, 4), life.mean())})


def a_frozen_layer_from_records(life: Life, state: dict[str, Any]) -> None:
    life.module.load_state_dict({**state, "features.bias": torch.full((4,), life.mean())})


def a_buffer_from_records(life: Life, state: dict[str, Any]) -> None:
    life.module.load_state_dict({**state, "means": life.data.tensors[0].mean(dim=0)})


def weights_that_nobody_loads(life: Life, state: dict[str, Any]) -> None:
    """Of another start: nobody sees whose."""


@pytest.mark.parametrize("draws", [False, True], ids=["opacus draws", "the ledger draws"])
@pytest.mark.parametrize(
    "way", [weights_from_records, a_frozen_layer_from_records, a_buffer_from_records, weights_that_nobody_loads]
)
def test_weights_of_nobody_knows_where_are_seen_when_a_run_is_gone_on_with(way: Any, draws: bool, tmp_path: Path) -> None:
    torch.seed()
    life = Life(tmp_path / "run.jsonl", draws=draws)
    life.steps()
    state = life.state()
    life.ledger.pause()
    life = Life(tmp_path / "run.jsonl", draws=draws)
    way(life, state)
    with pytest.warns(pc.PrivcalcWarning, match="^parameters: those at the first step of this optimizer or loader are none that"):
        life.steps()
    life.ledger.close()
    (text,) = told(tmp_path / "run.jsonl")
    assert text.startswith("parameters: those at the first step")


def test_so_are_they_in_one_process_and_a_ledger_in_memory() -> None:
    torch.seed()
    life = Life(None)
    life.steps()
    again = Life(life.ledger)
    again.module.load_state_dict({**life.state(), "head.bias": torch.full((2,), life.mean())})
    with pytest.warns(pc.PrivcalcWarning, match="^parameters: those at the first step of this optimizer or loader are none that"):
        again.steps()


def test_momenta_from_records_are_seen_when_a_run_is_gone_on_with(tmp_path: Path) -> None:
    torch.seed()
    life = Life(tmp_path / "run.jsonl", momentum=0.9)
    life.steps()
    state, momenta = life.state(), life.optimizer.state_dict()
    life.ledger.pause()
    life = Life(tmp_path / "run.jsonl", momentum=0.9)
    life.module.load_state_dict(state)
    life.optimizer.load_state_dict(momenta)
    for each in life.optimizer.state.values():
        each["momentum_buffer"].fill_(life.mean())
    with pytest.warns(pc.PrivcalcWarning, match="^optimizer: its state, such as momenta"):
        life.steps()


@pytest.mark.parametrize("draws", [False, True], ids=["opacus draws", "the ledger draws"])
def test_whoever_goes_on_rightly_is_not_warned(draws: bool, tmp_path: Path) -> None:
    """From the last step, from an earlier checkpoint, from the same start, with and without momenta; and by a word."""
    path = tmp_path / "run.jsonl"
    torch.seed()
    with warnings.catch_warnings():
        warnings.simplefilter("error", pc.PrivcalcWarning)
        life = Life(path, momentum=0.9, draws=draws)
        found = [(life.state(), copy.deepcopy(life.optimizer.state_dict()))]
        for _ in range(3):
            life.steps(1 if draws else 4)
            found.append((life.state(), copy.deepcopy(life.optimizer.state_dict())))
        for number, (state, momenta) in enumerate([found[-1], found[1], found[2], found[0]]):
            life.ledger.pause()
            life = Life(path, momentum=0.9, draws=draws)
            torch.seed()
            life.module.load_state_dict(state)
            if number % 2 == 0:
                life.optimizer.load_state_dict(momenta)
            life.steps()
        life.ledger.close()
    assert told(path) == []
    assert pc.certify(path, delta=1e-5).verify(path)


def test_another_start_that_somebody_answers_for_is_not_warned_of(tmp_path: Path) -> None:
    torch.seed()
    with warnings.catch_warnings():
        warnings.simplefilter("error", pc.PrivcalcWarning)
        for _ in range(2):
            life = Life(tmp_path / "run.jsonl", assumptions=pc.Assumptions(start="public"))
            life.steps()
            life.ledger.pause()


def by_state_dict(life: Life) -> None:
    life.model.state_dict()


def by_a_copy(life: Life) -> None:
    copy.deepcopy(life.module)


def by_a_pickle(life: Life) -> None:
    life.optimizer.zero_grad()  # else gradients of records go with it, which is told of
    torch.save(life.module, io.BytesIO())


def by_a_checkpoint(life: Life) -> None:
    life.engine.save_checkpoint(path=io.BytesIO(), module=life.model)


@pytest.mark.parametrize("layer", ["head.weight", "features.weight", "means"])
@pytest.mark.parametrize("save", [by_state_dict, by_a_copy, by_a_pickle, by_a_checkpoint])
def test_what_is_written_after_the_end_is_seen_when_it_is_saved(save: Any, layer: str) -> None:
    torch.seed()
    life = Life(None)
    life.steps()
    life.ledger.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error", pc.PrivcalcWarning)
        save(life)
    value = dict([*life.module.named_parameters(), *life.module.named_buffers()])[layer]
    value.data.fill_(life.mean())
    with pytest.warns(pc.PrivcalcWarning, match="^parameters: those that are saved now are none that a step has left"):
        save(life)


def test_averages_that_are_kept_beside_are_no_weights_of_the_ledgers() -> None:
    torch.seed()
    life = Life(None)
    averages = torch.optim.swa_utils.AveragedModel(life.module)
    with warnings.catch_warnings():
        warnings.simplefilter("error", pc.PrivcalcWarning)
        for _ in range(3):
            life.steps(1)
            averages.update_parameters(life.module)
        life.ledger.close()
        averages.state_dict()
        copy.deepcopy(averages)


def set_back(seed: int, state: Any) -> None:
    torch.set_rng_state(state)


def set_again(seed: int, state: Any) -> None:
    torch.manual_seed(seed)


def set_again_by_another_name(seed: int, state: Any) -> None:
    torch.manual_seed(seed + 2**32)  # of which torch takes 32 bits


REPEATED = "^(data_loader: its coins are those of an earlier batch|optimizer: its noise would be made of bits that were used)"


@pytest.mark.parametrize("way", [set_back, set_again, set_again_by_another_name])
def test_coins_and_noise_of_an_earlier_process_are_refused(way: Any, tmp_path: Path) -> None:
    path, seed = tmp_path / "run.jsonl", 2**40 + int(torch.randint(2**31, ()))
    life = Life(path)
    torch.manual_seed(seed)
    before = torch.get_rng_state()
    life.steps()
    state = life.state()
    life.ledger.pause()
    life = Life(path)
    life.module.load_state_dict(state)
    way(seed, before)
    with pytest.raises(pc.PrivcalcError, match=REPEATED):
        life.steps()
    torch.seed()


def test_a_state_is_gone_on_from_where_it_was_left(tmp_path: Path) -> None:
    """A checkpoint with the generator's state, after the last step: nothing is repeated."""
    path = tmp_path / "run.jsonl"
    torch.seed()
    life = Life(path)
    life.steps()
    state, bits = life.state(), torch.get_rng_state()
    life.ledger.pause()
    life = Life(path)
    life.module.load_state_dict(state)
    torch.set_rng_state(bits)
    with warnings.catch_warnings():
        warnings.simplefilter("error", pc.PrivcalcWarning)
        life.steps()


def test_what_is_written_down_tells_no_seed(tmp_path: Path) -> None:
    """A digest that is quick to compute could be tried for all seeds; what is there is of none of the states themselves."""
    life = Life(tmp_path / "run.jsonl")
    torch.manual_seed(seed := 2**40 + 7)
    life.steps(1)
    marks = [each for each in life.ledger.marks if each.startswith("bits:")]
    assert marks
    torch.manual_seed(seed)
    guess = state_of(None).digest.hex()
    assert not [each for each in marks if re.sub("bits:", "", each) in guess]
    life.ledger.close()
