"""One data folder in use: the engine, with the readers and followers of its relations and views.

    instance = Instance(folder, settings); instance.recover(progress); open_rows(instance.readers, "clashes"); instance.close()

This module assembles the parts: the engine knows neither readers nor followers.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from service.backups.making import Backups
from service.engine.engine import Engine
from service.following.feeds import Feed
from service.reading.cursors import Readers, owner_of
from service.reading.spools import Spool, Spools
from service.reading.tokens import Signer, Tokens
from service.settings import Settings
from service.tables.resolution import NO_SLOTS
from service.views.deltas import StoredDeltas
from service.views.live_view import LiveView
from service.views.stored import StoredView


class Instance(Engine):
    """An `Engine` with `readers`, `spools`, `backups`, and a feed for each view that may be followed."""

    def __init__(self, data: Path, settings: Settings | None = None) -> None:
        super().__init__(data, settings)
        signer = Signer(self.folder_id, self.secret)
        self._tokens = Tokens(signer, self.timelines)
        self.backups = Backups(data, self._log)
        self.readers = Readers(self, signer, self.settings, data)
        self.spools = Spools(self.readers.holdings, data, self.settings.spool_bytes, self.settings.spool_idle)

    def feed_of(self, view: LiveView, retain: tuple[int, int]) -> Feed:
        shown = view.shown
        return Feed(view.name, view.id, retain, self.readers, self._tokens, shown.with_keys, shown.text_bytes, view.owns_rows)

    def restored_feed_of(self, view: LiveView, retain: tuple[int, int], version: int, stored: StoredDeltas | None) -> Feed:
        feed = self.feed_of(view, retain)
        keys, rows = view.shown.with_keys((NO_SLOTS,) * view.width)
        feed.restore(version, stored, keys.schema, rows.schema)
        return feed

    def rows_of(self, relation: str) -> int:
        """Return how many rows a relation has in the published version; 0 if it has just been dropped."""
        known = self.relations.get(relation)
        return 0 if known is None else self.published.counts.get(known.id, 0)

    def drop_view(self, name: str) -> None:
        view = self.view(name)
        super().drop_view(name)
        self.readers.drop(owner_of(view))

    def drop_relation(self, name: str) -> None:
        relation = self.relation(name)
        super().drop_relation(name)
        self.readers.drop(owner_of(relation))

    def close(self) -> bool:
        ended = self.backups.end()
        self.spools.close()
        return super().close() and ended

    def stored_for(self, views: Iterable[LiveView]) -> list[StoredView]:
        """Return the stored views that these read, at any depth."""
        names = {name for view in views for name in view.view.stored}
        return [one for name, one in self._state.stored.items() if name in names]

    def sweep(self) -> None:
        self.readers.holdings.sweep()

    def metrics(self) -> dict[str, Any]:
        delays, holdings, stored = self.readers.delays, self.readers.holdings, self.stored_for(self.views.values())
        return super().metrics() | {
            "stored_rows": sum(one.relation.table.rows for one in stored),
            "stored_bytes": sum(one.held for one in stored),
            "cursors": self.readers.count(),
            "delay_steps": delays.steps,
            "delay_seconds": delays.seconds,
            "spools": holdings.count(Spool),
            "spool_bytes": self.spools.bytes,
            "spools_written": self.spools.written,
        }
