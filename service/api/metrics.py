"""`/metrics`: the handlers' own counts, what the engine reports when scraped, the process, the data folder and its disk.

The engine's part is `engine.metrics()`, a flat dictionary: numbers by the names in the tables below, and `Histogram`s. Names that are
absent from it are omitted.
"""

from __future__ import annotations

import platform
import time
from collections import Counter as Tally
from collections.abc import Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from livejoin.wire.version import VERSION
from service.access.access_token import AccessToken
from service.api.context import Context
from service.durability.usage import usage
from service.histogram import Histogram as Buckets
from service.views.live_view import LiveView

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter, of no use here
REGISTRY = CollectorRegistry()

ProcessCollector(registry=REGISTRY)  # memory, processor time, open files; on Linux

METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH")  # others are counted as one: the values of a label are bounded
UNCLEAR_TIMES = Counter(
    "livejoin_unclear_times",
    "Local times received that do not exist or exist twice, taken with the offset before the change.",
    registry=REGISTRY,
)
ROWS_SENT = Counter("livejoin_rows_sent", "Rows of views and relations sent.", registry=REGISTRY)
RECORDS_SENT = Counter("livejoin_changes_sent", "Change records sent to followers.", registry=REGISTRY)
CHUNK_SECONDS = Histogram(
    "livejoin_chunk_seconds",
    "Processor time to read one chunk of rows.",
    buckets=(0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    registry=REGISTRY,
)
QUERY_SECONDS = Histogram(
    "livejoin_query_seconds",
    "Time of an ad hoc query, including its response.",
    buckets=(0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0),
    registry=REGISTRY,
)


_REQUESTS = Tally[tuple[str, int]]()  # by method and status; Prometheus's own counters take ten times as long
_ANSWERS = {method: Buckets() for method in (*METHODS, "other")}


def count_request(method: str, status: int) -> None:
    """Count one response; status 0: the client disconnected before it. In the event loop."""
    _REQUESTS[method if method in METHODS else "other", status] += 1


def observe_answer(method: str, seconds: float) -> None:
    """Record the time from the head of a request to the head of its response."""
    _ANSWERS[method if method in METHODS else "other"].observe(seconds)


# name in engine.metrics() -> family (Prometheus appends _total to counters), help
GAUGES = {
    "version": ("livejoin_version", "The newest published version."),
    "pins": ("livejoin_pins", "Versions pinned by readers."),
    "cursors": ("livejoin_cursors", "Cursors whose versions are kept."),
    "spools": ("livejoin_spools", "Files of rows that are kept on disk, to be read in parts."),
    "spool_bytes": ("livejoin_spool_bytes", "Size of those files."),
    "retired_bytes": ("livejoin_retired_bytes", "Memory of the structures that is needed only by old versions."),
    "free_bytes": ("livejoin_free_bytes", "Memory of the structures that is kept for reuse: free blocks, and lists of retired ones."),
    "waiting_batches": ("livejoin_waiting_batches", "Batches waiting to be applied."),
    "subscribers": ("livejoin_subscribers", "Followers of views."),
    "writer_busy_seconds": ("livejoin_writer_busy_seconds", "Time for which the writer has been busy without making progress."),
    "stored_rows": ("livejoin_stored_rows", "Rows of queries in FROM that are stored for views."),
    "stored_bytes": ("livejoin_stored_bytes", "Memory of these rows, and of the structures that maintain them."),
    "log_bytes": ("livejoin_log_bytes", "Size of the changes in the log that no snapshot contains: the next start reads them."),
}
COUNTERS = {
    "batches": ("livejoin_batches", "Batches that made a version."),
    "changes": ("livejoin_changes", "Changes in those batches."),
    "spools_written": ("livejoin_spools_written", "Files of rows that were written to disk, to be read in parts."),
    "snapshot_failures": ("livejoin_snapshot_failures", "Snapshots that could not be written."),
}
SECONDS = range(-20, 9, 2)  # buckets up to 2 ** e seconds: 1 µs to 256 s
NUMBERS = range(0, 25, 2)  # up to 2 ** e: 1 to 16,777,216
HISTOGRAMS = {
    "update_seconds": ("livejoin_update_seconds", "Time to update the views to the next version.", SECONDS),
    "turn_seconds": ("livejoin_turn_seconds", "Time that the writer spent on applying a batch, or several together.", SECONDS),
    "checkpoint_seconds": ("livejoin_checkpoint_seconds", "Time of a checkpoint of the log (two fsyncs), while changes wait.", SECONDS),
    "batch_changes": ("livejoin_batch_changes", "Changes in a batch.", NUMBERS),
    "delay_steps": ("livejoin_delay_steps", "Largest number of steps between two rows of a chunk.", NUMBERS),
    "delay_seconds": ("livejoin_delay_seconds", "Average time between two rows of a chunk.", SECONDS),
}


class EngineCollector(Collector):
    """Queries the engine when scraped."""

    def __init__(self, context: Context, token: AccessToken) -> None:
        self._context, self._token = context, token

    def collect(self) -> Iterator[Metric]:
        """Yield all families; of relations and views, the samples of those that the token covers."""
        for family in self._all():
            family.samples = [sample for sample in family.samples if self._is_for(sample.labels)]
            yield family

    def _is_for(self, labels: Mapping[str, str]) -> bool:
        relation, view = labels.get("relation"), labels.get("view")
        return (relation is None or self._token.covers_relation(relation)) and (view is None or self._token.covers_view(view))

    def _all(self) -> Iterator[Metric]:
        yield from _of_process(self._context)
        yield GaugeMetricFamily("livejoin_ready", "1 if the service answers requests.", value=float(self._context.ready))
        queries = CounterMetricFamily("livejoin_queries", "Ad hoc queries, by outcome.", labels=["outcome"])
        for outcome, count in self._context.queries.outcomes.items():
            queries.add_metric([outcome], count)
        yield queries
        yield GaugeMetricFamily("livejoin_queries_running", "Ad hoc queries in progress.", value=self._context.queries.running)
        yield GaugeMetricFamily("livejoin_body_bytes", "Memory of request bodies, decoded forms included.", value=self._context.bodies.held)
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
        for name in engine.relations:
            rows.add_metric([name], engine.rows_of(name))
        yield rows
        held = GaugeMetricFamily("livejoin_relation_bytes", "Memory of a relation's rows, by use.", labels=["relation", "holder"])
        for name, relation in engine.relations.items():
            for holder, size in relation.table.held.items():
                held.add_metric([name, holder], size)
        yield held
        yield from _of_folder(self._context)
        yield from _of_views(engine.views, engine.large_batches_wait_for)
        what = "Versions that a named reader is behind; 0 if none of them changes its view. Shown for an hour after its last request."
        behind = GaugeMetricFamily("livejoin_reader_lag_versions", what, labels=["reader", "view"])
        for one in self._context.named_readers.recent():
            behind.add_metric([one.name, one.view], one.behind(engine.views.get(one.view), engine.published.number))
        yield behind


def _of_process(context: Context) -> Iterator[Metric]:
    build = GaugeMetricFamily("livejoin_build_info", "Always 1; its labels give the versions.", labels=["version", "python"])
    build.add_metric([VERSION, platform.python_version()], 1.0)
    yield build
    requests = CounterMetricFamily("livejoin_requests", "Responses, by method and status.", labels=["method", "status"])
    for (method, status), count in _REQUESTS.copy().items():  # the event loop may add one meanwhile
        requests.add_metric([method, str(status)], count)
    yield requests
    answers = HistogramMetricFamily("livejoin_request_seconds", "Time until a response begins.", labels=["method"])
    for method, times in _ANSWERS.items():
        answers.add_metric([method], _buckets(times, SECONDS), times.sum)
    yield answers
    delays = context.loop_delays
    delay = HistogramMetricFamily("livejoin_loop_delay_seconds", "Delay of the event loop, measured ten times a second.")
    delay.add_metric([], _buckets(delays, SECONDS), delays.sum)
    yield delay


def _of_folder(context: Context) -> Iterator[Metric]:
    found = usage(context.settings.data)
    held = GaugeMetricFamily("livejoin_folder_bytes", "Size of the data folder.", labels=["part"])
    for part, used in (("log", found.log), ("snapshots", found.snapshots), ("other", found.other)):
        held.add_metric([part], used)
    yield held
    yield GaugeMetricFamily("livejoin_disk_bytes", "Size of the disk of the data folder.", value=found.disk)
    yield GaugeMetricFamily("livejoin_disk_free_bytes", "Free space on the disk of the data folder.", value=found.free)
    number = GaugeMetricFamily("livejoin_snapshot_version", "The version of the last snapshot.")
    age = GaugeMetricFamily("livejoin_snapshot_age_seconds", "Time since the last snapshot was written.")
    size = GaugeMetricFamily("livejoin_snapshot_bytes", "Size of the last snapshot.")
    if found.snapshot is not None:  # none until the log is worth one
        number.add_metric([], found.snapshot[0])
        age.add_metric([], max(0.0, time.time() - found.snapshot[1]))
        size.add_metric([], found.snapshot[2])
    yield from (number, age, size)


def _of_views(views: Mapping[str, LiveView], waited_for: str | None) -> Iterator[Metric]:
    held = GaugeMetricFamily("livejoin_view_bytes", "Memory of a view's structures at the newest version.", labels=["view"])
    kept = GaugeMetricFamily("livejoin_view_changes_bytes", "Memory of the changes that a view keeps for followers.", labels=["view"])
    followers = GaugeMetricFamily("livejoin_view_subscribers", "Followers of a view.", labels=["view"])
    updates = HistogramMetricFamily("livejoin_view_update_seconds", "Time to update a view to the next version.", labels=["view"])
    lag = GaugeMetricFamily("livejoin_view_lag_versions", "Versions that the slowest follower of a view is behind.", labels=["view"])
    waits = GaugeMetricFamily("livejoin_view_delays_large_batches", "1 while large batches wait for the build of a view.", labels=["view"])
    refused = GaugeMetricFamily("livejoin_view_lacks_room", "1 while there is no room to rebuild a view's structures.", labels=["view"])
    states = GaugeMetricFamily("livejoin_views", "Views, by state.", labels=["state"])
    counts = Tally(view.state for view in views.values())
    for state in ("live", "building", "failed"):
        states.add_metric([state], counts[state])
    for name, view in views.items():
        held.add_metric([name], view.bytes)
        waits.add_metric([name], float(name == waited_for))
        refused.add_metric([name], float(view.refused is not None))
        if view.feed is not None:
            kept.add_metric([name], view.feed.bytes)
            followers.add_metric([name], view.feed.subscribers)
            lag.add_metric([name], view.feed.lag)
        updates.add_metric([name], _buckets(view.update_seconds, SECONDS), view.update_seconds.sum)
    yield from (states, held, waits, refused, kept, followers, lag, updates)


def _buckets(values: Buckets, exponents: range) -> list[tuple[str, float]]:
    """Return Prometheus's cumulative form; the buckets do not depend on the values."""
    totals = dict(zip(values.bounds, accumulate(values.counts), strict=True))
    return [*((f"{2.0**e:.6g}", float(totals[2.0**e])) for e in exponents), ("+Inf", float(values.count))]


def exposition(context: Context, token: AccessToken) -> bytes:
    """Return the page in Prometheus's text format, with what the token may see. Cost: milliseconds, and the status of each file of the data
    folder."""
    engine = CollectorRegistry(auto_describe=False)
    engine.register(EngineCollector(context, token))
    return generate_latest(REGISTRY) + generate_latest(engine)
