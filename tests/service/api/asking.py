"""Asking the application in this process, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from service.api.app import create_app
from service.api.context import Context
from service.api.http.answers import PIECES, WHOLE
from service.errors import CATALOGUE
from service.settings import Settings


@asynccontextmanager
async def client(context: Context) -> AsyncIterator[httpx.AsyncClient]:
    context.attach(asyncio.get_running_loop(), context._requests)
    transport = httpx.ASGITransport(_standard(create_app(context)))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as made:
        yield made


def _standard(app: Any) -> Any:
    """The application for a server that does not know `WHOLE` and `PIECES`."""

    async def called(scope: Any, receive: Any, send: Any) -> None:
        async def sent(message: Any) -> None:
            if message["type"] == WHOLE:
                fields = [tuple(line.split(b": ", 1)) for line in message["head"].split(b"\r\n")[:-1]]
                await send({"type": "http.response.start", "status": message["status"], "headers": fields})
                message = {"type": "http.response.body", "body": message["body"]}
            elif message["type"] == PIECES:
                message = {"type": "http.response.body", "body": b"".join(message["pieces"]), "more_body": True}
            await send(message)

        await app(scope, receive, sent)

    return called


def ask(method: str, path: str, context: Context | None = None, **arguments: Any) -> httpx.Response:
    async def run() -> httpx.Response:
        async with client(context or Context(Settings())) as asked:
            return await asked.request(method, path, **arguments)

    return asyncio.run(run())


def is_problem(response: httpx.Response, kind: str) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["type"] == f"/problems/{kind}", body
    assert body["status"] == response.status_code == CATALOGUE[kind].status
    assert body["title"] and body["detail"]
    return body
