"""Readers that give their name: what the service shows of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from urllib.parse import quote

import pytest

import livejoin
from service.api.dashboard import named_readers
from service.api.dashboard.named_readers import HEADER, NamedReaders
from tests.server_process import ServerProcess


def test_the_status_and_metrics_show_what_a_named_reader_has_read(shared_server: ServerProcess) -> None:
    name = 'café "7"'
    with livejoin.connect(shared_server.url, reader=name) as lj:
        lj.relation("named_r").create({"id": "int64"}, "id").upsert([{"id": 1}])
        view = lj.view("named_v", "SELECT id FROM named_r")
        view.to_arrow()

        def shown() -> tuple[int, int]:
            (one,) = [one for one in lj.status()["readers"] if one["name"] == name]
            (behind,) = [one.value for one in lj.metrics() if one.name == "livejoin_reader_lag_versions" and one.labels["reader"] == name]
            assert one["view"] == "named_v" and behind == one["behind"] and one["idle_seconds"] < 60
            return one["version"], one["behind"]

        first, behind = shown()
        assert behind == 0
        reading = view.begin_reading()
        lj.relation("named_r").upsert([{"id": 2}])
        last = lj.relation("named_r").upsert([{"id": 3}]).version
        assert shown() == (first, 2)
        end = view.changes_end(reading["token"], 1)
        view.changes_between(reading["token"], end["token"]).to_table()
        assert shown() == (end["version"], last - end["version"]) and first < end["version"] < last
        view.changes_between(end["token"], view.changes_end(end["token"])["token"]).to_table()
        lj.relation("named_other").create({"id": "int64"}, "id").upsert([{"id": 1}])
        assert shown() == (last, 0), "the changes of other relations are nothing to read"


def test_they_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    clock: Iterator[float] = itertools.count(0.0, 10.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(named_readers, "_MOST", 5)
    readers = NamedReaders()
    readers.note({}, "v", 1)
    for number in (*range(7), 3):
        readers.note({HEADER: quote(f"q{number}").encode()}, "v", number)
    assert [one.name for one in readers.recent()] == ["q2", "q4", "q5", "q6", "q3"]
    monkeypatch.setattr(time, "monotonic", lambda: 3665.0)
    assert [one.name for one in readers.recent()] == ["q3"]


def test_no_name_controls_a_terminal() -> None:
    """Seen: `livejoin top` wrote what a reader had put into its name, such as the sequence that sets the title of a window."""
    readers = NamedReaders()
    for number, name in enumerate(("a\x1b]0;b\x07c", "é\n\x9b31m Ü", "\u202e\0")):
        readers.note({HEADER: quote(name).encode()}, "v", number)
    assert [one.name for one in readers.recent()] == ["a]0;bc", "é31m Ü"]
