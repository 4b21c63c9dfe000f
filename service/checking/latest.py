"""The latest rows of each key by brute force: all rows are sorted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.checking.grouping import Ints, canonical, codes_of
from service.query.model import Latest


def latest_rows(latest: Latest, key: Sequence[str], rows: pa.RecordBatch) -> pa.RecordBatch:
    """Those of these rows of a relation with this primary key."""
    codes = codes_of([canonical(rows.column(ref.column)) for ref in latest.by], len(rows))
    ties = [-_ranks(rows.column(name)) for name in reversed(key)]
    order = rows.column(latest.order.column)
    ranks = _ranks(order)
    ranks = np.where(np.asarray(order.is_null()), len(rows) + 1, -ranks if latest.descending else ranks)
    places = np.lexsort((*ties, ranks, codes))
    begins = np.flatnonzero(np.diff(codes[places], prepend=-1))
    number = np.arange(len(places)) - np.repeat(begins, np.diff(begins, append=len(places)))
    kept = np.zeros(len(rows), np.bool_)
    kept[places] = number < latest.rows
    return rows.filter(pa.array(kept))


def _ranks(column: pa.Array) -> Ints:
    """Equal where values are, in their order: NaN is the greatest."""
    found: Ints = np.asarray(pc.rank(canonical(column), tiebreaker="dense")).astype(np.int64)
    return found
