"""Access to the real data sets of the repository (tests/data/README.md) for tests."""
from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

ROOT = Path(__file__).resolve().parent.parent
INTERVAL = "span"  # the name that `definition` gives to the interval of each table
LOGS = [("congress", "timeline"), *((name, "changes") for name in ("congress", "outages", "rects_world", "openflights"))]  # change logs
INPUTS = ("x", "y")  # and to the intervals of a box
_TYPES = {"BIGINT": ("int64", pa.int64()), "VARCHAR": ("string", pa.utf8())}


def folder(name: str) -> Path:
    """Return the folder of a data set."""
    return ROOT / ("service/data" if name == "congress" else "tests/data") / name


@cache
def _queries(name: str) -> dict[str, Any]:
    return json.loads((folder(name) / "queries.json").read_text())


def tables(name: str) -> list[str]:
    return list(_queries(name)["tables"])


@cache
def table(name: str, table_name: str) -> pa.Table:
    """Return a table with columns of int64 or utf8; an empty field is an empty string."""
    path = folder(name) / _queries(name)["tables"][table_name]["file"]
    types = {column["name"]: _TYPES[column["type"]][1] for column in _queries(name)["tables"][table_name]["columns"]}
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path).cast(pa.schema(types))
    options = pyarrow.csv.ConvertOptions(column_types=types, strings_can_be_null=False)
    return pyarrow.csv.read_csv(path, convert_options=options)


def key(name: str, table_name: str) -> list[str]:
    """The primary key of a table."""
    if name == "openflights":
        return {"airports": ["airport"], "airlines": ["airline"]}.get(table_name) or columns(name, table_name)
    if name != "outages":
        return ["id"]
    return ["outage", "station"] if table_name.endswith("_at") or table_name == "at_station" else ["outage"]


def columns(name: str, table_name: str) -> list[str]:
    return [column["name"] for column in _queries(name)["tables"][table_name]["columns"]]


def definition(name: str, table_name: str) -> dict[str, Any]:
    """Return the definition of the relation for `PUT /v1/relations/{name}`. Its interval is called `span`, those of a box `x` and `y`."""
    about = _queries(name)["tables"][table_name]
    intervals = {}
    if "interval" in about:
        bounds = {"half-open [start, end)": "[)", "closed [start, end]": "[]"}[about["interval"]["ends"]]
        intervals[INTERVAL] = {"start": about["interval"]["start"], "end": about["interval"]["end"], "bounds": bounds}
    if "rect" in about:
        assert about["rect"]["ends"] == "closed"
        intervals = {input: {"start": about["rect"][input][0], "end": about["rect"][input][1], "bounds": "[]"} for input in INPUTS}
    return {
        "columns": [{"name": column["name"], "type": _TYPES[column["type"]][0]} for column in about["columns"]],
        "key": key(name, table_name),
        "intervals": intervals,
    }


def queries(name: str, rows: int = 200_000) -> list[dict[str, Any]]:
    """Return the views of a data set with at most this number of rows: name, sql, result_columns, rows, checksum, join."""
    return [view for view in _queries(name)["views"] if view["rows"] <= rows]


def view(name: str, view_name: str) -> dict[str, Any]:
    return next(view for view in _queries(name)["views"] if view["name"] == view_name)


def row_number(values: Iterable[object]) -> int:
    """Return the summand of one row in the checksum."""
    return int.from_bytes(hashlib.sha256("\t".join(map(str, values)).encode()).digest()[:8], "big")


def checksum(rows: Iterable[Sequence[object]]) -> str:
    """Return the checksum of rows whose values are in the order of `result_columns`."""
    return str(sum(map(row_number, rows)) % 2**64)


def lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@cache
def change_log(name: str, log: str = "changes") -> list[dict[str, Any]]:
    """Return the changes of `changes` or `timeline`: seq, op, relation, row."""
    return lines(folder(name) / f"{log}.jsonl.gz")


@cache
def debezium(log: str = "cdc") -> list[dict[str, Any]]:
    """Return the records of `cdc`, `cdc_default_identity` or `cdc_redelivered`: topic, partition, offset, key, value."""
    return lines(folder("congress") / f"{log}.jsonl.gz")


@cache
def expected(name: str, log: str = "changes") -> dict[str, Any]:
    """Return the contents of `<log>.expected.json`; for a variant of `cdc`, with its own checkpoints."""
    if not log.startswith("cdc"):
        return json.loads((folder(name) / f"{log}.expected.json").read_text())
    answer = json.loads((folder(name) / "cdc.expected.json").read_text())
    for variant in answer["variants"]:
        if variant["log"] == f"{log}.jsonl.gz" and "checkpoint_lines" in variant:
            by_line = {checkpoint["after_records"]: checkpoint for checkpoint in answer["checkpoints"]}
            answer["checkpoints"] = [
                {**by_line[line["same_as"]], "after_records": line["after_records"]} for line in variant["checkpoint_lines"]
            ]
    return answer


def samples() -> list[dict[str, Any]]:
    """Return the messages printed in Debezium's documentation: expect, message."""
    return lines(folder("debezium_samples") / "samples.jsonl.gz")
