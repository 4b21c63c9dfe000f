"""Views ask for their address space when they are registered, and give it back when they are dropped."""

from __future__ import annotations

import errno
import gc
import mmap
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.engine.builds import Builds
from service.errors import Problem
from service.instance import Instance
from structures.core import reserve
from tests.service.engine.test_builds import SHARING, VIEWS, agrees, filled, some_changes
from tests.service.running import check, look

GROUPS = {"group": ["a.tag as tag"], "aggregate": [{"count": "*", "as": "n"}, {"min": "a.s", "as": "least"}]}
STATEMENTS = {
    "groups alone": "SELECT a.tag AS tag, COUNT(DISTINCT a.tag) AS n, AVG(a.s) AS mean FROM a GROUP BY a.tag",
    "anti": "SELECT a.id AS i FROM a ANTI JOIN b ON a.x OVERLAPS b.x",
    "left": "SELECT a.id AS i, c.id AS k FROM a JOIN b ON a.x OVERLAPS b.x LEFT JOIN a c ON b.tag = c.tag",
    "except": "SELECT a.tag AS t, a.s AS s FROM a EXCEPT SELECT b.tag AS t, b.s AS s FROM b",
}
DEFINITIONS: dict[str, dict[str, Any]] = {
    **{name: {**VIEWS[name], "select": ["a.id as i"]} for name in VIEWS},
    **{f"groups of {name}": {**VIEWS[name], **GROUPS} for name in VIEWS},
    **{name: {"sql": sql} for name, sql in STATEMENTS.items()},
}
PLANTED = ("sweeper", "elimination", "intersect", "bow_tie")  # with trees beside the indexes, which are made when those are there


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Instance]:
    engine = filled(tmp_path, random.Random(1))
    yield engine
    engine.close()


class Space:
    """The address space that arrays reserve. From number `refused` on there is none, if that is not None."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.held = self.asked = 0
        self.refused: int | None = None
        space = self

        class Counted(mmap.mmap):
            def __new__(cls, fileno: int, length: int, **how: Any) -> Any:
                space.asked += 1
                if space.refused is not None and space.asked > space.refused:
                    raise OSError(errno.ENOMEM, "Cannot allocate memory")
                made = super().__new__(cls, fileno, length, **how)
                space.held += length
                return made

            def __del__(self) -> None:
                space.held -= len(self)

        monkeypatch.setattr(reserve.mmap, "mmap", Counted)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_dropped_view_gives_all_of_it_back_at_once(engine: Instance, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """So views can be registered and dropped any number of times: Python need not look for circles."""
    space = Space(monkeypatch)
    engine.put_view("v", DEFINITIONS[name], wait=60)  # what all views share is there from now on
    engine.drop_view("v")
    look(engine)
    gc.collect()
    shared = space.held
    gc.disable()
    try:
        view, _ = engine.put_view("v", DEFINITIONS[name], wait=60)
        assert view.state == "live", view.problem
        engine.apply(some_changes(random.Random(2), 9))
        assert space.held > shared or name in SHARING
        del view
        engine.drop_view("v")
        look(engine)
        assert space.held == shared
    finally:
        gc.enable()


@pytest.mark.parametrize("name", [name for name in DEFINITIONS if name.startswith("groups")])
def test_groups_ask_for_all_of_it_before_they_are_registered(engine: Instance, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Those of the join below them, too: a service without room refuses the view, which then does not fail later on."""
    engine.put_view("warm", DEFINITIONS[name], wait=60)
    engine.drop_view("warm")
    look(engine)
    load = Builds._load
    space, wanted = Space(monkeypatch), list[int]()

    def begin(build: Any, join: Any, version: int) -> None:
        wanted.append(space.asked)
        load(build, join, version)

    monkeypatch.setattr(Builds, "_load", staticmethod(begin))
    engine.put_view("v", DEFINITIONS[name], wait=60)
    if name.split()[-1] not in PLANTED:
        assert wanted == [space.asked], "more was reserved while it was built"
    agrees(engine, "v")
    engine.drop_view("v")
    look(engine)
    for refused in {0, 1, wanted[0] // 2, wanted[0] - 1}:
        space.asked, space.refused = 0, refused
        with pytest.raises(Problem) as caught:
            engine.put_view("v", DEFINITIONS[name], wait=60)
        assert caught.value.type == "no-room" and not engine.views
    space.refused = None
    assert engine.put_view("v", DEFINITIONS[name], wait=60)[0].state == "live"
    check(engine)


@pytest.mark.parametrize("name", ["products", "groups of products", "groups of shared", "groups of bow_tie"])
def test_indexes_of_its_own_are_no_reason_to_build_it_anew(engine: Instance, name: str) -> None:
    engine.put_view("v", DEFINITIONS[name], wait=60)
    assert not engine.views["v"].is_outgrown(engine.published.number)
