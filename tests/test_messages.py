"""What is refused, and what is said about it: `messages.txt` lists inputs, each with the complaints about it. Other tests compare only
types and positions. `LIVEJOIN_MESSAGES=write pytest tests/test_messages.py` writes the complaints; read what has changed before you
commit it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from livejoin.wire.errors import MalformedBody
from livejoin.wire.grammar import parse_timestamp
from livejoin.wire.schema import BadDefinition, RelationDefinition, parse_relation
from service.cli import main
from service.errors import Problem
from service.query.definition import read_where
from service.reading.first_rows import parse_order
from service.views.parse import parse_view
from streaming.config import BadConfig, read_config
from tests.end_to_end.test_other_types import BADGES, SHIFTS
from tests.relations import bookings
from tests.service import twin
from tests.service.access.test_access_token import made
from tests.service.adhoc.test_statement import names
from tests.service.definitions import RELATIONS
from tests.service.query import test_groups, test_joined_columns, test_latest, test_ranges, test_scope, test_sums, test_terms
from tests.service.reading.test_first_rows import SCHEMA
from tests.service.wire.bookings import changes
from tests.service.wire.test_json import ROW, post
from tests.streaming.test_config import LEAST

Reader = Callable[[str], Iterator[str]]
FILE = Path(__file__).with_name("messages.txt")
INDENT = "    "
# What these words stand for in JSON: members and items, so that others can follow them.
WORDS = {
    "ROW": json.dumps(ROW)[1:-1],
    "BOOKINGS": json.dumps(bookings())[1:-1],
    "COLUMNS": json.dumps(bookings()["columns"])[1:-1],
    "VIEW": '"from": {"b": "bookings", "m": "maintenance"}, "join": [{"overlaps": ["b.stay", "m.slot"]}], "select": ["b.id"]',
}


def sections(text: str) -> dict[str, list[str]]:
    """Return the lines of each section that are inputs."""
    found: dict[str, list[str]] = {}
    for line in text.split("\n"):
        if line.startswith("== "):
            inputs = found[line[3:]] = []
        elif found and line and not line.startswith(INDENT):
            inputs.append(line)
    return found


def parsed(text: str) -> object:
    for word, members in WORDS.items():
        text = text.replace(word, members)
    return json.loads(text)


def of_problem(problem: Problem) -> Iterator[str]:
    for one in problem.extensions.get("complaints", [{"detail": problem.detail, **problem.extensions}]):
        at = " at {line}:{column}".format(**one["position"]) if "position" in one else ""
        yield f"{problem.type}{at}: {one['detail']}"


def of_relation(text: str) -> Iterator[str]:
    with pytest.raises(BadDefinition) as caught:
        parse_relation(parsed(text))
    yield caught.value.detail


def of_change(text: str) -> Iterator[str]:
    """Few changes are checked without NumPy, many with it."""
    change, said = parsed(text), set[str]()
    assert isinstance(change, dict)
    for around in (1, 20):
        good = [{"relation": "bookings", "op": "upsert", "row": ROW}] * around
        batch = post(*good, {"relation": "bookings", **change}, *good)
        (error,) = batch.errors
        assert error.index == around and sum(len(one.ops) for one in batch.changes) == 2 * around
        said.add(f"{error.column or 'the change'}: {error.reason}")
    assert len(said) == 1
    yield from said


def of_body(text: str) -> Iterator[str]:
    """A character is a byte."""
    with pytest.raises(MalformedBody) as caught:
        changes("application/json", text.encode("latin-1"))
    yield caught.value.detail if caught.value.line is None else f"at line {caught.value.line}: {caught.value.detail}"


def of_timestamp(text: str) -> Iterator[str]:
    with pytest.raises(ValueError, match="expected a timestamp with an offset") as caught:
        parse_timestamp(text)
    yield str(caught.value)
    assert len(str(caught.value)) < 250


def of_token(text: str) -> Iterator[str]:
    with pytest.raises(Problem) as caught:
        made(**json.loads(text))
    yield from of_problem(caught.value)


def of_query(text: str) -> Iterator[str]:
    with pytest.raises(Problem) as caught:
        names(text)
    yield from of_problem(caught.value)


def of_view(relations: Mapping[str, RelationDefinition]) -> Reader:
    def read(text: str) -> Iterator[str]:
        with pytest.raises(Problem) as caught:
            parse_view("v", parsed(text) if text[:1] in ("{", "[") else {"sql": text}, relations)
        yield from of_problem(caught.value)

    return read


def of_delete(text: str) -> Iterator[str]:
    with pytest.raises(Problem) as caught:
        read_where("bookings", RELATIONS["bookings"], [{"expression": text}], 1)
    yield from of_problem(caught.value)


def of_order(text: str) -> Iterator[str]:
    with pytest.raises(Problem) as caught:
        parse_order(text, SCHEMA)
    yield from of_problem(caught.value)


def of_job(text: str) -> Iterator[str]:
    """A part of the file, and what stands in its place."""
    old, new = map(str.strip, text.replace("\\n", "\n").split("->"))
    assert old in LEAST
    with pytest.MonkeyPatch.context() as patch, pytest.raises(BadConfig) as caught:
        patch.setattr(Path, "read_text", lambda *_: LEAST.replace(old, new))
        read_config(Path("stream.toml"))
    yield str(caught.value)


def of_command(text: str) -> Iterator[str]:
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(io.StringIO()) as emitted:
        assert main(shlex.split(text)) == 2
    assert not printed.getvalue()
    yield from emitted.getvalue().splitlines()


READERS: dict[str, Reader] = {
    "relations": of_relation,
    "changes of the relation bookings": of_change,
    "bodies": of_body,
    "timestamps": of_timestamp,
    "tokens": of_token,
    "ad hoc queries over the relations a and b and the view v": of_query,
    "changes of the file of a job": of_job,
    "commands": of_command,
    "views over bookings, maintenance and shifts": of_view(RELATIONS),
    "views over relations of other types": of_view({"shifts": parse_relation(SHIFTS), "badges": parse_relation(BADGES)}),
    "views over l, r and s": of_view(test_scope.RELATIONS),
    "views over x, y and z": of_view(test_joined_columns.RELATIONS),
    "views over a and b": of_view(twin.DEFINITIONS),
    "views of groups of bookings": of_view({"bookings": test_groups.BOOKINGS}),
    "views over t": of_view(test_terms.DEFINITIONS),
    "views over readings and others": of_view(test_latest.RELATIONS),
    "views over a and b with sums": of_view(test_sums.R),
    "views over l and r with ranges": of_view(test_ranges.RELATIONS),
    "conditions of deletes of bookings": of_delete,
    "orders of rows": of_order,
}


@pytest.mark.parametrize("section", READERS)
def test_messages(section: str) -> None:
    text, writes = FILE.read_text(), os.environ.get("LIVEJOIN_MESSAGES") == "write"
    begin = text.index(f"== {section}\n")
    end = text.find("\n== ", begin)
    kept = text[begin : end if end >= 0 else len(text)].rstrip()
    lines = [f"== {section}"]
    for line in sections(text)[section]:
        try:
            said = list(READERS[section](json.loads(line) if line.startswith('"') else line))
        except pytest.fail.Exception:  # it is accepted by now
            assert writes, line
            continue
        assert said and not any("\n" in one for one in said), line
        lines += [line, *(INDENT + one for one in said)]
    found = "\n".join(lines)
    if writes:
        FILE.write_text(text.replace(kept, found))
    else:
        assert found == kept


def test_each_input_stands_once_in_a_section_that_is_read() -> None:
    found = sections(FILE.read_text())
    assert found.keys() == READERS.keys()
    assert all(len({*inputs}) == len(inputs) > 0 for inputs in found.values())
