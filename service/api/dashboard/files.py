"""`/` and `/dashboard/…`: the files of the dashboard, as they are in `service/dashboard`. They contain no data, so they need no token.

The browser may run and load nothing but these: no inline code, no other origin, no markup built from text.
"""

from __future__ import annotations

import hashlib
import pathlib
from functools import cache
from typing import Annotated, NamedTuple

from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from service.api.http import media
from service.api.openapi import answer, failures, text_content
from service.api.routing import router
from service.errors import Problem

routes, open_routes = router("operations"), router("operations", strict=False)

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "dashboard"
START = "index.html"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # the browser keeps them, and revalidates them by ETag: a new release is effective at once
}


class _File(NamedTuple):
    body: bytes
    kind: str
    etag: str


@cache
def _files() -> dict[str, _File]:
    """Return the files by name, read at the first request. Any other name is not found, whatever it looks like."""
    return {path.name: _read(path) for path in sorted(FOLDER.iterdir()) if path.suffix in _TYPES}


def _read(path: pathlib.Path) -> _File:
    body = path.read_bytes()
    return _File(body, f"{_TYPES[path.suffix]}; charset=utf-8", f'"{hashlib.sha256(body).hexdigest()[:32]}"')


_CONTENT = {kind: text_content(kind, example)[kind] for kind, example in (
    ("text/html", "<!doctype html>…"), ("text/css", "body { … }"), ("text/javascript", "export …"), ("image/svg+xml", "<svg …>"),
)}  # fmt: skip
_FIELDS = {"ETag": '"5f3c…"', "Content-Security-Policy": "default-src 'none'; …"}
_UNCHANGED = answer(304, "unchanged (`If-None-Match`)")


@open_routes.get(
    "/",
    summary="The dashboard, a page for browsers",
    responses={**answer(200, "the page", {media.HTML: _CONTENT[media.HTML]}, _FIELDS), **_UNCHANGED, **failures()},
)
async def dashboard(request: Request) -> Response:
    """The page interprets the query string itself."""
    return _answer(request, START)


@routes.get(
    "/dashboard/{file}",
    summary="A file of the dashboard",
    responses={**answer(200, "the file", _CONTENT, _FIELDS), **_UNCHANGED, **failures("bad-parameter", "not-found")},
)
async def dashboard_file(
    request: Request, name: Annotated[str, Path(alias="file", description="the file", examples=["app.js"])]
) -> Response:
    return _answer(request, name)


def _answer(request: Request, name: str) -> Response:
    found = _files().get(name)
    if found is None:
        raise Problem("not-found", f"the dashboard has no file {name!r}; it begins at /")
    headers = {**_HEADERS, "ETag": found.etag}
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if found.etag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(found.body, 200, headers, found.kind)
