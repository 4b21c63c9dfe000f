"""`livejoin check`: verifies a data folder, and compares its views with a recomputation by brute force.

The folder stays as it is: a service is recovered from a copy (snapshots by links), and the folder's lock is held meanwhile.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa

from service.access.store import TOKENS
from service.backups.assembling import assemble
from service.backups.manifest import chain_of, read_backup, verify
from service.checking.inspection import Report, inspect
from service.checking.recomputation import beside, recompute, total
from service.durability import database
from service.durability.folder import BACKUP, LOCK, SNAPSHOTS, Damaged, FolderInUse, FolderLock
from service.durability.log import Log
from service.durability.upgrade import upgraded_copy
from service.instance import Instance
from service.reading.cursors import open_relation_rows, open_rows
from service.settings import Settings
from service.terminal import Failure, Parser
from service.wire.kinds import kept

ROWS = 65_536  # rows read at a time


def main(arguments: list[str]) -> int:
    args = _parser().parse_args(arguments)
    folder: Path = args.folder
    try:
        with _upgraded(folder) as current:
            report = inspect(current)
            report.folder = folder
            print("\n".join(describe(report)), flush=True)
            if report.problems:
                print(f"verdict    damaged: {report.keep}", flush=True)
                return 1
            names = _chosen(args.views, report.views)
            wrong = _recompute(current, report.views, names) if names else []
    except (FolderInUse, Damaged) as error:
        raise Failure(str(error)) from error
    except FileNotFoundError as error:
        raise Failure(str(error) if error.filename is None else f"{folder}: there is no such folder") from error
    if wrong:
        remedy = "please report this bug with the folder; dropping and registering the view again may mend it"
        print(f"verdict    not confirmed: {', '.join(wrong)}; {remedy}", flush=True)
        return 1
    confirmed = f"{len(names)} view{'s' if len(names) != 1 else ''} confirmed" if names else "no view was recomputed"
    if report.spared:
        remedy = "the service starts, and does without what is damaged; look at the disk"
        print(f"verdict    damaged, but no version is lost: {report.keep}; {confirmed}; {remedy}", flush=True)
        return 1
    print(f"verdict    sound: {report.keep}; {confirmed}", flush=True)
    return 0


def _parser() -> Parser:
    description = "Verify a data folder or a backup and recompute its views by brute force, without changing it. It must not be in use."
    parser = Parser("check", f"{description} The last line is the verdict; status 0: sound, 1: not.")
    parser.add_argument("folder", metavar="DIR", type=Path, help="the data folder, or the backup")
    parser.add_argument("--views", metavar="A,B", help="recompute only these views; none: only verify the checksums (default: all)")
    return parser


def _chosen(given: str | None, there: Sequence[str]) -> list[str]:
    """The views to recompute. Raises Failure for one that does not exist."""
    if given is None:
        return list(there)
    if given == "none":
        return []
    names = list(dict.fromkeys(name.strip() for name in given.split(",")))
    for name in names:
        if name not in there:
            raise Failure(f"--views: the folder has no view {name!r}; without --views all of its views are listed and recomputed", 2)
    return names


@contextmanager
def _upgraded(folder: Path) -> Iterator[Path]:
    """The folder; of one of format 1 an upgraded copy, of a backup a copy put together, for which all of it is verified."""
    if (folder / BACKUP).exists():
        with _assembled(folder) as copy:
            yield copy
        return
    try:
        old = database.format_of(folder) == 1
    except Damaged:  # which `inspect` reports
        old = False
    if not old:
        yield folder
        return
    lock = FolderLock(folder, read_only=True)
    copy = Path(tempfile.mkdtemp(prefix="livejoin-check-"))
    try:
        print("format     1: `livejoin serve` upgrades the folder when it is started", flush=True)
        upgraded_copy(folder, copy, lambda source, target: target.symlink_to(source.resolve()))
        if (folder / TOKENS).exists():
            shutil.copy2(folder / TOKENS, copy / TOKENS)
        yield copy
    except Damaged as problem:
        print(f"damage     {problem.what} in {problem.where}\nverdict    damaged: the folder cannot be upgraded as it is", flush=True)
        raise
    finally:
        shutil.rmtree(copy, ignore_errors=True)
        lock.release()


@contextmanager
def _assembled(folder: Path) -> Iterator[Path]:
    """The data folder that a backup is of, with links to its snapshots."""
    copy = Path(tempfile.mkdtemp(prefix="livejoin-check-"))
    try:
        try:
            chain = chain_of(read_backup(folder))
            verify(chain)
        except Damaged as problem:
            print(f"damage     {problem.what} in {problem.where}\nverdict    damaged: nothing can be restored from this backup", flush=True)
            raise
        for backup in chain:
            since = f" since version {backup.since.version}" if backup.since else ""
            print(f"backup     {backup.folder}, version {backup.version}{since}, of {backup.made}, {backup.bytes:,} bytes", flush=True)
        assemble(chain, copy, forks=False, links=True)
        yield copy
    finally:
        shutil.rmtree(copy, ignore_errors=True)


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
    said = "a start found this snapshot damaged; it is not used, and removed with the next snapshot: look at the disk"
    lines += [f"set aside  {path.name} ({said})" for path in report.set_aside]
    lines += [f"damage     {problem.what} in {problem.where}" for problem in report.problems]
    lines += [f"damage     {problem}" for problem in report.spared]
    return lines if report.problems or report.spared else [*lines, "checksums  ok"]


def _recompute(folder: Path, there: Sequence[str], names: Sequence[str]) -> list[str]:
    """As `_compare`, on a copy without the other views, which would be built too."""
    with _copy(folder) as copy:
        with closing(Log(copy)) as log:
            for name in there:
                if name not in names:
                    log.drop_view(name)
        return _compare(copy, names)


def _compare(folder: Path, names: Sequence[str]) -> list[str]:
    """Compare these views' rows with those found by brute force, and print the results; the views that differ or have failed.

    The structures are made from the rows at every start, so their invariants say nothing of the folder and are not verified here.
    Cost: a start, each view's rows, and what brute force looks at.
    """
    engine = Instance(folder, Settings.model_validate({"data": folder}))
    try:
        engine.recover()
        tables: dict[str, pa.RecordBatch] = {}
        return [name for name in names if not _agrees(engine, name, tables)]
    finally:
        engine.close()


def _table(engine: Instance, name: str) -> pa.RecordBatch:
    """All rows of a relation, as they are kept."""
    relation = engine.relations[name]
    with closing(open_relation_rows(engine.readers, name)) as reader:
        sent = iter(partial(reader.read, ROWS), None)
        parts = [pa.RecordBatch.from_arrays([kept(column) for column in rows.columns], schema=relation.schema) for rows in sent]
    return pa.concat_batches(parts) if parts else relation.no_rows.arrow


def _agrees(engine: Instance, name: str, tables: dict[str, pa.RecordBatch]) -> bool:
    """Compares one view, and prints the result. `tables`: the relations read so far."""
    view = engine.views[name]
    if view.state != "live":
        print(f"damage     view {name} has failed: {view.problem}", flush=True)
        return False
    for relation in view.definitions.keys() - tables.keys():
        tables[relation] = _table(engine, relation)
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
