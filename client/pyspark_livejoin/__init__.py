"""livejoin for Spark: its data source, and joins on a cluster. Spark imports all packages with such names to find data sources, so this one
is light."""

from importlib import import_module
from typing import Any

try:
    from livejoin.datasource.source import LivejoinSource as DefaultSource
except ModuleNotFoundError as error:
    raise ImportError(f"livejoin for Spark needs PySpark 4.0 or newer, as the cluster has it: pip install pyspark ({error})") from error

__all__ = ["DefaultSource"]
_JOINS = {
    "NotDistributable": "candidates",
    "Table": "batch",
    "explain": "batch",
    "live_join": "streams",
    "overlap_join": "batch",
    "reshard": "reshard",
    "snapshot": "snapshot",
    "status": "snapshot",
    "stream_layout": "stream_layout",
}


def __getattr__(name: str) -> Any:
    if name in _JOINS:
        try:
            return getattr(import_module(f"streaming.cluster.{_JOINS[name]}"), name)
        except ModuleNotFoundError as error:
            raise ImportError(f"joins on a cluster need the package livejoin[spark], not installed or hidden here: {error}") from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
