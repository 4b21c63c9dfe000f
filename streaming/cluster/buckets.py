"""A pair joined by buckets of time, entirely in the JVM: each row is repeated for each bucket that it meets, and rows of a bucket are
joined by equality.

    home is the bucket of the later start, so that no pair is reported twice and no DISTINCT is needed

Endpoints are whole numbers here (of int64, date and timestamp), closed; open ends are the extremes of int64. The width is a power of two,
and buckets are limited to those between the least and the greatest start, so that an open end meets no more buckets than there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import NamedTuple

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from streaming.cluster.frames import WHOLE, whole
from streaming.cluster.layout import Numbers
from streaming.cluster.sampling import Sample

ROW, COPY, CANDIDATE, ROW_OUT = 1.4e-6, 0.7e-6, 8e-9, 0.38e-6  # seconds of processor time
_MOST_COPIES = 16.0  # a row: wider buckets are tried instead
_FAR = 1 << 62  # so that buckets can be counted; what lies beyond is in the first or the last
_ODD = np.int64(-7046029254386353131)  # of the golden ratio
_EVER = -(1 << 63), (1 << 63) - 1


class Buckets(NamedTuple):
    """`shift`: log2 of the width. `lowest`, `highest`: buckets. `seconds`: estimated processor time."""

    shift: int
    lowest: int
    highest: int
    seconds: float


class BucketInput(NamedTuple):
    """`on`: the columns of equalities; `start`, `end`, `bounds`: of the interval, which has a value in every row (`with_values`)."""

    frame: DataFrame
    on: Sequence[str]
    start: str
    end: str
    bounds: str


def is_whole(kind: T.DataType) -> bool:
    return isinstance(kind, (*WHOLE, T.DateType, T.TimestampType))


def best_buckets(x: Sample, y: Sample, pairs: float) -> Buckets | None:
    """The width with the least cost, by the samples of two sides with a key, of which so many pairs overlap; None if the rows would be in
    too many buckets with every width."""
    given = [x.given[0], y.given[0]]
    starts = np.concatenate([one.starts for one in given if one.starts is not None])
    finite = starts[(starts > -_FAR) & (starts < _FAR)]
    if not len(finite):
        return None
    low, high = int(finite.min()), int(finite.max())
    least = ROW * (x.rows + y.rows) + ROW_OUT * pairs
    best = None
    for shift in reversed(range(1 + (low ^ high).bit_length())):  # the narrower, the more copies
        buckets = Buckets(shift, low >> shift, high >> shift, 0.0)
        copies = [_copies(one.starts, one.ends, buckets) for one in given if one.starts is not None and one.ends is not None]
        rows = sum(sample.scale * float(counts.sum()) for sample, (_, counts) in zip((x, y), copies, strict=True))
        if rows > _MOST_COPIES * (x.rows + y.rows) or (best is not None and least + COPY * rows >= best.seconds):
            break
        candidates = _candidates([(one.hashes, *own) for one, own in zip(given, copies, strict=True)]) * x.scale * y.scale
        cost = least + COPY * rows + CANDIDATE * candidates
        if best is None or cost <= best.seconds:
            best = buckets._replace(seconds=cost)
    return best


def _copies(starts: Numbers, ends: Numbers, buckets: Buckets) -> tuple[Numbers, Numbers]:
    """The first bucket of each row, and how many it meets."""
    first, last = (np.clip(points >> buckets.shift, buckets.lowest, buckets.highest) for points in (starts, ends))
    return first, last - first + 1


def _candidates(inputs: Sequence[tuple[Numbers, Numbers, Numbers]]) -> float:
    """The approximate number of pairs that share a bucket and the hash of a key; `inputs`: hashes, first buckets and numbers of buckets."""
    found = []
    for hashes, first, counts in inputs:
        of = np.repeat(np.arange(len(first)), counts)
        buckets = first[of] + np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
        found.append(np.sort(hashes[of] * _ODD + buckets))  # two that are alike by chance matter little
    x, y = found
    return float((np.searchsorted(x, y, "right") - np.searchsorted(x, y, "left")).sum())


def join_in_buckets(x: BucketInput, y: BucketInput, buckets: Buckets) -> DataFrame:
    """All columns of both sides, whose names differ."""
    left, right = _repeated(x, "x", buckets), _repeated(y, "y", buckets)
    meets = [F.col(f"_x_on{index}") == F.col(f"_y_on{index}") for index in range(len(x.on))]
    meets += [F.col("_x_bucket") == F.col("_y_bucket"), F.col("_x_start") <= F.col("_y_end"), F.col("_y_start") <= F.col("_x_end")]
    home = _bucket(F.greatest(F.col("_x_start"), F.col("_y_start")), buckets)
    joined = left.join(right, reduce(and_, [*meets, home == F.col("_x_bucket")]))
    return joined.select(*x.frame.columns, *y.frame.columns)


def _repeated(input: BucketInput, name: str, buckets: Buckets) -> DataFrame:
    start, end = _ends(input)
    keys = [F.col(column).alias(f"_{name}_on{index}") for index, column in enumerate(input.on)]
    rows = input.frame.select("*", *keys, start.alias(f"_{name}_start"), end.alias(f"_{name}_end"))
    of = F.explode(F.sequence(*(_bucket(F.col(f"_{name}_{end}"), buckets) for end in ("start", "end"))))
    return rows.withColumn(f"_{name}_bucket", of)


def _ends(input: BucketInput) -> tuple[Column, Column]:
    """The closed interval in whole numbers."""
    start, end = whole(input.frame, input.start), whole(input.frame, input.end)
    start = start + F.lit(1) if input.bounds[0] == "(" else start
    end = end - F.lit(1) if input.bounds[1] == ")" else end
    return F.coalesce(start, F.lit(_EVER[0])), F.coalesce(end, F.lit(_EVER[1]))


def _bucket(point: Column, buckets: Buckets) -> Column:
    return F.least(F.greatest(F.shiftright(point, buckets.shift), F.lit(buckets.lowest)), F.lit(buckets.highest))
