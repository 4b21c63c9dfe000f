"""`livejoin check`: is a data folder what was written, and do its views hold the rows that brute force finds?

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
    parser = Parser("check", "Verify a data folder, without changing it, and recompute its views by brute force. No service may run on it.")
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
    """What is in the folder, a thing a line."""
    lines = [f"folder     {report.folder}, version {report.last_version}"]
    lines += [f"relation   {name}" for _, name in report.relations]
    lines += [f"view       {name}" for name in report.views]
    lines += [
        f"source     {name}, epoch {epoch}" + (f", run {run}" if run else "") for name, (run, epoch) in sorted(report.sources.items())
    ]
    lines += [f"snapshot   version {found.version}, {sum(found.rows.values()):,} rows, {found.bytes:,} bytes" for found in report.snapshots]
    if report.log:
        lines.append(f"log        versions {report.log[0]} to {report.log[1]}, {report.log_bytes:,} bytes")
    lines += [f"unfinished {path.name} (a crash left it; it never counted)" for path in report.unfinished]
    lines += [f"damage     {problem.what} in {problem.where}" for problem in report.problems]
    return lines if report.problems else [*lines, "checksums  all right"]


def _recompute(folder: Path) -> int:
    """Every view's rows in its structure against those of brute force. Status 1 where they differ."""
    engine = Instance(folder, Settings.model_validate({"data": folder}))
    try:
        engine.recover()
        tables = {name: _table(engine, name) for name in engine.relations}
        wrong = sum(not _agrees(engine, name, tables) for name in engine.views)
    finally:
        engine.close()
    if wrong:
        raise Failure("a view differs from brute force: a bug, please report it with the folder; drop the view and register it again")
    return 0


def _table(engine: Instance, name: str) -> pa.RecordBatch:
    """All rows of a relation."""
    relation = engine.relations[name]
    relation.table.check()
    with closing(open_relation_rows(engine.readers, name)) as reader:
        parts = list(iter(partial(reader.read, ROWS), None))
    return pa.concat_batches(parts) if parts else relation.no_rows


def _agrees(engine: Instance, name: str, tables: Mapping[str, pa.RecordBatch]) -> bool:
    """Compares one view, and says so."""
    view = engine.views[name]
    view.join.check()
    with closing(open_rows(engine.readers, name)) as reader:
        told = total(beside(*part) for part in iter(partial(reader.read_with_keys, ROWS), None))
    found = total(recompute(view.view.query, view.definitions, tables))
    if told == found:
        print(f"view       {name}: {told.rows:,} row{'s' if told.rows != 1 else ''}, as brute force finds them", flush=True)
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
