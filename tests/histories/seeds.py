"""Seeds of runs: for `make test` always the same; for `make soak` new ones, from NEW upwards."""

from __future__ import annotations

import os
from typing import Any

import pytest

NEW = 1 << 32


def seeds(count: int) -> list[Any]:
    soak = [pytest.mark.soak, pytest.mark.timeout(4 * 3600)]
    return [*range(count), pytest.param(NEW + int.from_bytes(os.urandom(4)), marks=soak, id="new")]
