"""The main job on real data: features, calibration, training, certificates and their check, a table and two pictures.

python -m learners.demo                     digits that come with pip
python -m learners.demo --data FOLDER       one subfolder of images per class; or an .npz with X and y
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

import privcalc as pc
from learners import AdaMix, NoisyGD, WhitenedGD
from learners.data.features import encode
from learners.data.sources import Data, load, small_mnist, split
from learners.data.tasks import Task, make_task, train_plainly
from learners.device import add_device
from learners.frame.learner import Learner
from privcalc import pictures
from privcalc.audit import RealisedValues
from privcalc.files import folder, whole, write_whole
from privcalc.terminal import command

__all__ = ["main"]

STEPS = 100
"""T of the demo: seconds, and at ε = 1 as good as more."""


class Row(NamedTuple):
    """One learner: what it is called, how often it is right on the test records, and what that cost."""

    name: str
    accuracy: float
    noise_multiplier: float | None
    certificate: pc.Certificate | None


def baseline(task: Task, parts: Sequence[Data], device: str) -> float:
    """Accuracy of ordinary training on some parts, without privacy for them."""
    return float(np.mean(train_plainly(task, parts, device=device) == task.test.y))


def learners(task: Task, epsilon: float, delta: float, **options: Any) -> list[tuple[str, Callable[[], Learner], bool]]:
    """What is compared: name, how to make it, and whether it sees public records."""
    common = {
        "classes": task.classes,
        "epsilon": epsilon,
        "delta": delta,
        "records": len(task.private.y),
        "steps": STEPS,
        **options,
    }
    return [
        ("NoisyGD (Fully-Private)", lambda: NoisyGD(**common), False),
        ("public start", lambda: NoisyGD(**common, clip_quantile=0.9), True),
        ("AdaMix, projected", lambda: AdaMix(**common, dimension=2000), True),
        ("AdaMix", lambda: AdaMix(**common), True),
        ("WhitenedGD", lambda: WhitenedGD(**{**common, "steps": 50}), True),
    ]


class _Parser(argparse.ArgumentParser):
    """Bad input: one line, exit status 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


@command("python -m learners.demo")
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job."""
    parser = _Parser(
        prog="python -m learners.demo", description="Train classifiers with certified privacy on real images."
    )
    parser.add_argument(
        "--data", help="folder with one subfolder of images per class, or .npz with X and y (default: digits)"
    )
    parser.add_argument("--epsilon", type=float, default=1.0, help="ε (default 1)")
    parser.add_argument("--delta", type=float, default=1e-5, help="δ (default 1e-5)")
    parser.add_argument(
        "--public", type=int, default=200, help="labelled public records, taken from the data (default 200)"
    )
    parser.add_argument("--test", type=int, default=1000, help="records to test on, taken from the data (default 1000)")
    parser.add_argument(
        "--out", default="privcalc-demo", help="folder for models, certificates, table, pictures (default %(default)s)"
    )
    add_device(parser)
    parser.add_argument("--seed", type=int, help="reproducible noise: no privacy, and the certificates say so")
    args = parser.parse_args(arguments)
    return 0 if run(args) else 1


def run(args: argparse.Namespace) -> list[Row]:
    """The whole job; returns the table."""
    out = folder(args.out, name="--out")  # before the work, which takes long
    images = load(args.data) if args.data else small_mnist()
    size = len(images.y) - args.public - args.test
    if size < 1:
        raise pc.PrivcalcError(
            f"--public {args.public} --test {args.test}: must leave private records, of {len(images.y)}"
        )
    print(
        f"a public network turns {len(images.y):,} images into features, about 60 a second; then they are kept",
        flush=True,
    )
    pool, test = split(encode(images, device=args.device), [size + args.public, args.test], seed=0)
    public, private = split(pool, [args.public, size], seed=0)
    task = make_task(private, public, test, sorted(np.unique(images.y).tolist()))
    print(f"{size} private, {args.public} public, {args.test} test records of {len(task.classes)} classes")
    out.mkdir(parents=True, exist_ok=True)
    rows = [
        Row("Only-Public", baseline(task, [task.public], args.device), None, None),
        Row("not private (all records)", baseline(task, [task.private, task.public], args.device), None, None),
    ]
    losses: dict[str, RealisedValues] = {}
    for name, make, sees_public in learners(
        task, args.epsilon, args.delta, device=args.device, seed=args.seed, progress=True
    ):
        model = make()
        model.fit(task.private.X, task.private.y, *(task.public if sees_public else ()), norms_every=1)
        stem = "-".join(re.findall(r"\w+", name.split(" (")[0].lower()))
        with whole(out / f"{stem}.npz") as file:
            np.savez(file, weights=model.weights_.cpu().numpy(), classes=np.array(task.classes))
        model.certificate_.save(out / f"{stem}.cert.json")
        assert model.ledger_ is not None
        confirmed = pc.Certificate.load(out / f"{stem}.cert.json").verify(model.ledger_, seconds=600.0)
        print(f"{name}: certificate checked in {len(confirmed)} ways", file=sys.stderr)
        assert model.losses_ is not None
        losses[name] = model.losses_.epsilon(args.delta)
        rows.append(Row(name, model.score(task.test.X, task.test.y), model.noise_multiplier_, model.certificate_))
    print(write(rows, out, note(args.data is None, args.test)))
    audited = {name: losses[name] for name in ("NoisyGD (Fully-Private)", "AdaMix")}
    pictures.save(pictures.realised(audited, delta=args.delta), out / "private-audit.png", mode=0o600)
    print(f"models, certificates, table and pictures are in {out}/")
    print(
        "private-audit.png shows what each private record really cost: it is as sensitive as they are, "
        "and not for publication"
    )
    return rows


def note(digits: bool, tests: int) -> str:
    """What the table shows, and what it does not.

    Example:
        >>> note(False, 400)
        'No setting was chosen on these records. An accuracy is known to ± 5 points (95 %) from 400 test records.'
    """
    chosen = (
        "Step sizes and the constants of WhitenedGD were chosen on digits of this package: the table shows the way, "
        "and is no evidence of a gain. On other records: results/LEARNERS.md."
        if digits
        else "No setting was chosen on these records."
    )
    return f"{chosen} An accuracy is known to ± {98 / tests**0.5:.1g} points (95 %) from {tests:,} test records."


def write(rows: Sequence[Row], folder: Path, said: str) -> str:
    """Write ``table.md``, ``accuracy.png`` and ``privacy.png``; return the table, and what is said of it."""
    text = f"{table(rows)}\n\n{said}"
    write_whole(folder / "table.md", text + "\n")
    _pictures(rows, folder)
    return text


def table(rows: Sequence[Row]) -> str:
    """As Markdown.

    Example:
        >>> print(table([Row("Only-Public", 0.8, None, None)]))
        | learner | test accuracy | noise / clip norm | certified privacy |
        |---|---|---|---|
        | Only-Public | 80.0 % | | |
    """
    lines = ["| learner | test accuracy | noise / clip norm | certified privacy |", "|---|---|---|---|"]
    for row in rows:
        noise = "" if row.noise_multiplier is None else f"{row.noise_multiplier:.2f} "
        claim = "" if row.certificate is None else f"{row.certificate.guarantee} "
        lines.append(f"| {row.name} | {100 * row.accuracy:.1f} % | {noise}| {claim}|")
    return "\n".join(lines)


def _pictures(rows: Sequence[Row], folder: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 0.5 * len(rows) + 1), layout="constrained")
    axes = figure.subplots()
    colors = ["tab:gray" if row.certificate is None else "tab:blue" for row in rows]
    bars = axes.barh([row.name for row in rows], [100 * row.accuracy for row in rows], color=colors)
    axes.bar_label(bars, fmt="%.1f", padding=3)
    least = 100 * min(row.accuracy for row in rows)
    axes.set_xlim(left=max(0.0, 10 * (least // 10 - 1)), right=104)
    axes.invert_yaxis()
    title = "grey: not private, or public records alone"
    certificate = next((row.certificate for row in rows if row.certificate is not None), None)
    if certificate is not None:
        claim = certificate.guarantee
        title = f"blue: ({claim.epsilon:.3g}, {claim.delta:g})-DP; {title}"
    axes.set(xlabel="test accuracy, % (cut off on the left)", title=title)
    pictures.save(figure, folder / "accuracy.png")
    if certificate is not None:
        pictures.save(pictures.tradeoff(certificate.run, relation=certificate.relation), folder / "privacy.png")


if __name__ == "__main__":
    sys.exit(main())
