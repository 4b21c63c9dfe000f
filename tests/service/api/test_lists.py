"""Answers that grow with the number of relations, views or sources are made in threads, not in the event loop."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.api.context import Context
from service.instance import Instance
from service.settings import Settings
from tests.service.api.asking import ask
from tests.service.running import of_ops, running


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Instance]:
    engine = running(tmp_path, synchronous="normal")
    engine.apply(of_ops("a", ("upsert", 1), source="one", epoch=1))
    yield engine
    engine.close()


@pytest.mark.parametrize(
    ("path", "module", "name"),
    [
        ("/v1/relations", "relations", "_shown"),
        ("/v1/views", "views", "view_json"),
        ("/v1/sources", "operations", "_shown"),
        ("/v1/status", "dashboard.state", "status_json"),
    ],
)
def test_no_list_is_made_in_the_event_loop(
    engine: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, module: str, name: str
) -> None:
    """Seen: those of relations and of sources were."""
    threads = list[threading.Thread]()
    made = getattr(importlib.import_module(f"service.api.{module}"), name)

    def noted(*arguments: Any) -> Any:
        threads.append(threading.current_thread())
        return made(*arguments)

    monkeypatch.setattr(f"service.api.{module}.{name}", noted)
    context = Context(Settings(data=tmp_path))
    context.open(engine)
    answer = ask("GET", path, context)
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    assert answer.json() and threads and threading.main_thread() not in threads
