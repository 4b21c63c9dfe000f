"""The metrics of the service, out of Prometheus's text format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


class Sample(NamedTuple):
    """One value: `livejoin_view_bytes` of the label `view`."""

    name: str
    labels: dict[str, str]
    value: float


def samples(text: str) -> Iterator[Sample]:
    """Lines of another form are passed over."""
    for line in text.splitlines():
        if found := _LINE.match(line):
            pairs = _LABEL.findall(found[2] or "")
            labels = {name: re.sub(r"\\.", lambda one: _ESCAPED.get(one[0], one[0]), value) for name, value in pairs}
            yield Sample(found[1], labels, float(found[3]))
