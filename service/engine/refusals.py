"""Checks before the engine does anything, common to several operations."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from livejoin.wire.batch import MAX_ERRORS, Batch
from livejoin.wire.errors import RowError
from service.errors import Problem, bad_parameter
from service.tables.resolution import Resolution

log = logging.getLogger("livejoin.engine")

OWN = "livejoin."  # prefix of the names of the service's own sources


class InUse(Problem):
    """Problem `relation-in-use`. Its detail names views, between `before` and `after`: an answer may have to hide some of them."""

    def __init__(self, before: str, views: Sequence[str], after: str) -> None:
        super().__init__("relation-in-use", f"{before}{', '.join(views)}{after}", views=[*views])
        self.before, self.after = before, after


def refuse_used(before: str, views: Iterable[str]) -> None:
    """Raise `InUse` for what is to be dropped, if views use it."""
    if users := sorted(views):
        raise InUse(before, users, f": drop {'this view' if len(users) == 1 else 'these views'} first")


@contextmanager
def or_no_room(what: str) -> Iterator[None]:
    """Raise Problem `no-room` if the system has no memory or address space left for `what`."""
    try:
        yield
    except (OSError, MemoryError) as error:
        log.error("no room for %s", what, exc_info=error)
        raise Problem("no-room", f"there is not enough memory or address space for {what}; nothing was changed") from None


def refuse_new(kind: str, name: str, there: Collection[str], others: Collection[str], most: int) -> None:
    """Raise Problem `definition-differs` if something of the other kind has the name, which relations and views share, `too-many` if the
    limit is reached."""
    if name in others:
        other = "view" if kind == "relation" else "relation"
        instead = f"use another name, or drop the {other} first (DELETE)"
        raise Problem("definition-differs", f"{name} is the name of a {other}, and relations and views share their names: {instead}")
    if len(there) >= most:
        raise Problem("too-many", f"there are already {len(there)} {kind}s, and --max-{kind}s is {most}: drop those that are not needed")


def refuse_bad(batch: Batch, errors: Sequence[RowError], count: int) -> None:
    """Raise Problem `bad-rows` if there are any."""
    if count:
        listed = [error._asdict() for error in errors]
        said = f"{count} of {batch.sent} changes {'is' if count == 1 else 'are'} bad; nothing was applied"
        raise Problem("bad-rows", said, error_count=count, errors=listed)


def not_of(source: str) -> Problem:
    """Return the problem of a batch whose sender may not use its source."""
    said = f"the source {source!r} has written relations to which this access token may not write: use another name"
    return Problem("forbidden", f"{said}, or a token for all of them")


def other_run(batch: Batch, run: str | None) -> Problem:
    """Return the problem of a batch of another run than the last one of its source."""
    said = f"the source {batch.source!r} has epochs of {_named(run)}, and this batch is of {_named(batch.run)}"
    return Problem("source-reset", f"{said}; to take the source over, send reset=true")


def _named(run: str | None) -> str:
    return "no run" if run is None else f"the run {run!r}"


def check_source(batch: Batch) -> None:
    """Raise Problem `bad-parameter` if the fields do not go together, or the name is reserved for the service."""
    if batch.source is None and batch.epoch is None and batch.run is None and not batch.reset:
        return
    if batch.source is not None and batch.source.startswith(OWN):
        raise bad_parameter("source", f"names that begin with {OWN!r} are reserved: choose another")
    for name, lacks, reason in (
        ("epoch", batch.source is not None and batch.epoch is None, "comes together with source, or not at all"),
        ("source", batch.source is None and batch.epoch is not None, "comes together with epoch, or not at all"),
        ("source", batch.source is None and batch.run is not None, "comes together with run, which says who numbers its epochs"),
        ("run", batch.run is None and batch.reset, "comes together with reset: it takes the source over"),
    ):
        if lacks:
            raise bad_parameter(name, reason)


def bad_rows(batch: Batch, resolved: Sequence[Resolution]) -> tuple[list[RowError], int]:
    """Return the first errors of a batch, and their number. Problem `bad-rows` if it is to be refused for them."""
    errors, count = batch.errors, batch.error_count
    for one in resolved:
        if len(one.bad):
            count += len(one.bad)
            column = one.relation.key[0] if len(one.relation.key) == 1 else None
            errors = errors + [RowError(index, column, "key-exists") for index in one.bad[:MAX_ERRORS].tolist()]
    if count:
        errors = sorted(errors, key=lambda error: error.index)[:MAX_ERRORS]
        if batch.on_error == "reject":
            refuse_bad(batch, errors, count)
    return errors, count
