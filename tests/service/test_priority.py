"""How many processors a process may use, and the order in which waiting work is done."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from service import priority
from service.priority import Line, processors
from service.reading.ahead import Walkers


def grouped(folder: Path, group: str, monkeypatch: pytest.MonkeyPatch, **quotas: str) -> None:
    """The process is in this control group; `quotas`: those of the groups, from the outermost on; "none" for a group without the file."""
    (folder / "own").write_text(f"1:cpu:/elsewhere\n0::{group}\n")
    monkeypatch.setattr(priority, "_GROUPS", folder / "own")
    monkeypatch.setattr(priority, "_QUOTAS", folder / "fs")
    monkeypatch.setattr(os, "sched_getaffinity", lambda of: set(range(12)), raising=False)
    position = folder / "fs"
    for quota in quotas.values():
        position.mkdir()
        (position / "cpu.max").write_text(quota + "\n")
        position /= "inner"


@pytest.mark.parametrize(
    ("group", "outer", "inner", "found"),
    [
        ("/", "max 100000", "100000 100000", 12),
        ("/", "250000 100000", "max 100000", 2),
        ("/inner", "max 100000", "300000 100000", 3),
        ("/inner", "200000 100000", "300000 100000", 2),
        ("/inner", "5000 100000", "max 100000", 1),
        ("/inner", "2400000 100000", "max 100000", 12),
        ("/inner", "none", "400000 100000", 4),
        ("/missing/as/well", "400000 100000", "100000 100000", 4),
    ],
)
def test_of_those_it_may_run_on_and_its_quotas_the_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, outer: str, inner: str, found: int
) -> None:
    grouped(tmp_path, group, monkeypatch, outer=outer, inner=inner)
    assert processors() == found
    walkers = Walkers()
    assert walkers._pool._max_workers == max(1, found // 2)
    walkers.shutdown(True, True)


def test_without_control_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priority, "_GROUPS", tmp_path / "missing")
    monkeypatch.setattr(os, "sched_getaffinity", lambda of: {1, 5, 7}, raising=False)
    assert processors() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert processors() == (os.cpu_count() or 1)


def line(*sizes: int, client: str = "") -> Line[str]:
    """Return a line with an item of each size, named by its size and position."""
    made: Line[str] = Line(9)
    for position, size in enumerate(sizes):
        made.add(f"{size}.{position}", client, size)
    return made


def test_two_are_taken_at_once_and_a_small_one() -> None:
    """The oldest, the smallest, and the smallest of those of at most 9, if there is one."""
    waiting = line(100, 50, 70, 60, 8, 7)
    assert [waiting.take() for _ in range(4)] == ["100.0", "7.5", "8.4", None]
    waiting.leave("8.4")
    assert waiting.take() is None, "the others are not small"
    waiting.leave("7.5")
    assert waiting.take() == "50.1"
    waiting.leave("100.0")
    assert waiting.take() == "70.2"


def test_a_small_one_waits_for_no_large_one() -> None:
    waiting = line(*[100] * 40)
    assert [waiting.take(), waiting.take(), waiting.take()] == ["100.0", "100.1", None]
    waiting.add("small", "", 9)
    assert waiting.take() == "small"
    waiting.add("middle", "", 50)
    waiting.leave("100.1")
    assert waiting.take() == "middle"


def test_a_large_one_does_not_wait_for_ever() -> None:
    """However many smaller items arrive, only as many are taken before it as one thread takes by age."""
    waiting = line(500, 400, 300)
    taken = [waiting.take(), waiting.take()]
    assert taken == ["500.0", "300.2"]
    for number in range(20):
        waiting.add(f"small {number}", "", 1)
        waiting.leave(str(taken[-1]))
        taken.append(waiting.take())
    assert taken[2:] == [f"small {number}" for number in range(20)]
    waiting.add("small", "", 1)
    waiting.leave("500.0")
    assert waiting.take() == "400.1"


def test_a_client_does_not_wait_for_what_another_has() -> None:
    """Among items of equal or larger size, work that was done for a client counts against it as long as it waits."""
    waiting = line(*[100] * 40, client="many")
    waiting.add("other", "one", 150)
    assert [waiting.take(), waiting.take()] == ["100.0", "other"]
    waiting.leave("other")
    waiting.add("other", "one", 90)
    waiting.add("next", "one", 90)
    assert waiting.take() == "other"
    waiting.leave("other")
    assert waiting.take() == "next", "180 come before 200"
    waiting.leave("next")
    assert waiting.take() == "100.1"


def test_what_is_removed_is_not_taken() -> None:
    waiting = line(100, 50, 70)
    assert waiting.remove("100.0") and not waiting.remove("100.0")
    assert waiting.take() == "50.1" and not waiting.remove("50.1")
    assert waiting.remove("70.2") and waiting.take() is None
    waiting.leave("50.1")
    assert waiting._taken == {}
