"""What the engine refuses, sources and their epochs, the order within a batch, groups, and failures of the disk."""

from __future__ import annotations

import errno
import sqlite3
import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from livejoin.wire.batch import Batch
from livejoin.wire.errors import RowError
from livejoin.wire.schema import parse_relation
from service.durability.folder import FolderInUse
from service.engine.outcomes import Receipt
from service.errors import Problem
from service.instance import Instance
from service.reading.cursors import open_relation_rows, open_rows
from tests.service.running import DEFINITION, PAIR, HeldWriter, batch, ids, kill, look, of_ops, opened, parts, rows_of, running
from tests.waiting import until


def refused(work: Callable[[], object]) -> Problem:
    with pytest.raises(Problem) as caught:
        work()
    return caught.value


def keys(engine: Instance) -> list[int]:
    return [row[0] for row in ids(open_relation_rows(engine.readers, "a"))]


def figures(receipt: Receipt) -> tuple[int, int, int, int]:
    return receipt.version, receipt.applied, receipt.ignored, receipt.skipped_count


# the order within a batch


def test_an_insert_is_judged_at_its_place(engine: Instance) -> None:
    engine.apply(of_ops("a", ("upsert", 1), ("upsert", 2)))
    good = of_ops("a", ("delete", 1), ("insert", 1), ("delete", 7), ("insert", 7), ("truncate", 0), ("insert", 2), ("insert", 3))
    assert figures(engine.apply(good)) == (2, 6, 1, 0)
    assert keys(engine) == [2, 3]
    bad = of_ops("a", ("insert", 4), ("insert", 4), ("delete", 2), ("insert", 2), ("insert", 3), ("upsert", 3), ("insert", 2))
    problem = refused(lambda: engine.apply(bad))
    assert problem.type == "bad-rows" and problem.extensions["error_count"] == 3
    assert problem.extensions["errors"] == [{"index": i, "column": "id", "reason": "key-exists"} for i in (1, 4, 6)]
    assert engine.published.number == 2 and keys(engine) == [2, 3]
    bad.on_error = "skip"
    receipt = engine.apply(bad)
    assert figures(receipt) == (3, 4, 0, 3) and [error.index for error in receipt.skipped] == [1, 4, 6]
    assert keys(engine) == [2, 3, 4]


def test_a_single_insert_of_a_key_that_exists(engine: Instance) -> None:
    engine.apply(of_ops("a", ("insert", 1)))
    assert refused(lambda: engine.apply(of_ops("a", ("insert", 1)))).type == "bad-rows"
    assert figures(engine.apply(of_ops("a", ("insert", 1), on_error="skip"))) == (2, 0, 0, 1)
    assert figures(engine.apply(of_ops("a", ("truncate", 0)))) == (3, 1, 0, 0)
    assert figures(engine.apply(of_ops("a", ("delete", 1)))) == (4, 0, 1, 0)
    assert figures(engine.apply(Batch([], 2, 2, [], 0))) == (5, 0, 2, 0)


def test_rows_of_bad_form_and_existing_keys_are_told_together(engine: Instance) -> None:
    engine.apply(batch(("upsert", "a", rows_of(0, 300))))
    bad = batch(("insert", "a", rows_of(0, 200)))
    bad.errors, bad.error_count, bad.sent = [RowError(i, None, "empty-interval") for i in range(200, 250)], 50, 250
    problem = refused(lambda: engine.apply(bad))
    assert problem.extensions["error_count"] == 250
    assert [error["index"] for error in problem.extensions["errors"]] == list(range(100))
    bad.on_error = "skip"
    assert figures(engine.apply(bad)) == (2, 0, 0, 250)


# sources


def test_epochs_of_a_source(engine: Instance) -> None:
    assert engine.apply(of_ops("a", ("insert", 1), source="s", epoch=-5)).version == 1
    repeated = engine.apply(of_ops("a", ("insert", 1), source="s", epoch=-5))
    assert repeated is not None and repeated._replace(first=None) == Receipt(1, 0, 0, 0, [], True)
    assert engine.apply(of_ops("a", ("insert", 1), source="s", epoch=-9)).duplicate
    assert engine.apply(of_ops("nothing", ("insert", 1), source="s", epoch=-9)).duplicate
    assert refused(lambda: engine.apply(of_ops("a", ("insert", 1), source="s", epoch=0))).type == "bad-rows"
    assert not engine.apply(of_ops("a", ("insert", 2), source="s", epoch=0)).duplicate  # the refused one did not count
    assert not engine.apply(of_ops("a", ("insert", 3), source="other", epoch=0)).duplicate


def test_runs_of_a_source(engine: Instance, tmp_path: Path) -> None:
    engine.apply(of_ops("a", ("upsert", 1), source="s", epoch=5, run="one"))
    for fields in ({"run": "two"}, {}):
        assert refused(lambda fields=fields: engine.apply(of_ops("a", ("upsert", 1), source="s", epoch=6, **fields))).type == "source-reset"
    assert engine.apply(of_ops("a", ("upsert", 1), source="s", epoch=5, run="one", reset=True)).duplicate
    assert engine.apply(of_ops("a", ("upsert", 1), source="s", epoch=1, run="two", reset=True)).version == 2
    assert engine.apply(of_ops("a", ("upsert", 1), source="s", epoch=1, run="two", reset=True)).duplicate
    engine.close()
    engine = opened(tmp_path)
    assert engine.apply(of_ops("a", ("upsert", 1), source="s", epoch=1, run="two")).duplicate
    assert refused(lambda: engine.apply(of_ops("a", ("upsert", 1), source="s", epoch=9, run="one"))).type == "source-reset"
    engine.close()


@pytest.mark.parametrize(
    ("fields", "lacks"),
    [
        ({"source": "s"}, "epoch"),
        ({"epoch": 1}, "source"),
        ({"run": "r"}, "source"),
        ({"reset": True}, "run"),
        ({"source": "s", "epoch": 1, "reset": True}, "run"),
    ],
)
def test_what_must_come_together(engine: Instance, fields: dict[str, Any], lacks: str) -> None:
    for ask in (engine.apply, engine.repeated):
        problem = refused(lambda ask=ask: ask(of_ops("a", ("upsert", 1), **fields)))
        assert problem.type == "bad-parameter" and problem.extensions["parameter"] == lacks and problem.detail.startswith(f"{lacks}: ")


# names


def test_relations_and_views_by_name(engine: Instance) -> None:
    assert engine.put_relation("a", DEFINITION) == "same"
    other = parse_relation(DEFINITION.to_json() | {"intervals": {}})
    assert refused(lambda: engine.put_relation("a", other)).type == "definition-differs"
    view, outcome = engine.put_view("v", PAIR)
    assert outcome in ("created", "building")
    assert engine.put_view("v", dict(reversed(PAIR.items()))) == (view, "same")
    assert refused(lambda: engine.put_view("v", PAIR | {"select": ["a.id as i"]})).type == "definition-differs"
    assert refused(lambda: engine.put_view("w", PAIR | {"from": {"a": "a", "b": "nothing"}})).type == "unknown-relation"
    problem = refused(lambda: engine.drop_relation("a"))
    assert problem.type == "relation-in-use" and problem.extensions["views"] == ["v"]
    for work in (engine.drop_relation, engine.drop_view, engine.relation, engine.view):
        assert refused(lambda work=work: work("nothing")).type == "not-found"
    engine.drop_view("v")
    engine.drop_relation("a")
    assert refused(lambda: engine.apply(of_ops("a", ("upsert", 1), on_error="skip"))).type == "unknown-relation"
    assert engine.published.number == 0 and set(engine.relations) == {"b"}


NOT_NULLABLE = [column | {"nullable": False} for column in DEFINITION.to_json()["columns"]]


@pytest.mark.parametrize("change", [{"intervals": {}}, {"columns": NOT_NULLABLE}])
def test_a_batch_that_was_judged_by_another_definition(tmp_path: Path, change: dict[str, Any]) -> None:
    engine = opened(tmp_path)
    other = parse_relation(DEFINITION.to_json() | change)
    assert other.to_json() != DEFINITION.to_json() and other.arrow_schema() == DEFINITION.arrow_schema()
    engine.put_relation("a", other)
    problem = refused(lambda: engine.apply(of_ops("a", ("upsert", 1))))
    assert problem.type == "unknown-relation" and "created again" in (problem.detail or "")
    assert engine.state == "ready" and keys(engine) == []
    engine.close()


def test_a_relation_that_was_made_again_is_another_one(engine: Instance, tmp_path: Path) -> None:
    engine.apply(batch(("upsert", "a", rows_of(0, 3))))
    engine.drop_relation("a")
    engine.put_relation("a", DEFINITION)
    engine.apply(batch(("upsert", "a", rows_of(7, 1))))
    kill(engine)
    engine = opened(tmp_path)
    assert keys(engine) == [7]
    engine.close()
    engine = opened(tmp_path)
    assert keys(engine) == [7] and engine.published.number == 2
    engine.close()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError("no room"), "no room"),
        (OSError(errno.ENOMEM, "Cannot allocate memory", "/a/path"), "Cannot allocate memory"),
        (KeyError("a row of data"), "KeyError, see the service's log"),
    ],
)
def test_a_view_that_cannot_be_built(engine: Instance, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str) -> None:
    """The texts of unforeseen errors may hold rows and paths: nobody is told them."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("service.engine.builds.Builds._load", fail)
    view, _ = engine.put_view("v", PAIR, wait=60)
    assert view.state == "failed" and view.problem is not None and view.problem.type == "view-failed"
    assert view.problem.detail == f"the structures of the view v could not be built: {message}"
    assert refused(lambda: open_rows(engine.readers, "v")).type == "view-failed"
    assert engine.apply(of_ops("a", ("upsert", 1))).version == 1
    engine.drop_view("v")


@pytest.mark.parametrize("together", [False, True])
def test_a_view_that_cannot_follow_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: bool) -> None:
    """Also in the midst of a group that it has followed so far; the other view, and both after a start, have every row."""
    engine = running(tmp_path)
    assert engine.put_view("w", PAIR, wait=60)[1] == "created"
    engine.apply(of_ops("a", ("upsert", 1)))
    view = engine.views["v"]
    assert view.feed is not None
    follower = view.feed.subscribe()

    def fail(*_: object) -> None:
        raise MemoryError("no room")

    held = HeldWriter(engine)
    held.submit(of_ops("b", ("upsert", 1), ("upsert", 2)))
    apply = view.join.apply
    monkeypatch.setattr(view.join, "apply", lambda version, *rest: fail() if version > 2 else apply(version, *rest))
    if together:
        for number in (3, 4):
            held.submit(of_ops("b", ("upsert", number)))
    else:
        held.submit(of_ops("b", ("upsert", 3), ("upsert", 4)))
    held.release()
    until(lambda: len(held.answers) == 2 + together)
    assert all(isinstance(answer, Receipt) for answer in held.answers)
    assert view.state == "failed"
    problem = refused(lambda: open_rows(engine.readers, "v"))
    assert problem.type == "view-failed" and "no room" in problem.detail
    assert [chunk.problem.type for chunk in follower.next() if chunk.problem] == ["view-failed"]
    assert engine.apply(of_ops("b", ("upsert", 5))).version == held.answers[-1].version + 1
    assert len(ids(open_rows(engine.readers, "w"))) == 5
    look(engine)
    engine.close()
    engine = opened(tmp_path)
    assert [len(ids(open_rows(engine.readers, name))) for name in "vw"] == [5, 5]
    engine.close()


@pytest.mark.parametrize("step", ["require", "reclaim"])
def test_a_view_with_a_fault_fails_alone(engine: Instance, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a fault")

    engine.put_view("v", PAIR, wait=60)
    monkeypatch.setattr(engine.views["v"].join, step, fail)
    held = HeldWriter(engine)
    for number in (1, 2):
        held.submit(of_ops("a", ("upsert", number)))
    held.release()
    look(engine)
    assert all(isinstance(answer, Receipt) for answer in held.answers)
    assert engine.views["v"].state == "failed"


# groups and failures


def test_a_group_shares_a_commit_and_a_duplicate_waits_for_it(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    held, committed = HeldWriter(engine), []
    commit = parts(engine).log.commit
    monkeypatch.setattr(parts(engine).log, "commit", lambda: (committed.append(len(held.answers)), commit()))
    held.submit(of_ops("a", ("insert", 1), source="s", epoch=1))
    held.submit(of_ops("a", ("insert", 1), source="s", epoch=1))
    held.submit(of_ops("a", ("insert", 1)))
    held.submit(of_ops("a", ("insert", 2)))
    held.release()
    engine.at_rest(lambda: None)
    first, duplicate, bad, last = held.answers
    assert committed == [0]
    assert isinstance(first, Receipt) and first.version == 1 and isinstance(last, Receipt) and last.version == 2
    assert duplicate._replace(first=None) == Receipt(2, 0, 0, 0, [], True)
    assert isinstance(bad, Problem) and bad.type == "bad-rows"


def test_small_batches_are_answered_between_large_ones(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each lane has its turn, and the batches of a turn share one commit."""
    monkeypatch.setattr("service.engine.queued._FEW_CHANGES", 2)
    held, committed = HeldWriter(engine), []
    commit = parts(engine).log.commit
    monkeypatch.setattr(parts(engine).log, "commit", lambda: (committed.append(len(held.answers)), commit()))
    counts = (1, 3, 1, 3, 1)
    numbers = iter(range(sum(counts)))
    for count in counts:
        held.submit(of_ops("a", *(("insert", number) for number in islice(numbers, count))))
    held.release()
    parts(engine).writer.call(lambda: None).result()  # behind them all
    assert committed == [0, 3]
    assert [answer.version for answer in held.answers if isinstance(answer, Receipt)] == [*range(1, len(counts) + 1)]


def test_too_many_batches_waiting(tmp_path: Path) -> None:
    engine = running(tmp_path, {}, max_waiting=3)
    held = HeldWriter(engine)
    for i in range(3):
        held.submit(of_ops("a", ("upsert", i)))
    problem = refused(lambda: held.submit(of_ops("a", ("upsert", 9))))
    assert problem.type == "too-busy" and "Retry-After" in problem.headers
    held.release()
    engine.close()  # finishes what waits
    assert [answer.version for answer in held.answers if isinstance(answer, Receipt)] == [1, 2, 3]
    assert refused(lambda: engine.apply(of_ops("a", ("upsert", 9)))).type == "recovering"


def full() -> Exception:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error


@pytest.mark.parametrize("step", ["append", "commit"])
@pytest.mark.parametrize(
    ("make", "expected"),
    [(full, "disk-full"), (lambda: OSError(errno.ENOSPC, "full"), "disk-full"), (lambda: OSError(errno.EIO, "broken"), "internal")],
)
def test_a_failure_of_the_disk_ends_the_service(tmp_path: Path, step: str, make: Callable[[], Exception], expected: str) -> None:
    engine = running(tmp_path)
    engine.apply(batch(("upsert", "a", rows_of(0, 2)), ("upsert", "b", rows_of(0, 1))))
    failures: list[BaseException] = []
    engine.on_failure = failures.append
    held = HeldWriter(engine)

    def fail(*_: object) -> None:
        raise make()

    setattr(parts(engine).log, step, fail)
    for i in range(2):
        held.submit(of_ops("a", ("upsert", 10 + i)))
    later: list[Problem] = []
    thread = threading.Thread(target=lambda: later.append(refused(lambda: engine.drop_view("v"))), daemon=True)
    thread.start()
    while parts(engine).writer.waiting < 3:  # two batches and the drop behind them
        thread.join(0.01)
    held.release()
    parts(engine).writer._thread.join(60)
    thread.join(60)
    assert [problem.type for problem in later] == [expected]
    assert [answer.type for answer in held.answers if isinstance(answer, Problem)] == [expected] * 2
    assert engine.state == "failed" and len(failures) == 1
    assert refused(lambda: engine.apply(of_ops("a", ("upsert", 12)))).type == expected
    assert engine.published.number == 1 and len(ids(open_rows(engine.readers, "v"))) == 2  # what is published can be read
    engine.close()
    engine = opened(tmp_path)
    assert engine.published.number == 1 and keys(engine) == [0, 1] and set(engine.views) == {"v"}
    engine.close()


def test_what_is_on_disk_is_never_said_not_to_be(tmp_path: Path) -> None:
    """`disk-full` says that nothing was applied."""
    engine = running(tmp_path)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    engine.versions.publish = fail  # type: ignore[method-assign]
    assert refused(lambda: engine.apply(of_ops("a", ("upsert", 1)))).type == "internal"
    parts(engine).writer._thread.join(60)
    engine.close()
    engine = opened(tmp_path)
    assert engine.published.number == 1 and keys(engine) == [1]
    engine.close()


def test_a_batch_that_cannot_be_judged_is_dropped_alone(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("service.engine.state.resolve", lambda *_: 1 / 0)
        assert refused(lambda: engine.apply(of_ops("a", ("upsert", 1)))).type == "internal"
    assert engine.apply(of_ops("a", ("upsert", 1))).version == 1


def test_one_owner_of_a_folder(engine: Instance, tmp_path: Path) -> None:
    with pytest.raises(FolderInUse):
        opened(tmp_path)


def test_a_snapshot_in_the_background_cleans_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.engine.snapshotting._LOG_WORTH", 10_000)
    monkeypatch.setattr("service.engine.housekeeping._RATE", 1e9)  # no snapshot but the one below
    engine = running(tmp_path)
    for i in range(30):
        engine.apply(batch(("upsert", "a", rows_of(10 * i, 15)), ("upsert", "b", rows_of(i, 1))))
    engine.snapshots.consider()
    thread = engine.snapshots._thread
    assert thread is not None
    engine.apply(batch(("delete", "a", rows_of(0, 15))))
    thread.join(60)
    assert engine.snapshots.log_bytes < 10_000
    expected = ids(open_rows(engine.readers, "v"))
    kill(engine)
    engine = opened(tmp_path)
    assert ids(open_rows(engine.readers, "v")) == expected and engine.published.number == 31
    figures = engine.metrics()
    assert figures["version"] == 31 and figures["pins"] == 0 and figures["waiting_batches"] == 0
    engine.close()
    engine.close()


@pytest.mark.parametrize("same", [True, False])
def test_a_relation_that_changes_while_a_view_is_planned(engine: Instance, same: bool) -> None:
    """The view is planned beside the writer, and once more in its turn if a relation is another one by then."""
    other = DEFINITION if same else parse_relation({"columns": [{"name": "id", "type": "int64"}], "key": ["id"]})
    held = HeldWriter(engine)
    queued = parts(engine).writer._queue.__len__
    before = queued()
    answers: list[Any] = []

    def behind(work: Callable[[], object]) -> threading.Thread:
        """Once it waits for the writer, behind what is queued."""
        count = queued()

        def ask() -> None:
            try:
                answers.append(work())
            except Problem as problem:
                answers.append(problem)

        thread = threading.Thread(target=ask)
        thread.start()
        while queued() == count:
            threading.Event().wait(0.001)
        return thread

    threads = [behind(lambda: engine.drop_relation("a")), behind(lambda: engine.put_relation("a", other))]
    threads.append(behind(lambda: engine.put_view("v", PAIR, wait=60)))
    assert queued() == before + 3
    held.release()
    for thread in threads:
        thread.join()
    if same:
        view, outcome = next(answer for answer in answers if isinstance(answer, tuple))
        assert outcome == "created" and view.relations["a"] is engine.relations["a"]
        engine.apply(batch(("upsert", "a", rows_of(0, 2)), ("upsert", "b", rows_of(0, 1))))
        assert len(ids(open_rows(engine.readers, "v"))) == 2
    else:
        (problem,) = (answer for answer in answers if isinstance(answer, Problem))
        assert problem.type in ("unknown-column", "bad-definition") and not engine.views
