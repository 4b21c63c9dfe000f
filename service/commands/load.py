"""`livejoin load`: files into a relation, which is registered from the files when it is new."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

import livejoin
from livejoin.files import Body, File, open_file
from service.commands.connection import connect
from service.commands.inference import infer
from service.terminal import Columns, Failure, Parser, add_url, say
from service.wire.kinds import SENT_TYPES
from service.wire.schema import Column

SHOWN = 20  # rejected rows shown


class Rejected(NamedTuple):
    file: str
    line: int
    column: str | None
    reason: str


def main(arguments: list[str]) -> int:
    parser = Parser("load", "Load files into a relation: rows are upserts, unless a column _op says otherwise.")
    parser.add_argument("relation", metavar="RELATION", help="the relation; registered from the files if it is new (needs --key)")
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="Parquet, Arrow, CSV or JSON lines, by file name extension")
    parser.add_argument("--key", metavar="A,B", help="primary key of a new relation")
    parser.add_argument(
        "--interval",
        action="append",
        default=[],
        metavar="NAME=START,END[,BOUNDS]",
        help="an interval of a new relation; NAME=COLUMN for a point",
    )
    bounds = ("[)", "[]", "(]", "()")
    parser.add_argument(
        "--bounds", choices=bounds, default="[)", metavar="BOUNDS", help=f"bounds of intervals: one of {' '.join(bounds)} (default [))"
    )
    add_url(parser)
    args = parser.parse_args(arguments)
    key = args.key.split(",") if args.key else []
    intervals = dict(_interval(text, args.bounds) for text in args.interval)
    try:
        files = [open_file(path) for path in args.files]
    except livejoin.BadFile as error:
        raise Failure(str(error), 2) from error
    with connect(args) as client:
        relation = client.relation(args.relation)
        definition = _definition(relation, files, key, intervals)
        schema = pa.schema([(column.name, SENT_TYPES[column.kind]) for column in _columns(definition)])
        return _post(relation, files, schema)


def _interval(text: str, bounds: str) -> tuple[str, dict[str, Any]]:
    name, equals, ends = text.partition("=")
    parts = ends.split(",")
    if not name or not equals or not all(parts) or len(parts) > 3:
        raise Failure(f"--interval takes NAME=START,END, NAME=START,END,BOUNDS or NAME=COLUMN, not {text!r}", 2)
    if len(parts) == 1:
        return name, {"at": parts[0]}
    return name, {"start": parts[0], "end": parts[1], "bounds": parts[2] if len(parts) == 3 else bounds}


def _definition(relation: livejoin.Relation, files: list[File], key: list[str], intervals: dict[str, Any]) -> dict[str, Any]:
    """The existing relation, else a new one, registered from the files and the arguments."""
    name = relation.name
    try:
        known = relation.get()
    except livejoin.NotFound:
        pass
    else:
        if key and key != known["key"]:
            raise Failure(f"{name} exists with the key {','.join(known['key'])}: omit --key, or use another name", 2)
        if intervals and any(known["intervals"].get(interval) != value for interval, value in intervals.items()):
            raise Failure(f"{name} exists with other intervals: omit --interval, or use another name", 2)
        return known
    if not key:
        raise Failure(f"{name} is a new relation: name its key columns, for example --key id", 2)
    definition: dict[str, Any] = {"columns": infer(files), "key": key, "intervals": intervals}
    relation.create(**definition)
    listed = ", ".join(f"{column.name} {column.kind}{' or null' if column.nullable else ''}" for column in _columns(definition))
    say(f"registered {name} ({listed})")
    return definition


def _columns(definition: Mapping[str, Any]) -> list[Column]:
    return [Column.model_validate(column) for column in definition["columns"]]


def _post(relation: livejoin.Relation, files: list[File], schema: pa.Schema) -> int:
    rejected: list[Rejected] = []
    applied = ignored = bad = version = 0
    shown = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[rows]:,} rows"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    watched = sys.stderr.isatty()
    if watched:
        shown.start()
    try:
        for file in files:
            task = shown.add_task(file.path.name, total=file.size, rows=0)
            before = applied
            for body in file.bodies(schema):
                receipt = _posted(relation, file, body, applied)
                applied += receipt.applied
                ignored += receipt.ignored
                bad += receipt.skipped_count
                version = receipt.version
                room = receipt.skipped[: max(0, SHOWN - len(rejected))]
                for error, line in zip(room, body.lines([error["index"] for error in room]), strict=True):
                    rejected.append(Rejected(file.path.name, line, error["column"], error["reason"]))
                shown.update(task, completed=body.done, rows=applied - before)
    finally:
        if watched:  # else an empty line comes
            shown.stop()
    passed_over = f", {ignored:,} ignored" if ignored else ""
    reached = f", version {version}" if version else ""
    print(f"{relation.name}: {applied:,} row{'s' if applied != 1 else ''} loaded{passed_over}{reached}")
    if bad:
        _show(rejected, bad)
        were = "row was" if bad == 1 else "rows were"
        others = ", the others were loaded" if applied or ignored else ""
        raise Failure(f"{bad:,} {were} rejected{others}: fix the file and load it again")
    return 0


def _posted(relation: livejoin.Relation, file: File, body: Body, applied: int) -> livejoin.Receipt:
    """The receipt. Raises Failure, which names the file and says what has been loaded already."""
    try:
        return relation.post(body.content, body.media_type, on_error="skip")
    except livejoin.LivejoinError as error:
        part = f", from {file.unit} {body.first} on" if applied else ""
        before = f"; already loaded: {applied:,} row{'s' if applied != 1 else ''}" if applied else ""
        raise Failure(f"{file.path}{part}: {error}{before}") from error


def _show(rejected: list[Rejected], bad: int) -> None:
    columns = Columns(["file", "line", "column", "reason"], widest=200)
    rows = [{"file": r.file, "line": r.line, "column": r.column, "reason": r.reason} for r in rejected]
    columns.fit(rows)
    more = [f"… and {bad - len(rows):,} more"] if bad > len(rows) else []
    print("\n".join([*columns.head(), *map(columns.line, rows), *more]), file=sys.stderr)
