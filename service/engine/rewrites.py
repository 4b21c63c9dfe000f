"""Batches that concern a whole relation: its rows replaced, or deleted by condition. One at a time a relation.

in the writer's turn   hold the published version; note what changes in the relation from then on
beside the writer      find what is to change (`tables/rewriting.py`)
as a batch             submit it; it takes account of what was noted, and becomes a version like any other
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

import pyarrow as pa

from service.engine.state import Receipt, State, refuse_bad
from service.engine.versions import Pins
from service.engine.writer import Writer
from service.errors import Problem
from service.query.model import Condition
from service.tables.backlog import Backlog
from service.tables.evolution import judged_again
from service.tables.relations import Relation
from service.tables.rewriting import Deletion, Replacement, Rewrite
from service.wire.batch import Batch


class Held(NamedTuple):
    """A relation as of the version that is held, and what has changed since."""

    relation: Relation
    version: int
    backlog: Backlog


class Rewrites:
    """Any thread but the writer's; each call takes as long as its rows do."""

    def __init__(self, state: State, writer: Writer, versions: Pins) -> None:
        self._state, self._writer, self._versions = state, writer, versions

    def replace(self, name: str, batch: Batch) -> Receipt:
        """Give the relation the rows of a batch of upserts, and no others but those of its `bad_keys`, which stay.

        Problems: `not-found`, `bad-rows`, `body-too-large` (text of a column), those of any batch.
        """
        if batch.on_error == "reject":
            refuse_bad(batch, batch.errors, batch.error_count)
        with self.held(name) as held:
            batch = judged_again(batch, {name: held.relation.definition})
            if batch.on_error == "reject":
                refuse_bad(batch, batch.errors, batch.error_count)
            return self.replace_held(held, batch)

    def replace_held(self, held: Held, batch: Batch) -> Receipt:
        """The same with a batch that was judged by the definition of the relation that is held."""
        rows = [changes.rows.arrow for changes in batch.changes]
        return self._submit(batch, lambda: Replacement(*held, rows, batch.bad_keys))

    def delete(self, name: str, batch: Batch, filters: Callable[[Relation], Sequence[Condition]]) -> Receipt:
        """Delete the rows that meet the filters. Problems: `not-found`, those of `filters`, those of any batch."""
        with self.held(name) as held:
            chosen = filters(held.relation)
            return self._submit(batch, lambda: Deletion(*held, chosen))

    @contextmanager
    def watched(self, relation: Relation) -> Iterator[Held]:
        """Hold the published version, and note what changes in the relation."""
        backlog, stack = Backlog([relation]), ExitStack()

        def begin() -> int:
            if self._state.relations.get(relation.name) is not relation:
                raise Problem("not-found", f"the relation {relation.name} was dropped in the meantime")
            self._state.backlogs = [*self._state.backlogs, backlog]
            return stack.enter_context(self._versions.holding())

        def end() -> None:
            self._state.backlogs = [other for other in self._state.backlogs if other is not backlog]

        with stack:
            try:
                yield Held(relation, self._writer.call(begin).result(), backlog)
            finally:
                with suppress(Problem):  # the service ends
                    self._writer.call(end).result()

    @contextmanager
    def held(self, name: str) -> Iterator[Held]:
        """As `watched`, while nobody else rewrites the relation. Problem `not-found`."""
        relation = self._state.relations.get(name)
        if relation is None:
            raise Problem("not-found", f"there is no relation {name!r}")
        with relation.rewriting:
            current = self._state.relations.get(name)
            if current is None or current.id != relation.id:
                raise Problem("not-found", f"the relation {name} was dropped in the meantime")
            with self.watched(current) as held:
                yield held

    def _submit(self, batch: Batch, make: Callable[[], Rewrite]) -> Receipt:
        try:
            rewrite = make()
        except (OverflowError, pa.ArrowCapacityError) as error:
            said = "the rows that change have more than 2 GiB of text in one column; nothing was applied"
            raise Problem("body-too-large", said, limit=(1 << 31) - 1) from error
        batch.changes = [rewrite]
        answer: Future[Receipt | Problem] = Future()
        self._writer.submit(batch, answer.set_result)
        result = answer.result()
        if isinstance(result, Problem):
            raise result
        return result
