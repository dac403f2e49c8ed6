"""What is installed: privcalc, and nothing else of this repository."""

from __future__ import annotations

import os
import shutil
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


def built(folder: Path) -> Path:
    """The wheel, of a copy of the sources whose files are new."""
    source = folder / "source"  # setuptools builds in the tree that it is given
    shutil.copytree(ROOT / "privcalc", source / "privcalc", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "learners", source / "learners", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, source / name)
    options = ["-q", "--no-deps", "--no-build-isolation", "-w", str(folder), str(source)]
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1767225600"}
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options], check=True, capture_output=True, env=environment)
    return next(folder.glob("privcalc-*.whl"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_has_one_package_only(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {top for top in (name.partition("/")[0] for name in names) if not top.endswith(".dist-info")} == {"privcalc"}
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "privcalc").rglob("*.py")} <= set(names)
    assert "privcalc/py.typed" in names


def test_the_wheel_is_built_to_the_same_bytes(wheel, tmp_path):
    assert built(tmp_path).read_bytes() == wheel.read_bytes()


def test_the_wheel_answers(wheel, tmp_path):
    folder = tmp_path / "installed"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), str(wheel)]
    subprocess.run(install, check=True, capture_output=True, text=True)
    asked = [sys.executable, "-P", "-c", ASKED, str(folder)]
    answer = subprocess.run(asked, check=True, capture_output=True, text=True, cwd=tmp_path, env={}).stdout
    assert float(answer) == pytest.approx(4.377178096, rel=1e-9)  # Balle, Wang 2018, Theorem 8, in 50 digits
