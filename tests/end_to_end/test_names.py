"""Relations and views share their names."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from tests.end_to_end import talk
from tests.server_process import ServerProcess

TABLE = {"columns": [{"name": "id", "type": "int64"}], "key": ["id"]}
VIEW = {"sql": "SELECT b.id AS id FROM base b"}


def paths(name: str) -> tuple[str, str]:
    return f"/v1/relations/{name}", f"/v1/views/{name}"


def refused(client: httpx.Client, path: str) -> None:
    """What is there stays as it is."""
    there, definition = path.replace("relations", "views"), TABLE
    if "views" in path:
        there, definition = path.replace("views", "relations"), VIEW
    before = talk.ok(client.get(there))
    emitted = talk.problem(client.put(path, json=definition), 409, "definition-differs")
    name, kind = path.rpartition("/")[2], there.split("/")[2].removesuffix("s")
    assert f"{name} is the name of a {kind}" in emitted["detail"] and f"drop the {kind} first" in emitted["detail"]
    talk.problem(client.get(path), 404, "not-found")
    assert talk.ok(client.get(there)) == before


def test_one_name_is_one_thing(tmp_path: Path) -> None:
    """In both directions, after a kill and a stop, until the other is dropped; a query means what has the name."""
    with ServerProcess(tmp_path / "data") as server:
        client = server.client()
        talk.define(client, "base", TABLE)
        talk.define(client, "t", TABLE)
        talk.view(client, "v", VIEW)
        for end in (None, server.kill, server.stop):
            if end is not None:
                end()
                server.start()
            for path in ("/v1/views/base", "/v1/views/t", "/v1/relations/v"):
                refused(client, path)
            for path, definition in (("/v1/relations/t", TABLE), ("/v1/views/v", VIEW)):
                assert client.put(path, json=definition).status_code == 200, "the same again"
        talk.send(client, [{"relation": "base", "op": "upsert", "row": {"id": 1}}])
        assert client.post("/v1/query", json={"sql": "SELECT v.id FROM v JOIN base USING (id)"}).text.count('"id"') == 1
        talk.drop(client, views=["v"], relations=["t"])
        assert [client.put("/v1/relations/v", json=TABLE).status_code, client.put("/v1/views/t", json=VIEW).status_code] == [201, 201]
        assert client.post("/v1/query", json={"sql": "SELECT id FROM v UNION ALL SELECT id FROM t"}).text.count('"id"') == 1


def test_of_two_registrations_at_once_one_is_refused(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, ThreadPoolExecutor(6) as threads:
        talk.define(server.client(), "base", TABLE)
        asked = [(path, TABLE if "relations" in path else VIEW) for number in range(60) for path in paths(f"n{number}")]
        clients = [server.client() for _ in range(6)]

        def put(number: int) -> int:
            path, definition = asked[number]
            return clients[number % 6].put(path, json=definition).status_code

        statuses = list(threads.map(put, range(len(asked))))
        for number in range(0, len(asked), 2):
            pair = statuses[number : number + 2]
            assert min(pair) in (201, 202) and max(pair) == 409, (asked[number], pair)
        client = server.client()
        names = [one["name"] for kind in ("relations", "views") for one in talk.ok(client.get(f"/v1/{kind}"))[kind]]
        assert len(names) == 61 and max(Counter(names).values()) == 1
        server.kill()
        server.start()
        again = [one["name"] for kind in ("relations", "views") for one in talk.ok(client.get(f"/v1/{kind}"))[kind]]
        assert again == names
