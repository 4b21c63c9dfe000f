"""What Spark does with the stages of a join of streams, done here: the same blobs, in one process."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from livejoin.wire.schema import OP_COLUMN, RelationDefinition, parse_relation
from service.views.parse import parse_view
from streaming.cluster.cells_batch import VIEW, CellPlan
from streaming.cluster.cells_stream import StreamPlan
from streaming.cluster.changes import SEQ_COLUMN, Kind, Source, hashes, send
from streaming.cluster.frames import TIE
from streaming.cluster.keeping import OpenedCells, Plan
from streaming.cluster.layout import Member
from streaming.cluster.netting import Netting
from streaming.cluster.packing import ASKS
from streaming.cluster.state_log import LoggedCell
from streaming.cluster.stream_layout import even_layout
from streaming.cluster.streams import resolver_of, sources_of

PARTS = 2


class Blobs(dict[int, bytes]):
    """As a state's map."""

    get, put, remove = dict.__getitem__, dict.__setitem__, dict.__delitem__  # type: ignore[assignment]


class Sent(NamedTuple):
    """Blobs on their way to cells, and to the resolver."""

    to_cells: list[pa.RecordBatch]
    to_keys: list[pa.RecordBatch]


class Local:
    """`changes`: by relation, of one micro-batch → the changes of the view."""

    def __init__(
        self, sql: str, definitions: Mapping[str, RelationDefinition], kinds: Mapping[str, Kind], cells: int, width: int | None = None,
        layout: str | None = None,
    ) -> None:  # fmt: skip
        query = parse_view(VIEW, {"sql": sql}, definitions).query
        self.layout = layout or even_layout(query, cells, width, 100.0)
        relations = {name: json.dumps(one.to_json()) for name, one in definitions.items()}
        self.plan = StreamPlan(CellPlan(self.layout, relations, json.dumps({"sql": sql})), kinds, PARTS)
        self.sources = sources_of(self.plan, definitions)
        self.resolver = resolver_of(self.plan, self.sources)
        self.netting = Netting(self.plan.opened().form)
        self.kept: dict[tuple[str, int], tuple[OpenedCells, LoggedCell, Blobs]] = {}
        self.epoch = 0

    def step(self, changes: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
        sent = self.sent({source.relation: prepared(source, changes.get(source.relation, ())) for source in self.sources})
        found = [batch.to_pylist() for batch in self.netted(self.emitted([*sent.to_cells, *self.resolved(sent.to_keys)]))]
        return [row for rows in found for row in rows]

    def sent(self, changes: Mapping[str, pa.RecordBatch]) -> Sent:
        """`changes`: by relation, as `prepared`."""
        found = Sent([], [])
        for source in self.sources:
            batch = changes[source.relation]
            (found.to_keys if source.resolved else found.to_cells).extend(send(source, [batch] if len(batch) else []))
        return found

    def resolved(self, to_keys: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
        return [] if self.resolver is None else list(self._kept(self.resolver, to_keys))

    def emitted(self, to_cells: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
        return list(self._kept(self.plan, to_cells))

    def netted(self, emitted: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
        self.epoch += 1
        found = []
        for part in range(PARTS):
            own = [batch.filter(pa.array([cell == part for cell in batch.column(0).to_pylist()])) for batch in emitted]
            netted = list(self.netting.netted(own, self.epoch))
            ops = [op for batch in netted for op in batch.column(OP_COLUMN).unique().to_pylist()]
            assert ops == sorted(ops), "deletes come first"
            found += netted
        return found

    def _kept(self, plan: Plan, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blobs: dict[int, list[tuple[int, pa.Buffer]]] = {}
        for batch in batches:
            for row in batch.filter(pc.not_equal(batch.column("role"), ASKS)).to_pylist():
                blobs.setdefault(row["cell"], []).append((row["role"], pa.py_buffer(row["rows"])))
        for label, own in blobs.items():
            if (plan.stage, label) not in self.kept:
                opened = plan.opened()
                self.kept[plan.stage, label] = opened, LoggedCell(opened.cell), Blobs()
            opened, logged, state = self.kept[plan.stage, label]
            yield from opened.emitted(logged.step(opened.changes(own), state).deltas)

    def replay(self) -> None:
        """As after a failure."""
        for (stage, label), (_, logged, state) in self.kept.items():
            opened = (self.plan if stage == self.plan.stage else self.resolver).opened()  # type: ignore[union-attr]
            self.kept[stage, label] = opened, LoggedCell.replayed(opened.cell, logged.extent, state), state


def prepared(source: Source, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """As `Table.prepared`, with another hash."""
    definition = parse_relation(json.loads(source.definition))
    fields = [*definition.sent_schema(), pa.field(OP_COLUMN, pa.utf8()), pa.field(SEQ_COLUMN, pa.int64())]
    batch = pa.RecordBatch.from_pylist(list(rows), pa.schema(fields))
    given = batch.to_pylist()
    members = [*(one for one in source.members if one is not None), Member(tuple(definition.key))]
    for name, member in zip([*hashes(source.members), TIE], members, strict=True):
        batch = batch.append_column(name, pa.array([hash_of(row, member) for row in given], pa.int64()))
    return batch


def hash_of(row: Mapping[str, Any], member: Member) -> int:
    if not member.columns:
        return 0
    found = zlib.crc32(repr([row[name] for name in member.columns]).encode())
    return (found << 32 | zlib.crc32(str(found).encode())) - (1 << 63)
