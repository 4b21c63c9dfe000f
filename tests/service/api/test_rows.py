"""What an answer in pages holds while it waits for its client."""

from __future__ import annotations

from pathlib import Path

from service.api.http import formats, media
from service.api.rows import Rows
from service.reading.cursors import open_rows
from tests.service.running import batch, rows_of, running


def test_what_a_page_holds_is_its_own(tmp_path: Path) -> None:
    """Not a little of a cursor's large buffers, of which the bound would know nothing."""
    engine = running(tmp_path)
    engine.apply(batch(("upsert", "a", rows_of(0, 3)), ("upsert", "b", rows_of(0, 3))))
    reader = open_rows(engine.readers, "v")
    page = Rows(reader, formats.make(media.ARROW, reader.version, reader.schema), 5)
    for _ in page.prepare():
        pass
    assert [len(slots) for found in page._found for slots in found] == [5, 5] and page.following
    assert all(slots.base is None for found in page._found for slots in found)
    page.close()
    engine.close()
