"""How long single changes over one connection, to a relation that nothing else uses, wait while something else happens.

The figures exclude the time of fsyncs: the service's folder is in memory (`/dev/shm`) if the system supports that. The note of each figure
says how often the log was checkpointed; on a disk, each checkpoint costs two fsyncs. The figures include the time that the machine takes to
provide memory (`host_memory`), where much is freed and allocated again, as when views of millions of rows are rebuilt, and where a batch
reads rows that were not used for some seconds. Before the scenarios, the first access to a page is measured; after them, an access to a
page that was not used meanwhile. The longest wait is given twice: as measured, and without the time in which at least one processor stood
still (`standstill`), if that is known.

At 1,000,000 rows, all scenarios run three times, each time in another service: many take less than a second, in which a virtual machine
may be half as fast as in the next one. Of the three, p99.9 is the median, and the longest wait the longest.

Each line of `SCENARIOS` prepares something and returns the action to perform while the changes are sent. A run is compared with the figures
in `results/stalls_before.json`, if it exists: a result of this subject at an older commit, stored under that name.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import cycle, islice, takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tests.benchmarks.data import LINE
from tests.benchmarks.figures import Figure, Rival, Scale, Unfinished, earlier
from tests.benchmarks.host_memory import UnusedMemory, first_access
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.raw_client import ARROW, open_stream, post_all
from tests.benchmarks.served import LOAD, beside, gauge, serving
from tests.benchmarks.stalls_data import (
    BOW_TIE,
    BOXES,
    GAPS,
    GRID,
    INTERVALS,
    NARROW,
    OF_BUILDS,
    OF_THIRD,
    SMALL,
    SORTS,
    TEXTS,
    WIDE,
    Sort,
    Stage,
    body,
    of_texts,
)
from tests.benchmarks.standstill import without_standstills
from tests.end_to_end import talk

TITLE = "The service: how long single changes to an unrelated relation wait"

_AFTER = 1.5  # seconds to watch after the action: housekeeping runs once a second
_P999, _GAP, _GAP_LARGE = 10.0, 50.0, 100.0  # milliseconds; from _LARGE rows on, only the last one is an aim
_LARGEST = 1_000_000  # rows of a batch, by default
_WRITERS = 4  # connections
_WRITTEN = "a view is registered while batches move rows of its relation"
_ENVIRONMENT = {"LIVEJOIN_SYNCHRONOUS": "normal", "LIVEJOIN_PIN_IDLE": "3600", "LIVEJOIN_PIN_BYTES": "64GiB"}
_MEMORY = Path("/dev/shm")
_TOUCHED, _UNUSED = 4 << 30, 256 << 20  # bytes
_LARGE, _TIMES = 10_000_000, 3  # rows from which on there is one run; runs with fewer
LONGEST, RUNNING = "the longest", "the longest while all processors run"

Act = Callable[[], object]


def nothing(stage: Stage) -> Act:
    return lambda: None


def registered(sort: Sort, stage: Stage) -> Act:
    return partial(stage.view, "made", sort)


def registered_while_written(sort: Sort, stage: Stage) -> Act:
    """Other clients move rows of one of its relations until a second after the view is live."""
    bodies, ended = cycle(stage.moved("a", stage.half, SMALL)), threading.Event()

    def write() -> None:
        post_all(stage.server.port, takewhile(lambda _: not ended.is_set(), bodies), _WRITERS, kind=ARROW)

    def register() -> None:
        stage.view("made", sort)
        time.sleep(1.0)

    return partial(_while, write, ended, register)


def dropped(stage: Stage) -> Act:
    stage.view("made", INTERVALS)
    return partial(stage.drop, "made")


def metrics_polled(stage: Stage) -> Act:
    stage.view("made", INTERVALS)

    def poll() -> None:
        end = time.monotonic() + stage.watch
        while time.monotonic() < end:
            stage.client.get("/metrics").raise_for_status()

    return poll


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


def reclaimed(stage: Stage) -> Act:
    """A pin is released after half of the rows have moved."""
    stage.view("made", INTERVALS)
    connection, answer, _ = open_stream(stage.server.port, "/v1/views/made/rows", ARROW)
    stage.post(stage.moved("a", stage.half // 2, LOAD))

    def leave() -> None:
        answer.close()
        connection.close()

    return leave


def one_with_many_partners(stage: Stage) -> Act:
    """One change of one row that meets every row of the other relation."""
    stage.view("made", INTERVALS)
    row = dict.fromkeys(("room", "s", "s2", "x", "y"), 0) | {"id": int(stage.ids(1)[0]), "e": 2 * LINE, "e2": 1}
    return lambda: talk.ok(talk.send(stage.client, [{"relation": "a", "op": "insert", "row": row}]))


def feeds_settled(stage: Stage) -> Act:
    """Batches that change many rows of a view, which keeps them for its followers."""
    stage.view("made", INTERVALS)
    return partial(stage.post, stage.moved("b", stage.half // 5, 2 * SMALL))


def table_grown(stage: Stage) -> Act:
    """Small batches of new rows while the key table doubles, which begins when it is eleven sixteenths full and ends before twelve."""
    places = 1 << ((2 * stage.half).bit_length() - 1)
    first, end = 11 * places // 16 - SMALL, 3 * places // 4 + SMALL
    talk.define(stage.client, "grown", NARROW)
    rows = _narrow(np.arange(end))
    stage.post([body("grown", rows.slice(at, min(LOAD, first - at))) for at in range(0, first, LOAD)])
    return partial(stage.post, [body("grown", rows.slice(at, min(SMALL // 10, end - at))) for at in range(first, end, SMALL // 10)])


def text_rewritten(stage: Stage) -> Act:
    """Small batches that replace texts, until more than half of the stored texts are garbage."""
    talk.define(stage.client, "texts", TEXTS)
    stage.post([body("texts", of_texts(np.arange(at, at + LOAD), "first text")) for at in range(0, stage.half, LOAD)])
    again = stage.half + stage.half // 5
    return partial(stage.post, [body("texts", of_texts(np.arange(at, at + SMALL) % stage.half, "text")) for at in range(0, again, SMALL)])


def snapshot_written(stage: Stage) -> Act:
    """Batches until the log is long enough for a snapshot, and until the snapshot is written and the log truncated."""

    bodies = cycle(stage.moved("a", stage.half, SMALL))

    def write() -> None:
        before, end = _snapshot(stage), time.monotonic() + 300
        while _snapshot(stage) == before:
            assert time.monotonic() < end, "no snapshot was written"
            stage.post(list(islice(bodies, 5)))

    return write


def boxes_rebuilt(stage: Stage) -> Act:
    """New rows in a narrow range, which make a box tree rebuild subtrees."""
    stage.view("made", BOXES)
    return partial(stage.post, stage.new("a", stage.half // 10, SMALL // 10, LINE // 3, LINE // 3 + LINE // 1000))


def boxes_over_time(stage: Stage) -> Act:
    """New rows, each batch after all others: a box tree grows to one side, until the view is rebuilt."""
    stage.view("made", BOXES)
    batch, width = SMALL // 10, LINE // stage.half * SMALL // 10
    starts = range(LINE, LINE + stage.half * 7 // 10 // batch * width, width)
    return partial(stage.post, [one for start in starts for one in stage.new("a", batch, batch, start, start + width)])


def points_far_away(stage: Stage) -> Act:
    """New rows whose values are far from all others: a bow-tie needs more levels for all points."""
    stage.view("made", BOW_TIE)
    rows = stage.wide(stage.ids(SMALL))
    far = rows.set_column(rows.schema.get_field_index("x"), "x", pa.array(rows.column("x").to_numpy() + (1 << 40)))
    return partial(stage.post, [body("b", far.slice(at, SMALL // 10)) for at in range(0, SMALL, SMALL // 10)])


def quadtrees_merged(stage: Stage) -> Act:
    """Rows move until half as many entries have changed as the trees have. The trees are then rebuilt, one after the other."""
    stage.view("made", GRID)
    for relation in "ab":
        stage.post(stage.moved(relation, stage.half * 24 // 100, LOAD))  # a move changes two entries
    last = [stage.moved(relation, stage.half // 10, SMALL // 10) for relation in "ab"]
    return partial(stage.post, [one for both in zip(*last, strict=True) for one in both])


def large_batch(stage: Stage) -> Act:
    talk.define(stage.client, "bulk", NARROW)
    return partial(stage.post, [body("bulk", _narrow(np.arange(min(stage.half, _LARGEST))))])


def truncated(stage: Stage) -> Act:
    """Truncate the relation that the large batch has filled."""
    return lambda: talk.ok(talk.send(stage.client, [{"relation": "bulk", "op": "truncate"}]))


def truncated_below_a_view(sort: Sort, stage: Stage) -> Act:
    """Truncate a relation as large as each of the two others, below a view that reports its changes."""
    talk.define(stage.client, "c", WIDE)
    stage.post(stage.new("c", stage.half, LOAD))
    stage.view("made", sort)
    return lambda: talk.ok(talk.send(stage.client, [{"relation": "c", "op": "truncate"}]))


def truncated_while_written(sort: Sort, stage: Stage) -> Act:
    """The same, while another client changes the other relation of the view, one row after another."""
    truncate = truncated_below_a_view(sort, stage)
    ended = threading.Event()

    def write() -> None:
        while not ended.is_set():
            stage.post([body("b", stage.wide(stage.ids(1)))])

    return partial(_while, write, ended, truncate)


def relation_dropped(stage: Stage) -> Act:
    """Drop the relation; the turn of the batch that filled it is over, and so is the checkpoint after it."""
    large_batch(stage)()
    stage.post([body("bulk", _narrow(np.arange(1)))])
    return partial(talk.drop, stage.client, relations=["bulk"])


class Scenario(NamedTuple):
    """`is_turn`: the action itself is one version, applied in a single turn, so it has no aim. `is_busy`: throughout, changes wait behind
    batches over several connections, so p99.9 has none."""

    words: str
    prepare: Callable[[Stage], Act]
    is_turn: bool = False
    is_busy: bool = False


SCENARIOS = [
    Scenario("nothing else happens", nothing),
    *(Scenario(f"a view is registered: {sort.words}", partial(registered, sort)) for sort in SORTS),
    *(Scenario(f"{_WRITTEN}: {sort.words}", partial(registered_while_written, sort), is_busy=True) for sort in OF_BUILDS),
    Scenario("a view is dropped", dropped),
    Scenario("/metrics is polled", metrics_polled),
    Scenario("a slow reader holds a version", slow_reader),
    Scenario("a version is let go, and reclaimed", reclaimed),
    Scenario("one change has as many partners as rows", one_with_many_partners),
    Scenario("feeds are settled", feeds_settled),
    Scenario("a table of keys grows", table_grown),
    Scenario("texts are rewritten", text_rewritten),
    Scenario("a snapshot is written, the log is cut", snapshot_written),
    Scenario("boxes are rebuilt", boxes_rebuilt),
    Scenario("boxes come over time", boxes_over_time),
    Scenario("points come far from all others", points_far_away),
    Scenario("quadtrees merge", quadtrees_merged),
    Scenario("a large batch", large_batch, True),
    Scenario("a relation is truncated", truncated),
    *(Scenario(f"a relation with a view is truncated: {sort.words}", partial(truncated_below_a_view, sort)) for sort in OF_THIRD),
    Scenario(f"a relation is truncated while others of its view are written: {GAPS.words}", partial(truncated_while_written, GAPS)),
    Scenario("a relation is dropped", relation_dropped),
]


def run(scale: Scale, note: Note) -> list[Figure]:
    sizes = [scale.size(1_000_000, 4_000), *([10_000_000] if scale.large and not scale.quick else [])]
    kept = {} if scale.quick else earlier("stalls")
    figures, failed = list[Figure](), list[str]()
    for n in sizes:
        found: list[list[Figure]] = [[] for _ in range(1 if scale.quick or n >= _LARGE else _TIMES)]
        failed += [words for run_ in found for words in measure(n, SCENARIOS, scale, note, kept, run_)]
        figures += of_runs(found)
    if failed:
        raise Unfinished(figures, failed)
    return figures


def of_runs(found: list[list[Figure]]) -> list[Figure]:
    """Combine the figures of several runs by their names: the longest of the longest waits, the median of the others."""
    combined = []
    for name in dict.fromkeys(figure.name for figures in found for figure in figures):
        ascending = sorted((figure for figures in found for figure in figures if figure.name == name), key=lambda figure: figure.value)
        is_longest = name.endswith((LONGEST, RUNNING))
        chosen = ascending[-1 if is_longest else len(ascending) // 2]
        chosen.parameters["runs"] = [round(figure.value, 3) for figure in ascending]
        combined.append(chosen)
    return combined


def measure(n: int, scenarios: list[Scenario], scale: Scale, note: Note, kept: dict[str, Rival], figures: list[Figure]) -> list[str]:
    """Run the scenarios one after the other in one service of n rows: append the figures of each, and return the names of those that
    failed."""
    failed, unused = [], None
    if not scale.quick:
        note(f"memory: {first_access(_TOUCHED)}")
        unused = UnusedMemory(_UNUSED)
    with serving(scale, _ENVIRONMENT, _MEMORY if _MEMORY.is_dir() else None) as server:
        stage = Stage(server, n, scale.size(3, 0))
        stage.fill()
        note(f"{n:,} rows are loaded")
        for scenario in scenarios:
            try:
                act, checkpoints = scenario.prepare(stage), _checkpoints(stage)
                seen = watched(stage, act)
                more = f"{_since(checkpoints, _checkpoints(stage))}; {seen.stood_still}"
                stage.clear()
            except Exception as error:
                failed.append(f"{n:,} rows, {scenario.words}")
                note(f"{scenario.words}: failed: {error!r}")
                with suppress(Exception):
                    stage.clear()
                continue
            found = figures_of(n, scenario, seen, kept, more)
            values = ", ".join(f"{figure.name.rpartition(': ')[2]} {figure.value:.1f} ms" for figure in found)
            note(f"{scenario.words}: {seen.seconds:.1f} s, {values}; {more}")
            figures += found
    if unused is not None:
        seconds, first, again = unused.read()
        about = f"{again:.2f} µs when repeated at once; it was filled {seconds:.0f} s before, in the benchmark, not in the service"
        figures.append(Figure(f"{n:,} rows: access to a page of 4 KiB that was not used meanwhile", first, "µs", note=about))
        note(f"a page that was not used meanwhile: {first:.1f} µs, {about}")
    return failed


class Watched(NamedTuple):
    """How long single changes waited during an action and for some time afterwards.

    `waits`: milliseconds until the answer, for each change that was sent or answered during that time; `running`: likewise, without the
    time in which at least one processor stood still, None if that is unknown; `still`: milliseconds of the longest time that one processor
    stood still; `seconds`: how long the action took.
    """

    waits: np.ndarray
    running: np.ndarray | None
    still: float
    seconds: float

    @property
    def stood_still(self) -> str:
        if self.running is None:
            return "whether a processor stood still is unknown"
        return f"a processor stood still for at most {self.still:.1f} ms"


def together(seen: list[Watched]) -> Watched:
    """Return the waits of several actions, as if they were one."""
    known = [one.running for one in seen if one.running is not None]
    running = np.concatenate(known) if len(known) == len(seen) else None
    return Watched(
        np.concatenate([one.waits for one in seen]), running, max(one.still for one in seen), sum(one.seconds for one in seen)
    )  # fmt: skip


def figures_of(n: int, scenario: Scenario, seen: Watched, kept: dict[str, Rival], more: str) -> list[Figure]:
    """`more`: the note of the longest."""
    p50, p99, p999 = (float(value) for value in np.percentile(seen.waits, (50, 99, 99.9), method="higher"))
    about = {"rows": n, "changes": len(seen.waits), "seconds": round(seen.seconds, 2), "p50": round(p50, 3), "p99": round(p99, 3)}
    name = f"{n:,} rows, {scenario.words}"
    is_large = n >= _LARGE
    largest = None if scenario.is_turn else _GAP_LARGE if is_large else _GAP
    usual = None if scenario.is_turn or scenario.is_busy or is_large else _P999
    found = [("p99.9", p999, usual, f"p50 {p50:.2f}, p99 {p99:.2f}"), (LONGEST, float(seen.waits.max()), largest, more)]
    if seen.running is not None:
        found.append((RUNNING, float(seen.running.max()), largest, "without the time in which one of them stood still"))
    return [
        Figure(words := f"{name}: {what}", value, "ms", aim, True, [kept[words]] if words in kept else [], about, note=said)
        for what, value, aim, said in found
    ]


def watched(stage: Stage, act: Act) -> Watched:
    """Act, send single changes meanwhile and for some time afterwards, and return how long they waited."""
    with beside("stalls_client", str(stage.server.port), "unrelated") as sent, beside("standstill") as stood_still:
        start = time.monotonic()
        act()
        seconds = time.monotonic() - start
        time.sleep(max(_AFTER, stage.watch - seconds))
        starts, waits = np.array(sent()).T
        spans = stood_still()
    is_seen = starts + waits > start
    starts, waits = starts[is_seen], waits[is_seen]
    running = None if spans is None else 1e3 * without_standstills(spans, starts, waits)
    still = max([0.0, *(min(end, starts[-1] + waits[-1]) - max(since, start) for since, end in spans or [])])
    return Watched(1e3 * waits, running, 1e3 * still, seconds)


def _checkpoints(stage: Stage) -> tuple[float, float]:
    """The number of checkpoints of the log so far, and their seconds."""
    return gauge(stage.server, "livejoin_checkpoint_seconds_count"), gauge(stage.server, "livejoin_checkpoint_seconds_sum")


def _since(before: tuple[float, float], now: tuple[float, float]) -> str:
    count = int(now[0] - before[0])
    return f"{count} checkpoints of the log, of {1e3 * (now[1] - before[1]) / count:.1f} ms" if count else "no checkpoint of the log"


def _while(write: Act, ended: threading.Event, act: Act) -> None:
    """Act while another thread writes, until `ended` is set."""
    with ThreadPoolExecutor(1) as threads:
        written = threads.submit(write)
        try:
            act()
        finally:
            ended.set()
        written.result()


def _narrow(ids: np.ndarray) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": pa.array(ids), "s": pa.array(ids), "e": pa.array(ids + 10)})


def _snapshot(stage: Stage) -> float:
    try:
        return gauge(stage.server, "livejoin_snapshot_version")
    except LookupError:
        return -1.0

