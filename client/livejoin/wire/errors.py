"""Errors in data received over the wire."""

from __future__ import annotations

from typing import Any, NamedTuple

_LONGEST, _LONGEST_DETAIL = 200, 2000  # characters


def cut(text: str) -> str:
    """Shorten a name from a request: it may be as long as the body, and is shown to others."""
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


class RowError(NamedTuple):
    """One bad row: its position in the batch as sent (from 0), the offending column if there is one, and the reason."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not needed
    column: str | None
    reason: str


class WireError(Exception):
    """A whole body or definition is rejected; `detail` is one sentence for a human."""

    def __init__(self, detail: str) -> None:
        self.detail = detail if len(detail) <= _LONGEST_DETAIL else detail[:_LONGEST_DETAIL] + "…"
        super().__init__(self.detail)


class BadDefinition(WireError):
    """An invalid definition of a relation."""


class MalformedBody(WireError):
    """A body that cannot be read; `line` counts from 1 if the body has lines."""

    def __init__(self, detail: str, line: int | None = None) -> None:
        super().__init__(detail)
        self.line = line


class TooLarge(WireError):
    """A body that would exceed a limit; `limit`: in bytes or rows."""

    def __init__(self, detail: str, limit: int) -> None:
        super().__init__(detail)
        self.limit = limit


class UnknownRelation(WireError):
    """A change names a relation that is not registered; `instead` is appended to the message. `fields` are those besides the changes of a
    JSON body."""

    def __init__(self, name: str, instead: str = "", fields: dict[str, Any] | None = None) -> None:
        self.name, self.instead = cut(name), instead
        super().__init__(f"there is no relation {self.name!r}{instead}")
        self.fields = fields or {}


class BadParameter(WireError):
    """The parameter, one of source, epoch, run, reset, on_error, is invalid."""

    def __init__(self, parameter: str, reason: str) -> None:
        super().__init__(f'"{parameter}" {reason}')
        self.parameter = parameter


class UnsupportedMediaType(WireError):
    """There is no decoder for this media type here."""


def check_utf8(body: bytes, first_line: int = 1) -> None:
    """Raise MalformedBody, with the position, if the body is not UTF-8; `first_line` is the number of its first line."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        line = first_line + body.count(b"\n", 0, error.start)
        byte = error.start - body.rfind(b"\n", 0, error.start)
        raise MalformedBody(f"line {line} is not valid UTF-8 at byte {byte}", line) from None
