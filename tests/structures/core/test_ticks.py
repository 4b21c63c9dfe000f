"""The ticks of versions, against a dictionary of all of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from structures.core.ticks import Ticks

STEPS = st.lists(st.tuples(st.sampled_from(["end", "same", "pin", "unpin", "keep"]), st.integers(1, 3), st.integers(0, 2**16)), max_size=60)


@given(STEPS)
def test_against_all_that_ever_were(steps):
    """Whoever has a pin, or takes one at the oldest version or a later one, finds the tick that its version ended with."""
    ticks, ends, pins = Ticks(), {0: 0}, set()
    version = oldest = tick = 0
    for what, by, choice in steps:
        if what == "end" or what == "same":
            version += by if what == "end" else 0
            tick += by
            ticks.end(version, tick)
            ends[version] = tick
        elif what == "pin":
            pins.add(oldest + choice % (version - oldest + 1))
        elif what == "unpin" and pins:
            pins.remove(sorted(pins)[choice % len(pins)])
        elif what == "keep":
            oldest += choice % (version - oldest + 1)
            seen = {version: ends[max(end for end in ends if end <= version)] for version in (oldest, *pins)}
            of_oldest, of_pins = ticks.keep(oldest, np.array(sorted(pins), np.int64))
            assert of_oldest == seen[oldest] and of_pins.tolist() == sorted({seen[pin] for pin in pins})
        for seen in [*pins, *range(oldest, version + 1)]:
            assert ticks.of(seen) == ends[max(end for end in ends if end <= seen)]


def test_what_nobody_sees_is_forgotten():
    """One old pin kept a tick for each version since: 80,000 of them took 0.4 s to go."""
    ticks = Ticks()
    for version in range(1, 100_001):
        ticks.end(version, 3 * version)
        ticks.keep(version, np.array([7]))
        assert len(ticks) <= 3
    assert ticks.of(7) == 21 and ticks.of(100_000) == 300_000
    assert len(ticks._versions) <= 4
