"""Everything that a client can see of a service, in a form that can be stored and compared."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import httpx
import pyarrow as pa

from tests.end_to_end import talk
from tests.kept.model import canonical

Json = dict[str, Any]


def state(client: httpx.Client) -> Json:
    """Return the version, and the results of `relation` and `view` for each relation and view."""
    relations = talk.ok(client.get("/v1/relations"))["relations"]
    views = talk.ok(client.get("/v1/views"))["views"]
    return {
        "version": talk.ok(client.get("/v1/status"))["version"],
        "relations": {one["name"]: relation(client, one) for one in relations},
        "views": {one["name"]: view(client, one) for one in views},
    }


def relation(client: httpx.Client, about: Json) -> Json:
    """`about`: the service's description of it."""
    name = about["name"]
    definition = {part: about[part] for part in ("columns", "key", "intervals")}
    read = rows(client, f"/v1/relations/{name}/rows")
    assert about["rows"] == len(read["rows"]), name
    return {"definition": definition, **read}


def view(client: httpx.Client, about: Json) -> Json:
    name = about["name"]
    plan = {part: about["plan"][part] for part in ("algorithm", "class", "guarantee")}
    found = {"state": about["state"], "definition": about["definition"], "plan": plan, "count": talk.count(client, name)}
    return {**found, **rows(client, f"/v1/views/{name}/rows")}


def rows(client: httpx.Client, path: str, **parameters: Any) -> Json:
    """Columns with their types in Arrow, and the rows as text, sorted; read as JSON lines and as Arrow, which must agree."""
    lines = client.get(path, params=parameters)
    talk.ok_status(lines)
    answer = client.get(path, params=parameters, headers={"Accept": talk.ARROW})
    talk.ok_status(answer)
    table = pa.ipc.open_stream(io.BytesIO(answer.content)).read_all()
    read = [json.loads(line) for line in lines.content.splitlines()]
    assert table.num_rows == len(read), path
    assert all(list(row) == table.column_names for row in read), path
    return {"columns": [f"{field.name}: {field.type}" for field in table.schema], "rows": sorted(map(canonical, read))}


def net(records: Iterable[Json]) -> Json:
    """Return the net effect of a feed's records: the rows deleted and inserted, each as text with its identity, sorted."""
    sum_: Counter[str] = Counter()
    for record in records:
        if record["op"] in ("insert", "delete"):
            sum_[identified(record["key"], record["row"])] += 1 if record["op"] == "insert" else -1
    assert all(-1 <= number <= 1 for number in sum_.values()), "a row comes or goes once more than it can"
    return {
        "deleted": sorted(text for text, number in sum_.items() if number < 0),
        "inserted": sorted(text for text, number in sum_.items() if number > 0),
    }


def identified(key: Json, row: Json) -> str:
    return f"{json.dumps(key, sort_keys=True, ensure_ascii=False, separators=(',', ':'))} {canonical(row)}"


def poll(client: httpx.Client, name: str, **parameters: Any) -> list[Json]:
    """Return the records available now; the last one is a progress."""
    answer = client.get(f"/v1/views/{name}/changes", params={"wait": 0, **parameters})
    talk.ok_status(answer)
    return [json.loads(line) for line in answer.content.splitlines()]


def by_version(records: Iterable[Json]) -> dict[str, Json]:
    """Return the net effect of each version by its number; check the order of the records."""
    found: dict[int, list[Json]] = {}
    for record in records:
        if record["op"] != "progress":
            assert record["version"] >= max(found, default=0), "versions come in order"
            found.setdefault(record["version"], []).append(record)
    for version, ones in found.items():
        ops = [record["op"] for record in ones]
        assert ops == sorted(ops), f"version {version}: deletes come before inserts"
    return {str(version): net(ones) for version, ones in found.items()}


def rest_of_pages(client: httpx.Client, path: str, first: httpx.Response) -> list[str]:
    """Return the rows from a JSON page to the last one."""
    read = []
    page = talk.ok(first)
    version = page["version"]
    while True:
        assert page["version"] == version
        read += map(canonical, page["rows"])
        if page["next"] is None:
            return sorted(read)
        page = talk.ok(client.get(path, headers={"Accept": talk.JSON}, params={"cursor": page["next"], "limit": 50}))
