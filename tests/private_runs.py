"""Runs under Opacus that keep a ledger, for tests that have both."""

from __future__ import annotations

from typing import Any

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

import privcalc as pc
from privcalc.interop import opacus as adapter

RECORDS, BATCH = 60, 15
MANY = TensorDataset(torch.randn(RECORDS, 5, generator=torch.Generator().manual_seed(1)), torch.zeros(RECORDS, dtype=torch.long))
adapter.register()


class Setting:
    """An honest run that is about to begin, with a ledger."""

    draws = False

    def __init__(
        self,
        module: Any = None,
        data: Any = None,
        momentum: float = 0.0,
        mode: str = "hooks",
        loading: Any = None,
        assumptions: Any = None,
        **options: Any,
    ) -> None:
        torch.manual_seed(2**40)
        x = torch.randn(RECORDS, 5)
        data = TensorDataset(x, (x.sum(dim=1) > 0).long()) if data is None else data
        module = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)) if module is None else module
        self.inner = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.5, momentum=momentum)
        self.engine = PrivacyEngine(accountant="privcalc")
        options = {"max_grad_norm": 1.0, "noise_multiplier": 2.0, "grad_sample_mode": mode} | options
        if mode == "ghost":
            options["criterion"] = torch.nn.CrossEntropyLoss()
        self.model, self.optimizer, *criterion, self.loader = self.engine.make_private(
            module=module,
            optimizer=self.inner,
            data_loader=DataLoader(data, **({"batch_size": BATCH} | (loading or {}))),
            **options,
        )
        self.criterion = criterion[0] if criterion else torch.nn.functional.cross_entropy
        self.plan = adapter.step_of(self.optimizer, self.loader, draws=self.draws) * 40
        self.ledger = pc.Ledger(None, plan=self.plan, public={"records": len(data)}, assumptions=assumptions)
        adapter.keep_ledger(self.optimizer, self.loader, self.ledger, draws=self.draws)

    def backward(self, batch: Any) -> None:
        self.criterion(self.model(batch[0]), batch[1]).backward()

    def step(self, batch: Any) -> None:
        self.optimizer.zero_grad()
        self.backward(batch)
        self.optimizer.step()

    def epoch(self) -> None:
        for batch in self.loader:
            self.step(batch)

    def raw(self, batch: Any) -> None:
        """Gradients without clipping and noise, in ``grad``."""
        self.optimizer.zero_grad()
        self.backward(batch)
        for p in self.optimizer.params:
            p.grad = p.grad_sample.mean(dim=0)


class Spied:
    """Something of Opacus's is another for one run."""

    def __init__(self, owner: Any, name: str, other: Any) -> None:
        self._owner, self._name, self._other, self._own = owner, name, other, getattr(owner, name)

    def __enter__(self) -> None:
        setattr(self._owner, self._name, self._other)

    def __exit__(self, *_: Any) -> None:
        setattr(self._owner, self._name, self._own)
