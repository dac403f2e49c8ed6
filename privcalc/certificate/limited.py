"""A check that ends: in an interpreter of its own, which is stopped after some seconds, and has a limit of memory.

Why a process: a thread cannot be stopped, a signal is heard by the main thread only and between two steps of Python,
and neither limits memory. Why a fresh one: a fork copies the locks that other threads hold (of BLAS, torch, JAX) and
may wait for them for ever, and multiprocessing's ``spawn`` runs the caller's main program again. It costs half a
second.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from privcalc import errors
from privcalc.errors import Contradiction, NotConfirmed

try:
    import resource
except ImportError:  # pragma: no cover
    resource = None  # type: ignore[assignment]

__all__ = ["verify"]

MEMORY = 4 << 30
"""Bytes of address space, where the system limits it.

Windows cannot and macOS ignores it: there only the seconds are limited.
"""

ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "VECLIB_MAXIMUM", "NUMEXPR")}
"""Each thread of a linear algebra library reserves address space, and none of them has much to do here."""

PROGRAM = "from privcalc.certificate.limited import main; main()"


def verify(
    document: Mapping[str, Any], given: Sequence[str | list[str]] = (), *, seconds: float, rigorous: bool = False
) -> tuple[str, ...]:
    """Check a certificate (:func:`privcalc.certificate.verify.verify`) within limits of time and memory.

    Args:
        document: the certificate.
        given: ledgers, as paths or lines.
        seconds: most seconds it may take, > 0; at ∞ it runs in this process, without any limit.
        rigorous: whether every claim of ε must be proved; what is done goes to standard error.

    Raises:
        Contradiction: if something is wrong.
        NotConfirmed: if nothing was found wrong within the limits, and not all was confirmed either.
    """
    limit = errors.real("seconds", seconds, "a number > 0 (inf: no limit)", low=0.0, high=math.inf, open_low=True)
    if limit == math.inf:
        from privcalc.certificate.verify import verify as check

        return check(document, given, rigorous=rigorous)
    folders = dict.fromkeys([str(Path(__file__).resolve().parents[2]), *filter(None, sys.path)])
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", PROGRAM],
            input=json.dumps([dict(document), list(given), limit, rigorous]).encode(),
            stdout=subprocess.PIPE,
            stderr=None if rigorous else subprocess.DEVNULL,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(folders)},
            timeout=limit,
            check=False,
        )
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise NotConfirmed(
            f"seconds = {limit:g}: were not enough to check everything; nothing was found wrong. Give more"
        ) from None
    except ValueError:
        raise NotConfirmed(f"the system ended the check (status {done.returncode}); nothing was found wrong") from None
    if "wrong" in answer:
        raise Contradiction(answer["wrong"])
    if "unconfirmed" in answer:
        raise NotConfirmed(answer["unconfirmed"])
    return tuple(answer["confirmed"])


def main() -> None:
    """The other process: a question on standard input, the answer on standard output."""
    from privcalc.certificate.verify import verify as check

    document, given, seconds, rigorous = json.load(sys.stdin.buffer)
    _limit(seconds)
    try:
        answer: dict[str, Any] = {"confirmed": check(document, given, rigorous=rigorous, seconds=seconds)}
    except NotConfirmed as error:
        answer = {"unconfirmed": str(error)}
    except Contradiction as error:
        answer = {"wrong": str(error)}
    except MemoryError:
        answer = {
            "unconfirmed": f"{MEMORY >> 30} GiB of memory were not enough to check everything; nothing was found wrong"
        }
    except Exception as error:
        answer = {"unconfirmed": f"the check failed: {error!r}"}
    sys.stdout.write(json.dumps(answer))


def _limit(seconds: float) -> None:
    """Also of processor time, should the process that started this one be gone before it can end it."""
    if resource is None:  # pragma: no cover
        return
    for kind, most in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CPU, math.ceil(seconds) + 1)):
        hard = resource.getrlimit(kind)[1]
        with contextlib.suppress(ValueError, OSError):  # a limit that the system does not have
            resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
