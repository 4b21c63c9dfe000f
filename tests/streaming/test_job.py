"""What the job does when something is wrong, away, or asked of it."""

from __future__ import annotations

import re
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from streaming.kafka_broker import Broker
from tests.end_to_end import talk
from tests.modes_of_files import exposed
from tests.relations import declared
from tests.server_process import ServerProcess
from tests.streaming.shared_spark import SharedSpark
from tests.streaming.stream_job import LIMIT, Jobs, StreamJob, Topics

STAYS = declared("id:int64, room:string, starts:int64, ends:int64?", stay="starts ends")


@pytest.fixture
def topic(topics: Topics) -> str:
    """A topic of this test's own."""
    name = f"stays-{secrets.token_hex(4)}"
    topics.make(name)
    return name


@pytest.fixture
def stays(shared_server: ServerProcess) -> Iterator[ServerProcess]:
    """A service with the relation `stays`, which no test may kill."""
    talk.define(shared_server.client(), "stays", STAYS)
    yield shared_server
    talk.drop(shared_server.client(), relations=["stays"])


@pytest.fixture
def mortal_stays(server: ServerProcess) -> ServerProcess:
    """As `stays`, of this test only."""
    talk.define(server.client(), "stays", STAYS)
    return server


def create(number: int, starts: Any = 0, ends: Any = 10) -> tuple[dict[str, Any], dict[str, Any]]:
    """A Debezium record (key, value) that makes a row."""
    row = {"id": number, "room": "A", "starts": starts, "ends": ends}
    return {"id": number}, {"before": None, "after": row, "op": "c", "source": {}}


def ids(server: ServerProcess) -> list[int]:
    answer = server.client().get("/v1/relations/stays/rows", headers={"Accept": "application/jsonl"})
    return sorted(row for (row,) in talk.decode(answer.content, talk.JSONL, ["id"]))


def test_available_now_ends_by_itself(stays: ServerProcess, topics: Topics, topic: str, job_of: Jobs) -> None:
    topics.put(topic, [create(number) for number in range(25)])
    with job_of(stays.url, (topic, "stays"), trigger="available-now", max_offsets=10) as job:
        assert job.end() == 0
    assert ids(stays) == list(range(25))
    assert list(job.batches.values()) == [10, 10, 5]
    delete = {"before": {"id": 3}, "after": None, "op": "d"}
    topics.put(topic, [create(25), ({"id": 3}, delete), ({"id": 3}, None), ({"id": 7}, None)])  # the delete of 7 is compacted away
    with job:
        assert job.end() == 0
    assert ids(stays) == [number for number in range(26) if number not in (3, 7)]


def test_json_rows(stays: ServerProcess, topics: Topics, topic: str, job_of: Jobs) -> None:
    row = {"id": 1, "room": "A", "starts": 0, "ends": None}
    values = [row, {**row, "id": 2, "_op": "insert"}, {**row, "_op": "insert"}, {"_op": "delete", "id": 2}, {**row, "id": 3}]
    topics.put(topic, [*((None, value) for value in values), ({"id": 4}, {**row, "id": 4}), ({"id": 4}, None), (None, None)])
    with job_of(stays.url, (topic, "stays", "json"), trigger="available-now") as job:
        assert job.end() == 0
    assert ids(stays) == [1, 3]


def test_aborted_records_are_not_read(stays: ServerProcess, broker: Broker, topics: Topics, topic: str, job_of: Jobs) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": topic})
    producer.init_transactions(60)
    for number, end in ((1, producer.commit_transaction), (2, producer.abort_transaction), (3, producer.commit_transaction)):
        producer.begin_transaction()
        key, value = create(number)
        producer.produce(topic, talk.json.dumps(value), talk.json.dumps(key))
        producer.flush(60)
        end(60)
    with job_of(stays.url, (topic, "stays"), trigger="available-now") as job:
        assert job.end() == 0
    assert ids(stays) == [1, 3]


def test_a_bad_record_stops_the_job(stays: ServerProcess, topics: Topics, topic: str, job_of: Jobs) -> None:
    topics.put(topic, [create(1), create(2, starts="soon"), create(3)])
    with job_of(stays.url, (topic, "stays")) as job:
        assert job.end() == 1
    assert f"topic {topic}, partition 0, offset 1: starts: " in job.said
    assert "dead_letters" in job.said
    assert ids(stays) == []


def test_dead_letters(stays: ServerProcess, topics: Topics, topic: str, job_of: Jobs) -> None:
    dead = f"{topic}.dead"
    topics.make(dead)
    topics.put(topic, [create(1), (b"\xffkey", b"not json"), create(3, starts=9, ends=2), create(4)])
    with job_of(stays.url, (topic, "stays"), trigger="available-now", dead_letters=dead) as job:
        assert job.end() == 0
    assert ids(stays) == [1, 4]
    assert "4 records, 2 changes, 2 dead letters" in job.said
    letters = topics.read(dead, 2)
    assert (letters[0].key(), letters[0].value()) == (b"\xffkey", b"not json")
    headers = [dict(letter.headers() or []) for letter in letters]
    assert [(head["livejoin.topic"], head["livejoin.partition"], head["livejoin.offset"]) for head in headers] == [
        (topic.encode(), b"0", b"1"),
        (topic.encode(), b"0", b"2"),
    ]
    assert b"JSON" in headers[0]["livejoin.error"] and b"empty" in headers[1]["livejoin.error"]


def test_a_dead_letter_too_large(stays: ServerProcess, topics: Topics, topic: str, job_of: Jobs) -> None:
    """As large as the topic takes; the headers make it larger."""
    dead = f"{topic}-dead"
    topics.make(dead)
    topics.put(topic, [(None, b"x" * 999_800)])
    with job_of(stays.url, (topic, "stays"), trigger="available-now", dead_letters=dead) as job:
        assert job.end() == 1
    assert f"the dead-letter topic {dead} rejects a record" in job.said and 'raise "message.max.bytes"' in job.said
    job.path.write_text(job.path.read_text().replace("[stream]", '[kafka.librdkafka]\n"message.max.bytes" = 2000000\n[stream]'))
    with job:
        assert job.end() == 0
    assert topics.read(dead, 1)[0].value() == b"x" * 999_800


def test_too_many_dead_letters(stays: ServerProcess, topics: Topics, topic: str, job_of: Jobs) -> None:
    """More than a Batch lists (100), so that the count does not rest on the list."""
    dead = f"{topic}.dead"
    topics.make(dead)
    topics.put(topic, [create(1), *(create(number, starts="soon") for number in range(2, 252))])
    stream = {"trigger": "available-now", "dead_letters": dead}
    with job_of(stays.url, (topic, "stays"), max_dead_letters=249, **stream) as job:
        assert job.end() == 1
    assert "more than 249 bad records" in job.said and "250 times: starts: " in job.said
    assert ids(stays) == []
    with job_of(stays.url, (topic, "stays"), max_dead_letters=250, **stream) as job:
        assert job.end() == 0
    assert ids(stays) == [1]
    assert len(topics.read(dead, 250)) == 250


def test_a_new_checkpoint_is_a_new_source(stays: ServerProcess, topics: Topics, topic: str, job_of: Jobs) -> None:
    topics.put(topic, [create(1)])
    there = (stays.url, (topic, "stays"))
    with job_of(*there, folder="one", name=topic, trigger="available-now") as job:
        assert job.end() == 0
    topics.put(topic, [create(2)])
    with job_of(*there, folder="two", name=topic, trigger="available-now") as job:
        assert job.end() == 1
    assert "another checkpoint" in job.said and "reset = true" in job.said
    assert ids(stays) == [1]
    with job_of(*there, folder="two", name=topic, trigger="available-now", reset=True) as job:
        assert job.end() == 0
    assert ids(stays) == [1, 2]


def test_the_service_goes_and_comes_back(mortal_stays: ServerProcess, topics: Topics, topic: str, job_of: Jobs) -> None:
    mortal_stays.kill()
    topics.put(topic, [create(1)])
    with job_of(mortal_stays.url, (topic, "stays")) as job:
        job.wait_for("is not reachable")
        mortal_stays.start()
        job.wait_for_records(1)
        mortal_stays.kill()
        topics.put(topic, [create(2)])
        while job.said.count("is not reachable") < 3:
            job.wait_for("is not reachable")
        mortal_stays.start()
        job.wait_for_records(2)
        assert ids(mortal_stays) == [1, 2]
        mortal_stays.kill()
        topics.put(topic, [create(3)])
        waits = job.said.count("is not reachable")
        while job.said.count("is not reachable") == waits:
            job.wait_for("is not reachable")
        assert job.stop() == 0  # in the middle of waiting: what it holds is read again
    mortal_stays.start()
    with job:
        job.wait_for_records(3)
        assert job.stop(signal.SIGINT) == 0
    assert ids(mortal_stays) == [1, 2, 3]


def test_the_broker_goes_and_comes_back(stays: ServerProcess, shared_spark: SharedSpark, tmp_path: Path) -> None:
    """For a moment, for longer than Spark bears (made short here), under a stop, and at the start."""
    impatient = {"request.timeout.ms": 1000, "default.api.timeout.ms": 1000}
    with Broker() as broker:
        topics = Topics(broker)
        topics.make("stays")
        topics.put("stays", [create(1)])
        with StreamJob(tmp_path, stays.url, broker.address, [("stays", "stays")], java=impatient, spark=shared_spark) as job:
            job.wait_for_records(1)
            broker.kill()
            broker.start()
            topics.put("stays", [create(2)])
            job.wait_for_records(2)
            broker.stop()
            job.wait_for("Kafka does not answer")
            job.wait_for("Kafka is unavailable")
            broker.start()
            topics.put("stays", [create(3)])
            job.wait_for_records(3)
            broker.stop()
            assert job.stop() == 0
        with job:
            job.wait_for(f"Kafka at {broker.address} does not answer")
            broker.start()
            topics.put("stays", [create(4)])
            job.wait_for_records(4)
    assert ids(stays) == [1, 2, 3, 4]


def test_a_topic_made_anew(stays: ServerProcess, topics: Topics, topic: str, job_of: Jobs) -> None:
    topics.put(topic, [create(number) for number in range(5)])
    with job_of(stays.url, (topic, "stays"), trigger="available-now") as job:
        assert job.end() == 0
    topics.remove(topic)
    with job:
        assert job.end() == 1
    assert f"has no topic {topic}" in job.said
    topics.make(topic)
    topics.put(topic, [create(9)])
    with job:
        assert job.end() == 1
    assert f"the topic {topic} was deleted and recreated" in job.said and "new checkpoint" in job.said


def test_a_topic_removed_under_way(stays: ServerProcess, topics: Topics, topic: str, job_of: Jobs) -> None:
    topics.put(topic, [create(1)])
    with job_of(stays.url, (topic, "stays")) as job:
        job.wait_for_records(1)
        topics.remove(topic)
        assert job.end() == 1
    assert re.search("topic.* was deleted", job.said.splitlines()[-1])


def test_a_relation_that_is_not_there(shared_server: ServerProcess, topic: str, job_of: Jobs) -> None:
    with job_of(shared_server.url, (topic, "nobody")) as job:
        assert job.end() == 1
    assert "no relation nobody" in job.said


def test_spark_killed_under_the_job(mortal_stays: ServerProcess, broker: Broker, topics: Topics, topic: str, tmp_path: Path) -> None:
    """While it is idle, and while a batch waits for the service."""
    topics.put(topic, [create(1)])
    with StreamJob(tmp_path, mortal_stays.url, broker.address, [(topic, "stays")]) as job:
        job.wait_for_records(1)
        kill_jvm(job)
        assert job.end() == 1
        assert "Spark stopped unexpectedly" in job.said
    with job:
        topics.put(topic, [create(2)])
        job.wait_for_records(2)
        mortal_stays.kill()
        topics.put(topic, [create(3)])
        job.wait_for("is not reachable")
        kill_jvm(job)
        assert job.end() == 1


def kill_jvm(job: StreamJob) -> None:
    jvm = job.jvm()
    assert jvm is not None
    jvm.kill()


def test_spark_ends_with_the_job(stays: ServerProcess, broker: Broker, topics: Topics, topic: str, tmp_path: Path) -> None:
    topics.put(topic, [create(1)])
    with StreamJob(tmp_path, stays.url, broker.address, [(topic, "stays")]) as job:
        job.wait_for_records(1)
        assert exposed(tmp_path / "checkpoint") == []
        jvm = job.jvm()
        assert jvm is not None
        job.process.kill()
    deleted, alive = psutil.wait_procs([jvm], timeout=LIMIT)
    assert deleted and not alive


def test_a_mistake_in_the_file(tmp_path: Path) -> None:
    with StreamJob(tmp_path, "http://127.0.0.1:1", "127.0.0.1:1", [("t", "r")], trigger="soon") as job:
        assert job.end() == 2
    assert "stream.trigger" in job.said and len(job.said.splitlines()) == 1
