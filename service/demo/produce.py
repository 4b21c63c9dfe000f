"""The demo's records for a service, a broker and a `livejoin stream` that are already running, as in `docker-compose.yml`."""

from __future__ import annotations

import time
from itertools import groupby

import livejoin
from service.demo.history import Change, history
from service.demo.roads import PREFIX, Records, RoadClosed, not_installed
from service.demo.show import EARLY, PATIENCE, SWITCH, register
from service.terminal import Failure, say


def produce(url: str, brokers: str, pace: float) -> int:
    """Register the relations and views, create the topics, and produce the history, from 1989 on at `pace` years per second.

    Existing topics are left alone: their records have been produced already. Raises Failure.
    """
    if missing := not_installed("confluent_kafka"):
        raise Failure(missing)
    records = Records(brokers)
    say(f"waiting for the service at {url} and the Kafka brokers at {brokers}, {PATIENCE:g} s at most for each")
    try:
        with livejoin.connect(url, patience=PATIENCE) as client:
            register(client)
        if f"{PREFIX}rep_terms" in _topics(records, brokers):
            print("The topics of the demo exist already; nothing is produced.", flush=True)
            return 0
        records.open()
        for year, changes in groupby(history(), lambda change: change.day.year):
            _send(records, year, list(changes), pace)
    except (livejoin.LivejoinError, RoadClosed) as error:
        raise Failure(str(error)) from error
    print("All records are produced.", flush=True)
    return 0


def _topics(records: Records, brokers: str) -> set[str]:
    until = time.monotonic() + PATIENCE
    while (topics := records.topics()) is None:
        if time.monotonic() > until:
            raise Failure(f"no Kafka broker answers at {brokers}: start it, or correct --brokers")
        time.sleep(0.5)
    return topics


def _send(records: Records, year: int, changes: list[Change], pace: float) -> None:
    records.send(changes)
    print(f"{year}: {len(changes)} records produced", flush=True)
    time.sleep(1 / pace if year >= SWITCH.year else 1 / pace / EARLY)
