"""Definitions at a real service: what explain says of one, its registration says too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.end_to_end import talk
from tests.server_process import ServerProcess
from tests.service.scoped import RELATIONS, asked, in_json

# these were accepted, and ended the service or lost their condition
ONCE = [
    {"sql": text}
    for join in ("ON l.a = r.a", "USING (a)")
    for text in (
        f"SELECT * FROM l ANTI JOIN r {join}",
        f"SELECT l.id, r.c AS rc FROM l ANTI JOIN r {join}",
        f"SELECT COUNT(r.c) AS n FROM l ANTI JOIN r {join}",
        f"SELECT l.* FROM l ANTI JOIN r {join} WHERE r.c > 1000",
        f"SELECT * FROM l SEMI JOIN r {join}",
        f"SELECT l.id FROM l SEMI JOIN r {join} WHERE a > 5",
    )
]


def test_explain_and_registration_say_the_same(tmp_path: Path) -> None:
    definitions: list[dict[str, Any]] = [*ONCE, *({"sql": one.text} for _, one in list(asked())[11::173])]
    definitions += [data for _, data, _, _ in list(in_json())[3::29]]
    with ServerProcess(tmp_path / "data") as server:
        client, taken = server.client(), 0
        for name, definition in RELATIONS.items():
            talk.define(client, name, definition.to_json())
        for data in definitions:
            explained, made = client.post("/v1/explain", json=data), client.put("/v1/views/v", json=data)
            if made.is_success:
                talk.live(made, client, "v")
                assert explained.status_code == 200, (data, explained.text)
                taken += 1
                talk.drop(client, views=["v"])
            else:
                assert made.status_code == explained.status_code == 422, (data, made.text)
                assert made.json() == explained.json(), data
        assert taken > len(definitions) / 4
        assert talk.ok(client.get("/v1/views"))["views"] == []
