"""The theorem in Coq: it compiles, rests on known axioms, computes what Python computes, and refuses a smaller ε."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import privcalc as pc
from privcalc import kernel
from privcalc.kernel import curve
from privcalc.serial import run_to_json

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("coqc") is None, reason="needs coqc and the library bignums (Debian: coq, libcoq-bignums)"
    ),
]

FORMAL = Path(__file__).parents[2] / "proofs" / "formal"

AXIOMS = ("ClassicalDedekindReals.", "FunctionalExtensionality.", "Classical_Prop.classic", "PrimInt63.", "Uint63.")
"""Of the standard library's reals, and of its machine integers."""

SAMPLED = pc.PoissonSampled(pc.Gaussian(noise_multiplier=1.0), rate=0.01)
RUNS = [
    pc.Gaussian(noise_multiplier=1.0) * 1,
    pc.Gaussian(noise_multiplier=4.0) * 10,
    pc.Gaussian(noise_multiplier=20.0) * 206,
    SAMPLED * 1,
    SAMPLED * 7,
    SAMPLED * 1000,
    pc.PoissonSampled(pc.Gaussian(noise_multiplier=0.7), rate=0.3) * 12,
    pc.PoissonSampled(pc.Gaussian(noise_multiplier=5.0), rate=1e-4) * 10**5,
    SAMPLED * 5 + pc.Gaussian(noise_multiplier=3.0) * 2,
    pc.Gaussian(noise_multiplier=2.0) + pc.Gaussian(noise_multiplier=3.0) + SAMPLED * 33,
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("formal")
    for name in ("Pairs.v", "Curves.v"):
        shutil.copy(FORMAL / name, found)
        coq(found, found / name)
    return found


def coq(folder, path, *, check=True):
    return subprocess.run(["coqc", path.name], cwd=folder, capture_output=True, text=True, check=check)


def run_file(folder, name, text, **options):
    path = folder / f"{name}.v"
    path.write_text(text, encoding="utf-8")
    return coq(folder, path, **options)


def composed(run, most=24):
    return kernel.composed(kernel.read(run_to_json(run), "add-or-remove-one"), 1e-5, most=most)


def test_no_axiom_but_those_of_the_standard_library(folder):
    said = run_file(folder, "Axioms", "Require Import Curves.\nPrint Assumptions private.\n").stdout
    names = re.findall(r"^([A-Za-z]\S*)", said.removeprefix("Axioms:"), re.MULTILINE)
    assert len(names) > 4
    assert all(name.startswith(AXIOMS) for name in names), names
    assert "Admitted" not in "".join((FORMAL / name).read_text(encoding="utf-8") for name in ("Pairs.v", "Curves.v"))


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_ten_runs_to_the_byte(folder, run):
    found = composed(run)
    for side, (c, entries) in enumerate(zip(found.curves, found.entries, strict=True)):
        listed = [f"(({low}, [{'; '.join(map(str, t))}]), {count}%positive)" for low, t, count in entries]
        s = found.settings
        n = found.power(c, 1e-5) or 3
        said = run_file(
            folder,
            f"Run{side}",
            "Require Import List ZArith Curves.\nImport ListNotations.\nOpen Scope Z_scope.\n"
            f"Definition s := Settings {s.bits} {s.grid} {s.cut} (Z.to_nat {s.most}).\n"
            f"Definition c := composed s {listed[0]} [{'; '.join(listed[1:])}].\n"
            "Set Printing Depth 100000.\nSet Printing Width 100000.\n"
            f"Eval vm_compute in (level c, low c, mass c, leak c, delta s c (Z.to_nat {n})).\n",
        ).stdout
        mass = "; ".join(map(str, c.mass))
        expected = f"({c.level}%nat, {c.low}, [{mass}], {c.leak}, {curve.delta(s, c, n)})"
        assert " ".join(said.split()).split(" : ")[0] == f"= {expected}"


def test_a_run_becomes_a_theorem_and_a_smaller_epsilon_does_not(folder):
    found = composed(SAMPLED * 1000, most=64)
    text = kernel.theorem(found, 1e-5, said="a run *) Axiom bad : False. (*")
    done = run_file(folder, "Theorem", text + "Print Assumptions removed.\n")
    assert "bad" not in done.stdout
    n = found.power(found.curves[0], 1e-5)
    assert run_file(folder, "False", text.replace(f"Z.to_nat {n})", f"Z.to_nat {n - 1})"), check=False).returncode != 0
    epsilon = int(re.search(r"IZR (\d+) / IZR", text)[1])
    smaller = text.replace(str(epsilon), str(epsilon * 98 // 100))
    assert run_file(folder, "Smaller", smaller, check=False).returncode != 0
