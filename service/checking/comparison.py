"""Compares the views of a data folder with the results of brute force; for `livejoin check`.

The folder is not changed: a service is recovered from a copy. Structures are rebuilt from the rows at every start, so their invariants say
nothing about the folder and are not verified here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from livejoin.wire.batch import RowBlock
from livejoin.wire.kinds import kept
from livejoin.wire.schema import RelationDefinition
from service.checking.copies import copied
from service.checking.recomputation import beside, recompute, total
from service.durability.log import Log
from service.errors import Problem
from service.instance import Instance
from service.planning.planner import alternatives
from service.reading.cursors import open_relation_rows, open_rows
from service.settings import Settings
from service.views.parse import View

Emit = Callable[[str], None]  # takes a line of the report

_ROWS = 65_536  # rows read at a time
_LONGEST = 24 * 3600.0  # seconds for the structures of a view


def compare(folder: Path, there: Sequence[str], names: Sequence[str], emit: Emit) -> list[str]:
    """Compare the rows of the views `names`, of the folder's views (`there`), with those found by brute force; return the names of views
    that differ or have failed. Raises FolderInUse, Damaged, OSError. Cost: a start without the other views, each view's rows, and the brute
    force."""
    with copied(folder) as copy:
        with closing(Log(copy)) as log:
            for name in there:
                if name not in names:
                    log.drop_view(name)
        with closing(Instance(copy, Settings.model_validate({"data": copy}))) as engine:
            engine.recover()
            tables: dict[str, pa.RecordBatch] = {}
            wrong = [name for name in names if not agrees(engine, name, tables, emit)]
            for name in wrong:
                _advise(engine, name, tables, emit)
            return wrong


def _advise(engine: Instance, name: str, tables: dict[str, pa.RecordBatch], emit: Emit) -> None:
    """Report an algorithm by which a view that differs has the rows of brute force, if there is one."""
    view = engine.views[name]
    if view.state != "live":
        return
    for other in alternatives(view.view.query, view.definitions):
        with suppress(Problem):  # such as a rule that is newer than the definition
            tried = f"by_{other.algorithm.replace('-', '_')}_{view.id}"
            engine.put_view(tried, {**view.view.definition, "algorithm": other.algorithm, "guarantee": "best-effort"}, wait=_LONGEST)
            if agrees(engine, tried, tables, lambda line: None):
                emit(f'advice     view {name}: drop it, and register it again with "algorithm": "{other.algorithm}", which is confirmed')
                return


def table_of(engine: Instance, name: str) -> pa.RecordBatch:
    """Return all rows of a relation, as they are stored."""
    relation = engine.relations[name]
    with closing(open_relation_rows(engine.readers, name)) as reader:
        sent = iter(partial(reader.read, _ROWS), None)
        parts = [pa.RecordBatch.from_arrays([kept(column) for column in rows.columns], schema=relation.schema) for rows in sent]
    return pa.concat_batches(parts) if parts else relation.no_rows.arrow


def _with_stored(
    view: View, definitions: dict[str, RelationDefinition], tables: Mapping[str, pa.RecordBatch]
) -> dict[str, pa.RecordBatch]:  # fmt: skip
    """Return the tables, those of constants, and those of the queries that the view has stored, by brute force too; their definitions are
    added."""
    there = dict(tables)
    for name, (definition, rows) in view.constants.items():
        definitions[name] = definition
        there[name] = RowBlock.few(rows, pa.struct(definition.arrow_schema())).arrow
    for name, stored in view.stored.items():
        columns = [column for column in stored.shown.columns if "." not in column.name]
        keys = stored.shown.columns[len(columns) :]
        definition = RelationDefinition.model_construct(columns=[*columns, *keys], key=[], intervals=stored.shown.intervals, retain=None)
        schema = definition.arrow_schema()
        own = pa.schema([*schema][: len(columns)])
        parts = [list(map(kept, _last(part, len(columns)).columns)) for part in recompute(stored.view.stated, definitions, there)]
        rows = [pa.RecordBatch.from_arrays(part, schema=own) for part in parts]
        one = pa.concat_batches(rows) if rows else pa.RecordBatch.from_pylist([], schema=own)
        numbered = _numbered([schema.field(key.name).type for key in keys], one.num_rows)
        there[name] = pa.RecordBatch.from_arrays([*one.columns, *numbered], schema=schema)
        definitions[name] = definition
    return there


def _numbered(types: Sequence[pa.DataType], count: int) -> list[pa.Array]:
    """Return values that differ in each row, in the place of its key: EXCEPT ALL and INTERSECT ALL number equal rows in their order."""
    number, bits, found = np.arange(count), 0, list[pa.Array]()
    for one in types:
        if one == pa.bool_():
            found.append(pa.array(number >> bits & 1 == 1))
            bits += 1
        elif one in (pa.utf8(), pa.binary()):
            found.append(pa.array(map(str, number), pa.utf8()).cast(one))
        else:
            found.append(pa.array(number, pa.int32() if one.bit_width == 32 else pa.int64()).view(one))
    return found


def _last(rows: pa.RecordBatch, columns: int) -> pa.RecordBatch:
    return rows.select(list(range(rows.num_columns - columns, rows.num_columns)))


def agrees(engine: Instance, name: str, tables: dict[str, pa.RecordBatch], emit: Emit) -> bool:
    """Compare one view, report the result, and return whether they agree. `tables`: the relations read so far."""
    view = engine.views[name]
    if view.state != "live":
        emit(f"damage     view {name} has failed: {view.problem}")
        return False
    for relation in view.view.relations.keys() - tables.keys():
        tables[relation] = table_of(engine, relation)
    definitions = {one: relation.definition for one, relation in engine.relations.items()}
    is_keyed = not view.view.stored  # keys of stored rows are made by the structures
    there = _with_stored(view.view, definitions, tables)
    with closing(open_rows(engine.readers, name)) as reader:
        read = partial(reader.read_with_keys, _ROWS)
        emitted = total(beside(*part) if is_keyed else part[1] for part in iter(read, None))
    rows = recompute(view.view.stated, definitions, there)
    width = len(view.shown.schema)
    found = total(rows if is_keyed else (_last(part, width) for part in rows))
    if emitted == found:
        emit(f"view       {name}: {emitted.rows:,} row{'s' if emitted.rows != 1 else ''}, confirmed by brute force")
    else:
        by_force = f"brute force {found.rows:,} (checksum {found.checksum})"
        emit(f"damage     view {name}: {emitted.rows:,} rows (checksum {emitted.checksum}), {by_force}")
    return emitted == found
