"""Files of earlier versions, which have digests of generators' states: they are read, and said to be secret."""

from __future__ import annotations

from pathlib import Path

import pytest

import privcalc as pc
from privcalc.cli import main

STEP = pc.Gaussian(noise_multiplier=20.0)


def written(path: Path, *digests: str) -> None:
    """A ledger, as an earlier version wrote it, and its certificate."""
    with pc.Ledger(path, plan=STEP * 2) as ledger:
        ledger.record(STEP)
        if digests:
            ledger.journal.append({"type": "marks", "digests": list(digests)})
    pc.certify(path, delta=1e-5).save(path.with_suffix(".json"))


@pytest.mark.parametrize(
    ("digests", "secret"),
    [((), False), (("weights:" + 32 * "a",), False), (("weights:" + 32 * "a", "bits:" + 32 * "b"), True)],
)
def test_a_file_with_digests_of_generators_is_said_to_be_secret(
    digests: tuple[str, ...], secret: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.jsonl"
    written(path, *digests)
    assert main(["verify", str(path.with_suffix(".json")), str(path)]) == 0
    assert ("run.jsonl: is secret" in capsys.readouterr().out) is secret
    assert main(["show", str(path)]) == 2
    told = capsys.readouterr().err
    assert ("run.jsonl: is secret" in told) is secret
    assert "is a ledger" in told or secret
    assert main(["show", str(path.with_suffix(".json"))]) == 0


def test_a_file_that_has_some_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    ledger = pc.Ledger(path, plan=STEP * 2)
    ledger.record(STEP)
    ledger.journal.append({"type": "marks", "digests": ["bits:" + 32 * "b"]})
    ledger.pause()
    with pc.Ledger(path, plan=STEP * 2) as again:
        again.record(STEP)
    assert pc.certify(path, delta=1e-5).verify(path)
    assert path.read_text().count("digests") == 1
