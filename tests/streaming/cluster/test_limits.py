"""What users import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pyspark_livejoin
from streaming.cluster import batch
from tests.server_process import ROOT


def test_the_package_gives_the_joins_and_is_light() -> None:
    """Spark imports it to find data sources, whoever looks for one."""
    assert pyspark_livejoin.overlap_join is batch.overlap_join and pyspark_livejoin.Table is batch.Table
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pyspark_livejoin.nothing
    code = "import pyspark_livejoin, sys; sys.exit(bool({'numba', 'streaming.cluster', 'duckdb'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
