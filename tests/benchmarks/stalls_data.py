"""The service of the subject `stalls`: two large relations, a third for some scenarios, and the views over them."""

from __future__ import annotations

from typing import Any, NamedTuple

import httpx
import numpy as np
import pyarrow as pa

from tests.benchmarks.data import LINE
from tests.benchmarks.raw_client import post_all
from tests.benchmarks.served import LOAD
from tests.end_to_end import talk
from tests.server_process import ServerProcess

SMALL = 1_000  # rows per batch; a single change waits at most as long as one batch takes
_PARTNERS = 2  # partners of a row in the other relation, by one interval
_LIMIT = 600.0  # seconds until a view is live

WIDE: dict[str, Any] = {
    "columns": [{"name": name, "type": "int64"} for name in ("id", "room", "s", "e", "s2", "e2", "x", "y")],
    "key": ["id"],
    "intervals": {"span": {"start": "s", "end": "e"}, "depth": {"start": "s2", "end": "e2"}},
}
NARROW: dict[str, Any] = {"columns": [{"name": name, "type": "int64"} for name in ("id", "s", "e")], "key": ["id"]}


class Sort(NamedTuple):
    """A view over the two large relations, and the algorithm that should maintain it."""

    words: str
    sql: str
    algorithm: str

    @property
    def definition(self) -> dict[str, Any]:
        return {"sql": self.sql, "algorithm": self.algorithm}


_PAIR = "SELECT a.id AS p, b.id AS q FROM a JOIN b ON "
_TRIANGLE = "SELECT a.id AS p, b.id AS q, c.id AS r FROM a JOIN b ON a.y = b.x JOIN a c ON b.y = c.x AND c.y = a.x"
INTERVALS = Sort("an interval tree", _PAIR + "overlaps(a.span, b.span)", "interval-tree")
JOIN_TREE = Sort("a join tree", _PAIR + "a.room = b.room AND overlaps(a.span, b.span)", "join-tree")
BOXES = Sort("a box tree", _PAIR + "overlaps(a.span, b.span) AND overlaps(a.depth, b.depth)", "box-tree")
WRITTEN = (INTERVALS, JOIN_TREE, BOXES)
BUILT = (
    *WRITTEN,
    Sort("a view tree", _PAIR + "a.room = b.room", "view-tree"),
    Sort("a bow-tie", "SELECT a.id AS p, b.id AS q, c.id AS r FROM a JOIN b ON a.x = b.x JOIN a c ON b.y = c.y", "bow-tie"),
    Sort("quadtrees", _TRIANGLE, "qdag"),
)
_THIRD = "SELECT c.id AS p, b.id AS q FROM c JOIN b ON "
THIRD = (
    Sort("an interval tree", _THIRD + "overlaps(c.span, b.span)", "interval-tree"),
    Sort("a join tree", _THIRD + "c.room = b.room AND overlaps(c.span, b.span)", "join-tree"),
    Sort("UNION", "SELECT c.room AS r, c.s AS s FROM c UNION SELECT b.room AS r, b.s AS s FROM b", "lqdag"),
    Sort("counted groups", "SELECT b.id AS r, count(*) AS n FROM c JOIN b ON overlaps(c.span, b.span) GROUP BY b.id", "event-tree"),
)
GAPS = Sort("gaps", "SELECT b.id AS i, gaps(b.span, c.span) AS free FROM b LEFT JOIN c ON overlaps(b.span, c.span)", "event-tree")


def body(relation: str, rows: pa.RecordBatch) -> bytes:
    return talk.arrow_bytes(rows, relation)


class Stage:
    """A service for the scenarios. `half`: the initial number of rows of `a` and of `b`."""

    def __init__(self, server: ServerProcess, n: int) -> None:
        self.server, self.half = server, n // 2
        self.client: httpx.Client = server.client(_LIMIT)
        self.rng = np.random.default_rng(3)
        self._next = 0
        self._relations: list[str] = []
        self._views: list[str] = []

    def fill(self) -> None:
        """Fill the relations a and b, and create an empty one for the single changes."""
        talk.define(self.client, "unrelated", NARROW)
        for name in "ab":
            talk.define(self.client, name, WIDE)
            self.post(self.new(name, self.half, LOAD))

    def define(self, name: str, definition: dict[str, Any]) -> None:
        """Create a relation; it is dropped at the end of the scenario."""
        talk.define(self.client, name, definition)
        self._relations.append(name)

    def wide(self, ids: np.ndarray) -> pa.RecordBatch:
        """Rows of a or b."""
        count, length = len(ids), max(2 * _PARTNERS * LINE // (2 * self.half), 1)
        columns = {"id": ids, "room": self.rng.integers(0, max(self.half // 10, 1), count), "s": self.rng.integers(0, LINE, count)}
        columns["e"] = columns["s"] + self.rng.integers(1, length + 1, count)
        columns["s2"] = self.rng.integers(0, LINE, count)
        columns["e2"] = columns["s2"] + self.rng.integers(1, LINE // 2, count)
        columns |= {name: self.rng.integers(0, max(self.half // 2, 1), count) for name in "xy"}
        return pa.RecordBatch.from_pydict({name: pa.array(column) for name, column in columns.items()})

    def ids(self, count: int) -> np.ndarray:
        """Ids that no row has yet."""
        self._next += count
        return np.arange(self._next - count, self._next, dtype=np.int64)

    def new(self, relation: str, count: int, batch: int) -> list[bytes]:
        """Batches of new rows."""
        rows = self.wide(self.ids(count))
        return [body(relation, rows.slice(at, batch)) for at in range(0, count, batch)]

    def moved(self, relation: str, count: int, batch: int) -> list[bytes]:
        """Batches that move initial rows of a or b, each once."""
        first = {"a": 0, "b": self.half}[relation]
        rows = self.wide(first + self.rng.permutation(self.half)[:count])
        return [body(relation, rows.slice(at, batch)) for at in range(0, count, batch)]

    def post(self, bodies: list[bytes]) -> None:
        post_all(self.server.port, bodies, 1)

    def view(self, name: str, sort: Sort) -> None:
        """Register a view and wait until it is live. It is dropped at the end of the scenario."""
        self._views.append(name)
        made = talk.view(self.client, name, sort.definition, _LIMIT)
        assert made["plan"]["algorithm"] == sort.algorithm, made["plan"]

    def drop(self, name: str) -> None:
        self._views.remove(name)
        talk.drop(self.client, views=[name])

    def clear(self) -> None:
        """Drop the views and the relations of the scenario."""
        for kind, names in (("views", self._views), ("relations", self._relations)):
            while names:
                self.client.delete(f"/v1/{kind}/{names.pop()}")  # which is not there if the scenario has failed
