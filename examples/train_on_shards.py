"""Scale out: ``torchrun --nproc-per-node 2 examples/train_on_shards.py FOLDER``: each process has half of the records."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from learners import DPSGD
from learners.distributed import Shards


def main(folder: Path, device: str) -> None:
    """Train; process 0 writes the ledger and the certificate, all of them have the model."""
    generator = torch.Generator().manual_seed(dist.get_rank())  # stands for this process's own files
    x = torch.nn.functional.normalize(torch.randn(2_000, 20, generator=generator), dim=1)
    y = (x[:, 0] + 0.1 * torch.randn(2_000, generator=generator) > 0).long().tolist()
    model = DPSGD(
        classes=[0, 1],
        epsilon=1.0,
        delta=1e-5,
        sample_rate=0.1,
        steps=50,
        records=2_000 * dist.get_world_size(),  # a public number
        device=device,
        ledger=folder / "run.jsonl",
    )
    model.fit(x[:1_500], y[:1_500], shards=Shards())
    torch.save(model.weights_, folder / f"model-{dist.get_rank()}.pt")
    print(f"process {dist.get_rank()}: accuracy {model.score(x[1_500:], y[1_500:]):.3f}, {model.certificate_.guarantee}")
    if dist.get_rank() == 0:
        model.certificate_.save(folder / "run.cert.json")  # privcalc verify run.cert.json run.jsonl


if __name__ == "__main__":
    local = int(os.environ["LOCAL_RANK"])
    gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    if gpu:
        torch.cuda.set_device(local)
    dist.init_process_group("nccl" if gpu else "gloo")
    main(Path(sys.argv[1]), f"cuda:{local}" if gpu else "cpu")
    dist.destroy_process_group()
