"""An engine without views, for the tests that change one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.instance import Instance
from tests.service.running import running


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Instance]:
    engine = running(tmp_path, {})
    yield engine
    engine.close()
