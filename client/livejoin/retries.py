"""When a request is repeated, and after how long.

A repeated read changes nothing, and a repeated batch with source and epoch is recognised by the service: these are *repeatable*. Other
requests are repeated only where the service certainly did not act: no connection was made, or it said so itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from livejoin.problems import LivejoinError, NoRoom, Problem, TooBusy, Unreachable, ViewBuilding

_FIRST, _LONGEST = 0.1, 5.0  # seconds
# These say that nothing was applied. A service that is ending may still apply what it answers with `recovering`.
_NOT_DONE = (TooBusy, ViewBuilding, NoRoom)
TEMPORARY = (429, 502, 503, 504)  # the two in the middle are a proxy's, for a service that is away


def pauses() -> Iterator[float]:
    """Seconds before each repetition: up to 0.1, 0.2, 0.4 … 5, 5, 5 …, at least half of it, so that clients do not come all at once."""
    longest = _FIRST
    while True:
        yield longest * random.uniform(0.5, 1.0)
        longest = min(2 * longest, _LONGEST)


def pause_after(error: LivejoinError, pause: float, repeatable: bool, was_there: bool) -> float | None:
    """Seconds to wait before the request is sent again, at least what Retry-After asks for; None: it must not be, or it would not help.

    `was_there`: the service has answered this client before. Until then a refused connection means a wrong address rather than a restart.
    """
    if isinstance(error, Unreachable):
        return pause if was_there and (repeatable or not error.sent) else None
    if not isinstance(error, Problem) or error.status not in TEMPORARY:
        return None
    if error.type and error.retry_after is None:
        return None  # as view-failed, or too many readings: it will not pass by itself
    if not repeatable and not (isinstance(error, _NOT_DONE) and error.retry_after is not None):
        return None
    return max(pause, (error.retry_after or 0.0) * random.uniform(1.0, 1.1))
