"""Questions as engineers write them in PostgreSQL's SQL, over four schemas. Each file begins with its relations, one a line: columns (`?`:
nullable), key, intervals. A question is a comment and a statement; `-- instead` begins what has to be written in its place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from livejoin.wire.schema import RelationDefinition, parse_relation
from service.errors import Problem
from service.views.parse import parse_view

FILES = sorted(Path(__file__).parent.glob("*.sql"))
_TYPES = {"int": "int64", "float": "float64", "text": "string"}
_RELATION = re.compile(r"-- (\w+)\((.*)\), key ([\w ]+?)(?:, interval (\w+) (\w+) (\w+))?")
_COLUMN = re.compile(r"(\w+) (\w+)(?:\((\d+),(\d+)\))?(\?)?(?:, |$)")


class Question(NamedTuple):
    words: str
    sql: str
    instead: str | None = None


def read(file: Path) -> tuple[dict[str, RelationDefinition], list[Question]]:
    """Return the relations and the questions of a file."""
    head, *blocks = file.read_text().strip().split("\n\n")
    relations, questions = dict(map(_relation, head.splitlines())), list[Question]()
    for block in blocks:
        first, sql = block.split("\n", 1)
        words, sql = first.removeprefix("-- "), sql.removesuffix(";")
        if words == "instead":
            questions[-1] = questions[-1]._replace(instead=sql)
        else:
            questions.append(Question(words, sql))
    return relations, questions


def _relation(line: str) -> tuple[str, RelationDefinition]:
    match = _RELATION.fullmatch(line)
    assert match is not None, line
    name, columns, key, interval, start, end = match.groups()
    intervals = {interval: {"start": start, "end": end, "bounds": "[)"}} if interval else {}
    made = [_column(*one) for one in _COLUMN.findall(columns)]
    return name, parse_relation({"columns": made, "key": key.split(), "intervals": intervals})


def _column(name: str, type_: str, precision: str, scale: str, nullable: str) -> dict[str, Any]:
    digits = {"precision": int(precision), "scale": int(scale)} if precision else {}
    return {"name": name, "type": _TYPES.get(type_, type_), "nullable": bool(nullable), **digits}


def complaint(sql: str, relations: dict[str, RelationDefinition]) -> str | None:
    """Return why a statement can't be a view, if so."""
    try:
        parse_view("v", {"sql": sql}, relations)
    except Problem as problem:
        return problem.detail
    return None
