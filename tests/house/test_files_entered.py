"""How many files a reader must know who follows a number from its release to its check."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

MOST = 42
"""Our files in which a function is called from the ledger's end to the last line of ``verify``; it is to fall to 35."""

FOLLOWED = """
import importlib, inspect, math, pkgutil, sys
import privcalc as pc

EXTRAS = "privcalc.interop.", "privcalc.signatures", "privcalc.log.postgresql", "privcalc.pictures"
for module in pkgutil.walk_packages(pc.__path__, "privcalc."):
    if not module.name.startswith(EXTRAS) and not module.name.endswith("__main__"):
        importlib.import_module(module.name)  # what runs when a file is imported is not counted
noise = pc.Gaussian(noise_multiplier=10.0)
with pc.Ledger(None, plan=noise) as ledger:
    ledger.mean([1.0, 2.0, 3.0], noise, lower=0.0, upper=5.0, rows_per_person=1)
path, entered = sys.argv[1], set()
sys.setprofile(lambda frame, event, _: entered.add(frame.f_code.co_filename) if event == "call" else None)
pc.certify(ledger, delta=1e-5).save(path)
said = pc.Certificate.load(path).verify(ledger, seconds=math.inf)
sys.setprofile(None)
assert said[0].startswith("VERIFIED"), said
print(*sorted(name for name in entered if name.startswith(pc.__path__[0])), sep="\\n")
"""


def test_from_the_ledger_to_the_verdict_at_most_so_many_files_are_entered(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FOLLOWED, str(tmp_path / "cert.json")],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    entered = done.stdout.split()
    assert any(name.endswith("rigorous/proof.py") for name in entered)
    assert any(name.endswith("ledger/book.py") for name in entered)
    assert len(entered) <= MOST, "\n".join(entered)
