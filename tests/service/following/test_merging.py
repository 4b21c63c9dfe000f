"""Small segments of a feed become one."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from service.following.segments import Segment, merged
from tests.service.following.test_feeds import feed, replayed
from tests.service.running import PAIR, batch, of_ops, rows_of, running


@pytest.mark.parametrize("retain", [1000, 4])
def test_nobody_waits_while_small_segments_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retain: int) -> None:
    """Changes come, and are dropped, while those before them are copied into one segment."""
    monkeypatch.setattr("service.following.segments._TOGETHER", 3)
    engine = running(tmp_path, {**PAIR, "changes": {"retain_rows": retain, "retain_bytes": 1 << 20}})
    engine.apply(batch(("upsert", "b", rows_of(0, 1))))
    found, begun, go_on = feed(engine), threading.Event(), threading.Event()
    were_emitted = list[bool]()

    def slow(segments: list[Segment]) -> Segment:
        begun.set()
        were_emitted.append(go_on.wait(60))
        return merged(segments)

    monkeypatch.setattr("service.following.feeds.merged", slow)
    start = engine.published.number
    position, threads = start, list[threading.Thread]()
    while not begun.is_set():
        engine.apply(of_ops("a", ("upsert", position)))
        threads.append(threading.Thread(target=found.changes, args=(position,)))
        threads[-1].start()
        while threads[-1].is_alive() and not begun.is_set():
            threads[-1].join(0.01)
        position += 1
    for number in range(3):
        engine.apply(of_ops("a", ("upsert", 1000 + number)))  # waits for the lock, if somebody has it
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert were_emitted and all(were_emitted)
    last, kept = engine.published.number, min(retain, position + 3 - start)
    chunks = found.changes(last - kept)
    assert [chunk.version for chunk in chunks if chunk.kind == "progress"] == list(range(last - kept + 1, last + 1))
    assert len(replayed(chunks, set())) == kept and found._rows == kept
    engine.close()
