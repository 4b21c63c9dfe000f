"""`livejoin check` of views that number equal rows in the order of keys, which its brute force does not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.checking.comparison import agrees
from tests.service.running import batch, rows_of, running


@pytest.mark.parametrize("operation", ["EXCEPT ALL", "INTERSECT ALL"])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("SELECT a.id / 3 AS k FROM a", "SELECT b.id / 4 FROM b"),
        ("SELECT b.id / 3 AS k FROM a LEFT JOIN b ON a.id = b.id", "SELECT b.id / 4 FROM b"),
        ("(SELECT a.id / 3 AS k FROM a EXCEPT ALL SELECT b.id / 4 FROM b)", "SELECT a.id FROM a"),
        ("SELECT count(*) AS n FROM a GROUP BY a.id < 4", "SELECT count(*) AS n FROM b GROUP BY b.id / 4"),
        ("SELECT count(*) AS n FROM a GROUP BY a.id::text", "SELECT count(*) AS n FROM b GROUP BY b.id"),
    ],
)
def test_equal_rows(tmp_path: Path, operation: str, left: str, right: str) -> None:
    engine = running(tmp_path, {})
    engine.apply(batch(("insert", "a", rows_of(0, 8)), ("insert", "b", rows_of(2, 7))))
    engine.put_view("v", {"sql": f"{left} {operation} {right}"}, wait=60)
    said = list[str]()
    assert agrees(engine, "v", {}, said.append), said
    engine.close()
