"""The gradient of each record by itself: as autograd finds it of that record alone, whatever else is in the batch."""

from __future__ import annotations

import copy
from types import MethodType

import pytest

import privcalc as pc

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402

from privcalc.interop.torch import RecordGradients, loader  # noqa: E402


class Tied(nn.Module):
    """Words in and out by one matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(6, 4), nn.Linear(4, 6, bias=False)
        self.out.weight = self.words.weight

    def forward(self, x):
        return self.out(self.words(x).mean(dim=1))


class Frozen(nn.Module):
    """A part that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.body(x).tanh())


class Remembers(nn.Module):
    """A memory bank: the mean of what was seen, in a buffer and in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.bank = nn.Linear(4, 3), 0.0
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        self.seen = self.seen + x.mean(dim=0)
        self.bank = self.bank + x.mean(dim=0)
        return self.layer(x - self.seen - self.bank)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRU(4, 3, batch_first=True), nn.Linear(3, 3)

    def forward(self, x):
        return self.head(self.cell(x)[0][:, -1])


def normal(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def convolution():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(16, 3))


def instances():
    return nn.Sequential(nn.Conv1d(1, 2, 2), nn.InstanceNorm1d(2), nn.Flatten(), nn.Linear(6, 3))


MODULES = {
    "linear": (lambda: nn.Linear(4, 3), normal(5, 4)),
    "convolution": (convolution, normal(5, 1, 4, 4)),
    "instances": (instances, normal(5, 1, 4)),
    "running means that stay": (lambda: nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)).eval(), normal(5, 4)),
    "tied": (Tied, torch.arange(10).reshape(5, 2) % 6),
    "frozen": (Frozen, normal(5, 4)),
    "recurrent": (Recurrent, normal(5, 6, 4)),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", MODULES)
def test_each_is_as_if_it_were_alone(name):
    make, x = MODULES[name]
    torch.manual_seed(2)
    module, y = (
        make().double(),
        torch.tensor([0, 1, 2, 1, 0]),
    )  # rounding of norms of few numbers shows in single precision
    x = x.double() if x.is_floating_point() else x
    before = {key: value.clone() for key, value in module.state_dict().items()}
    gradients = RecordGradients(module, cross_entropy)
    rows = gradients(x, y)
    trained = [p for p in module.parameters() if p.requires_grad]
    assert rows.shape == (5, gradients.like.numel()) == (5, sum(p.numel() for p in trained))
    for i in range(5):
        alone = torch.autograd.grad(cross_entropy(module(x[i : i + 1]), y[i : i + 1]), trained)
        assert torch.allclose(rows[i], torch.cat([g.flatten() for g in alone]), rtol=1e-9, atol=1e-12)
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    assert gradients(x[:0], y[:0]).shape == (0, gradients.like.numel())


def test_what_a_module_remembers_is_forgotten():
    """Else the second batch's rows would have the first batch's records in them."""
    module = Remembers()
    gradients, (a, b) = RecordGradients(module, cross_entropy), (normal(5, 4), normal(5, 4) + 3)
    y = torch.zeros(5, dtype=torch.long)
    first = gradients(b, y)
    gradients(a, y)
    assert torch.equal(gradients(b, y), first)
    assert isinstance(module.bank, float)
    assert module.seen.count_nonzero() == 0
    assert torch.allclose(gradients(torch.cat([a[:2], b[:1]]), y[:3])[2], first[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("layer", "training"),
    [
        (nn.BatchNorm1d(4), True),
        (nn.BatchNorm1d(4, track_running_stats=False), False),
        (nn.InstanceNorm1d(4, track_running_stats=True), True),
    ],
)
def test_norms_of_batches_are_refused(layer, training):
    with pytest.raises(pc.PrivcalcError, match=r"1 normalises by the batch.*GroupNorm"):
        RecordGradients(nn.Sequential(nn.Linear(4, 4), layer.train(training), nn.Linear(4, 3)), cross_entropy)


def test_a_norm_that_is_switched_on_later_is_refused():
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).eval()
    gradients = RecordGradients(module, cross_entropy)
    module.train()
    with pytest.raises(pc.PrivcalcError, match="normalises by the batch"):
        gradients(normal(5, 4), torch.zeros(5, dtype=torch.long))


class Branches(nn.Module):
    """By what is in the record."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x) if float(x.sum()) > 0 else self.layer(-2 * x)


class Writes(nn.Module):
    """A record into a buffer that all records share."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        return self.layer(x - self.seen.add_(x.mean(dim=0)))


@pytest.mark.parametrize("make", [Writes, Branches])
def test_what_many_cannot_be_asked_at_once_is_asked_one_by_one(make):
    module, x, y = make(), normal(5, 4), torch.tensor([0, 1, 2, 1, 0])
    rows = RecordGradients(module, cross_entropy)(x, y)
    for i in range(5):
        fresh = copy.deepcopy(module)
        alone = torch.autograd.grad(cross_entropy(fresh(x[i : i + 1]), y[i : i + 1]), list(fresh.parameters()))
        assert torch.allclose(rows[i], torch.cat([g.flatten() for g in alone]), rtol=1e-4, atol=1e-6)


class Averages(nn.Module):
    """A frozen parameter that follows the mean of what was seen, as codebooks do, and a trained one written to."""

    def __init__(self, where) -> None:
        super().__init__()
        self.layer, self.book, self.where = nn.Linear(4, 3), nn.Parameter(torch.zeros(4), requires_grad=False), where
        self.body = nn.Linear(4, 4).requires_grad_(False)

    def forward(self, x):
        scores = self.layer(self.body(x).tanh() - self.book)
        if self.where == "book":
            with torch.no_grad():
                self.book.mul_(0.5).add_(x.mean(dim=0))
        elif self.where == "trained":
            self.layer.bias.data.add_(1.0)
        return scores


@pytest.mark.parametrize("where", ["book", "trained"])
def test_what_a_module_writes_into_its_parameters_is_forgotten(where):
    """Else a row would have the records before it."""
    module, x, y = Averages(where), normal(5, 4), torch.tensor([0, 1, 2, 1, 0])
    before = copy.deepcopy(module.state_dict())
    gradients = RecordGradients(module, cross_entropy)
    rows = gradients(x, y)
    for i in reversed(range(5)):
        assert torch.allclose(rows[i], gradients(x[i : i + 1], y[i : i + 1])[0], rtol=1e-4, atol=1e-6)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: RecordGradients(cross_entropy, cross_entropy), "must be a torch.nn.Module"),
        (lambda: RecordGradients(nn.Linear(4, 3).requires_grad_(False), cross_entropy), "that require a gradient"),
        (
            lambda: RecordGradients(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3).double()), cross_entropy),
            "one precision",
        ),
        (lambda: RecordGradients(nn.Linear(4, 3), cross_entropy, inputs=0), "inputs = 0"),
        (
            lambda: RecordGradients(nn.Linear(4, 3), cross_entropy)(normal(5, 4), torch.zeros(4, dtype=torch.long)),
            "a row for each",
        ),
        (lambda: RecordGradients(nn.Linear(4, 3), cross_entropy)(torch.tensor(1.0)), "a row for each"),
        (lambda: RecordGradients(nn.Linear(4, 3), cross_entropy).put(torch.zeros(3)), r"shape \(15,\), not \(3,\)"),
    ],
)
def test_arguments(make, match):
    with pytest.raises(pc.PrivcalcError, match=match):
        make()


def test_other_parameters_than_at_first():
    module = Frozen()
    gradients = RecordGradients(module, cross_entropy)
    module.body.requires_grad_(True)
    with pytest.raises(pc.PrivcalcError, match="15 trainable numbers it began with, not 35"):
        gradients.put(gradients.like)
    with pytest.raises(pc.PrivcalcError, match="15 trainable numbers it began with, not 35"):
        gradients(normal(5, 4), torch.zeros(5, dtype=torch.long))


def test_a_loop_with_any_optimizer():
    """What is put is what an optimizer sees, parameter by parameter."""
    torch.manual_seed(3)
    module, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), normal(200, 4)
    data = torch.utils.data.TensorDataset(x, (x.sum(dim=1) > 0).long())
    step, gradients = pc.Gaussian(noise_multiplier=4.0), RecordGradients(module, cross_entropy)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
    with pc.Ledger(None, plan=step * 30, public={"records": 200}) as ledger:
        for batch in loader(ledger, data, step, like=gradients, clip_norm=1.0, start="random", at_most=64):
            mean = batch.release() / 200
            gradients.put(mean)
            assert torch.equal(torch.cat([p.grad.flatten() for p in module.parameters()]), mean)
            optimizer.step()
    assert float((module(x).argmax(dim=1) == data.tensors[1]).double().mean()) > 0.9
    assert pc.certify(ledger, delta=1e-5).run == step * 30


class Queue(nn.Module):
    """A loss with a memory: of the outputs before."""

    def __init__(self) -> None:
        super().__init__()
        self.before = 0.0

    def forward(self, output, y):
        self.before = self.before + output.sum().detach()
        return cross_entropy(output, y) * self.before


def test_what_a_loss_remembers_is_forgotten_if_it_is_a_module():
    loss, x, y = Queue(), normal(5, 4), torch.zeros(5, dtype=torch.long)
    gradients = RecordGradients(nn.Linear(4, 3), loss)
    assert torch.equal(gradients(x, y), gradients(x, y))
    assert loss.before == 0.0


class Subclass(RecordGradients):
    """Which might take them from anywhere."""


def owned(like, seed=5, x=None, module=None, **options):
    """What a loader releases, and the ledger."""
    x = normal(40, 4) if x is None else x
    data, step = torch.utils.data.TensorDataset(x, torch.arange(40) % 3), pc.PoissonSampled(pc.Gaussian(2.0), 0.5)
    ledger = pc.Ledger(None, plan=step * 3, seed=seed)
    return loader(ledger, data, step, **({"like": like, "clip_norm": 0.5, "start": "random", "at_most": 7} | options))


def test_the_loader_adds_what_pieces_would():
    """The same sums, to the bit, with the same coins and noise."""
    gradients = RecordGradients(nn.Linear(4, 3), cross_entropy)
    ours, theirs = owned(gradients), owned(gradients.like)
    for one, other in zip(ours, theirs, strict=True):
        for piece in other:
            piece.add(gradients(*piece.records))
        assert torch.equal(one.release(), other.release())
        with pytest.raises(pc.PrivcalcError, match="each is used once"):
            one.release()


def test_the_loader_alone_adds_to_a_batch_of_its_own():
    gradients, failing = RecordGradients(nn.Linear(4, 3), cross_entropy), normal(40, 4)
    batch = next(iter(owned(gradients)))
    with pytest.raises(pc.PrivcalcError, match=r"release\(\) adds all pieces; for rows of your own give its .like"):
        list(batch)
    assert batch.release().shape == gradients.like.shape
    with pytest.raises(pc.PrivcalcError, match="like: must be a RecordGradients"):
        owned(Subclass(nn.Linear(4, 3), cross_entropy))
    failing[:] = float("nan")
    with pytest.raises(pc.PrivcalcError, match="must be finite"):
        next(iter(owned(gradients, x=failing))).release()


def test_a_batch_whose_reading_failed_is_completed():
    """With each piece once."""
    gradients, failures = RecordGradients(nn.Linear(4, 3), cross_entropy), iter([False, True])

    def collated(items):
        if next(failures, False):
            raise OSError("the disk is not there")
        return torch.utils.data.default_collate(items)

    batch, whole = (next(iter(owned(gradients, collate_fn=each))) for each in (collated, None))
    with pytest.raises(OSError, match="the disk"):
        batch.release()
    assert torch.equal(batch.release(), whole.release())


class Closed(nn.Module):
    """Its centre is moved by a lambda, which ``deepcopy`` does not copy, nor whose it is."""

    def __init__(self, write) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("centre", torch.zeros(4))
        self.moved = lambda x: write(self, x.detach())

    def forward(self, x):
        self.moved(x)
        return self.layer(x - 1.0)

    def loss(self, output, y):
        self.centre = self.centre + output.detach().mean()
        return cross_entropy(output * (1 + self.centre.sum()), y)


def in_place(net, x):
    net.centre.mul_(0.9).add_(0.1 * x.mean(dim=0))


def another(net, x):
    net.centre = 0.9 * net.centre + 0.1 * x.mean(dim=0)


def one_more(net, x):
    net.register_buffer("last", x)


def in_a_weight(net, x):
    with torch.no_grad():
        net.layer.weight.add_(0.0)


def once(net, x):
    if not net.centre.count_nonzero():
        net.centre.copy_(x.mean(dim=0))


class Moved(nn.Module):
    """A loss that keeps the mean of outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.centred = lambda output: output - self.mean.mul_(0.9).add_(0.1 * output.detach().mean(dim=0))

    def forward(self, output, y):
        return cross_entropy(self.centred(output), y)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: (Closed(in_place), cross_entropy), "module.centre"),
        (lambda: (Closed(another), cross_entropy), "module.centre"),
        (lambda: (Closed(one_more), cross_entropy), "module.last"),
        (lambda: (Closed(in_a_weight), cross_entropy), "module.layer.weight"),
        (lambda: (Closed(once), cross_entropy), "module.centre"),
        (lambda: (nn.Linear(4, 3), Moved()), "loss.mean"),
        (lambda: (nn.Linear(4, 3), Moved().forward), "loss.mean"),
    ],
)
def test_what_is_remembered_by_what_is_not_copied_is_refused_from_then_on(make, name):
    """One record moved the sum by 9.9 clip norms; also where it is written once, and asked again."""
    batch = next(iter(owned(RecordGradients(*make()))))
    for _ in range(2):
        with pytest.raises(pc.PrivcalcError, match=f"{name} was written to by something that is not copied"):
            batch.release()


def test_a_loss_that_is_a_method_of_the_model_is_copied_with_it():
    """What it keeps is forgotten, and the model's own is as it was: one record moved the sum by 5.5 clip norms."""
    module, x, y = Closed(lambda net, x: None), normal(5, 4), torch.tensor([0, 1, 2, 1, 0])
    gradients = RecordGradients(module, module.loss)
    rows = gradients(x, y)
    for i in reversed(range(5)):
        fresh = copy.deepcopy(module)
        alone = torch.autograd.grad(fresh.loss(fresh(x[i : i + 1]), y[i : i + 1]), list(fresh.parameters()))
        assert torch.allclose(rows[i], torch.cat([g.flatten() for g in alone]), rtol=1e-4, atol=1e-6)
    assert not module.centre.count_nonzero()


def test_a_forward_that_is_not_copied_is_refused():
    """Before anything is charged; also where it is put there later. A method that is put there is copied."""
    module = nn.Sequential(nn.Linear(4, 3))
    gradients, plain = RecordGradients(module, cross_entropy), module[0].forward
    x, y = normal(5, 4), torch.tensor([0, 1, 2, 1, 0])
    rows = gradients(x, y)
    module[0].forward = MethodType(lambda self, x: nn.functional.linear(x, self.weight, self.bias), module[0])
    assert torch.allclose(gradients(x, y), rows)
    module[0].forward = lambda x: plain(x - 1.0)
    with pytest.raises(pc.PrivcalcError, match="module: 0 has a function as forward"):
        gradients(x, y)
    with pytest.raises(pc.PrivcalcError, match="module: 0 has a function as forward"):
        RecordGradients(module, cross_entropy)
