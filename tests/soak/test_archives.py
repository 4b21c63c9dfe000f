"""An environment that is packed with its compiled kernels and sent to executors with `--archives`, as on a cluster."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.server_process import ROOT

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

PACKAGES = {"livejoin": "client", "pyspark_livejoin": "client", "service": ".", "streaming": ".", "structures": "."}
OF_THE_CLUSTER = ("pyspark*", "playwright", "polars", "mypy", "ruff*")  # packages that executors have, or do not need
PROGRAM = """
import json, os, sys
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark_livejoin import Table, live_join
from streaming.spark import prepare_own

os.environ["PYSPARK_PYTHON"] = "./environment/bin/python"
builder = SparkSession.builder.config(map=prepare_own()).master("local-cluster[2,1,1024]")
builder = builder.config("spark.archives", sys.argv[1] + "#environment").config("spark.executorEnv.PYTHONPATH", "")
spark = builder.getOrCreate()
rows = spark.range(200_000).selectExpr("id", "id * 10 AS s", "id * 10 + 15 AS e").repartition(4)
table = Table(rows, ["id"], {"i": ("s", "e")})
sql = "SELECT a.id AS x, b.id AS y FROM a JOIN b ON overlaps(a.i, b.i)"
found = live_join(sql, {"a": table, "b": table}).count()

def report(batches):
    list(batches)
    import livejoin.wire, structures
    from service import warming
    from structures.core import kernel
    warming.import_all()
    files = [f"{os.path.realpath(one.__file__)}" for one in (structures, livejoin.wire)]
    yield pa.RecordBatch.from_pydict({"told": [json.dumps([files, sys.prefix, kernel.is_cached()])]})

told = {row.told for row in spark.range(4).repartition(4).mapInArrow(report, "told string").collect()}
print(json.dumps([found, [json.loads(one) for one in told]]))
spark.stop()
"""


def test_executors_run_an_environment_with_its_kernels(tmp_path: Path) -> None:
    """The executors use none of the files of this checkout, and compile nothing: the cache is found although its path has changed."""
    environment = tmp_path / "environment"
    ignored = shutil.ignore_patterns("__pycache__", "__editable__*", *OF_THE_CLUSTER)
    shutil.copytree(sys.prefix, environment, symlinks=True, ignore=ignored)
    (packages,) = environment.glob("lib/python3*/site-packages")
    for name, folder in PACKAGES.items():
        shutil.copytree(ROOT / folder / name, packages / name, ignore=shutil.ignore_patterns("__pycache__"))
    with tarfile.open(tmp_path / "environment.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(environment, ".")
    shutil.rmtree(environment)
    path = os.pathsep.join((str(ROOT), str(ROOT / "client")))
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "environment.tar.gz")]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-3000:]
    found, emitted = json.loads(done.stdout.splitlines()[-1])
    assert found == 200_000 + 2 * 199_999
    for files, prefix, is_cached in emitted:
        assert is_cached and prefix.endswith("/environment") and all(file.startswith(os.path.realpath(prefix)) for file in files)
