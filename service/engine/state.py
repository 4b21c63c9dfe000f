"""The newest applied state of the service, and what one batch makes of it. The writer's only.

It may be ahead of what is on disk and published; whoever applies is to commit, or to stop the service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, TypeVar
from weakref import WeakSet

import numpy as np
import orjson

from service.durability.effects import Effect, encode_effects
from service.engine.fresh_pages import Growing
from service.engine.versions import Version
from service.errors import Problem
from service.tables.backlog import Backlog
from service.tables.changes import Run, batch_run
from service.tables.evolution import judged_again, same
from service.tables.history import History, Passage
from service.tables.indexes import SharedIndexes
from service.tables.interest import Interest, Selection, Touched
from service.tables.relations import Relation
from service.tables.resolution import NO_SLOTS, Indices, Resolved, prepare, resolve
from service.tables.rewriting import Rewrite
from service.tables.store import Numbers
from service.views.deltas import Delta
from service.views.emptied import Emptied
from service.views.joins.protocol import Store
from service.views.live_view import LiveView
from service.wire.batch import DELETE, MAX_ERRORS, Batch, concatenated
from service.wire.errors import RowError

T = TypeVar("T")
_Parts = tuple[Indices, Indices]
"""The offsets of changes that insert a row, and of those that delete one."""

KEY_EXISTS = "key-exists"


class Receipt(NamedTuple):
    """What became of a batch; applied + ignored + skipped_count are the changes sent, unless it is a duplicate."""

    version: int
    applied: int
    ignored: int
    skipped_count: int
    skipped: list[RowError]  # the first 100
    duplicate: bool
    timeline: int = 1
    first: bytes | None = None  # of a duplicate, if it is the last batch of its source: the answer to the first one

    def encoded(self) -> bytes:
        """The answer, as JSON; its head names the timeline."""
        told = {
            "version": self.version,
            "applied": self.applied,
            "ignored": self.ignored,
            "skipped_count": self.skipped_count,
            "skipped": [error._asdict() for error in self.skipped],
            "duplicate": self.duplicate,
        }
        return orjson.dumps(told if self.first is None else {**told, "first": orjson.Fragment(self.first)})


class Applied(NamedTuple):
    """Batches that became a version each: the answers, what to log for all of them with the last one, and what to tell the followers."""

    receipts: list[Receipt]
    payload: bytes
    deltas: list[tuple[LiveView, Delta]]


class Outcome(NamedTuple):
    """What a run of batches comes to, relation by relation: its net effect, and the offsets of the changes as sent (None: all of one
    version); then the first bad rows and how many there are. emptied: of the views that follow a truncate in other structures these."""

    batches: Sequence[Batch]
    resolved: list[tuple[Resolved, Indices | None]]
    errors: list[RowError]
    error_count: int
    touched: Touched
    emptied: Mapping[LiveView, Emptied] = MappingProxyType({})


class State:
    """Relations and views by name, sources by name as (run, epoch), and the numbers of the newest applied version and of its timeline."""

    def __init__(self) -> None:
        self._relations: dict[str, Relation] = {}
        self._views: dict[str, LiveView] = {}
        self.indexes = SharedIndexes()
        self.sources: dict[str, tuple[str | None, int]] = {}
        self.receipts: dict[str, bytes] = {}  # by source: the answer to its last batch, if it is known
        self.timeline = 1
        self.newest = 0
        self.rows_changed = 0  # since `to_reclaim` was asked last
        self.backlogs: list[Backlog] = []  # of the views that are being built; replaced, never changed
        self.history: History | None = None  # while views are replayed after a start
        self._interest: Interest[LiveView] | None = None
        self._published: Version | None = None  # the last, while it differs from the next one by the changed relations alone
        self._changed: set[str] = set()  # relations, since then
        self._asked: set[LiveView] = set()  # since then
        self._grown: WeakSet[Growing] = WeakSet()  # perhaps, since `take_grown` was asked last
        self._behind: dict[LiveView, None] = {}  # of which `maintain` may find something to do

    @property
    def relations(self) -> dict[str, Relation]:
        """Replaced, never changed."""
        return self._relations

    @relations.setter
    def relations(self, relations: dict[str, Relation]) -> None:
        self._relations = relations
        self._forget_derived()

    @property
    def views(self) -> dict[str, LiveView]:
        """Replaced, never changed."""
        return self._views

    @views.setter
    def views(self, views: dict[str, LiveView]) -> None:
        self._views = views
        self._forget_derived()

    @property
    def interest(self) -> Interest[LiveView]:
        """The views, whatever their state."""
        if self._interest is None:
            takes = ((view, [Selection(side.relation.name, side.deciding) for side in view.reads]) for view in self.views.values())
            self._interest = Interest(takes)
        return self._interest

    def version(self, built: LiveView | None = None) -> Version:
        """What there is to publish, with the root of a view that is about to be live. O(1) a view that was asked, besides two copies."""
        before = self._published
        if before is None or built is not None:
            roots = {view.id: view.root for view in self.views.values() if view.state == "live" or view is built}
            self._behind = dict.fromkeys(self.views.values())
            counts = {name: relation.table.rows for name, relation in self.relations.items()}
        else:
            roots, counts = {**before.roots}, {**before.counts}
            for name in self._changed:
                counts[name] = self._relations[name].table.rows
            for view in self._asked:
                roots[view.id] = view.root
        self._changed.clear()
        self._asked.clear()
        self._published = Version(self.newest, roots, counts)
        return self._published

    def _forget_derived(self) -> None:
        """A relation or a view has come or gone, or has failed."""
        self._published = self._interest = None

    def is_duplicate(self, batch: Batch) -> bool:
        """Whether a batch of its source with this epoch or a higher one was applied. Problem `source-reset`."""
        known = self.sources.get(batch.source) if batch.source is not None else None
        if known is None:
            return False
        run, epoch = known
        if batch.run != run:
            if batch.reset:
                return False
            said = f"the source {batch.source!r} has epochs of {_named(run)}, and this batch is of {_named(batch.run)}"
            raise Problem("source-reset", f"{said}; to take the source over, send reset=true")
        assert batch.epoch is not None
        return batch.epoch <= epoch

    def repeated(self, batch: Batch, version: int) -> Receipt | None:
        """The answer to a duplicate; None if it is none. `version`: the newest. Problem `source-reset`."""
        if not self.is_duplicate(batch):
            return None
        assert batch.source is not None
        first = self.receipts.get(batch.source) if self.sources[batch.source][1] == batch.epoch else None
        return Receipt(version, 0, 0, 0, [], True, self.timeline, first)

    def forget_source(self, name: str) -> None:
        del self.sources[name]
        self.receipts.pop(name, None)

    def prepare(self, batch: Batch) -> None:
        """Do what `judge` and `apply` need not do, for each relation of many changes. In any thread."""
        relations = self._relations
        for changes in batch.changes:
            relation = relations.get(changes.relation)
            if relation is not None and same(changes.definition, relation.definition):
                prepare(relation, changes)

    def judge(self, batch: Batch) -> Outcome:
        """What the batch comes to. Changes nothing.

        Problems `unknown-relation`, `bad-rows`, `no-room`.
        """
        others = {
            changes.relation: relation.definition
            for changes in batch.changes
            if (relation := self._relations.get(changes.relation)) is not None and relation.definition is not changes.definition
        }
        if others:
            batch = judged_again(batch, others)
        resolved = []
        for changes in batch.changes:
            relation = self._relations.get(changes.relation)
            if relation is None:
                raise Problem("unknown-relation", f"the relation {changes.relation} does not exist: it was dropped in the meantime")
            if not same(changes.definition, relation.definition):
                again = f"the relation {changes.relation} was dropped and created again with another definition"
                raise Problem("unknown-relation", f"{again}: resend the batch if it is meant for the new relation")
            if isinstance(changes, Rewrite):
                resolved.append(changes.resolve(self.newest))
                batch.sent = changes.sent(batch.sent)
            else:
                resolved.append(resolve(relation, changes, self.newest))
        errors, count = batch.errors, batch.error_count
        for one in resolved:
            if len(one.bad):
                count += len(one.bad)
                column = one.relation.key[0] if len(one.relation.key) == 1 else None
                errors = errors + [RowError(index, column, KEY_EXISTS) for index in one.bad[:MAX_ERRORS].tolist()]
        if count:
            errors = sorted(errors, key=lambda error: error.index)[:MAX_ERRORS]
            if batch.on_error == "reject":
                refuse_bad(batch, errors, count)
        emptied = self._caught_up(batch)
        return Outcome([batch], [(one, None) for one in resolved], errors, count, self._require_room(resolved, emptied), emptied)

    def _caught_up(self, batch: Batch) -> dict[LiveView, Emptied]:
        """Of the structures that were built for this batch those that can be used, up to date. They follow no more."""
        emptied: dict[LiveView, Emptied] = {}
        prepared: Sequence[Emptied] = batch.emptied
        for one in prepared:
            self.backlogs = [backlog for backlog in self.backlogs if backlog is not one.backlog]
            if one.view.state == "live" and self._views.get(one.view.name) is one.view and one.catch_up(self.newest):
                emptied[one.view] = one
        return emptied

    def judge_together(self, batches: Sequence[Batch]) -> Outcome | None:
        """What single changes (`is_single`) come to that follow one another; None if they are to be judged in `smaller_runs`: something is
        wrong with one of them, or two meet at one row. Changes nothing. Cost: as `judge`, once a relation."""
        offsets: dict[str, list[int]] = {}
        for offset, batch in enumerate(batches):
            offsets.setdefault(batch.changes[0].relation, []).append(offset)
        resolved: list[tuple[Resolved, Indices | None]] = []
        for name, mine in offsets.items():
            parts = [batches[offset].changes[0] for offset in mine]
            relation = self._relations.get(name)
            if relation is None or not all(same(part.definition, relation.definition) for part in parts):
                return None
            one = resolve(relation, concatenated(parts), self.newest)
            if one.inserts.num_rows + one.delete_keys.num_rows < len(mine):
                return None
            resolved.append((one, np.array(mine)))
        try:
            touched = self._require_room([one for one, _ in resolved], {}, True)
        except Problem:
            return None
        return Outcome(batches, resolved, [], 0, touched)

    def _require_room(self, resolved: list[Resolved], emptied: Mapping[LiveView, Emptied], singly: bool = False) -> Touched:
        """Problem `no-room` while nothing has been touched: an array that is full later on ends the service."""
        touched = Touched(resolved)
        named = {one.relation.name: one for one in resolved}
        try:
            for one in resolved:
                one.relation.table.require(one.inserts)
            self.indexes.require(named, touched, singly)
            for view in self.interest.concerned(touched):
                if view.state == "live":
                    self._require(view, emptied.get(view, view), named)
        except MemoryError as error:
            raise Problem("no-room", f"{error}; nothing of the batch was applied") from None
        return touched

    def concerned(self, judged: Outcome) -> int:
        """How many views it concerns."""
        return len(self.interest.concerned(judged.touched))

    def apply(self, judged: Outcome, most: int | None = None) -> Applied:
        """Make a version of each judged batch; they are on disk together or not at all. If it raises, the state is broken; a view that
        can't follow has failed, alone. `most`: of a single change, about so many rows of deltas are gathered, and what is more is left to
        `gathered`."""
        batches, first = judged.batches, self.newest + 1
        last = first + len(batches) - 1
        runs: dict[str, Run] = {}
        parted = [None if offsets is None else _parted(offsets, judged) for _, offsets in judged.resolved]
        for (one, _), parts in zip(judged.resolved, parted, strict=True):
            if len(one.deletes) or one.inserts.num_rows:
                runs[one.relation.name] = run = _enter(last, one, parts, len(batches))
                self._grown.add(one.relation.table)
                self.rows_changed += run.rows
        for backlog in self.backlogs:
            backlog.note(last, runs)
        if self.history is not None:
            self.history.note(first, runs)
        concerned = self.interest.concerned(judged.touched)
        for view in concerned:
            if view in judged.emptied:
                judged.emptied[view].put_in_place()  # first: what it had in common with nobody does not follow any more
        self.indexes.apply(last, runs, judged.touched)
        self._changed.update(runs)
        self._grown.add(self.indexes)
        deltas: list[tuple[LiveView, Delta]] = []
        for view in concerned:
            if view.state == "live":
                self._asked.add(view)
                self._grown.add(view)
                self._behind[view] = None
                try:
                    emptied = judged.emptied.get(view)
                    delta = view.apply(first, len(batches), runs, most) if emptied is None else emptied.apply(first, runs)
                except Exception as error:
                    self.fail(view, error)
                    continue
                if delta is not None:
                    deltas.append((view, delta))
                    if most is not None:
                        most = 0 if delta.rest is not None else max(0, most - delta.rows)
        ignored = sum(one.ignored for one, _ in judged.resolved)  # of a batch that stands alone
        receipts = []
        for version, batch in enumerate(batches, first):
            passed_over = batch.ignored + ignored
            taken = batch.sent - passed_over - judged.error_count
            receipt = Receipt(version, taken, passed_over, judged.error_count, judged.errors, False, self.timeline)
            self._count(version, batch, receipt)
            receipts.append(receipt)
        return Applied(receipts, _payload(judged, parted), deltas)

    def gathered(self, view: LiveView, delta: Delta) -> Delta | None:
        """The delta, whole; None if there is none, or the view fails by it, alone."""
        return delta if delta.rest is None else self.unless_it_fails(view, delta.rest, None)

    def _count(self, version: int, batch: Batch, receipt: Receipt) -> None:
        self.newest = version
        if batch.source is not None:
            assert batch.epoch is not None
            self.sources[batch.source] = (batch.run, batch.epoch)
            self.receipts[batch.source] = receipt.encoded()

    def to_reclaim(self) -> list[Callable[[int, Numbers], bool]]:
        """What lets everything be reused that neither the published version, nor a pin, nor an unsettled delta sees: each is to be called,
        with the number of that version, which is the newest, and the pins of the moment, until it gives False: that nothing is left. A call
        does a piece of the work."""
        self.rows_changed = 0
        views = [partial(self._reclaim_view, view) for view in self.views.values()]
        return [*views, self.indexes.reclaim, *(partial(self._reclaim_table, relation) for relation in self.relations.values())]

    def _reclaim_view(self, view: LiveView, published: int, pins: Numbers) -> bool:
        if view.state == "building":  # its builder does it
            return False
        return self.unless_it_fails(view, partial(view.reclaim, published, pins), False)

    def _reclaim_table(self, relation: Relation, published: int, pins: Numbers) -> bool:
        feeds = (view.feed for view in self.interest.using(relation.name) if not view.owns_rows)
        floors = (floor for feed in feeds if feed is not None and (floor := feed.floor()) is not None)
        replayed = self.history.floor(relation) if self.history is not None else None
        return relation.table.reclaim(min([published, *floors, *([] if replayed is None else [replayed])]), pins)

    def close_passage(self, passage: Passage) -> None:
        """A view is not replayed any more."""
        if self.history is not None and not self.history.close(passage):
            self.history = None

    def maintain(self, steps: int) -> bool:
        """Do so many steps of what changes have put off, for one view that has some to do; whether there may be more. Cost: besides, O(1)
        for each view that has been changed since the last call."""
        while self._behind:
            view = next(iter(self._behind))
            if view.state == "live" and self.unless_it_fails(view, partial(view.maintain, steps), False):
                self._grown.add(view)
                return True
            del self._behind[view]
        return False

    def take_grown(self) -> WeakSet[Growing]:
        """What may have grown since the last call."""
        grown, self._grown = self._grown, WeakSet()
        return grown

    def _require(self, view: LiveView, following: LiveView | Emptied, resolved: dict[str, Resolved]) -> None:
        """MemoryError unless what follows the batch for the view has room; any other error is the view's own."""
        try:
            following.require(resolved)
        except MemoryError:
            raise
        except Exception as error:
            self.fail(view, error)

    def unless_it_fails(self, view: LiveView, work: Callable[[], T], nothing: T) -> T:
        """What it gives; `nothing` of a view that fails by it, alone."""
        try:
            return work()
        except Exception as error:
            self.fail(view, error)
            return nothing

    def fail(self, view: LiveView, error: Exception) -> None:
        """It fails alone: the relations and the other views continue."""
        view.fail(error)
        self._forget_derived()

    @property
    def retired_bytes(self) -> int:
        """What the tables and the views' structures hold for readers of older versions."""
        tables = sum(relation.table.retired_bytes for relation in self.relations.values())
        return tables + self.indexes.retired_bytes + sum(view.retired_bytes for view in self.views.values())

    @property
    def free_bytes(self) -> int:
        """What the stores of the structures keep from the system besides blocks that a version needs."""
        held = (store.held_bytes - store.live_bytes - store.retired_bytes for store in self.stores)
        return sum(max(0, one) for one in held)  # the writer may be at work

    @property
    def stores(self) -> list[Store]:
        """Where the structures have their blocks."""
        return [*self.indexes.stores, *(store for view in self.views.values() for store in view.stores)]


def _enter(version: int, resolved: Resolved, parts: _Parts | None, versions: int) -> Run:
    """Put it into the table."""
    table, previous, deletes = resolved.relation.table, resolved.previous, resolved.deletes
    if len(deletes):
        table.delete(version, deletes)
    if resolved.given is not None:
        slots = table.enter(version, resolved.given)
    else:
        slots = table.insert(version, resolved.inserts) if resolved.inserts.num_rows else NO_SLOTS
    run = batch_run(previous, deletes, slots)
    if parts is None:
        return run
    of = np.concatenate(parts)
    order = np.argsort(of)
    return Run(versions, of[order], run.old[order], run.new[order], run.rows)


def _parted(offsets: Indices, judged: Outcome) -> _Parts:
    deleting = np.array([judged.batches[offset].changes[0].ops[0] == DELETE for offset in offsets.tolist()])
    return offsets[~deleting], offsets[deleting]


def _payload(judged: Outcome, parted: Sequence[_Parts | None]) -> bytes:
    effects = []
    for (one, _), parts in zip(judged.resolved, parted, strict=True):
        if one.truncate or len(one.deletes) or one.inserts.num_rows:
            ages = None
            if parts is not None:
                come, gone = parts
                ages = (len(judged.batches) - 1 - np.concatenate((gone, come))).astype(np.uint16)
            effects.append(Effect(one.relation.id, one.truncate, one.delete_keys, one.inserts, ages))
    return encode_effects(effects)


def refuse_bad(batch: Batch, errors: Sequence[RowError], count: int) -> None:
    """Problem `bad-rows` if there are some."""
    if count:
        listed = [error._asdict() for error in errors]
        said = f"{count} of {batch.sent} changes {'is' if count == 1 else 'are'} bad; nothing was applied"
        raise Problem("bad-rows", said, error_count=count, errors=listed)


def _named(run: str | None) -> str:
    return "no run" if run is None else f"the run {run!r}"
