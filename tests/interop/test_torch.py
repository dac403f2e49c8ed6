"""The loader: a batch in pieces is one release of what the ledger drew; what does not fit is refused before noise."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import warnings
from fractions import Fraction

import numpy as np
import pytest
from cases import quick
from watch import Spy, refused

import privcalc as pc
from privcalc import tables

torch = pytest.importorskip("torch")
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset  # noqa: E402

from privcalc.interop.torch import loader  # noqa: E402

STEP = pc.PoissonSampled(pc.Gaussian(noise_multiplier=1.0), rate=0.5)
ROWS = torch.from_numpy(np.random.default_rng(1).standard_normal((40, 3))).float()
LIKE = torch.zeros(3)
GIVEN = {"like": LIKE, "clip_norm": 2.0, "start": "random", "at_most": 7}


def loaded(plan=STEP * 4, seed=None, step=STEP, dataset=None, **options):
    ledger = pc.Ledger(None, plan=plan, seed=seed)
    data = TensorDataset(ROWS, torch.arange(40)) if dataset is None else dataset
    return (
        ledger,
        Spy(ledger),
        loader(ledger, data, step, **(GIVEN | options)),
    )


def fill(batch):
    for piece in batch:
        piece.add(piece.records[0])
    return batch


@pytest.mark.parametrize("workers", quick([0, 2], 0))  # a worker that dies, below, is quick
def test_pieces_of_a_batch_are_one_release_of_clipped_rows(monkeypatch, workers):
    sums, release = [], pc.Ledger.gaussian

    def seen(self, values, mechanism, *, clip_norm, batch):
        sums.append((values.clone(), batch.indices))
        return release(self, values, mechanism, clip_norm=clip_norm, batch=batch)

    monkeypatch.setattr(pc.Ledger, "gaussian", seen)
    ledger, spy, data = loaded(num_workers=workers)
    for number, batch in enumerate(data, 1):
        found = []
        for piece in batch:
            assert 1 <= len(piece.records[1]) <= 7
            found += piece.records[1].tolist()
            piece.add(piece.records[0])
        noisy = batch.release()
        assert noisy.dtype == torch.float32
        assert ledger.spent == STEP * number
        total, indices = sums[-1]
        assert found == indices.tolist()
        rows = ROWS[found].double()
        clipped = rows * (2.0 / rows.norm(dim=1, keepdim=True)).clamp(max=1.0)
        assert torch.allclose(total, clipped.sum(dim=0), rtol=1e-5, atol=1e-5)
    assert number == 4
    assert spy.drawn.count("coins") == spy.drawn.count("normal") == 4
    refused(spy, "has 0 more of it", lambda ledger=ledger: next(iter(data)))


def test_a_batch_of_nobody_is_released_too():
    step = pc.PoissonSampled(pc.Gaussian(1.0), rate=1e-9)
    _, spy, data = loaded(step * 3, step=step)
    for batch in data:
        assert list(batch) == []
        assert batch.release().shape == (3,)
    assert spy.drawn.count("normal") == 3


def test_full_batches_and_persons():
    whole = pc.Gaussian(3.0)
    ledger, _, data = loaded(whole * 2, step=whole)
    for batch in data:
        assert sum(len(piece.records[0]) for piece in fill_and_keep(batch)) == 40
        batch.release()
    assert ledger.spent == whole * 2
    persons = pc.UserSampled(pc.Gaussian(3.0), 0.5, records=4)
    ledger, _, data = loaded(persons * 2, step=persons, persons=np.arange(40) % 10)
    assert [fill(batch).release().shape for batch in data] == [(3,)] * 2
    assert ledger.terms.unit == "one person"


def fill_and_keep(batch):
    kept = []
    for piece in batch:
        piece.add(piece.records[0])
        kept.append(piece)
    return kept


def test_what_is_no_whole_batch_once_is_refused_before_noise():
    ledger, spy, data = loaded(seed=7)
    batches = iter(data)
    batch = next(batches)
    charged = lambda attempt, match: refused(spy, match, lambda ledger=ledger: attempt())  # noqa: E731
    charged(batch.release, "not all were added")
    pieces = iter(batch)
    first = next(pieces)
    charged(lambda: next(pieces), "was not added")  # skipped
    charged(lambda: first.add(first.records[0][1:]), "one row for each")
    charged(lambda: first.add(first.records[0].sum(dim=0)), "one row for each")
    charged(lambda: first.add(first.records[0].numpy()), "one row for each")
    charged(lambda: first.add(first.records[0] * float("nan")), "must be finite")
    charged(lambda: first.add(first.records[0].double() * 1e300), "must be finite")  # its square is not
    charged(lambda: next(batches), "was not used")  # accumulation over batches
    first.add(first.records[0])
    charged(lambda: first.add(first.records[0]), "each is added once")
    charged(batch.release, "not all were added")
    fill(batch)  # an interruption: the rest
    batch.release()
    charged(batch.release, "each is used once")
    second = next(iter(data))
    charged(lambda: first.add(first.records[0]), "each is added once")  # of the batch before
    charged(lambda: fill(batch).release(), "each is used once")
    fill(second).release()
    assert ledger.spent == STEP * 2


@pytest.mark.parametrize("workers", quick([0, 1], 0))
def test_one_loop_over_a_batch_at_a_time(workers):
    """Workers read for the loop begun last: another would add the records of its next piece in place of its own."""
    _, _, data = loaded(seed=7, num_workers=workers, at_most=4)
    batch = next(iter(data))
    shape = next(iter(batch)).records[0].shape  # a look, and then the loop
    assert shape == (4, 3)
    one, other = iter(batch), iter(batch)
    next(one)
    first = next(other)
    with pytest.raises(pc.PrivcalcError, match="another loop"):
        next(one)
    first.add(first.records[0])
    found = first.records[1].tolist()
    for piece in other:
        piece.add(piece.records[0])
        found += piece.records[1].tolist()
    assert found == batch._batch.indices.tolist()
    batch.release()


def test_a_piece_is_added_once_by_many_threads(monkeypatch):
    """Between the look whether it was added and the addition others wait."""
    norm, both = torch.linalg.vector_norm, threading.Barrier(2)

    def slow(*args, **kwargs):
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(timeout=0.1)  # the other thread gets here, too, unless it waits
        return norm(*args, **kwargs)

    _, _, data = loaded(seed=7, at_most=40)
    batch = next(iter(data))
    piece = next(iter(batch))
    rows, said = piece.records[0], []
    monkeypatch.setattr(torch.linalg, "vector_norm", slow)

    def add():
        try:
            piece.add(rows)
        except pc.PrivcalcError as error:
            said.append(str(error))

    threads = [threading.Thread(target=add) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said) == 1
    assert "each is added once" in said[0]
    assert torch.allclose(
        batch._total, (rows * (2.0 / norm(rows, dim=1, keepdim=True)).clamp(max=1.0)).sum(dim=0).double()
    )


def test_gradients_that_are_written_to_meanwhile_are_added_as_they_were_clipped(monkeypatch):
    norm = torch.linalg.vector_norm
    _, _, data = loaded(seed=7, at_most=40, like=torch.zeros(3, dtype=torch.float64))
    batch = next(iter(data))
    piece = next(iter(batch))
    rows = piece.records[0].double()

    def then_written(*args, **kwargs):
        found = norm(*args, **kwargs)
        rows.fill_(1e9)
        return found

    monkeypatch.setattr(torch.linalg, "vector_norm", then_written)
    piece.add(rows)
    assert rows[0, 0] == 1e9
    assert float(norm(batch._total)) <= 2.0 * len(rows)


def test_pieces_of_another_loader_do_not_count():
    ledger, spy, data = loaded()
    _, _, other = loaded()
    batch = next(iter(data))
    fill(next(iter(other)))
    refused(spy, "not all were added", lambda ledger=ledger: batch.release())
    both = loader(ledger, TensorDataset(ROWS, torch.arange(40)), STEP, like=LIKE, clip_norm=1.0, start="random")
    refused(spy, "was not used", lambda ledger=ledger: next(iter(both)))


class Changing(Dataset):
    def __init__(self):
        self.size = 40

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if self.size == 39:
            raise OSError("the disk")
        return ROWS[index], index


def test_a_data_set_that_changes_or_fails_leaves_a_batch_that_can_be_completed():
    dataset = Changing()
    ledger, spy, data = loaded(dataset=dataset)
    batches = iter(data)
    batch = next(batches)
    pieces = iter(batch)
    first = next(pieces)
    first.add(first.records[0])
    dataset.size = 39
    with pytest.raises(OSError, match="the disk"):
        next(pieces)
    dataset.size = 41
    refused(spy, "change its length", lambda ledger=ledger: fill(batch).release())
    dataset.size = 40
    batch.release()
    dataset.size = 41
    refused(spy, "change its length", lambda ledger=ledger: next(batches))
    assert ledger.spent == STEP.run


class Dying(Dataset):
    """Its worker is killed, once."""

    def __init__(self, mark):
        self.mark = mark

    def __len__(self):
        return 40

    def __getitem__(self, index):
        if torch.utils.data.get_worker_info() is not None and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return ROWS[index], index


def test_a_batch_is_completed_after_its_worker_died(tmp_path):
    """Nothing is released before, and no piece is added twice."""
    ledger, spy, data = loaded(plan=STEP * 2, dataset=Dying(tmp_path / "mark"), num_workers=1)
    batches = iter(data)
    batch = next(batches)
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        fill(batch)
    refused(spy, "not all were added", lambda ledger=ledger: batch.release())
    assert ledger.spent == STEP.run
    found = []
    for piece in batch:
        found += piece.records[1].tolist()
        piece.add(piece.records[0])
    assert found == batch._batch.indices.tolist()
    batch.release()
    fill(next(batches)).release()
    assert ledger.spent == STEP * 2


def test_as_many_entries_as_records_are_no_rows():
    """A sum of 40 records with 40 entries is not taken for one row each."""
    step = pc.Gaussian(1.0)
    rows = torch.eye(40)
    ledger, _, data = loaded(
        plan=step * 1, step=step, dataset=TensorDataset(rows, torch.arange(40)), like=torch.zeros(40)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", pc.PrivcalcWarning)
        (noisy,) = [fill(batch).release() for batch in data]
    assert noisy.shape == (40,)
    assert ledger.spent == step.run


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_gets_no_batch():
    _, _, data = loaded()
    child = os.fork()
    if not child:
        try:
            next(iter(data))
        except pc.PrivcalcError as error:
            os._exit(7 if "another process" in str(error) else 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_run_is_gone_on_with(tmp_path):
    path, dataset = tmp_path / "run.jsonl", TensorDataset(ROWS, torch.arange(40))
    ledger = pc.Ledger(path, plan=STEP * 5)
    batches = iter(loader(ledger, dataset, STEP, like=LIKE, clip_norm=1.0, start="random"))
    for _ in range(2):
        fill(next(batches)).release()
    ledger.pause()
    with pytest.raises(pc.PrivcalcError, match="paused"):
        next(batches)
    with pc.Ledger(path, plan=STEP * 5) as again:
        rest = loader(again, dataset, STEP, like=LIKE, clip_norm=1.0, start="random")
        assert sum(1 for batch in rest if len(fill(batch).release())) == 3
    assert pc.certify(path, delta=1e-5).run == STEP * 5


class Stream(IterableDataset):
    def __iter__(self):
        return iter(())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"dataset": Stream()}, "a length and items"),
        ({"dataset": iter([1])}, "a length and items"),
        ({"dataset": torch.utils.data.DataLoader(TensorDataset(ROWS))}, "of a DataLoader give its dataset"),
        ({"dataset": (ROWS, ROWS)}, r"of tensors give TensorDataset\(\*tensors\)"),
        ({"step": pc.Laplace(1.0)}, "must be Gaussian"),
        ({"step": pc.PoissonSampled(pc.Laplace(1.0), 0.5)}, "must be Gaussian"),
        ({"like": torch.zeros(3, dtype=torch.float16)}, "32 or 64 bits"),
        ({"like": 3}, "32 or 64 bits"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"at_most": 0}, "at_most"),
        ({"num_workers": -1}, "num_workers"),
    ],
)
def test_arguments(wrong, said):
    with pytest.raises(pc.PrivcalcError, match=said):
        loaded(**wrong)
    with pytest.raises(pc.PrivcalcError, match="must be a Ledger"):
        loader(None, TensorDataset(ROWS), STEP, like=LIKE, clip_norm=1.0, start="random")


def test_several_processes_are_refused(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(pc.PrivcalcError, match="one process"):
        loaded()


def test_the_clip_norm_holds_of_what_is_added():
    """In exact arithmetic: the norm of each clipped row, whatever its size."""
    for scale in (1e-3, 1.0, 1e6, 1e150):
        _, _, data = loaded(
            pc.Gaussian(1.0) * 1, step=pc.Gaussian(1.0), like=torch.zeros(3, dtype=torch.float64), at_most=1
        )
        batch = next(iter(data))
        for piece in batch:
            before = batch._total.clone()
            batch._total.zero_()
            piece.add(piece.records[0].double() * scale)
            assert sum(Fraction(float(x)) ** 2 for x in batch._total) <= 4
            batch._total += before


def test_another_clip_norm_holds_from_the_next_batch_on(monkeypatch):
    """A batch whose pieces are clipped to one norm, and whose noise is scaled by another, has another ε."""
    sums, release = [], pc.Ledger.gaussian

    def seen(self, values, mechanism, *, clip_norm, batch):
        sums.append((values[0].clone(), clip_norm, batch.indices))
        return release(self, values, mechanism, clip_norm=clip_norm, batch=batch)

    monkeypatch.setattr(pc.Ledger, "gaussian", seen)
    _, _, data = loaded()
    for batch in data:
        before = data.clip_norm
        data.clip_norm = 0.9 * before
        for piece in batch:
            piece.add(1000 * piece.records[0])
        data.clip_norm = 0.5 * before
        batch.release()
    assert [norm for _, norm, _ in sums] == [2.0, 1.0, 0.5, 0.25]
    for total, norm, indices in sums:
        rows = ROWS[indices].double()
        assert torch.allclose(total, (norm * rows / rows.norm(dim=1, keepdim=True)).sum(dim=0), rtol=1e-5, atol=1e-9)


def test_copies_of_a_record_are_refused():
    """A record that is drawn in three places moves a sum by 3C: ε is that of a third of the noise."""
    data = TensorDataset(ROWS)
    whole = range(40)
    copied = [
        Subset(data, [0, 1, 1]),
        Subset(data, np.array([3, 4, -37])),
        Subset(data, torch.tensor([5, 5])),
        ConcatDataset([data, data]),
        ConcatDataset([Subset(data, [0, 1]), Subset(Subset(data, [7, 1]), [1])]),
    ]
    for dataset in copied:
        with pytest.raises(pc.PrivcalcError, match="dataset: has one record in several places"):
            loaded(dataset=dataset)
    for dataset in (
        Subset(data, whole),
        ConcatDataset([Subset(data, whole[:9]), Subset(data, whole[9:])]),
        ConcatDataset([data]),
    ):
        loaded(dataset=dataset)
    twice, step = ConcatDataset([data, data]), pc.UserSampled(pc.Gaussian(3.0), 0.5, records=2)
    batches = loaded(step * 2, step=step, dataset=twice, persons=np.tile(np.arange(40), 2))[2]
    assert [fill(batch).release().shape for batch in batches] == [(3,)] * 2
    with pytest.raises(pc.PrivcalcError, match="dataset: has one record in several places"):
        loaded(step * 2, step=step, dataset=twice, persons=np.arange(80))


def test_a_record_twice_is_refused_by_structure_and_nothing_is_charged():
    data = TensorDataset(ROWS, torch.arange(40))
    inner = Subset(data, range(0, 40, 2))
    for twice in (
        Subset(data, [0, 1, 0]),
        Subset(data, [0, -40]),
        ConcatDataset([data, data]),
        ConcatDataset([inner, data]),
        ConcatDataset([data, inner]),
        ConcatDataset([inner, Subset(inner, [3])]),
        Subset(Subset(data, [4, 5, 6]), [0, 0]),
    ):
        with pytest.raises(pc.PrivcalcError, match="dataset: has one record in several places"):
            loaded(dataset=twice)
    # Others may have equal records: they are not looked at.
    for once in (
        ConcatDataset([inner, Subset(data, range(1, 40, 2))]),
        ConcatDataset([data, TensorDataset(ROWS.clone())]),
        ConcatDataset([TensorDataset(ROWS[:20]), TensorDataset(ROWS[20:])]),
        ConcatDataset([TensorDataset(ROWS[::2]), TensorDataset(ROWS[1::2])]),
    ):
        _, _, batches = loaded(dataset=once)
        next(iter(batches))


def test_a_data_set_that_is_sorted_or_replaced_in_between_is_refused():
    for change in ("in place", "another"):
        data = TensorDataset(ROWS.clone(), torch.arange(40))
        ledger, spy, batches = loaded(dataset=data)
        iterator = iter(batches)
        batch = fill(next(iterator))
        if change == "in place":
            data.tensors[0][:] = data.tensors[0].flip(0)
        else:
            data.tensors = tuple(tensor.flip(0) for tensor in data.tensors)
        refused(spy, "change its records or their order", lambda ledger=ledger, batch=batch: batch.release())
        assert ledger.spent == STEP.run  # what was charged stays charged


def test_numbers_below_the_normal_ones_are_no_zeros():
    """Where a program has them made 0, δ of five (1, 1e-310) was 0, and every bound was without its smallest part."""
    plain, run = pc.Gaussian(1.0), pc.ApproxDP(1.0, 1e-310) * 5
    assert run.delta(epsilon=30.0).upper >= 5e-310
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor has no such mode")
    try:
        for question in (
            lambda: run.delta(epsilon=30.0),
            lambda: plain.epsilon(delta=1e-5),
            lambda: plain.beta(alpha=0.1),
            lambda: plain.rdp([2.0]),
            plain.zcdp,
            lambda: pc.certify(plain, delta=1e-5),
            lambda: pc.noise_multiplier(epsilon=1.0, delta=1e-5, steps=3),
            lambda: tables.discretize(plain, 0.05),
        ):
            with pytest.raises(pc.PrivcalcError, match="set_flush_denormal"):
                question()
    finally:
        torch.set_flush_denormal(False)
    assert run.delta(epsilon=30.0).upper >= 5e-310


def test_tensors_that_were_scaled_by_themselves_are_warned_of():
    plain = torch.from_numpy(np.random.default_rng(1).gamma(2.0, 1.0, (40, 3))).float()
    scaled = (plain - plain.mean(dim=0)) / plain.std(dim=0)
    with pytest.warns(pc.PrivcalcWarning, match="^dataset: .*StandardScaler"):
        loaded(dataset=TensorDataset(scaled))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded(dataset=TensorDataset(plain))


class Interrupted(TorchFunctionMode):
    """Ctrl-C as an operation of torch ends, as it can come under ``torch.set_default_device``."""

    def __init__(self, at):
        super().__init__()
        self.left = at

    def __torch_function__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return found


def test_an_interrupted_addition_adds_no_piece_twice():
    """The sum of one record, clipped to norm 1, was 1.999 long: it was interrupted, and its cell run again."""
    step, rows, interrupted = pc.Gaussian(noise_multiplier=2.0), torch.full((1, 3), 50.0), 0
    for at in range(1, 60):
        _, _, batches = loaded(step * 1, step=step, dataset=TensorDataset(rows), clip_norm=1.0)
        batch = next(iter(batches))
        piece = next(iter(batch))
        with contextlib.suppress(KeyboardInterrupt), Interrupted(at):
            piece.add(rows)
            break
        interrupted += 1
        fill(batch)
        assert float(batch._total.norm()) <= 1.0
    assert interrupted > 5


class SlowAgain(Dataset):
    """Its second reading waits."""

    def __init__(self):
        self.reads, self.reading, self.go_on = 0, threading.Event(), threading.Event()

    def __len__(self):
        return 1

    def __getitem__(self, index):
        self.reads += 1
        if self.reads == 2:
            self.reading.set()
            assert self.go_on.wait(30)
        return torch.tensor([1.0, 0.0, 0.0]), index


def test_a_piece_that_another_loop_was_still_reading_is_added_once():
    data, step, refusals = SlowAgain(), pc.Gaussian(noise_multiplier=2.0), []
    _, _, batches = loaded(step * 1, step=step, dataset=data, clip_norm=1.0)
    batch = next(iter(batches))

    def other():
        try:
            fill(batch)
        except pc.PrivcalcError as error:
            refusals.append(str(error))

    one, thread = next(iter(batch)), threading.Thread(target=other)
    thread.start()
    assert data.reading.wait(30)
    one.add(one.records[0])
    data.go_on.set()
    thread.join()
    assert len(refusals) == 1
    assert "each is added once" in refusals[0]
    assert float(batch._total.norm()) <= 1.0


class Lazy(Dataset):
    """Reads its file when it is first asked; keeps the last record, and has room to decode one in."""

    def __init__(self):
        self.rows, self.room, self.last = None, torch.zeros(3), None

    def __len__(self):
        return 40

    def __getitem__(self, index):
        if self.rows is None:
            self.rows = ROWS.clone()
        self.last = self.rows[index]
        self.room.copy_(self.last)
        return self.room.clone(), index


def test_a_data_set_may_read_its_records_late_and_not_change_them_then():
    data = Lazy()
    _, spy, batches = loaded(dataset=data)
    for number, batch in enumerate(batches):
        fill(batch)
        if number == 2:
            data.rows.mul_(2.0)
            refused(spy, "change its records or their order", batch.release)
            break
        batch.release()
    assert number == 2
