"""The cells of a join of streams: changes in, changes of the view out, which are then netted by epoch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from livejoin.wire.batch import DELETE, INSERT, Changes
from livejoin.wire.schema import parse_relation
from service.engine.headless import ViewChange
from streaming.cluster.cells_batch import CellPlan
from streaming.cluster.changes import Kind, form, taken
from streaming.cluster.layout import Layout
from streaming.cluster.netting import emitted_together, row_hashes
from streaming.cluster.packing import here, packed_by


class StreamPlan(NamedTuple):
    """`kinds`: the kinds of changes, by relation. `parts`: the number of partitions in which they are netted."""

    cells: CellPlan
    kinds: Mapping[str, Kind]
    parts: int

    @property
    def stage(self) -> str:
        """The name of the states."""
        return "cells"

    @property
    def unordered(self) -> list[str]:
        """The relations whose changes have no `_seq`."""
        return [name for name, kind in self.kinds.items() if kind != "ordered"]

    def relation(self, role: int) -> str:
        """Whose rows a blob of this role has."""
        return Layout.of_json(self.cells.layout).roles[role].relation

    @property
    def is_last(self) -> bool:
        """Whether no other cells get what these tell."""
        return True

    def to_json(self) -> Any:
        """What two plans have in common whose states are alike."""
        plan = self.cells
        relations = {name: json.loads(text) for name, text in plan.relations.items()}
        ordered = sorted(name for name, kind in self.kinds.items() if kind == "ordered")
        return {"layout": json.loads(plan.layout), "relations": relations, "view": json.loads(plan.view), "ordered": ordered}

    @classmethod
    def of_json(cls, found: Any) -> StreamPlan:
        """One that reads states: of changes without an order it does not know more."""
        relations = {name: json.dumps(one) for name, one in found["relations"].items()}
        kinds: dict[str, Kind] = {name: "ordered" if name in found["ordered"] else "inserts" for name in relations}
        return cls(CellPlan(json.dumps(found["layout"]), relations, json.dumps(found["view"])), kinds, 1)

    def opened(self) -> OpenedCell:
        return OpenedCell(self)


class OpenedCell:
    """How cells read changes and report their effects, in batches of `packing.SCHEMA`."""

    def __init__(self, plan: StreamPlan) -> None:
        self._plan = plan
        layout = Layout.of_json(plan.cells.layout)
        self.cell, self.views, _ = plan.cells.cell()
        self._roles = layout.roles
        self._definitions = [self.cell.definition(f"r{index}") for index in range(len(self._roles))]
        self._forms = []
        for role in self._roles:
            flags = [here(position) for position, member in enumerate(role.members) if member is not None and member.interval is not None]
            self._forms.append(form(parse_relation(json.loads(plan.cells.relations[role.relation])).arrow_schema(), flags))

    @property
    def form(self) -> pa.Schema:
        """Of what it emits: identities and rows."""
        return emitted_together(*self.cell.nothing(self.views[0])).schema

    def changes(self, blobs: Sequence[tuple[int, pa.Buffer]]) -> list[Changes]:
        rows: dict[int, list[pa.RecordBatch]] = {}
        for role, blob in blobs:
            rows.setdefault(role, []).append(pa.ipc.read_record_batch(blob, self._forms[role]))
        kinds = self._plan.kinds
        return [
            taken(f"r{role}", self._definitions[role], own, kinds[self._roles[role].relation] == "images") for role, own in rows.items()
        ]

    def emitted(self, deltas: dict[str, ViewChange]) -> Iterator[pa.RecordBatch]:
        """The part of a row is that of its identity; the role of a blob is DELETE or INSERT."""
        for delta in deltas.values():
            for op, some in ((DELETE, delta.deletes), (INSERT, delta.inserts)):
                for keys, rows in some:
                    if len(keys):
                        parts = (row_hashes(keys) % np.uint64(self._plan.parts)).astype(np.int64)
                        yield packed_by(op, emitted_together(keys, rows), parts)
