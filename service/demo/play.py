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
from datetime import date, timedelta
from itertools import groupby
from math import inf
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
from service.demo.history import PREFIX, RELATIONS, VIEWS, Change, checksum, history
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
    kafka = Kafka(children, url, prepare) if lacking is None else None
    if kafka is not None:
        next(kafka.stages)  # its start takes as long as that of the views
    await register(url, PATIENCE_OF_REQUESTS)
    print(what_to_try(url), flush=True)
    if lacking is not None:
        print(f"Running without Kafka and Spark ({lacking}): all changes are sent by REST.\n", flush=True)
    panel = Panel()
    async with livejoin.connect_async(url, patience=PATIENCE_OF_REQUESTS) as client:
        followers = [asyncio.create_task(panel.follow(client, name)) for name in VIEWS]
        try:
            with panel.live or nullcontext():
                await Replay(client, panel, pace, kafka).run()
            emitted = ", ".join(f"{name} {view['rows']:,}" for name, view in VIEWS.items())
            print(f"\nAll changes have arrived. Row counts and checksums match the known results: {emitted} rows.", flush=True)
            print("The service keeps running. Press Ctrl-C to stop it and delete its data.", flush=True)
            while service.poll() is None:
                await asyncio.sleep(TICK)
            raise Failure(f"the service has stopped: {children.last_words('service')}")
        finally:
            for follower in followers:
                follower.cancel()
            await asyncio.gather(*followers, return_exceptions=True)  # they disconnect before the service ends


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
    address = "--host", HOST, "--port", url.rpartition(":")[2], "--tls-certificate", "none", "--tls-key", "none"  # whatever variables say
    service = children.start("service", sys.executable, "-m", "service.cli", "serve", "--data", str(children.folder / "data"), *address)
    patient = time.monotonic() + 5
    async with livejoin.connect_async(url, patience=0) as client:
        while service.poll() is None:
            try:
                await client.readiness()
                return service
            except (livejoin.Unreachable, livejoin.Recovering):
                await asyncio.sleep(TICK / 2)
            if time.monotonic() > patient:
                print("The service is starting. The first start compiles kernels, which takes up to a minute …", flush=True)
                patient = inf
    raise Failure(f"the service did not start: {children.last_words('service')}")


async def register(url: str, patience: float) -> None:
    """Register the relations and views of the demo, except existing ones, and wait until the views are live: their kernels may have to be
    compiled."""
    async with livejoin.connect_async(url, patience=patience) as client:
        for name, definition in RELATIONS.items():
            await client.relation(name).create(**definition)
        views = [await client.view(name, view["sql"], wait=False) for name, view in VIEWS.items()]
        for view in views:
            await view.wait_until_live()


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
        """Show the state of the replay: the date in history, the share of the replay, and how changes are sent."""
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
            views.add_row(name, *figures, VIEWS[name]["words"])
        changes = Text(no_wrap=True, overflow="ellipsis")
        for sign, name, row in self._recent:
            changes.append(f"{sign} {name:<26} {row}\n", "green" if sign == "+" else "red")
        self.live.update(Group(Text(), head, Text(), views, Text(), changes), refresh=True)


def describe(row: Mapping[str, Any]) -> str:
    """Return a row's names, and the common period."""
    names = [str(value) for column, value in row.items() if isinstance(value, str) and not column.startswith("together")]
    return f"{', '.join(names)}  {row['together_start']} to {row['together_end'] or 'now'}"


class Replay:
    """Sends all changes, each at its time: `pace` years of history per second from `SWITCH` on, and EARLY times as many before."""

    def __init__(self, client: livejoin.AsyncClient, panel: Panel, pace: float, kafka: Kafka | None) -> None:
        self._client, self._panel, self._pace, self._kafka = client, panel, pace, kafka
        self._changes = history()
        self._sent = self._batches = 0
        self._late = bisect_left(self._changes, SWITCH, key=_day_of)  # the first change that is sent through Kafka

    async def run(self) -> None:
        """Return when all changes have arrived. Raises Failure if rows of a view are not as they must be then."""
        first, last, switched = self._changes[0].day, self._changes[-1].day, self._changes[self._late].day
        await self._pass(first, SWITCH - timedelta(1), self._pace * EARLY)
        while self._kafka is not None and not self._kafka.arrived:
            await self._tick(switched)
        await self._pass(switched, last, self._pace)
        while self._sent < len(self._changes) or (self._kafka is not None and self._kafka.arrived < len(self._changes) - self._late):
            await self._tick(last)
        for name, view in VIEWS.items():
            found = checksum([row async for row in (await self._client.view(name)).rows()], view["checked"])
            if found != (known := (view["rows"], view["checksum"])):
                raise Failure(f"{name} has {found[0]} rows (checksum {found[1]}), expected {known[0]} (checksum {known[1]}): a bug")
        for _ in range(3):  # for the followers, until the last panel
            await self._tick(last)

    async def _pass(self, start: date, end: date, speed: float) -> None:
        """Let the days pass at this speed."""
        began, length = time.monotonic(), (end - start).days
        day = start
        while day < end:
            day = start + timedelta(min(length, (time.monotonic() - began) * speed * YEAR))
            await self._tick(day)

    async def _tick(self, day: date) -> None:
        """Send what is due on this day, show the state, and let some time pass."""
        road = "by REST"
        try:
            if self._kafka is not None:
                stage = next(self._kafka.stages)
                road = stage if day >= SWITCH else "by REST, while Kafka and Spark start"
            await self._send(day)
        except RoadClosed as closed:
            # What may be lost in Kafka is sent again: the changes are upserts, so nothing is duplicated.
            print(f"{closed}. The changes since {SWITCH.year} are sent by REST.", flush=True)
            if self._kafka is not None:
                self._kafka.close()
            self._kafka, self._sent = None, min(self._sent, self._late)
        first, last = self._changes[0].day, self._changes[-1].day
        self._panel.show(day, _seconds(first, day) / _seconds(first, last), road)
        await asyncio.sleep(TICK)

    async def _send(self, day: date) -> None:
        end = bisect_right(self._changes, day, self._sent, key=_day_of)
        changes = self._changes[self._sent : end]
        if self._kafka is not None and day >= SWITCH:
            if self._kafka.records is None:
                return
            self._kafka.records.send(changes)
        elif changes:
            self._batches += 1
            body = json.dumps({"changes": [change.to_rest() for change in changes]}).encode()
            await self._client.post_changes(body, "application/json", "history", self._batches)
        self._sent = end


def _day_of(change: Change) -> date:
    return change.day


def _seconds(first: date, day: date) -> float:
    """Return the duration of the replay from one day to another, at a pace of one day per second from SWITCH on."""
    return (min(day, SWITCH) - first).days / EARLY + max(0, (day - SWITCH).days)


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
        asyncio.run(register(url, PATIENCE))
        records, until = Records(brokers), time.monotonic() + PATIENCE
        while (topics := records.topics()) is None:
            if time.monotonic() > until:
                raise Failure(f"no Kafka broker answers at {brokers}: start it, or correct --brokers")
            time.sleep(TICK)
        if f"{PREFIX}rep_terms" in topics:
            print("The topics of the demo exist already; nothing is produced.", flush=True)
            return 0
        records.open()
        for year, group in groupby(history(), lambda change: change.day.year):
            changes = list(group)
            records.send(changes)
            print(f"{year}: {len(changes)} records produced", flush=True)
            time.sleep(1 / pace if year >= SWITCH.year else 1 / pace / EARLY)
    except (livejoin.LivejoinError, RoadClosed) as error:
        raise Failure(str(error)) from error
    print("All records are produced.", flush=True)
    return 0
