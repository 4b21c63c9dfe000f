"""One server per module, on a folder of its own."""
from __future__ import annotations

import itertools
from collections.abc import Iterator

import httpx
import pytest

from tests.end_to_end.bookings import Case
from tests.server_process import ServerProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("server") / "data"
    with ServerProcess(folder, environment={"LIVEJOIN_SYNCHRONOUS": "normal"}) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> httpx.Client:
    return server.client()


_numbers = itertools.count(1)


@pytest.fixture
def case(client: httpx.Client) -> Case:
    """Names for one test on the module's server."""
    return Case(client, next(_numbers))


@pytest.fixture
def live(case: Case) -> Case:
    return case.live()
