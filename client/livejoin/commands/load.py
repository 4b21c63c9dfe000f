"""`livejoin load`: loads files into a relation, which is registered from the files if it is new.

By default, all files are checked before anything is registered or sent: if one row is bad, nothing is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args
from uuid import uuid4

import pyarrow as pa
from rich.progress import Progress, TextColumn, TimeRemainingColumn

import livejoin
from livejoin.commands.bars import bars
from livejoin.commands.connection import connect
from livejoin.commands.inference import infer
from livejoin.commands.judging import Rejections, Repeats, converted, validate_file
from livejoin.files import Body, File, open_file
from livejoin.terminal import Failure, Parser, add_url, say
from livejoin.wire.errors import BadDefinition
from livejoin.wire.kinds import SENT_TYPES, digits_of
from livejoin.wire.schema import Column, ColumnType, RelationDefinition, parse_relation
from livejoin.wire.values.local_times import is_zone


class RelationOptions(NamedTuple):
    """The user's specifications for the relation."""

    key: list[str]
    intervals: dict[str, Any]
    types: dict[str, str]
    zone: str | None
    not_null: list[str]


class LoadProgress:
    """What the service has accepted so far."""

    applied = ignored = version = 0


def main(arguments: list[str]) -> int:
    args = _parser().parse_args(arguments)
    wanted = RelationOptions(
        _names(args.key),
        dict(map(_interval, args.interval)),
        dict(map(_type, args.type)),
        _zone(args.zone),
        _names(args.not_null),
    )
    skip = args.on_error == "skip"
    try:
        files = [open_file(path) for path in args.files]
    except livejoin.BadFile as error:
        raise Failure(str(error), 2) from error
    with connect(args) as client:
        relation = client.relation(args.relation)
        known = _known(relation, wanted)
        definition = known or _new(relation.name, files, wanted)
        read_by = definition.in_zone(wanted.zone) if wanted.zone else definition
        if args.replace and skip and read_by != definition:  # the service would not see bad rows, and could not keep those they replace
            raise Failure("--replace with --on-error skip cannot be combined with --zone: set the zone in the relation's definition", 2)
        schema = pa.schema([(column.name, SENT_TYPES[column.kind]) for column in definition.columns])
        repeats = Repeats(relation.name, read_by, schema)
        found = _validate(relation.name, read_by, files, schema, repeats)
        if found.count and not (skip and (found.good or known)):
            found.show()
            hint = "fix the file" if skip else "fix the file, or load the other rows with --on-error skip"
            raise Failure(f"{found.were} and nothing was loaded: {hint}")
        if known is None:
            relation.create(**definition.to_json())
            say(f"registered {relation.name} ({', '.join(map(_shown, definition.columns))})")
        loaded = LoadProgress()
        try:
            rejected, sender = Rejections(definition), _Sender(relation, args.on_error, args.replace)

            def bodies(file: File) -> Iterator[Body]:
                """Those of the file, or converted ones, without bad rows, if the relation itself would read times differently."""
                return file.bodies(schema) if read_by == definition else converted(relation.name, read_by, file, schema, rejected)

            return _post(relation.name, files, bodies, sender, loaded, rejected, repeats)
        except Failure as failure:
            if known is None and not loaded.version and isinstance(failure.__cause__, livejoin.Problem):
                with suppress(livejoin.LivejoinError):
                    relation.drop()
                    say(f"removed {relation.name} again, because nothing was loaded")
            raise


def _parser() -> Parser:
    parser = Parser("load", "Load files into a relation: rows are upserts, unless a column _op says otherwise.")
    parser.add_argument("relation", metavar="RELATION", help="the relation; registered from the files if it is new (needs --key)")
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="Parquet, Arrow, CSV or JSON lines, by file name extension")
    parser.add_argument("--key", metavar="A,B", help="the key columns of a new relation")
    parser.add_argument(
        "--interval",
        action="append",
        default=[],
        metavar="NAME=START,END[,BOUNDS]",
        help="an interval of a new relation; NAME=COLUMN for a point; BOUNDS is [) (the default), [], (] or ()",
    )
    parser.add_argument(
        "--type",
        action="append",
        default=[],
        metavar="COLUMN=TYPE",
        help=f"type of a column of a new relation ({', '.join(get_args(ColumnType))}; a decimal as decimal(12,2)); by default, types are "
        "inferred from all rows of the files",
    )
    parser.add_argument(
        "--not-null",
        metavar="A,B",
        help="columns of a new relation that cannot be null, besides the key (default: those without nulls that no file declares nullable)",
    )
    parser.add_argument(
        "--zone", metavar="NAME", help="time zone of times without an offset, such as Europe/Berlin or UTC; stored in a new relation"
    )
    parser.add_argument(
        "--on-error",
        choices=("reject", "skip"),
        default="reject",
        help="what to do if there are bad rows: load nothing (reject, the default) or load the other rows (skip)",
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="replace all rows of the relation, in one version; with --on-error skip, rows that bad rows would replace are kept",
    )
    add_url(parser)
    return parser


def _names(text: str | None) -> list[str]:
    return text.split(",") if text else []


def _interval(text: str) -> tuple[str, dict[str, Any]]:
    name, equals, ends = text.partition("=")
    parts = ends.split(",")
    if not name or not equals or not all(parts) or len(parts) > 3:
        raise Failure(f"--interval takes NAME=START,END, NAME=START,END,BOUNDS or NAME=COLUMN, not {text!r}", 2)
    if len(parts) == 1:
        return name, {"at": parts[0]}
    return name, {"start": parts[0], "end": parts[1], "bounds": parts[2] if len(parts) == 3 else "[)"}


def _type(text: str) -> tuple[str, str]:
    name, _, kind = text.rpartition("=")
    kind = re.sub(r"\s", "", kind)
    if not name:
        raise Failure(f"--type takes COLUMN=TYPE, not {text!r}", 2)
    if not digits_of(kind) and (kind == "decimal" or kind not in get_args(ColumnType)):
        raise Failure(
            f"--type {text}: there is no such type; the types are {', '.join(get_args(ColumnType))} (a decimal as decimal(12,2))", 2
        )
    return name, kind


def _zone(name: str | None) -> str | None:
    if name is not None and not is_zone(name):
        raise Failure(f"--zone {name}: there is no such time zone; use a name of the IANA database, such as Europe/Berlin or UTC", 2)
    return name


def _shown(column: Column) -> str:
    return f"{column.name} {column.kind}{' or null' if column.nullable else ''}"


def _known(relation: livejoin.Relation, wanted: RelationOptions) -> RelationDefinition | None:
    """Return the existing relation, if it matches the user's specifications; None if there is none."""
    name = relation.name
    try:
        emitted = relation.get()
    except livejoin.NotFound:
        return None
    known = _parsed({part: emitted[part] for part in ("columns", "key", "intervals")})
    if wanted.key and wanted.key != known.key:
        raise Failure(f"{name} exists with the key {','.join(known.key)}: omit --key, or use another name", 2)
    if wanted.intervals and any(emitted["intervals"].get(interval) != value for interval, value in wanted.intervals.items()):
        raise Failure(f"{name} exists with other intervals: omit --interval, or use another name", 2)
    columns = {column.name: column for column in known.columns}
    for column, kind in wanted.types.items():
        if column not in columns or columns[column].kind != kind:
            what = f"its column {column} is {columns[column].kind}" if column in columns else f"has no column {column}"
            raise Failure(f"{name} exists, but {what}: omit --type, or use another name", 2)
    for column in wanted.not_null:
        if column not in columns or columns[column].nullable:
            what = f"its column {column} can be null" if column in columns else f"has no column {column}"
            raise Failure(f"{name} exists, but {what}: omit --not-null, or use another name", 2)
    return known


def _new(name: str, files: list[File], wanted: RelationOptions) -> RelationDefinition:
    """Return the definition of a new relation, from the files and the arguments."""
    if not wanted.key:
        raise Failure(f"{name} is a new relation: give its key columns, for example --key id", 2)
    columns = infer(files, wanted.types, wanted.not_null, wanted.zone, wanted.key)
    return _parsed({"columns": columns, "key": wanted.key, "intervals": wanted.intervals})


def _parsed(definition: Mapping[str, Any]) -> RelationDefinition:
    try:
        return parse_relation(definition)
    except BadDefinition as error:
        raise Failure(error.detail, 2) from error


def _validate(name: str, definition: RelationDefinition, files: list[File], schema: pa.Schema, repeats: Repeats) -> Rejections:
    """Return the rows that the service would reject. Raises Failure if it would reject a file."""
    found = Rejections(definition)
    with _progress() as shown:
        for file in files:
            task = shown.add_task(f"checking {file.path.name}", total=file.size, rows=0)
            validate_file(
                name, definition, file, schema, found, repeats,
                lambda done, rows, of=task: shown.update(of, completed=done, rows=rows),  # type: ignore[misc]
            )  # fmt: skip
    if found.unclear:
        say(f"local times that do not exist or are ambiguous: {found.unclear:,}; they get the offset before the clock change")
    return found


def _progress() -> Progress:
    return bars(TextColumn("{task.fields[rows]:,} rows"), TimeRemainingColumn())


class _Sender:
    """Sends bodies as changes, or as parts of a replacement."""

    def __init__(self, relation: livejoin.Relation, on_error: str, replace: bool) -> None:
        self._relation = relation
        self._on_error: Literal["reject", "skip"] = "skip" if on_error == "skip" else "reject"
        self._stage = str(uuid4()) if replace else None
        self._parts = 0

    @property
    def replaces(self) -> bool:
        return self._stage is not None

    def send(self, body: Body) -> livejoin.Receipt:
        if self._stage is None:
            return self._relation.post(body.content, body.media_type, on_error=self._on_error)
        emitted = self._relation.stage(self._stage, self._parts, body.content, body.media_type, on_error=self._on_error)
        self._parts += 1
        count = emitted["skipped_count"]
        return livejoin.Receipt(applied=emitted["part_rows"] - count, skipped_count=count, skipped=emitted["skipped"])

    def conclude(self) -> int | None:
        """Commit a replacement and return its version; None if this is not one."""
        if self._stage is None:
            return None
        if not self._parts:  # an empty replacement
            self._relation.stage(self._stage, 0, b"", "application/jsonl")
        return self._relation.commit(self._stage).version


def _post(
    name: str,
    files: list[File],
    bodies: Callable[[File], Iterator[Body]],
    sender: _Sender,
    loaded: LoadProgress,
    rejected: Rejections,
    repeats: Repeats,
) -> int:
    with _progress() as shown:
        for file in files:
            task = shown.add_task(file.path.name, total=file.size, rows=0)
            before = loaded.applied
            for body in bodies(file):
                _post_one(sender, file, body, loaded, rejected)
                shown.update(task, completed=body.done, rows=loaded.applied - before)
    try:
        loaded.version = sender.conclude() or loaded.version
    except livejoin.LivejoinError as error:
        raise Failure(f"{name} was not replaced: {error}") from error
    ignored = f", {loaded.ignored:,} ignored" if loaded.ignored else ""
    reached = f", version {loaded.version}" if loaded.version else ""
    summary = f"{loaded.applied:,} row{'s' if loaded.applied != 1 else ''} loaded"
    lost, positions = repeats.emitted(files)
    if lost:
        kept = loaded.applied - lost
        summary = f"{loaded.applied:,} rows read, {kept:,} kept: {lost:,} replaced by later rows with the same key ({positions})"
    print(f"{name}: {summary}{ignored}{reached}")
    if rejected.count:
        rejected.show()
        others = " and the others were loaded" if loaded.applied or loaded.ignored else ""
        raise Failure(f"{rejected.were}{others}: fix the file and load it again")
    return 0


def _post_one(sender: _Sender, file: File, body: Body, loaded: LoadProgress, rejected: Rejections) -> None:
    """Post one body. Raises Failure, which names the file and says what has been loaded already."""
    try:
        receipt = sender.send(body)
    except livejoin.LivejoinError as error:
        part = f", from {file.unit} {body.first} on" if loaded.applied else ""
        before = f"; already loaded: {loaded.applied:,} row{'s' if loaded.applied != 1 else ''}" if loaded.applied else ""
        before = "; nothing was loaded" if sender.replaces else before
        if isinstance(error, livejoin.BadRows):
            rejected.add(file, body, _triples(error.errors), error.document.get("error_count", len(error.errors)))
            rejected.show()
            raise Failure(f"{file.path}{part}: {rejected.were}{before or ' and nothing was loaded'}") from error
        raise Failure(f"{file.path}{part}: {error}{before}") from error
    loaded.applied += receipt.applied
    loaded.ignored += receipt.ignored
    loaded.version = receipt.version
    rejected.add(file, body, _triples(receipt.skipped), receipt.skipped_count)


def _triples(errors: list[dict[str, Any]]) -> list[tuple[int, str | None, str]]:
    return [(error["index"], error["column"], error["reason"]) for error in errors]
