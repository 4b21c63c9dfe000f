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


def _is_bow_tie(graph: Hypergraph) -> bool:
    return graph.dimension == 2 and sorted(map(sorted, graph.edges)) == [[0], [0, 1], [1]]


def _any(graph: Hypergraph) -> bool:
    return True


LATER: Mapping[str, Later] = {
    "minesweeper": Later("natural joins", _any),
    "intersect": Later("natural joins on one attribute, which all relations share", lambda g: g.dimension == 1),
    "bow-tie": Later("natural joins of the shape R(X), S(X, Y), T(Y)", _is_bow_tie),
    "elimination": Later("acyclic natural joins", lambda g: g.acyclic),
}
