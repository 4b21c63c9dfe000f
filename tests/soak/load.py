"""A service under load: views, followers in a process of their own (one of them slow, one that reads nothing), and writers at full
speed."""

from __future__ import annotations

import http.client
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from tests.end_to_end import talk
from tests.server_process import ROOT, ServerProcess
from tests.soak.crowd import DEAD, SLOW

REPAIRS, STAYS = 10, 100  # rows per hotel
LINE = 1000
_BATCH = 100  # changes in every tenth post; the others have one
_LIMIT = 600.0  # seconds that any step may take at most
_KEPT = 2000  # rows of changes for followers: by default a view keeps 1,000,000, which an hour does not fill

_COLUMNS = [{"name": name, "type": "int64"} for name in ("id", "s", "e", "at")] + [{"name": "hotel", "type": "string"}]
_HOTEL = {"columns": _COLUMNS, "key": ["id"], "intervals": {"span": {"start": "s", "end": "e"}}}
_SQL = (
    "SELECT a.id AS x, b.id AS y, a.at AS at FROM stays a JOIN repairs b ON a.hotel = b.hotel AND overlaps(a.span, b.span) "
    "WHERE a.hotel = 'h{}'"
)


class Writer(threading.Thread):
    """Posts one change after the other until `is_over`: upserts and deletes of rows of its own. `versions`, `waits` (seconds): of the
    answers."""

    def __init__(self, number: int, writers: int, hotels: int, port: int, is_over: Callable[[int], bool]) -> None:
        super().__init__(daemon=True)
        self._number, self._writers, self._hotels, self._is_over = number, writers, hotels, is_over
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_LIMIT)
        self._chance = random.Random(number)
        self.versions: list[int] = []
        self.waits: list[float] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._is_over(len(self.versions)):
                self._post(len(self.versions))
        except BaseException as error:
            self.failure = error
        finally:
            self._connection.close()

    def _post(self, epoch: int) -> None:
        changes = {change["id"]: change for change in (self._row() for _ in range(_BATCH if epoch % 10 == 9 else 1))}
        body = [
            {"relation": "stays", "op": "delete", "key": {"id": id_}}
            if self._chance.random() < 0.2
            else {"relation": "stays", "op": "upsert", "row": row}
            for id_, row in changes.items()
        ]
        sent = json.dumps({"source": f"writer {self._number}", "epoch": epoch, "changes": body})
        start = time.monotonic()
        self._connection.request("POST", "/v1/changes", sent, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text
        self.waits.append(time.monotonic() - start)
        self.versions.append(json.loads(text)["version"])

    def _row(self) -> dict[str, Any]:
        id_ = self._writers * self._chance.randrange(self._hotels * STAYS // self._writers) + self._number
        start = self._chance.randrange(LINE)
        at = int(1e6 * time.monotonic())
        return {"id": id_, "s": start, "e": start + LINE // 10, "at": at, "hotel": f"h{id_ // STAYS}"}


class Load:
    """`with Load(folder, views=…, followers=…, writers=…) as load:` has views without rows, each of which is followed."""

    def __init__(self, folder: Path, *, views: int, followers: int, writers: int) -> None:
        self.views, self.followers, self._writers = views, followers, writers
        self.server = ServerProcess(folder / "data")

    def __enter__(self) -> Load:
        self.server.start()
        client = self.server.client(_LIMIT)
        for name in ("stays", "repairs"):
            talk.define(client, name, _HOTEL)
        chance = random.Random(0)
        for hotel in range(self.views):
            rows = []
            for id_ in range(REPAIRS * hotel, REPAIRS * (hotel + 1)):
                start = chance.randrange(LINE)
                rows.append({"id": id_, "s": start, "e": start + LINE // 10, "at": 0, "hotel": f"h{hotel}"})
            talk.ok(talk.send(client, [{"relation": "repairs", "op": "insert", "row": row} for row in rows]))
            view = {"sql": _SQL.format(hotel), "changes": {"retain_rows": _KEPT, "retain_bytes": 1 << 20}}
            talk.view(client, f"v{hotel}", view, _LIMIT)
        self._first = int(client.get("/v1/views/v0/count").json()["version"]) + 1
        command = [sys.executable, "-m", "tests.soak.crowd", str(self.server.port), str(self.views), str(self.followers)]
        self._crowd = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._crowd.stdout is not None and self._crowd.stdout.readline() == "ready\n"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._crowd.kill()
        self._crowd.communicate()
        self.server.__exit__(kind, error, trace)

    @property
    def resident(self) -> int:
        """Return the resident memory of the server in bytes."""
        return int(psutil.Process(self.server.process.pid).memory_info().rss)

    @contextmanager
    def writing(self, is_over: Callable[[int], bool]) -> Iterator[list[Writer]]:
        """Run writers, each until `is_over` with the number of its posts. On exit, all have ended and none has failed."""
        made = [Writer(number, self._writers, self.views, self.server.port, is_over) for number in range(self._writers)]
        for writer in made:
            writer.start()
        yield made
        for writer in made:
            writer.join()
            if writer.failure is not None:
                raise writer.failure

    def crowd(self) -> list[dict[str, Any]]:
        """Return what the followers have received so far."""
        assert self._crowd.stdin is not None and self._crowd.stdout is not None
        self._crowd.stdin.write("report\n")
        self._crowd.stdin.flush()
        return list(json.loads(self._crowd.stdout.readline()))

    def check(self, writers: list[Writer]) -> list[float]:
        """Check that every post made a version of its own, and that the sums of each follower that reads match its view. Return how late
        rows arrived (seconds)."""
        versions = sorted(version for writer in writers for version in writer.versions)
        assert versions == list(range(self._first, self._first + len(versions)))
        client = self.server.client(_LIMIT)
        there = []
        for number in range(self.views):
            rows = list(map(json.loads, client.get(f"/v1/views/v{number}/rows").text.splitlines()))
            there.append([len(rows), sum(row["x"] for row in rows), sum(row["y"] for row in rows)])
        assert any(count for count, _, _ in there)
        reading = [number for number in range(self.followers) if number not in (SLOW, DEAD)]
        late: list[float] = []
        end = time.monotonic() + _LIMIT
        while True:
            crowd = self.crowd()
            late += [value for number in reading for value in crowd[number]["late"]]
            assert not [crowd[number]["errors"] for number in reading if crowd[number]["errors"]]
            behind = [number for number in reading if crowd[number]["sums"] != there[number % self.views]]
            if not behind:
                return late
            assert time.monotonic() < end, f"followers that lack something: {behind}"
            time.sleep(0.05)
