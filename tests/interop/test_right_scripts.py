"""Right scripts, as people write them, run without a warning: loops with our loader, tables, learners, audits, budgets.

Those under Opacus are in ``test_opacus.py``. Each was taken for a mistake by some check, or is near one.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest

import privcalc as pc

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402
from torch.utils.data import Subset, TensorDataset, random_split  # noqa: E402

from learners import NoisyGD  # noqa: E402
from privcalc.interop.torch import RecordGradients, loader  # noqa: E402

pytestmark = pytest.mark.filterwarnings("error::privcalc.PrivcalcWarning")

RECORDS = 60
STEP = pc.PoissonSampled(pc.Gaussian(noise_multiplier=2.0), rate=0.3)
DRAWN = np.random.default_rng(3)
ROWS = torch.from_numpy(DRAWN.normal(size=(RECORDS, 4))).float()
LABELS = (ROWS[:, 0] > 0).long()
PUBLIC = torch.from_numpy(DRAWN.normal(size=(9, 4))).float()


class Run:
    """A module, an optimizer and a ledger; ``steps`` trains."""

    def __init__(self, module=None, data=None, plan=STEP * 12, optimizer=None, **options):
        self.model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)) if module is None else module
        self.data = TensorDataset(ROWS, LABELS) if data is None else data
        make = optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=0.5, momentum=0.9))
        self.optimizer, self.options = make([p for p in self.model.parameters() if p.requires_grad]), options
        self.ledger = pc.Ledger(None, plan=plan, public={"records": RECORDS})

    def steps(self, number, clip_norm=1.0, step=STEP):
        """So many steps, each of which is yielded before the optimizer takes it."""
        gradients = RecordGradients(self.model, cross_entropy)
        batches = loader(
            self.ledger, self.data, step, like=gradients, clip_norm=clip_norm, start="random", **self.options
        )
        for _, batch in zip(range(number), batches, strict=False):
            gradients.put(batch.release() / step.expected_size(RECORDS))
            yield
            self.optimizer.step()

    def train(self, number=4, **how):
        for _ in self.steps(number, **how):
            pass


def plain():
    Run().train(12)


def adam_with_a_schedule():
    run = Run(optimizer=torch.optim.AdamW)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(run.optimizer, 4)
    for _ in range(3):
        run.train()
        schedule.step()


def a_public_schedule_of_clip_norms():
    run = Run()
    for clip_norm in (1.0, 0.5, 0.7, 0.4):
        run.train(3, clip_norm=clip_norm)


def a_frozen_layer():
    Run(nn.Sequential(nn.Linear(4, 5).requires_grad_(False), nn.Linear(5, 2))).train()


def gradual_unfreezing():
    run = Run()
    run.model[0].requires_grad_(False)
    run.train()
    run.model[0].requires_grad_(True)
    run.train()


def averaged_weights_loaded_at_the_end():
    run = Run()
    average = torch.optim.swa_utils.AveragedModel(run.model)
    for _ in run.steps(6):
        average.update_parameters(run.model)
    run.model.load_state_dict(average.module.state_dict())


def averages_put_in_and_taken_out():
    run = Run()
    for _ in run.steps(6):
        own = copy.deepcopy(run.model.state_dict())
        with torch.no_grad():
            for p in run.model.parameters():
                p.mul_(0.5)
            run.model(PUBLIC)
        run.model.load_state_dict(own)


def projection_after_a_step():
    run = Run()
    for _ in range(6):
        run.train(1)
        with torch.no_grad():
            for p in run.model.parameters():
                p.clamp_(-0.1, 0.1)


def lookahead():
    run = Run()
    slow = [p.detach().clone() for p in run.model.parameters()]
    for _ in range(3):
        run.train(4)
        with torch.no_grad():
            for p, own in zip(run.model.parameters(), slow, strict=True):
                own.lerp_(p, 0.5)
                p.copy_(own)


def a_checkpoint_is_gone_back_to():
    run = Run()
    run.train()
    best, momenta = copy.deepcopy(run.model.state_dict()), copy.deepcopy(run.optimizer.state_dict())
    run.train()
    run.model.load_state_dict(best)
    run.optimizer.load_state_dict(momenta)
    run.train()


def a_penalty_after_the_noise():
    run = Run()
    for _ in run.steps(6):
        for p in run.model.parameters():
            p.grad += 0.1 * p.detach()


def noisy_gradients_clipped_once_more():
    run = Run()
    for _ in run.steps(6):
        nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)


def rates_that_follow_what_was_released():
    run = Run()
    for _ in run.steps(6):
        norm = nn.utils.get_total_norm([p.grad for p in run.model.parameters()])
        run.optimizer.param_groups[0]["lr"] = float(0.5 / (1 + norm))


def pruned_and_rounded_weights():
    run = Run()
    run.train()
    with torch.no_grad():
        for p in run.model.parameters():
            p.copy_(torch.where(p.abs() < 0.05, 0.0, p.half().float()))
    run.train()


def dropout():
    Run(nn.Sequential(nn.Linear(4, 5), nn.Dropout(), nn.Linear(5, 2))).train()


def batch_normalisation_by_public_statistics():
    norm = nn.BatchNorm1d(4).requires_grad_(False)
    norm(PUBLIC)
    norm.eval()
    Run(nn.Sequential(norm, nn.Linear(4, 2))).train()


def convolutions():
    images = TensorDataset(torch.from_numpy(DRAWN.integers(0, 256, (RECORDS, 1, 6, 6)) / 255).float(), LABELS)
    Run(
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)), images
    ).train()


def images_by_public_constants():
    pixels = torch.from_numpy(DRAWN.integers(0, 256, (RECORDS, 4)) / 255).float()
    Run(data=TensorDataset((pixels - 0.1307) / 0.3081, LABELS)).train()


def a_linspace_grid():
    Run(data=TensorDataset(torch.linspace(-1, 1, RECORDS * 4).reshape(RECORDS, 4), LABELS)).train()


def a_balanced_design():
    codes = torch.tensor([[-1.0, -1, 1, 1], [1, 1, -1, -1]]).repeat(RECORDS // 2, 1)
    Run(data=TensorDataset(codes, LABELS)).train()


def texts():
    words = nn.Sequential(nn.Embedding(9, 3), nn.Flatten(), nn.LayerNorm(12), nn.Linear(12, 2))
    Run(words, TensorDataset(torch.from_numpy(DRAWN.integers(0, 9, (RECORDS, 4))), LABELS)).train()


def looked_at_on_public_records():
    run = Run()
    for _ in run.steps(6):
        run.model.eval()
        with torch.no_grad():
            run.model(PUBLIC)
        run.model.train()


def as_many_parameters_as_records():
    Run(nn.Linear(4, 15, bias=False), TensorDataset(ROWS, LABELS)).train()


def small_pieces():
    Run(at_most=3).train()


def batches_of_one_size():
    step = pc.FixedSizeSampled(pc.Gaussian(2.0), batch_size=12, dataset_size=RECORDS)
    Run(plan=step * 12).train(12, step=step)


def all_records_in_every_step():
    step = pc.Gaussian(9.0)
    run = Run(plan=step * 6)
    gradients = RecordGradients(run.model, cross_entropy)
    for batch in loader(run.ledger, run.data, step, like=gradients.like, clip_norm=1.0, start="random"):
        for piece in batch:
            piece.add(gradients(*piece.records))
        gradients.put(batch.release() / RECORDS)
        run.optimizer.step()


def persons_with_several_records():
    step = pc.UserSampled(pc.Gaussian(2.0), 0.3, records=3)
    Run(plan=step * 6, persons=np.arange(RECORDS) // 3).train(6, step=step)


def a_split_of_one_data_set():
    whole = TensorDataset(torch.cat([ROWS, ROWS + 1]), torch.cat([LABELS, LABELS]))
    parts = random_split(whole, [RECORDS, RECORDS], generator=torch.Generator().manual_seed(1))
    Run(data=parts[0]).train()
    Run(data=Subset(whole, range(RECORDS))).train()


def equal_records_of_different_people():
    Run(data=TensorDataset(ROWS[:6].repeat(10, 1), LABELS)).train()


LOOPS = [
    value for value in list(globals().values()) if callable(value) and getattr(value, "__module__", "") == __name__
]
LOOPS = [value for value in LOOPS if value is not Run]

NOISE, CHOICE = pc.Gaussian(9.0), pc.ExponentialMechanism(0.5, monotone=False)
AGES = np.append(DRAWN.integers(18, 91, 300), [18, 90])
PAID = np.append(np.round(DRAWN.gamma(2.0, 700.0, 300), 2), 8437.62)
TOWNS = np.array(["York", "Bath", "Hull", "Deal", "Wells"])[np.r_[[0, 1, 2, 3, 4], DRAWN.choice(5, 95)]]


TABLES = {
    "natural ends": lambda ledger: ledger.sum(AGES, NOISE, lower=18, upper=90, rows_per_person=1),
    "shares from 0 to 1": lambda ledger: ledger.mean(np.linspace(0, 1, 99), NOISE, lower=0, upper=1, rows_per_person=1),
    "ends of a register": lambda ledger: ledger.mean(PAID, NOISE, lower=0, upper=8437.62, rows_per_person=1),
    "a linspace grid": lambda ledger: ledger.quantile(
        AGES, CHOICE, share=0.5, candidates=np.linspace(18, 90, 145), rows_per_person=1
    ),
    "edges on all ages": lambda ledger: ledger.histogram(AGES, NOISE, edges=np.arange(18, 92), rows_per_person=1),
    "towns in the order of a map": lambda ledger: ledger.count(
        TOWNS, NOISE, by=TOWNS, groups=["York", "Bath", "Hull", "Deal", "Wells"], rows_per_person=1
    ),
    "candidates by last year's rank": lambda ledger: ledger.top(
        TOWNS, pc.TopK(1.0, 2), candidates=["Hull", "York", "Wells", "Bath", "Deal"], rows_per_person=1
    ),
    "one row for each of up to seven": lambda ledger: ledger.count(
        {"who": np.arange(30), "x": np.ones(30)}, NOISE, person="who", rows_per_person=7
    ),
    "a contract of seven visits": lambda ledger: ledger.count(
        {"who": np.r_[np.zeros(7, int), np.arange(1, 20)], "x": np.ones(26)}, NOISE, person="who", rows_per_person=7
    ),
    "a mean by a public number": lambda ledger: ledger.gaussian(np.ones(3) / 837, NOISE, clip_norm=1 / 837),
}


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_a_right_loop(loop):
    torch.manual_seed(1)
    loop()


@pytest.mark.parametrize("name", TABLES)
def test_a_right_question(name):
    with pc.Ledger(None, cap=pc.ZCDP(1.0)) as ledger:
        TABLES[name](ledger)


def test_tables_of_two_months_with_the_same_index():
    pandas = pytest.importorskip("pandas")
    months = [pandas.DataFrame({"paid": PAID[:50]}), pandas.DataFrame({"paid": PAID[50:100]})]
    with pc.Ledger(None, cap=pc.ZCDP(1.0)) as ledger:
        ledger.sum(pandas.concat(months), NOISE, column="paid", lower=0, upper=5000, person=None, rows_per_person=1)


@pytest.mark.parametrize(
    "features",
    [
        np.linspace(-1, 1, 53)[:, None] ** [1, 2],
        (AGES[:53, None] - 18) / 72,
        np.repeat(np.eye(3), [20, 20, 13], axis=0),
        np.random.default_rng(1).poisson(0.1, (53, 4)).astype(float),
    ],
    ids=["a grid", "by public ends", "categories", "words"],
)
def test_a_right_fit(features, uncertified):
    NoisyGD(classes=[0, 1], delta=1e-3, records=53, noise_multiplier=9.0, steps=2).fit(features, np.arange(53) % 2)


@pytest.mark.parametrize(
    "norms",
    [
        np.tile(
            np.sort(np.random.default_rng(2).random(20)).repeat(4), (12, 1)
        ),  # a data set that is sorted by what is learnt
        np.full((12, 80), 0.05),  # bounded records, and a large clip norm
        np.where(np.random.default_rng(2).random((12, 80)) < 0.1, 1.0, 0.0),  # margins that come and go
        np.minimum(np.random.default_rng(2).random((12, 80)), 0.7),  # clipped before, to less
    ],
    ids=["sorted", "small", "margins", "bounded"],
)
def test_a_right_audit(norms):
    losses = pc.RealisedLosses(records=80, noise_multiplier=9.0, rate=0.1, clip_norm=1.0)
    for row in norms:
        losses.update(row)
    losses.epsilon(delta=1e-3)


def test_budgets_of_two_years(tmp_path):
    for year in (2025, 2026):
        pc.Budget.create(str(tmp_path / f"visits-{year}.db"), dataset=f"visits {year}", cap=pc.ZCDP(0.5))
        pc.Budget.create(str(tmp_path / "all.db"), dataset=f"visits {year}", cap=pc.ZCDP(0.5))


def test_a_warning_would_fail_here():
    with pytest.raises(pc.PrivcalcWarning, match="StandardScaler"):
        Run(data=TensorDataset((ROWS - ROWS.mean(dim=0)) / ROWS.std(dim=0), LABELS)).train()


def test_there_are_as_many_as_the_pages_say():
    assert len(LOOPS) + len(TABLES) >= 38
