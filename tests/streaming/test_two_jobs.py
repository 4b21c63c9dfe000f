"""Two jobs with one source and one out topic: whichever way they are started, stopped and started again, the one that the service has
batches of publishes, and the other one ends without having touched the topic."""

from __future__ import annotations

import errno
import fcntl
import random
import re
import secrets
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.access.access_token import AccessToken, digest, new_text
from service.access.store import add_token
from streaming.kafka_broker import free_port
from tests.end_to_end import talk
from tests.server_process import ServerProcess
from tests.streaming.test_job import STAYS
from tests.streaming.two_jobs import TAKEN_OVER, House, Job, run_of

ROWS = count()


class Tokens:
    """A service in token mode: `stays` and `rooms` each have a token that may write to it alone."""

    def __init__(self, server: ServerProcess, admin: str) -> None:
        self.url = server.url
        self.client: httpx.Client = server.client()
        self.client.headers["Authorization"] = f"Bearer {admin}"
        self.token = {}
        for relation in ("stays", "rooms"):
            talk.define(self.client, relation, STAYS)
            grant = {"name": relation, "scope": "write", "relations": [relation], "views": ["*"]}
            self.token[relation] = talk.ok(self.client.post("/v1/tokens", json=grant), 201)["token"]

    def owner(self, source: str) -> str | None:
        """The run that the service knows a source from."""
        sources = {one["name"]: one["run"] for one in talk.ok(self.client.get("/v1/sources"))["sources"]}
        return sources.get(source)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokens]:
    folder, text = tmp_path_factory.mktemp("server") / "data", new_text()
    folder.mkdir()
    add_token(folder, AccessToken("ops", "admin", None, None, float("inf"), 1000.0, digest(text)), begin=True)
    with ServerProcess(folder) as server:
        yield Tokens(server, text)


class Two:
    """The jobs a and b. Of b: whether it has the same checkpoint, `reset`, and the token and relation of somebody else; of a: `reset`."""

    def __init__(
        self, tokens: Tokens, folder: Path, same: bool = False, resets: tuple[bool, bool] = (False, False), stranger: bool = False
    ) -> None:
        self.house, self.tokens, self.name = House(), tokens, f"pms-{secrets.token_hex(4)}"
        self.wanted: set[Job] = set()  # those that the test started last, and did not end
        relations = "stays", "rooms" if stranger else "stays"
        self.jobs = [
            Job(self.house, self.name, tokens.url, folder / place, tokens.token[relation], relation, reset)
            for place, relation, reset in zip(("a", "a" if same else "b"), relations, resets, strict=True)
        ]

    def do(self, step: str, job: Job) -> None:
        if step == "start":
            job.start()
            self.wanted.add(job)
            if not job.runs and any(other.runs and other.checkpoint == job.checkpoint for other in self.jobs):
                assert "is in use by another job" in job.said[-1]
                self.wanted.discard(job)
        elif step == "stop":
            job.end()
            self.wanted.discard(job)
        elif step == "crash":
            if job.runs:
                job.batch(next(ROWS), crash=True)
                job.wait_until(lambda: False)
                self.wanted.discard(job)
        elif step == "trouble":
            self.house.topic.away += 1
        else:
            job.batch(*[next(ROWS)] * (step == "batch"))

    def settle(self) -> None:
        """Everyone who still runs has a batch, and one after whatever that has changed."""
        for _ in range(2):
            for job in self.jobs:
                job.batch(next(ROWS))

    def check(self, order: object) -> None:
        owner = self.tokens.owner(self.name)
        owners = [job for job in self.jobs if run_of(job.checkpoint) == owner and owner is not None]
        runs = [job for job in self.jobs if job.runs]
        emitted = order, [job.said for job in self.jobs]
        if any(job in self.wanted for job in owners):
            assert len(runs) == 1 and runs[0] in owners, emitted
            runs[0].wait_until(lambda: runs[0].publishes)
            assert runs[0].publishes, emitted
        else:
            assert not runs, emitted
        for job in self.wanted - set(runs):
            assert job.said, emitted


KINDS: dict[str, dict[str, Any]] = {
    "one checkpoint": {"same": True},
    "another checkpoint": {},
    "a reset": {"resets": (False, True)},
    "two resets": {"resets": (True, True)},
    "another token": {"stranger": True},
    "another token with reset": {"stranger": True, "resets": (True, True)},
}
STEPS = ("start", "batch", "empty batch", "stop", "crash", "trouble")


def orders(kind: str, number: int) -> Iterator[list[tuple[str, int]]]:
    generator = random.Random(kind)
    for _ in range(number):
        steps = generator.choices(STEPS, (5, 3, 2, 1, 1, 1), k=generator.randint(3, 9))
        yield [(step, generator.randrange(2)) for step in steps]


@pytest.mark.parametrize("kind", KINDS)
def test_every_order(kind: str, tokens: Tokens, tmp_path: Path) -> None:
    for number, order in enumerate(orders(kind, 40)):
        two = Two(tokens, tmp_path / str(number), **KINDS[kind])
        with two.house.open():
            for step, which in order:
                two.do(step, two.jobs[which])
            two.settle()
            two.check(order)


def test_every_order_where_files_cannot_be_locked(tokens: Tokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs on one checkpoint, which Spark alone tells apart: one publishes, or both say why not."""

    def flock(file: object, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    for number, order in enumerate(orders("unlocked", 30)):
        two = Two(tokens, tmp_path / str(number), same=True)
        with two.house.open():
            for step, which in order:
                two.do(step, two.jobs[which])
            two.settle()
            runs = [job for job in two.jobs if job.runs]
            emitted = order, [job.said for job in two.jobs]
            for job in runs:
                job.wait_until(lambda job=job: job.publishes)
            assert [job.publishes for job in runs] in ([], [True]), emitted
            assert all(job.said for job in two.wanted - set(runs)), emitted


@pytest.mark.parametrize("kind", ["another checkpoint", "another token"])
def test_a_job_that_is_refused_touches_nothing(kind: str, tokens: Tokens, tmp_path: Path) -> None:
    """Seen: it fenced the one that ran, and was refused half a minute later; then nothing ran."""
    two = Two(tokens, tmp_path, **KINDS[kind])
    first, second = two.jobs
    with two.house.open() as house:
        first.start()
        first.batch(next(ROWS))
        for _ in range(2):  # as a supervisor would
            second.start()
            assert not second.runs
        first.batch(next(ROWS))
        first.wait_until(lambda: first.publishes)
        assert first.publishes and house.topic.began == 1
    reason = "from another checkpoint" if kind == "another checkpoint" else "403 .*use another name, or a token for all of them"
    assert len(second.said) == 2 and all(re.search(reason, said) for said in second.said)


def test_a_second_job_on_a_checkpoint_in_use(tokens: Tokens, tmp_path: Path) -> None:
    two = Two(tokens, tmp_path, same=True)
    first, second = two.jobs
    with two.house.open() as house:
        first.start()
        first.batch(next(ROWS))
        second.start()
        assert not second.runs and "is in use by another job" in second.said[0]
        first.end()
        second.start()
        second.batch(next(ROWS))
        second.wait_until(lambda: second.publishes)
        assert second.publishes and house.topic.began == 2


def test_a_take_over(tokens: Tokens, tmp_path: Path) -> None:
    """With its first batch, and not before: until then the former job may be started again."""
    two = Two(tokens, tmp_path, resets=(False, True))
    first, second = two.jobs
    with two.house.open():
        first.start()
        first.batch(next(ROWS))
        second.start()
        first.batch(next(ROWS))
        first.end()
        first.start()
        first.batch()
        first.wait_until(lambda: first.publishes)
        assert first.publishes and second.runs
        second.batch()  # an empty one, too
        second.wait_until(lambda: second.publishes)
        first.batch(next(ROWS))
        assert not first.runs and ("another checkpoint has taken over" in first.said[0] or TAKEN_OVER in first.said[0])
        first.start()
        assert not first.runs and "another checkpoint has taken over" in first.said[1]
        second.batch(next(ROWS))
        second.wait_until(lambda: second.publishes)
        assert second.publishes


def test_a_publisher_that_begins_anew_asks_first(tokens: Tokens, tmp_path: Path) -> None:
    """After a loss of the broker, in a job that has not noticed yet that it lost the source."""
    two = Two(tokens, tmp_path, resets=(False, True))
    first, second = two.jobs
    with two.house.open() as house:
        first.start()
        first.batch(next(ROWS))
        second.start()
        second.batch()
        second.wait_until(lambda: second.publishes)
        assert first.runs
        house.topic.away += 1
        first.wait_until(lambda: False)
        assert "another checkpoint has taken over" in first.said[0]
        second.batch(next(ROWS))
        second.wait_until(lambda: second.publishes)
        assert second.publishes


def test_topics_without_records(tokens: Tokens, tmp_path: Path) -> None:
    """The first job to start has the source from then on."""
    two = Two(tokens, tmp_path)
    first, second = two.jobs
    with two.house.open() as house:
        first.start()
        first.batch()
        first.wait_until(lambda: first.publishes)
        second.start()
        assert not second.runs and "from another checkpoint" in second.said[0]
        first.batch(next(ROWS))
        first.wait_until(lambda: first.publishes)
        assert first.publishes and house.topic.began == 1


def test_a_service_that_is_away_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Meanwhile nobody is fenced."""
    port, house = free_port(), House()
    with ServerProcess(tmp_path / "data", port=port) as server:
        talk.define(server.client(), "stays", STAYS)
        job = Job(house, "pms", server.url, tmp_path / "checkpoint")
        with house.open():
            job.start()
            job.batch(next(ROWS))
            job.wait_until(lambda: house.topic.began == 1)
            job.end()
            server.kill()
            job.begin()
            while "is not reachable" not in caplog.text:
                assert job.runs
                job.wait_until(lambda: "is not reachable" in caplog.text)
            assert house.topic.began == 1
            server.start()
            job.start()
            job.batch(next(ROWS))
            job.wait_until(lambda: job.publishes)
            assert house.topic.began == 2
