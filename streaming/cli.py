"""`livejoin stream`: runs the job of a file until it is asked to end.

    python -m streaming.cli --config stream.toml                       the same
    spark-submit --jars LIST streaming/cli.py --config stream.toml     on another Spark; LIST: the `spark` archives of jars.lock
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from streaming.config import BadConfig, read_config
from streaming.errors import StreamError
from streaming.log import say
from streaming.metrics import Metrics
from streaming.patience import Stopped
from streaming.query import run_stream


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--config", type=Path, metavar="FILE", help="run the pipelines of this stream.toml")
    parser.add_argument("--metrics-port", type=_port, metavar="N", help="answer Prometheus at http://127.0.0.1:N/metrics")


def command(args: argparse.Namespace) -> int:
    """Does what the arguments say; the exit status."""
    return run(args.config, args.metrics_port)


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
    if config.outs or config.stream is None:
        say(f"{path}: out: publishing a view's changes to Kafka is not there yet; take the [[out]] tables out of the file")
        return 2
    _listen(stop)
    metrics = Metrics()
    try:
        if metrics_port is not None:
            metrics.serve(metrics_port)
        # Spark's own handler of Ctrl-C would cancel the batch.
        run_stream(config, config.stream, stop, metrics, on_spark=lambda: _listen(stop))
    except Stopped:
        say("ended while it waited; what was not applied is read again at the next start")
    except StreamError as error:
        say(str(error))
        return 1
    return 0


def _listen(stop: threading.Event) -> None:
    """SIGTERM and Ctrl-C ask the job to end; a second one ends it at once."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)
        say("finishing the batch")
        stop.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, on_signal)


def main() -> int:
    parser = argparse.ArgumentParser(description="Kafka through Spark into livejoin, and its views to Kafka")
    add_arguments(parser)
    return command(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
