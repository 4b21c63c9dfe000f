"""Conditions and ranges in the header of a request for a file (RFC 9110, sections 13 and 14)."""

from __future__ import annotations

import re
from typing import NamedTuple

from service.api.http.media import Fields

_TAG = re.compile(r'(W/)?("[\x21\x23-\x7e\x80-\xff]*")')
_RANGE = re.compile(r"bytes=\s*([0-9]{0,18})-([0-9]{0,18})\s*", re.IGNORECASE)


class Range(NamedTuple):
    """Bytes from `first` to `last`; without `first`, the last `last` bytes; without `last`, to the end."""

    first: int | None
    last: int | None

    def within(self, size: int) -> tuple[int, int] | None:
        """Return start and end (exclusive) in a file of this size; None if the range is outside of it."""
        if self.first is None:
            start, stop = max(0, size - (self.last or 0)), size
        else:
            start, stop = self.first, size if self.last is None else min(size, self.last + 1)
        return (start, stop) if start < stop else None


class Conditions(NamedTuple):
    """`if_match`, `if_none_match`: tags, None if there is no such condition. `if_range`: the tag for which the range applies. `range`: None
    also for several ranges in one request, which are answered with the whole file."""

    if_match: tuple[str, ...] | None
    if_none_match: tuple[str, ...] | None
    if_range: str | None
    range: Range | None

    def are_met_by(self, tag: str) -> bool:
        return self.if_match is None or tag in self.if_match

    def know(self, tag: str) -> bool:
        """Return whether the client has this file already."""
        return self.if_none_match is not None and (tag in self.if_none_match or "*" in self.if_none_match)

    def range_counts(self, tag: str) -> bool:
        return self.range is not None and self.if_range in (None, tag)


def conditions_of(fields: Fields) -> Conditions:
    """Return those of a request. An invalid tag matches none; an invalid range is ignored."""
    matching = _text(fields, b"if-match")
    known = _text(fields, b"if-none-match")
    only = _text(fields, b"if-range")
    return Conditions(
        None if matching is None or matching.strip() == "*" else tuple(tag for weak, tag in _TAG.findall(matching) if not weak),
        None if known is None else ("*",) if known.strip() == "*" else tuple(tag for _, tag in _TAG.findall(known)),
        None if only is None else only.strip(),
        _range(_text(fields, b"range")),
    )


def _text(fields: Fields, name: bytes) -> str | None:
    value = fields.get(name)
    return None if value is None else value.decode("latin-1")


def _range(text: str | None) -> Range | None:
    found = _RANGE.fullmatch(text) if text is not None else None
    if found is None or not (found[1] or found[2]):
        return None
    first, last = (int(part) if part else None for part in found.groups())
    return None if first is not None and last is not None and last < first else Range(first, last)
