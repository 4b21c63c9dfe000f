"""What an answer in pages holds while it waits for its client."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from service.api import rows as api_rows
from service.api.context import Context
from service.api.http import formats, media
from service.api.rows import RowsEndpoint
from service.instance import Instance
from service.reading.cursors import RowReader, open_rows
from service.settings import Settings
from service.views.deltas import Combination
from tests.service.api.asking import ask
from tests.service.running import PAIR, batch, rows_of, running


def full(folder: Path) -> Instance:
    engine = running(folder)
    engine.apply(batch(("upsert", "a", rows_of(0, 300)), ("upsert", "b", rows_of(0, 300))))
    return engine


def answer(engine: Instance) -> RowsEndpoint:
    reader = open_rows(engine.readers, "v")
    return RowsEndpoint(reader, formats.make(media.ARROW, reader.version, reader.schema), None)


def read(rows: RowsEndpoint) -> pa.Table:
    parts, more = [], True
    while more:
        found, more = rows.step()
        parts += found
    rows.close()
    with pa.ipc.open_stream(b"".join(parts)) as reader:
        return reader.read_all()


def test_what_a_page_holds_is_its_own(tmp_path: Path) -> None:
    """Not a little of a cursor's large buffers, of which the bound would know nothing."""
    engine = running(tmp_path)
    engine.apply(batch(("upsert", "a", rows_of(0, 3)), ("upsert", "b", rows_of(0, 3))))
    reader = open_rows(engine.readers, "v")
    page = RowsEndpoint(reader, formats.make(media.ARROW, reader.version, reader.schema), 5)
    for _ in page.prepare():
        pass
    assert [len(slots) for found in page._found for slots in found] == [5, 5] and page.following
    assert all(slots.base is None for found in page._found for slots in found)
    page.close()
    engine.close()


def test_who_waits_for_a_processor_does_not_get_smaller_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: behind 300 readers chunks shrank to a thousand rows, because each took long, and reading took minutes instead of seconds."""
    engine, sizes, rows_of_slots, find = full(tmp_path), list[int](), RowReader.rows, RowReader.find

    def wait(reader: RowReader, found: Combination) -> pa.RecordBatch:
        time.sleep(2 * api_rows.CHUNK_TIME)  # as for a processor, or for the interpreter's lock
        return rows_of_slots(reader, found)

    def noted(reader: RowReader, most: int) -> Combination | None:
        sizes.append(most)
        return find(reader, most)

    monkeypatch.setattr(RowReader, "rows", wait)
    monkeypatch.setattr(RowReader, "find", noted)
    assert read(answer(engine)).num_rows == 90_000
    assert sizes == sorted(sizes) and sizes[-1] > 9 * sizes[0]
    engine.close()


def test_a_page_is_enumerated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether more follows is told by a look behind its last row; nobody reads or skips its rows again."""
    engine, found = full(tmp_path), list[int]()
    find = RowReader.find

    def counted(reader: RowReader, most: int) -> Combination | None:
        slots = find(reader, most)
        found.append(0 if slots is None else len(slots[0]))
        return slots

    def skipped(reader: RowReader, most: int) -> int | None:
        raise AssertionError("rows of the page are read again")

    monkeypatch.setattr(RowReader, "find", counted)
    monkeypatch.setattr(RowReader, "skip", skipped)
    context = Context(Settings(data=tmp_path))
    context.open(engine)
    first = ask("GET", "/v1/views/v/rows?limit=50000", context)
    assert len(first.content.splitlines()) == sum(found) == 50_000
    rest = ask("GET", first.links["next"]["url"], context)
    assert len(rest.content.splitlines()) == 40_000 and sum(found) == 90_000 and "next" not in rest.links
    engine.close()


def test_the_list_of_views_opens_no_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = full(tmp_path)

    def opened(reader: RowReader, *_: Any) -> None:
        raise AssertionError("a reader is opened")

    monkeypatch.setattr(RowReader, "__init__", opened)
    context = Context(Settings(data=tmp_path))
    context.open(engine)
    (view,) = ask("GET", "/v1/views", context).json()["views"]
    assert (view["name"], view["state"], view["version"], view["empty"]) == ("v", "live", 1, False)
    engine.close()


@pytest.mark.parametrize("text", [False, True])
def test_chunks_of_arrow_are_bounded_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bool) -> None:
    """Of 2 MiB, so that a small result is in several."""
    monkeypatch.setattr(api_rows, "CHUNK_TIME", 1e9)  # as if all were made at once
    select = [f"a.{column} as {column}{i}" for i in range(14) for column in ("id", "s", "e")]
    engine = running(tmp_path, PAIR | {"select": [*select, "a.tag"] if text else select})
    engine.apply(batch(("upsert", "a", rows_of(0, 300)), ("upsert", "b", rows_of(0, 300))))
    rows, asked, more = answer(engine), list[int](), True
    find, mib = rows.reader.find, (1 << 20) / (42 * 8 + 20 * text)

    def watched(most: int) -> Combination | None:
        found = find(most)
        if found is not None and len(found[0]) > max(mib, most / 2):
            asked.append(round(most / mib))
        return found

    monkeypatch.setattr(rows.reader, "find", watched)
    while more:
        pieces, more = rows.step()
        assert sum(map(len, pieces)) <= ((asked[-1:] or [1])[0] << 20) + 4096
    rows.close()
    assert asked == [2] * len(asked) and len(asked) > 10
    engine.close()
