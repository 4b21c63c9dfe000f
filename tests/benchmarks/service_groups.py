"""Views with groups: the accumulators alone, with DuckDB and Polars grouping all rows as rivals; and single changes over HTTP with ten such
views, with a service without them as the rival."""

from __future__ import annotations

import json
import time
from functools import partial

import numpy as np
import psutil

from structures.aggregate import layout
from structures.aggregate.groups import Groups, Step
from structures.aggregate.layout import GroupedColumns
from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled, seconds
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.raw_client import exchange, post
from tests.benchmarks.served import serving
from tests.end_to_end import talk

TITLE = "Groups: SUM and MIN in the kernel; single changes over HTTP with ten grouped views"
REPEATS, PIECE = 5, 1 << 16
RELATION = {
    "columns": [{"name": name, "type": kind} for name, kind in (("id", "int64"), ("room", "int64"), ("price", "float64"), ("n", "int64"),
                                                                  ("starts", "timestamp"))],
    "key": ["id"],
}  # fmt: skip
VIEWS = (
    "SELECT room AS room, COUNT(*) AS c FROM r GROUP BY room",
    "SELECT room AS room, SUM(price) AS s, AVG(price) AS a FROM r GROUP BY room",
    "SELECT date_trunc('month', starts) AS m, COUNT(*) AS c, SUM(n) AS s FROM r GROUP BY m",
    "SELECT COUNT(*) AS c FROM r",
    "SELECT room AS room, MIN(price) AS lo, MAX(price) AS hi FROM r GROUP BY room",
    "SELECT n AS n, COUNT(DISTINCT room) AS d FROM r GROUP BY n",
    "SELECT DISTINCT room AS room FROM r",
    "SELECT n AS n, AVG(price) AS a FROM r GROUP BY n",
    "SELECT room AS room, n AS n, COUNT(*) AS c FROM r GROUP BY room, n",
    "SELECT room AS room, COUNT(*) AS c FROM r GROUP BY room HAVING COUNT(*) > 90",
)


def run(scale: Scale, note: Note) -> list[Figure]:
    return [*kernels(scale, note), *singles(scale, note)]


def kernels(scale: Scale, note: Note) -> list[Figure]:
    n, groups = scale.size(1_000_000, 20_000), scale.size(100_000, 1_000)
    rng = np.random.default_rng(3)
    codes, prices = rng.integers(0, groups, n), np.round(rng.random(n) * 1000, 2)
    ordered = (prices * 100).astype(np.int64)
    found = []
    for name, sql, kept, emitted, values in (
        ("SUM of float64", "sum(price)", layout.FLOAT_SUM, layout.OF_FLOAT_SUM, prices.view(np.int64)),
        ("MIN", "min(price)", layout.VALUES, layout.OF_LEAST, ordered),
    ):
        rates = []
        for _ in range(REPEATS):
            steps = Step()
            word = steps.of(kept, 0)
            kernel = Groups(steps, [(emitted, word, layout.ROWS, 0, 1)], 2, groups)
            pieces = [slice(first, first + PIECE) for first in range(0, n, PIECE)]
            for sign in (1, -1):
                rows = [_rows(codes[part], values[part], sign) for part in pieces]
                rates.append(n / seconds(partial(_add, kernel, rows)))
            assert kernel.groups == 0
        again = {"DuckDB from scratch": regrouped(sql, codes, prices), "Polars from scratch": by_polars(sql, codes, prices)}
        note(f"{name}: {middle(rates) / 1e6:.2f} M rows/s; {', '.join(f'{one} in {spent:.3f} s' for one, spent in again.items())}")
        rivals = [Rival(one, n / spent, "groups all rows once; each change would cost as much") for one, spent in again.items()]
        figure = f"{name} by {groups:,} groups: rows inserted and deleted, in the kernel"
        found.append(sampled(figure, rates, "rows/s", aim=3e6, rivals=rivals, parameters={"rows": n}))
    return found


def _rows(codes: np.ndarray, values: np.ndarray, sign: int) -> GroupedColumns:
    n = len(codes)
    return GroupedColumns(
        codes.astype(np.int32), np.full(n, sign, np.int8), np.ascontiguousarray(values.reshape(1, n)), np.zeros((1, n), np.uint8)
    )


def _add(kernel: Groups, pieces: list[GroupedColumns]) -> None:
    for rows in pieces:
        kernel.begin()
        kernel.add(rows)


def regrouped(sql: str, codes: np.ndarray, prices: np.ndarray) -> float:
    """Seconds in which DuckDB groups all rows."""
    import duckdb
    import pyarrow as pa

    with duckdb.connect() as other:
        other.register("given", pa.table({"room": codes, "price": prices}))
        other.execute("CREATE TABLE r AS SELECT * FROM given")
        query = f"SELECT count(*) FROM (SELECT room, {sql} FROM r GROUP BY room)"
        return min(seconds(lambda: other.execute(query).fetchall()) for _ in range(3))


def by_polars(sql: str, codes: np.ndarray, prices: np.ndarray) -> float:
    """Seconds in which Polars groups all rows."""
    import polars

    given = polars.DataFrame({"room": codes, "price": prices})
    aggregate = polars.sql_expr(sql)
    return min(seconds(lambda: given.group_by("room").agg(aggregate)) for _ in range(3))


def singles(scale: Scale, note: Note) -> list[Figure]:
    """Two services, one of them with the views, receive changes alternately, because the speed of the machine differs from minute to
    minute."""
    count, rows = scale.size(6_000, 100), scale.size(100_000, 500)
    rates: dict[tuple[bool, int], list[float]] = {}
    rng = np.random.default_rng(5)
    with serving(scale) as plain, serving(scale) as beside:
        for server, views in ((plain, ()), (beside, VIEWS)):
            client = server.client()
            talk.define(client, "r", RELATION)
            loaded = "".join(json.dumps(_row(rng, number)) + "\n" for number in range(rows))
            sent = client.post("/v1/relations/r/changes", content=loaded, headers={"Content-Type": "application/jsonl"})
            assert sent.status_code == 200, sent.text
            for number, sql in enumerate(views):
                talk.view(client, f"v{number}", {"sql": sql})
        for connections in (1, 64):
            for _ in range(REPEATS):
                for server in (plain, beside):
                    bodies = [json.dumps(_row(rng, int(rng.integers(0, rows)))).encode() for _ in range(count)]
                    requests = [post("/v1/relations/r/changes", body, "application/jsonl") for body in bodies]
                    process = psutil.Process(server.process.pid)
                    rate = exchange(server.port, process, requests, connections).rate
                    rates.setdefault((server is beside, connections), []).append(rate)
                    time.sleep(0.2)
    found = []
    for connections in (1, 64):
        without, mine = rates[False, connections], rates[True, connections]
        note(f"{connections} connections: {_rounded(mine)} changes/s beside ten views, {_rounded(without)} without")
        left = [one / other for one, other in zip(mine, without, strict=True)]
        aim = 0.6 if connections == 64 else None
        rivals = [Rival("without views", middle(without), "changes/s")]
        name = f"single changes, connections: {connections}: part of the speed that remains beside ten views with groups"
        found.append(sampled(name, left, "of 1", aim=aim, rivals=rivals, parameters={"changes/s": middle(mine)}))
    return found


def _rounded(rates: list[float]) -> str:
    return ", ".join(f"{rate:.0f}" for rate in rates)


def _row(rng: np.random.Generator, number: int) -> dict[str, object]:
    return {
        "id": number, "room": int(rng.integers(0, 1000)), "price": round(float(rng.random()) * 100, 2), "n": int(rng.integers(0, 50)),
        "starts": int(rng.integers(0, 10**15)),
    }  # fmt: skip
