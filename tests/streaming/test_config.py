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
