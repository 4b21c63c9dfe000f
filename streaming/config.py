"""The file of `livejoin stream`, read and checked completely before anything is started.

Each key is declared once, as a field with its type, range, default and purpose; the table in deploy/stream.md is made from that.
A relative checkpoint folder is resolved from the current directory.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from livejoin.problems import BadFile
from livejoin.trust import trusted
from livejoin.wire.schema import NAME
from livejoin.wire.values.local_times import is_zone
from livejoin.wire.wording import wording

TopicName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]
Name = Annotated[str, StringConstraints(pattern=f"^{NAME.pattern}$")]
_UNITS = r"(millisecond|second|minute|hour|day)s?"
_LONG = 2**63 - 1  # the largest number of Java
# Exactly-once processing depends on these; livejoin sets them for both clients.
_OURS = {
    "bootstrap.servers", "enable.auto.commit", "enable.auto.offset.store", "auto.offset.reset", "isolation.level", "group.id",
    "key.deserializer", "value.deserializer", "key.serializer", "value.serializer", "interceptor.classes", "enable.idempotence", "acks",
    "transactional.id", "partitioner",
}  # fmt: skip


class BadConfig(Exception):
    """A mistake in the file: one sentence that names the key."""


def _accepts(words: str) -> dict[str, Any]:
    """For the table, where type and bounds do not say enough."""
    return {"accepts": words}


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Service(_Section):
    """The URL of the service, without a trailing slash."""

    url: str = Field(
        description="the URL of the service; its access token, if any, comes from `LIVEJOIN_TOKEN`",
        json_schema_extra=_accepts("an address such as `http://127.0.0.1:8080`"),
    )

    ca: str | None = Field(
        None,
        min_length=1,
        description="the CA that signs the certificate of a service at an `https` URL; without it, `LIVEJOIN_CA`, else those that web "
        "browsers trust",
        json_schema_extra=_accepts("the path of a PEM file (a relative path is resolved from the working directory)"),
    )

    @field_validator("ca")
    @classmethod
    def _is_file(cls, ca: str | None) -> str | None:
        try:
            trusted(ca)
        except BadFile as error:
            raise _mistake(str(error)) from None
        return ca

    @field_validator("url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        if not re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", url) or not _has_good_port(url):
            raise _mistake('is not a URL such as "http://127.0.0.1:8080"')
        return url.rstrip("/")


def _has_good_port(url: str) -> bool:
    try:
        urlsplit(url).port  # noqa: B018
    except ValueError:
        return False
    return True


class Kafka(_Section):
    """The brokers and the settings for the clients: `java` for Spark, `librdkafka` for confluent-kafka."""

    brokers: str = Field(
        min_length=1,
        description="the bootstrap servers; with executors on other machines, addresses that are valid there too",
        json_schema_extra=_accepts("`host:port`, several separated by commas"),
    )
    java: dict[str, str] = Field(
        description="keys only for the Java client, with which Spark reads the topics", json_schema_extra=_accepts("a table of its keys")
    )
    librdkafka: dict[str, str] = Field(
        description="keys only for librdkafka, which dead letters, published topics and `--check` use",
        json_schema_extra=_accepts("a table of its keys"),
    )

    @model_validator(mode="before")
    @classmethod
    def _spread(cls, data: Any) -> Any:
        """Keys of [kafka] itself go to both clients; those of a client's own table take precedence."""
        if not isinstance(data, dict):
            return data
        common = {key: value for key, value in data.items() if key not in ("brokers", "java", "librdkafka")}
        spread = {"brokers": data["brokers"]} if "brokers" in data else {}
        for client in ("java", "librdkafka"):
            own = data.get(client, {})
            if not isinstance(own, dict):
                raise _mistake(f"{client} is not a table")
            spread[client] = {key: _client_value(key, value) for key, value in {**common, **own}.items()}
        return spread


def _client_value(key: str, value: Any) -> str:
    """A client's setting as text, as both clients expect it."""
    if key in _OURS:
        other = ': write "brokers"' if key == "bootstrap.servers" else ""
        raise _mistake(f'"{key}" is set by livejoin and cannot be changed{other}')
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        raise _mistake(f'"{key}" is a table: a key with dots needs quotes, as in "security.protocol" = "SSL"')
    if not isinstance(value, str | int | float):
        raise _mistake(f'"{key}" must be a string or a number')
    return str(value)


class Stream(_Section):
    """How the topics are read."""

    name: str = Field(min_length=1, max_length=200, description="the name of the source in the service, unique for each job")
    checkpoint: str = Field(
        min_length=1,
        description="Spark's checkpoint. Keep it as long as the job",
        json_schema_extra=_accepts(
            "a folder on this machine (a relative path is resolved from the working directory), or a URI that Spark supports (`hdfs://…`)"
        ),
    )
    trigger: str = Field(
        "1 second",
        description='how often a batch starts; `"0 seconds"`: as soon as the previous one is done; `"available-now"`: process what exists '
        "now, publish the resulting changes of the views, then end with status 0",
        json_schema_extra=_accepts('a time such as `"200 milliseconds"`, or `"available-now"`'),
    )
    start: Literal["earliest", "latest"] = Field("earliest", description="where a new checkpoint starts")
    max_offsets: int = Field(100_000, ge=1, le=_LONG, description="maximum number of offsets in a batch, over all topics")
    dead_letters: TopicName | None = Field(
        None,
        description="the topic for bad records; without it, a bad record stops the job",
        json_schema_extra=_accepts("the name of a topic"),
    )
    max_dead_letters: int = Field(
        1000,
        ge=0,
        le=_LONG,
        description="more bad records in one batch stop the job before anything is applied, because the schema has probably changed",
    )
    reset: bool = Field(False, description="`true`: a new checkpoint may take over the name, once")

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if name.startswith("livejoin."):
            raise _mistake("names that begin with 'livejoin.' are reserved for the service: choose another")
        return name

    @field_validator("trigger")
    @classmethod
    def _is_trigger(cls, trigger: str) -> str:
        if trigger != "available-now" and not re.fullmatch(rf"[0-9]{{1,9}} {_UNITS}", trigger):
            raise _mistake('is neither "available-now" nor a time such as "1 second" or "200 milliseconds"')
        return trigger


class Topic(_Section):
    """A topic and the relation that it feeds."""

    name: TopicName = Field(description="the topic", json_schema_extra=_accepts("the name of a topic"))
    relation: Name = Field(
        description="the relation it is loaded into; several topics may feed one relation",
        json_schema_extra=_accepts("the name of a relation"),
    )
    format: Literal["debezium", "json"] = Field(
        description="the form of a record's value; `json`: a row with an optional `_op` (`upsert`, `delete`, `truncate`; default `upsert`; "
        "`insert` is treated as `upsert`)"
    )
    strict_columns: bool = Field(
        False,
        description="with `debezium`, `true`: a row that lacks a column which earlier rows of its partition had, as after it was renamed, "
        "is a bad record; `false`: the column becomes null, with a warning",
    )
    zone: str | None = Field(
        None,
        description="where times without an offset are local (a name such as `Europe/Berlin`); by default the zone of the relation's "
        "column, else such texts are bad records, and Debezium's types without a zone are in UTC",
        json_schema_extra=_accepts("the name of a time zone"),
    )

    @field_validator("strict_columns")
    @classmethod
    def _check_columns(cls, strict: bool, info: ValidationInfo) -> bool:
        if strict and info.data.get("format") == "json":
            raise _mistake('is for the format "debezium", whose rows have every column of their table: remove it')
        return strict

    @field_validator("zone")
    @classmethod
    def _check_zone(cls, zone: str | None) -> str | None:
        if zone is not None and not is_zone(zone):
            raise _mistake(f"there is no time zone {zone!r}: use a name of the IANA database, such as Europe/Berlin")
        return zone


class OutSection(_Section):
    """A view whose changes go to a topic."""

    view: Name = Field(description="the view", json_schema_extra=_accepts("the name of a view"))
    topic: TopicName = Field(description="a separate topic for the view's changes", json_schema_extra=_accepts("the name of a topic"))
    snapshot: bool = Field(
        True,
        description="`true`: publish the existing rows first; `false`: an empty topic starts with the changes from now on (see "
        "*When the token has expired*)",
    )
    tombstones: bool = Field(
        False, description="`true`: after each `d`, also publish a record with the key and a null value, so that compaction removes the row"
    )

    @property
    def token_topic(self) -> str:
        """The small topic for the out's token."""
        return f"{self.topic}.livejoin"


class Config(_Section):
    """The whole file. Of `topics` and `outs` at least one is not empty; with topics there is a `stream`."""

    service: Service
    kafka: Kafka
    stream: Stream | None = None
    topics: tuple[Topic, ...] = Field((), alias="topic")
    outs: tuple[OutSection, ...] = Field((), alias="out")

    @field_validator("topics", "outs", mode="before")
    @classmethod
    def _as_tuple(cls, tables: Any) -> Any:
        if isinstance(tables, dict):
            raise _mistake("must be an array of tables: use double brackets, as in [[topic]]")
        return tuple(tables) if isinstance(tables, list) else tables

    @model_validator(mode="after")
    def _fits_together(self) -> Config:
        if not self.topics and not self.outs:
            raise _mistake("topic: the file has neither [[topic]] nor [[out]], so there is nothing to do")
        if self.topics and self.stream is None:
            raise _mistake("stream: a file with [[topic]] requires [stream] with name and checkpoint")
        names = [topic.name for topic in self.topics]
        if twice := _first_twice(names):
            raise _mistake(f'topic.name: "{twice}" appears twice; a topic can feed only one relation')
        outs = [out.topic for out in self.outs]
        if twice := _first_twice(outs):
            raise _mistake(f'out.topic: "{twice}" appears twice; a topic can take the changes of only one view')
        others = {*names, *outs, *([self.stream.dead_letters] if self.stream else [])}
        if taken := next((out.token_topic for out in self.outs if out.token_topic in others), None):
            raise _mistake(f'out.topic: "{taken}" is reserved for the token of an [[out]]: rename the other topic')
        if fed_back := next((name for name in outs if name in names), None):
            raise _mistake(f'out.topic: "{fed_back}" is a [[topic]] that is read')
        if self.stream and self.stream.dead_letters in outs:
            raise _mistake(f'stream.dead_letters: "{self.stream.dead_letters}" is the topic of an [[out]]')
        if self.stream and self.stream.dead_letters in names:
            raise _mistake(f'stream.dead_letters: "{self.stream.dead_letters}" is a [[topic]] that is read')
        return self


def _mistake(sentence: str) -> PydanticCustomError:
    return PydanticCustomError("mistake", "{sentence}", {"sentence": sentence})


def _first_twice(names: list[str]) -> str | None:
    return next((name for position, name in enumerate(names) if name in names[:position]), None)


def read_config(path: Path) -> Config:
    """The checked file; raises BadConfig."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BadConfig(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # of the parser too: numbers of thousands of digits, deeply nested arrays
        raise BadConfig(f"{path} is not TOML: {error}") from error
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise BadConfig(f"{path}: {'; '.join(map(_sentence, error.errors()))}") from error


def _sentence(error: ErrorDetails) -> str:
    """An error as `key: what is wrong`, with the key as in the file: `stream.trigger`, `topic[2].format` (counted from 1)."""
    key = ""
    for part in error["loc"]:
        key += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if key else part
    match error["type"]:
        case "extra_forbidden":
            sentence = "is not a known key"
        case "string_pattern_mismatch":
            sentence = f"{error['input']!r} is not a valid name"
        case _:
            sentence = wording(error)
    return f"{key}: {sentence}" if key else sentence


def reference() -> str:
    """The table of all keys, in Markdown."""
    rows = ["| key | default | accepts | |", "|---|---|---|---|"]
    sections: dict[str, type[_Section]] = {"service": Service, "kafka": Kafka, "stream": Stream, "topic": Topic, "out": OutSection}
    for section, model in sections.items():
        for key, schema in model.model_json_schema()["properties"].items():
            default = "" if schema.get("default") is None else f"`{json.dumps(schema['default'])}`"
            rows.append(f"| `{section}.{key}` | {default} | {_accepted(schema)} | {schema['description']} |")
    return "\n".join(rows)


def _accepted(schema: Mapping[str, Any]) -> str:
    if "accepts" in schema:
        return str(schema["accepts"])
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(choice)}`" for choice in schema["enum"])
    if "minimum" in schema:
        return f"an integer, at least {schema['minimum']}"
    return f"a text of up to {schema['maxLength']} characters" if "maxLength" in schema else "`true` or `false`"
