"""livejoin for Spark: its data source, and joins on a cluster. Spark imports all packages of such names to find data sources, so this one
is light."""

from typing import Any

from streaming.datasource.source import LivejoinSource as DefaultSource

__all__ = ["DefaultSource"]
_JOINS = ("NotDistributable", "Table", "explain", "live_join", "overlap_join")


def __getattr__(name: str) -> Any:
    if name in _JOINS:
        from streaming.cluster import batch

        return getattr(batch, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
