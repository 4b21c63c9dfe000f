"""Parts of a replacement that wait in files: until they are committed, or for an hour."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from livejoin.wire.batch import Batch
from service.engine.staging import FOLDER, Stage, Stages
from service.errors import Problem
from service.tables.relations import Relation
from tests.service.running import DEFINITION, Clock, batch, rows_of, running


def part(first: int, count: int = 2) -> Batch:
    return batch(("upsert", "a", rows_of(first, count)))


def taken(stages: Stages, relation: Relation, name: str, *parts: int) -> list[int]:
    """The ids of the rows that a commit gets."""
    found = Batch([], 0, 0, [], 0)
    with stages.taken(relation, name, found, parts or None):
        return [id_ for changes in found.changes for id_ in changes.rows.arrow.column("id").to_pylist()]


def files(folder: Path) -> int:
    return len(list(folder.glob(f"{FOLDER}/*")))


@pytest.fixture
def relation() -> Relation:
    return Relation(1, "a", DEFINITION)


def test_a_stage_is_forgotten_an_hour_after_its_last_part(tmp_path: Path, relation: Relation) -> None:
    clock = Clock()
    stages = Stages(tmp_path, 100, clock)
    stages.put(relation, "night", None, part(0))
    clock.now = 3500
    stages.put(relation, "night", None, part(10))
    stages.put(relation, "other", None, part(20))
    clock.now = 7099
    stages.sweep()
    assert files(tmp_path) == 3
    assert taken(stages, relation, "night") == [0, 1, 10, 11] and files(tmp_path) == 1
    clock.now = 7101
    with pytest.raises(Problem, match="dropped an hour after its last part") as caught:
        taken(stages, relation, "other")
    assert caught.value.type == "not-found" and files(tmp_path) == 0
    stages.put(relation, "other", 0, part(30))
    assert taken(stages, relation, "other") == [30, 31], "nothing of the former one"


def test_those_of_a_dropped_relation_are_discarded(tmp_path: Path) -> None:
    """Seen: they stayed for an hour, and after 64 of them no part of any relation was accepted."""
    with closing(running(tmp_path, {})) as engine:
        for relation in "ab":
            engine.stage(relation, "night", None, part(0))
        engine.drop_relation("a")
        assert files(tmp_path) == 1
        engine.put_relation("a", DEFINITION)
        with pytest.raises(Problem) as raised:
            engine.commit_stage("a", "night", Batch([], 0, 0, [], 0))
        assert raised.value.type == "not-found"
        assert engine.commit_stage("b", "night", Batch([], 0, 0, [], 0)).version == 1


@pytest.mark.parametrize("is_created_again", [False, True])
def test_a_part_of_a_relation_that_is_dropped_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_created_again: bool) -> None:
    with closing(running(tmp_path, {})) as engine:
        put = engine.stages.put

        def late(*given: Any) -> tuple[int, Stage]:
            engine.drop_relation("a")
            if is_created_again:
                engine.put_relation("a", DEFINITION)
            return put(*given)

        monkeypatch.setattr(engine.stages, "put", late)
        with pytest.raises(Problem) as raised:
            engine.stage("a", "night", None, part(0))
        assert raised.value.type == "not-found" and files(tmp_path) == 0


def test_a_commit_that_fails_leaves_the_stage(tmp_path: Path, relation: Relation) -> None:
    stages = Stages(tmp_path, 100)
    stages.put(relation, "night", 0, part(0))
    for again in (False, True):
        with pytest.raises(ZeroDivisionError), stages.taken(relation, "night", Batch([], 0, 0, [], 0)):
            if again:  # somebody begins a stage of this name meanwhile: it stays, and the former one leaves no file
                stages.put(relation, "night", 0, part(5))
            raise ZeroDivisionError
        assert files(tmp_path) == 1
    assert taken(stages, relation, "night") == [5, 6] and files(tmp_path) == 0


def test_some_parts_are_committed(tmp_path: Path, relation: Relation) -> None:
    """The others stay, such as those of tasks that have failed."""
    stages = Stages(tmp_path, 100)
    for number in (3, 5, 8, 9):
        stages.put(relation, "night", number, part(10 * number))
    with pytest.raises(Problem, match="no part 4 of stage 'night'") as caught:
        taken(stages, relation, "night", 3, 4, 5)
    assert caught.value.type == "not-found"
    with pytest.raises(ZeroDivisionError), stages.taken(relation, "night", Batch([], 0, 0, [], 0), (3, 8)):
        stages.put(relation, "night", 3, part(70))
        raise ZeroDivisionError
    assert taken(stages, relation, "night", 8, 3, 8) == [70, 71, 80, 81] and files(tmp_path) == 2
    assert taken(stages, relation, "night") == [50, 51, 90, 91] and files(tmp_path) == 0
    with pytest.raises(Problem, match="no stage 'night'"):
        taken(stages, relation, "night", 5)


def test_bounds(tmp_path: Path, relation: Relation) -> None:
    stages = Stages(tmp_path, 5)
    stages.put(relation, "s0", 0, part(0, 4))
    with pytest.raises(Problem, match="--max-relation-rows"):
        stages.put(relation, "s0", 1, part(4))
    stages.put(relation, "s0", 0, part(0, 5))  # in place of the former one
    for number in range(1, 64):
        stages.put(relation, f"s{number}", 0, part(0))
    with pytest.raises(Problem) as caught:
        stages.put(relation, "s64", 0, part(0))
    assert caught.value.type == "too-many" and files(tmp_path) == 64
    stages.close()
    assert files(tmp_path) == 0


def test_a_disk_that_takes_no_part(tmp_path: Path, relation: Relation) -> None:
    """It answered `internal`, with status 500, where even the folder could not be made."""
    stages = Stages(tmp_path, 100)
    (tmp_path / FOLDER).write_bytes(b"in the way")
    with pytest.raises(Problem, match="does not accept this part .*; it was not kept") as caught:
        stages.put(relation, "night", None, part(0))
    assert caught.value.type == "disk-full"
    (tmp_path / FOLDER).unlink()
    stages.put(relation, "night", None, part(0))
    assert taken(stages, relation, "night") == [0, 1]
