"""The algorithms for natural joins that are not implemented yet, and the joins that each will be correct for.

Source: docs/design/natural-joins.md (*Planned*).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from service.planning.hypergraph import Hypergraph


class Later(NamedTuple):
    """The joins that it will support, in words, and whether it will support this (connected) one."""

    words: str
    keeps: Callable[[Hypergraph], bool]


def _any(graph: Hypergraph) -> bool:
    return True


LATER: Mapping[str, Later] = {
    "lqdag": Later("natural joins", _any),
}
