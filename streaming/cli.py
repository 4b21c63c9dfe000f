"""`livejoin stream`: runs the job of a file until it is told to stop.

    python -m streaming.cli --config stream.toml                       the same
    spark-submit --jars LIST streaming/cli.py --config stream.toml     on another Spark; LIST: the `spark` archives of jars.lock
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import get_args

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from livejoin.problems import BadFile
from livejoin.wire.log_lines import Format, Level, start_log
from streaming.checking.check import check
from streaming.config import BadConfig, Config, OutSection, read_config
from streaming.connection import Service
from streaming.errors import StreamError
from streaming.metrics import Metrics
from streaming.patience import Stopped
from streaming.pipeline.query import Ask, run_stream
from streaming.publishing.publisher import Publisher
from streaming.spark import start_spark

log = logging.getLogger("livejoin.stream")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--config", type=Path, metavar="FILE", help="run the job of this stream.toml")
    what.add_argument("--check", type=Path, metavar="FILE", help="check that everything the job needs is available; changes nothing")
    parser.add_argument("--metrics-port", type=_port, metavar="N", help="serve Prometheus metrics at http://127.0.0.1:N/metrics")
    parser.add_argument(
        "--metrics-host", default="127.0.0.1", metavar="ADDRESS",
        help="another address for the metrics; anyone who reaches it can read them",
    )
    given = os.environ.get("LIVEJOIN_LOG_FORMAT") or "text"
    help = "the form of a line of the log (LIVEJOIN_LOG_FORMAT; default: text)"
    parser.add_argument("--log-format", type=_one_of("format", get_args(Format)), default=given, metavar="{text,json}", help=help)
    given = os.environ.get("LIVEJOIN_LOG_LEVEL") or "info"
    help = "debug also logs the tracebacks of internal errors, which may hold rows of data (LIVEJOIN_LOG_LEVEL; default: info)"
    parser.add_argument("--log-level", type=_one_of("level", get_args(Level)), default=given, metavar="{info,debug}", help=help)


def command(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit status."""
    try:
        if args.check:
            return check(args.check)
        return run(args.config, args.metrics_port, args.metrics_host, args.log_format, args.log_level)
    except (BadConfig, BadFile) as error:  # the second: of LIVEJOIN_CA
        print(f"livejoin: {error}", file=sys.stderr)
        return 2


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r} is not a valid port: use a number from 1 to 65535")
    return int(text)


def _one_of(what: str, words: tuple[str, ...]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise argparse.ArgumentTypeError(f"{text!r} is not a {what} of the log: use {' or '.join(words)}")
        return text

    return read


def run(
    path: Path, metrics_port: int | None = None, metrics_host: str = "127.0.0.1", log_format: Format = "text", log_level: Level = "info"
) -> int:
    """Runs the job of a file. Status 0 when it was told to stop or, with trigger "available-now", is done; 1 failure. Raises BadConfig."""
    config = read_config(path)
    os.umask(0o077)  # the checkpoint is for nobody else; our own Spark inherits this
    start_log(log_format, log_level)
    os.environ["LIVEJOIN_LOG_FORMAT"] = log_format  # for Spark's own lines (log4j2.properties)
    stop = threading.Event()
    _listen(stop)
    metrics = Metrics()
    try:
        if metrics_port is not None:
            metrics.serve(metrics_port, metrics_host)
        _run(config, stop, metrics)
    except Stopped:
        log.info("stopped; records that were not applied are read again at the next start")
    except Exception as error:
        _report(error)
        return 1
    return 0


def _report(failure: BaseException) -> None:
    """Of one that nobody has foreseen, the log names the type only: its text may hold rows of data (`log_lines`)."""
    if isinstance(failure, StreamError | BadConfig | Stopped):
        log.error("%s", failure)
    else:
        log.error("internal error, please report it with its traceback, which --log-level debug adds", exc_info=failure)


def _listen(stop: threading.Event) -> None:
    """SIGTERM and Ctrl-C stop the job; a second one ends it at once."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)
        stop.set()
        log.info("finishing the current batch")

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, on_signal)


def _run(config: Config, stop: threading.Event, metrics: Metrics) -> None:
    """Runs the topics and the outs concurrently. The first failure stops all of them, in order, and is raised; others are logged.

    The outs begin when the service has the source from this job's checkpoint: a job that it refuses must not fence the one that publishes.
    With trigger "available-now" they end after the topics, when they have published what these brought.
    """
    failures: list[BaseException] = []
    enough = threading.Event()
    threads: list[threading.Thread] = []

    def publish(ask: Ask = lambda service: None) -> None:
        """Starts the outs, once."""
        if not threads and not stop.is_set():
            for out in config.outs:
                common = config, out, ask, stop, enough, metrics, failures
                threads.append(threading.Thread(target=_publish, args=common, name=out.topic))
                threads[-1].start()

    try:
        if config.stream and config.topics:
            run_stream(config, config.stream, _spark(config.stream.name, stop), stop, metrics, publish)
        publish()
        if not config.topics and not (config.stream and config.stream.trigger == "available-now"):
            stop.wait()
        enough.set()
    except BaseException as failure:
        failures.append(failure)
        stop.set()
    for thread in threads:
        thread.join()
    # A Stopped only means that another one had failed, or that the job was told to stop.
    emitted = [failure for failure in failures if not isinstance(failure, Stopped)] or failures[:1]
    for other in emitted[1:]:
        _report(other)
    if emitted:
        raise emitted[0]


@contextmanager
def _spark(name: str, stop: threading.Event) -> Iterator[SparkSession]:
    """A session that ends with the job."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # we report a failed batch ourselves, in one sentence
    logging.getLogger().addFilter(lambda record: record.module != "java_gateway")  # py4j, again: a JVM that was killed
    spark = start_spark(name)
    _listen(stop)  # Spark's own handler of Ctrl-C would cancel the batch
    try:
        yield spark
    finally:
        with suppress(Py4JError, PySparkException, OSError):  # completed batches are committed: errors while it stops do not matter
            spark.stop()


def _publish(
    config: Config, out: OutSection, ask: Ask, stop: threading.Event, enough: threading.Event, metrics: Metrics, failed: list[BaseException]
) -> None:
    """The thread of an out: publishes until the job ends or it has published enough; a failure ends the job."""
    try:
        with closing(Service(config.service.url, stop, metrics, config.service.ca)) as service:
            Publisher(config.kafka, service, out, stop, enough, metrics).run(ask)
    except BaseException as failure:
        failed.append(failure)
        stop.set()


def main() -> int:
    parser = argparse.ArgumentParser(description="Load Kafka topics into livejoin through Spark, and publish views to Kafka topics")
    add_arguments(parser)
    return command(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
