"""Changes as JSON: one body, or one change per line.

A change is `{"relation": …, "op": …, "row": {…}}` or, for a delete, `"key": {…}` (a whole `row` is accepted too: only its key columns are
read); among one relation's changes it is the row itself with an optional `_op`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson

from livejoin.wire.batch import DELETE, OPS, TRUNCATE, UPSERT, Batch, Changes, RowBlock
from livejoin.wire.budget import JSON_WEIGHTS, UNBOUNDED, Budget, take_text
from livejoin.wire.columns import FEW, from_values, mask_of, one_by_one
from livejoin.wire.errors import BadParameter, MalformedBody, RowError, UnknownRelation, check_utf8, cut
from livejoin.wire.grammar import INT64_MAX, INT64_MIN, JSON_READERS, Reader, Unreadable, shown
from livejoin.wire.kinds import ByKind
from livejoin.wire.schema import OP_COLUMN, RelationDefinition, RowRules
from livejoin.wire.validate import Findings, ValidatedRows, are_surely_valid, assemble, validate
from livejoin.wire.wording import instead
from livejoin.wire.wrapping import Keys

Definitions = Callable[[str], RelationDefinition]

MAX_TEXT = 200  # characters of source and run
_MOST_AHEAD = 4096  # bytes before the changes of a body, where its fields are looked for
_MEMBERS = frozenset({"relation", "op", "row", "key"})
NO_OPS = f"a replacement consists of plain rows, without {OP_COLUMN}: leave it out, or post the changes to /changes"
_FIELDS = frozenset({"changes", "source", "epoch", "run", "reset", "on_error"})
_BOM = b"\xef\xbb\xbf"
_HUGE = re.compile(rb"[0-9][eE]\+?0*[0-9]{2}|[0-9]{300}")  # in every number beyond float64


class _BadNumber(Unreadable):
    """A number beyond float64, which orjson rejects with all that is around it."""

    def __init__(self, text: str) -> None:
        self._text = cut(text)
        super().__init__(f"got {self._text}, which float64 cannot hold")

    def __repr__(self) -> str:
        return self._text


class FlawedObject(NamedTuple):
    """A JSON object with `Unreadable` instead of numbers beyond float64; name and reason are those of the first."""

    value: dict[str, Any]
    name: str | None
    reason: str


class JsonRows:
    """One relation's changes as they arrive: those still to be validated, and those rejected at once."""

    __slots__ = ("rules", "relation", "ops", "rows", "index", "refused")

    def __init__(self, relation: str, rules: RowRules) -> None:
        self.rules = rules
        self.relation = relation
        self.ops: list[int] = []
        self.rows: list[dict[str, Any]] = []
        self.index: list[int] = []
        self.refused: list[RowError] = []

    def add(self, index: int, op: int, row: dict[str, Any]) -> None:
        self.ops.append(op)
        self.rows.append(row)
        self.index.append(index)

    def refuse(self, index: int, column: str | None, reason: str) -> None:
        self.refused.append(RowError(index, column and cut(column), reason))

    def op_of(self, index: int, given: Any) -> int | None:
        """Return the code of an op; None if there is no such op, which rejects the change. Absent or null: upsert."""
        if given is None:
            return UPSERT
        op = OPS.get(given) if type(given) is str else None
        if op is None:
            self.refuse(index, OP_COLUMN, f"got {shown(given)}, expected insert, upsert, delete or truncate")
        return op

    def validated(self, room: Budget = UNBOUNDED) -> ValidatedRows:
        """Validate the changes. Unknown columns are errors, except in truncates, which read nothing."""
        rules, findings = self.rules, Findings()
        room.take(rules.width * len(self.rows))
        self._find_unknown(findings)
        rows = self.rows
        if self.ops and max(self.ops) > UPSERT:
            rows = [self._read_part(op, row) for op, row in zip(self.ops, rows, strict=True)]
        return validate_rows(rules, self.relation, self.ops, self.index, rows, findings)

    def _read_part(self, op: int, row: dict[str, Any]) -> dict[str, Any]:
        """Return the part of a row that is read: of a delete only the key columns, of a truncate none."""
        if op <= UPSERT:
            return row
        return {name: row[name] for name in self.rules.key if name in row} if op == DELETE else {}

    def _find_unknown(self, findings: Findings) -> None:
        names = self.rules.name_set
        strange = {shape for shape in set(map(tuple, self.rows)) if not names.issuperset(shape)}
        if not strange:
            return
        rows = [at for at, row in enumerate(self.rows) if tuple(row) in strange and self.ops[at] != TRUNCATE]

        def stranger(row: int) -> str:
            return next(name for name in self.rows[row] if name not in names)

        if rows:
            first, reason = stranger(rows[0]), f"{self.relation} has no such column"
            meant = instead(first, self.rules.names)  # for this one only: it takes time
            findings.add(-1, mask_of(rows, len(self.rows)), stranger, lambda row: reason + (meant if stranger(row) == first else ""))


def validate_rows(
    rules: RowRules,
    relation: str,
    ops: Sequence[int],
    index: Sequence[int],
    rows: Sequence[dict[str, Any]],
    findings: Findings,
    readers: ByKind[Reader] = JSON_READERS,
    settle: Callable[[int, list[Any]], list[Any]] | None = None,
) -> ValidatedRows:
    """Judge rows given as dictionaries (only what each op reads). `settle(ordinal, values)` may replace a column's values."""
    columns = []
    few = len(rows) <= FEW
    for ordinal, name in enumerate(rules.names):
        values = [row.get(name) for row in rows]
        if settle is not None:
            values = settle(ordinal, values)
        columns.append((one_by_one if few else from_values)(rules, ordinal, values, findings, readers))
    ops_array, index_array = np.array(ops, np.uint8), np.array(index, np.int64)
    if few:
        # A single array of structs: the fixed cost of pa.array once, not for each column.
        tuples = list(zip(*columns, strict=True))
        whole = RowBlock.few(tuples, rules.struct)
        if not findings.checks and are_surely_valid(rules, ops, tuples):
            return ValidatedRows(Changes(relation, rules.definition, ops_array, whole, index_array), [], 0, unclear=findings.unclear)
        columns = whole.arrow.columns
    return validate(rules, relation, ops_array, index_array, columns, findings, lambda row, column: column not in rows[row])


def loads(text: bytes) -> Any:
    """Return a JSON value; a `FlawedObject` if it is an object with numbers beyond float64. Raises orjson.JSONDecodeError."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        if _HUGE.search(text) is None:
            raise
        try:
            value = json.loads(text.decode(), parse_float=_number, parse_int=_number, parse_constant=_refuse_constant)
            flaws = list(_flaws(value, None))
        except (ValueError, RecursionError):
            flaws = []
        if not flaws or type(value) is not dict:
            raise
        return FlawedObject(value, *flaws[0])


def _number(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return _BadNumber(text)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _flaws(value: Any, name: str | None) -> Iterator[tuple[str | None, str]]:
    """Yield the numbers beyond float64, each with the name that it has, and its reason. Raises ValueError for half a surrogate pair, which
    orjson rejects too."""
    if type(value) is _BadNumber:
        yield name, value.reason
    elif type(value) is str:
        value.encode()
    elif type(value) is dict:
        for key, member in value.items():
            key.encode()
            yield from _flaws(member, key)
    elif type(value) is list:
        for member in value:
            yield from _flaws(member, name)


class _Changes:
    """Changes of any relations, grouped by relation."""

    def __init__(self, definitions: Definitions) -> None:
        self.definitions = definitions
        self.groups: dict[str, JsonRows] = {}

    def add(self, index: int, change: Any, line: int | None = None) -> None:
        flaw = None
        if type(change) is FlawedObject:
            flaw, change = change, change.value
        if type(change) is not dict:
            raise MalformedBody(f"change {index} is {shown(change)}, not an object", line)
        relation = change.get("relation")
        if type(relation) is not str:
            lacking = "no relation" if relation is None else f'the "relation" {shown(relation)}, expected a name'
            raise MalformedBody(f"change {index} has {lacking}", line)
        group = self.groups.get(relation)
        if group is None:
            group = self.groups[relation] = JsonRows(relation, self.definitions(relation).rules)
        if flaw is not None:
            group.refuse(index, flaw.name, flaw.reason)
            return
        op = group.op_of(index, change.get("op"))
        if op is None:
            return
        if "op" not in change and not _MEMBERS.issuperset(change):
            # Change logs have extra numbers and dates; but an unknown member may be a misspelt op, and the change would become an upsert.
            stranger = next(name for name in change if name not in _MEMBERS)
            group.refuse(index, None, f'no "op", but the unknown member "{cut(stranger)}"; the members are relation, op, row and key')
        elif op == TRUNCATE:
            group.add(index, op, {})
        elif "key" in change and (fault := _fault_of_key(group.rules, change["key"], change.get("row"))) is not None:
            group.refuse(index, *fault)
        else:
            key = change.get("key") if op == DELETE else None
            row = change.get("row") if key is None else key
            if type(row) is dict:
                group.add(index, op, row)
            else:
                what = "key" if op == DELETE else "row"
                group.refuse(index, None, f'the change has no "{what}"' if row is None else f'"{what}" is {shown(row)}, not an object')

    def batch(self, sent: int, room: Budget, **fields: Any) -> Batch:
        groups = self.groups.values()
        refused = [error for group in groups for error in group.refused]
        return assemble(sent, 0, [group.validated(room) for group in groups], refused, **fields)


def _fault_of_key(rules: RowRules, key: Any, row: Any) -> tuple[str | None, str] | None:
    """Return column and reason if the `key` of a change is invalid or differs from its `row`."""
    if key is None:
        return None
    if type(key) is not dict:
        return None, f'"key" is {shown(key)}, not an object'
    if not rules.key_set.issuperset(key):
        return next(name for name in key if name not in rules.key_set), "not a column of the key"
    if row is None:
        return None
    if type(row) is not dict:
        return None, f'"row" is {shown(row)}, not an object'
    for name, value in key.items():
        # Nested values are rejected by their column's type. Comparing two may exceed Python's recursion limit.
        if name in row and type(value) not in (dict, list) and row[name] != value:
            return name, f'"key" has {shown(value)}, but "row" has {shown(row[name])}'
    return None


def decode_json(body: bytes, definitions: Definitions, room: Budget = UNBOUNDED) -> Batch:
    """Decode the body of `POST /v1/changes` as application/json."""
    take_text(body, JSON_WEIGHTS, room)
    data = _load(body)
    if type(data) is FlawedObject:
        data = data.value
        if type(data.get("changes")) is list:
            flaws = ((change, next(_flaws(change, None), None)) for change in data["changes"])
            data["changes"] = [
                change if flaw is None or type(change) is not dict else FlawedObject(change, *flaw) for change, flaw in flaws
            ]
    if type(data) is not dict or type(data.get("changes")) is not list:
        raise MalformedBody('the body must be an object with a list "changes"')
    if not _FIELDS.issuperset(data):
        stranger = next(name for name in data if name not in _FIELDS)
        raise MalformedBody(f'the body has an unknown field "{cut(stranger)}"; the fields are {", ".join(sorted(_FIELDS))}')
    fields = _read_fields(data) if len(data) > 1 else {}
    try:
        room.check_rows(len(data["changes"]))
        changes = _Changes(definitions)
        for index, change in enumerate(data["changes"]):
            changes.add(index, change)
    except UnknownRelation as error:
        raise UnknownRelation(error.name, error.instead, fields) from None
    return changes.batch(len(data["changes"]), room, **fields)


def fields_ahead(body: bytes) -> dict[str, Any]:
    """Return the fields in front of the `changes` of a body, without decoding these; no fields if they cannot be read."""
    ahead = body[: max(0, body.find(b'"changes"', 0, _MOST_AHEAD))].rstrip().removesuffix(b",")
    try:
        return _read_fields(orjson.loads(ahead + b"}")) if ahead else {}
    except (orjson.JSONDecodeError, BadParameter):
        return {}


def decode_jsonl(body: bytes, definitions: Definitions, room: Budget = UNBOUNDED) -> Batch:
    """Decode the body of `POST /v1/changes` as JSON lines. Empty lines are ignored and not counted."""
    changes = _Changes(definitions)
    index = -1
    for index, (line, change) in enumerate(lines(body, room)):
        changes.add(index, change, line)
    return changes.batch(index + 1, room)


def decode_relation_jsonl(body: bytes, relation: str, definitions: Definitions, room: Budget = UNBOUNDED, plain: bool = False) -> Batch:
    """Decode one relation's changes as JSON lines: each a row, with an optional `_op`, unless they must be `plain`."""
    rows = JsonRows(relation, definitions(relation).rules)
    index = -1
    for index, (line, row) in enumerate(lines(body, room)):
        if type(row) is FlawedObject:
            if not plain:
                rows.refuse(index, row.name, row.reason)
                continue
            row = row.value  # of a plain row, all columns are validated, and its key is needed
        if type(row) is not dict:
            raise MalformedBody(f"line {line} is {shown(row)}, not an object", line)
        if plain and OP_COLUMN in row:
            raise MalformedBody(f"line {line}: {NO_OPS}", line)
        _add_row(rows, index, row)
    return assemble(index + 1, 0, [rows.validated(room)], rows.refused)


class JsonDecoder:
    """Decodes one relation's changes from Kafka records: each value is a row with an optional `_op`.

    No record raises an exception: a value that cannot be read is a bad row. A delete is a row with `"_op": "delete"`, or a null value (a
    tombstone) with a key that has the key columns; other tombstones are ignored.
    """

    def __init__(self, relation: str, definition: RelationDefinition) -> None:
        self.relation = relation
        self._rules = definition.rules
        self._keys = Keys(self._rules)

    def decode(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Batch:
        """Return the records' changes; `index` is the position in `values`."""
        rows = JsonRows(self.relation, self._rules)
        ignored = 0
        for index, value in enumerate(values):
            try:
                row = None if value is None else orjson.loads(value)
            except orjson.JSONDecodeError as error:
                rows.refuse(index, *fault_of(value, error))
                continue
            if type(row) is dict:
                _add_row(rows, index, row)
            elif row is not None:
                rows.refuse(index, None, f"the value is {shown(row)}, not an object")
            elif (key := self._keys.settled(keys[index])) is not None:
                rows.add(index, DELETE, key)
            else:
                ignored += 1
        return assemble(len(values), ignored, [rows.validated()], rows.refused)


def fault_of(value: bytes | None, error: orjson.JSONDecodeError) -> tuple[str | None, str]:
    """Return name and reason why a Kafka record's value cannot be read. The serializers of a schema registry begin with a zero byte."""
    try:
        flawed = loads(value or b"")
        return flawed.name, flawed.reason
    except orjson.JSONDecodeError:
        pass
    hint = " (Avro and Protobuf are not supported: configure the connector to write JSON)" if value and value[0] == 0 else ""
    return None, f"the value is not JSON: {error}{hint}"


def _add_row(rows: JsonRows, index: int, row: dict[str, Any]) -> None:
    op = rows.op_of(index, row.pop(OP_COLUMN, None))
    if op is not None:
        rows.add(index, op, row)


def lines(body: bytes, room: Budget) -> Iterator[tuple[int, Any]]:
    """Yield the JSON values of the non-empty lines, each a row, with their line numbers (from 1); a `FlawedObject` as `loads` does. A byte
    order mark is no part of the first line."""
    take_text(body, JSON_WEIGHTS, room)
    rows = 0
    for line, text in enumerate(body.removeprefix(_BOM).split(b"\n"), 1):
        if text and not text.isspace():
            rows += 1
            if rows > room.rows:
                room.check_rows(rows)
            try:
                yield line, loads(text)
            except orjson.JSONDecodeError as error:
                check_utf8(text, line)
                raise MalformedBody(f"line {line} is not JSON: {error.msg} at column {error.colno}", line) from None


def _load(body: bytes) -> Any:
    try:
        return loads(body)
    except orjson.JSONDecodeError as error:
        check_utf8(body)
        raise MalformedBody(f"the body is not JSON: {error}", error.lineno) from None


def _read_fields(data: dict[str, Any]) -> dict[str, Any]:
    """Return the fields besides `changes`, each checked by itself; null is absent. The service checks that they are consistent."""
    fields = {name: value for name, value in data.items() if name != "changes" and value is not None}
    for name in ("source", "run"):
        value = fields.get(name, "")
        if type(value) is not str or len(value) > MAX_TEXT:
            raise BadParameter(name, f"must be a string of up to {MAX_TEXT} characters, not {shown(value)}")
    epoch = fields.get("epoch", 0)
    if type(epoch) is not int or not INT64_MIN <= epoch <= INT64_MAX:
        raise BadParameter("epoch", f"must be a 64-bit integer, not {shown(epoch)}")
    if type(fields.get("reset", False)) is not bool:
        raise BadParameter("reset", f"must be true or false, not {shown(fields['reset'])}")
    if fields.get("on_error", "reject") not in ("reject", "skip"):
        raise BadParameter("on_error", f'must be "reject" or "skip", not {shown(fields["on_error"])}')
    return fields
