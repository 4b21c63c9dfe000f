"""What Spark's failures mean, by texts as they were caught: Spark 4.2, Kafka's connector 4.2."""

from __future__ import annotations

import pytest

from streaming.failures import AFRESH, explain, is_away

QUERY = "=== Streaming Query ===\nIdentifier: [id = 59a8b43d, runId = 67487429]\nCurrent State: ACTIVE\nThread State: RUNNABLE\n"
NODE = "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment. Call: listNodes"
AWAY = [
    f"{NODE}\n{QUERY}\njava.util.concurrent.ExecutionException: {NODE}\n{NODE}",
    f"{QUERY}Caused by: java.util.concurrent.TimeoutException: Cannot fetch record for offset 3 in 120000 milliseconds",
    f"{QUERY}Caused by: org.apache.kafka.common.errors.DisconnectException",
]
NOT_KAFKA = [
    f"{QUERY}Caused by: java.net.SocketTimeoutException: connect to namenode",
    f"{QUERY}Caused by: org.apache.spark.rpc.RpcTimeoutException: Futures timed out after [120 seconds]",
    f"{QUERY}Caused by: java.util.concurrent.TimeoutException: Futures timed out after [300 seconds]",
]


@pytest.mark.parametrize("text", AWAY)
def test_kafka_is_away(text: str) -> None:
    assert is_away(text)


@pytest.mark.parametrize("text", NOT_KAFKA)
def test_another_is_away(text: str) -> None:
    """A checkpoint's file system, an executor: not for us to wait for."""
    assert not is_away(text)
    assert explain(text, "c") == f"Spark's query failed: {text.splitlines()[-1]}"


LOST = "Some data may have been lost because they are not available in Kafka any more;"
RANGE, ADDED = "Could not read records in offset [2, 5) for topic partition stays-0", "Added partition stays-0 starts from 1 instead of 0."
IN_BATCH = ": org.apache.spark.SparkException: Exception thrown in awaitResult: "
STAGE = "Caused by: org.apache.spark.SparkException: Job aborted due to stage failure"
DAMAGED = "Failed to read log file file:/c/offsets/1. Incomplete log file"
SAID = {
    f"{IN_BATCH}\nCaused by: org.apache.spark.sql.kafka010.KafkaIllegalStateException: {LOST}\nReason: {RANGE}\n"
    "Caused by: org.apache.kafka.clients.consumer.OffsetOutOfRangeException: Fetch position FetchPosition{offset=2} is out of range": (
        f"Kafka no longer has the next records of this checkpoint ({RANGE}): {AFRESH}"
    ),
    f"{LOST}\nReason: {ADDED}\n{QUERY}": f"Kafka no longer has the next records of this checkpoint ({ADDED}): {AFRESH}",
    f"{NODE}\nCaused by: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this topic": (
        f"a topic of this job was deleted; create it again, then {AFRESH}"
    ),
    f"{IN_BATCH}\n{STAGE}: Total size of serialized results of 1 tasks (1572 KiB) is bigger than spark.driver.maxResultSize (1024 KiB)": (
        "a batch was too large for Spark's driver: lower max_offsets in [stream] and delete the newest file in c/offsets, "
        "which records the size of this batch, or give the driver more memory by spark-submit; then start again"
    ),
    "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 1.": (
        "the checkpoint c is in use by another job: stop it, or give this job its own checkpoint and name"
    ),
    f"{DAMAGED}\n{QUERY}": f"the checkpoint c is damaged ({DAMAGED}): {AFRESH}",
}


@pytest.mark.parametrize("text", SAID)
def test_what_ends_the_job(text: str) -> None:
    assert not is_away(text)
    assert explain(text, "c") == SAID[text]
