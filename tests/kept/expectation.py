"""The expected contents of a kept folder, read from a copy of it by the service that wrote it, and compared with what was sent."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.end_to_end import talk
from tests.kept import record
from tests.kept.bodies import FORMS, Change, delete, truncate, upsert
from tests.kept.model import Model, Sender, canonical
from tests.kept.record import Json
from tests.kept.relations import Rows
from tests.server_process import ROOT, ServerProcess

_PAGED = ("/v1/views/overlapping/rows", "/v1/views/triangles/rows", "/v1/relations/bookings/rows")
_LOOK_UPS = [
    ("clashes", {"where.b.id": "{}"}),  # of the first row
    ("clashes", {"overlaps": "2026-01-05T00:00:00Z,2026-01-09T00:00:00Z"}),
    ("star", {"where.r.room": "日本"}),
    ("bounds_of_dates", {"overlaps": ",2025-12-15"}),
    ("boxes_once", {"overlaps.int_half": "-40,40"}),
    ("triangles", {"where.a.src": "1", "where.a.dst": "2"}),
]


@dataclass
class Follower:
    """A follower that had all rows of a view at `version`, and a token to continue from. `versions`: the changes of each later version, if
    it read them."""

    view: str
    token: str
    version: int
    rows: frozenset[str]
    versions: Json | None = None


@dataclass
class Kept:
    """What clients of the services received: tokens, cursors, and the receipts of the last batches."""

    definitions: dict[str, Json] = field(default_factory=dict)
    followers: dict[tuple[str, str], Follower] = field(default_factory=dict)
    pages: list[Json] = field(default_factory=list)
    unanswered: Sequence[Sequence[Change]] = ()
    acknowledged: int = 0

    def follow(self, client: httpx.Client, views: Iterable[str], label: str) -> None:
        """Get tokens; those with the same label are replaced."""
        for view in views:
            self.followers[view, label] = _follow(client, view)

    def finish(self, client: httpx.Client, label: str) -> None:
        """Read what the followers of this label receive now."""
        for (view, of), follower in self.followers.items():
            if of == label:
                follower.versions = record.by_version(record.poll(client, view, since=follower.token))

    def turn_pages(self, client: httpx.Client) -> None:
        """Get the cursor of a first page, and the rows after it."""
        for path in _PAGED:
            page = talk.ok(client.get(path, headers={"Accept": talk.JSON}, params={"limit": 5}))
            second = client.get(path, headers={"Accept": talk.JSON}, params={"cursor": page["next"], "limit": 50})
            rest = record.rest_of_pages(client, path, second)
            self.pages.append({"path": path, "cursor": page["next"], "version": page["version"], "rest": rest})


def _follow(client: httpx.Client, view: str) -> Follower:
    *rows, last = record.poll(client, view, snapshot="true", limit=1)
    assert last["op"] == "progress" and all(row["op"] == "insert" and row["version"] == last["version"] for row in rows)
    return Follower(view, last["token"], last["version"], frozenset(record.identified(row["key"], row["row"]) for row in rows))


def expect(folder: Path, model: Model, sources: dict[str, Json], kept: Kept) -> Json:
    """The folder itself is not changed."""
    copy = folder.with_name(f"copy of {folder.name}")
    shutil.copytree(folder, copy)
    check = [sys.executable, "-m", "service.cli", "check", str(copy)]
    subprocess.run(check, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)  # views by brute force
    with ServerProcess(copy) as server:
        client = server.client()
        now = record.state(client)
        assert now["version"] >= kept.acknowledged
        _require_what_was_sent(now, model, kept.unanswered)
        for name, definition in kept.definitions.items():
            now["views"][name]["sent"] = definition
        look_ups = [_look_up(client, name, at, now["views"][name]["rows"][0]) for name, at in _LOOK_UPS]
        followers = [_told(client, label, follower) for (_, label), follower in kept.followers.items()]
        then = _go_on(client, model, sources, now)
        assert server.stop() == 0
    return {
        **now, "sources": sources, "followers": followers, "pages": kept.pages, "look_ups": look_ups, "then": then,
        "acknowledged": kept.acknowledged or now["version"],
    }  # fmt: skip


def _require_what_was_sent(found: Json, model: Model, unanswered: Sequence[Sequence[Change]]) -> None:
    """Check that the relations hold everything that was acknowledged, and of unacknowledged batches each one completely or not at all."""
    assert found["relations"].keys() == model.rows.keys()
    read = {name: one["rows"] for name, one in found["relations"].items()}
    known = {name: dict(rows) for name, rows in model.rows.items()}
    for count in range(len(unanswered) + 1):
        for chosen in itertools.combinations(unanswered, count):
            model.rows = {name: dict(rows) for name, rows in known.items()}
            for changes in chosen:
                model.apply(changes)
            if {name: sorted(map(canonical, rows.values())) for name, rows in model.rows.items()} == read:
                return
    model.rows = known
    sent = {name: sorted(map(canonical, rows.values())) for name, rows in known.items()}
    wrong = {name: sorted(set(sent[name]) ^ set(read[name]))[:6] for name in sent if sent[name] != read[name]}
    raise AssertionError(f"the relations do not hold what was sent: {wrong}")


def _look_up(client: httpx.Client, view: str, parameters: dict[str, str], first: str) -> Json:
    at = {name: value.format(json.loads(first)[0]) for name, value in parameters.items()}
    found = record.rows(client, f"/v1/views/{view}/rows", **at)
    assert found["rows"], (view, at)
    return {"view": view, "parameters": at, **found}


def _told(client: httpx.Client, label: str, follower: Follower) -> Json:
    """Return what the follower should receive from its token on."""
    now = _follow(client, follower.view).rows
    told: Json = {"view": follower.view, "when": label, "token": follower.token, "version": follower.version}
    told |= {"deleted": sorted(follower.rows - now), "inserted": sorted(now - follower.rows)}
    return told if follower.versions is None else {**told, "versions": follower.versions}


def _go_on(client: httpx.Client, model: Model, sources: dict[str, Json], before: Json) -> Json:
    """Send further batches; return what they change."""
    sender, rows, batches = Sender(client, model), Rows(3), []

    def post(form: str, changes: list[Change], **parameters: Any) -> None:
        receipt = sender.post(form, changes, **parameters)
        batches.append({"form": form, "changes": changes, "parameters": parameters, "receipt": receipt})

    names = ("bookings", "jobs", "marks", "ticks", "links", "shifts", "rooms", "cleanings", "everything", "late")
    for place, source in enumerate(sources.values()):
        # The next epoch may have been sent, and not answered.
        parameters = source["parameters"] | {"epoch": source["parameters"]["epoch"] + 2}
        name = names[place % len(names)]
        gone = [delete(name, model.definitions[name], row) for row in model.some(name, 1 + place % 3)]
        come = [upsert(name, rows.make(name, 20 + 4 * place + number)) for number in range(1 + place % 3)]
        post(FORMS[place % len(FORMS)], [*gone, *come], **parameters)
    post("json", [upsert("ticks", rows.make("ticks", 300))])
    post("json", [truncate("again"), upsert("emptied", {"name": "after all", "value": "NaN"})])
    after = record.state(client)
    changed = {
        kind: {name: _difference(before[kind][name]["rows"], one["rows"]) for name, one in after[kind].items()}
        for kind in ("relations", "views")
    }
    return {"batches": batches, "version": after["version"], **changed}


def _difference(before: list[str], after: list[str]) -> Json:
    old, new = Counter(before), Counter(after)
    return {"deleted": sorted((old - new).elements()), "inserted": sorted((new - old).elements())}
