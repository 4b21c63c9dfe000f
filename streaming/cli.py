"""`livejoin stream`: runs the job of a file until it is asked to end.

    python -m streaming.cli --config stream.toml                       the same
    spark-submit --jars LIST streaming/cli.py --config stream.toml     on another Spark; LIST: the `spark` archives of jars.lock
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from streaming.config import BadConfig, Config, Stream, read_config
from streaming.errors import StreamError
from streaming.kafka_client import KafkaAway, wait_for_topics
from streaming.log import say
from streaming.patience import Stopped
from streaming.pipeline import Pipeline, start_query
from streaming.sink import ServiceClient
from streaming.spark import start_spark

_LOOK_SECONDS = 0.2
_COMMIT_SECONDS = 5.0
# Words of Spark's and Kafka's failures, and what they mean to the job.
_AWAY = ("TimeoutException", "DisconnectException", "BrokerNotAvailableException", "NetworkException", "CoordinatorNotAvailableException")
_GONE = "UnknownTopicOrPartitionException"
_LOST = ("offset was changed from", "KafkaIllegalStateException", "OffsetOutOfRangeException", "Some data may have been lost")


def run(path: Path) -> int:
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
    try:
        _run_stream(config, config.stream, stop)
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


def _run_stream(config: Config, stream: Stream, stop: threading.Event) -> None:
    topics = [topic.name for topic in config.topics] + ([stream.dead_letters] if stream.dead_letters else [])
    service = ServiceClient(config.service.url, stop)
    wait_for_topics(config.kafka, topics, stop)
    definitions = {topic.relation: service.definition(topic.relation) for topic in config.topics}
    spark = start_spark(stream.name)
    _listen(stop)  # Spark's own handler of Ctrl-C would cancel the batch
    try:
        while not stop.is_set():
            pipeline = Pipeline(config, stream, definitions, service, stop)
            if _run_query(start_query(spark, config, stream, pipeline), pipeline, stop):
                return
            wait_for_topics(config.kafka, topics, stop)
    except (Py4JError, OSError) as error:
        if stop.is_set():  # whoever ends us may end all our processes
            return
        stop.set()  # a batch that waits for the service must not keep us
        raise StreamError(f"Spark ended by itself ({error}); start again: what was not applied is read again") from error
    finally:
        service.close()
        _stop_spark(spark)


def _run_query(query: StreamingQuery, pipeline: Pipeline, stop: threading.Event) -> bool:
    """Runs a query to its end: True when the job is done, False when Kafka was away and the query is to be started again."""
    while query.isActive:
        if stop.wait(_LOOK_SECONDS):
            _end_query(query, pipeline)
            break
    failure = pipeline.failure or query.exception()
    if failure is None:
        return True
    if isinstance(failure, StreamError | Stopped):
        raise failure
    if isinstance(failure, KafkaAway) or _is_away(_whole_text(failure)):
        say("Kafka went away; the query starts again when it is back")
        return False
    raise StreamError(_explain(_whole_text(failure)))


def _end_query(query: StreamingQuery, pipeline: Pipeline) -> None:
    """Lets the batch at hand finish and be committed, and ends the query. A next batch ends it too: the pipeline refuses it."""
    patience = _COMMIT_SECONDS
    while query.isActive and (pipeline.busy or query.status["isTriggerActive"]) and patience > 0:
        time.sleep(_LOOK_SECONDS)
        # Outside of a batch Spark commits, which is quick, or waits for Kafka, which may be away for ever.
        patience = _COMMIT_SECONDS if pipeline.busy else patience - _LOOK_SECONDS
    with contextlib.suppress(PySparkException):  # still at Kafka after the session's stopTimeout: it has no batch, so it may be cut off
        query.stop()


def _whole_text(failure: BaseException) -> str:
    """What a failure and its causes say, stack traces of Spark's included."""
    parts = []
    cause: BaseException | None = failure
    while cause is not None:
        parts.append(str(cause))
        cause = getattr(cause, "cause", None) or getattr(cause, "_cause", None) or cause.__cause__
    return "\n".join(parts)


def _is_away(text: str) -> bool:
    return _GONE not in text and not any(words in text for words in _LOST) and any(words in text for words in _AWAY)


def _explain(text: str) -> str:
    """One sentence, with what to do, for a query that ended by itself."""
    afresh = "start on a new checkpoint with reset = true in [stream], and with start = \"earliest\" to read again what is there"
    if _GONE in text:
        return f"a topic of this job was deleted; create it again, then {afresh}"
    if any(words in text for words in _LOST):
        return f"Kafka no longer has records that this checkpoint was to read (a topic made anew, or its retention too short): {afresh}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    return f"Spark's query failed: {(causes or lines or ['without a word'])[-1 if causes else 0]}"


def _stop_spark(spark: SparkSession) -> None:
    """What is done is committed: trouble while Spark ends changes nothing."""
    with contextlib.suppress(Py4JError, PySparkException, OSError):
        spark.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description="Kafka through Spark into livejoin")
    parser.add_argument("--config", required=True, type=Path, metavar="FILE", help="the stream.toml")
    return run(parser.parse_args().config)


if __name__ == "__main__":
    sys.exit(main())
