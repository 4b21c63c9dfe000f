"""Requests to one service: its refusals and the connection's failures as exceptions, and what may be repeated repeated."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from math import inf
from os import PathLike
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import orjson

from livejoin.problems import BadAddress, LivejoinError, NotLivejoin, Problem, Unreachable, problem_of_answer
from livejoin.receipts import Receipt
from livejoin.retries import pause_after, pauses
from livejoin.trust import is_distrust, trusted

T = TypeVar("T")

JSON = "application/json"
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=20)  # each open follower has a connection
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
log = logging.getLogger("livejoin.client")


class AsyncHttp:
    """The connections to one service. Parameters as of `livejoin.connect`."""

    def __init__(self, url: str, token: str | None, ca: str | PathLike[str] | None, patience: float, timeout: float, reader: str) -> None:
        self.url = url.rstrip("/")
        self.patience = patience
        self.was_there = False  # whether anything has ever answered
        headers = {"Accept-Encoding": "identity", "User-Agent": "livejoin-client"}
        if reader:
            headers["Livejoin-Reader"] = quote(reader)
        token = (token or "").strip()
        if not all("!" <= character <= "~" for character in token):
            raise ValueError("the token is not a valid one: it has characters that are not visible ASCII")
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            address = httpx.URL(self.url)
        except httpx.InvalidURL:
            address = httpx.URL()
        if address.userinfo:
            raise BadAddress("the address of the service must not contain a user name or a password: give a token")
        if address.scheme not in ("http", "https") or not address.host:
            raise BadAddress(f"{url!r} is not the address of a service: it should look like http://127.0.0.1:8080")
        self._connect_timeout = min(5.0, timeout)
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            timeout=self._timeout(timeout),
            limits=_LIMITS,
            trust_env=False,  # a proxy for the outside world must not come between us and the service
            verify=address.scheme == "https" and trusted(ca),  # certificates, whose reading takes 40 ms
        )

    def _timeout(self, seconds: float) -> httpx.Timeout:
        return httpx.Timeout(seconds, connect=self._connect_timeout, pool=self._connect_timeout)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def json(self, method: str, path: str, body: Any = None, *, having: str | None = None, **options: Any) -> dict[str, Any]:
        """The JSON object in an answer, to a body of JSON or to none. Raises NotLivejoin for anything else, also without the member
        `having`."""
        if body is not None:
            options |= {"content": orjson.dumps(body), "media_type": JSON}
        answer = await self.call(method, path, **options)
        try:
            value = orjson.loads(answer.content)
        except orjson.JSONDecodeError:
            value = None
        if not isinstance(value, dict) or (having is not None and having not in value):
            raise NotLivejoin(self.url)
        return value

    async def post_changes(self, path: str, body: Any = None, **options: Any) -> Receipt:
        """POST of changes: JSON, or `content` in a `media_type`."""
        answer = await self.json("POST", path, body, **options)
        try:
            return Receipt.of(answer)
        except KeyError as error:
            raise NotLivejoin(self.url) from error

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
        media_type: str | None = None,
        repeatable: bool = False,
    ) -> httpx.Response:
        """A whole answer. Raises Problem, Unreachable."""
        if media_type is not None and not (media_type.isascii() and media_type.isprintable()):
            raise ValueError(f"{media_type!r} is not a media type")
        headers = {} if media_type is None else {"Content-Type": media_type}
        request = self._http.build_request(method, path, params=params, headers=headers, content=content)

        async def once() -> httpx.Response:
            async with self._reaching():
                response = await self._http.send(request)
            self._require_success(response.status_code, response.reason_phrase, response.content, response.headers.get("Retry-After"))
            return response

        return await self._patiently(once, repeatable or method == "GET", self.patience)

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        params: Mapping[str, str],
        accept: str,
        *,
        question: Mapping[str, Any] | None = None,
        quiet: float | None = None,
        patience: float | None = None,
    ) -> AsyncIterator[httpx.Response]:
        """The answer to a GET, or to a POST that asks a `question` and changes nothing, while it comes; only its beginning is repeated.
        `quiet`: seconds without a byte after which it is broken."""
        timeout = httpx.USE_CLIENT_DEFAULT if quiet is None else self._timeout(quiet)
        headers, method = {"Accept": accept}, "GET" if question is None else "POST"
        content = None if question is None else orjson.dumps(question)
        if content is not None:
            headers["Content-Type"] = JSON
        request = self._http.build_request(method, path, params=params, headers=headers, content=content, timeout=timeout)

        async def once() -> httpx.Response:
            async with self._reaching():
                response, content = await self._http.send(request, stream=True), b""
                if not response.is_success:
                    try:
                        content = await response.aread()
                    finally:
                        await response.aclose()
            self._require_success(response.status_code, response.reason_phrase, content, response.headers.get("Retry-After"))
            if not response.headers.get("Content-Type", "").startswith(accept):
                await response.aclose()
                raise NotLivejoin(self.url)
            return response

        response = await self._patiently(once, True, self.patience if patience is None else patience)
        try:
            yield response
        finally:
            await response.aclose()

    async def blocks(self, response: httpx.Response) -> AsyncIterator[bytes]:
        """The body of a streamed answer as it comes. Raises Unreachable."""
        async with self._reaching():
            async for block in response.aiter_bytes():
                yield block

    def _require_success(self, status: int, reason: str, content: bytes, retry_after: str | None) -> None:
        self.was_there = True
        if not 200 <= status < 300:
            raise problem_of_answer(status, reason, content, retry_after, self.url)

    async def _patiently(self, once: Callable[[], Awaitable[T]], repeatable: bool, patience: float) -> T:
        until = monotonic() + patience
        waits, emitted = pauses(), False
        while True:
            try:
                return await once()
            except LivejoinError as error:
                # Who waits without end has a token, so the address was right.
                seconds = pause_after(error, next(waits), repeatable, self.was_there or patience == inf)
                if seconds is None or monotonic() + seconds > until:
                    raise
                if not emitted:
                    said = error.detail or error.title if isinstance(error, Problem) else error
                    log.info("waiting: %s", said)
                    emitted = True
            await asyncio.sleep(seconds)

    @asynccontextmanager
    async def _reaching(self) -> AsyncIterator[None]:
        try:
            yield
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> Unreachable:
        reason = str(error) or type(error).__name__
        if is_distrust(error):
            remedy = "give the file of the CA that signs it (--ca, LIVEJOIN_CA), or use a name that it is issued for"
            return Unreachable(f"the certificate of the service at {self.url} is not trusted ({reason}): {remedy}", reason, sent=False)
        if isinstance(error, _UNSENT):
            remedy = "start one with `livejoin serve --data DIR`, or correct the address"
            if "WRONG_VERSION_NUMBER" in reason:
                remedy = "it does not speak TLS, so its address begins with http://"
            return Unreachable(f"no service answers at {self.url} ({reason}): {remedy}", reason, sent=False)
        if isinstance(error, httpx.TimeoutException):
            return Unreachable(f"the service at {self.url} does not respond any more: check that it runs, and try again", reason, sent=True)
        remedy = "try again"
        if not self.was_there and self.url.startswith("http://"):
            remedy += "; if the service has TLS, its address begins with https://"
        return Unreachable(f"the connection to {self.url} broke ({reason}): the answer is not complete, {remedy}", reason, sent=True)
