"""What Spark's and Kafka's failures mean to the job: wait and go on, or end with a sentence that says what to do."""

from __future__ import annotations

import re

AFRESH = 'start on a new checkpoint with reset = true in [stream], and with start = "earliest" to read again what is there'
# Words of their exceptions: they come as text, through Java, Spark and Python.
_AWAY = ("TimeoutException", "DisconnectException", "BrokerNotAvailableException", "NetworkException", "CoordinatorNotAvailableException")
_GONE = "UnknownTopicOrPartitionException"
_LOST = ("offset was changed from", "KafkaIllegalStateException", "OffsetOutOfRangeException", "Some data may have been lost")
_TOO_LARGE = ("spark.driver.maxResultSize", "OutOfMemoryError")
_TWO_JOBS = ("CONCURRENT_STREAM_LOG_UPDATE", "Multiple streaming jobs detected", "Multiple streaming queries are concurrently using")
# The second: while it read the checkpoint. The third: offsets of another source.
_DAMAGED = ("Failed to read log file", "Current State: INITIALIZING", 'Expected e.g. {"topicA"')


def made_anew(topic: str) -> str:
    """The sentence for a topic that has another id than before."""
    return f"the topic {topic} was deleted and made anew since this checkpoint began: {AFRESH}"


def whole_text(failure: BaseException) -> str:
    """What a failure and its causes say, stack traces of Spark's included."""
    parts = []
    cause: BaseException | None = failure
    while cause is not None:
        parts.append(str(cause))
        cause = getattr(cause, "cause", None) or getattr(cause, "_cause", None) or cause.__cause__
    return "\n".join(parts)


def is_away(text: str) -> bool:
    return _GONE not in text and not any(words in text for words in _LOST) and any(words in text for words in _AWAY)


def explain(text: str, checkpoint: str) -> str:
    """One sentence, with what to do, for a query that ended by itself."""
    if any(words in text for words in _TOO_LARGE):
        # Its offsets are planned in the checkpoint, so max_offsets alone does not make it smaller.
        return (
            f"a batch was too large for Spark's driver: lower max_offsets in [stream] and delete the newest file in {checkpoint}/offsets, "
            "in which this batch is planned with its size, or give the driver more memory by spark-submit; then start again"
        )
    if any(words in text for words in _TWO_JOBS):
        return f"another job runs on the checkpoint {checkpoint}: end it, or give this one a checkpoint and a name of its own"
    if _GONE in text:
        return f"a topic of this job was deleted; create it again, then {AFRESH}"
    if any(words in text for words in _LOST):
        reason = re.search(r"Reason: (.*)", text)
        why = reason[1].strip() if reason else "a topic made anew, or its retention too short"
        return f"Kafka no longer has records that this checkpoint was to read ({why}): {AFRESH}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    told = (causes or lines or ["without a word"])[-1 if causes else 0]
    if any(words in text for words in _DAMAGED):
        return f"the checkpoint {checkpoint} is damaged ({told}): {AFRESH}"
    return f"Spark's query failed: {told}"
