"""The demo: starts a service with views, replays two centuries of history into them, and keeps serving until Ctrl-C.

The first two centuries, with few changes, are sent by REST while Kafka and Spark start; from 1989 on, changes go through Kafka and Spark,
if they are available. `produce` only sends the records, to a broker that is already running.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import date
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

import livejoin
from livejoin.terminal import Failure, say
from service.demo.history import PREFIX, RELATIONS, VIEWS, Change, checksum, expected, history
from service.demo.kafka import HOME, HOST, PATIENCE, TICK, Children, Kafka, Records, RoadClosed, missing, not_installed

SWITCH = date(1989, 1, 1)  # from here on there are many changes
EARLY = 20.0  # speed of the replay before that, relative to the speed after it
PATIENCE_OF_REQUESTS = 3.0  # seconds
EVERY = 4.0  # seconds between two lines in a pipe
RECENT = 8  # changes on the panel
YEAR = 365.2425


def play(port: int, pace: float, with_kafka: bool, prepare: Sequence[str] = ()) -> int:
    """Run the whole demo; return 0 after Ctrl-C or SIGTERM, with all children ended and the folder removed.

    prepare: a command that installs what Kafka and Spark need.
    """
    os.umask(0o077)  # the children's files, logs and Kafka's records, are for nobody else
    with TemporaryDirectory(prefix="livejoin-demo-", ignore_cleanup_errors=True) as folder:
        children = Children(Path(folder))
        try:
            asyncio.run(_play(children, f"http://{HOST}:{port}", pace, with_kafka, prepare))
        except asyncio.CancelledError:
            pass
        except livejoin.LivejoinError as error:
            raise Failure(f"{error}; the service said: {children.last_words('service')}") from error
        finally:
            children.close()
    return 0


async def _play(children: Children, url: str, pace: float, with_kafka: bool, prepare: Sequence[str]) -> None:
    _end_by_signals()
    lacking = missing(bool(prepare)) if with_kafka else "--no-kafka"
    service = await _start_service(children, url)
    async with livejoin.connect_async(url, patience=PATIENCE_OF_REQUESTS) as client:
        kafka = Kafka(children, url, prepare) if lacking is None else None
        tasks = [] if kafka is None else [kafka.task]
        try:
            await register(client)
            print(what_to_try(url), flush=True)
            if lacking is not None:
                print(f"Running without Kafka and Spark ({lacking}): all changes are sent by REST.\n", flush=True)
            panel = Panel()
            with panel.live or nullcontext():
                tasks += [asyncio.create_task(panel.follow(client, name)) for name in VIEWS]
                await Replay(client, panel, pace, kafka).run()
            emitted = ", ".join(f"{name} {rows:,}" for name, (rows, _) in expected().items())
            print(f"\nAll changes have arrived. Row counts and checksums match the known results: {emitted} rows.", flush=True)
            print("The service keeps running. Press Ctrl-C to stop it and delete its data.", flush=True)
            while service.poll() is None:
                await asyncio.sleep(TICK)
            raise Failure(f"the service has stopped: {children.last_words('service')}")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # the followers disconnect before the service ends


def _end_by_signals() -> None:
    """Let Ctrl-C and SIGTERM cancel the current task; a second one changes nothing."""
    loop, task, numbers = asyncio.get_running_loop(), asyncio.current_task(), (signal.SIGINT, signal.SIGTERM)
    assert task is not None

    def end() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
        print("\nStopping …", flush=True)
        task.cancel()

    for number in numbers:
        loop.add_signal_handler(number, end)


async def _start_service(children: Children, url: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "service.cli", "serve", "--data", str(children.folder / "data"), "--host", HOST]
    command += ["--port", url.rpartition(":")[2], "--tls-certificate", "none", "--tls-key", "none"]  # whatever variables say
    service = children.start("service", command)
    began, is_emitted = time.monotonic(), False
    async with livejoin.connect_async(url, patience=0) as client:
        while service.poll() is None:
            try:
                await client.readiness()
                return service
            except (livejoin.Unreachable, livejoin.Recovering):
                waited = time.monotonic() - began
            if waited > PATIENCE:
                raise Failure(f"the service is not ready after {PATIENCE:.0f} s: {children.last_words('service')}")
            if waited > 5.0 and not is_emitted:
                print("The service is starting. The first start compiles kernels, which takes up to a minute …", flush=True)
                is_emitted = True
            await asyncio.sleep(TICK / 2)
    raise Failure(f"the service did not start: {children.last_words('service')}")


async def register(client: livejoin.AsyncClient) -> None:
    """Register the relations and views of the demo, except existing ones, and wait until the views are live: their kernels may have to be
    compiled."""
    for name, definition in RELATIONS.items():
        await client.relation(name).create(**definition)
    views = [await client.view(name, view.sql, wait=False) for name, view in VIEWS.items()]
    for view in views:
        await view.wait_until_live()


async def differences(client: livejoin.AsyncClient) -> list[str]:
    """Compare all rows of all views with the known results; return a sentence for each view that differs."""
    found = []
    for name, (rows, total) in expected().items():
        count, emitted = checksum([row async for row in (await client.view(name)).rows()], VIEWS[name].identity)
        if (count, emitted) != (rows, total):
            found.append(f"{name} has {count} rows (checksum {emitted}), expected {rows} (checksum {total}): a bug")
    return found


class Panel:
    """What has arrived in each view, as its follower reports it: a panel that is redrawn in place, or occasional lines in a pipe."""

    def __init__(self) -> None:
        self.live = Live(console=Console(), auto_refresh=False) if sys.stdout.isatty() else None
        self._tallies = {name: {"insert": 0, "delete": 0} for name in VIEWS}
        self._recent: deque[tuple[str, str, str]] = deque(maxlen=RECENT)
        self._line, self._next_line = "", 0.0

    async def follow(self, client: livejoin.AsyncClient, name: str) -> None:
        """Follow a view from its first row on."""
        async for version in (await client.view(name)).follow(snapshot=True):
            for change in version.changes:
                self._tallies[name][change.op] += 1
                self._recent.append(("+" if change.op == "insert" else "−", name, describe(change.row)))

    def show(self, day: date, share: float, road: str) -> None:
        """Show the state of the replay: the date in history, the share of all changes, and how they are sent."""
        counts = {name: tally["insert"] - tally["delete"] for name, tally in self._tallies.items()}
        if self.live is None:
            rows = "  ".join(f"{name} {count:,}" for name, count in counts.items())
            if self._recent and time.monotonic() >= self._next_line and self._line != (line := f"{day}  {rows}  ({road})"):
                self._line, self._next_line = line, time.monotonic() + EVERY
                sign, view, row = self._recent[-1]
                print(f"{line}\n  {sign} {view}: {row}", flush=True)
            return
        head = Table.grid(padding=(0, 2))
        head.add_row(Text(day.isoformat(), "bold"), ProgressBar(1.0, share, width=30), Text(road, "dim"))
        views = Table("view", box=None, pad_edge=False, padding=(0, 2, 0, 0))
        views.columns[0].min_width, views.columns[0].no_wrap = 25, True  # only the description is shortened
        for name in ("rows", "+", "−"):
            views.add_column(name, justify="right", no_wrap=True, min_width=5)
        views.add_column(no_wrap=True)
        for name, tally in self._tallies.items():
            figures = (Text(f"{counts[name]:,}", "bold"), Text(f"{tally['insert']:,}", "green"), Text(f"{tally['delete']:,}", "red"))
            views.add_row(name, *figures, VIEWS[name].words)
        changes = Text(no_wrap=True, overflow="ellipsis")
        for sign, name, row in self._recent:
            changes.append(f"{sign} {name:<26} {row}\n", "green" if sign == "+" else "red")
        self.live.update(Group(Text(), head, Text(), views, Text(), changes), refresh=True)


def describe(row: Mapping[str, Any]) -> str:
    """Return a row's names, and the common period."""
    names = [str(value) for column, value in row.items() if isinstance(value, str) and not column.startswith("together")]
    return f"{', '.join(names)}  {row['together_start']} to {row['together_end'] or 'now'}"


class Replay:
    """Sends all changes, each at its time: `pace` years of history per second from `SWITCH` on."""

    def __init__(self, client: livejoin.AsyncClient, panel: Panel, pace: float, kafka: Kafka | None) -> None:
        self._client, self._panel, self._pace, self._kafka = client, panel, pace, kafka
        self._changes = history()
        self._day = float(self._changes[0].day.toordinal())
        self._sent = self._batches = 0
        self._late = bisect_left(self._changes, SWITCH, key=_day_of)  # the first change that is sent through Kafka

    async def run(self) -> None:
        """Return when all changes have arrived. Raises Failure if rows of a view are not as they must be then."""
        try:
            await self._send_until(self._late, SWITCH, self._pace * EARLY)
            if self._kafka is not None:
                await self._reach_kafka(self._kafka)
            await self._send_until(len(self._changes), self._changes[-1].day, self._pace)
            await self._arrive(self._kafka)
        except RoadClosed as closed:
            # What may be lost in Kafka is sent again: the changes are upserts, so nothing is duplicated.
            print(f"{closed}. The changes since {SWITCH.year} are sent by REST.", flush=True)
            if self._kafka is not None:
                self._kafka.close()
            self._kafka, self._sent = None, min(self._sent, self._late)
            await self.run()

    async def _send_until(self, end: int, last: date, speed: float) -> None:
        """Send the changes up to number `end`, and reach the day `last`."""
        clock = time.monotonic()
        while self._sent < end or self._day < last.toordinal():
            now = time.monotonic()
            self._day, clock = min(self._day + (now - clock) * speed * YEAR, last.toordinal()), now
            await self._send(bisect_right(self._changes, date.fromordinal(int(self._day)), self._sent, end, key=_day_of))
            await self._tick()

    async def _send(self, end: int) -> None:
        """Send the changes up to this one."""
        changes, self._sent = self._changes[self._sent : end], end
        if changes and self._kafka is not None and end > self._late and (records := self._kafka.records) is not None:
            records.send(changes)
        elif changes:
            self._batches += 1
            body = json.dumps({"changes": [change.to_rest() for change in changes]}).encode()
            await self._client.post_changes(body, "application/json", "history", self._batches)

    async def _reach_kafka(self, kafka: Kafka) -> None:
        """Wait until Kafka takes changes, and until the first of them have arrived through Spark."""
        while kafka.records is None:
            await self._tick()
        await self._send(bisect_right(self._changes, self._changes[self._late].day, key=_day_of))
        while not kafka.arrived:
            await self._tick()
        kafka.stage = "through Kafka and Spark"
        self._day = max(self._day, float(self._changes[self._late].day.toordinal()))

    async def _arrive(self, kafka: Kafka | None) -> None:
        """Wait for what is on its way through Kafka and Spark, then compare all rows, and give the followers time for the last panel."""
        while kafka is not None and kafka.records is not None and (late := kafka.records.sent - kafka.arrived):
            kafka.stage = f"through Kafka and Spark: {late:,} left"
            await self._tick()
        if wrong := await differences(self._client):
            raise Failure(wrong[0])
        for _ in range(3):
            await self._tick()

    async def _tick(self) -> None:
        """Show the state, and let some time pass. Raises RoadClosed if Kafka or Spark has failed."""
        road = "by REST"
        if self._kafka is not None:
            if self._kafka.task.done():
                self._kafka.task.result()
            road = self._kafka.stage if self._day >= SWITCH.toordinal() else "by REST, while Kafka and Spark start"
        first, last = self._changes[0].day, self._changes[-1].day
        day = date.fromordinal(int(self._day))
        self._panel.show(day, _seconds(first, day) / _seconds(first, last), road)
        await asyncio.sleep(TICK)


def _day_of(change: Change) -> date:
    return change.day


def _seconds(first: date, day: date) -> float:
    """Return the duration of the replay from one day to another, at a pace of one day per second from SWITCH on."""
    early, late = (min(day, SWITCH) - first).days, max(0, (day - SWITCH).days)
    return early / EARLY + late


def what_to_try(url: str) -> str:
    """Return commands to paste into another terminal."""
    script = Path(sys.executable).parent / "livejoin"
    if script.exists():
        setup = f'export PATH={shlex.quote(str(script.parent))}:"$PATH" LIVEJOIN_URL={url}'
    else:
        run = f"cd {shlex.quote(str(HOME))} && {shlex.quote(sys.executable)} -m service.cli"
        setup = f'export LIVEJOIN_URL={url}; livejoin() {{ ({run} "$@"); }}'
    sql = "SELECT * FROM senator_terms s JOIN rep_terms r ON s.state = r.state AND overlaps(s.term, r.term)"
    return f"""
Open {url}/#/views/presidents_with_vices in a browser: two centuries as a timeline, live while they pass.
The dashboard of the service is at {url}/. In another terminal, try:

  {setup}
  livejoin watch delegation
  livejoin rows presidents_with_vices --limit 10
  livejoin rows presidents_with_vices --overlaps 1865-01-01,1865-12-31
  livejoin rows delegation --where s.state=WA
  livejoin explain --sql "{sql}"
  curl -s '{url}/v1/views/delegation/count'
  curl -sN '{url}/v1/views/same_state_senators/changes?snapshot=true'
"""


def produce(url: str, brokers: str, pace: float) -> int:
    """Register the relations and views at a running service, create the topics, and produce the history, from 1989 on at `pace` years per
    second, for a `livejoin stream` as in `docker-compose.yml`.

    Existing topics are left alone: their records have been produced already. Raises Failure.
    """
    if lacking := not_installed("confluent_kafka"):
        raise Failure(lacking)
    say(f"waiting for the service at {url} and the Kafka brokers at {brokers}, {PATIENCE:g} s at most for each")
    try:
        asyncio.run(_produce(url, Records(brokers), brokers, pace))
    except (livejoin.LivejoinError, RoadClosed) as error:
        raise Failure(str(error)) from error
    return 0


async def _produce(url: str, records: Records, brokers: str, pace: float) -> None:
    async with livejoin.connect_async(url, patience=PATIENCE) as client:
        await register(client)
    until = time.monotonic() + PATIENCE
    while (topics := records.topics()) is None:
        if time.monotonic() > until:
            raise Failure(f"no Kafka broker answers at {brokers}: start it, or correct --brokers")
        await asyncio.sleep(0.5)
    if f"{PREFIX}rep_terms" in topics:
        print("The topics of the demo exist already; nothing is produced.", flush=True)
        return
    records.open()
    for year, group in groupby(history(), lambda change: change.day.year):
        changes = list(group)
        records.send(changes)
        print(f"{year}: {len(changes)} records produced", flush=True)
        await asyncio.sleep(1 / pace if year >= SWITCH.year else 1 / pace / EARLY)
    print("All records are produced.", flush=True)
