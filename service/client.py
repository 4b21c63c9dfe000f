"""An HTTP client of the service's own REST interface, as the commands and the demo use it.

It speaks `/v1`, turns problems into `Refused` and connection trouble into `Unreachable`, and waits out what is
temporary (`429`, `503` with Retry-After). Streams are cut at newlines only: JSON text may hold U+2028 and its kind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx
import orjson

JSONL = "application/jsonl"
QUIET = 45.0  # seconds without a byte, then a followed stream counts as broken: progress comes every 15 s


class ClientError(Exception):
    """What a command tells its user when the service did not do what was asked."""


class NoAddress(ClientError):
    """What was given as the service's address is none."""


class Unreachable(ClientError):
    """No connection, or one that broke off before the answer was whole."""


class Refused(ClientError):
    """The service answered with a problem."""

    def __init__(self, response: httpx.Response) -> None:
        try:
            problem = orjson.loads(response.content)
        except orjson.JSONDecodeError:
            problem = {}
        if not isinstance(problem, dict):
            problem = {}
        self.status = response.status_code
        self.type = str(problem.get("type", "")).rpartition("/")[2]
        self.title = str(problem.get("title", f"the service answered {response.status_code}"))
        self.detail = str(problem.get("detail", ""))
        self.problem: dict[str, Any] = problem
        self.retry_after = _seconds(response.headers.get("Retry-After"))
        asked = f"{response.request.method} {response.request.url}"
        super().__init__(f"{self.type}: {self.detail}" if self.type else f"{self.title} to {asked}")

    @property
    def temporary(self) -> bool:
        return self.status in (429, 503) and self.retry_after is not None


class Client:
    """One service, by its address. Not for use by several threads at once.

    `patience` is how many seconds a temporary refusal is waited out; `waiting` is told of it once a call.
    """

    def __init__(self, url: str, *, patience: float = 300.0, waiting: Callable[[Refused], None] = lambda _: None) -> None:
        self.url = url.rstrip("/")
        self._patience = patience
        self._waiting = waiting
        # trust_env off: a proxy of the user's has no business between us and a service on loopback.
        self._http = httpx.Client(
            base_url=self.url,
            timeout=httpx.Timeout(600.0, connect=5.0, pool=5.0),
            trust_env=False,
            headers={"Accept-Encoding": "identity", "User-Agent": "livejoin"},
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # -- relations and changes

    def relation(self, name: str) -> dict[str, Any] | None:
        """The relation as registered, with `rows`; None if there is none."""
        return self._get_or_none(f"/v1/relations/{quote(name, safe='')}")

    def put_relation(self, name: str, definition: Mapping[str, Any]) -> None:
        self._call("PUT", f"/v1/relations/{quote(name, safe='')}", json=definition)

    def post_changes(self, changes: list[dict[str, Any]]) -> dict[str, Any]:
        """One batch over any relations; the receipt."""
        return self._json(self._call("POST", "/v1/changes", json={"changes": changes}))

    def post_rows(self, relation: str, media_type: str, body: bytes) -> dict[str, Any]:
        """Rows (or changes, with `_op`) of one relation; good rows are applied, the bad ones come back in the receipt."""
        path = f"/v1/relations/{quote(relation, safe='')}/changes"
        return self._json(self._call("POST", path, body=body, media_type=media_type, params={"on_error": "skip"}))

    # -- views

    def put_view(self, name: str, definition: Mapping[str, Any]) -> dict[str, Any]:
        """Registers a view; comes back at once, maybe with `state` still `building`."""
        return self._json(self._call("PUT", f"/v1/views/{quote(name, safe='')}", json=definition))

    def view(self, name: str) -> dict[str, Any] | None:
        return self._get_or_none(f"/v1/views/{quote(name, safe='')}")

    def explain(self, definition: Mapping[str, Any]) -> dict[str, Any]:
        return self._json(self._call("POST", "/v1/explain", json=definition))

    def count(self, view: str) -> tuple[int, int]:
        """(version, rows)."""
        answer = self._json(self._call("GET", f"/v1/views/{quote(view, safe='')}/count"))
        return int(answer["version"]), int(answer["count"])

    @contextmanager
    def rows(self, view: str, params: Mapping[str, str]) -> Iterator[httpx.Response]:
        """The streamed answer of a view's rows as JSON lines; use `chunks` or `lines` on it inside the block."""
        with self._stream(f"/v1/views/{quote(view, safe='')}/rows", params, httpx.USE_CLIENT_DEFAULT) as response:
            yield response

    def changes(self, view: str, params: Mapping[str, str]) -> Iterator[bytes]:
        """The records of one connection to a view's changes, a line each; ends or raises with the connection."""
        quiet = httpx.Timeout(QUIET, connect=5.0, pool=5.0)
        with self._stream(f"/v1/views/{quote(view, safe='')}/changes", params, quiet) as response:
            yield from lines(response)

    # -- health

    def readiness(self) -> tuple[bool, dict[str, Any]]:
        """Whether the service takes requests, and what `/readyz` says besides (`progress`, `detail`)."""
        with _reaching(self.url):
            response = self._http.get("/readyz")
        try:
            body = orjson.loads(response.content)
        except orjson.JSONDecodeError:
            body = {}
        return response.status_code == 200, body if isinstance(body, dict) else {}

    # -- underneath

    def _get_or_none(self, path: str) -> dict[str, Any] | None:
        try:
            return self._json(self._call("GET", path))
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    @staticmethod
    def _json(response: httpx.Response) -> dict[str, Any]:
        value = orjson.loads(response.content)
        if not isinstance(value, dict):
            raise ClientError(f"{response.request.url} did not answer as a livejoin service: is this its address?")
        return value

    def _call(
        self,
        method: str,
        path: str,
        *,
        json: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        media_type: str = "application/json",
        params: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        content = orjson.dumps(json) if json is not None else body
        headers = {"Content-Type": media_type} if content is not None else {}

        def once() -> httpx.Response:
            with _reaching(self.url):
                response = self._http.request(method, path, content=content, params=params, headers=headers)
            if response.is_error:
                raise Refused(response)
            return response

        return self._patiently(once)

    @contextmanager
    def _stream(self, path: str, params: Mapping[str, str], timeout: Any) -> Iterator[httpx.Response]:
        def once() -> httpx.Response:
            request = self._http.build_request("GET", path, params=params, headers={"Accept": JSONL}, timeout=timeout)
            with _reaching(self.url):
                response = self._http.send(request, stream=True)
                if response.is_error:
                    response.read()
                    response.close()
                    raise Refused(response)
            return response

        response = self._patiently(once)
        try:
            with _reaching(self.url):
                yield response
        finally:
            response.close()

    def _patiently(self, once: Callable[[], httpx.Response]) -> httpx.Response:
        deadline = time.monotonic() + self._patience
        told = False
        while True:
            try:
                return once()
            except Refused as refused:
                if not refused.temporary or time.monotonic() >= deadline:
                    raise
                if not told:
                    self._waiting(refused)
                    told = True
                time.sleep(min(refused.retry_after or 1.0, 5.0))


def chunks(response: httpx.Response) -> Iterator[bytes]:
    """The body in whole lines, several at a time, as they arrive."""
    rest = b""
    for block in response.iter_bytes():
        cut = block.rfind(b"\n") + 1
        if not cut:
            rest += block
            continue
        yield rest + block[:cut]
        rest = block[cut:]
    if rest:
        yield rest + b"\n"


def lines(response: httpx.Response) -> Iterator[bytes]:
    """The body's lines, without their ends."""
    for chunk in chunks(response):
        yield from chunk[:-1].split(b"\n")


@contextmanager
def _reaching(url: str) -> Iterator[None]:
    """Speaks of transport trouble in our own words."""
    try:
        yield
    except httpx.ConnectError as error:
        remedy = "start one with `livejoin serve --data DIR`, or name its address with --url"
        raise Unreachable(f"no service answers at {url}: {remedy}") from error
    except httpx.TimeoutException as error:
        raise Unreachable(f"the service at {url} has gone silent: see whether it still runs, and try again") from error
    except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        raise NoAddress(f"{url!r} is not an address: it should look like http://127.0.0.1:8080") from error
    except (httpx.TransportError, httpx.StreamError) as error:
        raise Unreachable(f"the connection to {url} broke off ({type(error).__name__}): the answer is not whole, try again") from error


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return 1.0
