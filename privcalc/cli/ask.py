"""Questions: of DP-SGD, answered with what was assumed; and of one run to all accountants.

``privcalc epsilon|delta|risk|noise|steps|curve`` and ``privcalc compare``.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

import privcalc as pc
from privcalc import errors
from privcalc.certificate.story import described
from privcalc.cli.options import (
    DELTA,
    EPSILON,
    NOISE,
    RELATION,
    STEPS,
    Answered,
    Batches,
    Command,
    Numbers,
    Source,
    finite,
    sampler_options,
    together,
)
from privcalc.enclosure import Enclosure, downward, upward
from privcalc.peers.compare import compare
from privcalc.relation import Relation
from privcalc.run import Run
from privcalc.serial import read_json


@click.command("compare", cls=Command)
@click.argument("described_run", metavar="RUN.json", type=Source(Path))
@DELTA
def compare_(described_run: Path, delta: float) -> Answered:
    """Every installed accountant beside ours on one run, described as for certify, and why they differ."""
    terms = described(read_json(described_run))
    logging.disable(logging.WARNING)
    try:
        rows = compare(terms.bound, delta=delta, relation=terms.relation)
    finally:
        logging.disable(logging.NOTSET)
    lines = [
        str(terms.bound),
        f"δ = {upward(delta, 'g')}, {terms.relation}; σ is the noise standard deviation over the clip norm C",
    ]
    for row in rows:
        differs = f"{100 * row.excess:+.2g} %" if math.isfinite(row.excess) and row.excess else ""
        lines.append(f"{row.accountant:<18} {upward(row.epsilon, '>14.9g')} {differs:>10}  {row.kind}")
        lines += [f"{'':<18}   {line}" for line in row.why]
    told = [{name: finite(value) for name, value in asdict(row).items()} for row in rows]
    found = {"run": lines[0], "delta": delta, "relation": str(terms.relation), "accountants": told}
    return Answered(found, "\n".join(lines))


DELTAS = [10.0**-k for k in range(2, 13)]

Found = tuple[dict[str, Any], list[str]]
"""An answer as JSON, with its ``route``, and as lines."""


def search(*options: Callable[[Any], Any]) -> Callable[[Callable[..., tuple[float, int, Found]]], click.Command]:
    """A command of these options, of a function that answers one question about steps of Gaussian noise.

    The function takes batches, relation and the options. It returns the noise multiplier and the number of steps that
    were asked about, or found, and what it answers; what was assumed is added here.
    """

    def decorate(function: Callable[..., tuple[float, int, Found]]) -> click.Command:
        def run(batches: Batches, relation: str, **asked: Any) -> Answered:
            among = Relation(relation)
            batches.step(1.0)  # raises where an option is wrong
            if "steps" in asked:
                asked["steps"] = batches.steps(asked["steps"], asked.pop("epochs"))
            if isinstance(asked.get("delta"), float):
                errors.check_delta(asked["delta"], batches.records)
            noise, steps, (found, lines) = function(batches, among, **asked)
            sampling = "none" if batches.none else batches.sampler
            step = {"mechanism": "Gaussian", "noise_multiplier": noise, **batches.given, "sampling": sampling}
            mechanisms = [{**step, "count": count} for _, count in (batches.step(noise) * steps).entries]
            found |= {"relation": relation, "mechanisms": mechanisms, "version": pc.__version__}
            lines += [
                f"assumed: {batches.number(steps)} with noise standard deviation {upward(noise, '.9g')} × clip norm;",
                f"         {batches};",
                f"         neighbours by {relation} ({batches.neighbours(among)}).",
                f"route: {found['route']}",
            ]
            return Answered(found, "\n".join(lines))

        decorated = together(*options, sampler_options, RELATION)(run)
        return click.command(function.__name__.strip("_"), cls=Command, help=function.__doc__)(decorated)

    return decorate


def question(*options: Callable[[Any], Any]) -> Callable[[Callable[..., Found]], click.Command]:
    """The same of a function that takes a run, relation and the options; noise and steps are asked for here."""

    def decorate(function: Callable[..., Found]) -> click.Command:
        @functools.wraps(function)
        def of_run(
            batches: Batches, relation: Relation, noise_multiplier: float, steps: int, **asked: Any
        ) -> tuple[float, int, Found]:
            return noise_multiplier, steps, function(batches.step(noise_multiplier) * steps, relation, **asked)

        return search(NOISE, STEPS, *options)(of_run)

    return decorate


def several(name: str, default: list[float], words: str) -> Callable[[Any], Any]:
    """An option of several numbers."""
    return click.option(name, type=Numbers(float), default=default, help=words)


@question(DELTA)
def epsilon(ran: Run, relation: Relation, delta: float) -> Found:
    """ε of a run at a δ."""
    return _epsilon(ran, delta, relation)


@question(EPSILON)
def delta(ran: Run, relation: Relation, epsilon: float) -> Found:
    """δ of a run at an ε."""
    found = ran.delta(epsilon=epsilon, relation=relation)
    line = f"{found.stated('δ')} at ε = {upward(epsilon, 'g')}   (certified in [{found.lower!r}, {found.upper!r}])"
    return {"epsilon": epsilon, "delta": _ends(found), "route": found.route}, [line]


@question(several("--delta", DELTAS, "Several δ (default 1e-2 … 1e-12)."))
def curve(ran: Run, relation: Relation, delta: list[float]) -> Found:
    """ε at several δ."""
    points = [(one, ran.epsilon(delta=one, relation=relation)) for one in delta]
    told = [{"delta": one, "epsilon": _ends(found)} for one, found in points]
    lines = ["δ           ε", *(f"{upward(one, '.4g'):<10}  {found}" for one, found in points)]
    return {"curve": told, "route": points[0][1].route}, lines


@question(
    several("--alpha", [0.001, 0.01, 0.1], "False positive rates (default 0.001,0.01,0.1)."),
    several("--prior", [0.5], "Probabilities that the record is there (default 0.5)."),
    several(
        "--baseline", [0.01], "Success of a guess, without the output, at a record or an attribute (default 0.01)."
    ),
)
def risk(ran: Run, relation: Relation, alpha: list[float], prior: list[float], baseline: list[float]) -> Found:
    """What attacks can do, at most: advantage, error rates, Bayes risk, reconstruction."""
    advantage = ran.advantage(relation=relation)
    betas = [(level, *_beta(ran, level, relation)) for level in alpha]
    risks = [(share, ran.bayes_risk(prior=share, relation=relation)) for share in prior]
    rates = [(guess, ran.reconstruction(baseline=guess, relation=relation)) for guess in baseline]
    found = {
        "advantage": _ends(advantage),
        "beta": [{"alpha": level, "beta": _ends(beta)} for level, beta, _ in betas],
        "bayes_risk": [{"prior": share, "risk": _ends(error)} for share, error in risks],
        "reconstruction": [{"baseline": guess, "success": _ends(rate)} for guess, rate in rates],
        "route": "+".join(dict.fromkeys([advantage.route, *(beta.route for _, beta, _ in betas)])),
    }
    lines = [
        "is the record there?   " + advantage.stated("advantage (best TPR − FPR)"),
        *(line for _, _, line in betas),
    ]
    lines += [f"{error.stated('error of any guess')} if it is there with probability {p:g}" for p, error in risks]
    lines = lines[:1] + [f"{'':<23}{line}" for line in lines[1:]]
    lines += [f"which record is it?    {rate.stated('success')} where a blind guess has {b:g}" for b, rate in rates]
    return found, lines


TARGET = together(
    click.option("--epsilon", type=float, help="ε, for instance 3, with"),
    click.option("--delta", type=float, help="its δ, for instance 1e-5; or"),
    click.option("--advantage", type=float, help="the largest true minus false positive rate of an attack; or"),
    click.option("--beta", type=float, help="the smallest false negative rate of an attack"),
    click.option("--alpha", type=float, help="at this false positive rate."),
)


@search(STEPS, TARGET)
def noise(batches: Batches, relation: Relation, steps: int, **target: float | None) -> tuple[float, int, Found]:
    """The noise multiplier that meets a target."""
    given: dict[str, Any] = {name: value for name, value in target.items() if value is not None}
    if given.keys() not in ({"epsilon", "delta"}, {"advantage"}, {"alpha", "beta"}):
        raise pc.PrivcalcError("a target is --epsilon with --delta, or --advantage, or --beta with --alpha; give one")
    given["relation"] = relation
    if batches.sampler == "poisson":
        multiplier = pc.noise_multiplier(steps=steps, **batches.given, **given)
    else:
        multiplier = float(pc.calibrate(lambda z: batches.step(z) * steps, **given))
    found, lines = _met(batches.step(multiplier) * steps, relation, given)
    return (
        multiplier,
        steps,
        ({"noise_multiplier": multiplier, **found}, [f"noise multiplier = {multiplier!r}", *lines]),
    )


@search(NOISE, EPSILON, DELTA)
def _steps(batches: Batches, relation: Relation, noise_multiplier: float, **target: Any) -> tuple[float, int, Found]:
    """The number of steps that a target allows."""
    one = batches.step(noise_multiplier)
    if batches.sampler == "poisson":
        count = pc.steps(noise_multiplier=noise_multiplier, relation=relation, **batches.given, **target)
    else:
        made = pc.calibrate(lambda number: one * int(number), integer=True, relation=relation, **target)
        count = int(made.parameter)
    found, lines = _epsilon(one * count, target["delta"], relation)
    return noise_multiplier, count, ({"steps": count, **found}, [f"steps = {count}", *lines])


COMMANDS = (delta, risk, _steps, curve)


def _epsilon(ran: Run, delta: float, relation: Relation) -> Found:
    found = ran.epsilon(delta=delta, relation=relation)
    line = f"{found.stated('ε')} at δ = {upward(delta, 'g')}   (certified in [{found.lower!r}, {found.upper!r}])"
    return {"epsilon": _ends(found), "delta": delta, "route": found.route}, [line]


def _met(ran: Run, relation: Relation, target: dict[str, Any]) -> Found:
    """What the noise that was found achieves, of the kind that was asked for."""
    if "epsilon" in target:
        return _epsilon(ran, target["delta"], relation)
    if "advantage" in target:
        found = ran.advantage(relation=relation)
        return {"advantage": _ends(found), "route": found.route}, [found.stated("advantage (best TPR − FPR)")]
    found, line = _beta(ran, target["alpha"], relation)
    return {"alpha": target["alpha"], "beta": _ends(found), "route": found.route}, [line]


def _beta(ran: Run, alpha: float, relation: Relation) -> tuple[Enclosure, str]:
    found = ran.beta(alpha=alpha, relation=relation)
    return found, f"{found.stated('false negative rate')} at false positive rate {downward(alpha, 'g')}"


def _ends(value: Enclosure) -> dict[str, float | None]:
    """Both ends; null where one is infinite, because JSON has no infinity."""
    return {name: finite(getattr(value, name)) for name in ("lower", "upper")}
