"""One thread for each process of the tests; how tests, and examples on pages, check certificates.

``pytest -n auto`` has as many processes as cores, and threads of NumPy's and torch's would wait for each other.
Libraries read this when they are loaded, so that it is set here, before that, and passed on to the workers.
"""

import functools
import math
import os
from typing import Any

import pytest

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Processes take tests from each other at the end; before, neighbours, who share what is computed, stay close."""
    if config.option.__dict__.get("numprocesses") and config.option.dist == "no":
        config.option.dist = "worksteal"


@pytest.fixture
def checks_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates are checked in this process: to start another one takes longer than most checks."""
    from privcalc.certificate import verify

    in_time = verify.in_time
    # Nothing is stopped here; but no proof is gone on with for longer than some tests take.
    monkeypatch.setattr(verify, "verify", functools.partial(verify.verify, seconds=20.0))

    def here(*given: Any, **how: Any) -> tuple[str, ...]:
        return in_time(*given, **{**how, "seconds": math.inf})

    monkeypatch.setattr(verify, "in_time", here)


@pytest.fixture
def one_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """One claim of a certificate is proved, not all of them; every number is computed again even so."""
    from privcalc.certificate import proved
    from privcalc.proof import finite_claims

    if os.environ.get("PRIVCALC_SLOW") != "1":
        monkeypatch.setattr(proved, "finite_claims", lambda document: finite_claims(document)[:1])


@pytest.fixture(autouse=True)
def checks(checks_here: None, one_claim: None) -> None:
    """How tests check certificates on which they do not depend; those of checks themselves override this."""
