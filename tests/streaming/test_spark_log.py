"""What Spark says in a job of ours, in the form of the job's own log."""

from __future__ import annotations

import json

import pytest
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from streaming.spark import prepare_own

pytestmark = pytest.mark.usefixtures("quick_java")


def test_its_errors_are_json_like_ours(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LIVEJOIN_LOG_FORMAT", "json")
    conf = SparkConf(loadDefaults=False)
    for key, value in prepare_own().items():
        conf.set(key, value)
    gateway = launch_gateway(conf)
    component = gateway.jvm.org.apache.logging.log4j.LogManager.getLogger("org.example.Some")
    component.error('a "quoted"\nmessage', gateway.jvm.java.lang.RuntimeException("the cause"))
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)
    (line,) = (json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{"))
    assert (line["level"], line["component"], line["message"]) == ("ERROR", "spark.Some", 'a "quoted"\nmessage')
    assert line["traceback"].startswith("java.lang.RuntimeException: the cause\n") and line["time"].endswith("Z")
