"""The last row of each key, by buckets of keys: a delete names only its key, and the cells of its row depend on the row.

A bucket is a cell with the relations but without views: a step reports the deleted and inserted rows, which are sent on to the cells of the
join.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from livejoin.wire.batch import DELETE, INSERT, Changes
from livejoin.wire.schema import RelationDefinition, parse_relation
from service.engine.headless import Cell, ViewChange
from streaming.cluster.changes import form, hashes, route, taken
from streaming.cluster.frames import TIE
from streaming.cluster.layout import Layout
from streaming.cluster.netting import net_of_all
from streaming.cluster.packing import as_one


class ResolverPlan(NamedTuple):
    """`relations`: the definitions by name; only those that are resolved, in the order of their numbers."""

    layout: str
    relations: Mapping[str, str]

    @property
    def stage(self) -> str:
        return "keys"

    @property
    def unordered(self) -> list[str]:
        return []

    def relation(self, role: int) -> str:
        return list(self.relations)[role]

    @property
    def is_last(self) -> bool:
        return False

    def to_json(self) -> Any:
        return {"layout": json.loads(self.layout), "relations": {name: json.loads(text) for name, text in self.relations.items()}}

    def opened(self) -> Bucket:
        return Bucket(self)


class Bucket:
    def __init__(self, plan: ResolverPlan) -> None:
        self._layout = Layout.of_json(plan.layout)
        self._definitions = {name: parse_relation(json.loads(text)) for name, text in plan.relations.items()}
        self._wide = {name: _with_hashes(one, self._layout, name) for name, one in self._definitions.items()}
        self._names = list(self._wide)
        self._forms = [form(one.arrow_schema()) for one in self._wide.values()]
        self.cell = Cell(self._wide, [])

    def changes(self, blobs: Sequence[tuple[int, pa.Buffer]]) -> list[Changes]:
        rows: dict[int, list[pa.RecordBatch]] = {}
        for role, blob in blobs:
            rows.setdefault(role, []).append(pa.ipc.read_record_batch(blob, self._forms[role]))
        return [taken(self._names[role], self._wide[self._names[role]], own, False) for role, own in rows.items()]

    def emitted(self, deltas: dict[str, ViewChange]) -> Iterator[pa.RecordBatch]:
        for name, delta in deltas.items():
            schema = self._wide[name].arrow_schema()
            deletes, inserts = ([pa.RecordBatch.from_arrays(rows.columns, schema=schema) for _, rows in some] for some in delta)
            for deleted, inserted in net_of_all(deletes, inserts, schema):
                numbers = [len(deleted), len(inserted)]
                ops, orders = np.repeat(np.array([DELETE, INSERT], np.uint8), numbers), np.repeat([0, 1], numbers)
                if len(ops):
                    yield from route(self._layout, name, self._definitions[name], as_one([deleted, inserted], schema), ops, orders)


def _with_hashes(definition: RelationDefinition, layout: Layout, name: str) -> RelationDefinition:
    members = [member for role in layout.roles if role.relation == name for member in role.members]
    plain = definition.to_json()
    more = [{"name": column, "type": "int64"} for column in (*hashes(members), TIE)]
    return parse_relation(plain | {"columns": [*plain["columns"], *more]})
