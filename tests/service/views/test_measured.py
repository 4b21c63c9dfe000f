"""What a live view measures of itself: every algorithm, by counters whose values are known or bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from livejoin.wire.batch import DELETE, INSERT
from service.instance import Instance
from service.reading.cursors import open_rows
from service.views.joins.qdag_join import QdagJoin
from tests.service.engine.test_engine import prepared
from tests.service.twin import Row, to_batch

PAIR = {"from": {"x": "a", "y": "b"}, "join": [{"overlaps": ["x.stay", "y.slot"]}], "select": ["x.id as i", "y.nr as n"]}
BOXES = PAIR | {"join": [{"overlaps": ["x.stay", "y.slot"]}, {"at_most": ["x.floor", "y.floor"]}]}
CASES: dict[str, dict[str, Any]] = dict.fromkeys(("interval-tree", "ij-heap", "join-tree", "nested-loop"), PAIR) | {"box-tree": BOXES}
NATURAL = {"from": {"x": "a", "y": "b"}, "join": [{"equal": ["x.id", "y.nr"]}], "select": ["x.id as i", "y.nr as n"]}
CASES |= dict.fromkeys(("view-tree", "qdag", "tree-tracker", "minesweeper", "elimination", "intersect"), NATURAL)
CASES["bow-tie"] = NATURAL | {"from": {"x": "a", "y": "b", "z": "b"}, "join": [*NATURAL["join"], {"equal": ["y.starts", "z.starts"]}]}


def _a(number: int) -> Row:
    return {"id": number, "room": "A", "floor": 1, "starts": 10 * number, "ends": 10 * number + 9, "tag": "u", "weight": None}


def _b(number: int) -> Row:
    return {"nr": number, "site": "N", "room": "A", "floor": 1, "starts": 10 * number + 2, "ends": 10 * number + 3, "note": None}


def _filled(folder: Path, definition: dict[str, Any]) -> Instance:
    """200 rows each, every row of a with one of b; then a row of each goes, which leaves one of the other alone."""
    engine = prepared(folder, {})
    assert engine.put_view("v", definition, wait=60)[1] == "created"
    statistics = engine.views["v"].statistics()
    assert [statistics[name] for name in ("steps_per_row", "steps_per_update", "bytes_per_row")] == [None] * 3
    engine.apply(to_batch([("a", INSERT, _a(i)) for i in range(200)] + [("b", INSERT, _b(i)) for i in range(200)]))
    engine.apply(to_batch([("b", DELETE, {"nr": 7, "site": "N"}), ("a", DELETE, {"id": 9})]))
    return engine


def _count(engine: Instance) -> int:
    reader, rows = open_rows(engine.readers, "v"), 0
    while (more := reader.skip(50)) is not None:
        rows += more
    reader.close()
    return rows


@pytest.mark.parametrize("algorithm", CASES)
def test_every_algorithm(tmp_path: Path, algorithm: str) -> None:
    engine = _filled(tmp_path, CASES[algorithm] | {"algorithm": algorithm})
    assert _count(engine) == 198
    found = engine.views["v"].statistics()
    assert found["rows_read"] == 198
    # A box tree keeps up to 512 ends in a leaf and looks through it.
    assert 1 <= found["steps_per_row"] < {"box-tree": 300, "join-tree": 40}.get(algorithm, 20) and found["delay_steps"]["max"] >= 1
    assert 0 < found["steps_per_update"] < 300
    if algorithm in ("view-tree", "join-tree"):  # 200 keys, or rows, came to life, two died, by 402 changes
        assert found["flips_per_update"] == 202 / 402
    assert found["bytes_per_row"] == found["bytes"] / 398
    if algorithm in ("interval-tree", "box-tree"):
        assert found["dead_ends"] is None
    else:  # the row without a partner is bound by look-ups, and looked for in the other's tree
        in_vain = ("nested-loop", "qdag", "tree-tracker", "minesweeper", "elimination", "intersect", "bow-tie")
        assert found["dead_ends"] == (1 if algorithm in in_vain else 0)
    assert _count(engine) == 198 and engine.views["v"].statistics()["rows_read"] == 396
    engine.close()


def test_bits_a_tuple_of_compact_quadtrees(tmp_path: Path) -> None:
    engine = _filled(tmp_path, NATURAL | {"algorithm": "qdag"})
    assert engine.views["v"].statistics()["bits_per_tuple"] is None  # what has come by changes is live
    engine.apply(to_batch([("a", INSERT, _a(i)) for i in range(200, 1000)]))
    assert engine.put_view("w", NATURAL | {"algorithm": "qdag"}, wait=60)[1] == "created"
    join = engine.views["w"].join
    assert isinstance(join, QdagJoin)
    bits = engine.views["w"].statistics()["bits_per_tuple"]  # b has too few rows for a compact form
    assert bits == join.trees.bits_a_tuple(0) and join.trees.bits_a_tuple(1) == 0.0
    assert 0 < bits < 1.3 * 3 * join.trees.roots[0].bits  # the paper's (k + 2) log l
    engine.close()


@pytest.mark.parametrize("algorithm", ["interval-tree", "ij-heap", "nested-loop"])
def test_candidates_that_a_comparison_drops_are_dead_ends(tmp_path: Path, algorithm: str) -> None:
    engine = _filled(tmp_path, PAIR | {"join": [*PAIR["join"], {"not_equal": ["x.room", "y.room"]}], "algorithm": algorithm})
    assert _count(engine) == 0
    found = engine.views["v"].statistics()
    # By look-ups: 198 candidates, and 199 rows that are bound and come to nothing.
    assert found["dead_ends"] == (397 if algorithm == "nested-loop" else 198) and found["steps_per_row"] is None
    engine.close()
