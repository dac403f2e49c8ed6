"""Ways to take a certificate for a run under Opacus that it does not fit: each is refused, or warned of, by name."""

from __future__ import annotations

import copy
import io
import os
import re
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import privcalc as pc

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from opacus.optimizers import DPOptimizer  # noqa: E402
from opacus.schedulers import LambdaGradClip, StepGradClip, StepNoise  # noqa: E402
from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: E402
from private_runs import BATCH, MANY, RECORDS, Setting, Spied  # noqa: E402
from torch.optim.optimizer import register_optimizer_step_post_hook  # noqa: E402
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset  # noqa: E402

from privcalc.certificate.story import of_given  # noqa: E402
from privcalc.interop import opacus as adapter  # noqa: E402
from privcalc.noise import Noise  # noqa: E402

pytestmark = pytest.mark.service  # an engine of its own

# --- other optimizers, other gradients ---


def inner_step_at_the_end(run: Setting) -> None:
    run.epoch()
    run.raw(next(iter(run.loader)))
    run.inner.step()


def inner_step_in_place_of_the_private_one(run: Setting) -> None:
    for batch in run.loader:
        run.raw(batch)
        run.optimizer.original_optimizer.step()


def own_optimizer_after_the_private_step(run: Setting) -> None:
    own = torch.optim.Adam(run.model.parameters(), lr=0.1)
    for batch in run.loader:
        run.step(batch)
        for p in run.optimizer.params:
            p.grad = p.grad_sample.mean(dim=0)
        own.step()


def own_optimizer_of_one_layer(run: Setting) -> None:
    own = torch.optim.SGD(run.model._module[2].parameters(), lr=0.1)
    for batch in run.loader:
        run.step(batch)
        run.raw(batch)
        own.step()


def step_is_the_inner_one(run: Setting) -> None:
    run.optimizer.step = run.inner.step
    run.epoch()


def noise_is_taken_away_after_it_was_drawn(run: Setting) -> None:
    scale = run.optimizer.scale_grad

    def without() -> None:
        scale()
        for p in run.optimizer.params:
            p.grad = p.summed_grad / BATCH

    run.optimizer.scale_grad = without
    run.epoch()


def a_hook_of_torch_takes_noise_away(run: Setting) -> None:
    def without(optimizer: Any, *_: Any) -> None:
        for p in run.optimizer.params:
            p.grad = p.summed_grad / BATCH

    run.inner.register_step_pre_hook(without)
    run.epoch()


def no_noise(run: Setting) -> None:
    def nothing() -> None:
        for p in run.optimizer.params:
            p.grad = p.summed_grad

    run.optimizer.add_noise = nothing
    run.epoch()


def no_clipping(run: Setting) -> None:
    def added() -> None:
        for p in run.optimizer.params:
            p.summed_grad = p.grad_sample.sum(dim=0) * 1e-3

    run.optimizer.clip_and_accumulate = added
    run.epoch()


def sums_are_edited_between_pieces(run: Setting) -> None:
    with BatchMemoryManager(data_loader=run.loader, max_physical_batch_size=4, optimizer=run.optimizer) as small:
        for batch in small:
            run.optimizer.zero_grad()
            run.backward(batch)
            run.optimizer.step()
            for p in run.optimizer.params:
                if p.summed_grad is not None:
                    p.summed_grad *= 1.2


def a_parameter_joins_later(run: Setting) -> None:
    run.epoch()
    run.model._module.add_module("3", torch.nn.Linear(2, 2))
    run.optimizer.original_optimizer.add_param_group({"params": list(run.model._module[3].parameters())})
    run.epoch()


def a_parameter_leaves(run: Setting) -> None:
    run.epoch()
    run.optimizer.param_groups[0]["params"] = run.optimizer.param_groups[0]["params"][:2]
    run.epoch()


def a_frozen_layer_is_thawed(run: Setting) -> None:
    run.model._module[0].requires_grad_(False)
    run.epoch()
    own = torch.optim.SGD(run.model._module[0].parameters(), lr=1.0)
    run.model._module[0].requires_grad_(True)
    for batch in run.loader:
        run.optimizer.zero_grad()
        run.backward(batch)
        own.step()
        run.optimizer.step()


# --- batches ---


def batches_are_chosen_by_starting_anew(run: Setting) -> None:
    for _ in range(4):
        best = min((next(iter(run.loader)) for _ in range(5)), key=lambda batch: len(batch[0]))
        run.step(best)


def two_iterators_at_once(run: Setting) -> None:
    one, other = iter(run.loader), iter(run.loader)
    for _ in range(3):
        batch = next(one)
        next(other)
        run.step(batch)


def an_epoch_is_given_up_for_its_batch(run: Setting) -> None:
    for _ in range(20):
        for batch in run.loader:
            if len(batch[0]) > BATCH:
                break
            run.step(batch)


def a_step_is_left_out(run: Setting) -> None:
    for number, batch in enumerate(run.loader):
        run.optimizer.zero_grad()
        run.backward(batch)
        if number != 1:
            run.optimizer.step()


def a_collate_function_leaves_records_out(run: Setting) -> None:
    collate = run.loader.collate_fn
    run.loader.collate_fn = lambda items: collate(items[: len(items) // 2])
    run.epoch()


def the_sampler_draws_at_another_rate(run: Setting) -> None:
    run.loader.batch_sampler.sample_rate = 0.9
    run.epoch()


def a_sampler_of_the_same_class_takes_its_place(run: Setting) -> None:
    mine = type(run.loader.batch_sampler)(num_samples=RECORDS, sample_rate=0.9)
    object.__setattr__(run.loader, "batch_sampler", mine)
    run.epoch()


def a_loader_of_ones_own_draws_as_many(run: Setting) -> None:
    for batch in DataLoader(run.loader.dataset, batch_size=BATCH, shuffle=True):
        run.step(batch)


def two_losses_of_one_batch(run: Setting) -> None:
    for batch in run.loader:
        run.optimizer.zero_grad()
        run.backward(batch)
        run.backward(batch)
        run.optimizer.step()


def pieces_that_are_never_completed(run: Setting) -> None:
    for batch in run.loader:
        run.optimizer.signal_skip_step(True)
        run.step(batch)


def more_epochs_than_planned(run: Setting) -> None:
    for _ in range(11):
        run.epoch()


def the_data_set_is_sorted_in_between(run: Setting) -> None:
    run.epoch()
    tensor = run.loader.dataset.tensors[0]
    tensor[:] = tensor[tensor[:, 0].argsort()]
    run.epoch()


def the_data_set_becomes_another(run: Setting) -> None:
    run.epoch()
    data = run.loader.dataset
    data.tensors = tuple(tensor.flip(0) for tensor in data.tensors)
    run.epoch()


def the_data_set_grows(run: Setting) -> None:
    run.epoch()
    data = run.loader.dataset
    data.tensors = tuple(torch.cat([tensor, tensor]) for tensor in data.tensors)
    run.epoch()


# --- the machinery ---


def the_hooks_are_removed(run: Setting) -> None:
    run.model.remove_hooks()
    for p in run.optimizer.params:
        p.grad_sample = torch.zeros(1, *p.shape)
    run.epoch()


def the_accountant_is_replaced(run: Setting) -> None:
    run.epoch()
    run.engine.accountant = adapter.PrivcalcAccountant()
    run.epoch()


def another_step_hook(run: Setting) -> None:
    run.optimizer.attach_step_hook(lambda optimizer: None)
    run.epoch()


def less_noise(run: Setting) -> None:
    run.epoch()
    run.optimizer.noise_multiplier = 1.0
    run.epoch()


def no_noise_at_all(run: Setting) -> None:
    run.optimizer.noise_multiplier = 0.0
    run.epoch()


def noise_of_a_seed(run: Setting) -> None:
    run.optimizer.generator = torch.Generator().manual_seed(7)
    run.epoch()


def a_seed_in_every_step(run: Setting) -> None:
    for batch in run.loader:
        torch.manual_seed(3)
        run.step(batch)


def division_by_the_size_of_the_batch(run: Setting) -> None:
    for batch in run.loader:
        run.optimizer.expected_batch_size = len(batch[0])
        run.step(batch)


def division_where_the_batch_is_large(run: Setting) -> None:
    for batch in run.loader:
        run.optimizer.loss_reduction = "mean" if len(batch[0]) > BATCH else "sum"
        run.step(batch)


def a_clip_norm_within_a_batch(run: Setting) -> None:
    with BatchMemoryManager(data_loader=run.loader, max_physical_batch_size=4, optimizer=run.optimizer) as small:
        for batch in small:
            run.step(batch)
            run.optimizer.max_grad_norm *= 1.1


def the_ledger_is_closed_before_the_end(run: Setting) -> None:
    run.epoch()
    run.ledger.close()
    for _ in range(4):
        run.epoch()


def another_thread_steps(run: Setting) -> None:
    run.epoch()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            run.epoch()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def a_fork_goes_on_with_what_was_paid(run: Setting) -> None:
    run.step(next(iter(run.loader)))  # the ledger was charged for ten
    child = os.fork()
    if not child:
        try:
            run.step(next(iter(run.loader)))
        except pc.PrivcalcError as error:
            os._exit(7 if "process" in str(error) else 1)
        except BaseException:
            os._exit(2)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise pc.PrivcalcError("in another process" if code == 7 else f"status {code}")


def a_second_engine_for_the_same_module(run: Setting) -> None:
    run.epoch()
    Setting(module=run.model.to_standard_module()).epoch()


def a_rate_that_follows_the_training_loss(run: Setting) -> None:
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(run.inner, patience=0)
    for batch in run.loader:
        run.step(batch)
        run.model.eval()
        with torch.no_grad():
            plateau.step(float(torch.nn.functional.cross_entropy(run.model(batch[0]), batch[1])))
        run.model.train()


class Means(torch.nn.Module):
    """Keeps a sum of means in a buffer."""

    def __init__(self, *, quietly: bool) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(5, 2)
        self.quietly = quietly
        self.register_buffer("mean", torch.zeros(5))

    def forward(self, x: Any) -> Any:
        if self.training:
            mean = self.mean.data if self.quietly else self.mean
            mean += x.mean(dim=0) if len(x) else 0.0
        return self.linear(x)


def running_means(run: Setting) -> None:
    Setting(module=Means(quietly=False)).epoch()


def records_that_occur_twice(run: Setting) -> None:
    data = run.loader.dataset
    Setting(data=Subset(data, [*range(RECORDS), 0, 1])).epoch()


def a_data_set_twice(run: Setting) -> None:
    data = run.loader.dataset
    Setting(data=ConcatDataset([Subset(data, range(10)), data])).epoch()


class Reused(torch.nn.Module):
    """One layer, used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(5, 5, bias=False)
        self.last = torch.nn.Linear(5, 2)

    def forward(self, x: Any) -> Any:
        return self.last(self.layer(torch.tanh(self.layer(x))))


class Tied(torch.nn.Module):
    """One weight of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(5, 5, bias=False), torch.nn.Linear(5, 5, bias=False)
        self.two.weight = self.one.weight
        self.last = torch.nn.Linear(5, 2)

    def forward(self, x: Any) -> Any:
        return self.last(self.two(torch.tanh(self.one(x))))


def ghost_clipping_of_a_layer_used_twice(run: Setting) -> None:
    Setting(module=Reused(), mode="ghost").epoch()


def ghost_clipping_of_tied_weights(run: Setting) -> None:
    Setting(module=Tied(), mode="ghost").epoch()


# --- what an honest script does by mistake ---


def the_same_seed_around_each_step(run: Setting) -> None:
    for batch in run.loader:
        with torch.random.fork_rng():  # for the same dropout in every step; torch's state is set back after it
            torch.manual_seed(0)
            run.step(batch)


def a_state_that_is_set_back_after_each_step(run: Setting) -> None:
    for batch in run.loader:
        run.optimizer.zero_grad()
        run.backward(batch)
        state = torch.get_rng_state()
        run.optimizer.step()
        torch.set_rng_state(state)


def coins_of_a_seed(run: Setting) -> None:
    Setting(loading={"generator": torch.Generator().manual_seed(0)}).epoch()


def the_sampler_gets_a_generator(run: Setting) -> None:
    run.epoch()
    run.loader.batch_sampler.generator = torch.Generator().manual_seed(0)
    run.epoch()


def gradients_of_records_are_centred(run: Setting) -> None:
    for batch in run.loader:
        run.optimizer.zero_grad()
        run.backward(batch)
        for p in run.optimizer.params:
            p.grad_sample -= p.grad_sample.mean(dim=0)
        run.optimizer.step()


def gradients_of_records_are_replaced(run: Setting) -> None:
    for batch in run.loader:
        run.optimizer.zero_grad()
        run.backward(batch)
        for p in run.optimizer.params:
            p.grad_sample = p.grad_sample.mean(dim=0).expand_as(p.grad_sample)
        run.optimizer.step()


def a_clip_norm_from_private_norms(run: Setting) -> None:
    for batch in run.loader:
        run.optimizer.zero_grad()
        run.backward(batch)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in run.optimizer.grad_samples]).norm(dim=0)
        if len(norms):
            run.optimizer.max_grad_norm = float(norms.median())
        run.optimizer.step()


def clipping_that_adapts(run: Setting) -> None:
    names = ["target_unclipped_quantile", "clipbound_learning_rate", "max_clipbound", "min_clipbound", "unclipped_num_std"]
    Setting(clipping="adaptive", **dict(zip(names, (0.5, 0.2, 10.0, 0.1, 2.0), strict=True))).epoch()


def a_subset_gets_other_indices(run: Setting) -> None:
    data = Subset(run.loader.dataset, list(range(40)))
    run = Setting(data=data)
    run.epoch()
    data.indices[:] = range(20, 60)
    run.epoch()


class Arrays(torch.utils.data.Dataset):
    """Records in an array, and their labels in a list."""

    def __init__(self) -> None:
        self.rows = np.random.default_rng(0).normal(size=(RECORDS, 5)).astype(np.float32)
        self.labels = (self.rows.sum(axis=1) > 0).astype(int).tolist()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.rows[index], self.labels[index]


def the_arrays_of_a_data_set_are_replaced(run: Setting) -> None:
    data = Arrays()
    run = Setting(data=data)
    run.epoch()
    data.rows = data.rows[data.rows[:, 0].argsort()]
    run.epoch()


def the_labels_of_a_data_set_are_replaced(run: Setting) -> None:
    data = Arrays()
    run = Setting(data=data)
    run.epoch()
    data.labels = [0] * RECORDS
    run.epoch()


def batch_normalisation_without_parameters(run: Setting) -> None:
    norm = torch.nn.BatchNorm1d(5, affine=False, track_running_stats=False)  # Opacus's validator lets it pass
    Setting(module=torch.nn.Sequential(norm, torch.nn.Linear(5, 2))).epoch()


def frozen_batch_normalisation(run: Setting) -> None:
    norm = torch.nn.BatchNorm1d(5).requires_grad_(False)
    Setting(module=torch.nn.Sequential(norm, torch.nn.Linear(5, 2))).epoch()


def half_precision(run: Setting) -> None:
    for batch in run.loader:
        run.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(run.model(batch[0]), batch[1])
        loss.backward()
        run.optimizer.step()


def half_precision_with_a_scaler(run: Setting) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for batch in run.loader:
        run.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(run.model(batch[0]), batch[1])
        scaler.scale(loss).backward()
        scaler.unscale_(run.optimizer)
        scaler.step(run.optimizer)
        scaler.update()


def half_precision_that_is_hidden(run: Setting) -> None:
    """The rows are of 16 bits, whatever they are cast to."""
    for batch in run.loader:
        run.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(run.model(batch[0]), batch[1])
        loss.backward()
        for p in run.optimizer.params:
            p.grad_sample = p.grad_sample.float()
        run.optimizer.step()


def a_scaler_leaves_a_step_out(run: Setting) -> None:
    """Because a record's gradient is too large, which is private."""
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for number, batch in enumerate(run.loader):
        run.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(run.model(batch[0]), batch[1])
        scaler.scale(loss * (1e38 if number == 1 else 1.0)).backward()
        scaler.step(run.optimizer)
        scaler.update()


def a_scaler_divides_clipped_sums(run: Setting) -> None:
    run = Setting(mode="ghost")
    scaler = torch.amp.GradScaler("cpu")
    for batch in run.loader:
        run.optimizer.zero_grad()
        run.backward(batch)
        scaler.scale(torch.zeros(1))
        scaler.step(run.optimizer)
        scaler.update()


def augmentations_as_records(run: Setting) -> None:
    for batch in run.loader:
        run.step([part.repeat_interleave(3, dim=0) for part in batch])


def the_memory_manager_is_left(run: Setting) -> None:
    with BatchMemoryManager(data_loader=run.loader, max_physical_batch_size=4, optimizer=run.optimizer) as small:
        for batch, _ in zip(small, range(2), strict=False):
            run.step(batch)
    run.epoch()


def a_step_is_tried_again(run: Setting) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    for batch in run.loader:
        run.optimizer.zero_grad()
        run.backward(batch)
        with pytest.raises(KeyboardInterrupt), run.inner.register_step_pre_hook(interrupted):
            run.optimizer.step()
        run.optimizer.step()


def a_noise_schedule(run: Setting) -> None:
    schedule = StepNoise(run.optimizer, step_size=1, gamma=0.5)
    for _ in range(2):
        run.epoch()
        schedule.step()


# --- weights and seeds ---


def weights_are_written_through_data(run: Setting) -> None:
    for number, batch in enumerate(run.loader):
        run.step(batch)
        if number == 1:
            for p in run.optimizer.params:
                p.data.copy_(torch.full_like(p, float(batch[0].mean())))


def weights_are_written_between_forward_and_step(run: Setting) -> None:
    for batch in run.loader:
        run.optimizer.zero_grad()
        run.backward(batch)
        run.optimizer.params[0].data.add_(batch[0].mean())
        run.optimizer.step()


def weights_of_another_model_are_loaded(run: Setting) -> None:
    run.epoch()
    run.model._module.load_state_dict({name: value + 1.0 for name, value in run.model._module.state_dict().items()})
    run.epoch()


def an_empty_step_covers_what_was_written(run: Setting) -> None:
    own = torch.optim.SGD(run.model.parameters(), lr=0.1)
    for number, batch in enumerate(run.loader):
        run.step(batch)
        if number == 1:
            run.optimizer.params[0].data.add_(1.0)
            for p in run.optimizer.params:
                p.grad = torch.zeros_like(p)
            own.step()


def weights_are_written_after_the_last_step(run: Setting) -> None:
    run.epoch()
    for p in run.optimizer.params:
        p.data.copy_(torch.full_like(p, float(run.loader.dataset.tensors[0].mean())))
    run.ledger.close()


def weights_are_written_before_an_open_ledger_is_certified(run: Setting) -> None:
    run.epoch()
    run.optimizer.params[0].data.add_(1.0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the run was warned: ")
        pc.certify(run.ledger, delta=1e-5)


def weights_are_written_by_a_hook_of_the_inner_step(run: Setting) -> None:
    def write(optimizer: Any, *_: Any) -> None:
        for p in run.optimizer.params:
            p.data.add_(float(run.loader.dataset.tensors[0].mean()))

    run.inner.register_step_post_hook(write)
    run.epoch()


def weights_are_written_by_a_hook_of_all_optimizers(run: Setting) -> None:
    def write(optimizer: Any, *_: Any) -> None:
        for p in private.optimizer.params:
            p.data.add_(float(private.loader.dataset.tensors[0].mean()))

    hook = register_optimizer_step_post_hook(write)
    try:
        private = Setting()  # after it: what the hook writes is there before anybody looks
        private.epoch()
    finally:
        hook.remove()


def a_frozen_layer_is_written_through_data(run: Setting) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(5, 5), torch.nn.Linear(5, 2))
    module[0].requires_grad_(False)
    run = Setting(module=module)
    run.epoch()
    module[0].weight.data.add_(float(run.loader.dataset.tensors[0].mean()))
    run.ledger.close()


def a_buffer_is_written_through_data(run: Setting) -> None:
    Setting(module=Means(quietly=True)).epoch()


def a_buffer_is_written_between_steps(run: Setting) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(5, 2))
    module.register_buffer("mean", torch.zeros(5))
    run = Setting(module=module)
    run.epoch()
    module.mean.copy_(run.loader.dataset.tensors[0].mean(dim=0))
    run.epoch()


def a_seed_at_the_top(run: Setting) -> None:
    torch.manual_seed(7)
    run.epoch()


def a_negative_seed(run: Setting) -> None:
    torch.manual_seed(-1)
    run.epoch()


def momenta_are_written(run: Setting) -> None:
    run = Setting(momentum=0.9)
    for batch in run.loader:
        run.step(batch)
        for state in run.inner.state.values():
            state["momentum_buffer"].data.add_(float(run.loader.dataset.tensors[0].mean()))


def gradients_of_records_are_centred_through_data(run: Setting) -> None:
    for batch in run.loader:
        run.optimizer.zero_grad()
        run.backward(batch)
        for p in run.optimizer.params:
            p.grad_sample.data.sub_(p.grad_sample.mean(dim=0))
        run.optimizer.step()


def gradients_of_records_are_exchanged_by_numpy(run: Setting) -> None:
    for batch in run.loader:
        run.optimizer.zero_grad()
        run.backward(batch)
        rows = run.optimizer.params[0].grad_sample.numpy()
        rows[:] = rows[::-1].copy()
        run.optimizer.step()


def sums_are_edited_through_data(run: Setting) -> None:
    with BatchMemoryManager(data_loader=run.loader, max_physical_batch_size=4, optimizer=run.optimizer) as small:
        for batch in small:
            run.step(batch)
            for p in run.optimizer.params:
                if p.summed_grad is not None:
                    p.summed_grad.data.mul_(1.2)


def noisy_gradients_are_overwritten_through_data(run: Setting) -> None:
    for batch in run.loader:
        run.optimizer.zero_grad()
        run.backward(batch)
        if run.optimizer.pre_step():
            for p in run.optimizer.params:
                p.grad.data.copy_(p.summed_grad / BATCH)
            run.inner.step()


def gradients_at_weights_that_follow_the_batch(run: Setting) -> None:
    """Sharpness-aware minimisation: what is put back before the step has been used, without noise."""
    for batch in run.loader:
        run.optimizer.zero_grad()
        run.backward(batch)
        own = [p.detach().clone() for p in run.optimizer.params]
        for p in run.optimizer.params:
            p.data.add_(0.05 * p.grad_sample.sum(dim=0))
        run.optimizer.zero_grad()
        run.backward(batch)
        for p, value in zip(run.optimizer.params, own, strict=True):
            p.data.copy_(value)
        run.optimizer.step()


def the_loader_gets_another_data_set(run: Setting) -> None:
    run.epoch()
    object.__setattr__(run.loader, "dataset", TensorDataset(*(each.flip(0) for each in run.loader.dataset.tensors)))
    run.epoch()


def a_buffer_joins_later(run: Setting) -> None:
    run.epoch()
    run.model._module.register_buffer("centre", run.loader.dataset.tensors[0].mean(dim=0))
    run.epoch()


# --- code in the place of Opacus's, and what it does not look at ---


def no_clipping_in_opacus_itself(run: Setting) -> None:
    def unclipped(optimizer: Any) -> None:
        for p in optimizer.params:
            p.summed_grad = p.grad_sample.sum(dim=0)

    with Spied(DPOptimizer, "clip_and_accumulate", unclipped):
        run.epoch()


def no_noise_in_opacus_itself(run: Setting) -> None:
    with Spied(DPOptimizer, "add_noise", lambda optimizer: None):
        Setting().epoch()


def no_noise_in_torch(run: Setting) -> None:
    with Spied(torch, "normal", lambda mean, std, size, **_: torch.zeros(size)):
        run.epoch()


def less_noise_in_torch(run: Setting) -> None:
    normal = torch.normal
    run = Setting(module=torch.nn.Linear(5, 60), data=MANY)
    with Spied(torch, "normal", lambda mean, std, **rest: normal(mean=mean, std=std / 2, **rest)):
        run.epoch()


def noise_that_was_drawn_before(run: Setting) -> None:
    kept: dict[Any, Any] = {}
    normal = torch.normal

    def again(mean: Any, std: Any, size: Any, **rest: Any) -> Any:
        return kept.setdefault(size, normal(mean=mean, std=std, size=size, generator=torch.Generator().manual_seed(2**40)))

    with Spied(torch, "normal", again):
        run.epoch()


def ghost_clipping_by_other_factors(run: Setting) -> None:
    run = Setting(mode="ghost")
    run.model.get_clipping_coef = lambda: torch.ones_like(run.model.get_norm_sample())
    run.epoch()


class Borrowed(torch.nn.Module):
    """A layer's weight is used once more, where no hook sees it, as the output of a language model may use its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = torch.nn.Linear(5, 5), torch.nn.Linear(5, 2)

    def forward(self, x: Any) -> Any:
        return self.head(torch.tanh(torch.nn.functional.linear(torch.tanh(self.first(x)), self.first.weight)))


def ghost_clipping_of_a_borrowed_weight(run: Setting) -> None:
    Setting(mode="ghost", module=Borrowed()).epoch()


def ghost_clipping_with_hooks_of_parameters(run: Setting) -> None:
    run = Setting(mode="ghost")
    for p in run.optimizer.params:
        p.register_hook(lambda grad: 1.9 * grad)
    run.epoch()


def ghost_clipping_with_hooks_after_it(run: Setting) -> None:
    run = Setting(mode="ghost")
    for p in run.optimizer.params:
        p.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(1.9))
    run.epoch()


class Recomputed(torch.nn.Module):
    """The second backward pass is of other dropout than the first, whose norms clip it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = torch.nn.Linear(5, 8), torch.nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        dropped = torch.utils.checkpoint.checkpoint(
            torch.nn.functional.dropout, self.first(x), use_reentrant=False, preserve_rng_state=False
        )
        return self.head(dropped)


def ghost_clipping_of_another_dropout(run: Setting) -> None:
    Setting(mode="ghost", module=Recomputed()).epoch()


def sums_that_begin_with_something(run: Setting) -> None:
    for batch in run.loader:
        run.optimizer.zero_grad()
        run.backward(batch)
        for p in run.optimizer.params:
            p.summed_grad = torch.full_like(p, 0.1)
        run.optimizer.step()


def expanded_gradients_of_records_are_centred(run: Setting) -> None:
    run = Setting(mode="ew", module=torch.nn.Linear(5, 2))
    for batch in run.loader:
        run.optimizer.zero_grad()
        run.backward(batch)
        for p in run.optimizer.params:
            p.grad_sample = p.grad_sample - p.grad_sample.mean(dim=0)
        run.optimizer.step()


def a_clip_norm_from_private_norms_by_a_schedule(run: Setting) -> None:
    norm = [1.0]
    schedule = LambdaGradClip(run.optimizer, scheduler_function=lambda _: norm[0])
    for batch in run.loader:
        run.step(batch)
        norm[0] = float(run.optimizer.params[0].grad_sample.flatten(1).norm(dim=1).mean())
        schedule.step()


class Unnoised(torch.optim.SGD):
    """Goes along the sums that have no noise."""

    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                p.data -= 0.1 * p.summed_grad / BATCH


def an_optimizer_of_ones_own(run: Setting) -> None:
    with Spied(torch.optim, "SGD", Unnoised):
        run = Setting()
    run.epoch()


class Kept(torch.nn.Module):
    """The mean of records goes with the module, under one name or another."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.head, self.name, self.mean = torch.nn.Linear(5, 2), name, torch.zeros(5)
        if name:
            self.register_buffer(name, torch.zeros(5))

    def forward(self, x: Any) -> Any:
        self.mean = x.detach().sum(dim=0) / BATCH
        if self.name:
            setattr(self, self.name, self.mean)
        return self.head(x)

    def alone(self, x: Any) -> Any:
        """No forward pass of the module."""
        return Kept.forward(self, x)


class KeptBeside(Kept):
    def get_extra_state(self) -> Any:
        return self.mean

    def set_extra_state(self, state: Any) -> None:
        self.mean = state


def running_means_called_a_count(run: Setting) -> None:
    Setting(module=Kept("num_batches_tracked")).epoch()


def running_means_beside_the_buffers(run: Setting) -> None:
    Setting(module=KeptBeside("")).epoch()


def running_means_of_a_module_that_evaluates(run: Setting) -> None:
    run = Setting(module=Kept("mean_of_records"))
    run.model.eval()
    run.model._module.head.train()
    run.epoch()


def running_means_without_a_forward_pass(run: Setting) -> None:
    run = Setting(module=Kept("mean_of_records"))
    for batch in run.loader:
        run.optimizer.zero_grad()
        run.criterion(run.model._module.alone(batch[0]), batch[1]).backward()
        run.optimizer.step()


class Scaled(torch.nn.Module):
    """A layer of one's own, with an argument beside its input, of which functorch is told nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((2, 5), 0.1))

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        return scale * x @ self.weight.T


class Scaling(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = Scaled()

    def forward(self, x: Any) -> Any:
        return self.layer(x, scale=3.0)


class Bags(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.EmbeddingBag(4, 2, mode="sum")

    def forward(self, x: Any) -> Any:
        return self.words(x.flatten(), torch.arange(len(x)) * x.shape[1])


class Wound(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Conv1d(1, 2, 3, padding=1, padding_mode="circular")

    def forward(self, x: Any) -> Any:
        return self.layer(x[:, None]).mean(dim=-1)


class Frequent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(4, 2, scale_grad_by_freq=True)

    def forward(self, x: Any) -> Any:
        return self.words(x).sum(dim=1)


WORDS = TensorDataset(torch.zeros(RECORDS, 9, dtype=torch.long), torch.zeros(RECORDS, dtype=torch.long))
ENDS = TensorDataset(torch.tensor([9.0, 0, 0, 0, 9]).repeat(RECORDS, 1), torch.zeros(RECORDS, dtype=torch.long))
EQUAL = TensorDataset(torch.ones(RECORDS, 5), torch.zeros(RECORDS, dtype=torch.long))


def ghost_clipping_of_a_layer_with_arguments(run: Setting) -> None:
    Setting(mode="ghost", module=Scaling(), data=EQUAL).epoch()


def ghost_clipping_of_words_that_occur_twice(run: Setting) -> None:
    Setting(mode="ghost", module=Bags(), data=WORDS).epoch()


def ghost_clipping_of_a_convolution_that_is_wound(run: Setting) -> None:
    Setting(mode="ghost", module=Wound(), data=ENDS, max_grad_norm=0.01).epoch()


def ghost_clipping_of_gradients_by_frequency(run: Setting) -> None:
    Setting(mode="ghost", module=Frequent(), data=WORDS).epoch()


def ghost_clipping_by_the_norms_of_an_earlier_batch(run: Setting) -> None:
    """A forward pass that has no backward pass keeps Opacus from taking new ones, and all batches are of one size."""
    run = Setting(mode="ghost", module=Wound(), loading={"batch_size": RECORDS})
    for _ in range(2):
        for batch in run.loader:
            run.model(batch[0])
            run.step(batch)


def the_module_is_pickled_with_gradients_of_records(run: Setting) -> None:
    run.epoch()
    torch.save(run.model, io.BytesIO())


def parameters_are_pickled_with_their_sums(run: Setting) -> None:
    run.epoch()
    torch.save(dict(run.model.named_parameters()), io.BytesIO())


STEPS = "every optimizer step must be one whole batch of the loader"
MOVED = "^parameters: must not change between a batch's forward pass and its private step"
WRITTEN = "^parameters: were written by hand between private steps"
HOOKED = "^optimizer: has hooks around its own steps"
CHANGED = "^dataset: must not change its records or their order"
LESS = "^criterion: ghost clipping has taken too small a norm"
PICKLED = "^parameters: were pickled with the gradients of private records"
COPIED = "^dataset: has one record in several places"
ACCUMULATED = "^Poisson sampling is not compatible with grad accumulation"  # Opacus's own
SAYS = {
    inner_step_at_the_end: MOVED,
    inner_step_in_place_of_the_private_one: MOVED,
    own_optimizer_after_the_private_step: MOVED,
    own_optimizer_of_one_layer: MOVED,
    step_is_the_inner_one: MOVED,
    noise_is_taken_away_after_it_was_drawn: "^grad: must stay what noise was added to",
    a_hook_of_torch_takes_noise_away: MOVED,
    no_noise: "^add_noise: must stay what it was",
    no_clipping: "^optimizer.clip_and_accumulate: must stay Opacus's own",
    sums_are_edited_between_pieces: "^summed_grad: must stay",
    a_parameter_joins_later: "^(Unexpected grad_sample type|Per sample gradient not found)",
    a_parameter_leaves: ACCUMULATED,
    a_frozen_layer_is_thawed: f"{MOVED}|^Unexpected grad_sample type",
    batches_are_chosen_by_starting_anew: "^data_loader: a batch was drawn and given up",
    two_iterators_at_once: "^data_loader: a batch was drawn and given up",
    an_epoch_is_given_up_for_its_batch: "^data_loader: a batch was drawn and given up",
    a_step_is_left_out: "^(data_loader: the batch drawn last was not used|the last batch, .* was not used)",
    a_collate_function_leaves_records_out: f"^optimizer: the records of this step are not those of the batch drawn: {STEPS}",
    the_sampler_draws_at_another_rate: r"^(sample_rate = 0.9: must stay 0.25|mechanism = .*rate=0.9\): is not in the plan)",
    a_sampler_of_the_same_class_takes_its_place: "^batch_sampler: must be the one of make_private",
    a_loader_of_ones_own_draws_as_many: f"^optimizer: no batch was drawn for this step: {STEPS}",
    two_losses_of_one_batch: ACCUMULATED,
    pieces_that_are_never_completed: "^(data_loader: the batch drawn last was not used|the last batch, .* was not used)",
    more_epochs_than_planned: "^mechanism = .*: the plan 40 ×",
    the_data_set_is_sorted_in_between: CHANGED,
    the_data_set_becomes_another: CHANGED,
    the_data_set_grows: "^dataset: must not change its length",
    the_hooks_are_removed: "^Per sample gradient is not initialized",
    the_accountant_is_replaced: "^accountant: must stay the one of make_private",
    another_step_hook: "^step_hook: must stay the accountant's",
    less_noise: r"^mechanism = .*noise_multiplier=1.0\), rate=0.25\): is not in the plan",
    no_noise_at_all: "^noise_multiplier = 0.0: must be",
    noise_of_a_seed: "^noise_generator: its noise can be repeated",
    a_seed_in_every_step: "^(optimizer: its noise would be made of bits that were used|data_loader: its coins are those of an)",
    division_by_the_size_of_the_batch: "^expected_batch_size = .*: must stay 15",
    division_where_the_batch_is_large: "^loss_reduction = 'sum': must stay 'mean'",
    a_clip_norm_within_a_batch: "^max_grad_norm = .*: must not change within a step",
    the_ledger_is_closed_before_the_end: "^the ledger is closed",
    another_thread_steps: "^optimizer: must step in one thread",
    a_fork_goes_on_with_what_was_paid: "^in another process",
    a_second_engine_for_the_same_module: "^optimizer: its state, or the module's, comes from at least",
    a_rate_that_follows_the_training_loss: "^metrics: a learning rate that follows them is a release",
    running_means: r"^module: its training changes what no noise is added to \(mean\)",
    records_that_occur_twice: COPIED,
    a_data_set_twice: COPIED,
    ghost_clipping_of_a_layer_used_twice: "^Parameter tying is not supported with Ghost Clipping",
    ghost_clipping_of_tied_weights: "^Parameter tying is not supported with Ghost Clipping",
    the_same_seed_around_each_step: "^optimizer: its noise would be made of bits that were used before",
    a_state_that_is_set_back_after_each_step: "^data_loader: its coins are those of an earlier batch, or of noise",
    coins_of_a_seed: "^data_loader: the coins of its generator can be tossed again",
    the_sampler_gets_a_generator: "^data_loader: the coins of its generator can be tossed again",
    gradients_of_records_are_centred: "^grad_sample: was changed between backward",
    gradients_of_records_are_replaced: "^grad_sample: was changed between backward",
    a_clip_norm_from_private_norms: "^max_grad_norm: was changed between steps",
    clipping_that_adapts: "^optimizer = AdaClipDPOptimizer, which divides by the size of the batch",
    a_subset_gets_other_indices: CHANGED,
    the_arrays_of_a_data_set_are_replaced: CHANGED,
    the_labels_of_a_data_set_are_replaced: CHANGED,
    batch_normalisation_without_parameters: r"^module: batch normalisation \(0\) scales each record by the others",
    frozen_batch_normalisation: r"^module: batch normalisation \(0\) scales each record by the others",
    half_precision: "^gradients: must be in single or double precision",
    half_precision_with_a_scaler: "^gradients: must be in single or double precision",
    half_precision_that_is_hidden: "^grad_sample: was changed between backward",
    a_scaler_leaves_a_step_out: "^(data_loader: the batch drawn last was not used|the last batch, .* was not used)",
    a_scaler_divides_clipped_sums: "^gradients: must stay what the criterion's backward",
    augmentations_as_records: f"^optimizer: the records of this step are not those of the batch drawn: {STEPS}",
    the_memory_manager_is_left: "^data_loader: a batch was drawn and given up",
    a_step_is_tried_again: "^Gradients haven't been cleared since the last optimizer step",
    momenta_are_written: "^optimizer: its state, such as momenta, is none that its steps have left",
    gradients_of_records_are_centred_through_data: "^grad_sample: was changed between backward",
    gradients_of_records_are_exchanged_by_numpy: "^grad_sample: was changed between backward",
    sums_are_edited_through_data: "^summed_grad: must stay",
    noisy_gradients_are_overwritten_through_data: MOVED,
    gradients_at_weights_that_follow_the_batch: WRITTEN,
    the_loader_gets_another_data_set: CHANGED,
    a_buffer_joins_later: r"^module: its training changes what no noise is added to \(centre\)",
    weights_are_written_through_data: WRITTEN,
    weights_are_written_between_forward_and_step: WRITTEN,
    weights_of_another_model_are_loaded: WRITTEN,
    an_empty_step_covers_what_was_written: WRITTEN,
    weights_are_written_after_the_last_step: WRITTEN,
    weights_are_written_before_an_open_ledger_is_certified: WRITTEN,
    weights_are_written_by_a_hook_of_the_inner_step: HOOKED,
    weights_are_written_by_a_hook_of_all_optimizers: HOOKED,
    a_frozen_layer_is_written_through_data: r"^module: its training changes what no noise is added to \(0.weight\)",
    a_buffer_is_written_through_data: r"^module: its training changes what no noise is added to \(mean\)",
    a_buffer_is_written_between_steps: r"^module: its training changes what no noise is added to \(mean\)",
    a_seed_at_the_top: "^torch.manual_seed: noise and batches are of torch's own generator",
    a_negative_seed: "^torch.manual_seed: noise and batches are of torch's own generator",
    no_clipping_in_opacus_itself: "^DPOptimizer.clip_and_accumulate: must stay Opacus's own",
    no_noise_in_opacus_itself: "^DPOptimizer.add_noise: must stay Opacus's own",
    no_noise_in_torch: "^optimizer: the noise is too small",
    less_noise_in_torch: "^optimizer: the noise is too small",
    noise_that_was_drawn_before: "^optimizer: the noise was not drawn from its generator",
    ghost_clipping_by_other_factors: "^GradSampleModuleFastGradientClipping.get_clipping_coef: must stay Opacus's own",
    ghost_clipping_of_a_borrowed_weight: "^first.weight: is used outside of its own module's forward pass",
    ghost_clipping_with_hooks_of_parameters: "^0.weight: has hooks of its gradient",
    ghost_clipping_with_hooks_after_it: "^0.weight: has hooks of its gradient",
    ghost_clipping_of_another_dropout: "^criterion: random bits were drawn in its backward",
    sums_that_begin_with_something: "^summed_grad: must stay",
    expanded_gradients_of_records_are_centred: "^grad_sample: was changed between backward",
    a_clip_norm_from_private_norms_by_a_schedule: "^max_grad_norm: was changed between steps",
    an_optimizer_of_ones_own: "^optimizer: its step is code of its own",
    running_means_called_a_count: r"^module: its training changes what no noise is added to \(num_batches_tracked\)",
    running_means_beside_the_buffers: r"^module: its training changes what no noise is added to \(_extra_state\)",
    running_means_of_a_module_that_evaluates: r"^module: its training changes what no noise is added to \(mean_of_records\)",
    running_means_without_a_forward_pass: r"^module: its training changes what no noise is added to \(mean_of_records\)",
    ghost_clipping_of_a_layer_with_arguments: LESS,
    ghost_clipping_of_words_that_occur_twice: LESS,
    ghost_clipping_of_a_convolution_that_is_wound: LESS,
    ghost_clipping_of_gradients_by_frequency: "^words: scale_grad_by_freq=True divides by how often",
    ghost_clipping_by_the_norms_of_an_earlier_batch: "^criterion: ghost clipping has not taken the norms",
    the_module_is_pickled_with_gradients_of_records: PICKLED,
    parameters_are_pickled_with_their_sums: PICKLED,
    a_noise_schedule: r"^mechanism = .*noise_multiplier=1.0\), rate=0.25\): is not in the plan",
}
WAYS = [value for name, value in list(globals().items()) if getattr(value, "__annotations__", {}).get("run") == "Setting"]
OF_OPACUS_COINS = {  # where a ledger draws, generators of torch matter no more
    a_seed_at_the_top,
    a_negative_seed,
    noise_of_a_seed,
    a_seed_in_every_step,
    the_same_seed_around_each_step,
    a_state_that_is_set_back_after_each_step,
    coins_of_a_seed,
    the_sampler_gets_a_generator,
    no_noise_in_torch,
    less_noise_in_torch,
    noise_that_was_drawn_before,
}


@pytest.mark.parametrize("draws", [False, True], ids=["opacus draws", "the ledger draws"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_no_way_is_silent(way: Any, draws: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours, or Opacus's own, says what is wrong, and not something else."""
    monkeypatch.setattr(Setting, "draws", draws)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            way(run := Setting())
            warned = said = [str(each.message) for each in told if issubclass(each.category, pc.PrivcalcWarning)]
        except (ValueError, NotImplementedError) as error:
            warned, said = [], [str(error)]
    if draws and way in OF_OPACUS_COINS:
        assert said == []
    else:
        assert said
        assert [text for text in said if not re.match(SAYS[way], text)] == []
    if warned and run.ledger.spent.entries:  # else the run was another
        (entry,) = of_given([line.decode() for line in run.ledger.journal.memory])["ledgers"]
        assert entry["warnings"] == list(dict.fromkeys(warned))


# --- and what is right, or no harm ---


def tuned_by_hand(run: Setting) -> None:
    for batch in run.loader:
        run.step(batch)
        for group in run.optimizer.param_groups:
            group["lr"] *= 0.9


def a_public_schedule_of_clip_norms(run: Setting) -> None:
    schedule = StepGradClip(run.optimizer, step_size=1, gamma=0.9)
    for _ in range(2):
        run.epoch()
        schedule.step()


def scaled_losses(run: Setting) -> None:
    scaler = torch.amp.GradScaler("cpu")
    for batch in run.loader:
        run.optimizer.zero_grad()
        scaler.scale(torch.nn.functional.cross_entropy(run.model(batch[0]), batch[1])).backward()
        scaler.step(run.optimizer)
        scaler.update()


def unscaled_losses(run: Setting) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for batch in run.loader:
        run.optimizer.zero_grad()
        scaler.scale(torch.nn.functional.cross_entropy(run.model(batch[0]), batch[1])).backward()
        scaler.unscale_(run.optimizer)
        torch.nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
        scaler.step(run.optimizer)
        scaler.update()


class HalfExtractor(torch.nn.Module):
    """Features in 16 bits, from weights that are public and stay; what is trained has 32."""

    def __init__(self) -> None:
        super().__init__()
        self.features = torch.nn.Linear(5, 6).requires_grad_(False)
        self.head = torch.nn.Linear(6, 2)

    def forward(self, x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = torch.tanh(self.features(x))
        return self.head(found.float())


def frozen_features_in_half_precision(run: Setting) -> None:
    Setting(module=HalfExtractor()).epoch()


def frozen_features_and_a_head_left_out_of_autocast(run: Setting) -> None:
    run = Setting(module=HalfExtractor())
    for batch in run.loader:
        run.optimizer.zero_grad()
        with torch.autocast("cpu", enabled=False):
            run.backward(batch)
        run.optimizer.step()


def gradients_clipped_once_more(run: Setting) -> None:
    for batch in run.loader:
        run.optimizer.zero_grad()
        run.backward(batch)
        torch.nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
        run.optimizer.step()


def a_checkpoint_is_gone_back_to(run: Setting) -> None:
    run.epoch()
    best = {name: value.clone() for name, value in run.model.state_dict().items()}
    run.epoch()
    run.model.load_state_dict(best)
    run.epoch()


def momenta_are_gone_back_to(run: Setting) -> None:
    run = Setting(momentum=0.9)
    run.epoch()
    best = copy.deepcopy(run.optimizer.state_dict())
    run.epoch()
    run.optimizer.load_state_dict(best)
    run.epoch()


def saved_when_gradients_are_cleared(run: Setting) -> None:
    """What the adapter itself remembers of records does not go with the module."""
    run.epoch()
    run.optimizer.zero_grad()
    saved = io.BytesIO()
    torch.save(run.model, saved)
    saved.seek(0)
    (first, *_) = torch.load(saved, weights_only=False).parameters()
    assert not any(vars(first)[name] for name in ("privcalc_made", "privcalc_pickled"))


def ghost_clipping_for_some_epochs(run: Setting) -> None:
    run = Setting(mode="ghost", momentum=0.9)
    for _ in range(4):
        run.epoch()


def averages_over_steps(run: Setting) -> None:
    averages = torch.optim.swa_utils.AveragedModel(run.model._module)
    for batch in run.loader:
        run.step(batch)
        averages.update_parameters(run.model._module)
    averages.state_dict()


def a_compiled_module(run: Setting) -> None:
    compiled = torch.compile(run.model, backend="eager")
    for batch in run.loader:
        run.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(compiled(batch[0]), batch[1]).backward()
        run.optimizer.step()


def gradients_by_vmap(run: Setting) -> None:
    Setting(mode="functorch").epoch()


def expanded_weights(run: Setting) -> None:
    Setting(mode="ew", module=torch.nn.Linear(5, 2)).epoch()


def a_clip_norm_for_each_layer(run: Setting) -> None:
    Setting(clipping="per_layer", max_grad_norm=[1.0] * 4).epoch()


def a_frozen_layer(run: Setting) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(5, 4).requires_grad_(False), torch.nn.Linear(4, 2))
    Setting(module=module).epoch()


def batch_normalisation_by_public_statistics(run: Setting) -> None:
    norm = torch.nn.BatchNorm1d(5).requires_grad_(False)
    run = Setting(module=torch.nn.Sequential(norm, torch.nn.Linear(5, 2)))
    norm.eval()
    run.epoch()


def dropout(run: Setting) -> None:
    Setting(module=torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Dropout(), torch.nn.Linear(4, 2))).epoch()


def as_many_parameters_as_records_in_a_batch(run: Setting) -> None:
    Setting(module=torch.nn.Linear(5, 12, bias=False), loading={"batch_size": RECORDS}).epoch()


def averages_are_put_in_and_taken_out(run: Setting) -> None:
    averages = [torch.zeros_like(p) for p in run.optimizer.params]
    for batch in run.loader:
        run.step(batch)
        own = [p.detach().clone() for p in run.optimizer.params]
        for p, average in zip(run.optimizer.params, averages, strict=True):
            average.lerp_(p.detach(), 0.1)
            p.data.copy_(average)
        with torch.no_grad():
            run.model(torch.randn(3, 5))  # public records
        for p, value in zip(run.optimizer.params, own, strict=True):
            p.data.copy_(value)


def a_start_is_loaded_before_the_first_step(run: Setting) -> None:
    torch.nn.init.zeros_(run.optimizer.params[0])
    run.epoch()


def a_last_batch_left_out(run: Setting) -> None:
    Setting(loading={"drop_last": True}).epoch()


RIGHT = [value for name, value in list(globals().items()) if getattr(value, "__annotations__", {}).get("run") == "Setting"]
RIGHT = [way for way in RIGHT if way not in WAYS]


@pytest.mark.parametrize("draws", [False, True], ids=["opacus draws", "the ledger draws"])
@pytest.mark.parametrize("way", RIGHT, ids=lambda way: way.__name__)
def test_no_false_alarm(way: Any, draws: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Setting, "draws", draws)
    with warnings.catch_warnings():
        warnings.simplefilter("error", pc.PrivcalcWarning)
        way(Setting())


def test_a_clip_norm_that_somebody_answers_for_is_not_warned_of() -> None:
    run = Setting(assumptions=pc.Assumptions(clip_norm="released"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", pc.PrivcalcWarning)
        run.epoch()
        run.optimizer.max_grad_norm = 0.5
        run.epoch()


def test_weights_that_somebody_answers_for_are_not_warned_of() -> None:
    run = Setting(assumptions=pc.Assumptions(start="released"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", pc.PrivcalcWarning)
        for batch in run.loader:
            run.step(batch)
            for p in run.optimizer.params:
                p.data.clamp_(-0.1, 0.1)
    (start,) = (e for e in pc.certify(run.ledger, delta=1e-5).document["assumptions"]["needed"] if e["name"] == "start")
    assert (start["value"], start["by"]) == ("released", "caller")


def averaged_augmentations(run: Any) -> None:
    for batch in run.loader:
        run.optimizer.zero_grad()
        run.backward([part.repeat_interleave(3, dim=0) for part in batch])
        for p in run.optimizer.params:
            p.grad_sample = p.grad_sample.reshape(-1, 3, *p.shape).mean(dim=1)
        run.optimizer.step()


def test_means_over_augmentations_go_on_with_a_warning() -> None:
    """Nobody sees that each is of one record; the accountant repeats the warning with its answers."""
    run = Setting()
    with pytest.warns(pc.PrivcalcWarning, match="mean over augmentations of that record does") as told:
        averaged_augmentations(run)
    assert len([each for each in told if each.category is pc.PrivcalcWarning]) == 1
    with pytest.warns(pc.PrivcalcWarning, match="^grad_sample"):
        run.engine.get_epsilon(1e-5)


@pytest.mark.parametrize("physical", [None, 4])
@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_a_ledger_draws_batches_and_noise(mode: str, physical: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is summed is what the ledger drew; its certificate vouches for noise and sampling."""
    drawn: list[list[int]] = []
    batch = pc.Ledger.batch

    def seen(ledger: Any, *args: Any, **kwargs: Any) -> Any:
        found = batch(ledger, *args, **kwargs)
        drawn.append(found.indices.tolist())
        return found

    monkeypatch.setattr(pc.Ledger, "batch", seen)
    monkeypatch.setattr(Setting, "draws", True)
    x = torch.randn(RECORDS, 5)
    run = Setting(mode=mode, data=TensorDataset(x, (x.sum(dim=1) > 0).long(), torch.arange(RECORDS)))
    used: list[int] = []
    with run.ledger:
        for _ in range(10):
            if physical is None:
                for one in run.loader:
                    run.step(one)
                    used += one[2].tolist()
                continue
            with BatchMemoryManager(data_loader=run.loader, max_physical_batch_size=physical, optimizer=run.optimizer) as small:
                for one in small:
                    run.step(one)
                    used += one[2].tolist()
        with pytest.raises(pc.BudgetExceeded, match="draws=True"):
            run.epoch()
    assert used == [index for indices in drawn for index in indices]
    assert run.ledger.spent == run.plan == pc.PoissonSampled(pc.Gaussian(2.0), 0.25) * 40
    document = pc.certify(run.ledger, delta=1e-5).document
    assert (document["noise"], document["declared"]) == ("exact", [])
    (sampling,) = (entry for entry in document["assumptions"]["needed"] if entry["name"] == "sampling")
    assert (sampling["value"], sampling["by"]) == ("poisson", "ledger")


def test_a_ledger_that_draws_is_refused_what_it_cannot_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Setting()
    with pytest.raises(pc.PrivcalcError, match="keeps a ledger already"):
        adapter.keep_ledger(run.optimizer, run.loader, run.ledger, draws=True)
    monkeypatch.setattr(Setting, "draws", True)
    run = Setting()
    run.loader.num_workers = 2
    with pytest.raises(pc.PrivcalcError, match="num_workers = 2: must be 0"):
        adapter.keep_ledger(run.optimizer, run.loader, run.ledger, draws=True)
    run = Setting()
    adapter.exact_noise(run.optimizer, Noise())
    with pytest.raises(pc.PrivcalcError, match="draws the noise already"):
        run.epoch()
    assert len(run.ledger.spent.entries) == 1  # charged when it was drawn, and released never


def test_what_is_right_stays_quiet_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A private module goes on with public records, without Opacus's hooks: warned of, as nobody sees whose they are."""
    run = Setting()
    run.epoch()
    plain = run.model.to_standard_module()
    own = torch.optim.SGD(plain.parameters(), lr=0.1)
    plain.zero_grad()
    run.optimizer.zero_grad(set_to_none=True)
    torch.nn.functional.cross_entropy(plain(torch.randn(9, 5)), torch.zeros(9, dtype=torch.long)).backward()
    with pytest.warns(pc.PrivcalcWarning, match="without noise: ε covers that only"):
        own.step()
