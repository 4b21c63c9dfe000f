"""`livejoin stream`: runs the job of a file until it is asked to end.

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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from traceback import extract_tb
from types import FrameType

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streaming.checking.check import check
from streaming.config import BadConfig, Config, Out, read_config
from streaming.connection import Service
from streaming.errors import StreamError
from streaming.log import say
from streaming.metrics import Metrics
from streaming.patience import Stopped
from streaming.pipeline.query import run_stream
from streaming.publishing.publisher import Publisher
from streaming.spark import start_spark


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--config", type=Path, metavar="FILE", help="run the pipelines of this stream.toml")
    what.add_argument("--check", type=Path, metavar="FILE", help="look at all that its pipelines need, change nothing")
    parser.add_argument("--metrics-port", type=_port, metavar="N", help="answer Prometheus at http://127.0.0.1:N/metrics")


def command(args: argparse.Namespace) -> int:
    """Does what the arguments say; the exit status."""
    return check(args.check) if args.check else run(args.config, args.metrics_port)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: give a number from 1 to 65535")
    return int(text)


def run(path: Path, metrics_port: int | None = None) -> int:
    """Runs the job of a file. Status 0 when it was asked to end or, with trigger "available-now", is done; 1 failure, 2 bad file."""
    stop = threading.Event()
    try:
        config = read_config(path)
    except BadConfig as error:
        say(str(error))
        return 2
    _listen(stop)
    metrics = Metrics()
    try:
        if metrics_port is not None:
            metrics.serve(metrics_port)
        _run(config, stop, metrics)
    except Stopped:
        say("ended; what was not applied is read again at the next start")
    except StreamError as error:
        say(str(error))
        return 1
    except Exception as error:
        say(_unforeseen(error))
        return 1
    return 0


def _unforeseen(error: Exception) -> str:
    """One line on a failure that nobody has a sentence for, with the calls that led to it, the last one first."""
    calls = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(extract_tb(error.__traceback__)))
    return f"this should not happen, please report it: {type(error).__name__}: {' '.join(str(error).split())} ({calls})"


def _listen(stop: threading.Event) -> None:
    """SIGTERM and Ctrl-C ask the job to end; a second one ends it at once."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)
        stop.set()
        os.write(2, b"livejoin: finishing the batch\n")  # whoever is interrupted may be in the midst of a line of his own

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, on_signal)


def _run(config: Config, stop: threading.Event, metrics: Metrics) -> None:
    """Runs the topics and the outs side by side. The first failure ends them all, in order, and is raised; others are told.

    With trigger "available-now" the outs end after the topics, when they have published what these brought.
    """
    failures: list[BaseException] = []
    enough = threading.Event()
    threads = [
        threading.Thread(target=_publish, args=(config, out, stop, enough, metrics, failures), name=out.topic) for out in config.outs
    ]
    for thread in threads:
        thread.start()
    try:
        if config.stream and config.topics:
            run_stream(config, config.stream, _spark(config.stream.name, stop), stop, metrics)
        elif not (config.stream and config.stream.trigger == "available-now"):
            stop.wait()
        enough.set()
    except BaseException as failure:
        failures.append(failure)
        stop.set()
    for thread in threads:
        thread.join()
    # A Stopped only says that another one had failed, or that the job was asked to end.
    told = [failure for failure in failures if not isinstance(failure, Stopped)] or failures[:1]
    for other in told[1:]:
        say(str(other))
    if told:
        raise told[0]


@contextmanager
def _spark(name: str, stop: threading.Event) -> Iterator[SparkSession]:
    """A session that ends with the job."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # a batch that fails is told by us, in one sentence
    logging.getLogger().addFilter(lambda record: record.module != "java_gateway")  # py4j, again: a JVM that was killed
    spark = start_spark(name)
    _listen(stop)  # Spark's own handler of Ctrl-C would cancel the batch
    try:
        yield spark
    finally:
        with suppress(Py4JError, PySparkException, OSError):  # what is done is committed: trouble while it ends changes nothing
            spark.stop()


def _publish(
    config: Config, out: Out, stop: threading.Event, enough: threading.Event, metrics: Metrics, failures: list[BaseException]
) -> None:
    """The thread of an out: until the job ends or it has published enough; a failure ends the job."""
    service = Service(config.service.url, stop, metrics)
    try:
        Publisher(config.kafka, service, out, stop, enough, metrics).run()
    except BaseException as failure:
        failures.append(failure)
        stop.set()
    finally:
        service.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="Kafka through Spark into livejoin, and its views to Kafka")
    add_arguments(parser)
    return command(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
