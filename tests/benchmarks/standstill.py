"""When a processor of this machine stands still: `python -m tests.benchmarks.standstill`.

The host of a virtual machine lets a processor stand still to provide memory, or to run another machine, and does not always report it as
stolen time. On each processor, a thread with real-time priority sleeps for two milliseconds at a time: it wakes up more than three
milliseconds late only if the processor stands still, or if the kernel does not give it up for so long.

Prints "ready", watches until its input ends, then prints one line of JSON: start and end of each time that a processor stood still for more
than three milliseconds, in seconds of the system's monotonic clock; null if the system does not permit this priority.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

_ASLEEP = 2e-3  # seconds that a thread sleeps
_LATE = 3e-3  # seconds: a shorter delay does not count


def main() -> None:
    ended, processors = threading.Event(), real_time_processors()
    with ThreadPoolExecutor(max(1, len(processors))) as threads:
        try:
            watched = [threads.submit(_watch, processor, ended) for processor in processors]
            print("ready", flush=True)
            sys.stdin.read()
        finally:
            ended.set()
    print(json.dumps(sorted(span for one in watched for span in one.result()) if processors else None), flush=True)


def real_time_processors() -> list[int]:
    """Give this thread, and those that it starts, real-time priority. Return the processors that they may run on; none if the system does
    not permit this priority."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        return sorted(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # only Linux has these calls
        return []


def _watch(processor: int, ended: threading.Event) -> list[tuple[float, float]]:
    os.sched_setaffinity(0, {processor})  # of this thread
    found = []
    before = time.monotonic()
    while not ended.is_set():
        time.sleep(_ASLEEP)
        now = time.monotonic()
        if now - before > _ASLEEP + _LATE:
            found.append((before + _ASLEEP, now))
        before = now
    return found


def without_standstills(spans: list[tuple[float, float]], starts: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Return the seconds of intervals that begin at `starts`, without the time in which at least one processor stood still. `spans`: start
    and end of each standstill, in the order of the starts; they may overlap. All in seconds of the same clock."""
    bounds, lost = [0.0], [0.0]
    for start, end in spans:
        start = max(start, bounds[-1])
        if end > start:
            bounds += [start, end]
            lost += [lost[-1], lost[-1] + end - start]
    return seconds - (np.interp(starts + seconds, bounds, lost) - np.interp(starts, bounds, lost))


if __name__ == "__main__":
    main()
