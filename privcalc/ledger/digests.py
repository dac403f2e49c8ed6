"""Public data by their digest, the private data set by a name: certificates name both.

See ``proofs/assumptions.md``, §5.

A digest fixes public data once and for all; of private data it would be a release that nobody accounts for.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from privcalc import errors
from privcalc.errors import Contradiction, PrivcalcError
from privcalc.serial import canonical

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAME = "privcalc digest 1"
NUMBERS = "biufc"
"""Kinds of NumPy numbers; a number of 16 bits that NumPy lacks is taken by its bits."""

LONGEST = 100
"""The most characters of a data set's name."""

SECRET = (
    "{path}: is secret: an earlier version wrote digests of generators' states into it (bits: …), by which whoever has "
    "the file can try seeds of the run's noise and batches. Show its certificate, and not the ledger"
)


def digest(value: object) -> str:
    """The SHA-256 of public data, the same on every machine and for every library that holds the same numbers.

    Arrays of numbers (NumPy, PyTorch, JAX) are taken by the name of their kind, their shape, and their bytes:
    little-endian, the last axis first; where they are, and in what layout, does not matter. Objects with a
    ``state_dict()`` are taken by it; mappings by their names, sorted, and values; lists and tuples by their items;
    texts, numbers and None by their JSON.

    Args:
        value: public data, never private: a digest of them can be tried out, and is the same if nothing has changed.

    Returns:
        64 hexadecimal digits.

    Raises:
        PrivcalcError: if it is, or contains, something else.

    Example:
        >>> import numpy as np
        >>> digest(np.zeros((2, 3), dtype=np.float32))[:16]
        '4805588217a70bbf'
        >>> digest({"w": [1.0, 2.0]}) == digest({"w": (1.0, 2.0)}) != digest({"w": np.array([1.0, 2.0])})
        True
    """
    hashed = hashlib.sha256()
    for part in _parts(value):
        hashed.update(part)
    return hashed.hexdigest()


def constants(public: object) -> Any:
    """Constants as a ledger writes them down: what is no JSON, by its digest and shape; a data set by its name.

    Raises:
        PrivcalcError: if public data have no digest, ``records`` is no number of them, or ``dataset`` is no name.
    """
    if not isinstance(public, Mapping):
        return public
    found = {name: _written(value) for name, value in public.items()}
    if "records" in public:
        found["records"] = errors.count("public['records']", public["records"], least=1)  # also of NumPy
    if "dataset" in public:
        _check_name(public["dataset"])
    return found


def same(parts: Sequence[Mapping[str, Any]], public: Mapping[str, object]) -> list[str]:
    """What is confirmed if these objects are the public data that certificates speak of.

    Args:
        parts: a certificate's document, or those of its parts.
        public: the objects, by the names they have in ``public`` of the certificate.

    Raises:
        Contradiction: if one is not what a certificate says.
        PrivcalcError: if no certificate names it.
    """
    if not isinstance(public, Mapping):
        raise PrivcalcError(f"public = {type(public).__name__}: must be an object: names with their values")
    found = []
    for name, value in public.items():
        said = [part["public"][name] for part in parts if name in part.get("public", {})]
        if not said:
            known = sorted({str(each) for part in parts for each in part.get("public", {})})
            raise PrivcalcError(
                f"public[{name!r}]: the certificate does not name it, only {', '.join(known) or 'nothing'}"
            )
        given = _written(value)
        for each in said:
            told = (
                isinstance(each, str) and not isinstance(value, str) and each == digest(value)
            )  # of data, digested by hand
            if not told and canonical(each) != canonical(given):
                raise Contradiction(
                    f"public[{name!r}]: the certificate says {str(each)[:200]}, given is {str(given)[:200]}"
                )
        found.append(f"public data {name!r} are those that were given")
    return found


def _written(value: object) -> object:
    """One constant, as it is written down."""
    if _shape(value) == () or not (_is_array(value) or hasattr(value, "state_dict") or _is_held(value)):
        return value  # is JSON, or is refused where all is written down
    try:
        canonical(value)
    except PrivcalcError:
        return {"sha256": digest(value), "of": _told(value)}
    return value


def _check_name(value: object) -> None:
    """Raise PrivcalcError unless it is a name, and none made of the data."""
    if not isinstance(value, str) or not value.isprintable() or value != value.strip() or not 0 < len(value) <= LONGEST:
        raise PrivcalcError(
            f"public['dataset']: must be a name that you give the private data set, of 1 to {LONGEST} printable "
            "characters; never the data, whose digest would be a release"
        )
    if re.search("[0-9a-fA-F]{32}", value.replace("-", "")):
        raise PrivcalcError(
            f"public['dataset'] = {value!r}: looks like a digest; one of private records is a release: it can be tried "
            "out, and shows who has the same. Give the data set a name, such as 'customers, export of May'"
        )


def _parts(value: object) -> Iterator[bytes]:
    """What is hashed: one line that says what follows, and of numbers their bytes."""
    if isinstance(value, (str, int, float)) or value is None:
        yield _line("value", value)
    elif _is_array(value):
        yield from _numbers(value)
    elif isinstance(value, (list, tuple)):
        yield _line("list", len(value))
        for item in value:
            yield from _parts(item)
    elif isinstance(value, Mapping):
        names = sorted(value, key=canonical)
        yield _line("mapping", names)
        for name in names:
            yield from _parts(value[name])
    elif callable(state := getattr(value, "state_dict", None)):
        yield from _parts(state())
    else:
        raise PrivcalcError(
            f"public data: have no digest where they are {type(value).__name__}; must be arrays of numbers, texts, or "
            "lists, "
            "mappings or state_dicts of them; of a table give {column: array}, of a data set its arrays"
        )


def _numbers(value: Any) -> Iterator[bytes]:
    kind, array = _array(value)
    if array.dtype.kind in "OUT":
        yield _line("items", list(array.shape))
        for item in array.ravel().tolist():
            yield from _parts(item)
        return
    yield _line("array", [kind, list(array.shape)])
    yield array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _array(value: Any) -> tuple[str, NDArray[Any]]:
    """The name of its kind of numbers, and they or their bits."""
    if errors.is_tensor(value):
        tensor = errors.dense("public data", value).cpu()
        kind = f"{tensor.dtype}".removeprefix("torch.")
        return kind, (tensor.view(tensor.new_zeros(()).short().dtype) if kind == "bfloat16" else tensor).numpy()
    array = errors.array("public data", value)
    if array.dtype.kind == "V" and array.dtype.name == "bfloat16":
        array = array.view("int16")
        return "bfloat16", array
    wide = array.dtype.kind in NUMBERS and (array.dtype.itemsize > 16 or array.dtype.char in "gG")
    if array.dtype.kind not in NUMBERS + "OUT" or wide:
        raise PrivcalcError(f"public data: have no digest as an array of {array.dtype}; must be of numbers or texts")
    return array.dtype.name, array


def _is_array(value: object) -> bool:
    """Whether it holds numbers, and has no columns of other kinds."""
    return errors.is_tensor(value) or (hasattr(value, "__array__") and not hasattr(value, "columns"))


def _is_held(value: object) -> bool:
    """Whether it has parts: a table has columns, and no digest, which is told."""
    return isinstance(value, (Mapping, list, tuple)) or hasattr(value, "columns")


def _shape(value: object) -> tuple[int, ...] | None:
    return tuple(value.shape) if _is_array(value) and hasattr(value, "shape") else None


def _told(value: object) -> str:
    """What the digest is of, for people."""
    if _is_array(value):
        kind, array = _array(value)
        return f"{'texts' if array.dtype.kind in 'OUT' else kind} {array.shape}"
    if isinstance(value, (Mapping, list, tuple)):
        return f"{len(value)} {'named values' if isinstance(value, Mapping) else 'values'}"
    state: Any = value
    return _told(state.state_dict())


def _line(kind: str, what: object) -> bytes:
    return f"{NAME}\n{canonical([kind, what])}\n".encode()


def secret(path: str) -> str | None:
    """What to say of a ledger's file that is an oracle for the noise of its run; None if it is none.

    Ledgers of earlier versions may have marks, digests of generators' states, by which seeds can be tried; no version
    writes them now.

    Args:
        path: of a ledger.

    Raises:
        PrivcalcError: if it does not fit its hashes.
    """
    from privcalc.log.file import read

    with read(path) as (entries, _):
        found = any(entry.get("type") == "marks" and "'bits:" in str(entry.get("digests")) for entry in entries)
    return SECRET.format(path=path) if found else None
