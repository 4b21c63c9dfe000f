"""The values of `option(…)`, validated, and the service that they name.

Of a table of its catalog, Spark passes the options on only when the table is created, among names of its own, and then only the columns. So
they are kept in the metadata of the first column. If columns have to be converted before they are written, Spark gives them the metadata of
the table that is written; otherwise they keep that of the table from which they were read, which must not be written in its place. Spark
removes `_UNCONVERTED` when it converts, so columns that have it do not say which table is written.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import livejoin
from livejoin.datasource.errors import DataSourceError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_CONNECTION = ("url", "token", "ca")
_OF_SPARK = ("checkpointlocation", "queryname", "path")  # options that Spark passes on, and uses itself
_METADATA, _OF_TABLE, _WINDOW = "livejoin", "option.", "overlaps."
_UNCONVERTED = "__CHAR_VARCHAR_TYPE_STRING"  # Spark's: the type as it was declared


def is_of_new_table(given: Mapping[str, str]) -> bool:
    """Whether Spark asks for the columns of a table that is being created."""
    return any(name == "provider" or name.startswith(_OF_TABLE) for name in given)


class Service(NamedTuple):
    """Where the service is, including what the executors need from the driver's environment."""

    url: str | None
    token: str | None
    ca: str | None

    def connect(self, reader: str = "") -> livejoin.Client:
        return livejoin.connect(self.url, token=self.token, ca=self.ca, reader=reader)


class Options:
    """The options of one read or write. DataSourceError: an unknown option."""

    def __init__(
        self, given: Mapping[str, str], what: str, known: tuple[str, ...], columns: StructType | None = None, writes: bool = False
    ) -> None:  # fmt: skip
        """`what` describes the operation, which has the options `known` in addition to those of the connection; `columns`: perhaps those of
        a table of the catalog; `writes`: whether they are written."""
        self._given, self._what, self._writes = {name.lower(): value for name, value in given.items()}, what, writes
        names = {name.lower() for name in (*_CONNECTION, *known, *_OF_SPARK)}
        if is_of_new_table(self._given):
            self._given = {name.removeprefix(_OF_TABLE): self._given[name] for name in self._given if name.startswith(_OF_TABLE)}
        if self._given.keys() >= {"path", "relation"}:
            raise DataSourceError("the name in load(…) is that of a view: leave it out, or the option 'relation'")
        metadata = columns[0].metadata if columns and not self._given.keys() & {"view", "relation"} else {}
        kept = {} if writes and _UNCONVERTED in metadata else metadata.get(_METADATA, {})
        if "overlaps" in names:
            names |= {name for name in (*kept, *self._given) if name.startswith(_WINDOW)}
        self._given = {name: value for name, value in kept.items() if name in names} | self._given
        for name in self._given:
            if name not in names:
                raise DataSourceError(f"unknown option {name!r} {what}: the options are {', '.join((*_CONNECTION, *known))}")

    def kept_in(self, columns: StructType) -> StructType:
        """These columns of a new table, with its options."""
        if "token" in self._given:
            raise DataSourceError("anybody can read the options of a table: give the token in LIVEJOIN_TOKEN, not in the option 'token'")
        columns[0].metadata |= {_METADATA: self._given, _UNCONVERTED: columns[0].dataType.simpleString()}
        return columns

    @property
    def service(self) -> Service:
        """`url`, `token`, `ca`, or the values from the driver's environment (LIVEJOIN_URL, …)."""
        return Service(*(self._given.get(name) or os.environ.get(f"LIVEJOIN_{name.upper()}") for name in _CONNECTION))

    @property
    def read(self) -> tuple[str, str]:
        """What is read: "view" and its name, or "relation" and its name. The argument of `load` is the name of a view."""
        relation, view = self.optional("relation"), self.optional("view")
        if relation and not view:
            return "relation", relation
        return "view", view or self.optional("path") or self.text("view")

    @property
    def chosen(self) -> dict[str, Any]:
        """The options that choose rows and columns, as arguments of the client."""
        chosen: dict[str, Any] = {"where": self.optional("where")} if "where" in self._given else {}
        if (columns := self.optional("columns")) is not None:
            chosen["columns"] = [name.strip() for name in next(csv.reader([columns], skipinitialspace=True), [])]
        given = [name for name in self._given if name == "overlaps" or name.startswith(_WINDOW)]
        if windows := {name.removeprefix("overlaps").removeprefix("."): self._window(name) for name in given}:
            chosen["overlaps"] = windows
        return chosen

    def _window(self, name: str) -> tuple[str | None, str | None]:
        low, comma, high = self._given[name].partition(",")
        if not comma or "," in high:
            raise DataSourceError(f"the option {name!r} must be 'low,high', either of which may be empty, not {self._given[name]!r}")
        return low.strip() or None, high.strip() or None

    def text(self, name: str) -> str:
        """A required option."""
        if not (value := self.optional(name)):
            given = ", ".join(self._given)
            reading = "Spark passes on those of a table only if it was created without a list of columns"
            writing = (
                "for a table, repeat its options, since Spark does not say which one is written if no column needs a conversion: "
                "INSERT INTO t WITH (url '…', relation 'r') …, or writeTo('t').options(…)"
            )
            table = f"; given: {given}" if given else f"; {writing if self._writes else reading}"
            raise DataSourceError(f"the option {name!r} is required {self._what}{table}")
        return value

    def one_of(self, name: str, *values: str) -> str:
        """By default the first."""
        value = self._given.get(name.lower(), values[0]).lower()
        if value not in values:
            raise DataSourceError(f"the option {name!r} must be {' or '.join(values)}, not {value!r}")
        return value

    def is_on(self, name: str) -> bool:
        return self.one_of(name, "false", "true") == "true"

    def whole(self, name: str, low: int, high: int = 2**63 - 1) -> int | None:
        """An integer from low to high; None if it is not given."""
        if (value := self._given.get(name.lower())) is None:
            return None
        if not value.isdecimal() or not low <= int(value) <= high:
            raise DataSourceError(f"the option {name!r} must be an integer from {low:,} to {high:,}, not {value!r}")
        return int(value)

    def optional(self, name: str) -> str | None:
        return self._given.get(name.lower())
