"""The data source on PySpark 4.0, from the client's wheel, for a job beside folders with the names of the service's packages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from deploy.checks.wheels import build, install
from streaming.java import find_java
from tests.server_process import ServerProcess
from tests.streaming.datasource import oldest_spark, user_job

QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def job_folder(folder: Path) -> Path:
    """A folder with the job, and with packages that hide those of the service and fail when they are imported."""
    for name in ("service", "streaming", "structures"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("raise SystemError('the job has a package of this name')\n")
    shutil.copy(user_job.__file__, folder)
    return folder


def test_the_oldest_version(tmp_path: Path) -> None:
    """All that the data source does: types, parts, versions, changes, writes, tables and errors."""
    environment = tmp_path / "environment"
    python = install(build(tmp_path / "wheels")[:1], environment).with_name("python")
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "oldest.pth").write_text(f"{oldest_spark.installed()}\n")  # read before others.pth
    folder = job_folder(tmp_path / "job")
    settings = f"--master local[2] --driver-java-options '{QUICK}' --conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=2"
    own = {"JAVA_HOME": str(find_java().resolve().parent.parent), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python)}
    own |= {"PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell"}
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
    with ServerProcess(tmp_path / "data") as server:
        command = [str(python), "user_job.py", server.url, str(tmp_path)]
        done = subprocess.run(command, cwd=folder, env=inherited | own, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-20_000:]
    assert json.loads(done.stdout.splitlines()[-1])["version"] == oldest_spark.VERSION
