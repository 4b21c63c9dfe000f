"""Decoding alone: records in Arrow, as Spark passes them, into checked changes, in one process."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from service.wire.batch import Batch, batch_to_arrow
from service.wire.schema import parse_relation
from streaming.config import Topic
from streaming.pipeline.decode import Decoded, decode_topic, decoder_for, in_order
from tests.benchmarks.figures import Figure, Scale, middle, sampled
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.pipeline_records import RELATIONS, Hotel, definition

TITLE = "The pipeline: decoding alone, in one process"
REPEATS = 5
FLOOR = 250e3


def run(scale: Scale, note: Note) -> list[Figure]:
    count = scale.size(100_000, 2_000)
    figures = []
    for schemas, name in ((False, "without schemas"), (True, "with schemas")):
        tables = arrow_of(Hotel(schemas), count)
        in_order = rates(count, lambda tables=tables: decoded(tables))
        shuffled = {relation: table.take(np.random.default_rng(5).permutation(table.num_rows)) for relation, table in tables.items()}
        disordered = rates(count, lambda tables=shuffled: decoded(tables))
        note(f"{name}: {middle(in_order) / 1e3:.0f} k/s, out of order {middle(disordered) / 1e3:.0f} k/s")
        figures += [
            sampled(f"Debezium records {name}", in_order, "records/s", aim=FLOOR),
            sampled(f"the same out of order, to be sorted by (partition, offset), {name}", disordered, "records/s"),
        ]
    parts = decoded(tables)
    batch = Batch(changes=[changes for part in parts for changes in part.changes], sent=count, ignored=0, errors=[], error_count=0)
    encoding = rates(count, lambda: batch_to_arrow(batch))
    return [*figures, sampled("encoding the changes as Arrow, for the post", encoding, "records/s")]


def arrow_of(hotel: Hotel, count: int) -> dict[str, pa.Table]:
    """Return records as Spark passes them, a table per topic."""
    columns: dict[str, tuple[list[bytes], list[bytes]]] = {relation: ([], []) for relation in RELATIONS}
    for record in hotel.records(count):
        keys, values = columns[record.relation]
        keys.append(record.key)
        values.append(record.value)
    return {
        relation: pa.table(
            {
                "partition": pa.array(np.zeros(len(keys), np.int32)),
                "offset": pa.array(np.arange(len(keys))),
                "key": pa.array(keys, pa.binary()),
                "value": pa.array(values, pa.binary()),
            }
        )
        for relation, (keys, values) in columns.items()
    }


def decoded(tables: dict[str, pa.Table]) -> list[Decoded]:
    parts = []
    for relation, table in tables.items():
        decoder = decoder_for(Topic(name=relation, relation=relation, format="debezium"), parse_relation(definition(relation)))
        parts.append(decode_topic(decoder, relation, in_order(table), 0))
        assert not parts[-1].bad, parts[-1].bad[0]
    return parts


def rates(count: int, work: Callable[[], object]) -> list[float]:
    """Records a second of processor time, after a warm-up round."""
    samples = []
    for _ in range(REPEATS + 1):
        start = time.process_time()
        work()
        samples.append(count / (time.process_time() - start))
    return samples[1:]
