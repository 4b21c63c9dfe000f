"""`livejoin check`: verifies a data folder or a backup, and compares its views with a recomputation by brute force. Changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from livejoin.terminal import Failure, Parser
from service.checking.comparison import compare
from service.checking.copies import assembled
from service.checking.inspection import Report, inspect
from service.durability.folder import BACKUP, DamagedFolder, FolderInUse

_emit = partial(print, flush=True)  # a line of the report


def main(arguments: list[str]) -> int:
    args = _parser().parse_args(arguments)
    folder: Path = args.folder
    try:
        with ExitStack() as copies:
            current = _current(folder, copies)
            report = inspect(current)
            report.folder = folder
            _emit("\n".join(describe(report)))
            if report.problems:
                _emit(f"verdict    damaged: {report.keep}")
                return 1
            names = _chosen(args.views, report.views)
            wrong = compare(current, report.views, names, _emit) if names else []
    except (FolderInUse, DamagedFolder) as error:
        raise Failure(str(error)) from error
    except FileNotFoundError as error:
        raise Failure(str(error) if error.filename is None else f"{folder}: there is no such folder") from error
    if wrong:
        remedy = "please report this bug with the folder"  # structures were built anew for the comparison, as by another registration
        _emit(f"verdict    not confirmed: {', '.join(wrong)}; {remedy}")
        return 1
    confirmed = f"{len(names)} view{'s' if len(names) != 1 else ''} confirmed" if names else "no view was recomputed"
    if report.spared:
        remedy = "the service can start without what is damaged; check the disk"
        _emit(f"verdict    damaged, but no version is lost: {report.keep}; {confirmed}; {remedy}")
        return 1
    _emit(f"verdict    sound: {report.keep}; {confirmed}")
    return 0


def _parser() -> Parser:
    description = """Verify a data folder or a backup and recompute its views by brute force, without changing it. No service may be
using the folder. The last line is the verdict. The exit status is 0 if the folder is sound, 1 if not."""
    parser = Parser("check", description)
    parser.add_argument("folder", metavar="DIR", type=Path, help="the data folder, or the backup")
    parser.add_argument("--views", metavar="A,B", help="the views to recompute; `none` verifies only the checksums (default: all)")
    return parser


def _chosen(given: str | None, there: Sequence[str]) -> list[str]:
    """Return the views to recompute. Raises Failure for one that does not exist."""
    if given is None:
        return list(there)
    if given == "none":
        return []
    names = list(dict.fromkeys(name.strip() for name in given.split(",")))
    for name in names:
        if name not in there:
            raise Failure(f"--views: the folder has no view {name!r}; without --views all of its views are listed and recomputed", 2)
    return names


def _current(folder: Path, copies: ExitStack) -> Path:
    """Return the folder itself; for a backup the folder that it would restore, after verifying all of it."""
    try:
        if (folder / BACKUP).exists():
            copy, chain = copies.enter_context(assembled(folder))
            for backup in chain:
                since = f" since version {backup.since.version}" if backup.since else ""
                _emit(f"backup     {backup.folder}, version {backup.version}{since}, of {backup.made}, {backup.bytes:,} bytes")
            return copy
    except DamagedFolder as problem:
        _emit(f"damage     {problem.what} in {problem.where}\nverdict    damaged: nothing can be restored from this backup")
        raise
    return folder


def describe(report: Report) -> list[str]:
    """Return the contents of the folder, one item per line."""
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
    said = "found damaged when the service started; it is not used, and the next snapshot removes it: check the disk"
    lines += [f"set aside  {path.name} ({said})" for path in report.set_aside]
    lines += [f"damage     {problem.what} in {problem.where}" for problem in report.problems]
    lines += [f"damage     {problem}" for problem in report.spared]
    return lines if report.problems or report.spared else [*lines, "checksums  ok"]
