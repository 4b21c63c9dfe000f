"""What a single change to an unrelated relation waits for while something else happens: the processor time of the writer's thread between
the arrival of the change and its answer, which hardly depends on what else the machine does. Beside it, in parentheses, how long the client
waits by the clock. A batch of 500,000 rows is applied in one turn of the writer, and is not among the scenarios.

Each line of `SCENARIOS` prepares something and returns the action to perform while the changes are sent.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import cycle, islice, takewhile
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.benchmarks.figures import Figure, Scale, Unfinished
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.raw_client import ARROW, open_stream, post_all
from tests.benchmarks.served import LOAD, at_rest, beside, gauge
from tests.benchmarks.stalls_data import BUILT, GAPS, INTERVALS, NARROW, SMALL, THIRD, WIDE, WRITTEN, Sort, Stage, body
from tests.benchmarks.stalls_server import RELATION, TIMES
from tests.end_to_end import talk
from tests.server_process import ServerProcess

TITLE = "The service: the writer's processor time that single changes to an unrelated relation wait for"

_AFTER = 1.5  # seconds to watch after the action: housekeeping runs once a second
_P999, _LONGEST, _LARGE, _LONGEST_LARGE = 15.0, 60.0, 10_000_000, 500.0  # milliseconds; from this number of rows on
_WRITERS = 4  # connections
_ENVIRONMENT = {"LIVEJOIN_PIN_IDLE": "3600", "LIVEJOIN_PIN_BYTES": "64GiB"}

Act = Callable[[], object]


def nothing(stage: Stage) -> Act:
    return lambda: None


def built(sort: Sort, stage: Stage) -> Act:
    return partial(stage.view, "made", sort)


def built_while_written(sort: Sort, stage: Stage) -> Act:
    """Other clients move rows of one of its relations until a second after the view is live."""
    bodies = cycle(stage.moved("a", stage.half, SMALL))

    def build() -> None:
        stage.view("made", sort)
        time.sleep(1.0)

    return partial(_while, bodies, _WRITERS, stage, build)


def dropped(stage: Stage) -> Act:
    stage.view("made", INTERVALS)
    return partial(stage.drop, "made")


def slow_reader(stage: Stage) -> Act:
    """A client reads a little of a view and holds its version, while rows below it move."""
    stage.view("made", INTERVALS)
    bodies = stage.moved("a", stage.half // 10, SMALL)

    def read() -> None:
        connection, answer, _ = open_stream(stage.server.port, "/v1/views/made/rows", ARROW)
        stage.post(bodies)
        answer.close()
        connection.close()

    return read


def feeds_settled(stage: Stage) -> Act:
    """Batches that change many rows of a view, which keeps them for its followers."""
    stage.view("made", INTERVALS)
    return partial(stage.post, stage.moved("b", stage.half // 5, 2 * SMALL))


def snapshot_written(stage: Stage) -> Act:
    """Batches until the log is long enough for a snapshot, and until the snapshot is written and the log truncated."""
    bodies = cycle(stage.moved("a", stage.half, SMALL))

    def write() -> None:
        before, end = _snapshot(stage), time.monotonic() + 300
        while _snapshot(stage) == before:
            assert time.monotonic() < end, "no snapshot was written"
            stage.post(list(islice(bodies, 5)))

    return write


def truncated(stage: Stage) -> Act:
    _fill_third(stage, NARROW)
    return partial(_truncate, stage)


def truncated_below(sort: Sort, stage: Stage) -> Act:
    """Truncate a relation as large as each of the two others, below a view that reports its changes."""
    _fill_third(stage, WIDE)
    stage.view("made", sort)
    return partial(_truncate, stage)


def truncated_while_written(sort: Sort, stage: Stage) -> Act:
    """The same, while another client changes the other relation of the view, one row after another."""
    truncate = truncated_below(sort, stage)
    rows = (body("b", stage.wide(stage.ids(1))) for _ in iter(int, 1))
    return partial(_while, rows, 1, stage, truncate)


def relation_dropped(stage: Stage) -> Act:
    _fill_third(stage, NARROW)
    return stage.clear


SCENARIOS: dict[str, Callable[[Stage], Act]] = {
    "nothing else happens": nothing,
    **{f"a view is built: {sort.words}": partial(built, sort) for sort in BUILT},
    **{f"a view is built while batches move rows of its relation: {sort.words}": partial(built_while_written, sort) for sort in WRITTEN},
    "a view is dropped": dropped,
    "a slow reader holds a version": slow_reader,
    "feeds are settled": feeds_settled,
    "a snapshot is written, the log is cut": snapshot_written,
    "a relation is truncated": truncated,
    **{f"a relation with a view is truncated: {sort.words}": partial(truncated_below, sort) for sort in (*THIRD, GAPS)},
    f"a relation is truncated while others of its view are written: {GAPS.words}": partial(truncated_while_written, GAPS),
    "a relation is dropped": relation_dropped,
}


class _Measured(ServerProcess):
    _module = "tests.benchmarks.stalls_server"


def run(scale: Scale, note: Note) -> list[Figure]:
    sizes = [scale.size(1_000_000, 4_000), *([10_000_000] if scale.large and not scale.quick else [])]
    figures, failed = list[Figure](), list[str]()
    for n in sizes:
        found, missing = measure(n, scale, note)
        worst = _LONGEST_LARGE if n >= _LARGE else _LONGEST
        usual = max(found, key=lambda figure: figure.parameters["p99.9"])
        figures += [
            Figure(f"{n:,} rows: p99.9", usual.parameters["p99.9"], "ms", _P999 if n < _LARGE else None, True, note=usual.name),
            Figure(f"{n:,} rows: the longest", max(figure.value for figure in found), "ms", worst, True),
            *(replace(figure, name=f"{n:,} rows, {figure.name}: the longest") for figure in found),
        ]
        failed += [f"{n:,} rows, {words}" for words in missing]
    if failed:
        raise Unfinished(figures, failed)
    return figures


def measure(n: int, scale: Scale, note: Note) -> tuple[list[Figure], list[str]]:
    """Run the scenarios one after the other in one service of n rows. Return a figure of each, and the names of those that failed."""
    found, failed = list[Figure](), list[str]()
    with _serving(scale) as (server, times):
        stage = Stage(server, n)
        stage.fill()
        note(f"{n:,} rows are loaded")
        for words, prepare in SCENARIOS.items():
            try:
                found.append(watched(words, stage, prepare(stage), times, scale.size(3, 0)))
                note(f"{words}: {found[-1].value:.1f} ms ({found[-1].note})")
            except Exception as error:
                failed.append(words)
                note(f"{words}: failed: {error!r}")
            stage.clear()
    return found, failed


def watched(words: str, stage: Stage, act: Act, times: Path, at_least: float) -> Figure:
    """Act, send single changes meanwhile and for some time afterwards, and return the longest wait of those sent or answered since."""
    with beside("stalls_client", str(stage.server.port), RELATION) as sent:
        start = time.monotonic()
        act()
        seconds = time.monotonic() - start
        time.sleep(max(_AFTER, at_least - seconds))
        by_clock = np.array(sent())
    by_clock = 1e3 * by_clock[by_clock.sum(axis=1) > start, 1]
    spent = np.loadtxt(times, ndmin=2)
    spent = 1e3 * spent[spent[:, 0] > start, 1]
    (p999, longest), (p999_by_clock, longest_by_clock) = (
        (float(np.percentile(waits, 99.9, method="higher")), float(waits.max())) for waits in (spent, by_clock)
    )
    about = {"changes": len(spent), "seconds": round(seconds, 2), "p99.9": p999}
    emitted = f"p99.9 {p999:.1f}; by the clock p99.9 {p999_by_clock:.1f}, the longest {longest_by_clock:.1f}"
    return Figure(words, longest, "ms", None, True, [], about, note=emitted)


@contextmanager
def _serving(scale: Scale) -> Iterator[tuple[ServerProcess, Path]]:
    """A server at rest, and the file of its times."""
    with tempfile.TemporaryDirectory(prefix="livejoin-bench-") as folder:
        times = Path(folder) / "times"
        with _Measured(Path(folder) / "data", environment={**_ENVIRONMENT, TIMES: str(times)}, fresh=True) as server:
            at_rest(server, scale)
            yield server, times


def _while(bodies: Iterator[bytes], connections: int, stage: Stage, act: Act) -> None:
    """Act while these batches are sent."""
    ended = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        until_then = takewhile(lambda _: not ended.is_set(), bodies)
        written = threads.submit(post_all, stage.server.port, until_then, connections)
        try:
            act()
        finally:
            ended.set()
        written.result()


def _fill_third(stage: Stage, definition: dict[str, object]) -> None:
    stage.define("c", definition)
    if definition is WIDE:
        return stage.post(stage.new("c", stage.half, LOAD))
    ids = np.arange(stage.half)
    rows = pa.RecordBatch.from_pydict({"id": pa.array(ids), "s": pa.array(ids), "e": pa.array(ids + 10)})
    stage.post([body("c", rows.slice(at, LOAD)) for at in range(0, stage.half, LOAD)])


def _truncate(stage: Stage) -> None:
    talk.ok(talk.send(stage.client, [{"relation": "c", "op": "truncate"}]))


def _snapshot(stage: Stage) -> float:
    try:
        return gauge(stage.server, "livejoin_snapshot_version")
    except LookupError:
        return -1.0
