"""One question, one answer: every engine returns the whole numbers that a loop over the rows finds."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from cases import SLOW
from hypothesis import given, settings
from hypothesis import strategies as st
from test_queries import CHOICE, Bare

import privcalc as pc

NOISE = pc.Gaussian(1.0)
GROUPS = {"by": ["N", "é", " S"], "n": [3, -1, 0]}
BLANKS = ["", " ", "\u00a0\u2003", None]
GRID = [-1.0, 0.0, 0.5, 2.0]


def pandas(rows):
    return pytest.importorskip("pandas").DataFrame(rows)


def polars(rows):
    kinds = {"x": float, "who": str, "id": int, "by": str, "n": int, "day": int}
    return pytest.importorskip("polars").DataFrame(rows, schema=kinds)


def arrow(rows):
    return polars(rows).to_arrow()


def lazy(rows):
    return polars(rows).lazy()


def duck(rows):
    duckdb = pytest.importorskip("duckdb")
    connection, table = duckdb.connect(), arrow(rows)
    connection.register("t", table)
    return connection.table("t")


def dask(rows):
    return pytest.importorskip("dask.dataframe").from_pandas(pandas(polars(rows).to_dict(as_series=False)), 2)


@functools.cache
def spark_session():
    sql = pytest.importorskip("pyspark.sql")
    return sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()


def spark(rows):
    table = polars(rows)
    return spark_session().createDataFrame(table.rows(), schema="x double, who string, id long, by string, n long, day long")


ENGINES = [pandas, polars, arrow, lazy, duck]
FLOATS = st.floats(-3, 3) | st.sampled_from([None, math.nan, math.inf, -math.inf, 1e308, 5e-324, -0.0, 0.1, 2.0, 0.5])
ROWS = st.fixed_dictionaries(
    {
        "x": FLOATS,
        "who": st.sampled_from(["ann", "Ann", "ann ", "a\u0301", "á", *BLANKS]),
        "id": st.sampled_from([7, -7, 2**62, 2**53, 2**53 + 1, 0, None]),
        "by": st.sampled_from(["N", "n", "é", " S", "S", "e\u0301", "", None]),
        "n": st.sampled_from([3, -1, 0, 2, None]),
        "day": st.sampled_from([1, 2, 2**60, None]),
    }
)


def clean(x):
    return x is not None and not math.isnan(x)


def taken(rows, person, most, by, numbers):
    """The rows that count, one after another: of each person the first by day, and by what is asked where days tie."""
    if person is None:
        return [row for row in rows if (not numbers or clean(row["x"])) and (by is None or row[by] in GROUPS[by])]
    persons = {}
    for row in rows:
        if row[person] not in BLANKS:
            persons.setdefault(row[person], []).append(row)
    found = []
    for mine in persons.values():
        for row in mine:
            row["out"] = (numbers and not clean(row["x"])) or (by is not None and row[by] not in GROUPS[by])
            day = (row["day"] is None, row["day"] or 0, row["out"])
            asked = ((row[by],) if by else ()) + ((place_of(row["x"]), row["x"]) if numbers else ())
            row["first"] = day if row["out"] else (*day, *asked)
        found += [row for row in sorted(mine, key=lambda row: row["first"])[:most] if not row["out"]]
    return found


def place_of(x):
    return 0


@settings(max_examples=60 if SLOW else 15, deadline=None)
@given(st.lists(ROWS, max_size=12), st.sampled_from([None, "who", "id"]), st.sampled_from([None, "by", "n"]), st.integers(1, 3))
def test_every_engine_finds_what_a_loop_finds(rows, person, by, most):
    groups = [None] if by is None else GROUPS[by]
    options = {"rows_per_person": most, "person": person} | ({"by": by, "groups": groups} if by else {})
    options |= {"order": "day"} if person else {}
    low, high, step = -1.0, 2.0, 2.0**-49
    columns = {name: [row[name] for row in rows] for name in ("x", "who", "id", "by", "n", "day")}

    def split(numbers):
        found = taken(rows, person, most, by, numbers)
        return [[row["x"] for row in found if by is None or row[by] == group] for group in groups]

    places = [[math.floor(min(max(x, low), high) / step + 0.5) for x in part] for part in split(True)]
    sums = [float(Fraction(sum(part)) * Fraction(step)) for part in places]
    for engine in ENGINES:
        table, bare = engine(columns), Bare()
        bare.count(table, NOISE, **options)
        assert bare.values.tolist() == [len(part) for part in split(False)], engine
        bare.sum(table, NOISE, column="x", lower=low, upper=high, **options)
        assert bare.values.tolist() == sums, engine
