"""The definition of a relation: typed columns, a key, named intervals."""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from livejoin.wire.errors import BadDefinition, cut
from livejoin.wire.grammar import INT64_MAX, parse_duration
from livejoin.wire.kinds import KEPT_TYPES, MOST_DIGITS, SENT_TYPES, decimal_kind, digits_of, zoned_kind
from livejoin.wire.values.local_times import LONGEST_ZONE, ZONE, is_zone
from livejoin.wire.values.open_ends import open_words
from livejoin.wire.wording import instead, wording

NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
OP_COLUMN = "_op"
MAX_NAME = 63  # characters of a column's name
_FORBIDDEN = r'."\x00-\x1f\x7f-\x9f'  # in a column's name: dot, double quote, control characters

ColumnType = Literal["int64", "float64", "decimal", "timestamp", "date", "string", "bool", "uuid", "time", "json", "bytes"]
Bounds = Literal["[)", "[]", "(]", "()"]

POINT: Bounds = "[]"
ENDPOINT_TYPES = ("int64", "float64", "decimal", "timestamp", "date")

_STRICT = ConfigDict(frozen=True, extra="forbid", strict=True)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _with_digits(schema: dict[str, Any]) -> None:
    """Extend the JSON schema by what `Column._check_digits` accepts."""
    fields = schema["properties"]
    for name, least in (("precision", 1), ("scale", 0)):
        fields[name] = {"type": "integer", "minimum": least, "maximum": MOST_DIGITS, "description": fields[name]["description"]}
    described = {"description": fields["zone"]["description"]}
    fields["zone"] = {"type": "string", "maxLength": LONGEST_ZONE, "pattern": f"^({ZONE.pattern})$"} | described
    schema["dependentSchemas"] = {"zone": {"properties": {"type": {"const": "timestamp"}}}}
    schema["if"] = {"properties": {"type": {"const": "decimal"}}}
    schema["then"] = {"required": ["precision", "scale"]}
    schema["else"] = {"properties": {"precision": False, "scale": False}}


class Column(BaseModel):
    """One column. Its name has 1 to 63 characters, without dots, double quotes and control characters, and is not `_op`. A decimal has
    `precision` digits, `scale` of them after the decimal point. `zone` is a time zone of the IANA database: values of the timestamp column
    without an offset are local times of this zone."""

    model_config = ConfigDict(**_STRICT, json_schema_extra=_with_digits)
    name: str = Field(
        json_schema_extra={"minLength": 1, "maxLength": MAX_NAME, "pattern": f"^[^{_FORBIDDEN}]*$", "not": {"const": OP_COLUMN}},
        description="1 to 63 characters without dots, double quotes and control characters; not `_op`",
    )
    type: ColumnType = Field(description="the type of the values; int64, float64, decimal, timestamp and date can be the ends of intervals")
    nullable: bool = Field(False, description="whether values may be null")
    precision: int | None = Field(None, description="digits of a decimal, in all")
    scale: int | None = Field(None, description="digits of a decimal after the decimal point, at most `precision`")
    zone: str | None = Field(
        None,
        description="a time zone of the IANA database, such as Europe/Berlin: times without an offset are local times there. Absent: such "
        "times are refused",
    )

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        _require(1 <= len(name) <= MAX_NAME, f"a column name must have 1 to {MAX_NAME} characters, not {len(name)}")
        _require(name != OP_COLUMN, f"{OP_COLUMN!r} is not a valid column name: it is reserved for the operation of a change")
        # Half a surrogate pair cannot occur in JSON, so the schema need not exclude it.
        found = re.search(rf"[{_FORBIDDEN}\ud800-\udfff]", name)
        said = f"the column name {name!r} contains {found and found[0]!r}; dots, double quotes and control characters are not allowed"
        _require(found is None, said)
        return name

    @field_validator("zone")
    @classmethod
    def _check_zone(cls, zone: str | None) -> str | None:
        known = zone is None or is_zone(zone)
        _require(known, f"there is no time zone {zone!r}: use a name of the IANA database, such as Europe/Berlin or UTC")
        return zone

    @model_validator(mode="after")
    def _check_digits(self) -> Column:
        precision, scale = self.precision, self.scale
        _require(self.zone is None or self.type == "timestamp", f"only a timestamp has a zone, not {self.type}")
        if self.type != "decimal":
            _require(precision is None and scale is None, f"only a decimal has precision and scale, not {self.type}")
            return self
        _require(precision is not None and scale is not None, "a decimal needs its precision and scale, such as 12 and 2")
        assert precision is not None and scale is not None
        _require(1 <= precision <= MOST_DIGITS, f"the precision of a decimal is from 1 to {MOST_DIGITS} digits, not {precision}")
        _require(0 <= scale <= precision, f"the scale of a decimal is from 0 to its precision, not {scale}")
        return self

    @staticmethod
    def of_kind(name: str, kind: str, nullable: bool) -> Column:
        """Return a column of which nothing is checked: no relation of a user need be able to have it."""
        precision, scale = digits_of(kind) or (None, None)
        type_: Any = kind if precision is None else "decimal"
        return Column.model_construct(name=name, type=type_, nullable=nullable, precision=precision, scale=scale, zone=None)

    @property
    def kind(self) -> str:
        """The type, for a decimal with its precision and scale (`kinds`)."""
        if self.precision is None or self.scale is None:
            return self.type
        return decimal_kind(self.precision, self.scale)

    @property
    def read_as(self) -> str:
        """The key in tables of readers."""
        return self.kind if self.zone is None else zoned_kind(self.zone)

    @property
    def comparable(self) -> str:
        """Equal for columns whose values can be compared."""
        return self.type if self.scale is None else f"decimal of scale {self.scale}"


def _in_two_forms(schema: dict[str, Any]) -> None:
    """Extend the JSON schema by what `Interval._check_form` accepts, where a point may declare its bounds too."""
    fields = schema.pop("properties")
    start, end, at = ({"type": "string", "description": fields[name]["description"]} for name in ("start", "end", "at"))
    closed = {"const": POINT, "description": fields["bounds"]["description"]}
    schema["oneOf"] = [
        {"properties": {"start": start, "end": end, "bounds": fields["bounds"]}, "required": ["start", "end"]},
        {"properties": {"at": at, "bounds": closed}, "required": ["at"]},
    ]
    for form in schema["oneOf"]:
        form["additionalProperties"] = False
    del schema["additionalProperties"]


class Interval(BaseModel):
    """An interval whose endpoints are two columns, or a point, whose only column is `at` (a closed interval with start = end)."""

    model_config = ConfigDict(**_STRICT, json_schema_extra=_in_two_forms)
    start: str | None = Field(None, description="the column with the start; null there: unbounded in the past")
    end: str | None = Field(None, description="the column with the end, of the same type; null there: unbounded, until further notice")
    bounds: Bounds = Field("[)", description="which ends belong to the interval: `[` and `]` include one, `(` and `)` exclude it")
    at: str | None = Field(
        None, description="the column with the point, an interval that starts and ends there; null there: it overlaps nothing"
    )

    @model_validator(mode="before")
    @classmethod
    def _close_points(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("at") is not None:
            return {"bounds": POINT, **data}
        return data

    @model_validator(mode="after")
    def _check_form(self) -> Interval:
        if self.at is not None:
            _require(self.start is None and self.end is None, '"at" cannot be combined with "start" and "end"')
            _require(self.bounds == POINT, f'a point ("at") must have the bounds "{POINT}"')
        else:
            _require(self.start is not None and self.end is not None, 'an interval must have "start" and "end", or "at"')
            if self.start == self.end:
                _require(self.bounds == POINT, f'from {self.start!r} to itself, "{self.bounds}" is always empty: write {{"at": …}}')
        return self

    @property
    def start_column(self) -> str:
        return self.at or self.start or ""

    @property
    def end_column(self) -> str:
        return self.at or self.end or ""

    @property
    def start_open(self) -> bool:
        return self.bounds[0] == "("

    @property
    def end_open(self) -> bool:
        return self.bounds[1] == ")"

    def to_json(self) -> dict[str, str]:
        if self.start_column == self.end_column:
            return {"at": self.start_column}
        return {"start": self.start_column, "end": self.end_column, "bounds": self.bounds}


class Retention(BaseModel):
    """Rows are deleted once the column's value, a timestamp or a date, is older than the duration (ISO 8601, without months and years)."""

    model_config = _STRICT
    column: str = Field(description="a column of type timestamp or date; rows in which it is null are kept")
    duration: str = Field(
        alias="for",
        examples=["P90D"],
        description="the age at which rows are deleted, as an ISO 8601 duration in weeks, days, hours, minutes and seconds, longer than 0",
    )

    @field_validator("duration")
    @classmethod
    def _check_duration(cls, duration: str) -> str:
        _require(0 < parse_duration(duration) <= INT64_MAX, f"the duration must be longer than 0, and fit into 64 bits: {duration!r}")
        return duration

    @property
    def micros(self) -> int:
        return parse_duration(self.duration)

    def to_json(self) -> dict[str, str]:
        return {"column": self.column, "for": self.duration}


class RelationDefinition(BaseModel):
    """The definition of a relation: typed columns, the columns of its key, named intervals, and the retention of rows (null: forever)."""

    # Built by `parse_relation`, which raises BadDefinition; never changed afterwards.
    model_config = _STRICT
    columns: list[Column] = Field(min_length=1, description="the columns, in order")
    key: list[str] = Field(min_length=1, description="the names of the columns of the primary key, which are not nullable")
    intervals: dict[str, Interval] = Field(
        {},
        json_schema_extra={"propertyNames": {"pattern": f"^{NAME.pattern}$"}},
        description="the intervals by name, which is not that of a column; views join on them by `overlaps`",
    )
    retain: Retention | None = Field(None, description="when rows are deleted because of their age; null: never")

    @cached_property
    def rules(self) -> RowRules:
        """The validation rules for its rows, compiled at first use."""
        return RowRules(self)

    @model_validator(mode="after")
    def _check(self) -> RelationDefinition:
        names = [column.name for column in self.columns]
        for name in names:
            _require(names.count(name) == 1, f"the column {name!r} appears twice")
        self._check_key()
        for name, interval in self.intervals.items():
            self._check_interval(name, interval)
        if self.retain is not None:
            column = self._by_name.get(self.retain.column)
            _require(column is not None, f"retain names {self.retain.column!r}, which is not a column")
            assert column is not None
            _require(column.type in ("timestamp", "date"), f"retain needs a timestamp or a date, and {column.name!r} is {column.type}")
        return self

    def _check_key(self) -> None:
        for name in self.key:
            _require(self.key.count(name) == 1, f"the key contains {name!r} twice")
            _require(name in self._by_name, f"the key contains {name!r}, which is not a column{instead(name, self._by_name)}")
            _require(not self._by_name[name].nullable, f"the key column {name!r} cannot be nullable")
            _require(self._by_name[name].type != "json", f"the key column {name!r} is json, which cannot be compared: use another column")

    def _check_interval(self, name: str, interval: Interval) -> None:
        _require(NAME.fullmatch(name) is not None, f"the interval's name {name!r} does not match {NAME.pattern}")
        _require(name not in self._by_name, f"the interval {name!r} has the name of a column")
        for column in (interval.start_column, interval.end_column):
            said = f"the interval {name!r} names {column!r}, which is not a column{instead(column, self._by_name)}"
            _require(column in self._by_name, said)
        start, end = self._by_name[interval.start_column], self._by_name[interval.end_column]
        _require(
            start.type in ENDPOINT_TYPES,
            f"the interval {name!r}: {start.name!r} is {start.type}; endpoints must be {', '.join(ENDPOINT_TYPES)}",
        )
        _require(
            start.kind == end.kind,
            f"the interval {name!r} starts as {start.kind} and ends as {end.kind}: both must have the same type",
        )

    @cached_property
    def _by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}

    def column(self, name: str) -> Column:
        """Return the column of that name; KeyError if there is none."""
        return self._by_name[name]

    def extends(self, old: RelationDefinition) -> bool:
        """Return whether this definition includes all of a former one, so that the former's rows are valid, with null in further columns,
        provided that their new intervals are not empty."""
        return self.obstacle_from(old) is None

    def obstacle_from(self, old: RelationDefinition) -> str | None:
        """Return why a relation with the former definition cannot be extended to this one: what it has."""
        if old.key != self.key:
            return f"has the key {', '.join(old.key)}"
        names, others = ([column.name for column in one.columns] for one in (old, self))
        if missing := [name for name in names if name not in others]:
            return f"has the column {missing[0]}, which the file does not"
        if others[: len(names)] != names:
            return f"has its columns in the order {', '.join(names)}; new ones come after these"
        for column, before in zip(self.columns, old.columns, strict=False):
            if column.read_as != before.read_as:
                return f"has the column {column.name} as {before.read_as}, not {column.read_as}"
            if before.nullable and not column.nullable:
                return f"has a column {column.name} that may be null"
        for column in self.columns[len(names) :]:
            if not column.nullable:
                return f"has no column {column.name}, which must be nullable because it will be null in existing rows"
        for name, interval in old.intervals.items():
            if self.intervals.get(name) != interval:
                return f"has the interval {name} as {json.dumps(interval.to_json())}"
        return None

    def in_zone(self, zone: str) -> RelationDefinition:
        """Return the definition with this zone for all timestamps."""
        columns = [column.model_copy(update={"zone": zone} if column.type == "timestamp" else {}) for column in self.columns]
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return RelationDefinition(**given | {"columns": columns})

    def arrow_schema(self) -> pa.Schema:
        """Return the canonical Arrow types, as values are stored. Every field may be null: a delete has only its key."""
        return pa.schema([(column.name, KEPT_TYPES[column.kind]) for column in self.columns])

    def sent_schema(self) -> pa.Schema:
        """Return the same for values as they are received and sent."""
        return pa.schema([(column.name, SENT_TYPES[column.kind]) for column in self.columns])

    def to_json(self) -> dict[str, Any]:
        """Return the normal form: two definitions are the same iff these are equal."""
        made: dict[str, Any] = {
            "columns": [column.model_dump(exclude_none=True) for column in self.columns],
            "key": list(self.key),
            "intervals": {name: interval.to_json() for name, interval in sorted(self.intervals.items())},
        }
        return made if self.retain is None else made | {"retain": self.retain.to_json()}

    def is_met_by(self, there: RelationDefinition) -> bool:
        """Return whether the existing relation satisfies this definition. If it does not mention retention, any is accepted."""
        wanted, known = self.to_json(), there.to_json()
        if "retain" not in self.model_fields_set:
            known.pop("retain", None)
        return wanted == known


class RelationPatch(BaseModel):
    """An extension of a relation: columns and intervals to add, columns that become nullable, and the retention (null ends it)."""

    model_config = _STRICT
    add_columns: list[Column] = Field([], description="columns to add, which must be nullable: existing rows have null in them")
    add_intervals: dict[str, Interval] = Field(
        {},
        json_schema_extra={"propertyNames": {"pattern": f"^{NAME.pattern}$"}},
        description="intervals to add, by name; they must be valid for the existing rows",
    )
    nullable: list[str] = Field(
        [], description="columns that may be null from now on; not those of the key, nor those by which a view joins"
    )
    retain: Retention | None = Field(None, description="when rows are deleted because of their age; null: never. Absent: as before")


class RowRules:
    """The parts of a definition that validation needs, looked up once."""

    def __init__(self, definition: RelationDefinition) -> None:
        self.definition = definition
        self.columns: tuple[Column, ...] = tuple(definition.columns)
        self.names = tuple(column.name for column in self.columns)
        self.name_set = frozenset(self.names)
        self.kinds = tuple((column.name, column.kind) for column in self.columns)
        self.ordinal = {name: at for at, name in enumerate(self.names)}
        self.key = tuple(definition.key)
        self.key_set = frozenset(definition.key)
        self.schema = definition.arrow_schema()
        self.types: tuple[pa.DataType, ...] = tuple(self.schema.types)
        self.struct = pa.struct(self.schema)
        self.width = 9 * len(self.columns)  # bytes of a row besides its texts, at most
        self.is_key = tuple(name in self.key_set for name in self.names)
        self.key_ordinals = tuple(self.ordinal[name] for name in self.key)
        self.required = tuple(ordinal for ordinal, column in enumerate(self.columns) if not column.nullable)
        self.intervals = tuple((name, *self._placed(interval)) for name, interval in definition.intervals.items())
        # By interval: the ordinals of its ends, and how much they must differ.
        self.lengths = tuple((start, end, interval.start_open + interval.end_open) for _, start, end, interval in self.intervals)
        starts, lasts = ({interval[at] for interval in self.intervals} for at in (1, 2))
        ends = starts | lasts
        self.nullable_ends = tuple(ordinal for ordinal, column in enumerate(self.columns) if column.nullable and ordinal in ends)
        self.open_words = tuple(
            open_words(column.type, column.nullable, ordinal in starts, ordinal in lasts) for ordinal, column in enumerate(self.columns)
        )
        self.zoned = any(column.zone is not None for column in self.columns)
        self.finite = tuple(
            ordinal for ordinal, column in enumerate(self.columns) if column.type == "float64" and (ordinal in ends or self.is_key[ordinal])
        )

    def _placed(self, interval: Interval) -> tuple[int, int, Interval]:
        return self.ordinal[interval.start_column], self.ordinal[interval.end_column], interval


def parse_relation(data: Any) -> RelationDefinition:
    """Return a definition from JSON data; raises BadDefinition with one sentence that says what is wrong and where."""
    if not isinstance(data, dict):
        raise BadDefinition("a relation's definition is a JSON object with columns, key and intervals")
    try:
        return RelationDefinition.model_validate(data)
    except ValidationError as error:
        raise BadDefinition(_first_fault(error, RelationDefinition)) from None


def parse_patch(data: Any) -> RelationPatch:
    """Return a patch from JSON data; raises BadDefinition."""
    try:
        return RelationPatch.model_validate(data)
    except ValidationError as error:
        raise BadDefinition(_first_fault(error, RelationPatch)) from None


_PARTS: dict[int | str, type[BaseModel]] = {
    **dict.fromkeys(("columns", "add_columns"), Column),
    **dict.fromkeys(("intervals", "add_intervals"), Interval),
    "retain": Retention,
}
_TYPES = {
    **dict.fromkeys(("int", "integer", "bigint", "smallint", "int32", "long", "serial"), "int64"),
    **dict.fromkeys(("float", "double", "real", "float32"), "float64"),
    **dict.fromkeys(("text", "varchar", "char", "str"), "string"),
    **dict.fromkeys(("datetime", "timestamptz", "timestamp with time zone"), "timestamp"),
    **dict.fromkeys(("blob", "bytea", "binary"), "bytes"),
    **{"numeric": "decimal", "boolean": "bool", "jsonb": "json"},
}
"""The names of the types in other systems."""


def _first_fault(error: ValidationError, whole: type[BaseModel]) -> str:
    """Return the first error. An unknown field precedes a missing one: it may be that field, misspelt."""
    faults = error.errors(include_url=False)
    fault = next((one for one in faults if one["type"] == "extra_forbidden"), faults[0])
    position, given = fault["loc"], fault["input"]
    words = wording(fault)
    if fault["type"] == "extra_forbidden":
        form = whole if len(position) == 1 else _PARTS[position[0]]
        words += instead(str(position[-1]), [field.alias or name for name, field in form.model_fields.items()])
    elif isinstance(given, str | int | float | None) and fault["type"] != "value_error":
        words += f", not {cut(json.dumps(given))}"
        if position[-1] == "type" and str(given).lower() in _TYPES:
            words += f"; did you mean {_TYPES[str(given).lower()]}?"
    path = ".".join(map(str, position))
    return f"{path}: {words}" if path else words
