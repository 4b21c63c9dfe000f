"""`livejoin top`: the state of a service as a table, refreshed on a terminal, or printed once in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

import livejoin
from livejoin.commands.connection import connect
from livejoin.retries import TEMPORARY
from livejoin.terminal import Failure, Parser, add_url

TIMEOUT = 5.0  # seconds; a service that does not answer by then is shown as unavailable


def main(arguments: list[str]) -> int:
    parser = Parser(
        "top", "Show views, changes per second, latencies and readers: updated until Ctrl-C on a terminal, printed once in a pipe."
    )
    parser.add_argument(
        "--interval", type=float, default=1.0, metavar="SECONDS", help="time between two updates, over which rates are computed (1)"
    )
    add_url(parser)
    args = parser.parse_args(arguments)
    if not 0.05 <= args.interval <= 3600:
        raise Failure("--interval must be from 0.05 to 3600 seconds", 2)
    with connect(args) as client:
        former = Reading.of(client)  # a wrong address or token ends the command; a service that is starting is waited for
    with connect(args, patience=0.0, timeout=TIMEOUT) as client:
        if not sys.stdout.isatty():
            time.sleep(args.interval)
            Console(width=120, no_color=True).print(_page(client.url, former, Reading.of(client)))
            return 0
        with Live(auto_refresh=False, screen=True) as live:
            for page in _pages(client, former, args.interval):
                live.update(page, refresh=True)
    return 0


class Reading(NamedTuple):
    """The service's state at one time: /v1/status, and the metrics by name and labels."""

    at: float
    status: dict[str, Any]
    values: dict[tuple[str, tuple[tuple[str, str], ...]], float]

    @classmethod
    def of(cls, client: livejoin.Client) -> Reading:
        """Read the state. Raises what the client raises."""
        values = {(one.name, tuple(sorted(one.labels.items()))): one.value for one in client.metrics()}
        return cls(time.monotonic(), client.status(), values)

    def value(self, name: str, **labels: str) -> float:
        return self.values.get((name, tuple(sorted(labels.items()))), 0.0)


def _pages(client: livejoin.Client, former: Reading, interval: float) -> Iterator[Group]:
    """Yield one page after another. An unavailable service is polled; meanwhile its last figures are shown, marked as out of date."""
    latest, away_since = former, 0.0
    while True:
        try:
            now = Reading.of(client)
        except (livejoin.Unreachable, livejoin.Problem) as error:
            away_since = away_since or time.monotonic()
            if isinstance(error, livejoin.Unreachable):
                what, why = f"no answer for {time.monotonic() - away_since:.0f} s", error.reason
            elif error.status in TEMPORARY:
                what, why = "not ready", error.detail or error.title
            else:
                raise
            yield _page(client.url, former, latest, f"{what}; the figures are out of date ({why})")
        else:
            former, latest, away_since = (latest if not away_since else now), now, 0.0
            yield _page(client.url, former, latest)
        time.sleep(interval)


class ReadingChange(NamedTuple):
    """The change from one reading to the next. A counter that has decreased has restarted at 0."""

    former: Reading
    now: Reading

    def growth(self, name: str, **labels: str) -> float:
        before, after = self.former.value(name, **labels), self.now.value(name, **labels)
        return after - before if after >= before else after

    def rate(self, name: str, **labels: str) -> float | None:
        """Return the rate per second; None if no time has passed."""
        seconds = self.now.at - self.former.at
        return self.growth(name, **labels) / seconds if seconds > 0 else None

    def quantile(self, share: float, name: str, **labels: str) -> float | None:
        """Return a quantile of a histogram like Prometheus does: values are evenly distributed within a bucket. None: there are no
        observations."""
        buckets = [dict(own) for family, own in self.now.values if family == f"{name}_bucket"]
        bounds = sorted(float(own["le"]) for own in buckets if own == labels | {"le": own["le"]})
        counts = [self.growth(f"{name}_bucket", **labels, le=_bound(bound)) for bound in bounds]
        if not counts or not counts[-1]:
            return None
        rank = share * counts[-1]
        for (low, below), (high, count) in pairwise([(0.0, 0.0), *zip(bounds, counts, strict=True)]):
            if count >= rank:
                return low if high == inf else low + (high - low) * (rank - below) / max(count - below, 1.0)
        return None


def _bound(bound: float) -> str:
    return "+Inf" if bound == inf else f"{bound:.6g}"


def _page(url: str, former: Reading, now: Reading, warning: str = "") -> Group:
    between = ReadingChange(former, now)
    parts: list[Any] = [Text(_first_line(url, now)), Text(_second_line(between)), Text(_third_line(between))]
    if warning:
        parts.append(Text(warning, style="bold red"))
    parts += ["", _views(between)]
    if readers := now.status.get("readers"):
        parts += ["", _readers(readers)]
    return Group(*parts)


def _first_line(url: str, now: Reading) -> str:
    status = now.status
    relations = status["relations"]
    rows = sum(relation["rows"] for relation in relations.values())
    up = f"{status['state']} for {_duration(status['uptime_seconds'])}"
    return f"{url}  {status['software']['version']}, {up}, version {status['version']:,}, {len(relations)} relations with {rows:,} rows"


def _second_line(between: ReadingChange) -> str:
    emitted = [
        ("changes/s", "livejoin_changes_total"),
        ("batches/s", "livejoin_batches_total"),
        ("rows sent/s", "livejoin_rows_sent_total"),
        ("changes sent/s", "livejoin_changes_sent_total"),
    ]
    return "  ".join(f"{word} {_number(between.rate(name))}" for word, name in emitted)


def _third_line(between: ReadingChange) -> str:
    now = between.now
    answers = (between.quantile(share, "livejoin_request_seconds", method="POST") for share in (0.5, 0.99))
    emitted = [
        ("latency of POST", " / ".join(_seconds(one) for one in answers) + " (p50 / p99)"),
        ("followers", _number(now.value("livejoin_subscribers"))),
        ("pins", _number(now.value("livejoin_pins"))),
        ("cursors", _number(now.value("livejoin_cursors"))),
        ("waiting batches", _number(now.value("livejoin_waiting_batches"))),
        ("memory", _bytes(now.value("process_resident_memory_bytes"))),
    ]
    return "  ".join(f"{word} {text}" for word, text in emitted)


def _views(between: ReadingChange) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("view", "state"):
        table.add_column(name, overflow="fold")
    for name in ("updates/s", "p50", "p99", "followers", "behind", "memory", "changes kept"):
        table.add_column(name, justify="right", no_wrap=True)
    now = between.now
    for name, view in now.status["views"].items():
        seconds = [_seconds(between.quantile(share, "livejoin_view_update_seconds", view=name)) for share in (0.5, 0.99)]
        state = view["state"] if view["state"] != "building" else f"building {view['progress']:.0%}"
        if now.value("livejoin_view_delays_large_batches", view=name):
            state += "; large batches wait for it"
        table.add_row(
            Text(name),
            Text(state, style="" if state == "live" else "yellow"),
            _number(between.rate("livejoin_view_update_seconds_count", view=name)),
            *seconds,
            _number(now.value("livejoin_view_subscribers", view=name)),
            _number(now.value("livejoin_view_lag_versions", view=name)),
            _bytes(now.value("livejoin_view_bytes", view=name)),
            _bytes(now.value("livejoin_view_changes_bytes", view=name)),
        )
    return table


def _readers(readers: list[dict[str, Any]]) -> Table:
    """The readers that give their name."""
    table = Table("reader", "view", box=None, pad_edge=False, header_style="bold")
    for name in ("version", "behind", "idle"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in readers:
        figures = _number(one["version"]), _number(one["behind"]), _duration(one["idle_seconds"])
        table.add_row(Text(one["name"]), Text(one["view"]), *figures)
    return table


def _number(value: float | None) -> str:
    if value is None:
        return "·"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "·"
    for unit, factor in (("µs", 1e6), ("ms", 1e3)):
        if value * factor < 1000:
            return f"{value * factor:.3g} {unit}"
    return f"{value:.3g} s"


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} GiB"


def _duration(seconds: float) -> str:
    minutes, hours = int(seconds) // 60, int(seconds) // 3600
    if hours >= 48:
        return f"{hours // 24} days"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min" if minutes else f"{int(seconds)} s"
