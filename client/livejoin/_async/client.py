"""The client: where everything begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal, Self
from urllib.parse import quote

from livejoin._async.batch import AsyncBatch, post_batch
from livejoin._async.http import AsyncHttp
from livejoin._async.query import AsyncQuery
from livejoin._async.relation import AsyncRelation, OnError
from livejoin._async.view import AsyncView
from livejoin.encoding import batch_params, view_definition
from livejoin.explanation import Explanation
from livejoin.problems import NotLivejoin
from livejoin.receipts import Receipt
from livejoin.samples import Sample, samples


class AsyncClient:
    """One service: see `livejoin.connect`. Use it in a `with`, or close it at the end."""

    def __init__(self, url: str, token: str | None, ca: str | PathLike[str] | None, patience: float, timeout: float, reader: str) -> None:
        self._http = AsyncHttp(url, token, ca, patience, timeout, reader)

    def __repr__(self) -> str:
        return f"<livejoin client of {self.url}>"

    @property
    def url(self) -> str:
        """The service's address."""
        return self._http.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    def relation(self, name: str) -> AsyncRelation:
        """The relation of this name; makes no request."""
        return AsyncRelation(self._http, name)

    async def relations(self) -> list[dict[str, Any]]:
        """The definitions of all relations."""
        return await self._listed("relations")

    async def view(
        self,
        name: str,
        sql: str | None = None,
        *,
        definition: Mapping[str, Any] | None = None,
        wait: bool = True,
        replace: bool = False,
        **options: Any,
    ) -> AsyncView:
        """The view of this name. With a definition it is registered (the same definition again changes nothing), and waited for until it is
        live, unless `wait` is False; without one nothing is asked of the service.

        sql: one SELECT. definition: the JSON form. options: what stands beside it, as `guarantee="strict"`, `changes=False`.
        replace: a view of this name gets the definition, in a version of its own, and those that read it with it; until then they stay.
        Raises DefinitionDiffers, UnsupportedQuery, BadQuery, BadDefinition, UnknownRelation, UnknownColumn, InfeasibleView, ViewFailed.
        """
        view = AsyncView(self._http, name)
        if sql is not None or definition is not None:
            params = {"replace": "true"} if replace else {}
            await self._http.json("PUT", view._path, view_definition(sql, definition, options), params=params)
            if wait:
                await view.wait_until_live()
        return view

    async def views(self) -> list[dict[str, Any]]:
        """All views, as the service returns them."""
        return await self._listed("views")

    async def explain(self, sql: str | None = None, *, definition: Mapping[str, Any] | None = None, **options: Any) -> Explanation:
        """How the service would keep a view, without registering it: `plan` and `alternatives`; prints as a table. Arguments and errors as
        of `view`."""
        return Explanation(await self._http.json("POST", "/v1/explain", view_definition(sql, definition, options), repeatable=True))

    def query(self, sql: str, *, version: int | None = None) -> AsyncQuery:
        """An ad hoc query: one SELECT over relations and views, in DuckDB's dialect, which is run whenever its rows are read.

            lj.query("SELECT room, count(*) AS n FROM bookings GROUP BY room").to_arrow()

        version: one that a cursor still keeps; else the newest.
        """
        return AsyncQuery(self._http, sql, version)

    async def tokens(self) -> list[dict[str, Any]]:
        """The access tokens, without their texts; for admins."""
        return await self._listed("tokens")

    async def create_token(
        self,
        name: str,
        scope: Literal["read", "write", "admin"],
        *,
        relations: Sequence[str] | None = None,
        views: Sequence[str] | None = None,
        expires: str | None = None,
    ) -> str:
        """The text of a new access token, which the service shows only now; for admins. Raises DefinitionDiffers, BadDefinition.

        relations, views: what it is for (`*`: all); who names neither gets all, who names one gets none of the other. expires: RFC 3339.
        """
        form = {"name": name, "scope": scope, "relations": relations, "views": views, "expires": expires}
        given = {key: value for key, value in form.items() if value is not None}
        return str((await self._http.json("POST", "/v1/tokens", given, having="token"))["token"])

    async def revoke_token(self, name: str) -> None:
        """For admins. Raises NotFound, Forbidden for the last admin token."""
        await self._http.call("DELETE", f"/v1/tokens/{quote(name, safe='')}")

    async def sources(self) -> list[dict[str, Any]]:
        """The sources of batches, each with its last one: `name`, `run`, `epoch`, `version`, `time`."""
        return await self._listed("sources")

    async def forget_source(self, name: str) -> None:
        """Forget a source: whatever run and epoch it sends next are its first; for admins. Raises NotFound."""
        await self._http.call("DELETE", f"/v1/sources/{quote(name, safe='')}")

    async def start_backup(self, target: str, since: str | None = None) -> dict[str, Any]:
        """Begin a backup of the service's data in `target`, a new folder on its machine; for admins. `backup` shows the progress.

        since: an earlier backup; only what came after it is written. Raises BadParameter, TooMany, DiskFull.
        """
        form = {"target": target} if since is None else {"target": target, "since": since}
        return await self._http.json("POST", "/v1/backup", form)

    async def backup(self) -> dict[str, Any]:
        """The last backup since the service was started: `state` is none, running (with `progress`), done or failed; for admins."""
        return await self._http.json("GET", "/v1/backup", having="state")

    def batch(
        self,
        source: str | None = None,
        epoch: int | None = None,
        *,
        run: str | None = None,
        reset: bool = False,
        on_error: OnError = "reject",
    ) -> AsyncBatch:
        """Changes of several relations that make one version, for use in a `with`.

        source, epoch: who sends it, and a number that grows from batch to batch: the service applies a batch whose epoch it has had no
        second time, so this one may be repeated. run: who numbers the epochs; reset: a new run takes the source over.
        """
        return AsyncBatch(self._http, batch_params(source, epoch, run, reset, on_error))

    async def post_changes(
        self,
        content: bytes,
        media_type: str,
        source: str | None = None,
        epoch: int | None = None,
        *,
        run: str | None = None,
        reset: bool = False,
        on_error: OnError = "reject",
    ) -> Receipt:
        """One batch that is encoded already, in a media type of POST /v1/changes. Other arguments as of `batch`."""
        return await post_batch(self._http, content, media_type, batch_params(source, epoch, run, reset, on_error))

    async def status(self) -> dict[str, Any]:
        """The state of the service: version, relations with their rows, views, figures."""
        return await self._http.json("GET", "/v1/status")

    async def metrics(self) -> list[Sample]:
        """The values of /metrics."""
        return list(samples((await self._http.call("GET", "/metrics")).content.decode()))

    async def readiness(self) -> dict[str, Any]:
        """What /readyz returns once the service accepts requests. Raises Recovering, with `progress` in its `document`."""
        return await self._http.json("GET", "/readyz", having="status")

    async def _listed(self, nouns: str) -> list[dict[str, Any]]:
        listed = (await self._http.json("GET", f"/v1/{nouns}")).get(nouns)
        if not isinstance(listed, list):
            raise NotLivejoin(self.url)
        return listed
