"""Threads that work in the background of the writer and requests: their priority, and the order of their work."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


def give_way(nice: int) -> None:
    """Lower the priority of this thread. Only Linux has priorities per thread."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + nice)


class _WaitingBuild(NamedTuple, Generic[T]):
    item: T
    client: str
    size: int


class Line(Generic[T]):
    """Work that waits for three threads. One thread takes the oldest item. One takes the smallest, where the size of an item includes what
    was taken for its client since that client last had nothing here. One does the same among items of at most `few`, so that these never
    wait for a large one. So no item waits behind many larger ones, no client's item behind many of another client, and no large item
    forever. Any thread; O(waiting items)."""

    THREADS = 3

    def __init__(self, few: int) -> None:
        self._few = few
        self._lock = threading.Lock()
        self._waiting: list[_WaitingBuild[T]] = []  # in order of arrival
        self._at_work: list[_WaitingBuild[T] | None] = [None] * self.THREADS
        self._taken: dict[str, int] = {}  # for each client with items here, the total size of what was taken

    def add(self, item: T, client: str, size: int) -> None:
        with self._lock:
            self._waiting.append(_WaitingBuild(item, client, size))
            self._taken.setdefault(client, 0)

    def remove(self, item: T) -> bool:
        """Remove an item; return whether it was still waiting."""
        with self._lock:
            found = [one for one in self._waiting if one.item == item]
            for one in found:
                self._waiting.remove(one)
                self._forget(one.client)
            return bool(found)

    def take(self) -> T | None:
        """Return the next item for the calling thread, which must call `leave` after it; None if there is none for it."""
        with self._lock:
            for position, choose in enumerate((self._oldest, self._smallest, self._small)):
                if self._at_work[position] is None and (chosen := choose()) is not None:
                    self._at_work[position] = chosen
                    self._waiting.remove(chosen)
                    self._taken[chosen.client] += chosen.size
                    return chosen.item
            return None

    def leave(self, item: T) -> None:
        with self._lock:
            for position, one in enumerate(self._at_work):
                if one is not None and one.item == item:
                    self._at_work[position] = None
                    self._forget(one.client)

    def _forget(self, client: str) -> None:
        if not any(one is not None and one.client == client for one in (*self._waiting, *self._at_work)):
            del self._taken[client]

    def _oldest(self) -> _WaitingBuild[T] | None:
        return self._waiting[0] if self._waiting else None

    def _smallest(self) -> _WaitingBuild[T] | None:
        return min(self._waiting, key=lambda one: self._taken[one.client] + one.size, default=None)

    def _small(self) -> _WaitingBuild[T] | None:
        chosen = [one for one in self._waiting if one.size <= self._few]
        return min(chosen, key=lambda one: self._taken[one.client] + one.size, default=None)
