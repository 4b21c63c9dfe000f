"""`GET …/rows.parquet`, `.arrow`, `.csv`, `.jsonl`: the rows of a view or a relation at one version, as a file at a fixed address.

    GET                  the newest version, streamed as it is produced; nothing is kept
    HEAD, Range          one version is written to disk first (a spool), which determines its length, and from which parts are sent

A client that has asked for a file's length continues in that file, whatever has changed since: identified by `If-Match` or `If-Range` if it
sends one, otherwise by its connection, otherwise by its address or token. `HEAD` always describes the newest version. Dropping
a view or relation also drops its file; a later one of the same name has its own.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Annotated, NamedTuple
from urllib.parse import urlencode
from weakref import WeakValueDictionary

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from livejoin.wire.version import VERSION
from service.access.rights import FILES
from service.api.context import Context
from service.api.files.conditions import conditions_of
from service.api.files.writing import KINDS, make
from service.api.http import formats, media, parameters
from service.api.http.admission import client_of
from service.api.openapi import Content, answer, binary_content, failures, header_parameter, text_content
from service.api.routing import PlainRoute, RelationName, ServiceRequest, ViewName, router
from service.api.rows import FilterParameters, LimitParameters, RelationFilterParameters, RowsEndpoint, RowsRequest, of_relation, of_view
from service.api.steps import Steps, finish
from service.api.stream import Chunk, Stream
from service.errors import Problem
from service.reading.cursors import RowReader, owner_of
from service.reading.spools import Spool, Spools, TooLong
from service.tables.relations import Relation
from service.views.live_view import LiveView

routes = router("rows", route=PlainRoute)
_PIECE = 256 << 10  # bytes of a spool that are read at once

_LOCKS: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
"""Held by the request that writes the spool of an address; others that need it wait. A lock exists while somebody refers to it."""


class FileHeader(NamedTuple):
    """What the header says about a file."""

    tag: str
    version: int
    empty: bool


class FileStream(NamedTuple):
    """A file that is being streamed."""

    rows: RowsEndpoint
    first: Chunk
    emitted: FileHeader


class File:
    """One request for a file of the rows of `thing`."""

    def __init__(self, request: Request, asked: RowsRequest, thing: LiveView | Relation, suffix: str) -> None:
        self.request, self.asked, self.suffix = request, asked, suffix
        self.context: Context = request.app.state.context
        self.spools: Spools = self.context.engine.spools
        self.conditions = conditions_of(request.scope["fields"])
        self.is_head = request.method == "HEAD"
        pairs = sorted(parameters.pairs_of(request.scope["query_string"]))
        self.what = f"{owner_of(thing)}.{suffix}?{urlencode(pairs)}"
        client, (_, port) = client_of(request.scope), request.scope.get("client") or ("", 0)
        self.readers = (f"{client} port {port}", client) if port else (client,)  # behind a proxy, connections are the proxy's own

    async def answer(self) -> Response:
        """Return the response. Problems of the reader; `range-changed`, `unsatisfiable-range`, `too-busy`, `disk-full`."""
        found: Spool | FileStream | FileHeader | None = self._known()
        if found is None and (self.is_head or self.conditions.range is not None):
            lock = _LOCKS.setdefault(self.what, asyncio.Lock())
            async with lock:
                found = self._known() or await self._begin(True)
        if found is None or (isinstance(found, Spool) and found.size is None and not self.is_head):
            found = await self._begin(False)
        if isinstance(found, FileStream):
            kind = formats.content_type_of(KINDS[self.suffix])
            return Stream(self.context, self.context.readers, found.rows, found.first, kind, self._headers(found.emitted))
        if isinstance(found, FileHeader):
            return Response(None, 304, self._headers(found))
        return await self._of_spool(found)

    def _known(self) -> Spool | None:
        """Return the spool in which the request continues."""
        conditions = self.conditions
        if conditions.if_match is not None:
            return self.spools.find(self.what, conditions.if_match, self.readers)
        if self.is_head or conditions.range is None:
            return None
        if conditions.if_range is not None:
            return self.spools.find(self.what, (conditions.if_range,), self.readers)
        if conditions.range.first is None:  # a client that asks for the end without knowing the length is starting to read, as Polars does
            return None
        return self.spools.last(self.what, self.readers, begins=conditions.range.first == 0)

    async def _begin(self, spooled: bool) -> Spool | FileStream | FileHeader:
        return await finish(self.context, self.asked.pool, self.request.receive, self._steps(spooled))

    def _steps(self, spooled: bool) -> Steps[Spool | FileStream | FileHeader]:
        """Return the newest version: as a spool if its length or parts are requested, otherwise as a stream; or only its description, if
        the client has it already."""
        reader = self.asked.opened()
        is_begun = False
        try:
            tag = self._tag(reader)
            if not self.conditions.are_met_by(tag):
                said = f"the rows have changed: the file is {tag} now, and what If-Match names is no longer kept"
                raise Problem("range-changed", said, tag=tag)
            rows = RowsEndpoint(reader, make(self.suffix, reader.version, reader.schema), self.asked.limit)
            spooled = spooled and (self.is_head or self.conditions.range_counts(tag))
            if spooled and not self.conditions.know(tag) and (spool := self.spools.find(self.what, (tag,), self.readers)) is not None:
                return spool
            yield from rows.look()
            emitted = FileHeader(tag, reader.version, rows.empty)
            if self.conditions.know(tag):
                return emitted
            if spooled:
                return (yield from self._spool(rows, emitted))
            first = rows.step()
            is_begun = True
            return FileStream(rows, first, emitted)
        finally:
            if not is_begun:
                reader.close()

    def _spool(self, rows: RowsEndpoint, emitted: FileHeader) -> Steps[Spool]:
        with self.spools.draft(self.what, *emitted) as draft:
            more = True
            while more:
                body, more = rows.step()
                try:
                    for piece in body:
                        draft.write(piece)
                except TooLong:
                    return draft.is_too_long(self.readers)
                yield
            return draft.keep(self.readers)

    def _tag(self, reader: RowReader) -> str:
        """Return the entity tag: equal tags mean equal bytes. Rows may have another order after a restart, so the start is part of it."""
        start, timeline = self.spools.start, self.context.engine.timelines[-1][0]
        digest = hashlib.sha256()
        for part in (start, VERSION, reader.order, self.suffix):
            digest.update(part.encode() + b"\0")
        digest.update(reader.schema.serialize())
        return f'"{timeline}-{reader.version}-{digest.hexdigest()[:20]}"'

    async def _of_spool(self, spool: Spool) -> Response:
        headers = self._headers(FileHeader(spool.tag, spool.version, spool.empty))
        kind = formats.content_type_of(KINDS[self.suffix])
        if self.conditions.know(spool.tag):
            return Response(None, 304, headers)
        if spool.size is None:
            made = Response(None, 200, headers | {"Accept-Ranges": "none"}, kind)
            del made.headers["content-length"]
            return made
        if self.is_head:
            return Response(None, 200, headers | {"Content-Length": f"{spool.size}"}, kind)
        status, start, stop = 200, 0, spool.size
        if self.conditions.range is not None and self.conditions.range_counts(spool.tag):
            part = self.conditions.range.within(spool.size)
            if part is None:
                problem = Problem("unsatisfiable-range", f"the file has {spool.size} bytes", size=spool.size)
                problem.headers["Content-Range"] = f"bytes */{spool.size}"
                raise problem
            status, (start, stop) = 206, part
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{spool.size}"
        headers["Content-Length"] = f"{stop - start}"
        source = _Part(self.spools, spool, start, stop)
        first = await self.context.loop.run_in_executor(self.context.readers, source.step)
        return Stream(self.context, self.context.readers, source, first, kind, headers, status)

    def _headers(self, emitted: FileHeader) -> dict[str, str]:
        return {
            "Livejoin-Version": f"{emitted.version}",
            "Livejoin-Empty": "true" if emitted.empty else "false",
            "ETag": emitted.tag,
            "Accept-Ranges": "bytes",
            "Cache-Control": "no-cache",
            "Content-Disposition": f'inline; filename="{self.asked.name}.{self.suffix}"',
        }


class _Part:
    """A range of bytes of a spool."""

    def __init__(self, spools: Spools, spool: Spool, start: int, stop: int) -> None:
        self._spools, self._spool, self._at, self._stop = spools, spool, start, stop

    def step(self) -> Chunk:
        data = self._spools.read(self._spool, self._at, min(_PIECE, self._stop - self._at))
        self._at += len(data)
        return [data], self._at < self._stop

    def touch(self) -> None:
        self._spools.touch(self._spool)

    def close(self) -> None: ...


class ViewFileParameters(FilterParameters, LimitParameters): ...


class RelationFileParameters(RelationFilterParameters, LimitParameters): ...


_CONTENT: Mapping[str, Content] = {
    "parquet": binary_content(media.PARQUET, "a Parquet file"),
    "arrow": binary_content(media.ARROW, "an Arrow IPC stream"),
    "csv": text_content(media.CSV, "booking,job,clash_start,clash_end\n1,7,2026-01-01T12:00:00Z,2026-01-01T14:00:00Z\n"),
    "jsonl": text_content(media.JSONL, '{"booking":1,"job":7,"clash_start":"2026-01-01T12:00:00Z","clash_end":"2026-01-01T14:00:00Z"}\n'),
}
_ETAG = '"1-42-5f0c2d8a61b3e97f40aa"'
_HEADERS = {
    "Livejoin-Version": "42",
    "Livejoin-Empty": "false",
    "ETag": _ETAG,
    "Accept-Ranges": "bytes",
    "Content-Disposition": 'inline; filename="clashes.parquet"',
}
_PART_HEADERS = {**_HEADERS, "Content-Range": "bytes 0-1023/146515", "Content-Length": "1024"}
_CONDITIONS = [
    header_parameter("If-Match", "only this version; `412` if it is no longer kept and the rows have changed", _ETAG),
    header_parameter("If-None-Match", "not this version: `304` if it is the newest one", '"1-41-0b4d90ce17aa26f3818e"'),
    header_parameter("If-Range", "the range counts only for this version; else the whole file is sent", _ETAG),
    header_parameter("Range", "one range of bytes", "bytes=0-1023"),
]
_FAILURES = ("bad-parameter", "not-found", "snapshot-expired", "range-changed", "disk-full")


def _add(suffix: str) -> None:
    """Add the files of views and of relations with this suffix."""

    async def view_file(request: ServiceRequest, name: ViewName, query: Annotated[ViewFileParameters, Query()]) -> Response:
        context = request.context
        request.require_view(name)
        asked = of_view(context, name, query, query.version, query.limit, None, query.column_names)
        return await File(request, asked, context.engine.view(name), suffix).answer()

    async def relation_file(request: ServiceRequest, name: RelationName, query: Annotated[RelationFileParameters, Query()]) -> Response:
        context = request.context
        request.require_relation(name)
        asked = of_relation(context, name, query, query.version, query.limit, None, query.column_names)
        return await File(request, asked, context.engine.relation(name), suffix).answer()

    not_modified = answer(304, "not modified", None, _HEADERS)
    for noun, handler, own in (("view", view_file, ("view-building", "view-failed")), ("relation", relation_file, ())):
        path, title = f"/v1/{noun}s/{{name}}/rows.{suffix}", f"the rows of a {noun} as a file"
        routes.get(
            path,
            operation_id=f"{noun}Rows{suffix.title()}",
            summary=f"Read {title}: .{suffix}",
            description="The file contains one version. For a range, it is first written to disk, and kept while it is read "
            "(`--spool-idle`), so all parts are of the same version, whatever changes meanwhile.",
            openapi_extra={"parameters": _CONDITIONS},
            responses={
                **answer(200, "the file", _CONTENT[suffix], _HEADERS),
                **answer(206, "the requested range", _CONTENT[suffix], _PART_HEADERS),
                **not_modified,
                **failures(*_FAILURES, *own, "unsatisfiable-range"),
            },
        )(handler)
        routes.head(
            path,
            operation_id=f"{noun}Rows{suffix.title()}Head",
            summary=f"Get the length and the ETag of {title}: .{suffix}",
            openapi_extra={"parameters": _CONDITIONS[:2]},
            responses={
                **answer(200, "length and ETag", None, _HEADERS | {"Content-Length": "146515"}),
                **not_modified,
                **failures(*_FAILURES, *own),
            },
        )(handler)


for _suffix in FILES:
    _add(_suffix)
