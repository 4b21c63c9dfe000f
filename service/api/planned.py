"""Paths and options that the interface has for later versions (docs/design/api.md): who asks for one learns that it is no mistake of
theirs."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.routing import compile_path

_PLANNED: tuple[tuple[str, Iterable[str]], ...] = (
    ("/v1/views/{name}/readings", {"POST"}),
    ("/v1/readings/{id}", {"DELETE"}),
    ("/v1/views/{name}/changes/end", {"GET"}),
)
OPTIONS_OF_CHANGES = ("until",)  # of GET /v1/views/{name}/changes
_PATTERNS = [(compile_path(path)[0], methods) for path, methods in _PLANNED]


def is_planned(method: str, path: str) -> bool:
    """Whether a later version answers this method of the path, as it was requested. No version has answered it so far."""
    return any(method in methods and pattern.match(path) for pattern, methods in _PATTERNS)
