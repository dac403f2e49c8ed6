"""What is installed: privcalc and learners, and nothing else of this repository."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ASKED = """
import sys
sys.path.insert(0, sys.argv[1])
import privcalc
assert privcalc.__file__.startswith(sys.argv[1]), privcalc.__file__
print(privcalc.Gaussian(noise_multiplier=1.0).epsilon(delta=1e-5))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # setuptools builds in the tree that it is given
    names = ["privcalc", "learners", "pyproject.toml", "README.md", "LICENSE", "benchmarks", "proofs", "tests", "docs"]
    source.mkdir()
    for name in names:
        if (ROOT / name).exists():
            (source / name).symlink_to(ROOT / name)
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
        str(source),
    ]
    subprocess.run(build, check=True, capture_output=True, text=True)
    return next(folder.glob("privcalc-*.whl"))


def test_the_wheel_has_the_two_packages_only(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"privcalc", "learners"}
    there = {
        path.relative_to(ROOT).as_posix()
        for package in ("privcalc", "learners")
        for path in (ROOT / package).rglob("*.py")
    }
    assert there <= set(names)
    assert "privcalc/py.typed" in names


def test_the_wheel_answers(wheel, tmp_path):
    folder = tmp_path / "installed"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), str(wheel)]
    subprocess.run(install, check=True, capture_output=True, text=True)
    asked = [sys.executable, "-P", "-c", ASKED, str(folder)]
    answer = subprocess.run(asked, check=True, capture_output=True, text=True, cwd=tmp_path, env={}).stdout
    assert float(answer) == pytest.approx(4.377178096, rel=1e-9)  # Balle, Wang 2018, Theorem 8, in 50 digits
