"""The file of `livejoin stream`: defaults, and every mistake told by the name of its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.config import BadConfig, Config, OutSection, Stream, Topic, read_config

WHOLE = """
[service]
url = "http://127.0.0.1:8080/"
[kafka]
brokers = "127.0.0.1:9092"
"security.protocol" = "SSL"
"socket.keepalive.enable" = true
[kafka.java]
"max.poll.records" = 10
[kafka.librdkafka]
"security.protocol" = "PLAINTEXT"
[stream]
name = "pms"
checkpoint = "checkpoints/pms"
trigger = "0 seconds"
start = "latest"
max_offsets = 5
dead_letters = "pms.dead"
max_dead_letters = 0
reset = true
[[topic]]
name = "pms.public.bookings"
relation = "bookings"
format = "debezium"
[[topic]]
name = "rows"
relation = "bookings"
format = "json"
[[out]]
view = "clashes"
topic = "clashes"
snapshot = false
tombstones = true
"""
LEAST = """
[service]
url = "http://127.0.0.1:8080"
[kafka]
brokers = "127.0.0.1:9092"
[stream]
name = "pms"
checkpoint = "c"
[[topic]]
name = "t"
relation = "r"
format = "debezium"
"""
OUT = '[[out]]\nview = "v"\ntopic = "o"'


def read(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "stream.toml"
    path.write_text(text)
    return read_config(path)


def test_every_key(tmp_path: Path) -> None:
    config = read(tmp_path, WHOLE)
    assert config.service.url == "http://127.0.0.1:8080"
    assert config.kafka.java == {"security.protocol": "SSL", "socket.keepalive.enable": "true", "max.poll.records": "10"}
    assert config.kafka.librdkafka == {"security.protocol": "PLAINTEXT", "socket.keepalive.enable": "true"}
    assert config.stream == Stream(
        name="pms", checkpoint="checkpoints/pms", trigger="0 seconds", start="latest", max_offsets=5, dead_letters="pms.dead",
        max_dead_letters=0, reset=True,
    )  # fmt: skip
    assert config.topics == (
        Topic(name="pms.public.bookings", relation="bookings", format="debezium"),
        Topic(name="rows", relation="bookings", format="json"),
    )
    assert config.outs == (OutSection(view="clashes", topic="clashes", snapshot=False, tombstones=True),)


def test_defaults(tmp_path: Path) -> None:
    stream = read(tmp_path, LEAST).stream
    assert stream is not None
    assert (stream.trigger, stream.start, stream.max_offsets) == ("1 second", "earliest", 100_000)
    assert (stream.dead_letters, stream.max_dead_letters, stream.reset) == (None, 1000, False)


def test_outs_alone_need_no_stream(tmp_path: Path) -> None:
    text = LEAST[: LEAST.index("[stream]")] + '[[out]]\nview = "v"\ntopic = "t"\n'
    out = read(tmp_path, text).outs[0]
    assert (out.snapshot, out.tombstones) == (True, False)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('url = "http://127.0.0.1:8080"', "", "service.url: is missing"),
        ('url = "http://127.0.0.1:8080"', 'url = "127.0.0.1:8080"', "service.url"),
        ('url = "http://127.0.0.1:8080"', "url = 5", "service.url"),
        ('url = "http://127.0.0.1:8080"', 'url = "http://host:abc"', "service.url"),
        ('url = "http://127.0.0.1:8080"', 'url = "http://host:65536/"', "service.url"),
        ('brokers = "127.0.0.1:9092"', 'brokers = "b:1"\nlibrdkafka = {partitioner = "random"}', '"partitioner" is set by livejoin'),
        ('brokers = "127.0.0.1:9092"', "", "kafka.brokers: is missing"),
        ('brokers = "127.0.0.1:9092"', 'brokers = "b:1"\nsecurity.protocol = "SSL"', 'kafka: "security" is a table'),
        ('brokers = "127.0.0.1:9092"', 'brokers = "b:1"\n"bootstrap.servers" = "x:1"', '"bootstrap.servers" is set by livejoin'),
        ('brokers = "127.0.0.1:9092"', 'brokers = "b:1"\n"isolation.level" = "read_uncommitted"', '"isolation.level" is set by livejoin'),
        ('brokers = "127.0.0.1:9092"', 'brokers = "b:1"\njava = "x"', "java is not a table"),
        ('name = "pms"', "", "stream.name: is missing"),
        ('name = "pms"', f'name = "{"n" * 201}"', "stream.name"),
        ('name = "pms"', 'name = "livejoin.pms"', "stream.name: names that begin with 'livejoin.' are reserved"),
        ('checkpoint = "c"', "", "stream.checkpoint: is missing"),
        ('checkpoint = "c"', 'checkpoint = "c"\ntrigger = "1"', "stream.trigger"),
        ('checkpoint = "c"', 'checkpoint = "c"\ntrigger = "soon"', "stream.trigger"),
        ('checkpoint = "c"', 'checkpoint = "c"\nstart = "now"', "stream.start"),
        ('checkpoint = "c"', 'checkpoint = "c"\nmax_offsets = 0', "stream.max_offsets"),
        ('checkpoint = "c"', 'checkpoint = "c"\nmax_offsets = "9"', "stream.max_offsets"),
        ('checkpoint = "c"', 'checkpoint = "c"\nmax_dead_letters = -1', "stream.max_dead_letters"),
        ('checkpoint = "c"', 'checkpoint = "c"\nreset = 1', "stream.reset"),
        ('checkpoint = "c"', 'checkpoint = "c"\ndead_letters = "t"', "stream.dead_letters"),
        ('checkpoint = "c"', 'checkpoint = "c"\ndead_leters = "d"', "stream.dead_leters: is not a known key"),
        ('name = "t"', 'name = "a,b"', "topic[1].name"),
        ('relation = "r"', 'relation = "R"', "topic[1].relation"),
        ('relation = "r"', "", "topic[1].relation: is missing"),
        ('format = "debezium"', 'format = "avro"', "topic[1].format"),
        ('format = "debezium"', 'format = "json"\nzone = "Atlantis"', "topic[1].zone: there is no time zone 'Atlantis'"),
        ('format = "debezium"', 'format = "json"\n[[topic]]\nname = "t"\nrelation = "s"\nformat = "json"', "topic.name"),
        ('format = "debezium"', 'format = "json"\n[[out]]\nview = "v"', "out[1].topic: is missing"),
        ('format = "debezium"', 'format = "json"\n[[out]]\nview = "v"\ntopic = "o"\nsnapshot = "yes"', "out[1].snapshot"),
        ('format = "debezium"', 'format = "json"\n[[out]]\nview = "v"\ntopic = "o"\n[[out]]\nview = "w"\ntopic = "o"', "out.topic"),
        ('format = "debezium"', 'format = "json"\n[[out]]\nview = "v"\ntopic = "t"', 'out.topic: "t" is a [[topic]] that is read'),
        ('checkpoint = "c"', 'checkpoint = "c"\ndead_letters = "o"\n[[out]]\nview = "v"\ntopic = "o"', "stream.dead_letters"),
        ('checkpoint = "c"', f'checkpoint = "c"\ndead_letters = "o.livejoin"\n{OUT}', '"o.livejoin" is reserved for the token'),
        ('format = "debezium"', f'format = "json"\n{OUT}\n[[out]]\nview = "w"\ntopic = "o.livejoin"', "is reserved for the token"),
        ('name = "t"', f'name = "t"\nrelation = "r"\nformat = "json"\n{OUT}\n[[topic]]\nname = "o.livejoin"', "is reserved for the token"),
        ("[[topic]]", "[topic]", "topic: must be an array of tables"),
        ("[stream]", "[streams]", "streams: is not a known key"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, old: str, new: str, named: str) -> None:
    assert old in LEAST
    with pytest.raises(BadConfig) as raised:
        read(tmp_path, LEAST.replace(old, new))
    assert named in str(raised.value)
    assert "\n" not in str(raised.value)


def test_nothing_to_do(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="topic: the file has neither"):
        read(tmp_path, LEAST[: LEAST.index("[[topic]]")])


def test_topics_need_a_stream(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="stream: a file with"):
        read(tmp_path, LEAST[: LEAST.index("[stream]")] + LEAST[LEAST.index("[[topic]]") :])


def test_not_toml(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"is not TOML: .*line 1"):
        read(tmp_path, "[service\n")


@pytest.mark.parametrize("value", ["[" * 5000, "{a=" * 5000, "9" * 5000, '"\\ud800"'])
def test_toml_that_its_parser_cannot_take(tmp_path: Path, value: str) -> None:
    """Nested too deeply, or a number of too many digits: neither is the parser's own error."""
    with pytest.raises(BadConfig, match="is not TOML"):
        read(tmp_path, f"x = {value}")


def test_tables_within_tables(tmp_path: Path) -> None:
    """Deeper than Python would print them."""
    with pytest.raises(BadConfig, match=r"stream\.checkpoint: is missing; stream\.deep: is not a known key"):
        read(tmp_path, LEAST.replace('checkpoint = "c"', f"deep{'.a' * 1000} = 1"))


@pytest.mark.parametrize(
    "line", [f"max_offsets = {2**63}", f"max_dead_letters = {2**63}", 'trigger = "9999999999999999999 days"', 'trigger = "\u0661 seconds"']
)
def test_numbers_that_spark_cannot_take(tmp_path: Path, line: str) -> None:
    with pytest.raises(BadConfig, match=f"stream.{line.split()[0]}"):
        read(tmp_path, LEAST.replace('checkpoint = "c"', f'checkpoint = "c"\n{line}'))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="cannot be read"):
        read_config(tmp_path / "none.toml")
