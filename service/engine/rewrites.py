"""Batches that concern a whole relation: replace its rows, or delete by condition. One at a time per relation.

in the writer's turn   hold the published version; record changes to the relation from then on
beside the writer      find the rows to change (`tables/rewriting.py`)
as a batch             submit it; it takes the recorded changes into account, and becomes a version like any other
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from livejoin.wire.batch import Batch
from service.engine.outcomes import Receipt
from service.engine.queued import receipt_of
from service.engine.refusals import refuse_bad
from service.engine.state import State
from service.engine.versions import Pins
from service.engine.writer import Writer
from service.errors import Problem, dropped
from service.query.conditions import Condition
from service.tables.backlog import Backlog
from service.tables.evolution import validated_again
from service.tables.relations import Relation
from service.tables.rewriting import Deletion, Replacement, Rewrite


class HeldRelation(NamedTuple):
    """A relation as of a held version, and its changes since."""

    relation: Relation
    version: int
    backlog: Backlog


class Rewrites:
    """Called from any thread but the writer's; each call takes time in proportion to the rows."""

    def __init__(self, state: State, writer: Writer, versions: Pins) -> None:
        self._state, self._writer, self._versions = state, writer, versions

    def replace(self, name: str, batch: Batch) -> Receipt:
        """Replace the relation's rows by those of a batch of upserts; the rows of its `bad_keys` stay.

        Problems: `not-found`, `bad-rows`, `body-too-large` (text of a column), those of any batch.
        """
        if batch.on_error == "reject":
            refuse_bad(batch, batch.errors, batch.error_count)
        with self.held(name) as held:
            batch = validated_again(batch, {name: held.relation.definition})
            if batch.on_error == "reject":
                refuse_bad(batch, batch.errors, batch.error_count)
            return self.replace_held(held, batch)

    def replace_held(self, held: HeldRelation, batch: Batch, keep: bool = False) -> Receipt:
        """As `replace`, with a batch that was validated against the definition of the held relation. `keep`: rows with other keys stay."""
        rows = [changes.rows.arrow for changes in batch.changes]
        return self._submit(batch, lambda: Replacement(*held, rows, None if keep else batch.bad_keys))

    def delete(self, name: str, batch: Batch, filters: Callable[[Relation], Sequence[Condition]]) -> Receipt:
        """Delete the rows that meet the filters. Problems: `not-found`, those of `filters`, those of any batch."""
        with self.held(name) as held:
            chosen = filters(held.relation)
            return self._submit(batch, lambda: Deletion(*held, chosen))

    @contextmanager
    def watched(self, relation: Relation) -> Iterator[HeldRelation]:
        """Hold the published version, and record changes to the relation."""
        stack = ExitStack()

        def begin() -> HeldRelation:
            if self._state.relations.get(relation.name) is not relation:
                raise dropped(relation.name)
            version = stack.enter_context(self._versions.holding())
            return HeldRelation(relation, version, self._state.recorder.open([relation]))

        with stack:
            held = self._writer.call(begin).result()
            try:
                yield held
            finally:
                with suppress(Problem):  # the service is stopping
                    self._writer.call(partial(self._state.recorder.close, held.backlog)).result()

    @contextmanager
    def held(self, name: str) -> Iterator[HeldRelation]:
        """As `watched`, under the relation's rewriting lock. Problem `not-found`."""
        relation = self._state.relations.get(name)
        if relation is None:
            raise Problem("not-found", f"there is no relation {name!r}")
        with relation.rewriting:
            current = self._state.relations.get(name)
            if current is None or current.id != relation.id:
                raise dropped(name)
            with self.watched(current) as held:
                yield held

    def _submit(self, batch: Batch, make: Callable[[], Rewrite]) -> Receipt:
        try:
            rewrite = make()
        except (OverflowError, pa.ArrowCapacityError) as error:
            said = "the rows that change have more than 2 GiB of text in one column; nothing was applied"
            raise Problem("body-too-large", said, limit=(1 << 31) - 1) from error
        batch.changes = [rewrite]
        return receipt_of(self._writer.submit, batch)
