"""Check a certificate again: its hash, its logic, its numbers, its ledgers; and a check that ends.

ε is proved in ball arithmetic, where that is decided in time (``proved.py``).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from privcalc import errors
from privcalc.certificate.assumed import private
from privcalc.certificate.consistency import check, contradicted, of_part, same_listing
from privcalc.certificate.proved import decided, within
from privcalc.certificate.schema import NOISE, void
from privcalc.certificate.story import claims, of_given
from privcalc.errors import Contradiction, NotConfirmed, PrivcalcError
from privcalc.ledger.terms import Terms, filter_of
from privcalc.relation import Relation
from privcalc.run import Run
from privcalc.serial import Json, canonical, run_from_json, run_to_json, target_from_json

try:
    import resource
except ImportError:  # pragma: no cover
    resource = None  # type: ignore[assignment]

__all__ = ["fits", "in_time", "verify"]

SAME = (
    *("version", "basis", "status", "relation", "unit", "public", "assumptions", "not_accounted", "stopping"),
    *("run", "recorded", "declared", "target", "seeded", "noise", "releases", "ledgers"),
)
"""What a certificate and its ledger must agree on."""

MEMORY = 4 << 30
"""Bytes of address space, where the system limits it.

Windows cannot and macOS ignores it: there only the seconds are limited.
"""

ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "VECLIB_MAXIMUM", "NUMEXPR")}
"""Each thread of a linear algebra library reserves address space, and none of them has much to do here."""

PROGRAM = "from privcalc.certificate.verify import main; main()"


def verify(
    document: Mapping[str, Any],
    given: Sequence[str | list[str]] = (),
    *,
    rigorous: bool = False,
    seconds: float = math.inf,
) -> tuple[str, ...]:
    """What could be confirmed, the verdict first; see :meth:`Certificate.verify`.

    Args:
        document: the certificate.
        given: the ledgers and descriptions it was made from, as paths, or the lines of one in memory.
        rigorous: whether a claim of ε that cannot be decided in ball arithmetic is an error.
        seconds: how long all this may take; it is not stopped then, but no proof is begun.

    Raises:
        Contradiction: with whatever is wrong.
        NotConfirmed: if it cannot be told.
    """
    progress = within(seconds, show=rigorous)
    fits(document)
    with contradicted():
        # Ledgers first: they are read quickly, and may show what is wrong before the numbers take their time.
        ledgers = _ledgers(document, given)
        return decided(document, ledgers, progress, engine=_numbers, rigorous=rigorous)


def fits(document: Mapping[str, Any]) -> None:
    """Check all of a certificate but its numbers, and that no filter passed its cap.

    Raises:
        Contradiction: with the reason.
        NotConfirmed: as :func:`privcalc.certificate.consistency.check`.
    """
    check(document)
    with contradicted():
        for number, part in enumerate(document["parts"] or [document]):
            if part["basis"] == "cap":
                cap, recorded = run_from_json(part["run"]), run_from_json(part["recorded"])
                with of_part(number) if document["parts"] else contextlib.nullcontext():
                    if filter_of(cap.entries[0][0]).would_exceed(recorded):
                        raise PrivcalcError(f"recorded: {recorded} is more than the cap {cap}")


def _numbers(document: Mapping[str, Any], run: Run, relation: Relation) -> tuple[Json, list[str]]:
    """Every number, computed again by the engine; and whether a target is met."""
    delta, found = document["guarantee"]["delta"], list[str]()
    fresh = void(delta) if private(document["assumptions"]) else claims(run, relation, delta)
    if document["target"] is not None:
        target = target_from_json(document["target"], relation)
        Terms(relation, document["unit"], run, None, target, {}, (), False).check_target()
        found.append(f"the target {target} is met")
    return fresh, [*found, "every number was computed again, and none is smaller than what the engine shows"]


def _ledgers(document: Mapping[str, Any], given: Sequence[str | list[str]]) -> list[str]:
    """Match the ledgers given to parts: each to another one; every part that names a ledger must have it."""
    composed = document["basis"] == "composed"
    left = dict(enumerate(document["parts"] if composed else [document]))
    for source in given:
        stories = {version: of_given(source, version) for version in {part["version"] for part in left.values()}}
        unlike = {number: list(_unlike(part, stories[part["version"]])) for number, part in left.items()}
        fits = [number for number, found in unlike.items() if not found]
        near = [number for number in left if not composed or "ledgers" not in unlike[number]]
        if not fits + near:
            raise PrivcalcError(
                f"ledger: {source if isinstance(source, str) else 'one'} is that of no part that is left"
            )
        number = (fits + near)[0]
        part = left.pop(number)
        with of_part(number) if composed else contextlib.nullcontext():
            for name in unlike[number]:
                said, told = (
                    repr(each[name]) if name in each else "nothing" for each in (part, stories[part["version"]])
                )
                raise PrivcalcError(
                    f"{name}: the certificate says {said}, its ledger {told}; if the ledger was gone on with since, "
                    "certify it again"
                )
    for number, part in left.items():
        if given and part["ledgers"]:
            raise PrivcalcError(f"part {number + 1}: its ledger, of hash {part['ledgers'][0]['hash']}, was not given")
    if given and composed:
        return ["every ledger given is that of a part, and every ledger that a part names was given"]
    kind = "ledger" if document["ledgers"] else "description"
    return [f"the {kind} is whole, says the same, and charges no more than it may"] * bool(given)


def _unlike(part: Mapping[str, Any], story: Mapping[str, Any]) -> Iterator[str]:
    """Where a certificate says something else than its ledger, as its version says it; also by the type of a number."""
    for name in SAME:
        one: Any = part.get(name, NOISE[0]) if name == "noise" else part.get(name)
        two: Any = story.get(name)
        if name in ("run", "recorded", "declared") and one is not None and two is not None:
            one, two = run_to_json(run_from_json(one)), run_to_json(run_from_json(two))
        elif name == "assumptions":
            one, two = same_listing(one, two, story["version"]), True
        elif name == "ledgers" and story["version"] == 2:  # certificates of version 2 did not name budgets
            two = [
                {key: value for key, value in found.items() if key != "budget" or "budget" in one[0]} for found in two
            ]
        if canonical(one) != canonical(two):
            yield name


def in_time(
    document: Mapping[str, Any], given: Sequence[str | list[str]] = (), *, seconds: float, rigorous: bool = False
) -> tuple[str, ...]:
    """Check a certificate within limits of time and memory: in an interpreter of its own, which is stopped.

    Why a process: a thread cannot be stopped, a signal is heard by the main thread only and between two steps of
    Python, and neither limits memory. Why a fresh one: a fork copies the locks that other threads hold (of BLAS, torch,
    JAX) and may wait for them for ever, and multiprocessing's ``spawn`` runs the caller's main program again. It costs
    half a second.

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
        return verify(document, given, rigorous=rigorous)
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
    document, given, seconds, rigorous = json.load(sys.stdin.buffer)
    _limit(seconds)
    try:
        answer: dict[str, Any] = {"confirmed": verify(document, given, rigorous=rigorous, seconds=seconds)}
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
