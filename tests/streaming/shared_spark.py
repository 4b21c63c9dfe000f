"""One Java process of Spark for many jobs, one after another: its start, and its slow first minute, are most of what a job costs.

A job that finds such a process in its environment runs in it, as under spark-submit, with what livejoin gives to a Spark of its own.
"""

from __future__ import annotations

import tempfile
from types import TracebackType

from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from streaming.spark import prepare_own


class SharedSpark:
    """`with SharedSpark() as spark:` starts it. `environment` is for the jobs."""

    def __enter__(self) -> SharedSpark:
        conf = SparkConf(loadDefaults=False).setAll(list(prepare_own().items()))
        self._log = tempfile.TemporaryFile()
        self._gateway = launch_gateway(conf, {"stderr": self._log})
        there = self._gateway.gateway_parameters
        self.environment = {"PYSPARK_GATEWAY_PORT": str(there.port), "PYSPARK_GATEWAY_SECRET": there.auth_token}
        return self

    def clear(self) -> None:
        """End everything that a killed job has left running."""
        session = self._gateway.jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession()
        if session.isDefined():
            session.get().stop()

    def said(self) -> str:
        """What Java has written on standard error."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._gateway.shutdown()
        self._gateway.proc.stdin.close()  # it ends by this
        self._gateway.proc.wait()
        self._log.close()
