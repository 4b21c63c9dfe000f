"""Data folders written by older code (tests/kept) can be opened: their contents are present, and clients of that time get correct
answers."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import struct
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.cli import main as livejoin
from tests.end_to_end import talk
from tests.kept import bodies, record
from tests.kept.archive import contents, unpack
from tests.kept.model import canonical, post
from tests.server_process import ROOT, ServerProcess

Json = dict[str, Any]

GUARANTEES = ("best-effort", "delay", "strict")
FRESH = {"columns": [{"name": "id", "type": "int64"}, {"name": "other", "type": "bool"}], "key": ["id"]}
MARK = struct.Struct("<8sqq?16s")  # livejoin.mark: magic, version, changes of the catalogue, synchronous=full, the machine's start


@dataclass(frozen=True)
class Kept:
    """One kept folder: its archive, and its expected contents."""

    archive: Path
    expected: Json

    def unpack(self, to: Path) -> Path:
        return unpack(self.archive, to / "data")


def _all() -> list[Any]:
    found = []
    for path in sorted((ROOT / "tests" / "kept").glob("*/expected.json")):
        for name, expected in json.loads(path.read_text(encoding="utf-8"))["folders"].items():
            found.append(pytest.param(Kept(path.with_name(f"{name}.tar.gz"), expected), id=f"{path.parent.name}-{name}"))
    assert found
    return found


every_folder = pytest.mark.parametrize("kept", _all())


# opening


@every_folder
def test_it_opens_and_goes_on(kept: Kept, tmp_path: Path) -> None:
    folder, expected = kept.unpack(tmp_path), kept.expected
    with ServerProcess(folder) as server:
        client = server.client()
        require_state(client, expected)
        require_look_ups(client, expected)
        require_same_definitions(client, expected)
        require_honest_tokens(client, expected)
        require_honest_cursors(client, expected)
        require_duplicates(client, expected)
        go_on(client, expected)
        put_again(client)
        assert server.stop() == 0
    with ServerProcess(folder, environment={"LIVEJOIN_SYNCHRONOUS": "normal"}) as server:
        client = server.client()
        version = expected["then"]["version"] + 1
        found = record.state(client)
        assert found["relations"].pop("dropped")["rows"] == ["[7,true]"]
        require(found, afterwards(expected) | {"version": version})
        require_duplicates(client, expected)
        receipt = talk.ok(talk.send(client, [bodies.upsert("dropped", {"id": 8, "other": False})], source="pms", epoch=10**6))
        assert receipt["version"] == version + 1 and not receipt["duplicate"]


def require_state(client: httpx.Client, expected: Json) -> None:
    require(record.state(client), expected)


def require(found: Json, expected: Json) -> None:
    """Check that the relations and views, their rows, and the algorithms of the views are the same."""
    assert found["version"] == expected["version"]
    assert found["relations"].keys() == expected["relations"].keys()
    for name, one in expected["relations"].items():
        same_rows(found["relations"][name], one, name)
        same_definition(found["relations"][name]["definition"], one["definition"], name)
    assert found["views"].keys() == expected["views"].keys()
    for name, one in expected["views"].items():
        live = found["views"][name]
        assert live["state"] == "live", name
        assert live["plan"]["algorithm"] == one["plan"]["algorithm"], name
        assert GUARANTEES.index(live["plan"]["guarantee"]) >= GUARANTEES.index(one["plan"]["guarantee"]), name
        assert live["count"] == len(one["rows"]), name
        same_rows(live, one, name)


def same_rows(found: Json, expected: Json, name: str) -> None:
    assert found["columns"] == expected["columns"], name
    assert found["rows"] == expected["rows"], name


def same_definition(found: Json, expected: Json, name: str) -> None:
    """Return whether everything that was defined is the same; definitions may have additional fields by now."""
    assert [part | given for part, given in zip(found["columns"], expected["columns"], strict=True)] == found["columns"], name
    assert found["key"] == expected["key"], name
    assert {part: found["intervals"][part] | given for part, given in expected["intervals"].items()} == found["intervals"], name


def require_look_ups(client: httpx.Client, expected: Json) -> None:
    for one in expected["look_ups"]:
        same_rows(record.rows(client, f"/v1/views/{one['view']}/rows", **one["parameters"]), one, f"{one['view']} {one['parameters']}")


def require_same_definitions(client: httpx.Client, expected: Json) -> None:
    """Registering the old definitions again changes nothing, while other definitions are different."""
    for name, one in expected["relations"].items():
        talk.ok(client.put(f"/v1/relations/{name}", json=one["definition"]), 200)
    for name, one in expected["views"].items():
        talk.ok(client.put(f"/v1/views/{name}", json=one["sent"]), 200)
    talk.problem(client.put("/v1/relations/bookings", json=FRESH), 409, "definition-differs")
    talk.problem(client.put("/v1/views/clashes", json={"sql": "SELECT id FROM bookings"}), 409, "definition-differs")
    talk.problem(client.delete("/v1/relations/bookings"), 409, "relation-in-use")
    talk.problem(client.get("/v1/views/clashes_by_operator/changes"), 409, "not-followed")


# clients of then


def require_honest_tokens(client: httpx.Client, expected: Json) -> None:
    """A token either returns exactly what has changed since, or has expired."""
    for one in expected["followers"]:
        answer = follow(client, one["view"], one["token"])
        if answer.status_code != 200:
            talk.problem(answer, 410, "token-expired")
            continue
        *records, last = [json.loads(line) for line in answer.content.splitlines()]
        assert last["op"] == "progress" and one["version"] <= last["version"] <= expected["version"], one
        versions = record.by_version(records)
        assert all(one["version"] < int(version) <= expected["version"] for version in versions), one
        assert record.net(records) == {"deleted": one["deleted"], "inserted": one["inserted"]}, one
        assert versions == one.get("versions", versions), one
        assert record.poll(client, one["view"], since=last["token"])[0]["op"] == "progress"
    first, other = expected["followers"][:2]
    talk.problem(follow(client, other["view"], first["token"]), 400, "bad-token")
    forged = first["token"][:-6] + ("A" if first["token"][-6] != "A" else "B") + first["token"][-5:]
    talk.problem(follow(client, first["view"], forged), 400, "bad-token")


def follow(client: httpx.Client, view: str, token: str) -> httpx.Response:
    return client.get(f"/v1/views/{view}/changes", params={"since": token, "wait": 0})


def require_honest_cursors(client: httpx.Client, expected: Json) -> None:
    """A cursor continues at its version, or has expired."""
    for page in expected["pages"]:
        answer = client.get(page["path"], headers={"Accept": talk.JSON}, params={"cursor": page["cursor"], "limit": 50})
        if answer.status_code != 200:
            talk.problem(answer, 410, "snapshot-expired")
            continue
        assert answer.json()["version"] == page["version"]
        assert record.rest_of_pages(client, page["path"], answer) == page["rest"], page["path"]
    first, *_, other = expected["pages"]
    talk.problem(client.get(other["path"], params={"cursor": first["cursor"]}), 400, "bad-cursor")


def require_duplicates(client: httpx.Client, expected: Json) -> None:
    """The last batch of each source is recognised, whatever its body, and with another run it belongs to another source."""
    version = talk.ok(client.get("/v1/status"))["version"]
    for name, one in expected["sources"].items():
        empty = bodies.Body("/v1/changes", talk.JSON, b'{"changes": []}')
        again = empty if one["content"] is None else bodies.Body(one["path"], one["media"], one["content"].encode())
        for sent in (again, empty):
            receipt = talk.ok(post(client, sent, one["parameters"]))
            assert receipt["duplicate"] and receipt["applied"] == 0 and receipt["version"] == version, name
            first = receipt.get("first", {})
            assert first == {field: one["receipt"][field] for field in first.keys() & one["receipt"].keys()} | first, name
        talk.problem(post(client, empty, one["parameters"] | {"run": "another"}), 409, "source-reset")
    assert talk.ok(client.get("/v1/status"))["version"] == version


# going on


def go_on(client: httpx.Client, expected: Json) -> None:
    """New epochs of the old sources are applied, and views and their followers change as they did then."""
    definitions = {name: one["definition"] for name, one in expected["relations"].items()}
    names = {view: [column.rpartition(": ")[0] for column in one["columns"]] for view, one in expected["views"].items()}
    followed = [view for view, one in expected["views"].items() if one["sent"].get("changes") is not False]
    followers = [talk.Follower(client, view, names[view], snapshot=True) for view in followed]
    for batch in expected["then"]["batches"]:
        receipt = talk.ok(post(client, bodies.body(batch["form"], batch["changes"], definitions), batch["parameters"]))
        assert batch["receipt"] == {field: receipt[field] for field in batch["receipt"]}
    then = afterwards(expected)
    require_state(client, then)
    for follower in followers:
        before = follower.version
        talk.ok_poll(follower)
        rows = [canonical(dict(zip(names[follower.name], row, strict=True))) for row in follower.rows.values()]
        assert sorted(rows) == then["views"][follower.name]["rows"], follower.name
        assert follower.version > before or not any(expected["then"]["views"][follower.name].values()), follower.name


def afterwards(expected: Json) -> Json:
    """Return the contents expected after the further batches."""
    then: Json = {"version": expected["then"]["version"]}
    for kind in ("relations", "views"):
        changes = expected["then"][kind]
        then[kind] = {name: one | {"rows": changed(one["rows"], changes[name])} for name, one in expected[kind].items()}
    return then


def changed(rows: list[str], by: Json) -> list[str]:
    left = Counter(rows)
    left.subtract(by["deleted"])
    return sorted((left + Counter(by["inserted"])).elements())


def put_again(client: httpx.Client) -> None:
    """A relation with the name of one that is in the log but not in the catalogue: it does not get the old one's rows."""
    talk.define(client, "dropped", FRESH)
    talk.ok(talk.send(client, [bodies.insert("dropped", {"id": 7, "other": True})]))
    assert talk.ok(client.get("/v1/relations/dropped"))["rows"] == 1


# the folder itself


@every_folder
def test_check_finds_it_whole_and_leaves_it_alone(kept: Kept, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = kept.unpack(tmp_path)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = contents(folder)
    assert livejoin(["check", str(folder)]) == 0
    told = capsys.readouterr().out
    assert all(f" {name}: {len(one['rows']):,} row" in told for name, one in kept.expected["views"].items()), told
    assert contents(folder) == before
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755)


@every_folder
def test_it_is_the_one_that_was_written(kept: Kept, tmp_path: Path) -> None:
    """The folder was written on a machine that has been restarted since: its mark is trusted under synchronous=full, and since format 2
    after a clean end."""
    assert hashlib.sha256(kept.archive.read_bytes()).hexdigest() == kept.expected["sha256"]
    folder, about = kept.unpack(tmp_path), kept.expected["log"]
    magic, version, _, full, boot = MARK.unpack((folder / "livejoin.mark").read_bytes()[: MARK.size])
    assert magic == b"livejoin" and version == kept.expected["version"]
    assert full == (kept.archive.name == "killed.tar.gz" or kept.archive.parent.name != "format_1")
    known = Path("/proc/sys/kernel/random/boot_id")
    assert not known.exists() or boot.hex() != known.read_text().strip().replace("-", "")
    assert (folder / "snapshots" / str(about["snapshot"])).is_dir() and about["after"] == version - about["snapshot"] > 50


# that these tests can fail


def snapshot_file(folder: Path) -> Path:
    """Of the bookings."""
    return next(path for path in sorted(folder.glob("snapshots/*[0-9]/*.arrow")) if b"startDate" in path.read_bytes())


def flip(path: Path, piece: bytes) -> None:
    data = path.read_bytes()
    assert piece in data
    path.write_bytes(data.replace(piece, bytes([piece[0] ^ 1]) + piece[1:]))


def flip_in_the_snapshot(folder: Path) -> None:
    flip(snapshot_file(folder), b"Edsger")


def flip_in_the_log(folder: Path) -> None:
    """Flip a bit in the payload of the last batch, in the WAL if there is one."""
    copy = unpack_database(folder)
    payload = copy.execute("SELECT payload FROM log WHERE length(payload) > 100 ORDER BY version DESC").fetchone()[0]
    copy.close()
    wal = folder / "livejoin.db-wal"
    flip(wal if wal.exists() else folder / "livejoin.db", payload[60:90])


def unpack_database(folder: Path) -> sqlite3.Connection:
    copy = folder.with_name("copy")
    copy.mkdir()
    for path in folder.glob("livejoin.db*"):
        (copy / path.name).write_bytes(path.read_bytes())
    return sqlite3.connect(copy / "livejoin.db")


def lose_the_last_of_the_log(folder: Path) -> None:
    path = next(path for path in (folder / "livejoin.db-wal", folder / "livejoin.db") if path.exists())
    os.truncate(path, path.stat().st_size - 4120)


@every_folder
@pytest.mark.parametrize("damage", [flip_in_the_snapshot, flip_in_the_log, lose_the_last_of_the_log])
def test_damage_is_noticed(kept: Kept, tmp_path: Path, damage: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = kept.unpack(tmp_path)
    damage(folder)
    assert livejoin(["check", str(folder)]) == 1
    assert "damage " in capsys.readouterr().out


def test_another_row_is_noticed(tmp_path: Path) -> None:
    """A row was changed in the snapshot, with correct checksums: only the comparison can detect it."""
    kept: Kept = _all()[0].values[0]
    folder = kept.unpack(tmp_path)
    path = snapshot_file(folder)
    manifest_path = path.with_name("manifest.json")
    manifest = json.loads(manifest_path.read_text())
    flip_in_the_snapshot(folder)
    del manifest["crc"]
    manifest["tables"][path.stem]["crc"] = zlib.crc32(path.read_bytes())
    manifest["crc"] = zlib.crc32(json.dumps(manifest, sort_keys=True).encode())
    manifest_path.write_text(json.dumps(manifest))
    with ServerProcess(folder) as server, pytest.raises(AssertionError, match="Ddsger"):
        found = record.rows(server.client(), "/v1/relations/bookings/rows")
        same_rows(found, kept.expected["relations"]["bookings"], "bookings")
