"""Extend the definition of a relation in use: add columns or intervals, allow nulls, set a retention.

    beside the writer    check the existing rows against the new intervals
    in its turn          check the rows that were added since; copy the table into a wider one; write the new definition to disk; update
                         table, relation and views

Live views stay as they are: they read columns by name. A batch that was validated against the former definition is validated again
(`tables/evolution.py`). A change that fails on the way leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from livejoin.wire.batch import UPSERT
from livejoin.wire.schema import RelationDefinition, RelationPatch, parse_relation
from livejoin.wire.validate import Findings, validate
from service.durability.failpoints import reach
from service.durability.log import Log
from service.engine.queued import change
from service.engine.refusals import InUse
from service.engine.retention import Retention
from service.engine.rewrites import HeldRelation, Rewrites
from service.engine.state import State
from service.engine.versions import Pins
from service.engine.writer import Writer
from service.errors import Problem, dropped
from service.tables.relations import Relation
from service.tables.resolution import Slots
from service.views.nulls import compared_columns
from structures.rows.rows import RowStore


class Alteration(NamedTuple):
    """The new definition. `expired`: of a patch of the retention, how many rows it deletes next; otherwise None."""

    definition: RelationDefinition
    expired: int | None


class Alterations:
    """Called from any thread but the writer's."""

    def __init__(
        self, state: State, writer: Writer, log: Log, versions: Pins, rewrites: Rewrites, retention: Retention, most_columns: int
    ) -> None:  # fmt: skip
        self._state, self._writer, self._log, self._versions, self._rewrites = state, writer, log, versions, rewrites
        self._retention, self._most_columns = retention, most_columns

    def apply(self, name: str, patch: RelationPatch, dry_run: bool = False) -> Alteration:
        """Extend a definition, and have the rows that have expired deleted soon. `dry_run`: only say what would be. Durable on return.
        Problems `not-found`, `bad-definition`, `unknown-column`, `definition-differs`, `relation-in-use`, `no-room`; BadDefinition. Cost:
        one pass over the rows if there are new columns or intervals, or a retention."""
        with self._rewrites.held(name) as held:
            relation = held.relation
            definition = self._extended(relation, patch)
            altered = Alteration(definition, self._expired(held, definition) if "retain" in patch.model_fields_set else None)
            if definition.to_json() == relation.definition.to_json():
                return altered
            check = _Check(relation, definition)
            check.require(relation.table.scanned(held.version))
            if dry_run:
                self._require_free(relation, definition)
                return altered
            self._writer.call(partial(change, partial(self._conclude, held, definition, check))).result()
        self._retention.wake()
        return altered

    def _expired(self, held: HeldRelation, definition: RelationDefinition) -> int:
        retain, known = definition.retain, {column.name for column in held.relation.definition.columns}
        if retain is None or retain.column not in known:  # a new column is null in all rows
            return 0
        return len(self._retention.expired(held.relation, retain, held.version))

    def _extended(self, relation: Relation, patch: RelationPatch) -> RelationDefinition:
        before = relation.definition
        columns = {column.name: column for column in before.columns}
        for column in patch.add_columns:
            if not column.nullable:
                raise Problem("bad-definition", f'add_columns: {column.name!r} must be "nullable": existing rows have no value for it')
            if columns.setdefault(column.name, column) != column:
                raise Problem("definition-differs", f"{relation.name} has a column {column.name!r} with another definition")
        intervals = {**before.intervals}
        for name, interval in patch.add_intervals.items():
            if intervals.setdefault(name, interval).to_json() != interval.to_json():
                raise Problem("definition-differs", f"{relation.name} has an interval {name!r} with another definition")
        for name in patch.nullable:
            if name not in columns:
                raise Problem("unknown-column", f"nullable: {relation.name} has no column {name!r}")
            columns[name] = columns[name].model_copy(update={"nullable": True})
        for what, found in (("columns", columns), ("intervals", intervals)):
            if len(found) > self._most_columns:
                most = self._most_columns
                raise Problem("bad-definition", f"{what}: a relation may have at most {most} of them (--max-columns), not {len(found)}")
        retain = patch.retain if "retain" in patch.model_fields_set else before.retain
        made = RelationDefinition.model_construct(columns=list(columns.values()), key=before.key, intervals=intervals, retain=retain)
        return parse_relation(made.to_json())

    def _require_free(self, relation: Relation, definition: RelationDefinition) -> None:
        """Problem `relation-in-use` if a view compares a column that is to become nullable, or a stored view reads it: what is never null
        there may be compared above."""
        fresh = {column.name for column in definition.columns[: len(relation.definition.columns)] if column.nullable}
        fresh -= {column.name for column in relation.definition.columns if column.nullable}
        users = dict[str, set[str]]()
        for view in self._state.registered if fresh else ():
            columns = fresh & compared_columns(view.view.query, relation.name, relation.definition)
            inputs = [input for name in view.view.stored for input in self._state.stored[name].reads]
            columns |= fresh & {name for input in inputs if input.relation.name == relation.name for name in input.columns}
            if columns:
                users[view.name] = columns
        if found := sorted(users):
            column = min(users[found[0]])
            after = " joins, or that UNION or EXCEPT compares, or a stored query reads: drop the view first, and register it again"
            raise InUse(f"nullable: {column!r} is a column by which ", found, after)

    def _conclude(self, held: HeldRelation, definition: RelationDefinition, check: _Check) -> Callable[[], None]:
        relation = held.relation
        if self._state.relations.get(relation.name) is not relation:
            raise dropped(relation.name)
        self._require_free(relation, definition)
        for net in held.backlog.take(self._state.newest):
            check.require(iter([net.inserted]))
        self._log.require_room()
        try:
            rows = relation.table.wider(relation.schema_of(definition))
        except (OSError, MemoryError) as error:
            raise Problem("no-room", f"there is not enough memory or address space for the columns: {error}; nothing was changed") from None
        reach("in-patch")
        return partial(self._write, relation, definition, definition.to_json(), rows)

    def _write(self, relation: Relation, definition: RelationDefinition, stored: dict[str, Any], rows: RowStore) -> None:
        self._log.change_relation(relation.name, stored)
        reach("in-patch")
        made = relation.extended(definition, rows)
        self._state.relations = {**self._state.relations, relation.name: made}
        for view in self._state.maintained:
            if relation.name in view.relations:
                view.follow_definition(made)
        self._versions.publish(self._state.version())


class _Check:
    """Check rows against the intervals that the new definition adds."""

    def __init__(self, relation: Relation, definition: RelationDefinition) -> None:
        self._relation = relation
        self._there = {column.name for column in relation.definition.columns}
        fresh = {name: interval for name, interval in definition.intervals.items() if name not in relation.definition.intervals}
        ends = {column for interval in fresh.values() for column in (interval.start_column, interval.end_column)}
        wanted = [column for column in definition.columns if column.name in ends or column.name in definition.key]
        made = RelationDefinition.model_construct(columns=wanted, key=definition.key, intervals=fresh)
        self._rules = parse_relation(made.to_json()).rules if fresh else None

    def require(self, slots: Iterator[Slots]) -> None:
        """Problem `definition-differs`, naming the first rows that fail the check."""
        rules, table = self._rules, self._relation.table
        if rules is None:
            return
        names = [name for name in rules.names if name in self._there]
        for some in slots:
            for _, rows in table.take_pieces(names, some):
                count, types = rows.num_rows, zip(rules.names, rules.types, strict=True)
                columns = [rows.column(name) if name in names else pa.nulls(count, kind) for name, kind in types]
                ops, index = np.full(count, UPSERT, np.uint8), np.arange(count)
                validated = validate(rules, self._relation.name, ops, index, columns, Findings(), lambda row, column: False)
                if validated.error_count:
                    reason = validated.errors[0].reason
                    raise Problem("definition-differs", f"rows of {self._relation.name} do not fit: {reason}; nothing was changed")
