"""`/metrics`: what the handlers count themselves, and what the engine reports when scraped.

The engine's part is `engine.metrics()`, a flat dictionary: numbers by the names in the tables below, and `Histogram`s. A name
that it does not give is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from service.api.context import Context
from service.histogram import Histogram as Buckets
from service.views.live_view import LiveView

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter, of no use here
REGISTRY = CollectorRegistry()

METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE"})  # others are counted as one: a label's values are bounded
REQUESTS = Counter("livejoin_requests", "Responses, by method and status.", ["method", "status"], registry=REGISTRY)
ROWS_SENT = Counter("livejoin_rows_sent", "Rows of views and relations sent.", registry=REGISTRY)
RECORDS_SENT = Counter("livejoin_changes_sent", "Change records sent to followers.", registry=REGISTRY)
CHUNK_SECONDS = Histogram(
    "livejoin_chunk_seconds",
    "Time to read one chunk of rows.",
    buckets=(0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    registry=REGISTRY,
)


@lru_cache(128)
def _counter(method: str, status: int) -> Counter:
    return REQUESTS.labels(method, str(status))


def count_request(method: str, status: int) -> None:
    """One response; status 0: the client disconnected before it."""
    _counter(method if method in METHODS else "other", status).inc()


# name in engine.metrics() -> family (Prometheus appends _total to counters), help
GAUGES = {
    "version": ("livejoin_version", "The newest published version."),
    "pins": ("livejoin_pins", "Versions pinned by readers."),
    "cursors": ("livejoin_cursors", "Cursors whose versions are kept."),
    "retired_bytes": ("livejoin_retired_bytes", "Memory of the structures that is needed only by old versions."),
    "waiting_batches": ("livejoin_waiting_batches", "Batches waiting to be applied."),
    "subscribers": ("livejoin_subscribers", "Followers of views."),
}
COUNTERS = {
    "batches": ("livejoin_batches", "Batches that made a version."),
    "changes": ("livejoin_changes", "Changes in those batches."),
}
SECONDS = range(-20, 9, 2)  # buckets up to 2 ** e seconds: 1 µs to 256 s
NUMBERS = range(0, 25, 2)  # up to 2 ** e: 1 to 16,777,216
HISTOGRAMS = {
    "update_seconds": ("livejoin_update_seconds", "Time to update the views to the next version.", SECONDS),
    "batch_changes": ("livejoin_batch_changes", "Changes in a batch.", NUMBERS),
    "delay_steps": ("livejoin_delay_steps", "Largest number of steps between two rows of a chunk.", NUMBERS),
    "delay_seconds": ("livejoin_delay_seconds", "Average time between two rows of a chunk.", SECONDS),
}


class EngineCollector(Collector):
    """Queries the engine when scraped."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("livejoin_ready", "1 if the service answers requests.", value=float(self._context.ready))
        yield GaugeMetricFamily("livejoin_body_bytes", "Bytes of request bodies and of what they become.", value=self._context.bodies.held)
        if not self._context.ready:
            return
        engine = self._context.engine
        found = engine.metrics()
        for name, (family, text) in GAUGES.items():
            if name in found:
                yield GaugeMetricFamily(family, text, value=found[name])
        for name, (family, text) in COUNTERS.items():
            if name in found:
                yield CounterMetricFamily(family, text, value=found[name])
        for name, (family, text, exponents) in HISTOGRAMS.items():
            if name in found:
                histogram = HistogramMetricFamily(family, text)
                histogram.add_metric([], _buckets(found[name], exponents), found[name].sum)
                yield histogram
        rows = GaugeMetricFamily("livejoin_relation_rows", "Rows of a relation.", labels=["relation"])
        for name, count in engine.published.counts.items():
            rows.add_metric([name], count)
        yield rows
        held = GaugeMetricFamily("livejoin_relation_bytes", "Memory of a relation's rows, by what holds it.", labels=["relation", "holder"])
        for name, relation in engine.relations.items():
            for holder, size in relation.table.held.items():
                held.add_metric([name, holder], size)
        yield held
        yield from _of_views(engine.views)


def _of_views(views: Mapping[str, LiveView]) -> Iterator[Metric]:
    held = GaugeMetricFamily("livejoin_view_bytes", "Memory of a view's structures at the newest version.", labels=["view"])
    kept = GaugeMetricFamily("livejoin_view_changes_bytes", "Memory of the changes that a view keeps for followers.", labels=["view"])
    followers = GaugeMetricFamily("livejoin_view_subscribers", "Followers of a view.", labels=["view"])
    updates = HistogramMetricFamily("livejoin_view_update_seconds", "Time to update a view to the next version.", labels=["view"])
    for name, view in views.items():
        held.add_metric([name], view.bytes)
        if view.feed is not None:
            kept.add_metric([name], view.feed.bytes)
            followers.add_metric([name], view.feed.subscribers)
        updates.add_metric([name], _buckets(view.update_seconds, SECONDS), view.update_seconds.sum)
    yield from (held, kept, followers, updates)


def _buckets(values: Buckets, exponents: range) -> list[tuple[str, float]]:
    """Prometheus's cumulative form; the buckets do not depend on the values."""
    totals = dict(zip(values.bounds, accumulate(values.counts), strict=True))
    return [*((f"{2.0**e:.6g}", float(totals[2.0**e])) for e in exponents), ("+Inf", float(values.count))]


def exposition(context: Context) -> bytes:
    """The page in Prometheus's text format."""
    engine = CollectorRegistry(auto_describe=False)
    engine.register(EngineCollector(context))
    return generate_latest(REGISTRY) + generate_latest(engine)
