"""Infers the columns of a new relation from the values of its files. All values are examined, not a sample."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from livejoin.commands.judging import names_of
from livejoin.files import File, csv_chunks, csv_header, jsonl_chunks
from livejoin.terminal import Failure
from livejoin.wire.budget import is_bytes
from livejoin.wire.csv import refuse_other_separators
from livejoin.wire.errors import MalformedBody
from livejoin.wire.json import FlawedObject, loads
from livejoin.wire.kinds import MOST_DIGITS, decimal_kind, digits_of
from livejoin.wire.schema import OP_COLUMN
from livejoin.wire.table import is_text
from livejoin.wire.values.open_ends import EARLY, LATE

# The form of texts that are read as a type, narrowest type first. A number with a leading zero is a name ("007").
FORMS = {
    "bool": r"^(true|false)$",
    "int64": r"^-?(0|[1-9][0-9]{0,18})$",
    "float64": r"^(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?|NaN|-?Infinity)$",
    "date": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    "time": r"^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?$",
    "uuid": r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
    "timestamp": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)$",
}
LOCAL = "local timestamp"  # not a column type: times some of which have no offset; rejected without a zone
OFFSET = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"  # follows a time
OPEN_ENDS = pa.array([LATE, EARLY])
TEXTUAL = ("date", "timestamp", LOCAL, "time", "uuid")  # types that may be text in JSON
DATED = ("date", "timestamp", LOCAL)
_EXACT = 2**53  # up to here, float64 represents every integer exactly
_LONG_INTEGER = re.compile(rb"(?<![0-9.eE\"+-])-?[0-9]{19,}(?![0-9.eE\"])")


@dataclass
class Guess:
    """The types that one column can still have, after the values seen so far."""

    possible: list[str] = field(default_factory=lambda: [*FORMS, LOCAL, "string"])
    nullable: bool = False
    blank: bool = False  # an empty CSV field was found: null, but as text the empty text
    seen: bool = False
    open_ended: bool = False  # infinity was found: null, but as text that text
    kind: str | None = None  # as specified by the user

    def only(self, types: Iterable[str]) -> None:
        allowed = set(types)
        self.possible = [kind for kind in self.possible if kind in allowed]
        self.seen = True

    def only_kind(self, kind: str) -> None:
        """Read values that come with their type."""
        known = kind if not self.seen or kind in self.possible else next(iter(self.possible), None)
        wider = None if known is None else _wider(known, kind)
        self.possible, self.seen = [] if wider is None else [wider], True


class Guesses(dict[str, Guess]):
    """Guesses by column, in the order in which columns are found. With a `zone`, times without an offset are timestamps."""

    def __init__(self, types: Mapping[str, str], zone: str | None) -> None:
        super().__init__()
        self._types = types
        self.zone = zone

    def meet(self, name: str) -> Guess:
        """Return the guess for a column, a new one if there is none."""
        if name not in self:
            self[name] = Guess(kind=self._types.get(name))
        return self[name]


def type_of(kind: str) -> dict[str, Any]:
    """Return the part of a column's definition that gives its type."""
    digits = digits_of(kind)
    return {"type": kind} if digits is None else {"type": "decimal", "precision": digits[0], "scale": digits[1]}


def _wider(kind: str, other: str) -> str | None:
    """Return a kind that has the values of both; None if there is none."""
    mine, theirs = digits_of(kind), digits_of(other)
    if mine is None or theirs is None:
        return kind if kind == other else None
    scale = max(mine[1], theirs[1])
    precision = max(mine[0] - mine[1], theirs[0] - theirs[1]) + scale
    return decimal_kind(precision, scale) if precision <= MOST_DIGITS else None


def infer(
    files: list[File], types: Mapping[str, str], not_null: Iterable[str], zone: str | None = None, key: Iterable[str] = ()
) -> list[dict[str, Any]]:
    """Return the `columns` of a relation definition that accepts all rows of all files. A column is nullable if a file declares it so,
    lacks it or has a null in it, except those of `not_null` and the `key`; `types` has the kinds specified by the user, `zone` is the zone
    of times without an offset. Raises Failure if there is no such definition."""
    guesses = Guesses(types, zone)
    for position, file in enumerate(files):
        names_of(file)
        before = set(guesses)
        names = {"csv": _from_csv, "jsonl": _from_jsonl}.get(file.kind, _from_arrow)(file, guesses)
        for name in before.symmetric_difference(names) if position else ():
            guesses[name].nullable = True
    if guesses and not any(guess.seen or guess.kind for guess in guesses.values()):
        raise Failure(f"{files[0].path}: types cannot be inferred without values: give them with --type, or register the relation first")
    if not guesses:
        raise Failure(f"{files[0].path}: types cannot be inferred, because the file has no rows: register the relation first")
    named = {"--key": key, "--type": types, "--not-null": not_null}
    for option, columns in named.items():
        for name in columns:
            if name not in guesses:
                raise Failure(f"{option} names {name!r}, but the files have only the columns {', '.join(guesses)}", 2)
    _refuse_local_times(guesses)
    firm = {*key, *not_null}
    return [_column(name, guess, name in firm, zone) for name, guess in guesses.items()]


def _refuse_local_times(guesses: Guesses) -> None:
    """Raise Failure, naming all columns with local times for which no zone is known."""
    names = [name for name, guess in guesses.items() if guess.kind is None and guess.seen and guess.possible[:1] == [LOCAL]]
    if names:
        columns = f"column{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"
        as_text = " ".join(f"--type {name}=string" for name in names)
        hint = f"give their time zone, for example --zone UTC, or load them as text with {as_text}"
        raise Failure(f"times without an offset in {columns}: {hint}")


def _column(name: str, guess: Guess, firm: bool, zone: str | None) -> dict[str, Any]:
    if guess.kind is None and not guess.possible:
        what = "values of several types, or integers that neither int64 nor float64 represents exactly"
        raise Failure(f"column {name!r} has {what}: fix the file, or give the type with --type {name}=…")
    kind = guess.kind or (guess.possible[0] if guess.seen else "string")
    nullable = not firm and (guess.nullable or (guess.blank and kind != "string") or (guess.open_ended and kind in DATED))
    zoned = {"zone": zone} if zone and kind == "timestamp" else {}
    return {"name": name} | type_of(kind) | ({"nullable": True} if nullable else {}) | zoned


def _from_csv(file: File, guesses: Guesses) -> set[str]:
    names = csv_header(file.path)
    try:
        refuse_other_separators(names)
    except MalformedBody as error:
        raise Failure(f"{file.path}: {error}") from error
    convert = pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.utf8()), strings_can_be_null=False)
    parse = pa.csv.ParseOptions(newlines_in_values=True)
    read = pa.csv.ReadOptions(column_names=names)
    for name in names:
        if name != OP_COLUMN:
            guesses.meet(name)
    for _, chunk, line, _ in csv_chunks(file.path):
        if not chunk.strip():
            continue
        try:
            table = pa.csv.read_csv(io.BytesIO(chunk), read, parse, convert)
        except pa.ArrowInvalid as error:
            raise Failure(f"{file.path}: not a CSV file, after line {line}: {error}") from error
        for name in names:
            if name != OP_COLUMN:
                _narrow(guesses[name], table[name].combine_chunks(), guesses.zone)
    return set(names) - {OP_COLUMN}


def _narrow(guess: Guess, texts: pa.Array, zone: str | None) -> None:
    """Remove the types that these texts do not have."""
    filled = texts.filter(pc.not_equal(texts, ""))
    dated = filled.filter(pc.invert(pc.is_in(filled, OPEN_ENDS)))
    if len(filled):
        open_ended = len(dated) < len(filled)
        left: list[str] = []
        for kind in guess.possible:
            known = kind == "string" or (kind == LOCAL and "timestamp" in left)
            if known or _all(kind, dated if open_ended and kind in DATED else filled, zone):
                left.append(kind)
        guess.only(left)
        guess.open_ended |= open_ended
    guess.blank |= len(filled) < len(texts)


def _integers(texts: pa.Array) -> pa.Array:
    """Return the texts that are written as integers, converted. ArrowInvalid: one exceeds int64."""
    return texts.filter(pc.match_substring_regex(texts, r"^-?[0-9]+$")).cast(pa.int64())


def _all(kind: str, texts: pa.Array, zone: str | None) -> bool:
    if not pc.all(pc.match_substring_regex(texts, _form(kind, zone)), min_count=0).as_py():
        return False
    try:
        if kind == "int64":
            texts.cast(pa.int64())
        elif kind == "float64":
            return not pc.any(pc.greater(pc.abs(_integers(texts)), _EXACT)).as_py()
        elif kind == "date":
            texts.cast(pa.date32())
        elif kind in ("timestamp", LOCAL):
            local = bool(zone) or kind == LOCAL
            texts = pc.replace_substring_regex(texts, OFFSET, "") if local else texts
            texts.cast(pa.timestamp("us", None if local else "UTC"))
    except pa.ArrowInvalid:
        return False
    return True


def _from_jsonl(file: File, guesses: Guesses) -> set[str]:
    counts: dict[str, int] = {}
    rows = 0
    for chunk, first, _ in jsonl_chunks(file.path):
        for number, line in enumerate(chunk.split(b"\n"), first):
            if not line.strip():
                continue
            try:
                row = loads(line)
            except orjson.JSONDecodeError as error:
                raise Failure(f"{file.path}: line {number} is not JSON: {error}") from error
            if type(row) is FlawedObject:
                continue  # a bad row, told with the others
            if not isinstance(row, dict):
                raise Failure(f"{file.path}: line {number} is not an object: each line must be one row")
            if row.pop(OP_COLUMN, "upsert") in ("delete", "truncate"):
                continue
            rows += 1
            for name, value in row.items():
                counts[name] = counts.get(name, 0) + (value is not None)
                _narrow_value(guesses.meet(name), value, line, guesses.zone, f"{file.path}: line {number}, column {name!r}")
    for name, count in counts.items():
        if count < rows:
            guesses[name].nullable = True
    return set(counts)


def _is_integer(value: float, line: bytes) -> bool:
    """Return whether the value may be an integer beyond 64 bits in the line, which orjson reads as a float."""
    return abs(value) >= 2**63 and _LONG_INTEGER.search(line) is not None


def _narrow_value(guess: Guess, value: Any, line: bytes, zone: str | None, where: str) -> None:
    if value is None:
        return
    if isinstance(value, bool):
        guess.only(["bool"])
    elif isinstance(value, int):
        guess.only(["int64", "float64"] if abs(value) <= _EXACT else ["int64"] if -(2**63) <= value < 2**63 else [])
    elif isinstance(value, float):
        guess.only([] if _is_integer(value, line) else ["float64"])
    elif value in (LATE, EARLY):
        guess.only(["string", *DATED])
        guess.open_ended = True
    elif isinstance(value, str):
        guess.only(["string", *(kind for kind in TEXTUAL if kind in guess.possible and _reads(kind, value, zone))])
    elif guess.kind is None:
        raise Failure(f"{where}: lists and objects are not supported as values")


def _form(kind: str, zone: str | None) -> str:
    if kind == LOCAL or (kind == "timestamp" and zone):
        return FORMS["timestamp"].replace(OFFSET, OFFSET[:-1] + "?$")
    return FORMS[kind]


def _reads(kind: str, text: str, zone: str | None) -> bool:
    if not re.match(_form(kind, zone), text):
        return False
    try:
        if kind in DATED:
            date.fromisoformat(text) if kind == "date" else datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _from_arrow(file: File, guesses: Guesses) -> set[str]:
    names: set[str] = set()
    for batch, _ in file.batches():
        for column, values in zip(batch.schema, batch.columns, strict=True):
            if column.name == OP_COLUMN:
                continue
            names.add(column.name)
            guess = guesses.meet(column.name)
            if not pa.types.is_null(column.type) and guess.kind is None:
                guess.only_kind(_arrow_kind(file, column, guesses.zone))
            guess.nullable |= column.nullable or values.null_count > 0
    return names


def _arrow_kind(file: File, column: pa.Field, zone: str | None) -> str:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if isinstance(kind, pa.UuidType | pa.JsonType):
        return "uuid" if isinstance(kind, pa.UuidType) else "json"
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= MOST_DIGITS:
        return decimal_kind(min(kind.precision, MOST_DIGITS), kind.scale)  # a value with more digits makes a bad row
    if pa.types.is_timestamp(kind) and kind.tz is None and zone is None:
        raise Failure(f"{file.path}: column {column.name!r} has times without a time zone: give it, for example --zone UTC")
    for matches, name in (
        (pa.types.is_integer, "int64"),
        (pa.types.is_floating, "float64"),
        (pa.types.is_timestamp, "timestamp"),
        (pa.types.is_date, "date"),
        (pa.types.is_boolean, "bool"),
        (is_text, "string"),
        (pa.types.is_time, "time"),
        (is_bytes, "bytes"),
    ):
        if matches(kind):
            return name
    raise Failure(f"{file.path}: column {column.name!r} is {column.type}, which relations do not support: convert or remove it")
