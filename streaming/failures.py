"""The meaning of Spark's and Kafka's failures for the job: wait and retry, or end with a sentence that says what to do."""

from __future__ import annotations

import re

AFRESH = 'start with a new checkpoint and reset = true in [stream], and with start = "earliest" to read all existing records again'
# Patterns in their exceptions, which arrive as text through Java, Spark and Python. Only Kafka's time-outs: a checkpoint's can occur too.
_AWAY = re.compile(
    r"org\.apache\.kafka\.common\.errors\.(Timeout|Disconnect|BrokerNotAvailable|Network|CoordinatorNotAvailable)Exception"
    "|Cannot fetch record for offset"  # the connector's own, in a TimeoutException of Java's
)
_DELETED = "UnknownTopicOrPartitionException"
_LOST = ("offset was changed from", "KafkaIllegalStateException", "OffsetOutOfRangeException", "Some data may have been lost")
_TOO_LARGE = ("spark.driver.maxResultSize", "OutOfMemoryError")
_TWO_JOBS = ("CONCURRENT_STREAM_LOG_UPDATE", "Multiple streaming jobs detected", "Multiple streaming queries are concurrently using")
# The second: while it read the checkpoint. The third: offsets of another source.
_DAMAGED = ("Failed to read log file", "Current State: INITIALIZING", 'Expected e.g. {"topicA"')


def made_anew(topic: str) -> str:
    """The message for a topic whose id has changed."""
    return f"the topic {topic} was deleted and recreated since this checkpoint was started: {AFRESH}"


def registered_anew(relation: str) -> str:
    """The message for a relation whose definition has changed."""
    return f"the relation {relation} was registered again with a different definition since this checkpoint was started: {AFRESH}"


def service_behind(stream: str, checkpoint: str, batch: int, applied: int | None) -> str:
    """The message for a service that lacks batches of this checkpoint, which is at `batch`; `applied`: the last one that it has."""
    unknown = "does not know this source, or the job's token may not use it"
    has = f"has applied only batch {applied} of it" if applied is not None else unknown
    lost = "was restored from an older backup, or repaired, and the records in between would be lost"
    if applied is None:
        remedy = AFRESH
    else:
        remedy = (
            f"delete the files with numbers above {applied} in {checkpoint}/offsets and {checkpoint}/commits, then start again, to read "
            f"these records again; if {checkpoint}/offsets/{applied} is no longer there, {AFRESH}"
        )
    return f'the checkpoint of the source "{stream}" is at batch {batch}, but the service {has}: it {lost}; {remedy}'


def in_use(checkpoint: str) -> str:
    """The message for a second job on a checkpoint."""
    return f"the checkpoint {checkpoint} is in use by another job: stop it, or give this job its own checkpoint and name"


def whole_text(failure: BaseException) -> str:
    """The text of a failure and its causes, including Spark's stack traces."""
    parts = []
    cause: BaseException | None = failure
    while cause is not None:
        parts.append(str(cause))
        cause = getattr(cause, "cause", None) or getattr(cause, "_cause", None) or cause.__cause__
    return "\n".join(parts)


def is_away(text: str) -> bool:
    """Whether the query ended because Kafka did not answer: another query may continue."""
    return _DELETED not in text and not any(words in text for words in _LOST) and _AWAY.search(text) is not None


def too_large(checkpoint: str, whose: str, remedy: str) -> str:
    """The message for a batch that is too large. Its offsets are recorded in the checkpoint, so max_offsets alone does not help."""
    return (
        f"a batch was too large for {whose}: lower max_offsets in [stream] and delete the newest file in {checkpoint}/offsets, "
        f"which records the size of this batch, or {remedy}; then start again"
    )


def explain(text: str, checkpoint: str) -> str:
    """One sentence, with what to do, for a query that ended unexpectedly."""
    if any(words in text for words in _TOO_LARGE):
        return too_large(checkpoint, "Spark's driver", "give the driver more memory by spark-submit")
    if any(words in text for words in _TWO_JOBS):
        return in_use(checkpoint)
    if _DELETED in text:
        return f"a topic of this job was deleted; create it again, then {AFRESH}"
    if any(words in text for words in _LOST):
        reason = re.search(r"Reason: (.*)", text)
        why = reason[1].strip() if reason else "a topic was recreated, or its retention is too short"
        return f"Kafka no longer has the next records of this checkpoint ({why}): {AFRESH}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    emitted = (causes or lines or ["no message"])[-1 if causes else 0]
    if any(words in text for words in _DAMAGED):
        return f"the checkpoint {checkpoint} is damaged ({emitted}): {AFRESH}"
    return f"Spark's query failed: {emitted}"
