"""Views ask for their address space when they are registered, and give it back when they are dropped."""

from __future__ import annotations

import errno
import gc
import importlib
import mmap
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from livejoin.wire.batch import Batch, Changes, RowBlock
from service.engine.builds import Builds
from service.errors import Problem
from service.instance import Instance
from structures.core import reserve
from tests.service.engine.test_builds import BOXES, SHARING, VIEWS, agrees, filled, rows_like, some_changes
from tests.service.running import ORDER, check, look

GROUPS = {"group": ["a.tag as tag"], "aggregate": [{"count": "*", "as": "n"}, {"min": "a.s", "as": "least"}]}
STATEMENTS = {
    "groups alone": "SELECT a.tag AS tag, COUNT(DISTINCT a.tag) AS n, AVG(a.s) AS mean FROM a GROUP BY a.tag",
    "anti": "SELECT a.id AS i FROM a ANTI JOIN b ON a.x OVERLAPS b.x",
    "left": "SELECT a.id AS i, c.id AS k FROM a JOIN b ON a.x OVERLAPS b.x LEFT JOIN a c ON b.tag = c.tag",
    "except": "SELECT a.tag AS t, a.s AS s FROM a EXCEPT SELECT b.tag AS t, b.s AS s FROM b",
}
RANKED = {
    "latest": "SELECT DISTINCT ON (a.tag) a.tag AS t, a.id AS i FROM a ORDER BY a.tag, a.s DESC",
    "last three": "SELECT a.id AS i FROM a QUALIFY ROW_NUMBER() OVER (ORDER BY a.s) <= 3",
    "most of all": "SELECT a.id AS i FROM a QUALIFY ROW_NUMBER() OVER (PARTITION BY a.tag ORDER BY a.s DESC) <= 10000",
    "as of": "SELECT a.id AS i, b.id AS j FROM a ASOF JOIN b ON a.tag = b.tag AND b.s <= a.s",
    "as of, left": "SELECT x.id AS i, y.id AS j FROM a x ASOF LEFT JOIN a y ON x.u = y.u AND x.tag = y.tag AND y.s > x.s",
}
DEFINITIONS: dict[str, dict[str, Any]] = {
    **{name: {**VIEWS[name], "select": ["a.id as i"]} for name in VIEWS},
    **{f"groups of {name}": {**VIEWS[name], **GROUPS} for name in VIEWS},
    **{name: {"sql": sql} for name, sql in (STATEMENTS | RANKED).items()},
}
ASKING = [name for name in DEFINITIONS if name.startswith("groups") or name in RANKED]
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


@pytest.mark.parametrize("name", ASKING)
def test_all_of_it_is_asked_for_before_a_view_is_registered(engine: Instance, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Of groups also that of the join below them: a service without room refuses the view, which then does not fail later on."""
    engine.put_view("warm", DEFINITIONS[name], wait=60)
    engine.drop_view("warm")
    look(engine)
    load = Builds._load
    space, wanted = Space(monkeypatch), list[int]()

    def begin(build: Any, version: int) -> None:
        wanted.append(space.asked)
        load(build, version)

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


_INDEX, _LIST = "structures.ranked.entries.OrderedIndexes", "structures.ranked.tops.RowList"
_TREE = "service.views.joins.as_of_join.IntervalTree"


@pytest.mark.parametrize(
    ("name", "what", "words"),
    [("latest", _INDEX, 1 << 15), ("last three", _INDEX, 1 << 15), ("most of all", _LIST, 1 << 17), ("latest", "codes", 0),
     ("as of", _INDEX, 1 << 15), ("as of", _TREE, 1 << 17), ("as of", "codes", 0),
     ("as of, left", _INDEX, 1 << 15), ("as of, left", _TREE, 1 << 17)],
)  # fmt: skip
def test_a_batch_that_may_not_fit_is_refused_before_it_is_touched(
    engine: Instance, monkeypatch: pytest.MonkeyPatch, name: str, what: str, words: int
) -> None:
    """What is taken does fit, up to the last row: the view fails in no batch."""
    if words:
        module, _, made = what.rpartition(".")
        made_of = getattr(importlib.import_module(module), made)
        monkeypatch.setattr(what, lambda *kind: made_of(*(one for one in kind if isinstance(one, str)), words))
    view, _ = engine.put_view("v", DEFINITIONS[name], wait=60)
    assert view.state == "live", view.problem
    if not words:
        domain = view.join.domain if name.startswith("as of") else view.join._columns.domain  # type: ignore[attr-defined]
        monkeypatch.setattr(domain._rows, "used", (1 << 30) - 10)
    rng, ids, refused = random.Random(3), iter(range(100, 100_000)), 0
    sizes = [200, 40] if words else [40]
    while sizes:
        rows = RowBlock(rows_like(rng, list(islice(ids, sizes[0]))))
        relation = rng.choice("ab" if name == "as of" else "a")
        change = Changes(relation, BOXES, np.full(sizes[0], ORDER["upsert"], np.uint8), rows, np.arange(sizes[0]))
        before = engine.published.number
        try:
            engine.apply(Batch([change], sizes[0], 0, [], 0))
        except Problem as problem:
            assert problem.type == "no-room" and "nothing of the batch was applied" in problem.detail
            assert engine.published.number == before and view.state == "live"
            sizes.pop(0)
            refused += 1
    monkeypatch.undo()
    assert refused and engine.state == "ready"
    agrees(engine, "v")
    check(engine)


@pytest.mark.parametrize("name", ["products", "groups of products", "groups of shared", "groups of bow_tie"])
def test_indexes_of_its_own_are_no_reason_to_build_it_anew(engine: Instance, name: str) -> None:
    engine.put_view("v", DEFINITIONS[name], wait=60)
    assert not engine.views["v"].is_outgrown(engine.published.number)
