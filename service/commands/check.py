"""`livejoin check`: verifies a data folder, and compares its views with a recomputation by brute force.

The folder stays as it is: a service is recovered from a copy (snapshots by links), and the folder's lock is held meanwhile.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa

from service.checking.inspection import Report, inspect
from service.checking.recomputation import beside, recompute, total
from service.durability.folder import LOCK, SNAPSHOTS, Damaged, FolderInUse, FolderLock
from service.instance import Instance
from service.reading.cursors import open_relation_rows, open_rows
from service.settings import Settings
from service.terminal import Failure, Parser

ROWS = 65_536  # rows read at a time


def main(arguments: list[str]) -> int:
    parser = Parser("check", "Verify a data folder and recompute its views by brute force, without changing it. It must not be in use.")
    parser.add_argument("folder", metavar="DIR", type=Path, help="the data folder")
    args = parser.parse_args(arguments)
    folder: Path = args.folder
    try:
        report = inspect(folder)
        print("\n".join(describe(report)), flush=True)
        if report.problems:
            raise Failure(f"{folder} is damaged: {report.keep}")
        with _copy(folder) as copy:
            return _recompute(copy)
    except (FolderInUse, Damaged) as error:
        raise Failure(str(error)) from error
    except FileNotFoundError as error:
        raise Failure(str(error) if error.filename is None else f"{folder}: there is no such folder") from error


def describe(report: Report) -> list[str]:
    """The contents of the folder, one item per line."""
    lines = [f"folder     {report.folder}, version {report.last_version}"]
    lines += [f"relation   {name}" for _, name in report.relations]
    lines += [f"view       {name}" for name in report.views]
    lines += [
        f"source     {name}, epoch {epoch}" + (f", run {run}" if run else "") for name, (run, epoch) in sorted(report.sources.items())
    ]
    lines += [f"snapshot   version {found.version}, {sum(found.rows.values()):,} rows, {found.bytes:,} bytes" for found in report.snapshots]
    if report.log:
        lines.append(f"log        versions {report.log[0]} to {report.log[1]}, {report.log_bytes:,} bytes")
    if report.tokens is not None:
        lines.append(f"tokens     {report.tokens}")
    lines += [f"unfinished {path.name} (left by a crash, not used)" for path in report.unfinished]
    lines += [f"damage     {problem.what} in {problem.where}" for problem in report.problems]
    return lines if report.problems else [*lines, "checksums  ok"]


def _recompute(folder: Path) -> int:
    """Compares every view's rows with those found by brute force. Status 1 if they differ."""
    engine = Instance(folder, Settings.model_validate({"data": folder}))
    try:
        engine.recover()
        tables = {name: _table(engine, name) for name in engine.relations}
        wrong = sum(not _agrees(engine, name, tables) for name in engine.views)
    finally:
        engine.close()
    if wrong:
        raise Failure("a view differs from brute force: please report this bug with the folder; to repair it, drop and register the view")
    return 0


def _table(engine: Instance, name: str) -> pa.RecordBatch:
    """All rows of a relation."""
    relation = engine.relations[name]
    engine.at_rest(relation.table.check)
    with closing(open_relation_rows(engine.readers, name)) as reader:
        parts = list(iter(partial(reader.read, ROWS), None))
    return pa.concat_batches(parts) if parts else relation.no_rows.arrow


def _agrees(engine: Instance, name: str, tables: Mapping[str, pa.RecordBatch]) -> bool:
    """Compares one view, and prints the result."""
    view = engine.views[name]
    engine.at_rest(view.join.check)
    with closing(open_rows(engine.readers, name)) as reader:
        told = total(beside(*part) for part in iter(partial(reader.read_with_keys, ROWS), None))
    found = total(recompute(view.view.query, view.definitions, tables))
    if told == found:
        print(f"view       {name}: {told.rows:,} row{'s' if told.rows != 1 else ''}, confirmed by brute force", flush=True)
    else:
        by_force = f"brute force {found.rows:,} (checksum {found.checksum})"
        print(f"damage     view {name}: {told.rows:,} rows (checksum {told.checksum}), {by_force}", flush=True)
    return told == found


@contextmanager
def _copy(folder: Path) -> Iterator[Path]:
    """A folder like this one to recover from; the original is locked meanwhile."""
    lock = FolderLock(folder, read_only=True)
    copy = Path(tempfile.mkdtemp(prefix="livejoin-check-"))
    try:
        for path in folder.iterdir():
            if path.is_file() and path.name != LOCK:
                shutil.copy2(path, copy / path.name)
        for path in sorted((folder / SNAPSHOTS).glob("*/*")):
            target = copy / SNAPSHOTS / path.parent.name / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path.resolve())
        yield copy
    finally:
        shutil.rmtree(copy, ignore_errors=True)
        lock.release()
