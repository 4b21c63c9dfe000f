"""The database of a running service is deleted, moved away or replaced: the service notices it, whether it writes or not, and stops with
status 1, as after a failed fsync; and it leaves what it finds in the folder as it is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.end_to_end import talk
from tests.server_process import NotStarted, ServerProcess

DATABASE, WAL = "livejoin.db", "livejoin.db-wal"
DEFINITION = {"columns": [{"name": "id", "type": "int64"}], "key": ["id"]}


def deleted(path: Path) -> None:
    path.unlink()


def moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def replaced(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copyfile(path, copy)
    copy.rename(path)


def folder_replaced(path: Path) -> None:
    other = path.parent.with_name("other")
    shutil.copytree(path.parent, other)
    path.parent.rename(path.parent.with_name("former"))
    other.rename(path.parent)


def send(client: httpx.Client, number: int) -> httpx.Response:
    return talk.send(client, [{"relation": "r", "row": {"id": number}}])


@pytest.mark.parametrize(
    ("lose", "name", "how"),
    [
        *((lose, DATABASE, how) for lose in (deleted, replaced) for how in ("a batch", "a definition", "idle")),
        (moved, DATABASE, "idle"), (folder_replaced, DATABASE, "a batch"), (deleted, WAL, "a batch"), (replaced, WAL, "idle"),
    ],
)  # fmt: skip
def test_a_lost_file_stops_the_service(tmp_path: Path, lose: Callable[[Path], None], name: str, how: str) -> None:
    data = tmp_path / "data"
    with ServerProcess(data) as server:
        client = server.client()
        talk.define(client, "r", DEFINITION)
        talk.ok(send(client, 1))
        lose(data / name)
        left = {path: path.read_bytes() for path in data.glob("livejoin.db*")}
        try:
            if how == "a batch":
                talk.problem(send(client, 2), 500, "internal")
            elif how == "a definition":
                talk.problem(client.put("/v1/relations/s", json=DEFINITION), 500, "internal")
        except httpx.TransportError:  # it noticed the loss before the request
            pass
        assert server.wait(60) == 1
        assert "was deleted or replaced" in server.output() and str(data / name) in server.output(), server.output()
        assert {path: path.read_bytes() for path in data.glob("livejoin.db*")} == left
        if lose is deleted and name == DATABASE:
            with pytest.raises(NotStarted, match="the database is missing"):
                server.start()
