"""Names that are nearly those of other budgets: one that was mistyped would have a cap of its own, and count nothing else."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

from privcalc.budget.sqlite import SQLite
from privcalc.budget.store import Store, Transaction
from privcalc.errors import warn

__all__ = ["check_file", "check_names", "listed", "names"]


def names(sql: Transaction) -> list[str]:
    """Of all data sets that have a budget in this store."""
    return [name for (name,) in sql.rows("SELECT dataset FROM privcalc_heads ORDER BY dataset")]


def listed(others: list[str]) -> str:
    """At most ten of them, for people."""
    return ", ".join(map(repr, others[:10])) + (", …" if len(others) > 10 else "") if others else "no data set"


def check_names(dataset: str, others: Iterable[str]) -> None:
    """Warn where a data set's new budget is called nearly as one that is there."""
    if near := _near(dataset, others):
        warn(
            f"dataset = {dataset!r}: a new budget was made, and the store has one of {listed(near)}: if these are the same "
            "records, or have persons in common, what is charged to one is not counted by the other; open the one that is there, "
            "Budget(url, dataset=...)"
        )


def check_file(store: Store) -> None:
    """Warn where a new file is made beside one that is called nearly so."""
    if isinstance(store, SQLite) and not store.path.exists():
        files = [each.name for each in store.path.parent.glob(f"*{store.path.suffix}") if each.is_file()]
        if near := [name for name in _near(store.path.name, files) if _is_store(store.path.parent / name)]:
            warn(
                f"url = {store.url!r}: a new store is made beside {listed(near)}: a data set that has a budget there would have "
                "a second one here, which counts nothing of the first"
            )


def _near(name: str, others: Iterable[str]) -> list[str]:
    plain = {other: _plain(other) for other in others if other != name}
    close = difflib.get_close_matches(_plain(name), plain.values(), n=10, cutoff=0.75)
    return [other for other, text in plain.items() if text in close]


def _plain(name: str) -> str:
    """Letters and numbers alone."""
    return "".join(each for each in name.casefold() if each.isalnum())


def _is_store(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(15) == b"SQLite format 3"
    except OSError:
        return False
