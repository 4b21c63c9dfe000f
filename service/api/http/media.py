"""Media types: those that a client accepts, and that of the request's body (RFC 9110, sections 8.3 and 12.5.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from livejoin.wire.errors import cut
from service.errors import Problem

JSON = "application/json"
JSONL = "application/jsonl"
NDJSON = "application/x-ndjson"
CSV = "text/csv"
ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
DEBEZIUM = "application/vnd.debezium+jsonl"
SSE = "text/event-stream"
PROBLEM = "application/problem+json"
HTML = "text/html"
TEXT = "text/plain"

Fields = Mapping[bytes, bytes]
"""The header fields of a request by lower-case name. The protocol keeps them in the scope, as `fields`."""


def fields_of(headers: Sequence[tuple[bytes, bytes]]) -> Fields:
    """Return the fields; the values of a field that appears several times are joined by commas (RFC 9110, section 5.3)."""
    found = dict(headers)
    if len(found) < len(headers):
        found = {}
        for name, value in headers:
            found[name] = found[name] + b", " + value if name in found else value
    return found


@lru_cache(256)
def _ranges(accept: str) -> tuple[tuple[str, str, float], ...]:
    """Return the media ranges of an Accept header: (type, subtype, q). Invalid parts are ignored."""
    ranges = []
    for part in accept.split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        kind, slash, subtype = media.lower().partition("/")
        if not (slash and kind and subtype) or (kind == "*" and subtype != "*"):
            continue
        quality = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "q":
                try:
                    quality = float(value)
                except ValueError:
                    quality = -1.0
        if 0.0 <= quality <= 1.0:
            ranges.append((kind, subtype, quality))
    return tuple(ranges)


def _quality(media: str, ranges: Sequence[tuple[str, str, float]]) -> float:
    """Return the q of the most specific range that covers this media type; 0 if none does."""
    kind, _, subtype = media.partition("/")
    best, found = -1, 0.0
    for range_kind, range_subtype, quality in ranges:
        if range_kind not in ("*", kind) or range_subtype not in ("*", subtype):
            continue
        specificity = (range_kind != "*") + (range_subtype != "*")
        if specificity > best or (specificity == best and quality > found):
            best, found = specificity, quality
    return found


def negotiate(accept: str | None, offered: Sequence[str]) -> str:
    """Return the offered media type that the client prefers, the first if there are several. Problem `not-acceptable` with the list."""
    if accept is None or not accept.strip():
        return offered[0]
    ranges = _ranges(accept)
    best = max(offered, key=lambda media: _quality(media, ranges))  # max returns the first of equals
    if _quality(best, ranges) <= 0.0:
        raise Problem("not-acceptable", f"Accept: {accept} matches none of {', '.join(offered)}", available=list(offered))
    return best


def content_type(fields: Fields, supported: Sequence[str]) -> str:
    """Return the body's media type, one of `supported`. Problem `unsupported-media-type` with the list; without it for an encoded body."""
    given, encoding = fields.get(b"content-type"), fields.get(b"content-encoding")
    if encoding is not None and encoding.strip().lower() != b"identity":
        name = cut(encoding.decode("latin-1"))
        problem = Problem("unsupported-media-type", f"Content-Encoding {name!r} is not supported: send the body without a content encoding")
        problem.headers["Accept-Encoding"] = "identity"  # RFC 9110, section 15.5.16
        raise problem
    if given is None:
        raise _unsupported(f"the request has no Content-Type: set it to {' or '.join(supported)}", supported)
    media = given.decode("latin-1")
    if media in supported:
        return media
    kind, *parameters = (piece.strip().lower() for piece in media.split(";"))
    if kind not in supported:
        raise _unsupported(f"Content-Type {kind!r} is not supported here: set it to {' or '.join(supported)}", supported)
    for parameter in parameters:
        name_, _, value_ = parameter.partition("=")
        if name_.strip() == "charset" and value_.strip().strip('"') not in ("utf-8", "utf8", "us-ascii"):
            raise _unsupported(f"the charset must be utf-8, not {value_.strip()!r}", supported)
    return kind


def _unsupported(detail: str, supported: Sequence[str]) -> Problem:
    return Problem("unsupported-media-type", detail, supported=list(supported))
