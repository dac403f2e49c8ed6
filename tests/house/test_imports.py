"""The core needs its declared dependencies alone: adapters, pictures and reports import their packages when asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

BLOCKED = """
import importlib, pkgutil, sys

CORE = {"numpy", "scipy", "flint", "lazy_loader", "click", "portalocker", "narwhals", "privcalc"}

class Refuse:
    def find_spec(self, name, path=None, target=None):
        first = name.partition(".")[0]
        if not first.startswith("_") and first not in sys.stdlib_module_names | CORE:
            raise ImportError("BLOCKED " + name)

sys.meta_path.insert(0, Refuse())
import privcalc
EXTRAS = "privcalc.interop.", "privcalc.signatures", "privcalc.log.postgresql"
for module in pkgutil.walk_packages(privcalc.__path__, "privcalc."):
    if not module.name.startswith(EXTRAS) and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
        print(module.name)
"""


def test_only_the_adapters_import_other_packages() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, check=True, cwd=ROOT)
    names = done.stdout.split()
    assert {
        "privcalc.cli",
        "privcalc.peers.compare",
        "privcalc.pictures",
        "privcalc.certificate.html",
        "privcalc.interop",
    } <= set(names)
    assert len(names) > 60


def test_importing_the_package_loads_what_is_used() -> None:
    """The package itself loads next to nothing, and a question only what answers it."""
    ask = "import sys, privcalc as pc; {}; print(sum(name.startswith('privcalc') for name in sys.modules))"
    for question, most in {"pass": 3, "pc.Gaussian(1.0).epsilon(delta=1e-5)": 80}.items():
        done = subprocess.run(
            [sys.executable, "-c", ask.format(question)], capture_output=True, text=True, check=True, cwd=ROOT
        )
        assert int(done.stdout) <= most
