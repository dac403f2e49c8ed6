"""Loops as people write them under Opacus, and layers that mix records: what ε does not hold for is refused or warned of."""

from __future__ import annotations

import copy
import itertools
import re
import warnings
from typing import Any

import pytest

import privcalc as pc

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from opacus.grad_sample import GradSampleModule, grad_sample_module, register_grad_sampler  # noqa: E402
from opacus.layers import DPLSTM, DPMultiheadAttention  # noqa: E402
from opacus.optimizers import optimizer as opacus_optimizer  # noqa: E402
from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping  # noqa: E402
from private_runs import BATCH, MANY, RECORDS, Setting, Spied  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset  # noqa: E402

from privcalc.interop.opacus.alone import differs_alone  # noqa: E402

pytestmark = pytest.mark.service  # an engine of its own

loss_of = nn.functional.cross_entropy
LABELS = torch.zeros(RECORDS, dtype=torch.long)
WORDS = torch.randint(1, 9, (RECORDS, 6), generator=torch.Generator().manual_seed(2))
LENGTHS = 1 + torch.arange(RECORDS) % 6
TEXTS = TensorDataset(WORDS * (torch.arange(6) < LENGTHS[:, None]), LABELS)


class Whole(nn.Module):
    """Layers by name, and what is done with them."""

    def __init__(self, forward: Any, **layers: Any) -> None:
        super().__init__()
        self.forward_of = forward
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x: Any) -> Any:
        return self.forward_of(self, x)


def of(forward: Any, data: Any = None, **layers: Any) -> Setting:
    return Setting(module=Whole(forward, **layers), data=data)


def unwrapped(mode: str = "hooks") -> tuple[Setting, Any]:
    """Opacus can leave the module as it is: the loop goes on with that, and the hooks are an object of their own."""
    module = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))
    run = Setting(module=module, mode=mode, wrap_model=False)
    hooks, run.model = run.model, module
    return run, hooks


# --- rows that are of other records ---


def public_records_beside(run: Setting) -> None:
    public = torch.randn(4, 5)
    for x, y in run.loader:
        run.optimizer.zero_grad()
        (loss_of(run.model(x), y) + loss_of(run.model(public), LABELS[:4])).backward()
        run.optimizer.step()


def as_many_generated_records_beside(run: Setting) -> None:
    for x, y in run.loader:
        run.optimizer.zero_grad()
        (loss_of(run.model(x), y) + loss_of(run.model(torch.randn(len(x), 5)), 1 - LABELS[: len(x)])).backward()
        run.optimizer.step()


def generated_records_in_a_pass_of_their_own(run: Setting) -> None:
    for x, y in run.loader:
        run.optimizer.zero_grad()
        loss_of(run.model(x), y).backward()
        loss_of(run.model(torch.randn(len(x), 5)), 1 - LABELS[: len(x)]).backward()
        run.optimizer.step()


def a_layer_twice_for_some(run: Setting) -> None:
    def forward(self: Any, x: Any) -> Any:
        first, far = self.body(x), x[:, 0] > 0
        second = first.clone()
        second[far] = self.body(first[far])
        return self.head(second)

    of(forward, body=nn.Linear(5, 5), head=nn.Linear(5, 2)).epoch()


def experts_for_some(run: Setting) -> None:
    def forward(self: Any, x: Any) -> Any:
        found, far = self.head(x).clone(), x[:, 0] > 0
        found[far] = self.one(x[far])
        return found

    of(forward, head=nn.Linear(5, 2), one=nn.Linear(5, 2)).epoch()


def in_order(self: Any, x: Any) -> Any:
    order = x[:, 0].argsort()
    return self.head(torch.tanh(self.body(x))[order])[order.argsort()]


def records_sorted_inside(run: Setting) -> None:
    of(in_order, body=nn.Linear(5, 4), head=nn.Linear(4, 2)).epoch()


def records_centred_by_a_hook(run: Setting) -> None:
    run.model._module[1].register_forward_hook(lambda _, __, out: out - out.mean(dim=0))
    run.epoch()


def records_centred_by_another_forward(run: Setting) -> None:
    forward = run.model._module.forward
    run.model._module.forward = lambda x: forward(x - x.mean(dim=0))
    run.epoch()


def outputs_that_compare_records(run: Setting) -> None:
    of(lambda self, x: (out := self.head(x)) - out.logsumexp(dim=0), head=nn.Linear(5, 2)).epoch()


def texts(*, sorts: bool) -> Any:
    def forward(self: Any, x: Any) -> Any:
        lengths = (x > 0).sum(dim=1).clamp(min=1)
        packed = nn.utils.rnn.pack_padded_sequence(self.words(x), lengths, batch_first=True, enforce_sorted=not sorts)
        return self.head(self.reader(packed)[1][0][-1])

    return Whole(forward, words=nn.Embedding(9, 4), reader=DPLSTM(4, 4, batch_first=True), head=nn.Linear(4, 2))


def sequences_that_a_layer_sorts(run: Setting) -> None:
    Setting(module=texts(sorts=True), data=TEXTS).epoch()


def time_before_records(run: Setting) -> None:
    def forward(self: Any, x: Any) -> Any:
        words = self.words(x).transpose(0, 1)
        return self.head(self.attention(words, words, words)[0].mean(dim=0))

    of(forward, data=TEXTS, words=nn.Embedding(9, 4), attention=DPMultiheadAttention(4, 2), head=nn.Linear(4, 2)).epoch()


def places_without_records(run: Setting) -> None:
    def forward(self: Any, x: Any) -> Any:
        return self.head((self.words(x) + self.places(torch.arange(6))).mean(dim=1))

    of(forward, data=TEXTS, words=nn.Embedding(9, 4), places=nn.Embedding(6, 4), head=nn.Linear(4, 2)).epoch()


def a_sampler_of_ones_own(run: Setting) -> None:
    class Own(nn.Linear):
        pass

    @register_grad_sampler(Own)
    def sampled(layer: Any, activations: Any, backprops: Any) -> Any:
        return {layer.weight: torch.einsum("ni,nj->nij", backprops, activations[0]).flip(0), layer.bias: backprops}

    try:
        Setting(module=Own(5, 2)).epoch()
    finally:
        del GradSampleModule.GRAD_SAMPLERS[Own]


# --- code in the place of Opacus's and torch's ---


def gradients_are_centred_by_the_wrapper(run: Setting) -> None:
    rearrange = run.model.rearrange_grad_samples

    def centred(**what: Any) -> Any:
        activations, backprops = rearrange(**what)
        return activations, backprops - backprops.mean(dim=0)

    run.model.rearrange_grad_samples = centred
    run.epoch()


def gradients_are_centred_by_a_function(run: Setting) -> None:
    create = grad_sample_module.create_or_accumulate_grad_sample

    def centred(*, grad_sample: Any, **rest: Any) -> None:
        create(grad_sample=grad_sample - grad_sample.mean(dim=0), **rest)

    with Spied(grad_sample_module, "create_or_accumulate_grad_sample", centred):
        run.epoch()


def noise_without_tails(run: Setting) -> None:
    draw = opacus_optimizer._generate_noise
    with Spied(opacus_optimizer, "_generate_noise", lambda std, **rest: draw(std, **rest).clamp(-2 * std, 2 * std)):
        run.epoch()


class Unnoised(torch.optim.SGD):
    """A step of torch's, which is given sums without noise."""

    def _init_group(self, group: Any, params: Any, grads: Any, momenta: Any) -> Any:
        found = super()._init_group(group, params, grads, momenta)
        grads[:] = [p.summed_grad / BATCH for p in params]
        return found


class Named(torch.optim.SGD):
    """A name for settings."""

    def __init__(self, params: Any, **settings: Any) -> None:
        super().__init__(params, **settings)


def an_optimizer_that_collects_other_gradients(run: Setting) -> None:
    with Spied(torch.optim, "SGD", Unnoised):
        run = Setting()
    run.epoch()


def a_layer_leaves_and_is_written(run: Setting) -> None:
    run.epoch()
    layer = run.model._module[0].requires_grad_(False)
    (group,) = run.optimizer.param_groups
    group["params"] = group["params"][2:]
    layer.weight.data.copy_(run.loader.dataset.tensors[0][:4])
    run.epoch()


def a_clip_norm_that_underflows(run: Setting) -> None:
    Setting(max_grad_norm=1e-43).epoch()


def the_inner_optimizer_with_a_closure(run: Setting) -> None:
    run.epoch()
    x, y = next(iter(run.loader))
    run.optimizer.zero_grad()
    run.inner.step(lambda: loss_of(run.model(x), y).backward())


def the_inner_optimizer_of_an_unwrapped_module(run: Setting) -> None:
    run, _ = unwrapped()
    for batch in run.loader:
        run.raw(batch)
        run.inner.step()


def other_factors_of_an_unwrapped_module(run: Setting) -> None:
    run, hooks = unwrapped("ghost")
    hooks.get_clipping_coef = lambda: 100.0
    run.epoch()


def all_in_half_precision(run: Setting) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        run.epoch()


# --- batches ---


class Noisy(Dataset):
    """Records of another data set, with noise of their own."""

    def __init__(self, records: Any) -> None:
        self.records = records

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Any:
        x, y = self.records[index]
        return x + 0.1 * torch.randn(5), y


def copies_that_are_transformed(run: Setting) -> None:
    Setting(data=Noisy(Subset(MANY, [0] * RECORDS))).epoch()


def copies_of_what_is_transformed(run: Setting) -> None:
    Setting(data=Noisy(ConcatDataset([Noisy(MANY), Noisy(MANY)]))).epoch()


def batches_of_a_cycle(run: Setting) -> None:
    for batch in itertools.islice(itertools.cycle(run.loader), 9):
        run.step(batch)


def as_long_as_the_public_ones_last(run: Setting) -> None:
    for _ in range(2):
        for batch, _ in zip(run.loader, range(3), strict=False):
            run.step(batch)


def batches_of_another_models_loader(run: Setting) -> None:
    other = Setting(data=run.loader.dataset)
    for batch in run.loader:
        other.step(batch)


def scaled_after_make_private(run: Setting) -> None:
    records = run.loader.dataset.tensors[0]
    records.data.sub_(records.mean(dim=0)).div_(records.std(dim=0))
    run.epoch()


def scaled_between_steps_by_numpy(run: Setting) -> None:
    run.epoch()
    records = run.loader.dataset.tensors[0].numpy()
    records -= records.mean(axis=0)
    records /= records.std(axis=0)
    run.epoch()


def copies_after_make_private(run: Setting) -> None:
    run = Setting(data=Subset(run.loader.dataset, list(range(RECORDS))))
    run.loader.dataset.indices = [0] * RECORDS
    run.epoch()


STEPS = "every optimizer step must be one whole batch of the loader"
PART = "was used more than once before backward"
ROWS = "^grad_sample: must have one gradient per record in every parameter"
MOVED = "^parameters: must not change between a batch's forward pass and its private step"
MIXED = "^module: a record alone gives its layers other inputs, or another output"
SCALED = "^dataset: all columns have mean 0"
COPIED = "^dataset: has one record in several places"
SAYS = {
    public_records_beside: f"^0: {PART}",
    as_many_generated_records_beside: "^module: its forward pass ran once more before backward",
    generated_records_in_a_pass_of_their_own: "^Poisson sampling is not compatible with grad accumulation",  # Opacus's own
    a_layer_twice_for_some: f"^body: {PART}",
    experts_for_some: ROWS,
    records_sorted_inside: MIXED,
    records_centred_by_a_hook: MIXED,
    records_centred_by_another_forward: MIXED,
    outputs_that_compare_records: MIXED,
    sequences_that_a_layer_sorts: "^enforce_sorted = False: must be True",
    time_before_records: ROWS,
    places_without_records: ROWS,
    a_sampler_of_ones_own: "^register_grad_sampler: gradients of single records are taken by code that is not Opacus's",
    gradients_are_centred_by_the_wrapper: "^GradSampleModule.rearrange_grad_samples: must stay Opacus's own",
    gradients_are_centred_by_a_function: "^opacus.grad_sample.*create_or_accumulate_grad_sample: must stay Opacus's own",
    noise_without_tails: "^opacus.optimizers.optimizer._generate_noise: must stay Opacus's own",
    an_optimizer_that_collects_other_gradients: "^optimizer: its step is code of its own",
    a_layer_leaves_and_is_written: "^param_groups: must keep the parameters that private steps were taken of",
    a_clip_norm_that_underflows: "^max_grad_norm = 1e-43: must be finite, and",
    the_inner_optimizer_with_a_closure: MOVED,
    the_inner_optimizer_of_an_unwrapped_module: MOVED,
    other_factors_of_an_unwrapped_module: "^GradSampleHooksFastGradientClipping.get_clipping_coef: must stay Opacus's own",
    all_in_half_precision: "^gradients: must be in single or double precision",
    copies_that_are_transformed: COPIED,
    copies_of_what_is_transformed: COPIED,
    copies_after_make_private: COPIED,
    scaled_after_make_private: SCALED,
    scaled_between_steps_by_numpy: SCALED,
    batches_of_a_cycle: f"^optimizer: no batch was drawn for this step: {STEPS}",
    as_long_as_the_public_ones_last: "^data_loader: a batch was drawn and given up",
    batches_of_another_models_loader: f"^optimizer: no batch was drawn for this step: {STEPS}",
}


@pytest.mark.parametrize("draws", [False, True], ids=["opacus draws", "the ledger draws"])
@pytest.mark.parametrize("way", SAYS, ids=lambda way: way.__name__)
def test_no_way_is_silent(way: Any, draws: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Setting, "draws", draws)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            way(Setting())
            said = [str(each.message) for each in told if issubclass(each.category, pc.PrivcalcWarning)]
        except ValueError as error:
            said = [str(error)]
    assert said
    assert [text for text in said if not re.match(SAYS[way], text)] == []


# --- and what is right ---


def by_closures(run: Setting) -> None:
    for batch in run.loader:

        def closure(batch: Any = batch) -> None:
            run.optimizer.zero_grad()
            run.backward(batch)

        run.optimizer.step(closure)


def by_next_and_anew(run: Setting) -> None:
    batches = iter(run.loader)
    for _ in range(9):
        try:
            batch = next(batches)
        except StopIteration:
            batches = iter(run.loader)
            batch = next(batches)
        run.step(batch)


def by_islice_and_a_last_batch_left(run: Setting) -> None:
    for batch in itertools.islice(run.loader, 2):
        run.step(batch)
    for number, batch in enumerate(run.loader):
        if number == 2:
            break
        run.step(batch)


def by_adversarial_examples(run: Setting) -> None:
    for x, y in run.loader:
        x.requires_grad_(True)
        run.optimizer.zero_grad()
        (slope,) = torch.autograd.grad(loss_of(run.model(x), y), x)
        run.optimizer.zero_grad()
        run.backward(((x + 0.1 * slope.sign()).detach(), y))
        run.optimizer.step()


def by_checkpoints_in_memory(run: Setting) -> None:
    for reentrant in (False, True):

        def forward(self: Any, x: Any, reentrant: bool = reentrant) -> Any:
            return self.head(checkpoint(self.body, x.requires_grad_(True), use_reentrant=reentrant))

        of(forward, body=nn.Linear(5, 4), head=nn.Linear(4, 2)).epoch()


def by_an_unwrapped_module(run: Setting) -> None:
    for mode in ("hooks", "ghost"):
        unwrapped(mode)[0].epoch()


def attention_and_places(run: Setting) -> None:
    def forward(self: Any, x: Any) -> Any:
        words = self.words(x) + self.places(torch.arange(6).expand(len(x), 6))
        return self.head(self.norm(self.attention(words, words, words)[0]).mean(dim=1))

    layers = {"words": nn.Embedding(9, 4), "places": nn.Embedding(6, 4), "norm": nn.LayerNorm(4), "head": nn.Linear(4, 2)}
    of(forward, data=TEXTS, attention=DPMultiheadAttention(4, 2, batch_first=True), **layers).epoch()


def images(run: Setting) -> None:
    layers = nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.InstanceNorm2d(4, affine=True), nn.Flatten(), nn.Linear(64, 2)
    Setting(module=nn.Sequential(*layers), data=TensorDataset(torch.randn(RECORDS, 3, 6, 6), LABELS)).epoch()


def padded_sequences(run: Setting) -> None:
    of(
        lambda self, x: self.head(self.reader(self.words(x))[0][:, -1]),
        data=TEXTS,
        words=nn.Embedding(9, 4),
        reader=DPLSTM(4, 4, num_layers=2, bidirectional=True, batch_first=True),
        head=nn.Linear(8, 2),
    ).epoch()


def sequences_sorted_before(run: Setting) -> None:
    """By the collate function, so that all layers have them in one order."""

    def by_length(batch: Any) -> Any:
        return torch.utils.data.default_collate(sorted(batch, key=lambda one: -int((one[0] > 0).sum())))

    run = Setting(module=texts(sorts=False), data=TEXTS, loading={"collate_fn": by_length})
    run.epoch()


def two_heads(run: Setting) -> None:
    for mode in ("hooks", "ghost"):
        module = Whole(lambda self, x: (self.one(x), self.other(x)), one=nn.Linear(5, 2), other=nn.Linear(5, 3))
        run = Setting(module=module, mode=mode)
        for x, y in run.loader:
            run.optimizer.zero_grad()
            one, other = run.model(x)
            (run.criterion(one, y) + run.criterion(other, y)).backward()
            run.optimizer.step()


def a_ghostly_loss_of_ones_own(run: Setting) -> None:
    run = Setting(mode="ghost")
    for x, y in run.loader:
        run.optimizer.zero_grad()
        losses = loss_of(run.model(x), y, reduction="none")
        DPTensorFastGradientClipping(run.model, run.optimizer, losses, "mean").backward()
        run.optimizer.step()


def an_average_beside(run: Setting) -> None:
    average = copy.deepcopy(run.model._module)
    for batch in run.loader:
        run.step(batch)
        for p, now in zip(average.parameters(), run.optimizer.params, strict=True):
            p.data.lerp_(now.data, 0.1)
    average.state_dict()


def weights_of_low_rank(run: Setting) -> None:
    base = nn.Linear(5, 4).requires_grad_(False)
    down, up = nn.Linear(5, 2, bias=False), nn.Linear(2, 4, bias=False)
    of(lambda self, x: self.head(self.base(x) + self.up(self.down(x))), base=base, down=down, up=up, head=nn.Linear(4, 2)).epoch()


def weights_of_a_norm(run: Setting) -> None:
    Setting(module=nn.utils.parametrizations.weight_norm(nn.Linear(5, 2))).epoch()


def double_precision(run: Setting) -> None:
    data = TensorDataset(torch.randn(RECORDS, 5, dtype=torch.float64), LABELS)
    Setting(module=nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 2)).double(), data=data).epoch()


def double_precision_everywhere(run: Setting) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        Setting().epoch()
    finally:
        torch.set_default_dtype(torch.float32)


def an_optimizer_with_a_name(run: Setting) -> None:
    with Spied(torch.optim, "SGD", Named):
        run = Setting()
    run.epoch()


def random_outputs(run: Setting) -> None:
    of(lambda self, x: self.head(x + torch.randn_like(x)), head=nn.Linear(5, 2)).epoch()


def records_that_are_transformed(run: Setting) -> None:
    data = Noisy(Noisy(MANY))
    data.records.owner = data
    Setting(data=data).epoch()


def layers_that_want_a_batch(run: Setting) -> None:
    def forward(self: Any, x: Any) -> Any:
        assert len(x) != 1
        return self.head(x)

    module = Whole(forward, head=nn.Linear(5, 2))
    run = Setting(module=module)
    run.epoch()
    assert module.head.training


def a_table_as_long_as_a_batch_may_be(run: Setting) -> None:
    mask = torch.eye(5)
    of(lambda self, x: self.head(x @ mask), head=nn.Linear(5, 2)).epoch()


RIGHT = [
    by_closures,
    by_next_and_anew,
    by_islice_and_a_last_batch_left,
    by_adversarial_examples,
    by_checkpoints_in_memory,
    by_an_unwrapped_module,
    attention_and_places,
    images,
    padded_sequences,
    sequences_sorted_before,
    two_heads,
    a_ghostly_loss_of_ones_own,
    an_average_beside,
    weights_of_low_rank,
    weights_of_a_norm,
    double_precision,
    double_precision_everywhere,
    an_optimizer_with_a_name,
    random_outputs,
    records_that_are_transformed,
    layers_that_want_a_batch,
    a_table_as_long_as_a_batch_may_be,
]


@pytest.mark.parametrize("draws", [False, True], ids=["opacus draws", "the ledger draws"])
@pytest.mark.parametrize("way", RIGHT, ids=lambda way: way.__name__)
def test_no_false_alarm(way: Any, draws: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Setting, "draws", draws)
    with warnings.catch_warnings():
        warnings.simplefilter("error", pc.PrivcalcWarning)
        way(Setting())


def test_looking_at_a_record_alone_changes_nothing() -> None:
    """Neither what a module counts, nor what is in training, nor any random bit."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.count = nn.Sequential(nn.Dropout(), nn.Linear(5, 2)), 7

        def forward(self, x: Any, *, mask: Any) -> Any:
            self.count += 1
            return self.layer(x * mask)

    module = Counting()
    module.layer[1].eval()
    state, hooks = torch.get_rng_state(), [dict(each._forward_pre_hooks) for each in module.modules()]
    x = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    assert not differs_alone(module, (x,), {"mask": torch.ones(6, 1)})
    assert (module.count, [each.training for each in module.modules()]) == (7, [True, True, True, False])
    assert torch.equal(state, torch.get_rng_state())
    assert hooks == [dict(each._forward_pre_hooks) for each in module.modules()]
    module.layer[0].register_forward_hook(lambda _, __, out: out - out.mean(dim=0))
    assert differs_alone(module, (x,), {"mask": torch.ones(6, 1)})


# --- why: Opacus's own sums, without one record ---


def classed(private: Any, x: Any) -> Any:
    return loss_of(private(x), (x[:, 1].remainder(2) > 0.5).long())


def beside(private: Any, x: Any) -> Any:
    return classed(private, x) + loss_of(private(20 * torch.eye(5)), LABELS[:5])


def moves(module: Any, x: Any, loss: Any = classed, norm: float = 0.05) -> float:
    """How far the sum of clipped gradients moves if a record leaves, in clip norms, at most."""
    private = GradSampleModule(module)

    def total(x: Any) -> Any:
        private.zero_grad()
        loss(private, x).backward()
        rows = torch.cat([p.grad_sample.flatten(1) for p in private.parameters()], dim=1).double()
        return (rows * (norm / rows.norm(dim=1, keepdim=True).clamp(min=norm))).sum(dim=0)

    own = total(x)
    return max(float((own - total(torch.cat([x[:i], x[i + 1 :]]))).norm()) / norm for i in range(len(x)))


FAR = 3 * torch.randn(20, 5, generator=torch.Generator().manual_seed(5))
SHORT = TEXTS.tensors[0][torch.randperm(RECORDS, generator=torch.Generator().manual_seed(5))[:20]]
OTHERS = {
    "sorted inside": (lambda: Whole(in_order, body=nn.Linear(5, 4), head=nn.Linear(4, 2)), FAR, classed),
    "sequences that a layer sorts": (lambda: texts(sorts=True), SHORT, classed),
    "public ones beside": (lambda: nn.Linear(5, 2), FAR, beside),
}


@pytest.mark.parametrize("way", OTHERS)
def test_rows_of_others_move_sums_by_more_than_the_clip_norm(way: str) -> None:
    module, x, loss = OTHERS[way]
    with torch.random.fork_rng():
        torch.manual_seed(5)
        assert moves(module(), x, loss) > 1.2
        assert moves(nn.Linear(5, 2), FAR) < 1 + 1e-5


@pytest.mark.parametrize("records", [2, 5, 40])
def test_a_sum_that_opacus_takes_for_a_mean_moves_by_nearly_twice_the_clip_norm(records: int) -> None:
    """n records of gradient C/n: n rows of C, and without one n - 1 rows of (n - 1)C/n."""
    found = moves(nn.Linear(1, 1, bias=False), torch.full((records, 1), 1 / records), lambda m, x: m(x).sum(), norm=1.0)
    assert found == pytest.approx(2 - 1 / records, rel=1e-6)
