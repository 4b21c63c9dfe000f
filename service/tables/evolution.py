"""Validate changes again that were validated against a former definition of their relation.

A definition can only be extended: by nullable columns, by intervals, by nulls that are allowed. Earlier rows have nulls in the new columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from livejoin.wire.batch import MAX_ERRORS, Batch, Changes, RowBlock
from livejoin.wire.schema import RelationDefinition
from livejoin.wire.validate import Findings, ValidatedRows, validate


def same(definition: RelationDefinition, other: RelationDefinition) -> bool:
    return definition is other or definition.to_json() == other.to_json()


def validated_again(batch: Batch, definitions: Mapping[str, RelationDefinition]) -> Batch:
    """Return the batch under these definitions, where they extend those it was validated against; other changes are left as they are."""
    if all(same(changes.definition, definitions.get(changes.relation, changes.definition)) for changes in batch.changes):
        return batch
    validated = [_validated_again(changes, definitions.get(changes.relation, changes.definition)) for changes in batch.changes]
    errors = sorted([*batch.errors, *(error for one in validated for error in one.errors)], key=lambda error: error.index)[:MAX_ERRORS]
    return replace(
        batch,
        changes=[one.changes for one in validated if len(one.changes.ops)],
        errors=errors,
        error_count=batch.error_count + sum(one.error_count for one in validated),
        bad_keys=[*batch.bad_keys, *(keys for one in validated for keys in one.bad_keys)],
    )


def _validated_again(changes: Changes, definition: RelationDefinition) -> ValidatedRows:
    if same(changes.definition, definition) or not definition.extends(changes.definition):
        return ValidatedRows(changes, [], 0)
    columns = widened(changes.rows, definition.arrow_schema()).arrow.columns
    return validate(definition.rules, changes.relation, changes.ops, changes.index, columns, Findings(), lambda row, column: False)


def widened(rows: RowBlock, schema: pa.Schema) -> RowBlock:
    """Extend rows of the first columns of a schema with nulls in the others."""
    if rows.values is not None:
        more = (None,) * (len(schema) - len(rows.struct))
        return RowBlock.few([row + more for row in rows.values], pa.struct(schema)) if more else rows
    batch = rows.arrow
    if batch.num_columns == len(schema):
        return rows
    nulls = [pa.nulls(batch.num_rows, field.type) for field in list(schema)[batch.num_columns :]]
    return RowBlock(pa.RecordBatch.from_arrays([*batch.columns, *nulls], schema=schema))
