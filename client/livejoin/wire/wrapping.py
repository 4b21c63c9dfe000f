"""Kafka's keys and values as Connect's JSON converter writes them: bare, or as `{"schema": …, "payload": …}`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any, Generic, TypeVar

import orjson

from livejoin.wire.schema import RowRules
from livejoin.wire.semantics import NO_SEMANTICS, Semantics, semantics_of, settler

Meaning = TypeVar("Meaning")


def unwrapped(data: Any, meaning: Callable[[Any], Meaning], none: Meaning) -> tuple[Any, Meaning]:
    """Return the payload, and the meaning of the schema, of a possibly wrapped value."""
    return (data["payload"], meaning(data["schema"])) if _is_wrapped(data) else (data, none)


def _is_wrapped(data: Any) -> bool:
    """Return whether the value has a `schema` and a `payload` that are objects; columns of a row with these names are not."""
    return type(data) is dict and "payload" in data and "schema" in data and type(data["schema"]) in (dict, type(None))


class Wrapping(Generic[Meaning]):
    """The prefix `{"schema":…,"payload":` that keys or values of one table share: it is parsed once, not for every record.

    A value that starts with a known prefix W, continues with a complete JSON value, and ends with a closing brace is the object that W
    begins.
    """

    _CUT = b'"payload":'
    _MOST = 16  # the number of schema versions of a table that are cached

    def __init__(self, meaning: Callable[[Any], Meaning], none: Meaning) -> None:
        self._meaning_of = meaning
        self._none = none
        self._known: dict[bytes, Meaning] = {}
        self._last = b""  # the known prefix that was used last
        self._meaning = none  # the meaning of `_last`

    def read(self, value: bytes) -> tuple[Any, Meaning]:
        """Return the payload, and the meaning of the schema; raises orjson.JSONDecodeError."""
        if self._known and self._is_known(value) and value.endswith(b"}"):
            try:
                return orjson.loads(memoryview(value)[len(self._last) : -1]), self._meaning
            except orjson.JSONDecodeError:
                pass  # parsing the whole value reports the error
        data = orjson.loads(value)
        if _is_wrapped(data):
            self._learn(value, data)
        return unwrapped(data, self._meaning_of, self._none)

    def _is_known(self, value: bytes) -> bool:
        if value.startswith(self._last):
            return True
        for wrapping, meaning in self._known.items():
            if value.startswith(wrapping):
                self._last, self._meaning = wrapping, meaning
                return True
        return False

    def _learn(self, value: bytes, data: dict[str, Any]) -> None:
        """Remember the prefix of a value that was read as `data`."""
        # The first match may lie inside the schema; then no complete value follows, and nothing is learned.
        wrapping = value[: value.find(self._CUT) + len(self._CUT)]
        try:
            if orjson.loads(wrapping + b"null}") != {"schema": data["schema"], "payload": None}:
                return
        except (orjson.JSONDecodeError, RecursionError):  # comparing deeply nested values exceeds Python's limit
            return
        if len(self._known) >= self._MOST:
            self._known.clear()
        self._last, self._meaning = wrapping, self._meaning_of(data["schema"])
        self._known[wrapping] = self._meaning


class Keys:
    """The keys of records about one relation's rows. One that is not a struct (ExtractField) does not say which column it is.

    deleted     the key of the last change, if it was a delete; only DebeziumDecoder sets it
    """

    def __init__(self, rules: RowRules) -> None:
        self._columns, self._kinds = rules.key, dict(rules.kinds)
        self._wrapping = Wrapping(semantics_of, NO_SEMANTICS)
        self.deleted: Any = None

    def read(self, key: Any) -> tuple[dict[str, Any] | None, Semantics]:
        """Return the key columns of a key, which is bytes or JSON, and their semantics; None if one is missing or it cannot be read."""
        if type(key) is not bytes:
            data, semantics = unwrapped(key, semantics_of, NO_SEMANTICS)
        else:
            try:
                data, semantics = self._wrapping.read(key)
            except orjson.JSONDecodeError:
                return None, NO_SEMANTICS
        return self.columns_of(data), semantics

    def settled(self, key: Any) -> dict[str, Any] | None:
        """Return the same with the semantics applied."""
        row, semantics = self.read(key)
        if row is None:
            return None
        settlers = {name: settler(kind, semantics.get(name)) for name, kind in self._kinds.items() if name in row}
        found = {name: settle(row[name]) if (settle := settlers[name]) else row[name] for name in row}
        days = [name for name, kind in self._kinds.items() if kind == "date" and name in semantics and type(found.get(name)) is int]
        return found | {name: _date_of(found[name]) for name in days}

    def columns_of(self, struct: Any) -> dict[str, Any] | None:
        """Return the key columns of a struct; None if one of them is missing."""
        if type(struct) is not dict:
            return None
        row = {name: struct.get(name) for name in self._columns}
        return None if None in row.values() else row


def _date_of(days: int) -> int | str:
    """A date as JSON has it, of days since 1970-01-01; the number itself if there is no such date."""
    try:
        return date.fromordinal(days + date(1970, 1, 1).toordinal()).isoformat()
    except (ValueError, OverflowError):
        return days
