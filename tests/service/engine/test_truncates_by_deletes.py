"""Truncates below views that keep most of their rows: deletes from a copy of the structures, beside the writer, tell what is lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from service.engine import truncates
from service.tables import backlog
from service.views import emptied, live_view
from service.views.emptied import Emptied
from tests.service.engine.emptying import Meanwhile, add_up, apply_unprepared, left_nothing, truncate_meanwhile, truncating
from tests.service.engine.test_builds import agrees, filled, some_changes
from tests.service.engine.test_truncates import MORE
from tests.service.views.test_random_sql import Added

SORTS = (
    "absent", "absent intervals", "two absent", "absent in a triangle", "gaps", "gaps by key", "full", "full by key", "full by equality",
    "left of two", "left of three", "left itself", "as of or null", "latest", "union", "except", "union of joins", "unfollowed union",
    "unfollowed absent", "groups of absent", "groups of left", "groups of full", "unfollowed groups of left",
)  # fmt: skip


@pytest.fixture(autouse=True)
def by_deletes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truncates, "_WORTH", 1)
    monkeypatch.setattr(truncates, "_FEW", 0)
    monkeypatch.setattr(backlog, "_PIECE", 7)
    monkeypatch.setattr(emptied, "_MOST_LEFT", -1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", SORTS)
def test_what_changes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, seed: int) -> None:
    """Others write before the last round."""
    truncate_meanwhile(tmp_path, monkeypatch, name, MORE[name], seed, ("b", "a", "b", "ab"), lambda engine: not engine._truncates._closed)


def test_rows_that_change_after_the_last_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The rows are then deleted one by one, which is no failure."""
    rng = random.Random(1)
    engine = filled(tmp_path, rng)
    engine.put_view("v", MORE["absent"], wait=60)
    caplog.set_level("INFO", "livejoin.views")
    added, meanwhile = Added(engine, "v"), Meanwhile(monkeypatch, lambda: apply_unprepared(engine, some_changes(rng, 20)))
    engine.apply(truncating(rng, "b"))
    assert meanwhile.placed == 0
    assert [record.levelname for record in caplog.records if "could not be prepared" in record.message] == ["INFO"]
    agrees(engine, "v")
    add_up(engine, added)
    left_nothing(engine)
    engine.close()


@pytest.mark.parametrize("name", ["absent", "full", "union"])
def test_more_rows_than_the_feed_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Its followers are told that."""
    rng = random.Random(name)
    engine = filled(tmp_path, rng)
    engine.put_view("v", MORE[name], wait=60)
    added, meanwhile = Added(engine, "v"), Meanwhile(monkeypatch, lambda: None)
    added.catch_up()
    monkeypatch.setattr(live_view, "most_candidates", lambda _: 3)
    engine.apply(truncating(rng, "b"))
    agrees(engine, "v")
    (chunk,) = added.subscription.next()
    assert meanwhile.placed == 1 and chunk.problem is not None and chunk.problem.type == "delta-too-large"
    engine.close()


def test_a_service_that_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait until all rows are deleted."""
    rng = random.Random(3)
    engine = filled(tmp_path, rng)
    engine.put_view("v", MORE["absent"], wait=60)
    delete, said = Emptied._delete, list[str]()

    def ending(one: Emptied) -> None:
        engine.refuse_waiting()
        try:
            delete(one)
        except Exception as error:
            said.append(type(error).__name__)
            raise

    monkeypatch.setattr(Emptied, "_delete", ending)
    with pytest.raises(Exception, match="stop|end|recover|start"):
        engine.apply(truncating(rng, "b"))
    assert said == ["Problem"]
    engine.close()


@pytest.mark.parametrize("most, built", [(0, 1), (1, 2), (100, 1)])
def test_rows_are_compared_if_they_are_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, most: int, built: int
) -> None:
    """For each deleted row, `most` of other relations, and of the view; otherwise deletes tell what is lost."""
    rng = random.Random("two absent")
    engine = filled(tmp_path, rng)
    engine.put_view("v", MORE["two absent"], wait=60)
    caplog.set_level("INFO", "livejoin.views")
    added, meanwhile = Added(engine, "v"), Meanwhile(monkeypatch, lambda: None)
    monkeypatch.setattr(emptied, "_MOST_LEFT", most)
    attempts, build = list[Emptied](), Emptied.build
    monkeypatch.setattr(Emptied, "build", lambda one, report: (attempts.append(one), build(one, report))[1])
    engine.apply(truncating(rng, "b"))
    assert (len(attempts), meanwhile.placed) == (built, 1)
    assert not [record for record in caplog.records if "could not be prepared" in record.message]
    agrees(engine, "v")
    add_up(engine, added)
    left_nothing(engine)
    engine.close()
