"""The data source and the joins over Spark Connect, in a process of its own: a Python has sessions of one kind alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import livejoin
from tests.server_process import ROOT, ServerProcess
from tests.streaming.connect_job import SQL

COLUMNS = {"id": "int64", "room": "string", "s": "int64", "e": {"type": "int64", "nullable": True}}


def found_by(part: str, url: str, folder: Path) -> dict[str, Any]:
    path = os.pathsep.join((str(ROOT), str(ROOT / "client")))
    own = {"PYTHONPATH": path, "SPARK_TESTING": "1"}  # with it Spark's server chooses a port that is free
    command = [sys.executable, "-m", "tests.streaming.connect_job", part, url, str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | own, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["session"].startswith("pyspark.sql.connect")
    return found


def test_the_data_source_over_spark_connect(quick_java: None, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    with ServerProcess(tmp_path / "data") as server, livejoin.connect(server.url) as lj:
        for name in "ab":
            lj.relation(name).create(COLUMNS, "id", {"stay": ("s", "e")})
        lj.view("v", SQL)
        lj.relation("a").upsert([{"id": number, "room": "A", "s": number, "e": number + 3} for number in range(40)])
        lj.relation("b").upsert([{"id": number, "room": "A", "s": 2 * number, "e": None} for number in range(5)])
        before = sorted([row["x"], row["y"]] for row in lj.view("v").rows())
        found = found_by("source", server.url, tmp_path / "files")
        after = sorted([row["x"], row["y"]] for row in lj.view("v").rows())
    assert found["before"] == before and found["after"] == after
    deleted, inserted = [row for row in before if row not in after], [row for row in after if row not in before]
    assert deleted and inserted
    assert found["emitted"] == sorted([["delete", *row] for row in deleted] + [["insert", *row] for row in inserted])


@pytest.mark.soak  # a minute
def test_joins_over_spark_connect(quick_java: None, tmp_path: Path) -> None:
    found = found_by("joins", "", tmp_path)
    rows = found["rows"]
    expected = sorted([x, y] for x, room, s, e in rows for y, other, t, u in rows if room == other and s < u and t < e)
    assert expected == found["overlap_join"] == found["live_join"] == found["stream"] == found["snapshot"]
    assert found["anti"] == [x for x, *_ in rows if not any(one == x and y < 100 for one, y in expected)]
    assert re.search(r"cells +1, 1\.00 copies a row; 600 of 600 rows in one$", found["explain"])
    cells = [row for row in found["status"] if row["stage"] == "cells"]
    assert len(cells) > 1 and sum(row["rows"] for row in cells) >= 2 * len(rows)
    assert sum(row["emitted"] for row in cells) == len(expected)
