"""The order in which waiting work is done."""

from __future__ import annotations

from service.priority import Line


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
