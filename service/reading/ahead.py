"""Threads that find a reader's next rows while another thread gathers and sends those found before."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Semaphore
from typing import TypeVar

from service.priority import processors

T = TypeVar("T")


class Walkers:
    """At most half as many threads as the process has processors; only one thread may use what they return. Any thread."""

    def __init__(self) -> None:
        most = max(1, processors() // 2)
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="walker")
        self._free = Semaphore(most)

    def begin(self, call: Callable[[], T]) -> Future[T] | None:
        """Call the function in a thread, at once; None: all of them are busy. The function takes milliseconds, and must not wait."""
        if not self._free.acquire(blocking=False):
            return None
        try:
            begun = self._pool.submit(call)
        except RuntimeError:  # no other thread can be started, or the service is stopping
            self._free.release()
            return None
        begun.add_done_callback(lambda _: self._free.release())
        return begun

    def shutdown(self, wait: bool, cancel_futures: bool) -> None:
        """As for an executor."""
        self._pool.shutdown(wait=wait, cancel_futures=cancel_futures)
