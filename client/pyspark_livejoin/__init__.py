"""livejoin for Spark: its data source, and joins on a cluster. Spark imports all packages with such names to find data sources, so this one
is light."""

from importlib import import_module
from typing import Any

try:
    from livejoin.datasource.source import LivejoinSource as DefaultSource
except ModuleNotFoundError as error:
    if str(error.name).partition(".")[0] != "pyspark":
        raise
    raise ImportError("livejoin for Spark needs PySpark 4.0 or newer, of the version of the cluster: pip install pyspark") from error

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
            cause = f"it is not installed, or a module beside the job hides one of its modules: {error}"
            raise ImportError(f"joins on a cluster need the package livejoin[spark]; {cause}") from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
