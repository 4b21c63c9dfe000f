"""Columns that were in the records of a topic and are no longer: renamed or dropped at the source. The relation gets null for them.

Debezium's rows have every column of their table. What a partition had is compared with what follows in it, as only within a partition
records have an order: elsewhere, records from before a column was added may follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

Columns = Mapping[str, Sequence[str]]  # those of the last row of each partition, by its number, as in JSON
GONE = "the record lacks this column, which earlier records of its partition have: was it renamed or dropped?"


class ColumnsWatch:
    """Follows the rows of one topic. strict: rows that lack a column are refused, so what went before them counts."""

    def __init__(self, columns: Columns, strict: bool) -> None:
        self.columns = dict(columns)
        self._strict = strict

    def gone(
        self, index: npt.NDArray[np.int64], partitions: npt.NDArray[np.int32], lacking: Mapping[str, Sequence[int]]
    ) -> list[tuple[int, str]]:
        """The next rows, by `index`, and their partitions: those that lack a column that a row before them had, with its name."""
        found: list[tuple[int, str]] = []
        for partition in np.unique(partitions).tolist():
            mine = index[partitions == partition]
            before = self.columns.get(str(partition), ())
            after = set(lacking)
            for name, without in lacking.items():
                if not without:
                    continue
                lacks = np.isin(mine, without)
                late = mine[lacks & ((name in before) | np.logical_or.accumulate(~lacks))]
                found += [(at, name) for at in late.tolist()]
                if lacks[-1] and not (self._strict and (name in before or not lacks.all())):
                    after.discard(name)
            self.columns[str(partition)] = sorted(after)
        return found
