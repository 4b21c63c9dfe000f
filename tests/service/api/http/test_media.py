"""Negotiation, both ways."""

from __future__ import annotations

import pytest

from service.api.app import ROUTES
from service.api.http import media
from service.errors import Problem

OFFERED = (media.JSONL, media.JSON, media.CSV)


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, media.JSONL),
        ("", media.JSONL),
        ("*/*", media.JSONL),
        ("application/*", media.JSONL),
        ("application/json", media.JSON),
        ("APPLICATION/JSON; charset=utf-8", media.JSON),
        ("text/csv;q=0.5, application/json;q=0.4", media.CSV),
        ("application/jsonl;q=0, */*", media.JSON),
        ("application/*;q=0.2, text/*;q=0.3", media.CSV),
        ("text/html, application/xhtml+xml, */*;q=0.8", media.JSONL),
        ("application/json;q=0.5, application/*;q=0.9", media.JSONL),
        ("text/csv;q=bad, application/json", media.JSON),
        ("nonsense, application/json", media.JSON),
    ],
)
def test_negotiate(accept: str | None, chosen: str) -> None:
    assert media.negotiate(accept, OFFERED) == chosen


@pytest.mark.parametrize("accept", ["image/png", "application/json;q=0", "*/*;q=0", "application/x-ndjson", "nonsense"])
def test_not_acceptable_lists_what_is(accept: str) -> None:
    with pytest.raises(Problem) as caught:
        media.negotiate(accept, OFFERED)
    assert caught.value.type == "not-acceptable"
    assert caught.value.extensions["available"] == list(OFFERED)


@pytest.mark.parametrize(
    "given", ["application/json", "application/JSON", "application/json; charset=UTF-8", 'application/json;charset="utf-8"']
)
def test_content_type(given: str) -> None:
    assert media.content_type({b"content-type": given.encode()}, OFFERED) == media.JSON


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"content-type", b"text/plain")],
        [(b"content-type", b"application/json; charset=latin-1")],
    ],
)
def test_unsupported_media_type_lists_what_is(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(Problem) as caught:
        media.content_type(media.fields_of(headers), OFFERED)
    assert caught.value.type == "unsupported-media-type"
    assert caught.value.extensions["supported"] == list(OFFERED)


@pytest.mark.parametrize("encoding", [b"gzip", b"br, gzip", b""])
def test_no_encoding_is_taken(encoding: bytes) -> None:
    """Seen: the answer to gzip listed media types, as if another one would help."""
    for kind in (b"application/json", b"text/plain"):
        with pytest.raises(Problem) as caught:
            media.content_type({b"content-type": kind, b"content-encoding": encoding}, OFFERED)
        assert caught.value.type == "unsupported-media-type" and "without a content encoding" in caught.value.detail
        assert caught.value.extensions == {} and caught.value.headers == {"Accept-Encoding": "identity"}
    assert media.content_type({b"content-type": b"application/json", b"content-encoding": b"Identity"}, OFFERED) == media.JSON


@pytest.mark.parametrize("kind", [b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=x", b"text/plain"])
def test_what_a_form_can_send(kind: bytes) -> None:
    """A browser sends these from any page without asking: no operation accepts them. The types of all are those of the OpenAPI document."""
    accepted = {of for route in ROUTES for of in (route.openapi_extra or {}).get("requestBody", {}).get("content", {})}
    assert len(accepted) > 5
    with pytest.raises(Problem) as refused:
        media.content_type({b"content-type": kind}, tuple(accepted))
    assert refused.value.type == "unsupported-media-type"
    with pytest.raises(Problem):
        media.content_type({}, tuple(accepted))
