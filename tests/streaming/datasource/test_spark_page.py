"""The blocks of docs/how-to/spark.md, on the view of the tour in README.md."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import livejoin
from tests.docs.pages import blocks_of
from tests.server_process import ROOT, ServerProcess

ENDS = "2026-03-05T10:00:00Z"
VIEW = """SELECT b.guest AS guest, b.room AS room, m.work AS work, intersection(b.stay, m.slot) AS clash
    FROM bookings b JOIN maintenance m ON b.room = m.room AND overlaps(b.stay, m.slot)"""


def test_the_page_continues_the_tour(spark: SparkSession, service: ServerProcess, tmp_path: Path) -> None:
    with livejoin.connect(service.url) as lj:
        for name, interval, text in (("bookings", "stay", "guest"), ("maintenance", "slot", "work")):
            columns = {"id": "int64", "room": "int64", text: "string", "starts": "timestamp", "ends": "timestamp"}
            relation = lj.relation(name).create(columns, "id", {interval: ("starts", "ends")})
            relation.upsert([{"id": 1, "room": 101, text: "Ada", "starts": "2026-03-01T14:00:00Z", "ends": ENDS}])
        lj.view("clashes", VIEW)
    names: dict[str, Any] = {"spark": spark}
    shown = io.StringIO()
    ran = 0
    for block in blocks_of((ROOT / "docs/how-to/spark.md").read_text()):
        text = block.text.replace('format("livejoin")', f'format("livejoin").option("url", "{service.url}")')
        if block.language == "sql":
            for statement in filter(str.strip, text.replace("http://127.0.0.1:8080", service.url).split(";")):
                spark.sql(statement)
            names["bookings"] = spark.table("bookings")
        elif block.language == "python" and not any(word in text for word in ("writeStream", "foreachBatch", "register")):
            with contextlib.redirect_stdout(shown):
                exec(text.replace("rooms.parquet", str(tmp_path / "rooms.parquet")), names)
            ran += 1
    try:
        assert ran == 5 and "|sea view|" in shown.getvalue() and names["changes"].isStreaming
        assert [tuple(row) for row in names["one"].collect()] == [] and names["march"].count() == names["clashes"].count() == 2
        assert {row.guest for row in names["bookings"].collect()} == {"Ada", "Barbara"}
    finally:
        for name in ("clashes", "bookings"):
            spark.sql(f"DROP TABLE IF EXISTS {name}")
