"""Peers with loss distributions on a grid.

These are dp-accounting (and its Rényi accountant), opake, riskcal, gdpnum, PLD_accounting.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

from privcalc.errors import PrivcalcError
from privcalc.mechanisms.exponential import ExponentialMechanism
from privcalc.mechanisms.guarantees import PureDP
from privcalc.peers.question import SPACING, Answer, Ask, Question, best_order, one_kind, pieces, relation_of, steps


def dp_accounting(module: str, name: str) -> Ask:
    """One of its accountants; what it has no event for goes to its loss distributions as ε-DP."""
    make = getattr(importlib.import_module(module), name)
    package = importlib.import_module("dp_accounting")
    adapter = importlib.import_module("privcalc.interop.dp_accounting")
    losses = importlib.import_module("dp_accounting.pld.privacy_loss_distribution")
    common = importlib.import_module("dp_accounting.pld.common")

    def pure(question: Question) -> float:
        grid = {"value_discretization_interval": SPACING * question.coarser}
        whole = losses.identity(**grid)
        for kind, numbers, count in pieces(question, "gaussian", "laplace", "pure"):
            if kind == "gaussian":
                part = losses.from_gaussian_mechanism(numbers[0], sampling_prob=numbers[1], **grid)
            elif kind == "laplace":
                part = losses.from_laplace_mechanism(numbers[0], **grid)
            else:
                part = losses.from_privacy_parameters(common.DifferentialPrivacyParameters(numbers[0], 0.0), **grid)
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
