"""``privcalc epsilon|delta|risk|noise|steps|curve``: the questions of DP-SGD, answered with what was assumed."""

from __future__ import annotations

import argparse
import math
from typing import Any

import privcalc as pc
from privcalc.cli.options import add_options
from privcalc.cli.samplers import add_samplers, described, in_number, in_words, of_whom, step_of
from privcalc.enclosure import Enclosure
from privcalc.errors import PrivcalcError
from privcalc.relation import Relation
from privcalc.rounding import downward, upward
from privcalc.run import Run
from privcalc.terminal import answer

QUESTIONS = {
    "epsilon": ("ε of a run at a δ", ("--noise-multiplier", "--steps", "--delta")),
    "delta": ("δ of a run at an ε", ("--noise-multiplier", "--steps", "--epsilon")),
    "risk": ("what attacks can do, at most", ("--noise-multiplier", "--steps", "--alpha", "--prior", "--baseline")),
    "noise": ("the noise multiplier that meets a target", ("--steps", "--target")),
    "steps": ("the number of steps that a target allows", ("--noise-multiplier", "--epsilon", "--delta")),
    "curve": ("ε at several δ", ("--noise-multiplier", "--steps", "--deltas")),
}

TARGETS = {
    "epsilon": "ε, for instance 3, with",
    "delta": "its δ, for instance 1e-5; or",
    "advantage": "the largest true minus false positive rate of an attack; or",
    "beta": "the smallest false negative rate of an attack",
    "alpha": "at this false positive rate",
}

MANY = {
    "--alpha": ([0.001, 0.01, 0.1], "false positive rates (default 0.001, 0.01, 0.1)"),
    "--prior": ([0.5], "probabilities that the record is there (default 0.5)"),
    "--baseline": ([0.01], "success of a guess at the record, or an attribute, without the output (default 0.01)"),
}

DELTAS = [10.0**-k for k in range(2, 13)]


def add(commands: Any) -> None:
    """Add the commands."""
    for name, (text, options) in QUESTIONS.items():
        parser = commands.add_parser(name, help=text, description=text)
        parser.set_defaults(run=run)
        for option in options:
            if option == "--steps":
                parser.add_argument(option, type=int, help="number of steps; must be given where batches are drawn, else 1")
            elif option == "--deltas":
                parser.add_argument("--delta", type=float, nargs="+", default=DELTAS, help="several δ (default 1e-2 … 1e-12)")
            elif option == "--target":
                for target, words in TARGETS.items():
                    parser.add_argument(f"--{target}", type=float, help=words)
            elif option in MANY:
                default, words = MANY[option]
                parser.add_argument(option, type=float, nargs="+", default=default, help=words)
            else:
                add_options(parser, option)
        add_samplers(parser)
        add_options(parser, "--relation", "--json")


def run(args: argparse.Namespace) -> int:
    """Answer the question; returns the exit status."""
    relation = Relation(args.relation)
    noise, steps, found, lines = _schedule(args, relation)
    ran, how = step_of(args, noise) * steps, described(args)
    asked = {"delta": _delta, "curve": _curve, "risk": _risk, "noise": _met}.get(args.command, _epsilon)
    more, words = asked(args, ran, relation)
    mechanisms = [
        {
            "mechanism": "Gaussian",
            "noise_multiplier": noise,
            **how,
            "sampling": "none" if how == {"sample_rate": 1.0} else args.sampler,
            "count": count,
        }
        for _, count in ran.entries
    ]
    found |= {**more, "relation": relation.value, "mechanisms": mechanisms, "version": pc.__version__}
    lines += [*words, *_assumptions(args, noise, steps, relation), f"route: {found['route']}"]
    return answer(found, "\n".join(lines), as_json=args.json)


def _schedule(args: argparse.Namespace, relation: Relation) -> tuple[float, int, dict[str, Any], list[str]]:
    """Noise multiplier and steps, as given or as found; and what was found, as JSON and as lines."""
    if args.command != "steps" and args.steps is None:
        step_of(args, 1.0)  # raises where an option is wrong
        if described(args) != {"sample_rate": 1.0}:
            raise PrivcalcError("--steps: must be given where batches are drawn: ε of one step is too small for a run")
        args.steps = 1
    if args.command not in {"noise", "steps"}:
        return args.noise_multiplier, args.steps, {}, []
    names = TARGETS if args.command == "noise" else ("epsilon", "delta")
    target = {name: value for name in names if (value := getattr(args, name)) is not None} | {"relation": relation}
    poisson = described(args) if args.sampler == "poisson" else None
    if args.command == "noise":
        if poisson is not None:
            noise = pc.noise_multiplier(steps=args.steps, **poisson, **target)
        else:
            step_of(args, 1.0)  # raises where an option is wrong; a search would go past it
            noise = float(pc.calibrate(lambda z: step_of(args, z) * args.steps, **target))
        return noise, args.steps, {"noise_multiplier": noise}, [f"noise multiplier = {noise!r}"]
    if poisson is not None:
        steps = pc.steps(noise_multiplier=args.noise_multiplier, **poisson, **target)
    else:
        one = step_of(args, args.noise_multiplier)
        steps = int(pc.calibrate(lambda count: one * int(count), integer=True, **target).parameter)
    return args.noise_multiplier, steps, {"steps": steps}, [f"steps = {steps}"]


def _epsilon(args: argparse.Namespace, ran: Run, relation: Relation) -> tuple[dict[str, Any], list[str]]:
    epsilon = ran.epsilon(delta=args.delta, relation=relation)
    line = f"{epsilon.stated('ε')} at δ = {upward(args.delta, 'g')}   (certified in [{epsilon.lower!r}, {epsilon.upper!r}])"
    return {"epsilon": _ends(epsilon), "delta": args.delta, "route": epsilon.route}, [line]


def _met(args: argparse.Namespace, ran: Run, relation: Relation) -> tuple[dict[str, Any], list[str]]:
    """What the noise that was found achieves."""
    if args.epsilon is not None:
        return _epsilon(args, ran, relation)
    if args.advantage is not None:
        advantage = ran.advantage(relation=relation)
        return {"advantage": _ends(advantage), "route": advantage.route}, [advantage.stated("advantage (best TPR − FPR)")]
    found, lines = _beta(ran, args.alpha, relation)
    return {"alpha": args.alpha, "beta": _ends(found), "route": found.route}, [lines]


def _beta(ran: Run, alpha: float, relation: Relation) -> tuple[Enclosure, str]:
    beta = ran.beta(alpha=alpha, relation=relation)
    return beta, f"{beta.stated('false negative rate')} at false positive rate {downward(alpha, 'g')}"


def _risk(args: argparse.Namespace, ran: Run, relation: Relation) -> tuple[dict[str, Any], list[str]]:
    """Advantage, error rates, Bayes risk, reconstruction."""
    advantage = ran.advantage(relation=relation)
    betas = [(alpha, *_beta(ran, alpha, relation)) for alpha in args.alpha]
    risks = [(prior, ran.bayes_risk(prior=prior, relation=relation)) for prior in args.prior]
    rates = [(baseline, ran.reconstruction(baseline=baseline, relation=relation)) for baseline in args.baseline]
    found = {
        "advantage": _ends(advantage),
        "beta": [{"alpha": alpha, "beta": _ends(beta)} for alpha, beta, _ in betas],
        "bayes_risk": [{"prior": prior, "risk": _ends(risk)} for prior, risk in risks],
        "reconstruction": [{"baseline": baseline, "success": _ends(rate)} for baseline, rate in rates],
        "route": "+".join(dict.fromkeys([advantage.route, *(beta.route for _, beta, _ in betas)])),
    }
    lines = [advantage.stated("is the record there?   advantage (best TPR − FPR)")]
    lines += [f"                       {line}" for _, _, line in betas]
    lines += [
        f"                       {risk.stated('error of any guess')} if it is there with probability {p:g}" for p, risk in risks
    ]
    lines += [f"which record is it?    {rate.stated('success')} where a blind guess has {b:g}" for b, rate in rates]
    return found, lines


def _delta(args: argparse.Namespace, ran: Run, relation: Relation) -> tuple[dict[str, Any], list[str]]:
    delta = ran.delta(epsilon=args.epsilon, relation=relation)
    line = f"{delta.stated('δ')} at ε = {upward(args.epsilon, 'g')}   (certified in [{delta.lower!r}, {delta.upper!r}])"
    return {"epsilon": args.epsilon, "delta": _ends(delta), "route": delta.route}, [line]


def _curve(args: argparse.Namespace, ran: Run, relation: Relation) -> tuple[dict[str, Any], list[str]]:
    curve = [(delta, ran.epsilon(delta=delta, relation=relation)) for delta in args.delta]
    points = [{"delta": delta, "epsilon": _ends(epsilon)} for delta, epsilon in curve]
    lines = ["δ           ε", *(f"{upward(delta, '.4g'):<10}  {epsilon}" for delta, epsilon in curve)]
    return {"curve": points, "route": curve[0][1].route}, lines


def _ends(value: Enclosure) -> dict[str, float | None]:
    """Both ends; null where one is infinite, because JSON has no infinity."""
    return {name: end if math.isfinite(end := getattr(value, name)) else None for name in ("lower", "upper")}


def _assumptions(args: argparse.Namespace, noise: float, steps: int, relation: Relation) -> list[str]:
    """What the number is for."""
    return [
        f"assumed: {in_number(args, steps)} with noise standard deviation {upward(noise, '.9g')} × clip norm;",
        f"         {in_words(args)};",
        f"         neighbours by {relation} ({of_whom(args, relation)}).",
    ]
