"""Whatever goes wrong while a definition is parsed, planned or registered fails that request alone, until something is written. A failure
is injected into each function of the service that a registration calls, in the caller's thread and in the writer's turn."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from inspect import CO_GENERATOR
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import service
from livejoin.wire.schema import RelationPatch
from service.engine.queued import change
from service.errors import Problem
from service.instance import Instance
from service.reading.cursors import open_rows
from tests.service.running import DEFINITION, batch, check, ids, opened, parts, rows_of, running

_OURS = str(Path(service.__file__).parent)
_SQL = {
    "overlaps": "SELECT x.id AS i, y.id AS j FROM a x JOIN b y ON overlaps(x.x, y.x) AND x.tag = y.tag",
    "natural": "SELECT x.id AS i, y.id AS j, z.id AS k FROM a x JOIN b y ON x.s = y.s JOIN a z ON y.e = z.e AND z.s = x.s",
    "parts": "SELECT x.id AS i, y.id AS j FROM a x LEFT JOIN b y ON x.s < y.e WHERE NOT EXISTS (SELECT 1 FROM b z WHERE z.id = x.id)",
    "groups": "SELECT x.tag AS t, COUNT(*) AS n, MIN(y.s) AS m FROM a x JOIN b y ON x.id = y.id GROUP BY x.tag HAVING COUNT(*) > 1",
    "gaps": "SELECT x.id AS i, gaps(x.x, y.x) AS free FROM a x LEFT JOIN b y ON overlaps(x.x, y.x)",
    "latest": "SELECT DISTINCT ON (x.tag) x.id AS i FROM a x ORDER BY x.tag, x.s DESC NULLS LAST",
}


_EACH = 7  # of the functions that the caller's thread calls, one in so many is tried: it holds nothing but a version


class Injected(Exception):
    pass


class Probe:
    """A profile function: it notes the functions of the service that are called in the caller's thread, or `in_turn` by the plan of a
    `change`; `writing`: by its second step. The first call of `target` raises."""

    def __init__(self, in_turn: bool, writing: bool = False, target: CodeType | None = None) -> None:
        self.in_turn, self.target = in_turn, target
        self.seen: list[CodeType] = []
        self.active, self.steps, self.step = not in_turn, 0, 1 + writing if in_turn else 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code, caller = frame.f_code, frame.f_back
        if self.in_turn and code is change.__code__:
            self.active, self.steps = event == "call", 0
        elif event == "call" and self.active and code.co_filename.startswith(_OURS) and not code.co_flags & CO_GENERATOR:
            self.steps += caller is not None and caller.f_code is change.__code__
            if self.steps == self.step and code not in self.seen:
                self.seen.append(code)
                if code is self.target:
                    raise Injected(code.co_qualname)


Register = Callable[[Instance], object]


def attempt(engine: Instance, register: Register, probe: Probe) -> BaseException | None:
    """Register, with the probe in the caller's thread, or in the writer's; return what was raised."""
    if not probe.in_turn:
        sys.setprofile(probe)
    else:
        engine.at_rest(lambda: sys.setprofile(probe))
    try:
        register(engine)
    except Exception as error:
        return error
    finally:
        sys.setprofile(None)
        with suppress(Problem):  # the writer has ended
            engine.at_rest(lambda: sys.setprofile(None))
    return None


def steps(engine: Instance, register: Register, in_turn: bool = True, writing: bool = False) -> list[CodeType]:
    probe = Probe(in_turn, writing)
    assert attempt(engine, register, probe) is None
    return probe.seen


def failed_alone(engine: Instance, register: Register, step: CodeType, in_turn: bool = True) -> None:
    """Check that a failure at this step reaches the caller, and that nothing else happens."""
    before = parts(engine).log.catalog(), dict(engine.relations), dict(engine.views), engine.versions.published.number
    error = attempt(engine, register, Probe(in_turn, False, step))
    assert isinstance(error, Injected), (step, error)
    assert engine.state == "ready" and parts(engine).writer.failure is None, step
    assert before == (parts(engine).log.catalog(), dict(engine.relations), dict(engine.views), engine.versions.published.number), step


def view_of(name: str) -> Register:
    return lambda engine: engine.register("w", {"sql": _SQL[name]}).result()


def relation(engine: Instance) -> object:
    return engine.put_relation("c", DEFINITION)


def patch(engine: Instance) -> object:
    added = {"add_columns": [{"name": "more", "type": "int64", "nullable": True}], "add_intervals": {"y": {"at": "s"}}}
    return engine.patch_relation("a", RelationPatch.model_validate(added))


@pytest.fixture
def engine(tmp_path: Path) -> Instance:
    engine = running(tmp_path)
    engine.apply(batch(("upsert", "a", rows_of(0, 3)), ("upsert", "b", rows_of(0, 3))))
    return engine


@pytest.mark.parametrize("name", _SQL)
def test_a_view_fails_alone_until_it_is_written(engine: Instance, name: str) -> None:
    """Where there is a step of parsing, planning, or making its structures."""
    register = view_of(name)
    engine.put_view("w", {"sql": _SQL[name]}, wait=60)  # loads the kernels
    for in_turn in (False, True):
        engine.drop_view("w")
        found = steps(engine, register, in_turn)
        assert len(found) > 25
        engine.drop_view("w")
        for step in found if in_turn else found[::_EACH]:
            failed_alone(engine, register, step, in_turn)
        assert engine.put_view("w", {"sql": _SQL[name]}, wait=60)[0].state == "live"
    engine.apply(batch(("upsert", "a", rows_of(3, 2)), ("delete", "b", rows_of(0, 1))))
    check(engine)
    engine.close()


def test_a_relation_fails_alone_until_it_is_written(engine: Instance) -> None:
    found = steps(engine, relation)
    engine.drop_relation("c")
    for step in found:
        failed_alone(engine, relation, step)
    assert relation(engine) == "created"
    engine.close()


def test_a_patch_fails_alone_until_it_is_written(engine: Instance, tmp_path: Path) -> None:
    other = opened(tmp_path / "other")
    other.put_relation("a", DEFINITION)
    found = steps(other, patch)
    other.close()
    for step in found:
        failed_alone(engine, patch, step)
        engine.apply(batch(("upsert", "a", rows_of(0, 1))))
    patch(engine)
    assert "more" in engine.relation("a").schema.names
    engine.close()


@pytest.mark.parametrize("register", [view_of("overlaps"), view_of("groups"), relation, patch])
def test_a_failure_after_the_first_write_stops_the_service(
    engine: Instance, tmp_path: Path, register: Register, caplog: pytest.LogCaptureFixture
) -> None:
    """At each step of writing, to the log and in memory; the next start has what is on disk, all of it or nothing."""
    other = running(tmp_path / "other")
    if register not in (relation, patch):
        register(other)
        other.drop_view("w")
    found = steps(other, register, writing=True)
    other.close()
    assert len(found) > 5
    for step in found:
        with caplog.at_level(logging.CRITICAL, "livejoin"):
            error = attempt(engine, register, Probe(True, True, step))
        assert isinstance(error, Problem) and error.type == "internal", (step, error)
        parts(engine).writer._thread.join(60)
        assert engine.state == "failed" and isinstance(parts(engine).writer.failure, Injected), step
        assert not engine.close()
        engine = opened(tmp_path)
        assert engine.state == "ready" and len(ids(open_rows(engine.readers, "v"))) == 9
        if "w" in engine.views:
            engine.drop_view("w")
        if "c" in engine.relations:
            engine.drop_relation("c")
        if "more" in engine.relation("a").schema.names:
            break  # it cannot be taken back
    engine.close()
