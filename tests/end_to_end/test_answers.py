"""Every query of the data sets: row count and checksum, in every media type, defined by SQL and by JSON."""
from __future__ import annotations

import itertools
from typing import Any

import httpx
import pytest

from tests import datasets
from tests.end_to_end import talk
from tests.end_to_end.talk import ARROW, CSV, JSON, JSONL, PARQUET, SSE

NAMES = ("congress", "outages", "genome_chr1", "rects_world", "openflights")
VIEWS = [pytest.param(name, view, id=view["name"]) for name in NAMES for view in datasets.queries(name, rows=30_000)]
LARGE = [pytest.param(name, view, id=view["name"]) for name in NAMES for view in datasets.queries(name) if view["rows"] > 30_000]


@pytest.fixture(scope="module")
def loaded(client: httpx.Client) -> httpx.Client:
    """All tables of all data sets, sent in alternating media types, and all views, half of them registered before their rows are sent."""
    media = itertools.cycle((CSV, JSONL, PARQUET, ARROW))
    for name in NAMES:
        for table in datasets.tables(name):
            talk.define(client, table, datasets.definition(name, table))
    early, late = VIEWS[::2], VIEWS[1::2] + LARGE
    for parameter in early:
        talk.view(client, parameter.values[1]["name"], parameter.values[1]["sql"])
    for name in NAMES:
        for table in datasets.tables(name):
            rows = datasets.table(name, table)
            assert talk.load(client, table, rows, next(media))["applied"] == rows.num_rows
    for parameter in late:
        talk.view(client, parameter.values[1]["name"], parameter.values[1]["sql"])
    return client


def test_there_are_views_to_ask() -> None:
    assert (len(VIEWS), len(LARGE)) == (29, 7)


@pytest.mark.parametrize(("name", "view"), VIEWS)
@pytest.mark.parametrize("media", [JSONL, JSON, CSV, ARROW, SSE])
def test_rows(loaded: httpx.Client, name: str, view: dict[str, Any], media: str) -> None:
    rows = talk.read(loaded, view["name"], media, view["result_columns"])
    assert (len(rows), datasets.checksum(rows)) == (view["rows"], view["checksum"])


@pytest.mark.parametrize(("name", "view"), VIEWS + LARGE)
def test_count(loaded: httpx.Client, name: str, view: dict[str, Any]) -> None:
    assert talk.count(loaded, view["name"]) == view["rows"]


def _inputs(name: str) -> tuple[str, ...]:
    return datasets.INPUTS if name == "rects_world" else (datasets.INTERVAL,)


@pytest.mark.parametrize(("name", "view"), VIEWS)
def test_the_same_by_json(loaded: httpx.Client, name: str, view: dict[str, Any]) -> None:
    join = view["join"]
    definition = {
        "from": {entry["alias"]: entry["table"] for entry in join["from"]},
        "join": [
            *({"equal": pair} for pair in join["equal"]),
            *({"overlaps": [f"{alias}.{input}" for alias in pair]} for pair in join["overlap"] for input in _inputs(name)),
            *({"less": pair} for pair in join["less"]),
        ],
        "select": [f"{column} as {column.replace('.', '_')}" for column in join["select"]],
    }
    talk.view(loaded, "by_json", definition)
    rows = talk.read(loaded, "by_json", ARROW, view["result_columns"])
    assert (len(rows), datasets.checksum(rows)) == (view["rows"], view["checksum"])
    talk.drop(loaded, views=["by_json"])


@pytest.mark.parametrize(("name", "view"), [parameter for parameter in VIEWS if not parameter.values[1]["join"]["less"]])
def test_point_look_ups_and_windows(loaded: httpx.Client, name: str, view: dict[str, Any]) -> None:
    """A look-up and a window, compared with the rows of the whole view, filtered here."""
    columns = view["result_columns"]
    everything = talk.read(loaded, view["name"], ARROW, columns)
    keys = ("id", "outage", "iata", "src", "airline")
    alias, key = next(column.split(".") for column in view["join"]["select"] if column.split(".")[1] in keys)
    at = columns.index(f"{alias}_{key}")
    table = next(entry["table"] for entry in view["join"]["from"] if entry["alias"] == alias)
    if datasets.key(name, table) == [key]:
        value = everything[len(everything) // 2][at]
        found = talk.read(loaded, view["name"], JSONL, columns, **{f"where.{alias}.{key}": value})
        assert sorted(found) == sorted(row for row in everything if row[at] == value) != []
        assert talk.count(loaded, view["name"], **{f"where.{alias}.{key}": value}) == len(found)
    if view["join"]["overlap"] and name != "rects_world":
        _check_window(loaded, name, view, everything)


def _check_window(client: httpx.Client, name: str, view: dict[str, Any], everything: list[tuple[Any, ...]]) -> None:
    """Compare with the rows all of whose intervals meet the window, if the columns include the key of every part."""
    parts = []
    for entry in view["join"]["from"]:
        definition = datasets.definition(name, entry["table"])
        positions = [f"{entry['alias']}_{column}" for column in definition["key"]]
        if not set(positions) <= set(view["result_columns"]):
            return
        interval = definition["intervals"][datasets.INTERVAL]
        start, end, open_end = interval["start"], interval["end"], interval["bounds"] == "[)"
        spans = {
            tuple(row[column] for column in definition["key"]): (row[start], row[end] - open_end)
            for row in datasets.table(name, entry["table"]).to_pylist()
        }
        parts.append(([view["result_columns"].index(position) for position in positions], spans))
    starts = sorted(start for _, spans in parts for start, _ in spans.values())
    for low, high in ((starts[len(starts) // 3], starts[len(starts) // 2]), (starts[-1], None), (None, starts[0]), (starts[7], starts[7])):
        expected = sorted(
            row
            for row in everything
            if all(
                (low is None or spans[key][1] >= low) and (high is None or spans[key][0] <= high)
                for positions, spans in parts
                for key in [tuple(row[position] for position in positions)]
            )
        )
        window = f"{'' if low is None else low},{'' if high is None else high}"
        assert sorted(talk.read(client, view["name"], ARROW, view["result_columns"], overlaps=window)) == expected, window
        assert talk.count(client, view["name"], overlaps=window) == len(expected)


def test_relations_come_back(loaded: httpx.Client) -> None:
    for name in NAMES:
        table = datasets.tables(name)[0]
        expected = datasets.table(name, table)
        assert talk.ok(loaded.get(f"/v1/relations/{table}"))["rows"] == expected.num_rows
        columns = expected.column_names
        for media in (JSONL, CSV, ARROW):
            answer = loaded.get(f"/v1/relations/{table}/rows", headers={"Accept": media})
            rows = list(talk.decode(answer.content, media, columns))
            assert datasets.checksum(rows) == datasets.checksum(zip(*(expected[column].to_pylist() for column in columns), strict=True))
