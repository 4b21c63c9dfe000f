"""A view: its rows and its changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from livejoin._async.answers import AsyncArrow
from livejoin._async.changes import AsyncChanges
from livejoin._async.follow import AsyncFollow
from livejoin._async.http import AsyncHttp
from livejoin._async.readings import AsyncReadings
from livejoin.display import SHOWN, message_html, table_html, view_words
from livejoin.encoding import Overlaps, Where, Window, row_params
from livejoin.problems import LivejoinError, problem_from

_LOOK_AGAIN = 0.2  # seconds between two looks at a view that is being built


class AsyncView(AsyncReadings):
    """The view of this name, registered or not. Methods raise NotFound if it is not.

    where: a condition in SQL on the columns of the rows, `"price > 100 AND room = 'A'"`; or a look-up, by the key columns of one alias, or
    the columns that it joins by: `{"b.id": 7}`; of a view with groups by all columns of the group: `{"group.room": None}`, with UNION or
    EXCEPT by all columns of the row: `{"row.room": 101}`.
    overlaps: a window `(low, high)`, a side may be None: only rows all of whose joined intervals meet it; of boxes a window by
    interval: `{"x": (0, 5)}`.
    version: one that a cursor still keeps; else the newest.
    """

    def __init__(self, http: AsyncHttp, name: str) -> None:
        super().__init__(http, f"/v1/views/{quote(name, safe='')}")
        self.name = name
        self._known: dict[str, Any] | None = None  # its last known state

    def __repr__(self) -> str:
        known = "" if self._known is None else f": {view_words(self._known)},"
        return f"<livejoin view {self.name}{known} at {self._http.url}>"

    async def _html_of_notebook(self) -> str:
        """Its first rows."""
        try:
            emitted = await self.get()
            rows = [row async for row in self.rows(limit=SHOWN + 1)]
        except LivejoinError as error:
            return message_html(f"{self.name}", error)
        return table_html(f"{self.name}: {view_words(emitted)}", rows[:SHOWN], len(rows) > SHOWN)

    async def get(self) -> dict[str, Any]:
        """State, version, definition, plan and statistics, as the service returns them."""
        self._known = await self._http.json("GET", self._path)
        return self._known

    async def drop(self) -> None:
        await self._http.call("DELETE", self._path)

    async def wait_until_live(self, progress: Callable[[float], object] | None = None) -> dict[str, Any]:
        """What `get` returns once the view is built, or the definition that replaces it is; until then, `progress` is called with numbers
        from 0 to 1. Raises ViewFailed."""
        while "progress" in (building := {**(view := await self.get()), **view.get("replacement", {})}):
            if progress:
                progress(building["progress"])
            await asyncio.sleep(_LOOK_AGAIN)
        if view["state"] == "live" and "problem" not in building:
            return view
        problem = {"title": "the view could not be built", **(building.get("problem") or {})}
        raise problem_from({**problem, "type": "/problems/view-failed"}, self._http.url, 503)

    async def count(self, *, where: Where | str | None = None, overlaps: Overlaps | None = None, version: int | None = None) -> int:
        """How many rows there are, without sending them."""
        params = row_params(where, overlaps, version=version)
        return int((await self._http.json("GET", f"{self._path}/count", params=params))["count"])

    async def analyze(self, *, where: Where | str | None = None, overlaps: Overlaps | None = None) -> dict[str, Any]:
        """Read all rows without sending them, and return what this cost: `steps`, `delay_steps`, `dead_ends`, `counters`, `seconds`."""
        params = row_params(where, overlaps, analyze="true")
        return dict(await self._http.json("GET", f"{self._path}/rows", params=params))

    def follow(
        self,
        *,
        snapshot: bool = False,
        since: str | None = None,
        store: str | Path | None = None,
        restart: Literal["snapshot"] | None = None,
        wait: float | None = None,
        idle: bool = False,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        overlaps: Mapping[str, Window] | None = None,
    ) -> AsyncFollow:
        """Its changes, one whole version after the other, each once, without end and over broken connections.

        Begins after the token `since`, or with every row as the inserts of one version (`snapshot=True`), else with what comes from now
        on: "now" is when the `with` or the loop begins.

            for version in view.follow(snapshot=True, store="clashes.token"):
                for change in version.changes: ...

        store: a file that keeps the token of the last version that the loop's body has finished, written when the next one is asked for.
        A token in it goes before `since` and `snapshot`. A version whose body was left by an exception or `break` comes again.
        restart: "snapshot" begins again with every row (`version.snapshot`) where the changes are no longer kept; without it TokenExpired
        is raised. wait: end when nothing new has come for so many seconds. idle: also yield versions without changes, at least every
        15 s, to a body that watches a clock. where, columns, overlaps: only of these rows, as of `changes`.

        A service that is away is waited for: without end once there is a token, unless `wait` is given. Nothing is read while the body
        works. A version is held in memory up to 64 MiB, then in a temporary file.
        Raises TokenExpired, BadToken, NotFollowed, ViewFailed, NotFound.
        """
        chosen = row_params(where, overlaps, columns)
        return AsyncFollow(self._http, f"{self._path}/changes", snapshot, since, store, restart, wait, idle, chosen)

    def changes(
        self,
        *,
        since: str | None = None,
        snapshot: bool = False,
        wait: float | None = None,
        limit: int | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        overlaps: Mapping[str, Window] | None = None,
    ) -> AsyncChanges:
        """One connection to its changes: records as the service sends them, not whole versions. For what `follow` does not do.

        where: only inserts and deletes of rows that meet a condition in SQL. columns: of the rows, whose keys are whole. overlaps: windows
        by `alias.interval`, of intervals of which the view selects both ends.
        """
        chosen = row_params(where, overlaps, columns)
        return AsyncChanges(self._http, f"{self._path}/changes", since, snapshot, wait, limit, chosen=chosen)

    async def changes_end(self, since: str, rows: int | None = None) -> dict[str, Any]:
        """The last version up to which there are about so many rows of changes after the token `since`, of one version at least; without
        `rows`, the newest: `version`, `token`, and `rows`, how many there are. Raises TokenExpired, BadToken, NotFollowed."""
        params = {"since": since} if rows is None else {"since": since, "rows": f"{rows}"}
        return await self._http.json("GET", f"{self._path}/changes/end", params=params)

    def changes_between(self, since: str, until: str, **chosen: Any) -> AsyncArrow:
        """The changes after one token up to another, as Arrow batches: `_op` (delete, insert), `_version`, the columns of the key as
        `alias.column`, and those of the row. Within a version deletes come first. `chosen`: where, columns, overlaps, as of `changes`.
        Raises TokenExpired, BadToken, NotFollowed."""
        return AsyncArrow(self._http, f"{self._path}/changes", row_params(**chosen, since=since, until=until))

    def part_as_changes(self, cursor: str) -> AsyncArrow:
        """The rows of a part of a reading, as `changes_between` tells inserts: with the columns of the key. Raises SnapshotExpired."""
        return AsyncArrow(self._http, f"{self._path}/changes", {"snapshot": "true", "cursor": cursor})
