"""TPC-H, the Star Schema Benchmark and Nexmark as views, and shapes on which other incremental engines lost or doubled rows: which queries
are accepted, and DuckDB's answers after every batch of changes. What cannot be said as written has its reason in `REFUSED`."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from tests.server_process import ServerProcess
from tests.service.questions.reading import complaint
from tests.service.tpc.compared import BENCHMARKS, Compared, named, queries, sayable

REFUSED = {
    "tpch": {},
    "ssb": {},
    "nexmark": {
        "q5": "add an INTERVAL, which is a constant, to a time", "q6": "one change can change the values of many rows",
        "q11": "bid has no interval date_time", "q12": "CURRENT_TIMESTAMP", "q19": "a subquery with ROW_NUMBER in any other form",
    },
    "shapes": {"ranks": "one change can change the values"},
}  # fmt: skip
"""The queries that are refused as written, with words of the complaint."""
_FEW = pytest.param(0.001, 2, id="few")
_MANY = pytest.param(0.01, 20, id="many", marks=pytest.mark.soak)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_what_is_refused(name: str) -> None:
    relations, asked = queries(name)
    refused = {named(one): said for one in asked if (said := complaint(one.sql, relations)) is not None}
    print(json.dumps(refused, indent=1))
    assert refused.keys() == REFUSED[name].keys()
    for query, words in REFUSED[name].items():
        assert words in refused[query]
    for one in asked:
        assert one.instead is None or named(one) in refused and complaint(one.instead, relations) is None, one.words


@pytest.mark.parametrize(("scale", "batches"), [_FEW, _MANY])
@pytest.mark.parametrize("name", BENCHMARKS)
def test_answers(tmp_path: Path, name: str, scale: float, batches: int) -> None:
    views, data = sayable(name), BENCHMARKS[name](queries(name)[0], scale, Random(name))
    with ServerProcess(tmp_path / "data") as process:
        compared = Compared(process.client(), data, views)
        for view in [*views][::2]:  # these follow the load
            compared.register(view)
        compared.load()
        for view in [*views][1::2]:
            compared.register(view)
        compared.compare()
        for number in range(batches * data.times):
            if number == batches * data.times // 2:
                process.kill()
                process.start()
            for count in (1, data.rng.randrange(2, 5), data.rng.randrange(5, 30)):
                compared.refresh(count)
                compared.compare()
            compared.follow()
    assert len([view for view in views if not compared.filled[view]]) <= len(views) / 4, compared.filled
