"""What users would write without livejoin's pipeline, for the same records: a Python consumer that posts JSON; Spark alone."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from confluent_kafka import Consumer, Message

from streaming.kafka_client import quiet
from tests.benchmarks.pipeline_stage import TOPICS, serving_view, view_count
from tests.server_process import ROOT

BATCH = 1_000  # records of one POST
_RELATIONS = {topic: relation for relation, topic in TOPICS.items()}
_SILENCE = 60.0  # seconds until a consumer without records gives up


class Reached(NamedTuple):
    """Records a second, seconds of processor time per record (without the service and the broker), and rows of the view at the end."""

    rate: float
    cost: float
    rows: int


def plain_consumer(brokers: str, count: int) -> Reached:
    """A consumer that posts `BATCH` records as JSON and waits for the answer, to a service of its own.

    Delivery is at least once: there are no dead letters, and a repeated batch is not recognised.
    """
    settings = {"bootstrap.servers": brokers, "group.id": "plain", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(settings, logger=quiet)
    consumer.subscribe(list(TOPICS.values()))
    with tempfile.TemporaryDirectory(prefix="livejoin-bench-") as folder, serving_view(Path(folder)) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
        done, started, spent = 0, 0.0, time.process_time()
        while done < count:
            messages = consumer.consume(BATCH, 0.1 if started else _SILENCE)
            started = started or time.perf_counter()
            body = orjson.dumps({"changes": [_change(message) for message in messages]})
            connection.request("POST", "/v1/changes", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == 200, text
            consumer.commit(asynchronous=True)
            done += len(messages)
        seconds, spent = time.perf_counter() - started, time.process_time() - spent
        reached = Reached(done / seconds, spent / done, view_count(server))
        connection.close()
    consumer.close()
    return reached


def _change(message: Message) -> dict[str, Any]:
    record = orjson.loads(message.value())
    relation = _RELATIONS[message.topic()]
    if record["op"] == "d":
        return {"relation": relation, "op": "delete", "key": orjson.loads(message.key())}
    return {"relation": relation, "op": "upsert", "row": record["after"]}


def spark_alone(brokers: str, offsets: int) -> Reached:
    """Run `pipeline_spark_alone` in a separate process. All its micro-batches except the first one count; there must be at least two."""
    command = [sys.executable, "-m", "tests.benchmarks.pipeline_spark_alone", brokers, str(offsets)]
    said = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    first, *batches = [json.loads(line) for line in said.splitlines()]
    records = sum(batch["records"] for batch in batches)
    seconds, spent = sum(batch["seconds"] for batch in batches), batches[-1]["processor"] - first["processor"]
    return Reached(records / seconds, spent / records, batches[-1]["rows"])
