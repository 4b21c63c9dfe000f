"""livejoin for Spark: its data source, and joins on a cluster. Spark imports all packages with such names to find data sources, so this one
is light."""

from importlib import import_module
from typing import Any

from livejoin.datasource.source import LivejoinSource as DefaultSource

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
            raise ImportError(f"joins on a cluster need {error.name}, which is not installed: install livejoin[spark]") from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
