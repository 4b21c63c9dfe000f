"""A service with bookings and jobs, whose clashes are a view."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

import livejoin
from tests.client.hotel import Hotel
from tests.server_process import ServerProcess

_numbers = count()


@pytest.fixture
def lj(shared_server: ServerProcess) -> Iterator[livejoin.Client]:
    with livejoin.connect(shared_server.url) as client:
        yield client


@pytest.fixture
def hotel(lj: livejoin.Client) -> Hotel:
    """Relations and a view of this test only, on the shared server."""
    return Hotel(lj, f"_of_client_{next(_numbers)}")
