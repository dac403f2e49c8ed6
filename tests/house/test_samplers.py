"""Each line of the samplers' tables has a page, a test against an oracle, an attack, and a benchmark question."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from typing import NamedTuple

import pytest

import privcalc as pc
from benchmarks.accountants.cases import cases
from privcalc.run import Mechanism
from privcalc.serial import parts

ROOT = Path(__file__).parents[2]
NAMES = {"pc": pc, "z": 1.5, "rate": 0.01, "steps": 200, "epochs": 3}


class Backing(NamedTuple):
    """Of a sampler."""

    oracle: str
    """A test with a truth from outside."""
    attack: str
    """A test that attacks it, or a game of those in ``GAMES``, as it is written there."""
    family: str
    """Of the accountants' benchmark; "" where parts cost what one of them does, or noise has a benchmark of its own."""


GAMES = "attacks/test_attack_mechanisms.py"
BACKING = {
    "Gaussian": Backing(
        "laws/test_truth.py::test_gaussian_delta", "attacks/test_attack.py::test_the_attack_has_power", "usual"
    ),
    "PoissonSampled": Backing("laws/test_truth.py::test_enumerated_replace_one", "sampled {name}, {steps}", "usual"),
    "UserSampled": Backing("mechanisms/test_users.py::test_groups_by_quadrature", "a person, {most} counted", "users"),
    "TruncatedPoissonSampled": Backing(
        "mechanisms/test_truncated.py::test_all_small_data_sets_are_between_both_ends", "cut, {relation}", "truncated"
    ),
    "FixedSizeSampled": Backing(
        "mechanisms/test_sampling.py::test_fixed_size_gaussian_dominates_all_data_sets",
        "fixed size, {name}, {relation}",
        "batches",
    ),
    "WithReplacementSampled": Backing(
        "mechanisms/test_replacement.py::test_all_small_data_sets_are_between_both_ends", "with replacement", "batches"
    ),
    "RandomAllocation": Backing(
        "mechanisms/test_allocation.py::test_two_slots", "allocation, {epochs} epochs", "allocation"
    ),
    "RandomAllocation of several": Backing(
        "mechanisms/test_allocation.py::test_several_of_three_steps_by_a_grid", "allocation, two of four", "several"
    ),
    "ShuffledEpoch": Backing(
        "mechanisms/test_sampling.py::test_a_shuffled_epoch_dominates_all_data_sets", "one batch, {relation}", "batches"
    ),
    "Parallel": Backing(
        "mechanisms/test_sampling.py::test_parallel_once_is_the_worst_part", "parallel, {name} part", ""
    ),
    "CorrelatedGaussian": Backing(
        "mechanisms/test_correlated.py::test_every_pattern_of_twelve_steps", "bands, cyclic coins", ""
    ),
}


def lines(heading: str) -> list[list[str]]:
    text = (ROOT / "docs/samplers.md").read_text(encoding="utf-8").partition(f"| {heading} |")[2].splitlines()[2:]
    table = text[: next(i for i, line in enumerate(text) if not line.startswith("|"))]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def sampler(code: str) -> Mechanism:
    """The mechanism that a line says to write."""
    run: pc.Run | Mechanism = eval(code, dict(NAMES))
    ((mechanism, _),) = run.run.entries
    return mechanism


def name_of(mechanism: Mechanism) -> str:
    several = isinstance(mechanism, pc.RandomAllocation) and mechanism.choices > 1
    return type(mechanism).__name__ + (" of several" if several else "")


def exists(test: str) -> bool:
    file, _, function = test.partition("::")
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    return function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_each_line_of_a_loop_is_backed() -> None:
    mechanisms = [sampler(row[1].strip("`")) for row in lines("your loop")]
    names = {name_of(mechanism) for mechanism in mechanisms}
    assert not names - set(BACKING), (
        f"add to BACKING an oracle, an attack and a benchmark family of {names - set(BACKING)}"
    )
    assert not set(BACKING) - names, f"add to docs/samplers.md a line of {set(BACKING) - names}"
    for mechanism in mechanisms:
        page = (ROOT / "proofs" / type(mechanism).page).read_text(encoding="utf-8")
        assert f"privcalc/{type(mechanism).__module__.partition('.')[2].replace('.', '/')}.py" in page, mechanism


def test_each_sampler_has_an_oracle_and_an_attack() -> None:
    source = (ROOT / "tests" / GAMES).read_text(encoding="utf-8")
    games = set(re.findall(r"(?:add\(|GAMES\[)f?\"([^\"]+)\"", source))
    for name, backing in BACKING.items():
        assert exists(backing.oracle), name
        assert backing.attack in games or exists(backing.attack), name


def test_each_sampler_is_asked_in_the_benchmark() -> None:
    asked: dict[str, set[str]] = {}
    for case in cases():
        for mechanism, _ in case.question.run.entries:
            for part in (mechanism, *parts(mechanism)):
                asked.setdefault(name_of(part), set()).add(case.family)
    for name, backing in BACKING.items():
        assert not backing.family or backing.family in asked[name], name


def test_each_line_of_a_library_says_what_to_write_or_why_not() -> None:
    for theirs, ours, proof, drawn in (row[:4] for row in lines("their sampler")):
        written = re.findall(r"(?:pc\.|`)([A-Z]\w+)\(", ours)
        assert drawn, theirs
        assert (written and set(written) & {name.split()[0] for name in BACKING}) or ours.startswith(
            ("nothing: ", "the same", "the base")
        ), (theirs, ours)
        for page in re.findall(r"\.\./(proofs/\w+\.md)", proof):
            assert (ROOT / page).exists(), page
        assert proof or ours.startswith("nothing"), theirs


def test_every_selector_that_is_installed_has_a_line() -> None:
    """Of jax_privacy and Opacus, where they are installed; their files are read, not run."""
    text, found = (ROOT / "docs/samplers.md").read_text(encoding="utf-8"), 0
    for file, ends in (
        ("jax_privacy/batch_selection.py", ("Sampling", "SelectionStrategy")),
        ("opacus/data_loader.py", ("DataLoader",)),
        ("opacus/utils/uniform_sampler.py", ("Sampler",)),
    ):
        package, _, rest = file.partition("/")
        spec = importlib.util.find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            for node in ast.parse((Path(folder) / rest).read_text(encoding="utf-8")).body:
                if (
                    isinstance(node, ast.ClassDef)
                    and node.name.endswith(ends)
                    and node.name != "BatchSelectionStrategy"
                ):
                    assert f"`{node.name}" in text, node.name
                    found += 1
    if not found:
        pytest.skip("neither library is installed")
