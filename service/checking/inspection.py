"""Verifies a data folder for `livejoin check`, without changing anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from service.access.store import read_tokens
from service.durability.database import DatabaseState, WrongFormat, open_read_only, read_catalog, read_sources, readable, replay, verify
from service.durability.folder import DATABASE, MARK, SNAPSHOTS, DamagedFolder, FolderLock
from service.durability.snapshots import aside_paths, read_snapshot, snapshot_paths


@dataclass
class SnapshotReport:
    """One snapshot: rows by relation id; `problem` if it is damaged."""

    path: Path
    version: int
    rows: dict[int, int] = field(default_factory=dict)
    bytes: int = 0
    problem: DamagedFolder | None = None


@dataclass
class Report:
    """The state of a data folder. `problems`: damage that loses versions, or prevents a start; `spared`: other damage, which another
    snapshot and the log make up for. Both are empty iff nothing is damaged. `recoverable` is the newest version that can be rebuilt."""

    folder: Path
    folder_id: str | None = None
    relations: list[tuple[int, str]] = field(default_factory=list)
    views: list[str] = field(default_factory=list)
    sources: dict[str, tuple[str | None, int]] = field(default_factory=dict)
    last_version: int | None = None  # according to the database and the mark
    log: tuple[int, int] | None = None  # first and last undamaged version in the log, without a gap
    log_bytes: int = 0
    snapshots: list[SnapshotReport] = field(default_factory=list)  # oldest first
    unfinished: list[Path] = field(default_factory=list)  # left by a crash; they were never valid
    set_aside: list[Path] = field(default_factory=list)  # snapshots that a start found damaged
    recoverable: int | None = None
    tokens: int | None = None  # None: not in token mode
    problems: list[DamagedFolder] = field(default_factory=list)
    spared: list[DamagedFolder] = field(default_factory=list)

    @property
    def keep(self) -> str:
        """A clause on what can be recovered."""
        if not self.problems:
            return f"everything can be recovered: version {self.last_version}"
        if self.recoverable is None:
            return "no version can be recovered from this folder"
        of = "" if self.last_version is None else f" of {self.last_version}"
        return f"version {self.recoverable}{of} can be recovered"


def inspect(folder: Path) -> Report:
    """Verify every checksum of `folder`; report its contents. Raises FolderInUse while a server runs, WrongFormat, OSError if the folder
    does not exist.

    Cost: everything is read once.
    """
    report = Report(folder)
    if not any((folder / name).exists() for name in (DATABASE, MARK, SNAPSHOTS)):
        raise FileNotFoundError(f"{folder} is not a data folder of livejoin: there is no {DATABASE} in it")
    with FolderLock(folder, read_only=True):
        found = _verified(report)
        _inspect_snapshots(report, found.forgotten if found is not None else 0)
        _inspect_database(report, found)
        _inspect_tokens(report)
        damaged = [found.problem for found in report.snapshots if found.problem is not None]
        if report.problems or report.recoverable != report.last_version:
            report.problems = damaged + report.problems
        else:
            report.spared += [DamagedFolder(one.what, one.where, "everything is there without this snapshot") for one in damaged]
    return report


def _verified(report: Report) -> DatabaseState | None:
    """Verify the database except the log; return what is there if it is consistent by itself. Raises WrongFormat."""
    try:
        return verify(report.folder)
    except WrongFormat:
        raise
    except DamagedFolder as problem:
        report.problems.append(problem)
    try:
        return verify(report.folder, trust_mark=False)  # its end may be lost
    except DamagedFolder:
        return None


def _inspect_snapshots(report: Report, forgotten: int) -> None:
    """Read every snapshot from which the log continues. A service starts without damaged recent changes of views, which are in no other
    file."""
    finished, report.unfinished = snapshot_paths(report.folder, forgotten)
    report.set_aside = aside_paths(report.folder)
    for path in finished:
        found = SnapshotReport(path, int(path.name))
        try:
            snapshot = read_snapshot(path)
            found.bytes = sum(table.bytes for table in snapshot.tables.values())
            found.rows = snapshot.verify()
        except DamagedFolder as problem:
            found.problem = problem
        else:
            remedy = "the tokens of this view's followers are lost, and they start again"
            report.spared += [DamagedFolder(one.what, one.where, remedy) for one in snapshot.damaged_feeds().values()]
        report.snapshots.append(found)


def _inspect_database(report: Report, found: DatabaseState | None) -> None:
    """Read the catalogue, and the log: after the newest undamaged snapshot, and before it, where an older one needs it."""
    bases = [snapshot.version for snapshot in report.snapshots if snapshot.problem is None]
    if found is None:
        report.recoverable = max(bases, default=None)
        return
    path = report.folder / DATABASE
    report.folder_id, report.last_version, report.log_bytes = found.folder_id, found.reach.version, found.bytes
    base = max(bases, default=0)
    last = base
    try:
        with open_read_only(path) as db:
            relations, views = read_catalog(db)
            report.relations = [(relation_id, name) for relation_id, name, *_ in relations]
            report.views = [view.name for view in views]
            report.sources = {name: (source.run, source.epoch) for name, source in read_sources(db).items()}
            report.spared += _summed_up(base, [row for row in readable(db, path, found.forgotten, base) if isinstance(row, DamagedFolder)])
            for row in replay(db, path, base, found.forgotten, found.reach.version):
                last = row.version
    except DamagedFolder as problem:
        report.problems.append(problem)
    if last > base:
        report.log = base + 1, last
    if base >= found.forgotten:
        report.recoverable = last


def _summed_up(base: int, damage: list[DamagedFolder]) -> list[DamagedFolder]:
    """Summarize the damage of batches that the snapshot at `base` contains."""
    if not damage:
        return []
    more = f", and {len(damage) - 1} more" if len(damage) > 1 else ""
    return [DamagedFolder(f"{damage[0].what}{more}", damage[0].where, f"the snapshot of version {base} has everything up to there")]


def _inspect_tokens(report: Report) -> None:
    try:
        tokens = read_tokens(report.folder)
    except DamagedFolder as problem:
        report.problems.append(problem)
    else:
        report.tokens = None if tokens is None else len(tokens)
