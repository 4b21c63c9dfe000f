"""`livejoin stream --check FILE`: checks everything that the job of the file needs, and changes nothing.

Each check prints a line on standard output: `ok`, `bad`, or `--` if another error prevents the check. Unavailable
systems are not waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaException

import livejoin
from livejoin.wire.batch import UPSERT
from livejoin.wire.schema import RelationDefinition
from streaming.checking.samples import Ends, ends_of, last_records
from streaming.config import Config, OutSection, Stream, Topic, read_config
from streaming.connection import definition_in, describe, knows_source, stranger
from streaming.errors import StreamError
from streaming.failures import AFRESH
from streaming.jars import cache_folder, lacking
from streaming.java import find_java
from streaming.kafka_client import Admin, FoundTopic, KafkaUnavailable, admin_of, find_topics, settings_of_topic
from streaming.pipeline.checkpoint import Checkpoint, UnreadableCheckpoint, is_writable, local_folder, read_checkpoint
from streaming.pipeline.checkpoint_files import LocalFiles
from streaming.pipeline.decode import DecodedTopic, KeyPlaces, decode_topic, decoder_for, in_order
from streaming.pipeline.identity import Identity, compare, read_identity

_SECONDS = 5.0  # for an answer of the broker or of the service


class Report:
    """The lines, written as they are found."""

    def __init__(self) -> None:
        self.bad_count = 0

    def ok(self, subject: str, text: str) -> None:
        self._line("ok", subject, text)

    def bad(self, subject: str, text: str) -> None:
        self.bad_count += 1
        self._line("bad", subject, text)

    def unseen(self, subject: str, text: str) -> None:
        self._line("--", subject, text)

    def _line(self, word: str, subject: str, text: str) -> None:
        print(f"{word:<3}  {subject:<10}  {' '.join(text.split())}", flush=True)


def check(path: Path) -> int:
    """Checks everything that the job of this file needs. Status 0 if all is well, 1 if something is bad. Raises BadConfig."""
    config = read_config(path)
    report = Report()
    report.ok("file", f"{path}: {_count(len(config.topics), 'topic')} in, {_count(len(config.outs), 'view')} out")
    seen = _check_kafka(report, config)
    with livejoin.connect(config.service.url, ca=config.service.ca, patience=0, timeout=_SECONDS) as service:
        if alive := _check_service(report, service):
            relations = dict.fromkeys(topic.relation for topic in config.topics)
            definitions = {name: _check_relation(report, service, name) for name in relations}
            for out in config.outs:
                _check_view(report, service, out)
        else:
            definitions = {}
        for topic in config.topics:
            _check_records(report, config, topic, seen.get(topic.name), definitions.get(topic.relation))
        if config.stream and config.topics:
            checkpoint, begun = _check_checkpoint(report, config, config.stream, seen, definitions)
            if alive:
                _check_source(report, config.stream, checkpoint, begun is not None and begun.posted, service)
            _check_spark(report)
    return 1 if report.bad_count else 0


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


# Kafka


class TopicState(NamedTuple):
    """An existing topic: its id, and the offsets of its partitions."""

    id: str
    ends: Ends


def _check_kafka(report: Report, config: Config) -> dict[str, TopicState]:
    """Checks the broker and all topics; returns the existing topics."""
    names = [topic.name for topic in config.topics] + [out.topic for out in config.outs]
    if config.stream and config.stream.dead_letters:
        names.append(config.stream.dead_letters)
    tokens = [out.token_topic for out in config.outs]
    brokers = config.kafka.brokers
    try:
        admin = admin_of(config.kafka)
        found = find_topics(admin, [*names, *tokens], _SECONDS)
    except (KafkaUnavailable, StreamError) as error:
        text = str(error) if isinstance(error, StreamError) else f"does not answer ({error})"
        report.bad("broker", f"{brokers}: {text}: check the address and the settings in [kafka]")
        report.unseen("topic", f"{', '.join(names)}: not checked without the broker")
        return {}
    report.ok("broker", f"{brokers}: reachable")
    seen = {name: topic for name in names if (topic := _see_topic(report, admin, name, found.get(name)))}
    for out, tokens_name in zip(config.outs, tokens, strict=True):
        if out.topic in seen:
            _check_out_topic(report, admin, out, seen[out.topic].ends)
            _check_token_topic(report, admin, tokens_name, tokens_name in found)
    return seen


def _see_topic(report: Report, admin: Admin, name: str, found: FoundTopic | None) -> TopicState | None:
    if found is None:
        report.bad("topic", f"{name}: does not exist: create it")
        return None
    try:
        ends = ends_of(admin, name, range(found.partitions), _SECONDS)
    except (KafkaUnavailable, StreamError) as error:
        report.bad("topic", f"{name}: the offsets cannot be read: {error}")
        return None
    offsets = sum(end - first for first, end in ends.values())
    report.ok("topic", f"{name}: {_count(len(ends), 'partition')}, {_count(offsets, 'offset')}")
    return TopicState(found.id, ends)


def _check_out_topic(report: Report, admin: Admin, out: OutSection, ends: Ends) -> None:
    """The job reads its own topic back when its token has expired, so every row's last record must still be there."""
    if (settings := _settings_of(report, admin, out.topic)) is None:
        return
    policy = settings["cleanup.policy"]
    limits = [f"{name} = {settings[name]}" for name in ("retention.ms", "retention.bytes") if settings[name] != "-1"]
    why = "so the job cannot read it back when its token has expired"
    remedy = f"{why}: set cleanup.policy to compact, or retention.ms and retention.bytes to -1"
    if "delete" in policy and limits:
        report.bad("out", f"{out.topic}: deletes old records ({', '.join(limits)}), {remedy}")
    elif policy != "compact" and any(first > 0 for first, _ in ends.values()):
        report.bad("out", f"{out.topic}: no longer has its first records, {remedy}, and recreate it")
    else:
        report.ok("out", f"{out.topic}: keeps {'the last record of each row' if 'compact' in policy else 'all records'}")


def _check_token_topic(report: Report, admin: Admin, name: str, is_there: bool) -> None:
    if not is_there:
        report.ok("out", f"{name}: will be created by the job for its token")
        return
    if (settings := _settings_of(report, admin, name)) is None:
        return
    if (policy := settings["cleanup.policy"]) == "compact":
        report.ok("out", f"{name}: compacted; holds the job's token")
    else:
        report.bad("out", f"{name}: cleanup.policy is {policy}, so the job's token may be deleted: set it to compact")


def _settings_of(report: Report, admin: Admin, topic: str) -> dict[str, str] | None:
    """None, and reported, if they cannot be read."""
    try:
        return settings_of_topic(admin, topic, _SECONDS)
    except KafkaException as error:
        report.unseen("out", f"{topic}: the settings cannot be read: {error.args[0].str()}")
        return None


# The service


def _check_service(report: Report, service: livejoin.Client) -> bool:
    """Checks the service; returns whether it can be queried."""
    try:
        service.readiness()
    except livejoin.Problem as problem:
        report.bad("service", f"{service.url}: {describe(problem)}")
        return True
    except livejoin.LivejoinError as error:
        deleted = f"{service.url}: not reachable ({error.reason})" if isinstance(error, livejoin.Unreachable) else stranger(service.url)
        report.bad("service", deleted)
        report.unseen("relation", "relations and views: not checked without the service")
        return False
    report.ok("service", f"{service.url}: ready")
    return True


def _check_relation(report: Report, service: livejoin.Client, name: str) -> RelationDefinition | None:
    data = _ask(report, "relation", name, service.relation(name).get)
    if data is None:
        return None
    definition = definition_in(data)
    columns = ", ".join(f"{column.name} {column.type}{' or null' if column.nullable else ''}" for column in definition.columns)
    report.ok("relation", f"{name}: {columns}; key {', '.join(definition.key)}; {_count(data['rows'], 'row')}")
    return definition


def _check_view(report: Report, service: livejoin.Client, out: OutSection) -> None:
    data = _ask(report, "view", out.view, service.view(out.view).get)
    if data is None:
        return
    if data["state"] == "failed":
        report.bad("view", f"{out.view}: failed: {data.get('problem')}")
    elif data["definition"].get("changes") is False:
        report.bad("view", f'{out.view}: defined with "changes": false, so it cannot be followed: register a view without this option')
    else:
        report.ok("view", f"{out.view}: {data['state']}, published to {out.topic}")


def _ask(report: Report, noun: str, name: str, get: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """The service's object of this name; None, and reported, if it is not available."""
    try:
        return get()
    except livejoin.NotFound:
        report.bad(noun, f"{name}: does not exist in the service: register it (PUT /v1/{noun}s/{name})")
    except livejoin.LivejoinError as error:
        report.bad(noun, f"{name}: {_message(error)}")
    return None


def _message(error: livejoin.LivejoinError) -> str:
    if isinstance(error, livejoin.Problem):
        return describe(error)
    return f"the service did not answer ({error.reason})" if isinstance(error, livejoin.Unreachable) else str(error)


# Records


def _check_records(report: Report, config: Config, topic: Topic, seen: TopicState | None, definition: RelationDefinition | None) -> None:
    """The last records of a topic, through the job's own decoder."""
    if seen is None or definition is None:
        report.unseen("records", f"{topic.name}: not checked without {'the topic' if seen is None else f'the relation {topic.relation}'}")
        return
    try:
        records = last_records(config.kafka, topic.name, seen.ends)
    except (KafkaUnavailable, StreamError) as error:
        report.bad("records", f"{topic.name}: cannot be read: {error}")
        return
    decoded = decode_topic(decoder_for(topic, definition), topic.name, in_order(records), records.num_rows)
    good = sum(len(changes.ops) for changes in decoded.changes)
    validated = f"{good:,} good, {decoded.skipped:,} skipped, {len(decoded.bad):,} bad"
    text = f"{topic.name}: of the last {records.num_rows:,}: {validated}"
    if records.num_rows == 0 and any(first < end for first, end in seen.ends.values()):
        report.unseen("records", f"{topic.name}: no records received in time")
    elif decoded.bad:
        first = decoded.bad[0]
        report.bad("records", f"{text}; the first: partition {first.partition}, offset {first.offset}: {first.error}")
    elif KeyPlaces().is_disordered(records):
        report.bad("records", f"{text}; a key is in more than one partition, so its changes have no defined order")
    else:
        if decoded.keyless and len(seen.ends) > 1:
            text += "; records without keys in several partitions, so the changes of a row have no defined order"
        report.ok("records", text + _never_set(decoded, definition))


def _never_set(decoded: DecodedTopic, definition: RelationDefinition) -> str:
    """Names the columns that no record has: possibly correct, possibly named differently in the records."""
    rows = [changes.rows.arrow.filter(pa.array(changes.ops == UPSERT)) for changes in decoded.changes]
    rows = [part for part in rows if part.num_rows]
    empty = [column.name for column in definition.columns if all(part[column.name].null_count == part.num_rows for part in rows)]
    return f"; null in all records: {', '.join(empty)}" if rows and empty else ""


# Spark


def _check_checkpoint(
    report: Report, config: Config, stream: Stream, seen: Mapping[str, TopicState], definitions: Mapping[str, RelationDefinition | None]
) -> tuple[Checkpoint | None, Identity | None]:
    """Checks the folder, its owner, and whether Kafka still has the next records; returns its contents, if readable."""
    folder = local_folder(stream.checkpoint)
    if folder is None:
        report.unseen("checkpoint", f"{stream.checkpoint}: can be checked only by Spark")
        return None, None
    found, begun = None, None
    try:
        found, begun = read_checkpoint(folder), read_identity(LocalFiles(folder))
        if begun is not None:
            # A missing topic or relation has been reported already, so it counts as unchanged here.
            ids = {topic.name: seen[topic.name].id if topic.name in seen else begun.topics.get(topic.name, "") for topic in config.topics}
            relations = {name: definition.to_json() for name, definition in definitions.items() if definition}
            compare(begun, Identity(stream.name, ids, relations), folder)
    except UnreadableCheckpoint as error:
        report.bad("checkpoint", f"{folder}: {error}: use another folder")
    except OSError as error:
        report.bad("checkpoint", f"{folder}: cannot be read ({error.strerror})")
    except StreamError as error:
        report.bad("checkpoint", str(error))
    else:
        _check_beginning(report, stream, folder, found, seen)
    return found, begun


def _check_beginning(report: Report, stream: Stream, folder: Path, found: Checkpoint | None, seen: Mapping[str, TopicState]) -> None:
    if not is_writable(folder):
        report.bad("checkpoint", f"{folder}: not writable for this user")
    elif found is None or found.batch is None:
        report.ok("checkpoint", f"{folder}: no batch completed yet; starts with the {stream.start} records")
    elif lost := _lost(found, seen):
        report.bad("checkpoint", f"{folder}: {'; '.join(lost)}: {AFRESH}")
    else:
        report.ok("checkpoint", f"{folder}: continues after batch {found.batch}")


def _lost(checkpoint: Checkpoint, seen: Mapping[str, TopicState]) -> list[str]:
    """The records that the checkpoint would read next but that no longer exist."""
    lost = []
    for topic, offsets in checkpoint.offsets.items():
        for number, offset in offsets.items():
            first, end = seen[topic].ends.get(number, (0, 0)) if topic in seen else (offset, offset)
            if end < offset:
                lost.append(f"topic {topic}, partition {number} was recreated (it ends at {end}, the next offset is {offset})")
            elif first > offset:
                lost.append(f"topic {topic}, partition {number} lost unread records (it begins at {first}, the next offset is {offset})")
    return lost


def _check_source(report: Report, stream: Stream, checkpoint: Checkpoint | None, posted: bool, service: livejoin.Client) -> None:
    """Checks the owner of the stream's name. posted: this checkpoint has used it."""
    batch = checkpoint.batch if checkpoint else None
    theirs = "the service knows it from another checkpoint"
    try:
        known = knows_source(service, stream.name, checkpoint.run if checkpoint else None)
    except livejoin.SourceReset:
        if posted:
            remedy = "start with a new one and reset = true, or use another name"
            report.bad("source", f"{stream.name}: another checkpoint has taken it over: {remedy}")
        elif not stream.reset:
            report.bad("source", f"{stream.name}: {theirs}: set reset = true in [stream] if this one is to take over")
        else:
            report.ok("source", f"{stream.name}: {theirs}; reset = true lets this one take over")
    except livejoin.LivejoinError as error:
        report.bad("source", f"{stream.name}: {_message(error)}")
    else:
        if known:
            report.ok("source", f"{stream.name}: the service knows it from this checkpoint")
        elif batch is not None:
            done = f"the checkpoint has completed {_count(batch + 1, 'batch')}, but the service knows none of them"
            report.bad("source", f"{stream.name}: {done}: check that the service and its data folder belong to this checkpoint")
        else:
            report.ok("source", f"{stream.name}: new to the service")


def _check_spark(report: Report) -> None:
    try:
        report.ok("java", str(find_java()))
    except StreamError as error:
        report.bad("java", str(error))
    if missing := lacking("spark"):
        names = ", ".join(jar.file for jar in missing)
        report.bad("jars", f"{cache_folder()} lacks {names}: download them with `python -m streaming.jars`")
    else:
        report.ok("jars", str(cache_folder()))
