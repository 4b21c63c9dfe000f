"""A crowd that follows one view: everybody is sent each version once and in order, and it is taken and encoded once for all."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa
import pytest
import uvloop

from service.api import broadcast as broadcasts
from service.api import followers
from service.api.broadcast import Waiter
from service.api.context import Context
from service.api.followers import Follower, FollowResponse
from service.api.http import media
from service.errors import Problem
from service.following.chunks import CHUNK_ROWS, Chunk
from service.following.subscriptions import Subscription
from service.settings import Settings

TURNS = 150


class Feed:
    """Version number v brings `rows_of(v)` rows; None: it does not change the view. Those up to `lost` are not kept."""

    owner = "view v 1"

    def __init__(self, rows_of: Callable[[int], int | None] = lambda version: 1) -> None:
        self.rows_of, self.version, self.lost, self.asked = rows_of, 0, 0, 0
        self.listeners: dict[int, Callable[[], None]] = {}

    def changes(self, position: int) -> list[Chunk]:
        self.asked += 1
        if position < self.lost:
            return [Chunk("error", position, token=str(position), problem=Problem("reader-too-slow", "gone"))]
        found = []
        for version in range(position + 1, min(self.version, position + 20) + 1):
            count = self.rows_of(version)
            if count is None:
                continue
            for start in range(0, count, CHUNK_ROWS):
                numbers = pa.array(range(start, min(start + CHUNK_ROWS, count)))
                rows = pa.RecordBatch.from_arrays([numbers], ["n"])
                found.append(Chunk("rows", version, "insert", rows.rename_columns(["a.n"]), rows))
            found.append(Chunk("progress", version, token=str(version)))
        return found

    def quiet_until(self, position: int) -> int:
        silent = all(self.rows_of(version) is None for version in range(position + 1, self.version + 1))
        return self.version if silent else position

    def token(self, version: int) -> str:
        return str(version)

    def forget(self, subscription: Subscription) -> None:
        pass

    def add_listener(self, listener: Callable[[], None]) -> int:
        self.listeners[len(self.listeners)] = listener
        return len(self.listeners) - 1

    def remove_listener(self, number: int) -> None:
        del self.listeners[number]

    def publish(self, versions: int = 1) -> None:
        self.version += versions
        for listener in list(self.listeners.values()):
            listener()


class Reader:
    """A follower, as the server drives its answer; now and then its connection takes nothing for a while."""

    def __init__(self, context: Context, feed: Feed, chance: random.Random, limit: int | None = None, begun: int | None = None) -> None:
        self.chance, self.limit = chance, limit
        self.begun = self.seen = feed.version if begun is None else begun
        self.subscription = Subscription(feed, self.begun)
        # `FollowResponse` asks nothing of a feed but what the class above has.
        self._answer = FollowResponse(context, cast(Any, feed), Follower(self.subscription, media.JSONL, limit), media.JSONL, None)
        self._rest = b""  # of a record
        self.lines: list[dict[str, Any]] = []

    async def read(self, until: int) -> None:
        """Until it has the version `until`, or its answer ends."""
        enough = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await enough.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            whole, _, self._rest = (self._rest + message.get("body", b"")).rpartition(b"\n")
            self.lines += map(json.loads, whole.splitlines())
            self.seen = self.lines[-1]["version"] if self.lines and self.lines[-1]["op"] == "progress" else self.seen
            if self.seen >= until:
                enough.set()
            if self.chance.random() < 0.1:
                await asyncio.sleep(0.01)

        await self._answer({"type": "http", "method": "GET", "path": "/"}, receive, send)

    def validate(self, until: int) -> None:
        wanted = []
        for version in range(self.begun + 1, until + 1):
            if (count := self.subscription._feed.rows_of(version)) is not None:  # type: ignore[attr-defined]
                wanted += [("insert", version, n) for n in range(count)] + [("progress", version, str(version))]
        assert [(line["op"], line["version"], line["row"]["n"] if "row" in line else line["token"]) for line in self.lines] == wanted


@pytest.fixture(autouse=True)
def no_idle_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine sends no record that the tests do not expect."""
    monkeypatch.setattr(followers, "PROGRESS_INTERVAL", 600.0)


def drive(work: Callable[[Context], Any]) -> None:
    async def run() -> None:
        context = Context(Settings())
        context.attach(asyncio.get_running_loop(), ())
        await work(context)
        assert not context.broadcasts._found, "nobody is left, and yet it is listened"
        context.followers.shutdown()

    asyncio.run(asyncio.wait_for(run(), 120))


@pytest.mark.parametrize("seed", range(4))
def test_everybody_has_everything_once(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(broadcasts, "_KEPT_BYTES", 1500)  # so that who sleeps may fall behind what is kept
    monkeypatch.setattr(broadcasts, "_PAUSE", 0.01)
    chance = random.Random(seed)
    feed = Feed(lambda version: version % 3)

    async def work(context: Context) -> None:
        readers, tasks = [], []
        for turn in range(TURNS):
            if turn == 0 or len(readers) < 30 and chance.random() < 0.4:
                limit = chance.choice((None, chance.randint(1, 30)))  # who has enough leaves: some of the time one is alone
                readers.append(Reader(context, feed, chance, limit))
                tasks.append(asyncio.create_task(readers[-1].read(TURNS)))
            feed.publish()
            await asyncio.sleep(chance.choice((0, 0.005, 0.01)))
        await asyncio.gather(*tasks)
        for reader in readers:
            reader.validate(TURNS if reader.limit is None else min(TURNS, reader.begun + reader.limit))

    drive(work)


async def following(
    context: Context, feed: Feed, chance: random.Random, count: int, until: int
) -> tuple[list[Reader], list[asyncio.Task[None]]]:
    """Readers who wait for the first version, and will read up to `until`."""
    readers = [Reader(context, feed, chance) for _ in range(count)]
    tasks = [asyncio.create_task(reader.read(until)) for reader in readers]
    while any(reader.subscription.position != 0 for reader in readers) or feed.asked < count + 1:
        await asyncio.sleep(0.01)
    return readers, tasks


def test_it_is_taken_once_for_all() -> None:
    feed, chance = Feed(), random.Random(0)

    async def work(context: Context) -> None:
        readers, tasks = await following(context, feed, chance, 50, 20)
        before = feed.asked
        for _ in range(20):
            feed.publish()
            await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)
        assert feed.asked - before <= 60, "a look or two a version, not fifty"
        for reader in readers:
            reader.validate(20)

    drive(work)


def test_who_sleeps_when_an_audience_begins_is_woken() -> None:
    """One sleeps behind the version where it begins, of which the ring is used up."""

    async def work(context: Context) -> None:
        feed = Feed()
        broadcast, sleeper = context.broadcasts.join(cast(Any, feed), media.JSONL, context.loop)
        asleep = asyncio.create_task(sleeper.wait(context.loop.time() + 600))
        await asyncio.sleep(0)
        other = broadcast.join()
        assert broadcast.after(8, None, other) is not None
        await asleep
        for seat in (sleeper, other):
            context.broadcasts.leave(broadcast, seat)

    drive(work)


def test_a_version_of_very_many_rows_is_encoded_once() -> None:
    """Those who have it stay with the audience; what is said before it is no longer kept."""
    feed, chance = Feed(lambda version: 2 * CHUNK_ROWS + 5 if version == 3 else 1), random.Random(0)

    async def work(context: Context) -> None:
        readers, tasks = await following(context, feed, chance, 5, 5)
        before = feed.asked
        for version in range(1, 6):
            feed.publish()
            while any(reader.seen < version for reader in readers):
                await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)
        assert feed.asked - before <= 15, "a look or two a version, not five"
        for reader in readers:
            reader.validate(5)

    drive(work)


def test_what_is_joined_in_the_loop_is_bounded() -> None:
    """Many versions are given in parts, each of whole versions; one version is not copied, however long it is."""

    async def work(context: Context) -> None:
        feed = Feed()
        broadcast, seat = context.broadcasts.join(cast(Any, feed), media.JSONL, context.loop)
        other = broadcast.join()
        assert broadcast.after(0, None, seat) is not None
        bodies = [bytes([version]) * (300_000 if version != 6 else 3_000_000) for version in range(1, 10)]
        broadcast._keep([broadcasts.EncodedChanges(body, version, 1, 1) for version, body in enumerate(bodies, 1)])
        position, parts = 0, []
        while (said := broadcast.after(position, None, seat)) is not None and said.versions:
            assert len(said.body) <= broadcasts._JOINED_BYTES or said.body is bodies[said.version - 1]
            position = said.version
            parts.append(said)
        assert b"".join(part.body for part in parts) == b"".join(bodies) and position == 9
        assert [part.versions for part in parts] == [3, 2, 1, 3] and sum(part.records for part in parts) == 9
        for one in (seat, other):
            context.broadcasts.leave(broadcast, one)

    drive(work)


def test_records_that_everybody_has_are_dropped() -> None:
    """However many there were."""
    feed, chance = Feed(), random.Random(0)

    async def work(context: Context) -> None:
        readers, tasks = await following(context, feed, chance, 5, 30)
        (broadcast,) = context.broadcasts._found.values()
        for version in range(1, 30):
            feed.publish()
            while any(seat.position < version for seat in broadcast._seats):
                await asyncio.sleep(0.001)
            assert len(broadcast._said) <= 2, "this version, and the one before it until the round is over"
        feed.publish()
        await asyncio.gather(*tasks)
        for reader in readers:
            reader.validate(30)

    drive(work)


def test_slow_followers_of_all_audiences_share_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes nothing keeps the newest records of its audience, up to its share, which shrinks as audiences come."""
    monkeypatch.setattr(broadcasts, "_KEPT_BYTES", 4 * (1000 + broadcasts._OVERHEAD_BYTES))

    async def work(context: Context) -> None:
        broadcast, slow = context.broadcasts.join(cast(Any, Feed()), media.JSONL, context.loop)
        prompt = broadcast.join()
        assert broadcast.after(0, None, slow) is not None

        def kept(version: int) -> list[int]:
            broadcast._keep([broadcasts.EncodedChanges(bytes(1000), version, 1, 1)])
            assert broadcast.after(version, None, prompt) is not None
            broadcast._drop()
            assert broadcast._bytes == broadcasts._size(broadcast._said)
            return [said.version for said in broadcast._said]

        assert [kept(version) for version in (1, 2, 3, 4)] == [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]]
        other = context.broadcasts.join(cast(Any, Feed()), media.JSONL, context.loop)
        assert kept(5) == [4, 5] and broadcast.after(0, None, slow) is None
        assert kept(6) == [], "the slow one reads by itself now: nobody else needs what is kept"
        assert broadcast.after(6, None, slow) is not None
        assert [kept(version) for version in (7, 8, 9)] == [[7], [7, 8], [8, 9]]
        for one, seat in (other, (broadcast, slow), (broadcast, prompt)):
            context.broadcasts.leave(one, seat)

    drive(work)


def test_a_limit_a_large_version_and_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who wants two versions has two; a very large one is read by each for itself; what is lost is told to each, with its own token."""
    monkeypatch.setattr(broadcasts, "_LARGEST_BYTES", 50 * CHUNK_ROWS)
    feed, chance = Feed(lambda version: CHUNK_ROWS + 5 if version == 3 else 1), random.Random(0)

    async def work(context: Context) -> None:
        short, long = Reader(context, feed, chance, 2), Reader(context, feed, chance)
        tasks = [asyncio.create_task(one.read(9)) for one in (short, long)]
        for _ in range(5):
            feed.publish()
            await asyncio.sleep(0.02)
        await tasks[0]
        short.validate(2)
        while long.seen < 5:
            await asyncio.sleep(0.01)
        long.validate(5)
        feed.lost = 8
        feed.publish(4)
        await tasks[1]
        assert long.lines[-1]["op"] == "error" and long.lines[-1]["token"] == "5"

    drive(work)


def test_who_begins_in_a_silence_waits_like_the_others() -> None:
    """Those who begin at different versions between which the view did not change; then, at last, it does."""
    feed, chance = Feed(lambda version: 1 if version == 101 else None), random.Random(0)
    feed.version = 100

    async def work(context: Context) -> None:
        readers = [Reader(context, feed, chance, begun=begun) for begun in (100, 50, 0, 99)]
        tasks = []
        for reader in readers:
            tasks.append(asyncio.create_task(reader.read(101)))
            await asyncio.sleep(0.05)
        before = -1
        while feed.asked != before:  # till all have looked
            before = feed.asked
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.3)
        assert feed.asked == before < 10 * len(readers), "nobody looks again and again"
        feed.publish()
        await asyncio.gather(*tasks)
        for reader in readers:
            reader.validate(101)

    drive(work)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_seat_waits_its_time_however_short(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Woken before its timer rings, in the past, and in times that a loop takes for none."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        seat = Waiter(loop)
        for seconds in (-1.0, 0.0, 1e-4, 4e-4, 0.02):
            due = loop.time() + seconds
            await asyncio.wait_for(seat.wait(due), 30)
            assert loop.time() >= due - 0.002  # uvloop counts in milliseconds
        for seconds in (1e-4, 3e-4, 60.0, 4e-4, 60.0, 0.02):  # woken long before, and sits down again at once
            loop.call_soon(seat.wake)
            await seat.wait(loop.time() + seconds)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())


class Snapshot:
    """A reader of a view at version 7, some calls of which find no rows."""

    version = 7

    def __init__(self, counts: list[int]) -> None:
        self._counts = iter(counts)

    def read_with_keys(self, max_rows: int) -> tuple[pa.RecordBatch, pa.RecordBatch] | None:
        if (count := next(self._counts, None)) is None:
            return None
        rows = pa.RecordBatch.from_arrays([pa.array(range(count), pa.int64())], ["n"])
        return rows.rename_columns(["a.n"]), rows

    def close(self) -> None:
        pass


@pytest.mark.parametrize("counts", [[], [3], [3, 0], [0, 0, 2, 0, 1, 0]])
def test_a_snapshot_is_read_to_its_end(counts: list[int]) -> None:
    """Without a wait where a call finds no rows: its token would come with the next change."""
    subscription = Subscription(cast(Any, Feed()), 7, cast(Any, Snapshot(counts)))
    follower = Follower(subscription, media.JSONL, None)
    body = b""
    while b"progress" not in body:
        taken = follower.take()
        body += taken.body
        assert taken.more == (b"progress" not in body)
    assert body.count(b"insert") == sum(counts)
