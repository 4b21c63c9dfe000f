"""The service as the job knows it: relation definitions out, batches in, over HTTP."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection
from typing import Any

import httpx

from service.wire.schema import RelationDefinition, parse_relation
from streaming.errors import StreamError
from streaming.metrics import Metrics
from streaming.patience import Patience

_ARROW = "application/vnd.apache.arrow.stream"
_WAIT_OUT = (429, 502, 503, 504)  # the two between are a proxy's words for a service that is away
# A batch that the service is still at after this is sent again; its epoch makes that harmless.
_TIMEOUT = httpx.Timeout(300, connect=5)
# A stream that says nothing for so long is broken: progress comes every 15 s.
_QUIET = httpx.Timeout(45, connect=5)
_LONGEST_RETRY_AFTER = 30.0


def http_client(url: str, timeout: httpx.Timeout) -> httpx.Client:
    """For a service, with the token of LIVEJOIN_TOKEN if there is one."""
    token = os.environ.get("LIVEJOIN_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    # trust_env off: a proxy for the world outside has no business between us and the service.
    return httpx.Client(base_url=url, headers=headers, timeout=timeout, trust_env=False)


class TooLarge(StreamError):
    """A batch with more bytes than the service takes."""


class SourceTaken(StreamError):
    """The service knows the source from another run."""


class ServiceClient:
    """Talks to one service. A service that is away, busy or not ready yet is waited for, until `stop` is set (Stopped)."""

    def __init__(self, url: str, stop: threading.Event, metrics: Metrics) -> None:
        self._http = http_client(url, _TIMEOUT)
        self._url = url
        self._stop = stop
        self._metrics = metrics

    def definitions(self, relations: Collection[str]) -> dict[str, RelationDefinition]:
        """The relations' definitions, by one request, 2 ms; raises StreamError when the service lacks one, Stopped."""
        told = self._expect_success(self._send("GET", "/v1/relations"))
        if "relations" not in told:
            raise StreamError(stranger(self._url))
        there = {data["name"]: data for data in told["relations"]}
        for relation in relations:
            if relation not in there:
                register = f"register it (PUT /v1/relations/{relation}), then start again"
                raise StreamError(f"the service at {self._url} has no relation {relation}: {register}")
        return {name: definition_in(there[name]) for name in relations}

    def post(self, body: bytes, source: str, epoch: int, run: str, reset: bool) -> dict[str, Any]:
        """Sends one batch (Arrow streams); returns the receipt when it is on the service's disk.

        Every change is judged already, so a bad row is a failure. Raises SourceTaken, TooLarge, StreamError for any other refusal,
        Stopped.
        """
        parameters = {"source": source, "epoch": str(epoch), "run": run, "on_error": "reject"}
        if reset:
            parameters["reset"] = "true"
        answer = self._send("POST", "/v1/changes", params=parameters, content=body, headers={"Content-Type": _ARROW})
        if answer.status_code == 409 and problem_of(answer).get("type") == "/problems/source-reset":
            raise SourceTaken(describe(answer))
        if answer.status_code == 413:
            raise TooLarge(describe(answer))
        return self._expect_success(answer)

    def changes(self, view: str, parameters: dict[str, str]) -> httpx.Response:
        """The stream of a view's changes, open, to be closed by the caller; or the whole answer that says why there is none.

        Raises StreamError for another server than livejoin, Stopped.
        """
        answer = self._send("GET", f"/v1/views/{view}/changes", stream=True, params=parameters, timeout=_QUIET)
        if answer.is_success and not answer.headers.get("Content-Type", "").startswith("application/jsonl"):
            answer.close()
            raise StreamError(stranger(self._url))
        return answer

    def close(self) -> None:
        self._http.close()

    def _send(self, method: str, path: str, stream: bool = False, **options: Any) -> httpx.Response:
        patience = Patience(self._stop, self._metrics, "service")
        while True:
            try:
                answer = self._http.send(self._http.build_request(method, path, **options), stream=stream)
                if not answer.is_success:
                    answer.read()
            except httpx.TransportError as error:
                patience.wait(f"the service at {self._url} is not there ({str(error) or type(error).__name__})")
                continue
            if answer.status_code not in _WAIT_OUT:
                return answer
            asked = answer.headers.get("Retry-After", "")
            seconds = min(float(asked), _LONGEST_RETRY_AFTER) if asked.isdigit() else 0.0
            patience.wait(f"the service is not ready for this ({describe(answer)})", seconds)

    def _expect_success(self, answer: httpx.Response) -> dict[str, Any]:
        if not answer.is_success:
            raise StreamError(f"the service refused {answer.request.method} {answer.request.url.path}: {describe(answer)}")
        data = problem_of(answer)
        if not data:
            raise StreamError(stranger(self._url))
        return data


def stranger(url: str) -> str:
    """The sentence for a server that is another one, as on a mistaken port."""
    return f"what answers at {url} is not livejoin: is service.url right?"


def definition_in(relation: dict[str, Any]) -> RelationDefinition:
    """The definition in what the service says of a relation."""
    return parse_relation({key: relation[key] for key in ("columns", "key", "intervals") if key in relation})


def problem_of(answer: httpx.Response) -> dict[str, Any]:
    """The problem document of an answer; empty when it is none."""
    try:
        data = answer.json()
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def describe(answer: httpx.Response) -> str:
    problem = problem_of(answer)
    text = f"{answer.status_code} {problem.get('title', answer.reason_phrase)}"
    if detail := problem.get("detail"):
        text += f": {detail}"
    for error in problem.get("errors", [])[:1]:
        text += f" (first: {error.get('column')}: {error.get('reason')})"
    return text
