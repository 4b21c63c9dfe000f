"""How pieces of an answer are divided for the calls that write them."""

from __future__ import annotations

import pytest

from service.api.http import joined
from service.api.http.joined import in_turns
from service.wire.rows import Pieces


@pytest.mark.parametrize(
    "sizes", [[], [1], [10, 5, 300], [4, 1000, 4], [100, 100, 100], [99, 1, 101, 5000], [3] * 50, [0, 100, 0], [9] * 40 + [95]]
)
@pytest.mark.parametrize("encrypted", [False, True])
def test_pieces_are_written_in_turns(monkeypatch: pytest.MonkeyPatch, sizes: list[int], encrypted: bool) -> None:
    monkeypatch.setattr(joined, "_SMALL", 10)
    monkeypatch.setattr(joined, "_TURN", 200 if encrypted else 100)
    pieces: Pieces = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    turns = list(in_turns(pieces, encrypted))
    assert b"".join(part for turn in turns for part in turn) == b"".join(pieces)
    assert all(0 < sum(map(len, turn)) <= 100 for turn in turns)
    assert len(turns) <= sum(sizes) // 100 + 1


def test_large_pieces_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined, "_TURN", 1 << 15)
    piece = bytearray(100_000)
    parts = [part for turn in in_turns([b"head", memoryview(piece), b"tail"]) for part in turn]
    piece[:] = b"x" * 100_000
    assert b"".join(parts) == b"head" + piece + b"tail"
