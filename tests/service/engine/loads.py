"""Which kernels are loaded or compiled by whoever holds the writer's turn, in a process that has loaded none before. Those who write would
wait there for all others who load or compile. A program, as a process loads a kernel once:

    python -m tests.service.engine.loads FOLDER CASE...

It prints a line for each case, which has a process of its own: its name, and who asked for which kernel, as JSON.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numba.core.dispatcher import Dispatcher
from numba.core.sigutils import normalize_signature

from livejoin.wire.batch import Batch, Changes, RowBlock
from livejoin.wire.schema import RelationPatch
from service import warming
from service.engine import truncates
from service.engine.outcomes import Receipt
from service.instance import Instance
from service.reading.cursors import open_relation_rows, open_rows
from service.settings import Settings
from service.views.stages.counted import CountedStage
from structures.core import kernel
from tests.service.engine.test_builds import BOXES, SHARING, VIEWS, ended, rows_like, some_changes
from tests.service.engine.test_room_of_views import GROUPS, RANKED, STATEMENTS
from tests.service.engine.test_truncates import MORE
from tests.service.running import ORDER, HeldWriter, look, parts

_CHOSEN = (
    "groups by text", "one group", "groups of numbers", "left", "left of two", "exists", "latest", "as of", "gaps", "coverage", "full",
    "groups of left",
)  # fmt: skip
_OTHERS = {
    "ordered clique": "SELECT p.id AS p, q.id AS q, r.id AS r FROM a p, a q, a r WHERE overlaps(p.x, q.x) AND overlaps(q.x, r.x) AND "
    "overlaps(p.x, r.x) AND p.id < q.id AND q.id < r.id",
    "union": "SELECT a.tag AS t FROM a UNION SELECT b.tag AS t FROM b",
    "counted pairs": "SELECT COUNT(*) AS n FROM a JOIN b ON overlaps(a.x, b.x)",
    "summed pairs": "SELECT a.tag AS tag, SUM(b.t) AS t FROM a JOIN b ON overlaps(a.x, b.x) GROUP BY a.tag",
    "summed partners": "SELECT COUNT(*) AS n, SUM(a.t) AS t FROM a JOIN b ON a.tag = b.tag",
    "coverage of groups": "SELECT a.tag AS t, coverage(a.x) AS busy FROM a GROUP BY a.tag",
}
_STATEMENTS = {name: sql for name, sql in (STATEMENTS | RANKED | _OTHERS).items() if name not in (*_CHOSEN, "groups alone", "most of all")}
CASES: dict[str, list[dict[str, Any]]] = {
    **{name: [view] for name, view in VIEWS.items()},
    **{name: [MORE[name]] for name in _CHOSEN},
    **{name: [{"sql": sql}] for name, sql in _STATEMENTS.items()},
    "groups of boxes": [VIEWS["boxes"] | GROUPS],
    "several that share": [VIEWS[name] for name in SHARING],
}
STARTED = (
    "pairs", "boxes", "clique", "tree", "qdag", "shared", "sweeper", "bow_tie", "groups by text", "groups of numbers", "left", "as of",
)  # fmt: skip
_MANY = 2000


def watch() -> dict[str, str]:
    """Of each kernel that the writer's thread loads from now on, or that anybody compiles for other arguments than it is listed with, tell
    who asks for it."""
    found: dict[str, str] = {}
    compile_ = Dispatcher.compile
    listed = {(dispatcher, normalize_signature(signature)[0]) for dispatcher, signature in kernel._listed}

    def noted(dispatcher: Any, signature: Any) -> Any:
        if threading.current_thread().name == "writer" or (dispatcher, normalize_signature(signature)[0]) not in listed:
            asking = [f"{Path(frame.filename).name}:{frame.name}" for frame in traceback.extract_stack() if "numba" not in frame.filename]
            found.setdefault(warming._name(dispatcher), " > ".join(asking[-8:-1]))
        return compile_(dispatcher, signature)

    Dispatcher.compile = noted
    return found


def write(engine: Instance, op: str, relation: str, rows: pa.RecordBatch) -> None:
    engine.apply(_batch(op, relation, rows))


def _batch(op: str, relation: str, rows: pa.RecordBatch) -> Batch:
    count = rows.num_rows
    changes = Changes(relation, BOXES, np.full(count, ORDER[op], np.uint8), RowBlock(rows), np.arange(count))
    return Batch([changes], count, 0, [], 0)


def sparse(first: int, count: int) -> pa.RecordBatch:
    """Rows that meet few others."""
    ids = np.arange(first, first + count)
    columns = [pa.array(one) for one in (ids, 10 * ids, 10 * ids + 12, 10 * ids, 10 * ids + 12)]
    tags = pa.array([f"tag {id_}" for id_ in ids], pa.utf8())
    return pa.RecordBatch.from_arrays([*columns, tags], schema=BOXES.arrow_schema())


def singles(engine: Instance, rng: random.Random) -> None:
    for _ in range(12):
        for relation in "ab":
            for op in ("upsert", "upsert", "delete"):
                change = _batch(op, relation, rows_like(rng, [rng.randrange(60)]))
                engine.apply(change)


def in_runs(engine: Instance, rng: random.Random, op: str, ids: range) -> None:
    """Single changes that wait for one another."""
    held = HeldWriter(engine)
    for id_ in ids:
        for relation in "ab":
            held.submit(_batch(op, relation, sparse(id_, 1) if id_ >= 1000 else rows_like(rng, [id_])))
    held.release()
    parts(engine).writer.call(lambda: None).result()
    assert all(isinstance(answer, Receipt) for answer in held.answers) and len(held.answers) == 2 * len(ids)
    look(engine)


def in_use(engine: Instance, rng: random.Random) -> None:
    """Single changes, batches and runs of all kinds, with what the writer does afterwards."""
    singles(engine, rng)
    for _ in range(6):
        engine.apply(some_changes(rng, 12))
        look(engine)
    in_runs(engine, rng, "upsert", range(20))
    with closing(open_relation_rows(engine.readers, "a")) as reader:
        reader.read(5)
        for relation in "ab":
            write(engine, "upsert", relation, sparse(1000, _MANY))
        look(engine)
        in_runs(engine, rng, "upsert", range(9000, 9040))
        in_runs(engine, rng, "delete", range(1000, 1100))
        for relation in "ab":
            write(engine, "delete", relation, sparse(1100, _MANY // 2))
        look(engine)
    for view in engine.views.values():
        with closing(open_rows(engine.readers, view.name)) as rows:
            while rows.read(1000) is not None:
                pass


def fill(engine: Instance, rng: random.Random) -> None:
    for name in "ab":
        engine.put_relation(name, BOXES)
        write(engine, "upsert", name, rows_like(rng, list(range(50))))


def register(engine: Instance, definitions: list[dict[str, Any]]) -> None:
    for number, definition in enumerate(definitions):
        view, _ = engine.put_view(f"v{number}", definition, wait=60)
        assert view.state == "live", view.problem


def end(engine: Instance, rng: random.Random) -> None:
    """Views are rebuilt; a relation gets another column; relations are truncated, with and without preparation; all is dropped."""
    for view in engine.views.values():
        if not isinstance(view.join, CountedStage):  # these never outgrow what they have
            parts(engine).builds.rebuild(view)
    ended(engine)
    singles(engine, rng)
    engine.patch_relation("a", RelationPatch.model_validate({"add_columns": [{"name": "more", "type": "int64", "nullable": True}]}))
    for worth in (1 << 20, 1):
        truncates._WORTH = worth
        for relation in "ab":
            write(engine, "truncate", relation, sparse(0, 1))
            look(engine)
            write(engine, "upsert", relation, rows_like(rng, list(range(50))))
    singles(engine, rng)
    for name in list(engine.views):
        engine.drop_view(name)
    for name in "ab":
        engine.drop_relation(name)
    look(engine)


def opened(folder: Path) -> Iterator[tuple[Instance, dict[str, str]]]:
    """With what is loaded in its turns."""
    engine = Instance(folder, Settings.model_validate({"data": folder, "pin_idle": 600}))
    yield engine, watch()
    engine.close()


def lived_through(folder: Path, definitions: list[dict[str, Any]]) -> dict[str, str]:
    rng = random.Random(1)
    with contextmanager(opened)(folder) as (engine, found):
        engine.recover()
        fill(engine, rng)
        register(engine, definitions)
        in_use(engine, rng)
        end(engine, rng)
    return found


def left_for_a_restart(folder: Path) -> dict[str, str]:
    rng = random.Random(1)
    with contextmanager(opened)(folder) as (engine, found):
        engine.recover()
        fill(engine, rng)
        register(engine, [definition for (definition,) in (CASES[name] for name in STARTED)])
        engine.apply(some_changes(rng, 12))
    return found


def started_again(folder: Path) -> dict[str, str]:
    """Others write while the views are built, and replayed."""
    rng = random.Random(2)
    with contextmanager(opened)(folder) as (engine, found):
        writing = threading.Thread(target=lambda: singles(engine, rng))
        engine.recover(opened=writing.start)
        writing.join()
        assert {view.state for view in engine.views.values()} == {"live"} and len(engine.views) == len(STARTED)
        in_use(engine, rng)
        end(engine, rng)
    return found


def in_a_process(name: str, work: Callable[[], dict[str, str]]) -> None:
    sys.stdout.flush()
    if not (pid := os.fork()):
        status = 1
        try:
            print(json.dumps([name, work()]), flush=True)
            status = 0
        except BaseException:
            traceback.print_exc()
        os._exit(status)
    if os.waitpid(pid, 0)[1]:
        sys.exit(f"{name} failed")


def main(folder: Path, chosen: list[str]) -> None:
    warming.warm(lambda done, total: None)
    gc.freeze()
    in_a_process("no view", lambda: lived_through(folder / "none", []))
    in_a_process("registrations", lambda: left_for_a_restart(folder / "restart"))
    in_a_process("a start with these views", lambda: started_again(folder / "restart"))
    warming.Kernels().load(warming.EVERY_BATCH)  # the first case has shown that they are loaded beside the writer
    for name in chosen or CASES:
        in_a_process(name, partial(lived_through, folder / name, CASES[name]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
