"""Which store a URL names."""

from __future__ import annotations

from privcalc.budget.sqlite import SQLite
from privcalc.budget.store import Store
from privcalc.errors import PrivcalcError
from privcalc.files import named

__all__ = ["connect"]


def connect(url: object) -> Store:
    """The store of a URL; nothing is asked yet.

    Args:
        url: ``sqlite:///FILE``, the path of a file, or ``postgresql://…`` (needs the extra ``postgresql``).

    Raises:
        PrivcalcError: for other databases, or if psycopg is missing.
    """
    text = str(named(url, name="url")) if not isinstance(url, str) else url
    scheme, separator, rest = text.partition("://")
    if scheme in {"postgresql", "postgres"} and separator:
        try:
            from privcalc.budget.postgresql import PostgreSQL
        except ImportError as error:
            raise PrivcalcError(f"url: {scheme} needs psycopg; install privcalc[postgresql]") from error
        return PostgreSQL(text)
    if separator and scheme != "sqlite":
        raise PrivcalcError(f"url = {scheme + separator!r}…: must be a file, sqlite:/// with a file, or postgresql://")
    return SQLite(rest.removeprefix("/") if separator else text)
