"""The service's newest applied state, and how a batch changes it. Used by the writer only.

It may be ahead of what is on disk and published; after applying, the caller must commit or stop the service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from livejoin.wire.batch import DELETE, Batch, Changes, concatenated
from livejoin.wire.errors import RowError
from service.access.access_token import owns
from service.durability.effects import Effect, encode_effects
from service.engine.build import Build
from service.engine.cascade import Cascade
from service.engine.outcomes import AppliedBatches, Outcome, Receipt
from service.engine.refusals import bad_rows, not_of, other_run
from service.engine.versions import Version, VersionsInUse
from service.errors import Problem
from service.tables.backlog import Recorder
from service.tables.changes import Run, batch_run
from service.tables.evolution import same, validated_again
from service.tables.indexes import SharedIndexes
from service.tables.interest import Interest, Selection, TouchedRows
from service.tables.relations import Relation
from service.tables.resolution import NO_SLOTS, Resolution, prepare, resolve
from service.tables.rewriting import Rewrite
from service.views.deltas import Delta
from service.views.joins.protocol import Store
from service.views.live_view import LiveView
from service.views.parse import View, ViewSource
from service.views.stored import StoredView

T = TypeVar("T")


class State:
    """Relations and views by name, sources by name as (run, epoch), and the numbers of the newest applied version and of its timeline."""

    def __init__(self) -> None:
        self._relations: dict[str, Relation] = {}
        self._views: dict[str, LiveView] = {}
        self._incoming: dict[str, LiveView] = {}
        self._stored: dict[str, StoredView] = {}
        self.indexes = SharedIndexes()
        self.sources: dict[str, tuple[str | None, int]] = {}
        self.receipts: dict[str, bytes] = {}  # by source: the answer to its last batch, if known
        self.written: dict[str, frozenset[str]] = {}  # by source: the names of the relations that it has written; never empty
        self.timeline = 1
        self.newest = 0
        self.rows_changed = 0  # since the last call of `to_reclaim`
        self.recorder = Recorder()
        self._interest: Interest[LiveView] | None = None
        self._published: Version | None = None  # the last one, while the next one differs only in the changed relations
        self._changed: set[str] = set()  # relations, since then
        self._asked: set[LiveView] = set()  # since then

    @property
    def relations(self) -> dict[str, Relation]:
        """Replaced, never changed."""
        return self._relations

    @relations.setter
    def relations(self, relations: dict[str, Relation]) -> None:
        self._relations = relations
        self._forget_derived()

    @property
    def is_behind(self) -> bool:
        """Whether the feeds of some views are still behind the log, or have changes that are yet to be read: they hold former rows."""
        feeds = [view.feed for view in self.views.values() if view.feed is not None]
        return self.recorder.is_replaying or any(feed.is_behind for feed in feeds)

    @property
    def views(self) -> dict[str, LiveView]:
        """Replaced, never changed."""
        return self._views

    @views.setter
    def views(self, views: dict[str, LiveView]) -> None:
        self._views = views
        self._forget_derived()

    @property
    def incoming(self) -> dict[str, LiveView]:
        """The views that are built to replace others: they follow changes, but are not published. Replaced, never changed."""
        return self._incoming

    @incoming.setter
    def incoming(self, incoming: dict[str, LiveView]) -> None:
        self._incoming = incoming
        self._forget_derived()

    @property
    def registered(self) -> list[LiveView]:
        """All views with a definition of their own."""
        return [*self._views.values(), *self._incoming.values()]

    @property
    def stored(self) -> dict[str, StoredView]:
        """Stored views by name, each after those that it reads. Replaced, never changed."""
        return self._stored

    @stored.setter
    def stored(self, stored: dict[str, StoredView]) -> None:
        self._stored = stored
        self._forget_derived()

    @property
    def maintained(self) -> list[LiveView]:
        """All views that follow changes: the registered ones, and those that are stored for them."""
        return [*self.registered, *self._stored.values()]

    @property
    def readable(self) -> dict[str, Relation]:
        """What views read: the relations, and the rows of stored views."""
        return self._relations | {name: one.relation for name, one in self._stored.items()}

    def stored_for(self, view: View, beside: Mapping[str, StoredView] = MappingProxyType({})) -> dict[str, StoredView]:
        """Return the stored views that a view reads, at any depth; some may be new, if they are not among those that others have `beside`
        it. OSError, MemoryError: there is no room."""
        found = dict[str, StoredView]()
        for name, one in view.stored.items():
            readable = self.readable | {other: stored.relation for other, stored in found.items()}
            found[name] = self._stored.get(name) or beside.get(name) or StoredView(one.view, readable, one.shown)
        return found

    def add_stored(self, stored: Mapping[str, StoredView]) -> list[StoredView]:
        """Add those that are new; return these, each after those that it reads."""
        fresh = {name: one for name, one in stored.items() if name not in self._stored}
        self.stored = self._stored | fresh
        return [*fresh.values()]

    def retained_for(self, view: LiveView) -> tuple[int, int] | None:
        """Return the rows and bytes that a feed of the view keeps; of a stored view, those of one that reads it. None: none is followed."""
        readers = (one for one in self._views.values() if view.name in one.view.stored) if isinstance(view, StoredView) else (view,)
        return next((one.view.query.retain for one in readers if one.view.query.retain is not None), None)

    def drop_unread(self) -> list[StoredView]:
        """Remove the stored views that no view reads; return these."""
        read = {other for view in self.registered for other in view.view.stored}
        dropped = [one for other, one in self._stored.items() if other not in read]
        self.stored = {other: one for other, one in self._stored.items() if other in read}
        return dropped

    @property
    def interest(self) -> Interest[LiveView]:
        """Maps relations, and stored views, to the views that use them, in whatever state."""
        if self._interest is None:
            takes = ((view, [Selection(input.relation.name, input.deciding) for input in view.reads]) for view in self.maintained)
            self._interest = Interest(takes)
        return self._interest

    def has(self, view: LiveView, state: str) -> bool:
        """Whether this view is still registered, or stored for one that is, in this state."""
        return view.state == state and view in (self._views.get(view.name), self._incoming.get(view.name), self._stored.get(view.name))

    def version(self, built: LiveView | None = None) -> Version:
        """Return the version to publish, with the root of a view that is about to be live. O(1) per changed view, plus two copies."""
        before = self._published
        if before is None or built is not None:
            roots = {view.id: view.root for view in self.views.values() if view.state == "live" or view is built}
            counts = {relation.id: relation.table.rows for relation in self.relations.values()}
        else:
            roots, counts = {**before.roots}, {**before.counts}
            for name in self._changed:
                counts[self._relations[name].id] = self._relations[name].table.rows
            for view in self._asked:
                if view.id:  # the incoming ones have none
                    roots[view.id] = view.root
        self._changed.clear()
        self._asked.clear()
        self._published = Version(self.newest, roots, counts)
        return self._published

    @property
    def view_sources(self) -> dict[str, ViewSource]:
        """What definitions may name besides relations; also the views that others read, where they alone were recovered."""
        read = {name: one for view in self._views.values() for name, one in view.view.reads.items()}
        return read | {name: view.view.source for name, view in self._views.items()}

    def _forget_derived(self) -> None:
        """Discard what was derived from the relations and views: one was added or removed, or has failed."""
        self._published = self._interest = None

    def is_duplicate(self, batch: Batch) -> bool:
        """Whether a batch of its source with this epoch or a higher one was applied. Problems `forbidden`, `source-reset`."""
        known = self.sources.get(batch.source) if batch.source is not None else None
        if known is None:
            return False
        run, epoch = known
        assert batch.source is not None and batch.epoch is not None
        if not self.may_use(batch.source, batch.writes):
            raise not_of(batch.source)
        if batch.run != run:
            if batch.reset:
                return False
            raise other_run(batch, run)
        return batch.epoch <= epoch

    def may_use(self, source: str, writes: frozenset[str] | None) -> bool:
        """Whether the source is known, and belongs to senders who may write to these relations (None: all). Any thread."""
        written = self.written.get(source)
        return written is not None and owns(writes, written)

    def repeated(self, batch: Batch, version: int) -> Receipt | None:
        """Return the answer to a duplicate; None for any other batch. `version`: the newest. Problems `forbidden`, `source-reset`."""
        if not self.is_duplicate(batch):
            return None
        assert batch.source is not None
        first = self.receipts.get(batch.source) if self.sources[batch.source][1] == batch.epoch else None
        return Receipt(version, 0, 0, 0, [], True, self.timeline, first)

    def unrecorded(self, batch: Batch) -> Receipt | None:
        """Return the answer to an empty batch of an unknown source, of which nothing is recorded: it would belong to nobody."""
        is_new = batch.source is not None and batch.source not in self.sources
        return Receipt(self.newest, 0, 0, 0, [], False, self.timeline) if is_new and not batch.sent and not batch.changes else None

    def forget_source(self, name: str) -> None:
        del self.sources[name], self.written[name]
        self.receipts.pop(name, None)

    def forget_receipts(self, relation: str) -> None:
        """Forget the answers to batches of the sources that have written a relation, which was dropped: they may tell of its rows."""
        self.receipts = {source: answer for source, answer in self.receipts.items() if relation not in self.written[source]}

    def prepare(self, batch: Batch) -> None:
        """Do part of the work of `validate` and `apply` in advance, for each relation with many changes. Any thread."""
        relations = self._relations
        for changes in batch.changes:
            relation = relations.get(changes.relation)
            if relation is not None and same(changes.definition, relation.definition):
                prepare(relation, changes)

    def validate(self, batches: Sequence[Batch]) -> Outcome | None:
        """Compute the effect of a batch, or of consecutive single changes (`is_single`), without changing anything. None: several must be
        validated in `subruns`, as one of them is invalid, or two concern the same row. Cost: once per relation.

        Problems `unknown-relation` (`not-found` for a `Rewrite`), `bad-rows`, `no-room`.
        """
        parts: dict[str, list[Changes]] = {}
        offsets: dict[str, list[int]] = {}
        batches = [self._as_defined(batch) for batch in batches]
        for offset, batch in enumerate(batches):
            for changes in batch.changes:
                parts.setdefault(changes.relation, []).append(changes)
                offsets.setdefault(changes.relation, []).append(offset)
        resolved = [self._resolved(mine, batches) for mine in parts.values()]
        errors, count, rebuilt = list[RowError](), 0, dict[LiveView, Build]()
        if len(batches) == 1:
            errors, count = bad_rows(batches[0], resolved)
            rebuilt = {build.view: build for build in batches[0].rebuilt}
        elif any(batch.error_count for batch in batches):
            return None
        for one in resolved if len(batches) > 1 else ():
            mine = np.array(offsets[one.relation.name])
            if one.inserts.num_rows + one.delete_keys.num_rows < len(mine):
                return None
            deleting = np.array([part.ops[0] == DELETE for part in parts[one.relation.name]])
            one.offsets = mine[~deleting], mine[deleting]
        touched, views = self._require_room(resolved, rebuilt, len(batches) > 1)
        return Outcome(batches, resolved, errors, count, touched, views, rebuilt)

    def _as_defined(self, batch: Batch) -> Batch:
        """Return the batch, validated against the present definitions of its relations."""
        others = {}
        for changes in batch.changes:
            relation = self._relations.get(changes.relation)
            if isinstance(changes, Rewrite) and relation is not changes.target:  # its slots are those of the former table
                raise Problem("not-found", f"the relation {changes.relation} was dropped in the meantime; nothing was applied")
            if relation is not None and relation.definition is not changes.definition:
                others[changes.relation] = relation.definition
        return validated_again(batch, others) if others else batch

    def _resolved(self, parts: Sequence[Changes], batches: Sequence[Batch]) -> Resolution:
        """Return what changes of one relation do together."""
        name = parts[0].relation
        relation = self._relations.get(name)
        if relation is None:
            raise Problem("unknown-relation", f"the relation {name} does not exist: it was dropped in the meantime")
        if not all(same(part.definition, relation.definition) for part in parts):
            again = f"the relation {name} was dropped and created again with another definition"
            raise Problem("unknown-relation", f"{again}: resend the batch if it is meant for the new relation")
        changes = concatenated(parts)
        if isinstance(changes, Rewrite):
            (batch,) = batches
            effect = changes.resolve(self.newest)
            batch.sent = changes.sent(batch.sent)
            return effect
        return resolve(relation, changes, self.newest)

    def _require_room(
        self, resolved: list[Resolution], rebuilt: Mapping[LiveView, Build], singly: bool = False
    ) -> tuple[TouchedRows, Sequence[LiveView]]:
        """Raise Problem `no-room` while nothing has been changed: an array that fills up later would stop the service. Return the rows, and
        the views that they concern."""
        touched = TouchedRows(resolved)
        try:
            for one in resolved:
                one.relation.table.require(one.inserts)
            self.indexes.require(touched.relations, touched, singly)
            views = self.interest.concerned(touched)
            for view in views:
                if view.state == "live" and not view.is_composed:
                    self._require(view, rebuilt.get(view), touched.relations)
        except MemoryError as error:
            raise Problem("no-room", f"{error}; nothing of the batch was applied") from None
        return touched, views

    def apply(self, outcome: Outcome) -> AppliedBatches:
        """Make a version of each validated batch; they are on disk together or not at all. If this raises, the state is broken; a view that
        cannot follow fails alone."""
        batches, first = outcome.batches, self.newest + 1
        last = first + len(batches) - 1
        runs: dict[str, Run] = {}
        ignored = 0  # none of several batches
        for one in outcome.resolved:
            ignored += one.ignored
            if len(one.deletes) or one.inserts.num_rows:
                runs[one.relation.name] = run = _enter(last, one, len(batches))
                self.rows_changed += run.rows
        self.recorder.note(first, runs)
        for view, build in outcome.rebuilt.items():
            if view in outcome.views and view.state == "live":
                build.put_in_place()  # first: the structures that it shares with no other view stop following changes
        self.indexes.apply(last, runs, outcome.touched)
        self._changed.update(runs)
        deltas: list[tuple[LiveView, Delta]] = []
        for view in outcome.views:
            if view.state == "live" and not view.is_composed:
                self._asked.add(view)
                try:
                    rebuilt = outcome.rebuilt.get(view)
                    delta = view.apply(first, len(batches), runs) if rebuilt is None else rebuilt.apply(first, runs)
                except Exception as error:
                    self.fail(view, error)
                    continue
                if delta is not None:
                    deltas.append((view, delta))
        if any(view.is_composed for view in outcome.views):
            cascade = Cascade(self._stored, self.interest, self.recorder, self.fail)
            deltas += cascade.apply(first, runs, outcome.views)
            self._asked.update(view for view in cascade.followed if not isinstance(view, StoredView))
        receipts, errors, bad = [], outcome.errors, outcome.error_count
        for version, batch in enumerate(batches, first):
            passed_over = batch.ignored + ignored
            receipt = Receipt(version, batch.sent - passed_over - bad, passed_over, bad, errors, False, self.timeline)
            self._count(version, batch, receipt)
            receipts.append(receipt)
        return AppliedBatches(receipts, _payload(outcome), deltas)

    def _count(self, version: int, batch: Batch, receipt: Receipt) -> None:
        self.newest = version
        if batch.source is not None:
            assert batch.epoch is not None
            self.sources[batch.source] = (batch.run, batch.epoch)
            self.receipts[batch.source] = receipt.encoded()
            written = {*batch.named, *(changes.relation for changes in batch.changes)}
            self.written[batch.source] = self.written.get(batch.source, frozenset()) | written

    def to_reclaim(self) -> list[Callable[[VersionsInUse], bool]]:
        """Return functions that make reusable what neither the published version, which is the newest, nor a pin, nor an unsettled delta
        needs. Call each, with what is needed then, until it returns False: nothing is left. A call does a piece of the work."""
        self.rows_changed = 0
        views = [partial(self._reclaim_view, view) for view in self.maintained]
        tables = [*self.relations.values(), *(one.relation for one in self.stored.values() if one.state != "building")]
        return [*views, self._reclaim_indexes, *(partial(self._reclaim_table, relation) for relation in tables)]

    def _reclaim_view(self, view: LiveView, needed: VersionsInUse) -> bool:
        if view.state == "building":  # its builder reclaims it
            return False
        return self.unless_it_fails(view, partial(view.reclaim, needed.published, needed.views), False)

    def _reclaim_indexes(self, needed: VersionsInUse) -> bool:
        return self.indexes.reclaim(needed.published, needed.rows)

    def _reclaim_table(self, relation: Relation, needed: VersionsInUse) -> bool:
        feeds = (view.feed for view in self.interest.using(relation.name) if not view.owns_rows)
        floors = (floor for feed in feeds if feed is not None and (floor := feed.floor()) is not None)
        replayed = self.recorder.floor(relation)
        oldest = min([needed.published, *floors, *([] if replayed is None else [replayed])])
        return relation.table.reclaim(oldest, needed.rows)

    def _require(self, view: LiveView, rebuilt: Build | None, resolved: dict[str, Resolution]) -> None:
        """Raise MemoryError if the structures that follow the batch for the view lack room; any other error fails only the view."""
        try:
            view.require(resolved) if rebuilt is None else rebuilt.require_room(resolved)
        except MemoryError:
            raise
        except Exception as error:
            self.fail(view, error)

    def unless_it_fails(self, view: LiveView, work: Callable[[], T], nothing: T) -> T:
        """Return the result of `work`; if it raises, fail the view, and return `nothing`."""
        try:
            return work()
        except Exception as error:
            self.fail(view, error)
            return nothing

    def fail(self, view: LiveView, error: Exception) -> None:
        """Fail the view, and those that read it if it is stored: the relations and the other views continue."""
        view.fail(error)
        for reader in self.registered if isinstance(view, StoredView) else ():
            if view.name in reader.view.stored and reader.state != "failed":
                assert view.problem is not None
                reader.fail(Problem("view-failed", f"{view.problem.detail} (the view {reader.name} reads it)"))
        self._forget_derived()

    @property
    def retired_bytes(self) -> int:
        """Bytes that the tables and the views' structures retain for readers of older versions."""
        tables = sum(relation.table.retired_bytes for relation in self.readable.values())
        return tables + self.indexes.retired_bytes + sum(view.retired_bytes for view in self.maintained)

    @property
    def free_bytes(self) -> int:
        """Bytes that the structures' stores have reserved beyond the blocks that a version needs."""
        held = (store.held_bytes - store.live_bytes - store.retired_bytes for store in self.stores)
        return sum(max(0, one) for one in held)  # the writer may be changing them

    @property
    def stores(self) -> list[Store]:
        """The stores of the structures' blocks."""
        return [*self.indexes.stores, *(store for view in self.maintained for store in view.stores)]


def _enter(version: int, resolved: Resolution, versions: int) -> Run:
    """Apply a validated change to its table."""
    table, previous, deletes = resolved.relation.table, resolved.previous, resolved.deletes
    if len(deletes):
        table.delete(version, deletes)
    if resolved.given is not None:
        slots = table.enter(version, resolved.given)
    else:
        slots = table.insert(version, resolved.inserts) if resolved.inserts.num_rows else NO_SLOTS
    run = batch_run(previous, deletes, slots)
    if resolved.offsets is None:
        return run
    of = np.concatenate(resolved.offsets)
    order = np.argsort(of)
    return Run(versions, of[order], run.old[order], run.new[order], run.rows)


def _payload(outcome: Outcome) -> bytes:
    effects = []
    for one in outcome.resolved:
        if one.truncate or len(one.deletes) or one.inserts.num_rows:
            ages = None
            if one.offsets is not None:
                inserted, deleted = one.offsets
                ages = (len(outcome.batches) - 1 - np.concatenate((deleted, inserted))).astype(np.uint16)
            effects.append(Effect(one.relation.id, one.truncate, one.delete_keys, one.inserts, ages))
    return encode_effects(effects)
