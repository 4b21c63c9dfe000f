"""Killed at every named step: what was acknowledged is there, nothing is there twice, and the views fit the rows."""

from __future__ import annotations

import random
import signal
from functools import partial
from pathlib import Path

import pytest

from service.instance import Instance
from service.reading.cursors import open_relation_rows, open_rows
from tests.failpoints import AT_WORK
from tests.forked import finished
from tests.service.running import batch, ids, opened, rows_of, running

ROUNDS = 24


def changes_of(epoch: int) -> tuple[tuple[int, int], int]:
    """What batch `epoch` puts into `a` (from, count) and where its interval begins."""
    draw = random.Random(epoch)
    return (draw.randrange(40), draw.randrange(1, 12)), draw.randrange(3000)


def work(folder: Path) -> None:
    """The child: applies batch after batch, says so, and closes."""
    engine = running(folder)
    engine.apply(batch(("upsert", "b", rows_of(0, 3)), source="s", epoch=0))
    for epoch in range(1, ROUNDS):
        (first, count), start = changes_of(epoch)
        engine.apply(batch(("upsert", "a", rows_of(first, count, start)), source="s", epoch=epoch))
        print(epoch, flush=True)
        if epoch % 8 == 7:
            engine.snapshots.write()
    engine.close()


def check(engine: Instance, acknowledged: int) -> None:
    version = engine.published.number
    assert version >= acknowledged + 1 or acknowledged == 0
    rows: dict[int, int] = {}
    for epoch in range(1, version):
        (first, count), start = changes_of(epoch)
        rows |= dict.fromkeys(range(first, first + count), start)
    assert [(row[0], row[1]) for row in ids(open_relation_rows(engine.readers, "a"))] == sorted(rows.items())
    expected = sorted((i, j) for i, start in rows.items() if start <= 1000 for j in range(3)) if version else []
    assert ids(open_rows(engine.readers, "v")) == expected


@pytest.mark.parametrize("step", AT_WORK)
def test_killed_at(step: str, tmp_path: Path) -> None:
    times = 1 if step in ("in-snapshot", "after-snapshot", "in-log-cleaning", "in-build") else random.Random(step).randrange(2, ROUNDS)
    print("failpoint", step, times)
    status, emitted = finished(partial(work, tmp_path), {"LIVEJOIN_FAILPOINT": f"{step}:{times}"})
    assert status == -signal.SIGKILL, emitted
    acknowledged = int((emitted.split() or ["0"])[-1])
    engine = opened(tmp_path)
    check(engine, acknowledged)
    version = engine.published.number
    for epoch in range(version):  # a client that repeats everything
        if epoch:
            (first, count), start = changes_of(epoch)
            assert engine.apply(batch(("upsert", "a", rows_of(first, count, start)), source="s", epoch=epoch)).duplicate
    engine.close()
    engine = opened(tmp_path)
    check(engine, acknowledged)
    assert engine.published.number == version
    engine.close()
