"""What can be wrong with what came over the wire."""

from __future__ import annotations

from typing import Any, NamedTuple

_LONGEST, _LONGEST_DETAIL = 200, 2000  # characters


def cut(text: str) -> str:
    """A name as it was sent, cut short: it may be as long as the body that has it, and is told to others."""
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


class RowError(NamedTuple):
    """One bad row: its position in the batch as sent (from 0), the column to blame if there is one, and why."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not needed
    column: str | None
    reason: str


class WireError(Exception):
    """A whole body or definition is refused; `detail` is one sentence for a human."""

    def __init__(self, detail: str) -> None:
        self.detail = detail if len(detail) <= _LONGEST_DETAIL else detail[:_LONGEST_DETAIL] + "…"
        super().__init__(self.detail)


class BadDefinition(WireError):
    """A relation's definition that is none."""


class MalformedBody(WireError):
    """A body that cannot be read; `line` counts from 1 where the body has lines."""

    def __init__(self, detail: str, line: int | None = None) -> None:
        super().__init__(detail)
        self.line = line


class TooLarge(WireError):
    """A body that would take more than is allowed; `limit`: what is, in bytes or rows."""

    def __init__(self, detail: str, limit: int) -> None:
        super().__init__(detail)
        self.limit = limit


class UnknownRelation(WireError):
    """A change names a relation that is not registered; `instead` is put behind that. `fields` are those beside the changes of a JSON
    body."""

    def __init__(self, name: str, instead: str = "", fields: dict[str, Any] | None = None) -> None:
        self.name, self.instead = cut(name), instead
        super().__init__(f"there is no relation {self.name!r}{instead}")
        self.fields = fields or {}


class BadParameter(WireError):
    """One of source, epoch, run, reset, on_error is not what it must be."""


class UnsupportedMediaType(WireError):
    """No decoder for this media type at this place."""


def check_utf8(body: bytes, first_line: int = 1) -> None:
    """MalformedBody, with the place, if it is not UTF-8; `first_line` is the number of its first line."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        line = first_line + body.count(b"\n", 0, error.start)
        byte = error.start - body.rfind(b"\n", 0, error.start)
        raise MalformedBody(f"line {line} is not valid UTF-8 at byte {byte}", line) from None
