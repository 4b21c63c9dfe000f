"""The promises of the OpenAPI document, checked with a real service: requests that schemathesis generates from it, and chains of them along
its links. Each answer has a documented status and type, and conforms to its schema."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.errors import FlakyStrategyDefinition
from hypothesis.stateful import run_state_machine_as_test

from service.api.http import media
from tests.end_to_end import talk
from tests.server_process import ServerProcess

_RAW = (media.JSONL, media.NDJSON, media.CSV, media.ARROW, media.PARQUET, media.DEBEZIUM)


def _as_it_is(context: Any, value: Any) -> bytes:
    """Bodies that are already text or bytes."""
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("links") / "data") as process:
        yield process


def chain(server: ServerProcess, rounds: int, **chosen: Any) -> None:
    """Run this number of rounds of chains of requests; `chosen` are settings of Hypothesis for each."""
    import schemathesis  # takes half a second, and the other tests do not need it
    from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

    schemathesis.serializer(*_RAW)(_as_it_is)
    checks = [status_code_conformance, content_type_conformance, response_schema_conformance]
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    calls = 0

    class Chains(schema.as_state_machine()):  # type: ignore[misc]
        def before_call(self, case: Any) -> None:
            if case.operation.path.endswith("/changes") and case.operation.method == "get":
                case.query = {**(case.query or {}), "wait": 0}  # otherwise, the answer has no end
            if case.operation.path == "/v1/backup" and isinstance(case.body, dict):
                case.body["target"] = str(server.data / "backup")  # refused: no folder may be created on this machine

        def get_call_kwargs(self, case: Any) -> dict[str, Any]:
            return {"timeout": 60}

        def validate_response(self, response: Any, case: Any, **others: Any) -> None:
            nonlocal calls
            calls += 1
            assert response.status_code < 500 or response.status_code == 503, response.text
            case.validate_response(response, checks=checks)

    for _ in range(rounds):
        # A service keeps its state, so the same choices may find other links, which ends the round early.
        with suppress(FlakyStrategyDefinition):
            run_state_machine_as_test(Chains, settings=settings(suppress_health_check=list(HealthCheck), deadline=None, **chosen))
    assert calls > rounds * chosen["max_examples"]
    talk.ok(server.client().get("/readyz"))
    assert "Traceback" not in server.output() and " failed" not in server.output(), server.output()[-5000:]


def test_chains(server: ServerProcess) -> None:
    chain(server, 1, max_examples=8, stateful_step_count=8, derandomize=True)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_chains_for_long(server: ServerProcess) -> None:
    """LIVEJOIN_CHAINS chains (2,000) that have never been tried, in rounds of 20."""
    rounds = int(os.environ.get("LIVEJOIN_CHAINS") or 2000) // 20
    chain(server, rounds, max_examples=20, stateful_step_count=20, derandomize=False, database=None)
