"""Repeatable by default; PRIVCALC_SLOW=1 takes the system's random bits and forty times as many examples. Fixtures."""

from __future__ import annotations

import functools
import os
import random
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings

import privcalc as pc
from privcalc.certificate import certificate
from privcalc.noise import Noise
from privcalc.noise.bits import SecureBits, SeededBits
from privcalc.questions import Questions

sys.path.insert(0, str(Path(__file__).parent))  # so that tests find strategies.py under any import mode

from cases import SLOW

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much]}
settings.register_profile("fast", max_examples=8, derandomize=True, phases=[Phase.explicit, Phase.generate], **_COMMON)
settings.register_profile("slow", max_examples=300, **_COMMON)
settings.load_profile("slow" if SLOW else "fast")


@pytest.fixture(autouse=True)
def repeatable(request, monkeypatch):
    """Noise, coins and seeds that no test gives are those of its name; a process that it forks has the system's."""
    if SLOW:
        return
    seed, process = zlib.crc32(request.node.nodeid.encode()), os.getpid()
    source, words, bits = SeededBits(seed), SecureBits.words, random.SystemRandom.getrandbits

    def ours():
        return os.getpid() == process

    monkeypatch.setattr(SecureBits, "words", lambda self, size: source.words(size) if ours() else words(self, size))
    monkeypatch.setattr(
        random.SystemRandom, "getrandbits", lambda self, k: source.integers.getrandbits(k) if ours() else bits(self, k)
    )
    monkeypatch.setattr(random.SystemRandom, "random", lambda self: self.getrandbits(53) / 2**53)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(2**40 + seed)


@pytest.fixture
def uncertified(monkeypatch):
    """No certificate is made, which may take a while."""
    monkeypatch.setattr(pc, "certify", lambda *_, **__: None)


@pytest.fixture
def unnumbered(monkeypatch):
    """Certificates have the numbers of another run, as those of their own may take a while."""
    names = ("guarantee", "curve", "gdp", "advantage", "beta")
    document = pc.certify(pc.Gaussian(20.0), delta=0.1).document
    monkeypatch.setattr(certificate, "claims", lambda *_: {name: document[name] for name in names})


@pytest.fixture
def asked_once(monkeypatch):
    """Equal runs asked the same question are answered once: for those who compare who asks, and what is asked."""
    for name in ("epsilon", "delta"):
        question = functools.cache(getattr(Questions, name))
        monkeypatch.setattr(Questions, name, lambda self, question=question, **asked: question(self.run, **asked))


@pytest.fixture
def silent(monkeypatch, uncertified):
    """No noise, from a seed."""
    monkeypatch.setattr(Noise, "normal", lambda self, size, scale: np.zeros(size, dtype=np.int64))


def pytest_sessionfinish(session, exitstatus):
    """Where it is asked for, a skipped test is a failure: what was to be checked was not."""
    report = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("PRIVCALC_NO_SKIPS") == "1" and exitstatus == 0 and report and report.stats.get("skipped"):
        session.exitstatus = 1
