"""The command line: ``privcalc epsilon|delta|noise|steps|curve``, ``plan|compare``, ``audit|attack``, ``certify|verify|show``."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import privcalc as pc
from privcalc.cli import attack as cli_attack
from privcalc.cli import audit as report
from privcalc.cli import certificate as cli_certificate
from privcalc.cli import compare, plan
from privcalc.enclosure import Enclosure
from privcalc.relation import Relation
from privcalc.run import Run
from privcalc.terminal import command, fail

RELATIONS = {relation.value: relation for relation in Relation}

QUESTIONS = {
    "epsilon": ("ε of a run at a δ", ("--noise-multiplier", "--steps", "--delta")),
    "delta": ("δ of a run at an ε", ("--noise-multiplier", "--steps", "--epsilon")),
    "noise": ("the noise multiplier that meets a target", ("--steps", "--epsilon", "--delta")),
    "steps": ("the number of steps that a target allows", ("--noise-multiplier", "--epsilon", "--delta")),
    "curve": ("ε at several δ", ("--noise-multiplier", "--steps")),
}


class _Parser(argparse.ArgumentParser):
    """Bad input: one line, exit status 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="privcalc", description="Certified accounting of (Poisson-sampled) Gaussian releases, such as DP-SGD.")
    parser.add_argument("--version", action="version", version=pc.__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    options: dict[str, dict[str, Any]] = {
        "--noise-multiplier": {"type": float, "help": "noise standard deviation / clip norm"},
        "--steps": {"type": int, "default": 1, "help": "number of steps (default 1)"},
        "--epsilon": {"type": float, "help": "ε of the target"},
        "--delta": {"type": float, "help": "δ, for instance 1e-5"},
    }
    for name, (text, names) in QUESTIONS.items():
        command = commands.add_parser(name, help=text, description=text)
        for option in names:
            settings = options[option]
            command.add_argument(option, required="default" not in settings, **settings)
        command.add_argument(
            "--sample-rate", type=float, default=1.0, help="probability with which each record takes part in a step (default 1)"
        )
        command.add_argument(
            "--relation",
            choices=RELATIONS,
            default=Relation.ADD_OR_REMOVE_ONE.value,
            help="neighbouring relation (default %(default)s)",
        )
        command.add_argument("--json", action="store_true", help="print one JSON object")
        if name == "curve":
            default = [10.0**-k for k in range(2, 13)]
            command.add_argument("--delta", type=float, nargs="+", default=default, help="several δ (default 1e-2 … 1e-12)")
    cli_certificate.add_commands(commands)
    cli_attack.add_command(commands)
    report.add_parser(commands)
    compare.add_command(commands)
    plan.add_command(commands)
    return parser


def _ends(value: Enclosure) -> dict[str, float | None]:
    """Both ends; null where one is infinite, because JSON has no infinity."""
    return {name: end if math.isfinite(end := getattr(value, name)) else None for name in ("lower", "upper")}


def _run(args: argparse.Namespace, noise_multiplier: float, steps: int) -> Run:
    return pc.PoissonSampled(pc.Gaussian(noise_multiplier), args.sample_rate) * steps


def _answer(args: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """The JSON object, and the readable lines."""
    relation = RELATIONS[args.relation]
    noise: float = getattr(args, "noise_multiplier", math.nan)
    steps: int = getattr(args, "steps", 0)
    found: dict[str, Any] = {}
    lines: list[str] = []
    if args.command == "noise":
        noise = pc.noise_multiplier(
            epsilon=args.epsilon, delta=args.delta, sample_rate=args.sample_rate, steps=args.steps, relation=relation
        )
        found["noise_multiplier"] = noise
        lines.append(f"noise multiplier = {noise!r}")
    if args.command == "steps":
        steps = pc.steps(
            epsilon=args.epsilon, delta=args.delta, sample_rate=args.sample_rate, noise_multiplier=noise, relation=relation
        )
        found["steps"] = steps
        lines.append(f"steps = {steps}")
    run = _run(args, noise, steps)
    if args.command == "curve":
        curve = [(delta, run.epsilon(delta=delta, relation=relation)) for delta in args.delta]
        found["curve"] = [{"delta": delta, "epsilon": _ends(epsilon)} for delta, epsilon in curve]
        found["route"] = curve[0][1].route if curve else ""
        lines.append("δ           ε")
        lines += [f"{delta:<10.4g}  {epsilon}" for delta, epsilon in curve]
    elif args.command == "delta":
        delta = run.delta(epsilon=args.epsilon, relation=relation)
        found |= {"epsilon": args.epsilon, "delta": _ends(delta), "route": delta.route}
        lines.append(f"δ = {delta} at ε = {args.epsilon:g}   (certified in [{delta.lower!r}, {delta.upper!r}])")
    else:
        epsilon = run.epsilon(delta=args.delta, relation=relation)
        found |= {"epsilon": _ends(epsilon), "delta": args.delta, "route": epsilon.route}
        lines.append(f"ε = {epsilon} at δ = {args.delta:g}   (certified in [{epsilon.lower!r}, {epsilon.upper!r}])")
    mechanisms = [
        {
            "mechanism": "Gaussian",
            "noise_multiplier": noise,
            "sample_rate": args.sample_rate,
            "sampling": "none" if args.sample_rate == 1 else "poisson",
            "count": count,
        }
        for _, count in run.entries
    ]
    found |= {"relation": relation.value, "mechanisms": mechanisms, "version": pc.__version__}
    lines += _assumptions(args, noise, steps, relation, found["route"])
    return found, lines


def _assumptions(args: argparse.Namespace, noise: float, steps: int, relation: Relation, route: str) -> list[str]:
    """What the number is for."""
    who = (
        "every record takes part in every step"
        if args.sample_rate == 1
        else f"each record takes part in each step with probability {args.sample_rate:g}, independently (Poisson sampling)"
    )
    shift = "one contribution, of at most the clip norm"
    if relation is pc.REPLACE_ONE:
        shift = "two contributions may differ by twice the clip norm"
    return [
        f"assumed: {steps} Gaussian step{'s' * (steps != 1)} with noise standard deviation {noise:g} × clip norm;",
        f"         {who};",
        f"         neighbours by {relation} ({shift}).",
        f"route: {route}",
    ]


@command("privcalc")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.command == "attack":
        return cli_attack.run(args)
    if args.command not in {*QUESTIONS, "audit", "compare", "plan"}:
        return cli_certificate.run(args)
    try:
        if args.command == "audit":
            return report.run(args)
        if args.command == "compare":
            return compare.main(args)
        if args.command == "plan":
            return plan.main(args)
        found, lines = _answer(args)
    except pc.PrivcalcError as error:
        # The message begins with the argument's name; show it as the option, if it is one.
        name, separator, rest = str(error).partition(" = ")
        known = name if name in vars(args) else {"rate": "sample_rate", "count": "steps"}.get(name, "")
        option = name if known not in vars(args) or known in {"norms", "run"} else "--" + known.replace("_", "-")
        return fail(f"privcalc {args.command}", f"{option}{separator}{rest}")
    except OSError as error:
        return fail(f"privcalc {args.command}", error)
    print(json.dumps(found, allow_nan=False) if args.json else "\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
