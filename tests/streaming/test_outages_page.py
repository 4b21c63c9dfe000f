"""docs/tutorials/outages.md is true: a broker, the service and Spark do what it says."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from streaming.kafka_broker import Broker
from tests.docs.pages import Block, Reader
from tests.server_process import ROOT, ServerProcess
from tests.streaming.stream_job import Jobs, StreamJob

PAGE = ROOT / "docs" / "tutorials" / "outages.md"
RUN = "livejoin stream --config outages.toml\n"


class ReaderWithKafka(Reader):
    """Starts the job, and goes on when it has read what the page has sent."""

    def __init__(self, server: ServerProcess, folder: Path, broker: Broker, start: Callable[[], StreamJob]) -> None:
        super().__init__(server, folder)
        self._address, self._start = broker.address, start

    def _do(self, block: Block, following: Block | None) -> bool:
        return super()._do(block._replace(text=block.text.replace("127.0.0.1:9092", self._address)), following)

    def _toml(self, text: str, mark: str, following: Block | None) -> None:
        text = text.replace("checkpoints/", f"{self.folder}/checkpoints/")
        super()._toml(text, mark, following)
        for name in ("outages.toml", "stream.toml"):  # the page's, and the one that `job_of` reads
            (self.folder / name).write_text(text)

    def _sh(self, text: str, mark: str, following: Block | None) -> None:
        super()._sh(text.replace(RUN, ""), mark, following)
        if RUN in text:
            self._start().wait_for_records(len(self.names["year"]))


def test_the_tutorial(server: ServerProcess, broker: Broker, job_of: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = job_of(server.url)
    with ExitStack() as started:
        reader = ReaderWithKafka(server, tmp_path, broker, lambda: started.enter_context(job))
        assert reader.read(PAGE) == 9
        assert job.stop() == 0
