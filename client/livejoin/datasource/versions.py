"""PySpark 4.0 and 4.1: what they lack of 4.2, and what is different there.

They ask a stream's reader for the newest offset without saying where the query is, first of all before its initial offset. When a query is
restarted, they request the partitions between its last offset and the same offset.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import datasource, types
from pyspark.sql.pandas.types import to_arrow_schema

__all__ = ["LACKING", "ReadAllAvailable", "ReadLimit", "ReadMaxRows", "StreamArrowWriter", "SupportsTriggerAvailableNow", "UTC"]
LACKING = {} if hasattr(types, "TimeType") else {"timeType": "4.1"}
"""Options that this version cannot have → the first that can."""
UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in (to_arrow_schema.__kwdefaults__ or {}) else {}
"""An argument of `to_arrow_schema`, whose default it was before 4.2."""
try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
except ModuleNotFoundError:
    LACKING["maxRows"] = "4.2"
    ReadAllAvailable = ReadLimit = ReadMaxRows = SupportsTriggerAvailableNow = type("None", (), {})

_BASES = (datasource.DataSourceArrowWriter, datasource.DataSourceStreamWriter)  # 4.0 gives Arrow to the first, of a stream too
StreamArrowWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", None) or type("StreamArrowWriter", _BASES, {})
