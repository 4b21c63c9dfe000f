"""The benchmarks of clusters, without Spark: their figures are computed from the measurements, and their tables are on the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks import cluster_batch, cluster_stream
from tests.benchmarks.figures import Figure, Rival


def test_the_page_is_made_of_figures() -> None:
    """And the model is fitted to the measurements: 0.1 s per task, 1.8 µs per row."""
    notes: list[str] = []
    took = {cells: cluster_batch.Took(1.0, 3.6 + 0.1 * cells) for cells in cluster_batch.CELLS}
    model = cluster_batch.model({1_000_000: took[4]}, took, 90.0, notes.append)
    assert model.value == pytest.approx(1.5 * (18.0 + 0.8 + 10.0)) and "1.80 µs a row, 100 ms a task" in notes[0]
    rivals = [Rival("cells", 2.5, "4.0 s of the processor"), Rival("one process", 0.5)]
    rivals += [Rival("one service", 5.0, "4.5 s to load and build, 0.5 to count"), Rival("DuckDB, 2 threads", 0.75)]
    rivals += [Rival("Spark's own plan", 9.0, "of 50,000 rows a side")]
    rivals.append(Rival("buckets by hand", 1.0, "1.2 s of the processor"))
    about = {"rows a side": 500_000, "rows out": 1_000_000}
    figure = Figure("uniform, with the sample", 1.5, "s", rivals=rivals, parameters=about)
    page = cluster_batch.page([figure, model], (Path(__file__).parents[2] / cluster_batch.PAGE).read_text())
    row = "| uniform | 500,000 | 1,000,000 | 1.5 | 2.5 (4.0) | 1 (1.2) | 5 (4.5 s to load and build, 0.5 to count) "
    assert f"{row}| 0.5 | 0.75 | 9 (of 50,000 rows a side) |" in page
    assert "| model: 1,000,000,000 intervals on 100 cores |  | 43.2 s |" in page
    assert cluster_batch.page([figure, model], page) == page


def test_the_stages_of_a_join_of_streams() -> None:
    """With and without a resolver, and in one process, the view grows to the rows that DuckDB finds. The figures are on the page."""
    workload = cluster_stream.Workload(300)
    epochs = [workload.first, *(workload.epoch(size) for size in (40, 80, 400) for _ in range(cluster_stream.REPEATS))]
    anew, live = cluster_stream.of_duckdb(workload)
    stages = {name: cluster_stream.in_stages(kind, epochs, live) for name, kind in cluster_stream.KINDS.items()}
    assert live > 300 and all(took > 0 for took in cluster_stream.of_one_process(epochs, live))
    assert [list(stages[name].took[0]) for name in stages] == [["send", "cells", "net"], ["send", "resolver", "cells", "net"]]
    assert stages["resolver"].rows == 600 and list(stages["resolver"].states) == ["keys", "cells"]
    took = [cluster_batch.Took(4.0, 4.0), *([cluster_batch.Took(1.0, 1.0)] * 3), *([cluster_batch.Took(2.0, 3.0)] * 6)]
    streamed = dict.fromkeys(cluster_stream.KINDS, cluster_stream.Streamed(took, []))
    notes: list[str] = []
    rivals = {"one service": [0.5] * 10, "one process": [0.25] * 10}
    figures = [cluster_stream.of_size(1_000_000, 4, streamed, rivals, anew), *cluster_stream.of_stages(stages, epochs)]
    figures += cluster_stream.model(stages["resolver"], streamed["resolver"], [500_000, 1_000_000, 2_500_000], notes.append)
    figures += cluster_stream.of_one_executor(streamed["resolver"], [500_000, 1_000_000, 2_500_000], rivals["one service"])
    page = cluster_stream.page(figures, (Path(__file__).parents[2] / cluster_stream.PAGE).read_text())
    assert "| 1,000,000 | 2 (3 µs) | 2 (3 µs) | 0.5 | 0.25 |" in page
    assert "| model: changes on 100 cores |  | 50,000,000 changes/s | 1.0 µs of the processor a change beyond 0.50 s" in page
    assert "| changes a second with one executor, in micro-batches of 500,000 |  | 500,000 changes/s | one service 1,000,000 |" in page
