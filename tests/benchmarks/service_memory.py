"""Memory per row: bookings (five columns, one of them text) with the view of double bookings over them, and which parts hold it.

Bytes per row are the memory of the service beyond that of an empty service that has loaded the code of such a view, divided by the number
of rows: after the load, after every row of a million was replaced three times, and after a restart. What the service itself counts comes
from `/metrics`, the total from Linux.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import numpy as np
import psutil
import pyarrow as pa

from tests.benchmarks.data import keyed
from tests.benchmarks.figures import Figure, Scale
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.raw_client import post_all
from tests.benchmarks.resident import Resident, resident
from tests.benchmarks.served import LOAD, serving
from tests.end_to_end import talk
from tests.relations import declared
from tests.server_process import ServerProcess

TITLE = "The service: memory per row"
PAGE = "docs/memory.md"
BEGIN, END = "<!-- table:begin (from `make bench`) -->", "<!-- table:end -->"
AIM = 150.0  # bytes
SIZES = ((1_000_000, 3), (10_000_000, 0))  # rows, and how often each is replaced

_STILL = 1 << 20  # bytes by which memory may change in two seconds at rest

DEFINITION = declared("id:int64, room:int64, guest:string, starts:timestamp, ends:timestamp", stay="starts ends")
SQL = "SELECT a.id AS x, b.id AS y FROM bookings a JOIN bookings b ON a.room = b.room AND overlaps(a.stay, b.stay) AND a.id < b.id"
FIRST = "Ada Alan Barbara Edsger Frances Grace Hedy Jean John Katherine Margaret Niklaus Radia Sophie Tim Whitfield".split()
LAST = "Allen Diffie Dijkstra Hamilton Hopper Johnson Kaldewaij Lamarr Liskov Lovelace Perlman Sammet Turing Wilson Wing Wirth".split()
GUESTS = pa.array([f"{first} {last}" for first in FIRST for last in LAST])  # of 12.6 bytes


def run(scale: Scale, note: Note) -> list[Figure]:
    sizes = ((5_000, 2),) if scale.quick else SIZES
    return [figure for n, rounds in sizes for figure in measure(n, rounds, scale, note)]


def measure(n: int, rounds: int, scale: Scale, note: Note) -> list[Figure]:
    figures = []
    with serving(scale) as server:
        with server.client() as client:
            talk.define(client, "bookings", DEFINITION)
            talk.view(client, "double", {"sql": SQL}, 60)
            talk.drop(client, ["double"], ["bookings"])
        rest(server, scale)
        empty = resident(server.process.pid)

        def look(when: str) -> None:
            rest(server, scale)
            held, now = holders(server), resident(server.process.pid)
            figures.extend(figures_of(f"{n:,} rows, {when}", n, held, empty, now))
            note(f"{n:,} rows, {when}: {(now.all - empty.all) / n:.1f} B a row, empty {empty.all >> 20} MiB")

        with httpx.Client(base_url=server.url, timeout=600) as client:
            client.put("/v1/relations/bookings", json=DEFINITION).raise_for_status()
            post_all(server.port, bookings(n, np.arange(n), 1), 1)
            client.put("/v1/views/double", json={"sql": SQL}).raise_for_status()
            while (state := client.get("/v1/views/double").json()["state"]) != "live":
                assert state == "building", state
                time.sleep(0.05)
        look("loaded")
        for round_ in range(rounds):
            post_all(server.port, bookings(n, np.random.default_rng(round_).permutation(n), 2 + round_), 1)
        if rounds:
            look(f"each replaced {rounds} times")
        assert server.stop() == 0
        server.start()
        look("restarted")
    return figures


def bookings(n: int, ids: np.ndarray, seed: int) -> Iterator[bytes]:
    """Upserts of these bookings, in batches: 20 per room, each meeting about four others."""
    rng = np.random.default_rng(seed)
    entries = keyed(n, 2, max(1, n // 20)).entries
    guests = rng.integers(0, len(GUESTS), n)
    shift = rng.integers(0, 10**9, n)
    for at in range(0, n, LOAD):
        some = ids[at : at + LOAD]
        starts, ends = entries.left[some] + shift[some], entries.right[some] + shift[some] + 1
        columns = {
            "id": pa.array(some),
            "room": pa.array(entries.key[some].astype(np.int64)),
            "guest": GUESTS.take(pa.array(guests[some])),
            "starts": pa.array(starts).cast(pa.timestamp("us", "UTC")),
            "ends": pa.array(ends).cast(pa.timestamp("us", "UTC")),
        }
        batch = pa.RecordBatch.from_pydict(columns, metadata={"livejoin.relation": "bookings"})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield sink.getvalue().to_pybytes()


def rest(server: ServerProcess, scale: Scale) -> None:
    """Wait until the service is at rest: a snapshot is written, and memory is returned."""
    process, quiet, before = psutil.Process(server.process.pid), 0, 0
    while quiet < scale.size(5, 1):
        busy, now = process.cpu_percent(2.0) > 2, resident(server.process.pid).anonymous
        quiet = 0 if busy or abs(now - before) > _STILL else quiet + 1
        before = now


def holders(server: ServerProcess) -> dict[str, float]:
    """Bytes by holder, as the service counts them."""
    held: dict[str, float] = {}
    for line in httpx.get(f"{server.url}/metrics", timeout=60).text.splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith("livejoin_relation_bytes{"):
            held[name.partition('holder="')[2].partition('"')[0]] = float(value)
        elif name.startswith("livejoin_view_bytes{"):
            held["structure and join keys"] = float(value)
        elif name.startswith("livejoin_view_changes_bytes{"):
            held["changes kept for followers"] = float(value)
    return held


def page(figures: list[Figure], text: str) -> str:
    """Return the page `PAGE` with its table replaced by these figures."""
    before, begin, rest_ = text.partition(BEGIN)
    _, end, after = rest_.partition(END)
    assert begin and end, f"{PAGE} has lost the marks of its table"
    return f"{before}{begin}\n{table(figures)}{end}{after}"


def table(figures: list[Figure]) -> str:
    """Bytes per row: a line for each holder, a column for each point in time."""
    columns = list(dict.fromkeys(figure.name.partition(": ")[0] for figure in figures))
    parts = list(dict.fromkeys(figure.name.partition(": ")[2] for figure in figures))
    values = {figure.name: figure.value for figure in figures}
    lines = [f"| | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    for part in (*parts[1:], parts[0]):
        cells = [values[f"{column}: {part}"] for column in columns]
        if any(round(value, 1) for value in cells):
            lines.append(f"| {part} | {' | '.join(f'{value:.1f}' for value in cells)} |")
    return "\n".join(lines) + "\n"


def figures_of(name: str, n: int, held: dict[str, float], empty: Resident, now: Resident) -> list[Figure]:
    """Bytes per row: the total, then by holder. Uncounted memory, of arrays and of everything else, has figures of its own."""
    allocated = held["changes kept for followers"]  # the key table is reserved, unless it is small
    reserved = sum(held.values()) - allocated
    parts = {
        **held,
        "unused ends of arrays and free blocks": now.reserved - empty.reserved - reserved,
        "allocators (C, NumPy, Arrow, SQLite, Python)": now.anonymous - empty.anonymous - allocated,
        "code and libraries": now.files - empty.files,
    }
    about = {"rows": n, "empty": empty._asdict(), "now": now._asdict()}
    return [
        Figure(f"{name}: in total", (now.all - empty.all) / n, "B", AIM, True, parameters=about),
        *(Figure(f"{name}: {part}", size / n, "B", less=True) for part, size in parts.items()),
    ]
