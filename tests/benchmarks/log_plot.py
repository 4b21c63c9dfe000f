"""A plot of several series on two logarithmic axes, as SVG."""

from __future__ import annotations

import math
from html import escape
from typing import NamedTuple

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 760, 420, 70, 40, 250, 50
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f")


class Series(NamedTuple):
    """Points with positive coordinates."""

    name: str
    x: list[float]
    y: list[float]


class _Axis(NamedTuple):
    """Decades [low, high] mapped to the positions [start, end]."""

    low: int
    high: int
    start: float
    end: float

    def position(self, value: float) -> float:
        return self.start + (math.log10(value) - self.low) / (self.high - self.low) * (self.end - self.start)


def log_plot(title: str, across: str, up: str, series: list[Series]) -> str:
    """Return the plot, with axes that begin and end at powers of ten. Raises ValueError for a value that is not positive."""
    x = _axis([value for one in series for value in one.x], _LEFT, _WIDTH - _RIGHT)
    y = _axis([value for one in series for value in one.y], _HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_LEFT, _TOP - 22, title, size=14),
        _text((x.start + x.end) / 2, _HEIGHT - 12, across, anchor="middle"),
        _text(8, _TOP - 2, up),
    ]
    for decade in range(x.low, x.high + 1):
        at = x.position(10.0**decade)
        parts += [_line([(at, y.start), (at, y.end)], "#ddd"), _text(at, y.start + 18, f"10^{decade}", anchor="middle")]
    for decade in range(y.low, y.high + 1):
        at = y.position(10.0**decade)
        parts += [_line([(x.start, at), (x.end, at)], "#ddd"), _text(x.start - 8, at + 4, f"10^{decade}", anchor="end")]
    for number, one in enumerate(series):
        colour = _COLOURS[number % len(_COLOURS)]
        points = [(x.position(a), y.position(b)) for a, b in zip(one.x, one.y, strict=True)]
        parts.append(_line(points, colour, 2))
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in points]
        parts.append(_text(x.end + 14, _TOP + 8 + 18 * number, one.name, colour=colour))
    return "\n".join([*parts, "</svg>", ""])


def _axis(values: list[float], start: float, end: float) -> _Axis:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return _Axis(low, max(high, low + 1), start, end)


def _text(x: float, y: float, text: str, *, anchor: str = "start", colour: str = "black", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}">{escape(text)}</text>'


def _line(points: list[tuple[float, float]], colour: str, width: int = 1) -> str:
    positions = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
    return f'<polyline points="{positions}" fill="none" stroke="{colour}" stroke-width="{width}"/>'
