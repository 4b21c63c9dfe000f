"""Sending a batch: changes, or a rewriting of a relation, which is its only change."""

from __future__ import annotations

import json

import httpx

from tests.end_to_end import talk
from tests.histories.model import Change, shown

_STAGED = 8  # a replacement of more rows is sent in parts


def send(client: httpx.Client, changes: tuple[Change, ...], source: str, epoch: int) -> httpx.Response:
    """Return the last answer; for a replacement in parts, that of the commit, or of the first part that was refused."""
    named = {"source": source, "epoch": epoch}
    op, relation, row = changes[0]
    if op == "delete-where":
        column, operator, value = row
        where = {"column": column, "op": operator} | ({} if value is None else {"value": value})
        return client.post(f"/v1/relations/{relation}/delete", json={"where": [where]} | named)
    if op != "replace":
        return talk.send(client, [change.body() for change in changes], talk.JSONL, **named)
    path, (rows, kept) = f"/v1/relations/{relation}/replace", row
    lines = [json.dumps(shown(one)).encode() + b"\n" for one in rows]
    lines[1:1] = [json.dumps({"id": key, "room": None}).encode() + b"\n" for key in kept]
    heads = {"Content-Type": talk.JSONL}
    if len(rows) <= _STAGED:
        return client.post(path, content=b"".join(lines), headers=heads, params={**named, "on_error": "skip"})
    stage = {"stage": f"{source} {epoch}"}
    for part in (1, 0, 1):  # the second one replaces the first
        content = b"".join(lines[part::2])
        answer = client.post(path, content=content, headers=heads, params={**stage, "part": part, "on_error": "skip"})
        if answer.status_code != 200:
            return answer
    return client.post(path, params={**stage, **named, "commit": "true"})
