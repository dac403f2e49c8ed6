"""The peers' packages, and how each is asked.

Of loss distributions on a grid: dp-accounting (and its Rényi accountant), opake, riskcal, gdpnum, PLD_accounting. With
a mesh that may err, a central limit, or Rényi divergences: prv-accountant, Opacus, autodp.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

from privcalc.errors import PrivcalcError
from privcalc.mechanisms.exponential import ExponentialMechanism
from privcalc.mechanisms.guarantees import PureDP
from privcalc.peers.question import (
    EPS_ERROR,
    SPACING,
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


def dp_accounting(module: str, name: str) -> Ask:
    """One of its accountants; what it has no event for goes to its loss distributions as ε-DP."""
    make = getattr(importlib.import_module(module), name)
    package = importlib.import_module("dp_accounting")
    adapter = importlib.import_module("privcalc.interop.dp_accounting")
    losses = importlib.import_module("dp_accounting.pld.privacy_loss_distribution")
    common = importlib.import_module("dp_accounting.pld.common")

    def pure(question: Question) -> float:
        """A group of k is k times as far apart (σ/k, scale/k, kε); in a sampled batch it is a mixture, unknown here."""
        grid, k = {"value_discretization_interval": SPACING * question.coarser}, question.group_size
        whole = losses.identity(**grid)
        for kind, numbers, count in pieces(question, "gaussian", "laplace", "pure"):
            if kind == "gaussian":
                noise, rate = numbers
                if k > 1 and rate < 1:
                    raise PrivcalcError("it knows no group in a sampled batch beside ε-DP")
                part = losses.from_gaussian_mechanism(noise / k, sampling_prob=rate, **grid)
            elif kind == "laplace":
                part = losses.from_laplace_mechanism(numbers[0] / k, **grid)
            else:
                part = losses.from_privacy_parameters(common.DifferentialPrivacyParameters(numbers[0] * k, 0.0), **grid)
            whole = whole.compose(part.self_compose(count))
        return float(whole.get_epsilon_for_delta(question.delta))

    def group_event(question: Question) -> Any:
        """A group's members in the batch are a mixture (Ganesh 2024), for which it has an event."""
        kinds, records = importlib.import_module("dp_accounting.dp_event"), question.group_size
        parts = []
        for (noise, rate), count in ((numbers, count) for _, numbers, count in pieces(question, "gaussian")):
            there = range(records + 1) if rate < 1 else (records,)
            masses = [math.comb(records, j) * rate**j * (1 - rate) ** (records - j) for j in there]
            event = kinds.MixtureOfGaussiansDpEvent(noise, [float(j) for j in there], masses)
            parts.append(package.SelfComposedDpEvent(event, count))
        return package.ComposedDpEvent(parts)

    def ask(question: Question) -> Answer:
        relation = question.relation
        pairs = importlib.import_module("privcalc.interop.dp_accounting.accountant").RELATIONS
        theirs = next(one for one, ours in pairs.items() if ours is relation)
        options: dict[str, Any] = {"neighboring_relation": theirs}
        if name == "PLDAccountant":
            options["value_discretization_interval"] = SPACING * question.coarser
        if question.asks == "sigma":
            _, rate, count = one_kind(question)

            def event(noise: float) -> Any:
                one = package.PoissonSampledDpEvent(rate, package.GaussianDpEvent(noise))
                return package.SelfComposedDpEvent(one, count)

            return Answer(
                package.calibrate_dp_mechanism(lambda: make(**options), event, question.target, question.delta)
            )
        if name == "PLDAccountant" and any(
            isinstance(m, PureDP | ExponentialMechanism) for m, _ in question.run.entries
        ):
            return Answer(pure(question), relation, "asked as ε-DP")
        accountant = make(**options)
        tree = group_event(question) if question.group_size > 1 else adapter.to_event(question.run, relation=relation)
        refused = accountant._maybe_compose(tree, 1, False)
        if refused is not None:
            raise PrivcalcError(refused.error_message)
        accountant.compose(tree)
        if name != "RdpAccountant":
            return Answer(float(accountant.get_epsilon(question.delta)), relation)
        epsilon, order = accountant.get_epsilon_and_optimal_order(question.delta)
        return Answer(float(epsilon), relation, best_order(order, accountant._orders))

    return ask


def opake() -> Ask:
    """Return how to ask opake's loss distributions. It remembers them: a question is quick the second time."""
    dpsgd = importlib.import_module("opake.dpsgd.accounting")
    accounting = importlib.import_module("opake.accounting")

    def step(noise: float, rate: float) -> Any:
        return dpsgd.gaussian(noise) if rate == 1 else dpsgd.poisson(dpsgd.gaussian(noise), sample_rate=rate)

    def ask(question: Question) -> Answer:
        if question.asks == "sigma":
            _, rate, count = one_kind(question)
            budget = accounting.epsilon_budget(question.target, question.delta)
            return Answer(
                float(accounting.calibrate(budget, lambda noise: step(noise, rate) * count, 0.1, 1000.0).param)
            )
        parts = pieces(question, "gaussian", "pure")
        whole = accounting.identity()
        for kind, numbers, count in parts:
            one = step(*numbers) if kind == "gaussian" else accounting.eps_delta(numbers[0], 0.0)
            whole = whole | one * count
        relation = relation_of(question, parts)
        if question.asks == "advantage":
            return Answer(float(whole.advantage()), relation)
        if question.asks == "power":
            return Answer(1 - float(whole.beta_at(0.01)), relation)
        return Answer(float(whole.epsilon_at(question.delta, discretization=SPACING * question.coarser)), relation)

    return ask


def connect_the_dots(module: str) -> Ask:
    """riskcal's and gdpnum's accountants: dp-accounting's loss distribution, and what they read off it."""
    make = importlib.import_module(module).CTDAccountant

    def ask(question: Question) -> Answer:
        accountant = make()
        parts = pieces(question, "gaussian")
        accountant.history, relation = steps(question), relation_of(question, parts)
        if question.asks == "advantage":
            return Answer(float(accountant.get_advantage()), relation)
        if question.asks == "power":
            return Answer(1 - float(accountant.get_beta(alpha=0.01)), relation)
        return Answer(float(accountant.get_epsilon(delta=question.delta)), relation)

    return ask


def pld_accounting() -> Ask:
    """PLD_accounting's loss distributions, sampling included, with dp-accounting's spacing.

    Its own default is for other schemes.
    """
    package = importlib.import_module("PLD_accounting")
    both = (package.Direction.REMOVE, package.Direction.ADD)

    def ask(question: Question) -> Answer:
        parts = pieces(question, "gaussian", "laplace")
        uses = sum(part.uses for part in parts)
        options = {"value_discretization": SPACING * question.coarser, "tail_truncation": question.delta / 1000 / uses}
        whole = None
        for kind, numbers, count in parts:
            make = package.gaussian_distribution if kind == "gaussian" else package.laplace_distribution
            base, rate = make(scale=numbers[0], **options), numbers[1] if kind == "gaussian" else 1.0
            sides = [
                package.subsample_pld_realization(base_pld=base, sampling_prob=rate, direction=side) for side in both
            ]
            if len(parts) > 1:  # only equal spacings compose
                same = {
                    "loss_discretization": SPACING * question.coarser,
                    "tail_truncation": options["tail_truncation"],
                }
                kept = {"bound_type": package.BoundType.DOMINATES, **same}
                sides = [package.rediscretize_dist_by_bound(dist=side, **kept) for side in sides]
            one = package.compose_full_pld(
                remove_dist=sides[0], add_dist=sides[1], bound_type=package.BoundType.DOMINATES
            )
            part = one.self_compose(count)
            whole = part if whole is None else whole.compose(part)
        if whole is None:
            raise PrivcalcError("an empty run")
        return Answer(float(whole.get_epsilon_for_delta(question.delta)), relation_of(question, parts))

    return ask


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
