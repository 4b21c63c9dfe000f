"""When the host of a virtual machine runs nothing on one of its processors: `python -m tests.benchmarks.stolen`.

On each processor, a thread with real-time priority sleeps for two milliseconds at a time: it wakes up late only if the processor stands
still. A host does that to provide memory, or to run another machine, and does not always report it as stolen time.

Prints "ready", watches until its input ends, then prints one line of JSON: start and end of each time that a processor stood still, in
seconds of the system's monotonic clock; null if the system does not permit this priority.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

_ASLEEP, _LATE = 2e-3, 3e-3  # seconds; a thread may wake up so late


def main() -> None:
    ended = threading.Event()
    processors = sorted(os.sched_getaffinity(0))
    with ThreadPoolExecutor(len(processors)) as threads:
        watched = [threads.submit(_watch, processor, ended) for processor in processors]
        print("ready", flush=True)
        sys.stdin.read()
        ended.set()
        try:
            found = sorted(span for one in watched for span in one.result())
        except PermissionError:
            found = None
    print(json.dumps(found), flush=True)


def _watch(processor: int, ended: threading.Event) -> list[tuple[float, float]]:
    os.sched_setaffinity(0, {processor})  # of this thread
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    found = []
    before = time.monotonic()
    while not ended.is_set():
        time.sleep(_ASLEEP)
        now = time.monotonic()
        if now - before > _ASLEEP + _LATE:
            found.append((before + _ASLEEP, now))
        before = now
    return found


def without(spans: list[tuple[float, float]], starts: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Return the seconds of intervals that begin at `starts`, without the time in which at least one processor stood still."""
    bounds, stolen = [0.0], [0.0]
    for start, end in spans:
        start = max(start, bounds[-1])
        if end > start:
            bounds += [start, end]
            stolen += [stolen[-1], stolen[-1] + end - start]
    return seconds - (np.interp(starts + seconds, bounds, stolen) - np.interp(starts, bounds, stolen))


if __name__ == "__main__":
    main()
