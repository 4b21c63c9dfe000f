"""The ids of requests: in every answer, and those of others if they are sane."""

from __future__ import annotations

import pytest

from service.api.context import Context
from service.settings import Settings
from tests.service.api.asking import ask


@pytest.mark.parametrize("given", ["a", "req-1.2_3:4/5+6=@7", "x" * 128])
def test_a_sane_one_is_kept(given: str) -> None:
    assert ask("GET", "/livez", headers={"X-Request-Id": given}).headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "a\tb", "ä", "[x]", '"', "a,b", "%0a"])
def test_another_is_replaced(given: str) -> None:
    own = ask("GET", "/livez", headers=[(b"X-Request-Id", given.encode())]).headers.get_list("x-request-id")
    assert len(own) == 1 and own[0] and own[0] != given


def test_two_are_replaced() -> None:
    answer = ask("GET", "/livez", headers=[("X-Request-Id", "a"), ("X-Request-Id", "b")])
    assert answer.headers["x-request-id"] not in ("a", "b", "a, b")


def test_every_answer_has_its_own() -> None:
    answers = [
        ask("GET", "/livez"), ask("GET", "/nothing"), ask("POST", "/livez"), ask("GET", "/v1/views"), ask("POST", "/v1/changes"),
        ask("GET", "/livez", headers={"Host": "evil.example"}), ask("HEAD", "/livez"),
    ]  # fmt: skip
    assert {answer.status_code for answer in answers} == {200, 403, 404, 405, 503}
    assert len({answer.headers["x-request-id"] for answer in answers}) == len(answers)


def test_two_services_give_different_ones() -> None:
    assert len({ask("GET", "/livez", Context(Settings())).headers["x-request-id"] for _ in range(5)}) == 5
