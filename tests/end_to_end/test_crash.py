"""kill -9 at random moments and at every failpoint: everything acknowledged is present, nothing is present twice, and followers receive
it."""
from __future__ import annotations

import random
import signal
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import datasets
from tests.end_to_end import talk
from tests.failpoints import AT_WORK
from tests.server_process import ServerProcess, client_of

NAME, LOG, SIZE = "congress", "changes", 100
CHANGES = [talk.change(entry, ["id"]) for entry in datasets.change_log(NAME, LOG)]
BATCHES = [CHANGES[start : start + SIZE] for start in range(0, len(CHANGES), SIZE)]
EXPECTED = datasets.expected(NAME, LOG)
VIEWS = [view for view in datasets.queries(NAME) if view["name"] in EXPECTED["views"]]


def define(client: httpx.Client) -> None:
    for relation in EXPECTED["checkpoints"][0]["live"]:
        talk.define(client, relation, datasets.definition(NAME, relation))
    for view in VIEWS:
        talk.view(client, view["name"], view["sql"])


def check(client: httpx.Client, batches: int) -> None:
    """Check that rows and views are those after this number of batches, which has a checkpoint."""
    checkpoint = next(point for point in EXPECTED["checkpoints"] if point["after_batch"] == batches)
    for relation, live in checkpoint["live"].items():
        assert talk.ok(client.get(f"/v1/relations/{relation}"))["rows"] == live
    for view in VIEWS:
        answer = checkpoint["views"][view["name"]]
        rows = talk.read(client, view["name"], talk.ARROW, view["result_columns"])
        assert (len(rows), datasets.checksum(rows)) == (answer["rows"], answer["checksum"])


class Sender(threading.Thread):
    """Sends batches from number `first` (from 1) to `last`, each with its number as epoch; stops at the first one without an answer."""

    def __init__(self, url: str, first: int, last: int) -> None:
        super().__init__(daemon=True)
        self.url, self.first, self.last = url, first, last
        self.acknowledged = first - 1
        self.version = -1
        self.reached = threading.Semaphore(0)  # released once a batch
        self.wrong: str | None = None

    def run(self) -> None:
        with client_of(self.url) as client:
            for number in range(self.first, self.last + 1):
                try:
                    answer = talk.send(client, BATCHES[number - 1], talk.JSONL, source="log", epoch=number)
                except httpx.TransportError:
                    return
                if answer.status_code != 200:
                    self.wrong = f"{answer.status_code} {answer.text}"
                    return
                body = answer.json()
                # only the first may be a duplicate: the one without an answer when the server was killed
                if body["duplicate"] and number != self.first:
                    self.wrong = f"batch {number} was there already"
                    return
                self.acknowledged, self.version = number, body["version"]
                self.reached.release()


@pytest.mark.parametrize("synchronous", ["full", pytest.param("normal", marks=pytest.mark.soak)])
def test_killed_at_random_moments(tmp_path: Path, synchronous: str) -> None:
    """One source, killed four times while it sends: every acknowledged batch is present, and none is present twice."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    stops = sorted(chance.sample(range(3, len(BATCHES) - 3), 3))
    environment = {"LIVEJOIN_SYNCHRONOUS": synchronous}
    sent = 0
    followers: list[talk.Follower] = []
    for stop in [*stops, None]:
        with ServerProcess(tmp_path / "data", environment=environment) as server:
            client = server.client()
            if sent == 0:
                define(client)
                followers = [talk.Follower(client, view["name"], view["result_columns"]) for view in VIEWS]
            version = talk.ok(client.get("/v1/status"))["version"]
            assert sent <= version <= sent + 1, "what was acknowledged is there, and at most the one batch that had no answer"
            for follower in followers:
                follower.resume(client)
            sender = Sender(server.url, sent + 1, len(BATCHES))
            sender.start()
            if stop is None:
                sender.join(120)
                assert sender.wrong is None and sender.acknowledged == sender.version == len(BATCHES)
                check(client, len(BATCHES))
                for view, follower in zip(VIEWS, followers, strict=True):
                    talk.ok_poll(follower)
                    answer = EXPECTED["checkpoints"][-1]["views"][view["name"]]
                    assert (len(follower.rows), follower.checksum) == (answer["rows"], answer["checksum"])
                assert server.stop() == 0
            else:
                while sender.acknowledged < stop and sender.is_alive():
                    sender.reached.acquire(timeout=10)
                threading.Event().wait(chance.random() * 0.02)
                server.kill()
                sender.join(60)
                assert sender.wrong is None and sender.acknowledged >= stop
                sent = sender.acknowledged


@pytest.mark.parametrize("step", [step for step in AT_WORK if step != "in-build"])
def test_killed_at_a_step(tmp_path: Path, step: str) -> None:
    """The server kills itself at the failpoint, during a batch or its own stop; then the unanswered batch is sent again."""
    at_the_end = step in ("in-snapshot", "after-snapshot", "in-log-cleaning")
    with ServerProcess(tmp_path / "data") as server:  # because the log is truncated after the second snapshot
        define(server.client())
        sender = Sender(server.url, 1, 1)
        sender.start()
        sender.join(60)
        assert server.stop() == 0
    server = ServerProcess(tmp_path / "data", environment={"LIVEJOIN_FAILPOINT": step if at_the_end else f"{step}:6"})
    with server:
        sender = Sender(server.url, 2, 10)
        sender.start()
        sender.join(60)
        if at_the_end:
            assert sender.acknowledged == 10
            server.process.send_signal(signal.SIGTERM)
        else:
            assert sender.acknowledged == 6
        assert server.wait() == -signal.SIGKILL
    with ServerProcess(tmp_path / "data") as server:
        client = server.client()
        first = 11 if at_the_end else 7
        on_disk = 10 if at_the_end else 7 if step in ("after-commit", "before-publish") else 6
        assert talk.ok(client.get("/v1/status"))["version"] == on_disk
        if not at_the_end:
            repeated = talk.ok(talk.send(client, BATCHES[6], source="log", epoch=7))
            assert repeated["duplicate"] == (on_disk == 7) and repeated["version"] == 7
            first = 8
        sender = Sender(server.url, first, 20)
        sender.start()
        sender.join(60)
        assert sender.wrong is None and sender.acknowledged == sender.version == 20
        check(client, 20)


def test_killed_with_many_clients(tmp_path: Path) -> None:
    """Eight sources at once, so that they share commits: the acknowledged batches of each source are present, in order, once."""
    definition = {"columns": [{"name": "source", "type": "string"}, {"name": "n", "type": "int64"}], "key": ["source", "n"]}
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    done = [0] * 8

    def work(url: str, position: int) -> None:
        with client_of(url) as client:
            for number in range(done[position] + 1, 100_000):
                row = {"source": f"s{position}", "n": number}
                # an insert, so that a batch that is applied twice has a bad row
                change = {"relation": "events", "op": "insert", "row": row}
                try:
                    talk.ok(talk.send(client, [change], source=f"s{position}", epoch=number))
                except httpx.TransportError:
                    return
                done[position] = number

    for round_ in range(3):
        with ServerProcess(tmp_path / "data") as server:
            client = server.client()
            talk.define(client, "events", definition)
            if round_:
                answer = client.get("/v1/relations/events/rows")
                there: dict[str, list[int]] = {f"s{position}": [] for position in range(8)}
                for source, number in talk.decode(answer.content, talk.JSONL, ["source", "n"]):
                    there[source].append(number)
                for position in range(8):
                    numbers = sorted(there[f"s{position}"])
                    assert numbers == list(range(1, len(numbers) + 1))
                    assert done[position] <= len(numbers) <= done[position] + 1
            threads = [threading.Thread(target=work, args=(server.url, position), daemon=True) for position in range(8)]
            for thread in threads:
                thread.start()
            before = sum(done)
            while sum(done) < before + 200:
                threading.Event().wait(0.01)
            threading.Event().wait(chance.random() * 0.1)
            server.kill()
            for thread in threads:
                thread.join(60)


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_clean_end(tmp_path: Path, sign: signal.Signals) -> None:
    """Status 0 within 10 s, although a stream is open and a client keeps sending; everything acknowledged is present afterwards."""
    with ServerProcess(tmp_path / "data") as server:
        client = server.client()
        define(client)
        sender = Sender(server.url, 1, len(BATCHES))
        sender.start()
        sender.reached.acquire(timeout=30)
        broken: list[Any] = []

        def follow() -> None:
            try:
                with server.client() as own, own.stream("GET", f"/v1/views/{VIEWS[0]['name']}/changes") as answer:
                    for _ in answer.iter_lines():
                        pass
            except httpx.TransportError as error:
                broken.append(error)

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        sender.reached.acquire(timeout=30)
        assert server.stop(sign, limit=10) == 0, server.output()
        sender.join(60)
        follower.join(60)
        assert broken, "an open stream is broken off, never ended as if whole"
        assert "ERROR" not in server.output()
    with ServerProcess(tmp_path / "data") as server:
        version = talk.ok(server.client().get("/v1/status"))["version"]
        assert sender.acknowledged <= version <= sender.acknowledged + 1
        rest = Sender(server.url, sender.acknowledged + 1, len(BATCHES))
        rest.start()
        rest.join(120)
        assert rest.wrong is None and rest.version == len(BATCHES)
        check(server.client(), len(BATCHES))


def test_a_relation_dropped_and_made_again(tmp_path: Path) -> None:
    """When the server is killed, the log still has batches of the old relation: the new one does not get them."""
    def kinds(kind: str) -> dict[str, Any]:
        return {"columns": [{"name": "id", "type": "int64"}, {"name": "value", "type": kind}], "key": ["id"]}

    for kind, value, restarted in (("string", "old", False), ("int64", 5, False), ("bool", True, True), ("string", "new", True)):
        with ServerProcess(tmp_path / "data") as server:
            client = server.client()
            if restarted:
                talk.ok(client.delete("/v1/relations/things"), 204)
            talk.define(client, "things", kinds(kind))
            talk.ok(talk.send(client, [{"relation": "things", "op": "insert", "row": {"id": 1, "value": value}}]))
            if not restarted and kind == "string":
                talk.ok(client.delete("/v1/relations/things"), 204)
            server.kill()
    with ServerProcess(tmp_path / "data") as server:
        answer = server.client().get("/v1/relations/things/rows", headers={"Accept": talk.JSON})
        assert talk.ok(answer)["rows"] == [{"id": 1, "value": "new"}]
