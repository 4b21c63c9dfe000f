"""The data sets match their descriptions, so that failures elsewhere are not caused by them."""
from __future__ import annotations

import duckdb
import pytest

from tests import datasets

NAMES = ["congress", "outages", "genome_chr1", "rects_world", "openflights"]


def test_the_checksum_of_the_example() -> None:
    assert datasets.checksum([(3, "Ann")]) == "1538414541632953806"
    assert datasets.checksum([]) == "0"


@pytest.mark.parametrize("name", NAMES)
def test_tables_and_keys(name: str) -> None:
    for table in datasets.tables(name):
        rows = datasets.table(name, table)
        keys = rows.select(datasets.key(name, table)).group_by(datasets.key(name, table)).aggregate([]).num_rows
        assert rows.num_rows == keys > 0


@pytest.mark.parametrize("name", NAMES)
def test_answers(name: str) -> None:
    with duckdb.connect() as db:
        for table in datasets.tables(name):
            db.register(table, datasets.table(name, table))
        for view in datasets.queries(name):
            rows = db.sql(view["sql"]).fetchall()
            assert (len(rows), datasets.checksum(rows)) == (view["rows"], view["checksum"])


@pytest.mark.parametrize(("name", "log"), datasets.LOGS)
def test_change_logs_keep_to_the_keys(name: str, log: str) -> None:
    live: dict[tuple[object, ...], object] = {}
    for change in datasets.change_log(name, log):
        key = (change["relation"], *(change["row"][column] for column in datasets.key(name, change["relation"])))
        if change["op"] == "insert":
            assert key not in live
            live[key] = change["row"]
        else:
            assert live.pop(key) == change["row"]
