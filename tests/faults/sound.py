"""Whether a service that is started again after a fault has everything that was acknowledged, and nothing wrong."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import httpx

from tests.end_to_end import talk
from tests.histories import batches
from tests.histories.history import Write
from tests.histories.model import COLUMNS, VIEWS, State, row_of


class Lost(AssertionError):
    """Something is missing, wrong or refused."""


def require_sound(client: httpx.Client, states: Sequence[State], writes: Mapping[int, Write], known: int) -> int:
    """Check that all rows are those of one version, which is `known` or newer, and that the sources are at the same version. Return the
    version. Raises Lost."""
    version: int = talk.ok(client.get("/v1/status"))["version"]
    if not known <= version < len(states):
        raise Lost(f"version {version} after version {known} was known; {len(states) - 1} were made")
    if version == 0 and {*COLUMNS} - _names(client):
        return 0  # before everything was defined
    for name in COLUMNS:
        require_rows(client, name, states[version])
    last: dict[str, Write] = {}
    for number in range(1, version + 1):
        last[writes[number].source] = writes[number]
    for source, write in last.items():
        done = talk.ok(batches.send(client, write.changes, source, write.epoch))
        if not done["duplicate"]:
            raise Lost(f"epoch {write.epoch} of {source}, in version {write.version}, was taken again in version {version}")
    return version


def require_rows(client: httpx.Client, name: str, state: State) -> None:
    path = f"/v1/{'views' if name in VIEWS else 'relations'}/{name}/rows"
    answer = client.get(path)
    if answer.status_code != 200:
        raise Lost(f"{path}: {answer.status_code} {answer.text}")
    found = sorted((row_of(name, json.loads(line)) for line in answer.content.splitlines()), key=repr)
    if found != sorted(state.rows(name).values(), key=repr):
        raise Lost(f"{name} has other rows than version {answer.headers['livejoin-version']}")


def require_columns(client: httpx.Client, columns: Iterable[str]) -> None:
    """Check that added columns, named as `relation.column`, exist. Raises Lost."""
    for name in sorted(columns):
        relation, column = name.split(".")
        if column not in {one["name"] for one in talk.ok(client.get(f"/v1/relations/{relation}"))["columns"]}:
            raise Lost(f"{name} was added, and is not there")


def _names(client: httpx.Client) -> set[str]:
    return {one["name"] for kind in ("relations", "views") for one in talk.ok(client.get(f"/v1/{kind}"))[kind]}
