"""docs/how-to/beside-spark.md with a real Delta and a real Iceberg table, on the newest Spark for which both are released."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streaming.java import find_java
from tests.server_process import ROOT, ServerProcess
from tests.soak import lake_job
from tests.streaming.datasource import oldest_spark


@pytest.mark.soak
def test_changes_of_lake_tables(tmp_path: Path) -> None:
    """Downloads 54 MB of Java archives the first time."""
    with ServerProcess(tmp_path / "data") as server:
        path = os.pathsep.join((str(oldest_spark.installed()), str(ROOT / "client")))
        own = {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "LIVEJOIN_URL": server.url, "SPARK_LOCAL_IP": "127.0.0.1"}
        own["JAVA_HOME"] = str(find_java().resolve().parent.parent)
        inherited = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
        page = ROOT / "docs" / "how-to" / "beside-spark.md"
        command = [sys.executable, lake_job.__file__, server.url, str(tmp_path / "lakes"), str(page)]
        done = subprocess.run(command, env=inherited | own, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0 and done.stdout.endswith("done\n"), done.stderr[-10_000:]
