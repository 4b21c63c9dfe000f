"""Large writes of many connections take turns, and others do not wait for them."""

from __future__ import annotations

import asyncio

import pytest

from livejoin.wire.rows import Pieces
from service.api.http import pacing
from service.api.http.pacing import PORTION, in_portions, pace


def run(*sizes: int, cancelled: int = -1, encrypted: bool = False) -> list[list[int]]:
    """Have so many connections write at once; return the numbers of those that wrote in each round of the loop."""

    async def all_of_them() -> list[list[int]]:
        rounds: list[list[int]] = [[]]
        loop = asyncio.get_running_loop()

        async def write(number: int, size: int) -> None:
            await pace(size, encrypted)
            rounds[-1].append(number)

        def count() -> None:
            if rounds[-1]:
                rounds.append([])
            loop.call_soon(count)

        writes = [asyncio.ensure_future(write(number, size)) for number, size in enumerate(sizes)]
        loop.call_soon(count)
        await asyncio.sleep(0)
        if cancelled >= 0:
            writes[cancelled].cancel()
        await asyncio.gather(*writes, return_exceptions=True)
        return [one for one in rounds if one]

    return asyncio.run(all_of_them())


def test_one_large_write_a_round() -> None:
    """Seen: while 300 clients read a view, a change waited for 1.8 seconds, a count for 5.6: a round of the loop wrote to all of them."""
    assert run(*[PORTION] * 5) == [[0], [1], [2], [3], [4]]


def test_smaller_ones_share_a_round() -> None:
    assert run(PORTION // 3, PORTION // 3, PORTION // 3 + 1, PORTION // 3, PORTION) == [[0, 1, 2], [3], [4]]


def test_small_ones_pass() -> None:
    assert run(PORTION, PORTION, PORTION, 1000, 1 << 16)[0] == [0, 3, 4]


def test_encryption_takes_as_long_again() -> None:
    assert run(PORTION // 2, PORTION // 2, PORTION // 2, encrypted=True) == [[0], [1], [2]]


@pytest.mark.parametrize("cancelled", [1, 2, 3])
def test_a_connection_that_ends_is_passed_over(cancelled: int) -> None:
    assert run(*[PORTION] * 4, cancelled=cancelled) == [[number] for number in range(4) if number != cancelled]


@pytest.mark.parametrize(
    "sizes", [[], [1], [10, 5, 300], [4, 1000, 4], [100, 100, 100], [99, 1, 101, 5000], [3] * 50, [0, 100, 0], [9] * 40 + [95]]
)
@pytest.mark.parametrize("encrypted", [False, True])
def test_pieces_are_written_in_turns(monkeypatch: pytest.MonkeyPatch, sizes: list[int], encrypted: bool) -> None:
    monkeypatch.setattr(pacing, "_COPIED", 10)
    monkeypatch.setattr(pacing, "PORTION", 200 if encrypted else 100)
    pieces: Pieces = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    portions = list(in_portions(pieces, encrypted))
    assert b"".join(part for portion in portions for part in portion) == b"".join(pieces)
    assert all(0 < sum(map(len, portion)) <= 100 for portion in portions)
    assert len(portions) <= sum(sizes) // 100 + 1


def test_large_pieces_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "PORTION", 1 << 15)
    piece = bytearray(100_000)
    parts = [part for portion in in_portions([b"head", memoryview(piece), b"tail"]) for part in portion]
    piece[:] = b"x" * 100_000
    assert b"".join(parts) == b"head" + piece + b"tail"
