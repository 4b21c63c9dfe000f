import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from structures.rows import retired
from structures.rows.retired import LIVING, NEVER, RetiredSlots

NO_PINS = np.empty(0, np.int64)
ALL = 2**31  # slots


def store(lives):
    born, died = (np.array(column, np.int64) for column in zip(*lives, strict=True))
    kept = RetiredSlots(born, died)
    for version in sorted(set(died.tolist())):
        kept.add(version, np.flatnonzero(died == version).astype(np.int32))
    return kept, born


LIVES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)).map(lambda t: (t[0], t[0] + t[1])), min_size=1, max_size=20)


@given(LIVES, st.lists(st.tuples(st.integers(0, 14), st.sets(st.integers(0, 14))), max_size=6))
def test_reusable_by_the_rule_and_only_once(lives, steps):
    kept, born = store(lives)
    expected = set(range(len(lives)))
    published = 0
    pinned = set(range(15))
    for step, leaving in steps:
        published = max(published, step)
        pinned -= leaving
        freed = kept.reclaim(published, np.array(sorted(pinned), np.int64), ALL).tolist()
        due = {i for i in expected if lives[i][1] <= published and not any(lives[i][0] <= p < lives[i][1] for p in pinned)}
        assert sorted(freed) == sorted(due)
        assert (born[freed] == NEVER).all()
        expected -= due
        assert kept.slots().tolist() == sorted(expected)


def test_an_old_pin_does_not_make_every_call_look_at_what_it_holds(monkeypatch):
    looked = []
    sift = retired._sift
    monkeypatch.setattr(retired, "_sift", lambda slots, *rest: looked.append(len(slots)) or sift(slots, *rest))
    n = 1000
    born, died = np.zeros(2 * n, np.int64), np.full(2 * n, 5, np.int64)
    kept = RetiredSlots(born, died)
    kept.add(5, np.arange(n, dtype=np.int32))
    pins = np.array([3], np.int64)
    assert len(kept.reclaim(5, pins, ALL)) == 0 and looked == [n]
    for version in range(6, 50):
        born[n + version], died[n + version] = version - 1, version
        kept.add(version, np.array([n + version], np.int32))
        pins_now = np.array([3, version], np.int64)  # another reader comes and goes
        assert kept.reclaim(version, pins_now, ALL).tolist() == [n + version]
    assert looked == [n] + [1] * 44
    assert len(kept.reclaim(50, NO_PINS, ALL)) == n


def test_what_many_small_changes_leave_to_a_pin_is_found_in_few_arrays():
    n = 1000
    born, died = np.zeros(n, np.int64), np.arange(5, n + 5)
    kept = RetiredSlots(born, died)
    pins = np.array([3], np.int64)
    for slot in range(n):
        kept.add(slot + 5, np.array([slot], np.int32))
        assert len(kept.reclaim(slot + 5, pins, ALL)) == 0
    assert len(kept._held[3]) <= n.bit_length()
    freed = [kept.reclaim(n + 5, NO_PINS, 100).tolist() for _ in range(n // 100)]
    assert [len(part) for part in freed] == [100] * (n // 100) and sorted(sum(freed, [])) == list(range(n))


def test_long_arrays_are_not_copied(monkeypatch):
    """Seen: while a view of millions of rows was built, its pin held millions of slots, and 170 ms passed while they were copied."""
    monkeypatch.setattr(retired, "_LONG", 4)
    n = 100
    born, died = np.zeros(n, np.int64), np.arange(5, n + 5)
    kept = RetiredSlots(born, died)
    for slot in range(n):
        kept.add(slot + 5, np.array([slot], np.int32))
        kept.reclaim(slot + 5, np.array([3], np.int64), ALL)
    assert {len(slots) for slots, _ in kept._held[3]} <= {1, 2, 4, 8} and len(kept._held[3]) <= n // 5 + 3
    assert sorted(kept.reclaim(n + 5, NO_PINS, ALL).tolist()) == list(range(n))


def test_what_came_to_life_again_is_passed_over():
    born, died = np.array([1, 1]), np.array([2, LIVING])
    kept = RetiredSlots(born, died)
    kept.add(2, np.array([0, 1], np.int32))
    assert kept.reclaim(2, NO_PINS, ALL).tolist() == [0]


def test_retired_twice_in_one_version_is_freed_once():
    kept = RetiredSlots(np.array([1]), np.array([2]))
    kept.add(2, np.array([0], np.int32))
    kept.add(2, np.array([0], np.int32))
    assert kept.reclaim(2, NO_PINS, ALL).tolist() == [0]


@given(LIVES, st.lists(st.sets(st.integers(0, 14)), max_size=6), st.integers(1, 4))
def test_in_pieces_it_comes_to_the_same(lives, leavings, most):
    kept, born = store(lives)
    pinned, expected = set(range(15)), set(range(len(lives)))
    for leaving in leavings:
        pinned -= leaving
        pins = np.array(sorted(pinned), np.int64)
        freed = []
        more = True
        while more:
            part = kept.reclaim(14, pins, most).tolist()
            assert len(part) <= most
            freed += part
            more = kept.is_due(14)
        due = {i for i in expected if not any(lives[i][0] <= p < lives[i][1] for p in pinned)}
        assert sorted(freed) == sorted(due)
        expected -= due
