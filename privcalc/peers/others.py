"""Peers with a mesh that may err, a central limit, or Rényi divergences: prv-accountant, Opacus, autodp."""

from __future__ import annotations

import importlib
import math
from typing import Any

from privcalc.errors import PrivcalcError
from privcalc.mechanisms.exponential import ExponentialMechanism
from privcalc.peers.question import (
    EPS_ERROR,
    Answer,
    Ask,
    Piece,
    Question,
    best_order,
    one_kind,
    pieces,
    relation_of,
    steps,
)


def prv_accountant() -> Ask:
    """prv-accountant's upper bound with eps_error = 0.01 and delta_error = δ/1000."""
    prv = importlib.import_module("prv_accountant")
    dpsgd = importlib.import_module("prv_accountant.dpsgd")

    def variable(part: Piece) -> Any:
        if part.kind == "laplace":
            return prv.LaplaceMechanism(1 / part.numbers[0])
        if part.kind == "pure":
            return prv.PureDPMechanism(part.numbers[0])
        noise, rate = part.numbers
        return prv.GaussianMechanism(noise) if rate == 1 else prv.PoissonSubsampledGaussianMechanism(rate, noise)

    def ask(question: Question) -> Answer:
        if question.asks == "sigma":
            _, rate, count = one_kind(question)
            return Answer(float(dpsgd.find_noise_multiplier(rate, count, question.target, question.delta)))
        parts = pieces(question, "gaussian", "laplace", "pure")
        counts = [part.uses for part in parts]
        precision = {"eps_error": EPS_ERROR * question.coarser, "delta_error": question.delta / 1000}
        accountant = prv.PRVAccountant([variable(part) for part in parts], max_self_compositions=counts, **precision)
        low, estimate, high = accountant.compute_epsilon(question.delta, counts)
        return Answer(float(high), relation_of(question, parts), f"lower {low:.6g}, estimate {estimate:.6g}")

    return ask


def opacus(name: str) -> Ask:
    """One of Opacus's accountants."""
    accountants = importlib.import_module("opacus.accountants")
    utils = importlib.import_module("opacus.accountants.utils")

    def ask(question: Question) -> Answer:
        accountant = getattr(accountants, name)()
        if question.asks == "sigma":
            _, rate, count = one_kind(question)
            goal = {"target_epsilon": question.target, "target_delta": question.delta}
            return Answer(
                float(
                    utils.get_noise_multiplier(**goal, sample_rate=rate, steps=count, accountant=accountant.mechanism())
                )
            )
        parts = pieces(question, "gaussian")
        accountant.history, relation = steps(question), relation_of(question, parts)
        if name == "GaussianAccountant" and len(parts) > 1:
            raise PrivcalcError("it is for one kind of step only")
        if name == "RDPAccountant":
            epsilon, order = accountant.get_privacy_spent(delta=question.delta)
            return Answer(float(epsilon), relation, best_order(order, accountant.DEFAULT_ALPHAS))
        options = {"eps_error": EPS_ERROR * question.coarser} if name == "PRVAccountant" else {}
        return Answer(float(accountant.get_epsilon(question.delta, **options)), relation)

    return ask


def autodp() -> Ask:
    """Return how to ask autodp's Rényi accountant."""
    zoo = importlib.import_module("autodp.mechanism_zoo")
    transformers = importlib.import_module("autodp.transformer_zoo")

    def mechanism(own: Any, part: Piece) -> Any:
        if part.kind == "laplace":
            return zoo.LaplaceMechanism(part.numbers[0])
        if isinstance(own, ExponentialMechanism):
            return zoo.ExponentialMechanism(part.numbers[0])
        if part.kind == "pure":
            return zoo.RandresponseMechanism(1 / (1 + math.exp(-part.numbers[0])))
        noise, rate = part.numbers
        if rate == 1:
            return zoo.GaussianMechanism(noise)
        sample = transformers.AmplificationBySampling(PoissonSampling=True)
        return sample(zoo.GaussianMechanism(noise), rate, improved_bound_flag=True)

    def ask(question: Question) -> Answer:
        parts = pieces(question, "gaussian", "laplace", "pure")
        one = [mechanism(own, part) for (own, _), part in zip(question.run.entries, parts, strict=True)]
        whole = transformers.Composition()(one, [part.uses for part in parts])
        return Answer(float(whole.get_approxDP(question.delta)), relation_of(question, parts))

    return ask
