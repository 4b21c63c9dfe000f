"""Delete rows older than their relation's retention: at the start, once a minute, and when a retention is set.

They are found beside the writer, and deleted in batches of bounded size, of the source `livejoin.retain`. A row that has changed meanwhile
stays until the next check.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from livejoin.wire import schema
from livejoin.wire.batch import Batch
from livejoin.wire.grammar import DAY
from service.engine.queued import Done, receipt_of
from service.engine.refusals import OWN
from service.engine.state import State
from service.engine.versions import Pins
from service.errors import Problem
from service.query.conditions import ColumnRef, Filter
from service.tables.relations import Relation
from service.tables.resolution import Slots
from service.tables.rewriting import Removal, slots_that_meet

log = logging.getLogger("livejoin.retention")

SOURCE = f"{OWN}retain"
_EVERY = 60.0  # seconds
_ROWS = 10_000  # rows that a batch deletes


class Retention:
    """Owns the thread. `submit`: as `Writer.submit`, but may wait; `also` is called at each check; `clock`: seconds since 1970."""

    def __init__(
        self, state: State, submit: Callable[[Batch, Done], None], versions: Pins, also: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._state, self._submit, self._versions, self._also, self.clock = state, submit, versions, also, clock
        self._wake, self._over = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Check soon."""
        self._wake.set()

    def stop(self) -> None:
        """Begin no more checks; does not wait."""
        self._over = True
        self._wake.set()

    def _run(self) -> None:
        while not self._over:
            self._wake.clear()
            try:
                self._also()
                self.look()
            except Exception as error:
                if not (isinstance(error, Problem) and error.type == "recovering"):  # the service is stopping
                    log.exception("old rows could not be deleted; the next attempt is in a minute")
            self._wake.wait(_EVERY)

    def look(self) -> int:
        """Delete the expired rows; return how many. Problem if the service is stopping."""
        count = 0
        for name, relation in self._state.relations.items():
            if relation.definition.retain is not None:
                with relation.rewriting:  # so that its definition does not change
                    current = self._state.relations.get(name)
                    count += 0 if current is None else self._look_at(current)
        return count

    def expired(self, relation: Relation, retain: schema.Retention, version: int) -> Slots:
        """Return the slots of a held version's rows that this retention deletes. O(rows)."""
        oldest = int(self.clock() * 1_000_000) - retain.micros
        if relation.definition.column(retain.column).type == "date":
            oldest //= DAY
        return slots_that_meet(relation, version, [Filter(ColumnRef(relation.name, retain.column), "<", oldest)])

    def _look_at(self, relation: Relation) -> int:
        retain = relation.definition.retain
        if retain is None:
            return 0
        count = 0
        with self._versions.holding() as version:
            slots = self.expired(relation, retain, version)
            for start in range(0, len(slots), _ROWS):
                if self._over:
                    break
                try:
                    count += self._delete(Removal(relation, version, slots[start : start + _ROWS]))
                except Problem as problem:
                    if problem.type != "not-found":
                        raise
                    break  # it was dropped, and perhaps created again: the next check looks at the new one
        if count:
            log.info("%d rows of %s were older than %s and were deleted", count, relation.name, retain.duration)
        return count

    def _delete(self, removal: Removal) -> int:
        run, epoch = self._state.sources.get(SOURCE, (None, 0))
        batch = Batch([removal], removal.count, 0, [], 0, source=SOURCE, epoch=epoch + 1, run=run)
        return receipt_of(self._submit, batch).applied
