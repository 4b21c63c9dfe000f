"""A Spark and a service for the tests of a module."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import livejoin
from streaming.spark import prepare_own
from tests.server_process import ROOT, ServerProcess
from tests.streaming.datasource.spark_hotel import Hotel, Made


@pytest.fixture(scope="module")
def spark(quick_java: None) -> Iterator[SparkSession]:
    """Classic. Its Python finds the data source where an installed livejoin has it: on the path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), str(ROOT / "client"))))
        builder = SparkSession.builder.appName("datasource")
        for name, value in prepare_own().items():
            builder = builder.config(name, value)
        builder = builder.master("local[2, 2]")  # a task may fail once
        session = builder.config("spark.sql.streaming.stopTimeout", "30s").getOrCreate()
        yield session
        session.stop()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """May be restarted, but not left stopped."""
    with ServerProcess(tmp_path_factory.mktemp("service") / "data") as process:
        yield process


@pytest.fixture
def hotel(spark: SparkSession, service: ServerProcess, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Made]:
    """`hotel(**options of the view)`."""
    with livejoin.connect(service.url, patience=60) as lj:
        name = request.node.name.removeprefix("test_")[:50].split("[")[0]
        yield lambda **options: Hotel(spark, service, lj, name, tmp_path, **options)
