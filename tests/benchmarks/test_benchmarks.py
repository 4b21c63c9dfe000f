"""The benchmarks run, and store what they find in the right form. No figure is judged here: tests measure no times."""

from __future__ import annotations

import json
import math
import re
import time
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from structures.box.tree import BoxTree
from structures.ij_heap.heap import IJHeap, Topology
from tests.benchmarks import (
    LARGE,
    SUBJECTS,
    boxes,
    growth,
    heap_growth,
    heap_rivals,
    natural_triangle,
    pipeline_latency,
    pipeline_throughput,
    service_memory,
)
from tests.benchmarks.__main__ import chosen, main
from tests.benchmarks.data import Workload, crowded, heavy_tailed, keyed, uniform
from tests.benchmarks.figures import Figure, Rival, Scale, sampled
from tests.benchmarks.heap_data import clique, cycle, even, hostile, path, star
from tests.benchmarks.heap_rivals import DuckDbOfMany, LookUps
from tests.benchmarks.marks import compiled
from tests.benchmarks.measured_heap import many_singles, one_batch, whole_view
from tests.benchmarks.measured_tree import QUICK, Changes, measure
from tests.benchmarks.pipeline_records import RELATIONS, Hotel, view_rows
from tests.benchmarks.pipeline_rivals import plain_consumer
from tests.benchmarks.pipeline_stage import stage, view_count
from tests.benchmarks.rivals import DuckDb, PythonTrees, ncls_whole, sort_and_sweep
from tests.benchmarks.table import number, render
from tests.naive.interval_join import sweep_count

RESULTS = Path(__file__).parent / "results"


@compiled
def test_a_quick_run_keeps_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["structure_pairs", "--quick", "--results", str(tmp_path / "results")]) == 0
    (path,) = (tmp_path / "results").iterdir()
    result = json.loads(path.read_text())
    assert path.name == "structure_pairs.json" and result["subject"] == "structure_pairs" and result["quick"] is True
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", result["date"]) and re.fullmatch(r"[0-9a-f]{12}\+?|unknown\+?", result["revision"])
    assert set(result["machine"]) == {"processor", "cores", "memory_gib", "system", "load_before"}
    assert {"python", "numpy", "numba", "duckdb", "intervaltree", "ncls"} <= set(result["versions"])
    figures = [Figure.from_json(figure) for figure in result["figures"]]
    assert len(figures) == 18 and [figure.to_json() for figure in figures] == result["figures"]
    assert all(figure.value > 0 and figure.unit for figure in figures)
    kinds = {figure.name.partition(": ")[2].partition(",")[0] for figure in figures}
    assert {"load", "single changes", "whole view", "first 512 rows", "bytes an interval", "largest gap between two rows"} <= kinds
    for figure in figures:
        assert figure.rivals or figure.unit in ("B", "steps"), figure.name
    page = (tmp_path / "RESULTS.md").read_text()
    assert page == render([result]) and capsys.readouterr().out.strip() in page
    assert all(f"| {figure.name}" in page for figure in figures)


@compiled
@pytest.mark.parametrize("workload", [uniform(3000, 2), keyed(3000, 2, 50), crowded(3000, 5), heavy_tailed(3000, 2)], ids=lambda w: w.name)
def test_everybody_finds_the_same_rows(workload: Workload) -> None:
    """`measure` itself compares the view after the changes with the deltas."""
    entries = workload.entries
    is_keyed = bool(entries.key.any())
    measured = measure(workload, QUICK, lambda line: None)
    assert sort_and_sweep(entries).rows == measured.rows > 0
    rival = DuckDb(entries, is_keyed)
    assert rival.read().rows == measured.rows
    deleted, inserted = entries.take(slice(0, 500)), workload.fresh.take(slice(0, 500))
    _, gained = rival.change(deleted, inserted)
    assert rival.read().rows == measured.rows + gained
    rival.close()
    trees = PythonTrees(entries)
    lost = trees.change(-1, deleted)
    assert trees.change(1, inserted) - lost == gained
    if not is_keyed:
        assert sweep_count(entries.set, entries.left, entries.right) == measured.rows == ncls_whole(entries).rows


@compiled
@pytest.mark.parametrize("topology", [path(3), clique(3), star(4), cycle(4)], ids=["path", "clique", "star", "cycle"])
@pytest.mark.parametrize("at", range(6))
def test_everybody_finds_the_same_deltas_of_many(topology: Topology, at: int) -> None:
    workload = [even(topology.t, 600, 2), *hostile(topology.t, 600, 2)][at]
    heap, changes = IJHeap(topology), Changes(workload)
    heap.bulk_load(1, workload.entries)
    deleted, inserted = Changes(workload).take(200)
    duckdb, look_ups = DuckDbOfMany(topology, workload.entries), LookUps(topology.t, workload.entries)
    before = duckdb.read()
    assert before is not None and before.rows == whole_view(heap, heap.root).rows
    gained = one_batch(heap, changes, 200, True).gained
    assert look_ups.change(topology, -1, deleted) * -1 + look_ups.change(topology, 1, inserted) == gained
    changed = duckdb.change(deleted, inserted)
    assert changed is not None and changed[1] == gained
    after = duckdb.read()
    assert after is not None and after.rows == before.rows + gained == whole_view(heap, heap.root).rows
    singles = many_singles(heap, changes, 100)
    assert whole_view(heap, heap.root).rows == after.rows + singles.gained and singles.steps > 0
    heap.check(heap.root)
    duckdb.close()


@compiled
def test_boxes_change_by_the_same_rows_for_everybody() -> None:
    workload = boxes.boxes(600, 3)
    tree, changes = BoxTree(2, "pair"), Changes(workload)
    tree.bulk_load(1, workload.entries)
    duckdb = DuckDbOfMany(path(2), workload.entries)
    before = whole_view(tree, tree.root).rows
    assert 0.8 * 3 < 2 * before / 600 < 1.2 * 3
    gained = one_batch(tree, changes, 200, True).gained
    changed = duckdb.change(*Changes(workload).take(200))
    assert changed is not None and changed[1] == gained
    singles = boxes.many_singles(tree, changes, 100)
    assert whole_view(tree, tree.root).rows == before + gained + singles.gained and singles.steps > 0
    tree.check(tree.root)
    duckdb.close()


def test_duckdb_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A view of 600 million rows: without an interrupt, this takes minutes. Afterwards, DuckDB continues with its earlier rows."""
    workload = even(3, 3000, 600)
    duckdb = DuckDbOfMany(path(3), workload.entries)
    few = workload.entries.take(slice(0, 6))
    monkeypatch.setattr(heap_rivals, "PATIENCE", 0.2)
    assert duckdb.read() is None
    assert duckdb.change(workload.entries.take(slice(0, 1500)), workload.fresh.take(slice(0, 1500))) is None
    monkeypatch.undo()
    changed = duckdb.change(few, few.take(slice(0, 0)))
    assert changed is not None and changed[1] < 0
    duckdb.close()


def test_the_page_on_memory_shows_what_is_kept() -> None:
    kept = json.loads((RESULTS / "service_memory.json").read_text())
    text = (RESULTS.parents[2] / service_memory.PAGE).read_text()
    assert service_memory.page([Figure.from_json(figure) for figure in kept["figures"]], text) == text


@compiled
def test_growth_is_fitted_and_plotted(tmp_path: Path) -> None:
    assert growth.slope([10.0, 100.0, 1000.0], [3.0, 30.0, 300.0]) == pytest.approx(1)
    assert main(["heap_growth", "--quick", "--results", str(tmp_path / "results")]) == 0
    result = json.loads((tmp_path / "results" / "heap_growth.json").read_text())
    fitted = [figure["name"] for figure in result["figures"] if "exponent" in figure["name"]]
    assert len(fitted) == 4 * len(heap_growth.FITTED)
    svg = ElementTree.parse(tmp_path / "results" / "heap_growth.svg")
    assert len(svg.findall(".//{*}circle")) == 3 * len(fitted)
    assert "](results/heap_growth.svg)" in (tmp_path / "RESULTS.md").read_text()


def test_space_of_triangles() -> None:
    bits, kept, *_ = natural_triangle.space("routes", natural_triangle.graph("routes", 10_000))  # the peak depends on what is free here
    assert 0 < bits.value < bits.rivals[0].value and kept.value > 0


@compiled
@pytest.mark.parametrize("subject", [name for name in SUBJECTS if not name.startswith(("pipeline", "cluster", "stalls"))])
def test_each_subject_runs(subject: str) -> None:
    """Subjects themselves compare rows and deltas with those of their rivals. `newcomer` uses the packages that are installed already."""
    figures = import_module(f"tests.benchmarks.{subject}").run(Scale(quick=True), lambda line: None)
    assert figures and len({figure.name for figure in figures}) == len(figures)
    assert all(map(math.isfinite, (value for figure in figures for value in (figure.value, *(rival.value for rival in figure.rivals)))))


def test_partners_are_as_many_as_was_asked_for() -> None:
    workload = uniform(20_000, 8)
    rows = sweep_count(workload.entries.set, workload.entries.left, workload.entries.right)
    assert 0.9 * 8 < 2 * rows / 20_000 < 1.1 * 8
    assert len(np.intersect1d(workload.entries.slot, workload.fresh.slot)) == 0


def test_a_hotel_knows_its_view() -> None:
    hotel = Hotel()
    ops = [json.loads(record.value)["op"] for record in hotel.records(10_000)]
    assert {op: round(ops.count(op) / len(ops), 1) for op in "cud"} == {"c": 0.6, "u": 0.3, "d": 0.1}
    for rows in (hotel.rows, hotel.created):
        bookings, works = ({}, {})
        for relation, rooms in zip(RELATIONS, (bookings, works), strict=True):
            for row in rows[relation].values():
                rooms.setdefault(row["room"], []).append((row["starts"], row["ends"]))
        pairs = [(b, m) for room, stays in bookings.items() for b in stays for m in works.get(room, [])]
        assert view_rows(rows) == sum(b[0] < m[1] and m[0] < b[1] for b, m in pairs) > 0


@compiled
@pytest.mark.usefixtures("quick_java")
def test_records_go_through_the_pipeline_and_are_followed() -> None:
    """The work of two subjects, with one job; Spark alone, a rival that is as slow to start, is measured in a quick run only."""
    hotel, count = Hotel(), 4_000
    with stage() as on:
        on.produce(hotel.records(count))
        started = time.perf_counter()
        with on.job(max_offsets=1_000) as job:
            passage = pipeline_throughput.watch(on, job, started, count)
            assert passage.records == count - job.batches[0] and 0 < sum(passage.parts.values()) < passage.seconds
            plain = plain_consumer(on.broker.address, count)
            figures = pipeline_throughput.figures_of(passage, time.perf_counter() - started, count, {pipeline_throughput.PLAIN: plain})
            assert len(figures) == 11 and figures[0].value > 0 and all(figure.value >= 0 for figure in figures)
            assert plain.rows == view_count(on.server) == view_rows(hotel.rows) > 0
            latencies = pipeline_latency.measure(on, job, warming=51, count=100)
            assert len(latencies) == 100 and latencies.min() > 0
            assert job.stop() == 0


def test_subjects_by_name() -> None:
    assert chosen([], True) == list(SUBJECTS)
    assert chosen([], False) == [subject for subject in SUBJECTS if subject not in LARGE]
    assert chosen(["service_r"], False) == ["service_rows", "service_requests"]
    with pytest.raises(ValueError, match="no subject"):
        chosen(["structure", "nothing"], False)


def test_an_unknown_subject_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing"]) == 2
    assert "structure_pairs" in capsys.readouterr().err


def test_the_table_says_what_was_missed() -> None:
    result = {
        "title": "T", "subject": "s", "quick": False, "date": "2026-01-01", "revision": "abc",
        "machine": {"processor": "P", "cores": 2, "memory_gib": 4, "load_before": 0.1},
        "versions": {"python": "3", "numpy": "2", "numba": "0"},
        "figures": [
            sampled("fast", [3.0, 1.0, 2.0], "rows/s", aim=2.0, rivals=[Rival("R", 1.5e6, "n")]).to_json(),
            Figure("slow", 12.0, "ms", 10.0, True, note="why").to_json(),
            Figure("free", 1234.0, "B").to_json(),
        ],
    }  # fmt: skip
    lines = render([result]).splitlines()
    assert "| fast | ≥ 2 | 2 rows/s | met | R 1.5 M (n) |" in lines
    assert "| slow (why) | ≤ 10 | 12 ms | **missed** |  |" in lines
    assert "| free |  | 1234 B |  |  |" in lines
    assert [number(value) for value in (0.123, 99.94, 12345.0, 1.3e8, 4.2e9)] == ["0.123", "99.9", "12.3 k", "130 M", "4.2 G"]


