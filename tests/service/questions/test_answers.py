"""The questions' answers are PostgreSQL's, where it is installed: of the same statements over the same rows, through changes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from livejoin.wire.schema import Column, RelationDefinition
from tests.end_to_end import talk
from tests.server_process import ServerProcess
from tests.service import postgres
from tests.service.questions.reading import FILES, Question, complaint, read

pytestmark = pytest.mark.skipif(postgres.PROGRAMS is None, reason="PostgreSQL is not installed")

_OURS = re.compile(r"\b(gaps|coverage|overlaps)\(|QUALIFY", re.IGNORECASE)  # PostgreSQL lacks these
_TYPES = {"int64": "bigint", "float64": "double precision", "string": "text", "timestamp": "timestamptz"}
_COMPARED = re.compile(r"(\w+) (?:=|<>|IN|I?LIKE|~\*?) (\([^)]*\)|'[^']*')")
_LETTERS = ["A", "C", "G", "T", "Smith"]
_ROWS = 240
_START = datetime(2000, 1, 1, tzinfo=UTC)
_DURATION = re.compile(r"P(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?[\d.]+)S)?)?")


class Data:
    """Random rows of some relations, and their changes."""

    def __init__(self, relations: dict[str, RelationDefinition], questions: list[Question], rng: Random) -> None:
        self.relations, self._rng = relations, rng
        self._texts: dict[str, list[str]] = {}  # with which the questions compare a column
        for column, texts in _COMPARED.findall(" ".join(one.sql for one in questions)):
            self._texts.setdefault(column, []).extend(re.findall(r"'(\w+)'", texts))
        self.rows: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {name: {} for name in relations}

    def change(self, count: int) -> list[dict[str, Any]]:
        """Change rows of each relation; return the changes."""
        made = []
        for name, rows in self.rows.items():
            for _ in range(count):
                if rows and self._rng.random() < 0.3:
                    key = self._rng.choice(list(rows))
                    del rows[key]
                    made.append({"relation": name, "op": "delete", "key": dict(zip(self.relations[name].key, key, strict=True))})
                else:
                    row = self._row(self.relations[name])
                    rows[tuple(row[column] for column in self.relations[name].key)] = row
                    made.append({"relation": name, "op": "upsert", "row": row})
        return made

    def _row(self, definition: RelationDefinition) -> dict[str, Any]:
        row = {column.name: self._value(column) for column in definition.columns}
        for interval in definition.intervals.values():
            start, end = row[interval.start_column], row[interval.end_column]
            if start is not None and end is not None and end <= start:
                row[interval.start_column], row[interval.end_column] = (end, start) if end < start else (start, later(end))
        return row

    def _value(self, column: Column) -> Any:
        rng = self._rng
        if column.nullable and rng.random() < 0.2:
            return None
        match column.type:
            case "int64" if column.name.endswith("id"):
                return rng.randrange(1, 60)
            case "int64":
                return rng.choice([rng.randrange(1, 13), rng.randrange(1, 13), rng.randrange(1, 50_000)])
            case "float64":
                return rng.randrange(1, 400) / 4
            case "decimal":
                return f"{rng.randrange(-500, 20000)}.{rng.randrange(10**column.scale):0{column.scale}}"
            case "bool":
                return rng.random() < 0.5
            case "date":
                return str((_START + timedelta(days=rng.randrange(-9, 400))).date())
            case "timestamp":
                return (_START + timedelta(minutes=5 * rng.randrange(6000))).strftime("%Y-%m-%dT%H:%M:%SZ")
            case "uuid":
                return str(UUID(int=rng.getrandbits(128)))
            case "json":
                return rng.choice(['{"cause": "storm"}', '{"cause": null}', "{}", '{"cause": "ice", "n": 1}'])
        return rng.choice([*_LETTERS, *_LETTERS, *self._texts.get(column.name, []) * 3])


def later(value: Any) -> Any:
    """Return a greater value of the same type."""
    if isinstance(value, int):
        return value + 1
    return value.replace("2000-", "2001-").replace("1999-", "2000-") if value < "2001" else value.replace("2001-", "2002-")


def in_postgres(data: Data) -> Iterator[str]:
    """The statements that make the relations."""
    yield "SET intervalstyle = iso_8601; SET timezone = 'UTC';"
    for name, definition in data.relations.items():
        columns = ", ".join(f"{column.name} {type_of(column)}" for column in definition.columns)
        yield f"DROP TABLE IF EXISTS {name}; CREATE TABLE {name} ({columns});"
        for row in data.rows[name].values():
            yield f"INSERT INTO {name} VALUES ({', '.join(map(literal, row.values()))});"


def type_of(column: Column) -> str:
    return f"numeric({column.precision}, {column.scale})" if column.type == "decimal" else _TYPES.get(column.type, column.type)


def literal(value: Any) -> str:
    return "NULL" if value is None else str(value) if isinstance(value, int | float) else "'" + value.replace("'", "''") + "'"


def plain(value: Any) -> Any:
    """Return a value such that equal ones are equal: numbers with nine digits, times as microseconds."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float | Decimal):
        return f"{float(value):.9g}"
    if match := _DURATION.fullmatch(value):
        days, hours, minutes, seconds = (Decimal(part or 0) for part in match.groups())
        return plain((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000_000)
    if re.fullmatch(r"-?\d+(\.\d+)?", value):
        return plain(Decimal(value))
    if re.match(r"\d{4}-\d\d-\d\dT", value):
        moment = datetime.fromisoformat(value)
        return str(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    return value


def sorted_rows(rows: list[list[Any]]) -> list[str]:
    return sorted(repr([plain(value) for value in row]) for row in rows)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("questions") / "data") as process:
        yield process


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.stem))
def test_answers(service: ServerProcess, file: Path) -> None:
    relations, questions = read(file)
    asked = [one for one in questions if complaint(one.sql, relations) is None and not _OURS.search(one.sql)]
    data = Data(relations, questions, Random(file.stem))
    with service.client() as client:
        for name, definition in relations.items():
            talk.define(client, name, definition.to_json())
        for number, one in enumerate(asked):
            talk.view(client, f"{file.stem}_{number}", one.sql)
        for count in (_ROWS, 10, 10):
            changes = data.change(count)
            assert talk.ok(client.post("/v1/changes", json={"changes": changes}))["applied"] > 0
            selects = (f"SELECT {number}, to_json(q)::text FROM ({one.sql}) q" for number, one in enumerate(asked))
            expected: dict[int, list[list[Any]]] = {}
            for number, row in postgres.answers([*in_postgres(data), f"{' UNION ALL '.join(selects)};"]):
                assert number is not None and row is not None
                pairs = json.loads(row, object_pairs_hook=list, parse_float=Decimal)
                expected.setdefault(int(number), []).append([value for _, value in pairs])
            empty = [one.words for number, one in enumerate(asked) if number not in expected]
            assert len(empty) <= len(asked) / 3, empty
            for number, one in enumerate(asked):
                lines = client.get(f"/v1/views/{file.stem}_{number}/rows").text.splitlines()
                found = [list(json.loads(line, parse_float=Decimal).values()) for line in lines]
                assert sorted_rows(found) == sorted_rows(expected.get(number, [])), one.words
