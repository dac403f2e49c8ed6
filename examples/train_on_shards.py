"""Scale out: each process has half of the records.

``torchrun --nproc-per-node 2 -m examples.train_on_shards FOLDER``, in the folder of the clone.

Process 0 has the ledger: it tosses the coins of all records and adds the noise, once, to the sum of all clipped sums.
The others get the noisy sum, and so the same model. All processes trust each other (``proofs/noisy_gd.md``), and each
record must be with exactly one of them. A process that stops alone leaves the others waiting; ``torchrun`` ends them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import privcalc as pc
from learners.frame.plan import make_plan
from learners.gradients.exact import Rows, cut_off
from learners.gradients.softmax import SoftmaxGradient

CLIP, DELTA = 1.0, 1e-5


def of_first(call: Callable[[], Any]) -> Any:
    """What process 0 finds, in every process."""
    found = [call() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found, src=0)
    return found[0]


def train(
    x: torch.Tensor, y: torch.Tensor, ledger: Path | None, *, steps: int = 50, seed: int | None = None
) -> torch.Tensor:
    """DP-SGD of softmax regression on the records of all processes, of two classes; the weights, in every process."""
    rank, world = dist.get_rank(), dist.get_world_size()
    sizes = [0] * world
    dist.all_gather_object(sizes, len(y))
    size, start = sum(sizes), sum(sizes[:rank])  # here the number of records is public
    plan = make_plan(
        lambda z: pc.PoissonSampled(pc.Gaussian(z), 0.1),
        epsilon=1.0, delta=DELTA, noise_multiplier=None, steps=steps, relation=pc.ADD_OR_REMOVE_ONE,
    )  # fmt: skip
    said = pc.Assumptions(normaliser="public", clip_norm="public")
    keep = (
        pc.Ledger(ledger, plan=plan.run, public={"records": size}, seed=seed, assumptions=said) if rank == 0 else None
    )
    weights, rows, batch = torch.zeros((x.shape[1], 2), dtype=torch.float64), Rows.of(x.double()), 0.1 * size
    rate = plan.learning_rate(batch, CLIP, 2)
    for _ in range(plan.steps):
        drawn = keep.batch(plan.step, records=size) if keep else None
        indices = torch.from_numpy(of_first(lambda drawn=drawn: drawn.indices))
        own = indices[(indices >= start) & (indices < start + len(y))] - start
        total = cut_off(SoftmaxGradient(weights).clipped_sum(rows.at(own), y[own], CLIP), CLIP, world)
        total = total.contiguous()  # what is sent is memory, in the same order everywhere
        dist.reduce(total, dst=0)  # of whole numbers of one unit: exact, in any order
        if keep:
            total = keep.gaussian(total, plan.step, clip_norm=CLIP, error=0.0, batch=drawn)
        dist.broadcast(total, src=0)
        weights = weights - rate * (total / batch)
    if keep:
        keep.__exit__(None, None, None)
        certificate = pc.certify(keep, delta=DELTA)
        print(certificate.guarantee)
        if ledger is not None:
            certificate.save(ledger.with_suffix(".cert.json"))  # privcalc verify run.cert.json run.jsonl
    return weights


def main(folder: Path) -> None:
    """Process 0 writes the ledger and the certificate, all of them have the model."""
    generator = torch.Generator().manual_seed(dist.get_rank())  # stands for this process's own files
    x = torch.nn.functional.normalize(torch.randn(2_000, 20, generator=generator), dim=1)
    y = (x[:, 0] + 0.1 * torch.randn(2_000, generator=generator) > 0).long()
    weights = train(x[:1_500], y[:1_500], folder / "run.jsonl")
    torch.save(weights, folder / f"model-{dist.get_rank()}.pt")
    right = (x[1_500:].double() @ weights).argmax(dim=1) == y[1_500:]
    print(f"process {dist.get_rank()}: accuracy {right.double().mean():.3f}")


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo")
    main(Path(sys.argv[1]))
    dist.destroy_process_group()
