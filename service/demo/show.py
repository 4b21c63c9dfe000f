"""The demo: starts a service with views, replays two centuries of history into them, and keeps serving until Ctrl-C.

The first two centuries, with few changes, are sent by REST while Kafka and Spark start; from 1989 on, changes go through Kafka and Spark,
if they are available.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from types import FrameType

import livejoin
from service.demo.board import Board, Tally, follow
from service.demo.history import RELATIONS, VIEWS, Change, checksum, expected, history
from service.demo.panel import Lines, Scene, Terminal, panel
from service.demo.roads import HOME, HOST, Children, Kafka, Rest, RoadClosed
from service.terminal import Failure

SWITCH = date(1989, 1, 1)  # from here on there are many changes
EARLY = 20.0  # speed of the replay before that, relative to the speed after it
TICK = 0.2  # seconds between two steps
PATIENCE = 300.0  # seconds for the service to start (compiling), and for the last changes to arrive
PATIENCE_OF_REQUESTS = 3.0  # seconds; Ctrl-C is noticed between requests
YEAR = 365.2425


class Ended(Exception):
    """Ctrl-C or SIGTERM was received."""


class Ending:
    """Records signals and reports them only in a pause, so that the start of a child is never interrupted."""

    def __init__(self) -> None:
        self._came = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = True

    def pause(self, seconds: float) -> None:
        """Wait; raises Ended after a signal."""
        time.sleep(seconds)
        if self._came:
            raise Ended


def play(port: int, pace: float, kafka: bool, prepare: Sequence[str] = ()) -> int:
    """Run the whole demo; return 0 after Ctrl-C or SIGTERM, with all children ended and the folder removed.

    prepare: a command that installs what Kafka and Spark need.
    """
    os.umask(0o077)  # the children's files, logs and Kafka's records, are for nobody else
    ending = Ending()
    stop = threading.Event()
    with _folder() as folder:
        children = Children(folder)
        try:
            _Play(folder, children, ending, stop, f"http://{HOST}:{port}", pace, kafka, prepare).run()
        except Ended:
            print("\nStopping …", flush=True)
        except livejoin.LivejoinError as error:
            raise Failure(f"{error}; the service said: {children.last_words('service')}") from error
        finally:
            stop.set()
            children.close()
    return 0


class _Play:
    def __init__(
        self,
        folder: Path,
        children: Children,
        ending: Ending,
        stop: threading.Event,
        url: str,
        pace: float,
        kafka: bool,
        prepare: Sequence[str],
    ) -> None:
        self._folder, self._children, self._stop, self._url, self._pace = folder, children, stop, url, pace
        self._pause = ending.pause
        self._changes = history()
        self._sent = 0
        self._client = livejoin.connect(url, patience=PATIENCE_OF_REQUESTS)
        self._rest = Rest(self._client)
        self._kafka: Kafka | None = None
        self._kafka_from = 0  # the first change that was sent through Kafka
        self._wanted, self._prepare = kafka, prepare

    def run(self) -> None:
        missing = Kafka.missing(bool(self._prepare)) if self._wanted else "--no-kafka"
        service = self._start_service()
        if missing is None:
            self._kafka = Kafka(self._children, self._folder, self._url, self._prepare)
        register(self._client, wait=False)
        for name in VIEWS:  # their kernels may have to be compiled
            while self._client.view(name).get()["state"] == "building":
                self._pause(TICK)
            self._client.view(name).wait_until_live()
        print(what_to_try(self._url), flush=True)
        if missing is not None:
            print(f"Running without Kafka and Spark ({missing}): all changes are sent by REST.\n", flush=True)
        board = Board({name: Tally() for name in VIEWS})
        for name in VIEWS:
            follow(board, self._url, name, self._stop)
        with panel(board) as shown:
            self._replay(shown)
            self._arrive(shown, service)
        print(self._verdict(), flush=True)
        print("The service keeps running. Press Ctrl-C to stop it and delete its data.", flush=True)
        while service.poll() is None:
            self._pause(TICK)
        raise Failure(f"the service has stopped: {self._children.last_words('service')}")

    def _start_service(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "service.cli", "serve", "--data", str(self._folder / "data"), "--host", HOST]
        command += ["--port", self._url.rpartition(":")[2], "--tls-certificate", "none", "--tls-key", "none"]  # whatever variables say
        service = self._children.start("service", command)
        began = time.monotonic()
        told = False
        while True:
            if service.poll() is not None:
                raise Failure(f"the service did not start: {self._children.last_words('service')}")
            try:
                with livejoin.connect(self._url, patience=0) as client:
                    client.readiness()
                return service
            except (livejoin.Unreachable, livejoin.Recovering):
                pass
            waited = time.monotonic() - began
            if waited > PATIENCE:
                raise Failure(f"the service is not ready after {PATIENCE:.0f} s: {self._children.last_words('service')}")
            if waited > 5.0 and not told:
                print("The service is starting. The first start compiles kernels, which takes up to a minute …", flush=True)
                told = True
            self._pause(0.1)

    def _replay(self, shown: Terminal | Lines) -> None:
        """Send all changes, each at its time."""
        day, clock, running = float(self._changes[0].day.toordinal()), time.monotonic(), False
        while self._sent < len(self._changes):
            now = time.monotonic()
            years, clock = (now - clock) * self._pace, now
            try:
                if self._kafka is not None:
                    self._kafka.step()
                early = day < SWITCH.toordinal()
                if early:
                    day = min(day + years * EARLY * YEAR, SWITCH.toordinal())
                elif self._kafka is None or running:
                    day += years * YEAR
                elif self._kafka.open:
                    running = self._first_batch(self._kafka)
                    day = max(day, self._changes[self._sent - 1].day.toordinal())
                self._send_until(date.fromordinal(int(day)), early)
                shown.show(self._scene(date.fromordinal(int(day)), early, running))
            except RoadClosed as closed:
                self._leave_kafka(shown, closed)
            self._pause(TICK)

    def _leave_kafka(self, shown: Terminal | Lines, closed: RoadClosed) -> None:
        """Send everything that may be lost in Kafka again by REST: the changes are upserts, so nothing is duplicated."""
        shown.note(f"{closed}. The changes since {SWITCH.year} are sent by REST.")
        self._kafka = None
        self._sent = self._kafka_from or self._sent

    def _first_batch(self, kafka: Kafka) -> bool:
        """Send the first changes through Kafka, and return whether they have arrived through Spark."""
        if not self._kafka_from:
            self._kafka_from = self._sent
            self._before = self._version()
            self._send_until(self._changes[self._sent].day, False)
        if self._version() == self._before:
            return False
        kafka.stage = "through Kafka and Spark"
        return True

    def _version(self) -> int:
        version: int = self._client.view("delegation").get()["version"]
        return version

    def _send_until(self, day: date, early: bool) -> None:
        due: list[Change] = []
        while self._sent + len(due) < len(self._changes) and self._changes[self._sent + len(due)].day <= day:
            due.append(self._changes[self._sent + len(due)])
        if due:
            road = self._rest if early or self._kafka is None else self._kafka
            road.send(due)
            self._sent += len(due)

    def _scene(self, day: date, early: bool, running: bool) -> Scene:
        if self._kafka is None:
            road = "by REST"
        elif early:
            road = "by REST, while Kafka and Spark start"
        else:
            road = self._kafka.stage if running else f"{self._kafka.stage} …"
        first, last = self._changes[0].day, self._changes[-1].day
        day = min(day, last)
        return Scene(day, _seconds(first, day) / _seconds(first, last), road)

    def _arrive(self, shown: Terminal | Lines, service: subprocess.Popen[bytes]) -> None:
        """Wait until the last changes are in the views."""
        counts = {name: rows for name, (rows, _) in expected().items()}
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and service.poll() is None:
            shown.show(self._scene(self._changes[-1].day, False, True))
            if all(self._client.view(name).count() == rows for name, rows in counts.items()):
                self._pause(2 * TICK)  # for the followers, so that the last panel is complete
                shown.show(self._scene(self._changes[-1].day, False, True))
                return
            try:
                if self._kafka is not None:
                    self._kafka.step()
            except RoadClosed as closed:
                self._leave_kafka(shown, closed)
                self._send_until(self._changes[-1].day, False)
            self._pause(TICK)

    def _verdict(self) -> str:
        """Compare all rows of all views with the known results. Raises Failure if they differ."""
        told = []
        for name, answer in expected().items():
            found = checksum(self._client.view(name).rows(), VIEWS[name].identity)
            if found != answer:
                raise Failure(f"{name} has {found[0]} rows (checksum {found[1]}), expected {answer[0]} (checksum {answer[1]}): a bug")
            told.append(f"{name} {found[0]:,}")
        return f"\nAll changes have arrived. Row counts and checksums match the known results: {', '.join(told)} rows."


def register(client: livejoin.Client, wait: bool = True) -> None:
    """Register the relations and views of the demo, except existing ones. `wait`: until the views are live."""
    for name, definition in RELATIONS.items():
        client.relation(name).create(**definition)
    for name, view in VIEWS.items():
        client.view(name, view.sql, wait=wait)


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


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="livejoin-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
