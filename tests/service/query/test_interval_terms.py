"""`duration` and the ends of an intersection within expressions are what they are as columns."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.schema import RelationDefinition, parse_relation
from service.errors import Problem
from service.tables.projection import Projection
from service.views.parse import parse_view

TYPES = ("int64", "date", "timestamp", "float64", "decimal")


def definition(type_: str, bounds: str) -> RelationDefinition:
    digits = {"precision": 9, "scale": 2} if type_ == "decimal" else {}
    ends = [{"name": name, "type": type_, "nullable": True, **digits} for name in "se"]
    intervals = {"i": {"start": "s", "end": "e", "bounds": bounds}}
    return parse_relation({"columns": [{"name": "id", "type": "int64"}, *ends], "key": ["id"], "intervals": intervals})


def batch(rng: random.Random, schema: pa.Schema, count: int) -> pa.RecordBatch:
    """Rows of intervals, some unbounded; and some absent, as an outer join leaves them."""
    starts = [rng.randrange(20) for _ in range(count)]
    ends = [start + rng.randrange(1, 15) for start in starts]
    columns = [list(range(count)), *([None if rng.random() < 0.2 else one for one in some] for some in (starts, ends))]
    types = [pa.int64() if pa.types.is_temporal(field.type) else field.type for field in schema]
    arrays = [pa.array(own, type_) for own, type_ in zip(columns, types, strict=True)]
    arrays = [one.cast(pa.int32()) if type_ == pa.date32() else one for one, type_ in zip(arrays, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays([one.cast(type_) for one, type_ in zip(arrays, schema.types, strict=True)], schema=schema)


@pytest.mark.parametrize("bounds", ["[)", "[]"])
@pytest.mark.parametrize("type_", TYPES)
def test_within_expressions_as_alone(type_: str, bounds: str) -> None:
    rng, count = random.Random(f"{type_}{bounds}"), 300
    definitions = {"x": definition(type_, "[)"), "y": definition(type_, bounds)}
    alone = "duration(x.i, y.i) AS d, intersection(x.i, y.i) AS c, duration(x.i) AS o"
    within = "coalesce(duration(x.i, y.i), NULL) AS d, coalesce(lower(intersection(x.i, y.i)), NULL) AS c_start"
    within += ", coalesce(upper(intersection(x.i, y.i)), NULL) AS c_end, nullif(duration(x.i), NULL) AS o"
    if type_ in ("float64", "decimal") and bounds == "[]":
        with pytest.raises(Problem, match="their bounds differ: select it alone"):
            parse_view("v", {"sql": f"SELECT {within} FROM x JOIN y ON x.id = y.id"}, definitions)
        return
    missing = np.array([rng.random() < 0.2 for _ in range(count)])
    parts = {name: batch(rng, one.arrow_schema(), count) for name, one in definitions.items()}
    gone = pa.array(missing)
    parts["y"] = pa.RecordBatch.from_arrays(
        [pa.compute.if_else(gone, pa.scalar(None, column.type), column) for column in parts["y"].columns], schema=pa.schema(
            [field.with_nullable(True) for field in parts["y"].schema])
    )  # fmt: skip

    def rows(selected: str) -> list[dict[str, Any]]:
        view = parse_view("v", {"sql": f"SELECT {selected} FROM x LEFT JOIN y ON overlaps(x.i, y.i)"}, definitions)
        found: list[dict[str, Any]] = Projection(view.query, definitions).rows(parts, {"y": missing}).to_pylist()
        return found

    empty = 0
    for one, other in zip(rows(alone), rows(within), strict=True):
        if one["d"] is not None and one["d"] < 0:  # of floats and decimals that do not meet
            empty, one["d"] = empty + 1, None
        assert one == other
    assert empty == 0 or type_ in ("float64", "decimal")
