"""PySpark 4.0 and 4.1: what they lack of 4.2, and what is different there.

They ask a stream's reader for the newest offset without saying where the query is, first of all before its initial offset. When a query is
restarted, they request the partitions between its last offset and the same offset.
"""

from __future__ import annotations

from pyspark.sql import datasource, types

LACKING = dict[str, str]()
"""Options that this version cannot have → the first that can."""
if not hasattr(types, "TimeType"):
    LACKING["timeType"] = "4.1"
try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
except ModuleNotFoundError:
    LACKING["maxRows"] = "4.2"
    ReadAllAvailable = ReadLimit = ReadMaxRows = SupportsTriggerAvailableNow = type("None", (), {})

if not hasattr(datasource, "DataSourceStreamArrowWriter"):  # 4.0 gives Arrow to any DataSourceArrowWriter, of a stream too
    bases = (datasource.DataSourceArrowWriter, datasource.DataSourceStreamWriter)
    datasource.DataSourceStreamArrowWriter = type("DataSourceStreamArrowWriter", bases, {})
