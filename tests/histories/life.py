"""The life of a data folder: clients at work during several starts of the service."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from random import Random

from tests.faults import patches
from tests.faults.patches import Patch
from tests.histories.clients import Clients
from tests.histories.history import Event
from tests.server_process import ServerProcess


def lived(folder: Path, seed: int, *bugs: Patch, starts: int = 3, steps: int = 15, kills: float = 0.6) -> list[Event]:
    """Return the history of this number of starts of the service. Between them, the service is killed at work (with probability `kills`) or
    stopped."""
    chance = Random(seed)
    clients = Clients(seed, writers=chance.randrange(1, 4))
    before = partial(patches.apply, patches.small, *bugs)
    environment = {"LIVEJOIN_SYNCHRONOUS": chance.choice(("full", "normal"))}
    for number in range(starts):
        with ServerProcess(folder, before=before, environment=environment) as server:
            client = server.client()
            clients.start(client)
            killed = chance.random() < kills

            def strike(server: ServerProcess = server, killed: bool = killed) -> None:
                if killed:
                    time.sleep(chance.random() * 0.25)
                    server.kill()

            clients.work(server.url, steps, strike if number < starts - 1 else None)
            if number == starts - 1:
                clients.settle(client)
            if not killed:
                assert server.stop() == 0, server.output()
    return clients.history.events
