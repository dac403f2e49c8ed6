"""One accountant in a process of its own, asked by the benchmark: ``python -m benchmarks.accountants.worker NAME``.

The process imports the accountant once and then forks for every question, so that nothing is remembered between
questions, peak memory is that of one question, and a hang or a crash ends that question alone. Lines of JSON in, lines
of JSON out.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import math
import os
import resource
import select
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.special import ndtr
from scipy.stats import binom

import privcalc as pc
from benchmarks.accountants.cases import Case, cases
from privcalc.enclosure import Enclosure
from privcalc.errors import PrivcalcError
from privcalc.numerics.floats import Floats
from privcalc.peers import PEERS, Question

Json = dict[str, Any]
OURS, TRUTH = "privcalc", "truth"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS")
REPEATS, PATIENCE, MEMORY = (
    1000,
    0.1,
    8 << 30,
)  # warm calls at most; seconds for them; bytes that one question may allocate
BINS = 2000
MARGINS = (0.0, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2)


# --- our own answers, and the truth ---------------------------------------------------------------


def ours(question: Question) -> Json:
    """Our answer, with both ends."""
    run, relation = question.run, question.relation
    if question.asks == "sigma":
        return {"value": noise(question)}
    found: Enclosure
    if question.asks == "advantage":
        found = run.advantage(relation=relation)
    elif question.asks == "power":
        beta = run.beta(alpha=0.01, relation=relation)
        return {"value": 1 - beta.lower, "lower": 1 - beta.upper, "remark": beta.route}
    else:
        found = run.epsilon(delta=question.delta, relation=relation, group_size=question.group_size)
    return {"value": found.upper, "lower": found.lower, "remark": found.route}


def noise(question: Question) -> float:
    """The noise multiplier for the target."""
    ((step, count),) = question.run.entries
    rate = step.rate if isinstance(step, pc.PoissonSampled) else 1.0
    return pc.noise_multiplier(epsilon=question.target, delta=question.delta, sample_rate=rate, steps=count)


def truth(question: Question) -> Json:
    """An interval that has the right answer: both ends proved by ball arithmetic, else our engine's own."""
    if question.group_size > 1:
        return group_truth(question)
    found = ours(question)
    high: float = found["value"]
    low: float = found.get("lower", high)
    if question.asks == "power":
        return {"low": low, "high": high, "source": "engine"}
    start = time.process_time()
    top, bottom = math.inf, 0.0 if low == 0 else -math.inf
    for margin in MARGINS:
        verdict = decided(question, high * (1 + margin))
        if verdict == "proved":
            top = high * (1 + margin)
            break
        if verdict == "refuted":  # our answer is false
            bottom = high * (1 + margin)
    for margin in MARGINS if bottom < low else ():
        if decided(question, low * (1 - margin)) == "refuted":
            bottom = low * (1 - margin)
            break
    if -math.inf < bottom <= top < math.inf:
        return {"low": bottom, "high": top, "source": "proved", "seconds": time.process_time() - start}
    return {"low": max(low, bottom), "high": max(high, bottom), "source": "engine"}


def masses(ends: Floats) -> Floats:
    """Of a standard normal number between neighbouring ends, in both tails with all digits."""
    low, high = ends[..., :-1], ends[..., 1:]
    return np.asarray(np.where(high <= 0, ndtr(high) - ndtr(low), ndtr(-low) - ndtr(-high)))


def group_truth(question: Question) -> Json:
    """Records that move a sum the same way: unsampled, one of k times the norm; sampled, binomially many of them.

    The second pair has no route of its own. Its outcomes in bins are a post-processing of it, and so give a lower end.
    """
    k, run = question.group_size, question.run
    larger = [_larger(mechanism, k) for mechanism, _ in run.entries]
    if all(found is not None for found in larger):
        uses = zip(larger, run.entries, strict=True)
        one = pc.Run(tuple((found[0], found[1] * count) for found, (_, count) in uses if found is not None))
        return truth(dataclasses.replace(question, run=one, group_size=1))
    (step, count), *others = run.entries
    if others or not (isinstance(step, pc.PoissonSampled) and isinstance(step.mechanism, pc.Gaussian)):
        found = ours(question)
        return {"low": found["lower"], "high": found["value"], "source": "engine"}
    ends = np.linspace(-6.0, k + 6.0, BINS + 1) * max(step.mechanism.noise_multiplier, 1.0)
    ends[[0, -1]] = -math.inf, math.inf
    mass = masses((ends - np.arange(k + 1)[:, None]) / step.mechanism.noise_multiplier)
    there = binom.pmf(np.arange(k + 1), k, step.rate) @ mass
    least = (pc.CustomMechanism.from_probabilities(there, mass[0]) * count).epsilon(delta=question.delta).lower
    return {"low": least, "high": ours(question)["value"], "source": "engine"}


def _larger(mechanism: pc.Mechanism, factor: int) -> tuple[pc.Mechanism, int] | None:
    """What one record releases that is the group, and how often; None where that is none, or no double has its noise.

    Of sums, one of ``factor`` times the norm; of utilities, one that moves them so much more; of reports, one each.
    """
    if isinstance(mechanism, pc.Gaussian | pc.Laplace):
        noise = mechanism.scale if isinstance(mechanism, pc.Laplace) else mechanism.noise_multiplier
        exact = Fraction(noise / factor) * factor == Fraction(noise)
        return (type(mechanism)(noise / factor), 1) if exact else None
    if isinstance(mechanism, pc.ExponentialMechanism):
        exact = Fraction(mechanism.level * factor) == Fraction(mechanism.level) * factor
        return (pc.ExponentialMechanism(mechanism.level * factor, monotone=mechanism.monotone), 1) if exact else None
    if isinstance(mechanism, pc.RandomizedResponse):
        return mechanism, factor
    return None


def decided(question: Question, value: float) -> str:
    """What ball arithmetic says of an answer (an ε, advantage or noise multiplier); "refuted" if it is too small."""
    run, epsilon, delta = question.run, value, question.delta
    if question.asks == "advantage":
        epsilon, delta = 0.0, value
    elif question.asks == "sigma":
        ((step, count),) = run.entries
        assert isinstance(step, pc.PoissonSampled)
        run, epsilon = pc.PoissonSampled(pc.Gaussian(value), step.rate) * count, question.target
    return pc.prove(run, epsilon=epsilon, delta=delta, relation=question.relation).verdict


# --- asking one question in a child ---------------------------------------------------------------


def load(name: str) -> Callable[[Question], Json]:
    """How to ask; imports the accountant."""
    if name in {OURS, TRUTH}:
        return ours if name == OURS else truth
    peer = PEERS[name]
    ask = peer.load()

    def answer(question: Question) -> Json:
        if question.group_size > 1 and not peer.groups:
            raise PrivcalcError("it has no question about groups of records")
        value, relation, remark = ask(question)
        if relation is not question.relation:
            raise PrivcalcError(f"its answer is for {relation}, not {question.relation}")
        return {"value": value, "relation": str(relation), "remark": remark}

    return answer


def measured(ask: Callable[[Question], Json], question: Question, repeats: int) -> Json:
    """The answer, processor seconds of the first call and the mean of more, and the peak memory.

    The processor's clock may tick only every few milliseconds: short calls are repeated until they have taken a while
    together.
    """
    start = time.process_time()
    found = ask(question)
    first = end = time.process_time()
    calls = 0
    while calls < repeats and end - start < PATIENCE:
        ask(question)
        calls, end = calls + 1, time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    warm = (end - first) / calls if calls else first - start
    return {**found, "first": first - start, "warm": warm, "calls": calls + 1, "memory": peak}


def in_child(action: Callable[[], Json], limit: float) -> Json:
    """A forked process's answer, or why none; it ends after ``limit`` processor seconds, or ten times that asleep."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        try:
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), math.ceil(limit) + 1))
            try:
                found = action()
            except PrivcalcError as error:
                found = {"cannot": text(error)}
            except Exception as error:  # a peer may raise anything
                found = {"failed": f"{type(error).__name__}: {text(error)}"}
            os.write(writer, json.dumps(found).encode())
        finally:
            os._exit(0)
    os.close(writer)
    data, end = b"", time.monotonic() + 10 * limit
    while select.select([reader], [], [], max(0.0, end - time.monotonic()))[0]:
        part = os.read(reader, 65536)
        if not part:
            break
        data += part
    else:
        os.kill(child, signal.SIGKILL)
    os.close(reader)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if data:
        return json.loads(data)  # type: ignore[no-any-return]
    if status in {-signal.SIGXCPU, -signal.SIGKILL}:
        return {"failed": f"more than {limit:g} s", "late": True}
    return {"failed": f"the process ended (exit status {status})"}


def text(error: BaseException) -> str:
    """One short line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def main() -> int:
    """Serve questions until standard input ends."""
    name, known = sys.argv[1], {case.key: case for case in cases()}
    wire = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # peers may print
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    try:
        ask = load(name)
    except Exception as error:  # an import may fail in any way
        print(json.dumps({"missing": f"{type(error).__name__}: {text(error)}"}), file=wire, flush=True)
        return 1
    print(json.dumps({"ready": name}), file=wire, flush=True)
    repeats = 0 if name == TRUTH or (name in PEERS and PEERS[name].remembers) else REPEATS
    for line in sys.stdin:
        job = json.loads(line)
        question = known[job["case"]].question
        found = in_child(functools.partial(measured, ask, question, repeats), job["limit"])
        print(json.dumps(found), file=wire, flush=True)
    return 0


class Worker:
    """The other end: starts the process and asks it."""

    def __init__(self, name: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.accountants.worker", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | dict.fromkeys(THREADS, "1"),
        )
        self.missing: str = self._read().get("missing", "")

    def _read(self) -> Json:
        assert self._process.stdout
        line = self._process.stdout.readline()
        found: Json = json.loads(line) if line else {"missing": "the process ended", "failed": "the process ended"}
        return {k: repr(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in found.items()}

    def ask(self, case: Case, limit: float) -> Json:
        """Put one case to it."""
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps({"case": case.key, "limit": limit}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return {"failed": "the process ended"}
        return self._read()

    def close(self) -> None:
        """End it."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


if __name__ == "__main__":
    sys.exit(main())
