"""Responses that are produced while they are sent: a thread makes chunks, one ahead of the socket.

A response that cannot be completed is aborted: the ASGI application returns without its last message, upon which uvicorn closes the
connection without ending the chunked encoding (the client sees that the body is incomplete).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any, Protocol

from starlette.responses import Response

from livejoin.wire.rows import Pieces
from service.api.context import Context
from service.api.http.answers import PIECES, TAKEN
from service.api.http.bodies import Receive, Scope, Send
from service.errors import Problem

log = logging.getLogger("livejoin.api")

_SMALL = 1 << 16  # bytes; a smaller last chunk is copied, and sent with the end of the body

Chunk = tuple[Pieces, bool]  # the next bytes (perhaps none yet), and whether more will follow


class Closable(Protocol):
    def close(self) -> None: ...


class Source(Closable, Protocol):
    """Produces the chunks, one call at a time, in any thread."""

    def step(self) -> Chunk:
        """Return the next chunk. A Problem aborts the response."""
        ...

    def touch(self) -> None:
        """The client has received some of the data: keep what the source holds for it. In the event loop, also after `close`."""
        ...


class StreamedResponse(Response):
    """A response in pieces. The first has been made already, so that an immediate error still becomes a proper problem. `rest` is called
    like `Source.touch`, and also after the source has ended, as long as the client has not received everything."""

    rest: Callable[[], None] | None = None

    def __init__(self, context: Context, first: Chunk, kind: str, headers: Mapping[str, str], status: int = 200) -> None:
        super().__init__(None, status, headers, kind)
        if "Content-Length" not in headers:
            del self.headers["content-length"]
        self._context, self._first = context, first

    def _begin(self) -> asyncio.Future[Chunk]:
        """Begin to make the next bytes (perhaps none yet), returned with whether more will follow. A Problem aborts the response."""
        raise NotImplementedError

    def _release(self, job: asyncio.Future[Chunk]) -> None:
        """Release the source of the pieces; `job`: the last step begun, which may still be running."""
        raise NotImplementedError

    def _touch(self) -> None:
        """Like `Source.touch`."""
        if self.rest is not None:
            self.rest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(client_gone(receive))
        job: asyncio.Future[Chunk] = self._context.loop.create_future()
        job.set_result(self._first)
        self._context.track()
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers, TAKEN: self._touch})
            more = True
            while more:
                if not job.done():
                    await asyncio.wait((job, gone), return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    return
                body, more = job.result()
                if more:
                    job = self._begin()
                if more or sum(map(len, body)) > _SMALL:
                    if body:
                        await send({"type": PIECES, "pieces": body, "more_body": True})
                    body = []
                if not more:
                    await send({"type": "http.response.body", "body": b"".join(body), "more_body": False, TAKEN: self.rest})
        except asyncio.CancelledError:
            if not self._context.closing:
                raise
        except Problem as problem:
            log.info("%s aborted: %s", scope["path"], problem.type)  # the detail may contain values of rows
        except Exception:
            log.exception("%s aborted", scope["path"])
        finally:
            gone.cancel()
            self._release(job)


class Stream(StreamedResponse):
    """The response of a source."""

    def __init__(
        self,
        context: Context,
        pool: Executor,
        source: Source,
        first: Chunk,
        kind: str,
        headers: Mapping[str, str],
        status: int = 200,
    ) -> None:
        super().__init__(context, first, kind, headers, status)
        self._pool, self._source = pool, source

    def _begin(self) -> asyncio.Future[Chunk]:
        return self._context.loop.run_in_executor(self._pool, self._source.step)

    def _release(self, job: asyncio.Future[Chunk]) -> None:
        release(self._pool, job, self._source)

    def _touch(self) -> None:
        super()._touch()
        self._source.touch()


def release(pool: Executor, job: asyncio.Future[Any], source: Closable) -> None:
    """Close the source in a thread, once its current step, if any, has ended."""
    job.add_done_callback(lambda ended: (ended.cancelled() or ended.exception(), pool.submit(source.close)))


async def client_gone(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
