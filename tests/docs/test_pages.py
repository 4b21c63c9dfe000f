"""Every page of the documentation is true: each block of it is run, or says why it is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import UNRUN, Reader, blocks_of
from tests.end_to_end import talk
from tests.server_process import ROOT, ServerProcess

ELSEWHERE = {  # by tests of their own, which start more than a service
    "README.md": "tests/end_to_end/test_readme.py",
    "client/README.md": "tests/client/test_readme.py",
    "docs/reference/sql.md": "tests/end_to_end/test_readme.py",
    "docs/kafka.md": "tests/streaming/test_kafka_page.py",
    "docs/tutorials/flights-spark.md": "tests/streaming/cluster/test_streams.py",
    "docs/tutorials/genome-spark.md": "tests/streaming/cluster/test_batch.py",
    "docs/tutorials/outages.md": "tests/streaming/test_outages_page.py",
    "deploy/stream.md": "tests/streaming/test_stream_page.py",
}
FOLDERS = ("docs", "deploy")
PAGES = sorted(
    f"{path.relative_to(ROOT)}"
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.md")
    if "design" not in path.parts and path.parent.name != "algorithms"  # whose statements `test_algorithms.py` explains
)


def bookings(server: ServerProcess) -> None:
    """What the tour leaves behind, which pages go on with."""
    client = server.client()
    ends = [{"name": "starts", "type": "timestamp"}, {"name": "ends", "type": "timestamp", "nullable": True}]
    for name, text, interval in (("bookings", "guest", "stay"), ("maintenance", "work", "slot")):
        columns = [{"name": "id", "type": "int64"}, {"name": "room", "type": "int64"}, {"name": text, "type": "string"}, *ends]
        talk.define(client, name, {"columns": columns, "key": ["id"], "intervals": {interval: {"start": "starts", "end": "ends"}}})
    rows = [
        ("bookings", {"id": 1, "room": 101, "guest": "Ada", "starts": "2026-03-01T14:00:00Z", "ends": "2026-03-05T10:00:00Z"}),
        ("bookings", {"id": 2, "room": 101, "guest": "Grace", "starts": "2026-03-05T14:00:00Z", "ends": "2026-03-09T10:00:00Z"}),
        ("bookings", {"id": 3, "room": 102, "guest": "Edsger", "starts": "2026-03-02T14:00:00Z", "ends": "2026-03-04T10:00:00Z"}),
        ("maintenance", {"id": 7, "room": 101, "work": "boiler", "starts": "2026-03-04T08:00:00Z", "ends": "2026-03-06T18:00:00Z"}),
        ("maintenance", {"id": 8, "room": 102, "work": "painting", "starts": "2026-03-10T08:00:00Z", "ends": None}),
    ]
    changes = [{"relation": relation, "op": "upsert", "row": row} for relation, row in rows]
    later = {"relation": "bookings", "op": "upsert", "row": {**rows[2][1], "ends": "2026-03-12T10:00:00Z"}}
    for batch in (changes[:3], changes[3:], [later, {"relation": "maintenance", "op": "delete", "key": {"id": 7}}]):
        talk.ok(talk.send(client, batch))
    clash = "intersection(b.stay, m.slot) AS clash"
    on = "b.room = m.room AND overlaps(b.stay, m.slot)"
    sql = f"SELECT b.guest AS guest, b.room AS room, m.work AS work, {clash} FROM bookings b JOIN maintenance m ON {on}"
    talk.view(client, "clashes", sql)


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE])
def test_a_page(page: str, server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / page
    blocks = blocks_of(path.read_text())
    if all(block.mark.startswith(UNRUN) for block in blocks):
        return
    if re.search(r"\]\((\.\./)+README\.md\)", path.read_text()):  # it continues the tour
        bookings(server)
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("LIVEJOIN_URL", server.url)
    monkeypatch.delenv("LIVEJOIN_TOKEN", raising=False)
    assert Reader(server, folder).read(path) > 0


@pytest.mark.parametrize(("page", "test"), ELSEWHERE.items())
def test_other_pages_have_tests_of_their_own(page: str, test: str) -> None:
    assert (ROOT / page).is_file() and page.rpartition("/")[2] in (ROOT / test).read_text()
