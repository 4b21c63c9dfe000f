"""Views, followers and writers at full speed: no client starves, nothing is lost, memory is bounded. Briefly, and for LIVEJOIN_LOAD seconds
(an hour)."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from tests.soak.load import Load

MIB = 1 << 20
SECONDS = float(os.environ.get("LIVEJOIN_LOAD") or 3600)
_LOOK = 10.0  # seconds between two measurements of memory


def test_load_briefly(tmp_path: Path) -> None:
    """For a number of posts, which does not depend on the clock."""
    posts = 60
    with Load(tmp_path, views=4, followers=12, writers=3) as load:
        with load.writing(lambda done: done == posts) as writers:
            pass
        assert load.check(writers) and [len(writer.versions) for writer in writers] == [posts] * 3
        assert load.resident < 1024 * MIB


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 3600)
def test_load(tmp_path: Path) -> None:
    """200 views, 500 followers, 4 writers: the second half needs no more memory than the first, and every writer makes progress."""
    with Load(tmp_path, views=200, followers=500, writers=4) as load:
        start, resident, late = time.monotonic(), [], []
        with load.writing(lambda done: time.monotonic() - start > SECONDS) as writers:
            while time.monotonic() - start < SECONDS:
                time.sleep(min(_LOOK, SECONDS / 20))
                resident.append(load.resident)
                print(f"{time.monotonic() - start:.0f} s: {resident[-1] // MIB} MiB", flush=True)  # pytest -s shows it meanwhile
                late += [value for follower in load.crowd()[2:] for value in follower["late"]]
        late += load.check(writers)
        posts = [len(writer.versions) for writer in writers]
        waits = np.concatenate([writer.waits for writer in writers])
        sizes = np.array(resident[:: max(1, len(resident) // 20)]) // MIB
        print(f"{sum(posts) / SECONDS:.0f} posts/s by {len(posts)} writers, MiB {sizes.tolist()}")
        for what, values in (("answers", waits), ("from a change to its followers", np.array(late))):
            said = ", ".join(f"p{part:g} {1e3 * np.percentile(values, part):.1f} ms" for part in (50, 99, 99.9))
            print(f"{what}: {said}, at most {1e3 * values.max():.0f} ms")
    half = len(resident) // 2
    assert max(resident[half:]) < 1.1 * max(resident[:half]) + 50 * MIB
    assert min(posts) > 0.5 * max(posts)
