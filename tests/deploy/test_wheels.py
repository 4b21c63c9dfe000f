"""The wheels: reproducible, and a service runs from them in a clean environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from email import message_from_bytes
from email.message import Message
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import httpx
import pytest

from deploy.checks.wheels import build, differences, install
from livejoin import __version__
from livejoin.cli import SERVICE
from service.cli import COMMANDS
from streaming.kafka_broker import free_port
from tests.server_process import ROOT, START_LIMIT, client_of


def metadata(wheel: Path) -> Message:
    (name,) = (name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".dist-info/METADATA"))
    return message_from_bytes(zipfile.ZipFile(wheel).read(name))


def of(wheel: Path) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and group of each entry point of a wheel."""
    (name,) = (name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".dist-info/entry_points.txt"))
    parser = ConfigParser()
    parser.read_string(zipfile.ZipFile(wheel).read(name).decode())
    return ((key, value, group) for group in parser.sections() for key, value in parser[group].items())


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return build(tmp_path_factory.mktemp("wheels"))


def test_the_same_sources_give_the_same_bytes(wheels: list[Path], tmp_path: Path) -> None:
    assert [path.name for path in wheels] == [f"livejoin_client-{__version__}-py3-none-any.whl", f"livejoin-{__version__}-py3-none-any.whl"]
    again = build(tmp_path)
    assert list(differences(wheels, again)) == []
    again[1].write_bytes(again[1].read_bytes()[:-1])
    assert list(differences(wheels, again)) == [f"{wheels[1].name} differs between two builds of the same sources"]


def test_they_are_built_where_only_the_service_is_installed() -> None:
    """As by `make wheels` in a new clone: without the packages of the tests."""
    code = "import sys; sys.modules |= {'yaml': None, 'pytest': None}; import deploy.checks.wheels"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_an_index_takes_them(wheels: list[Path]) -> None:
    """What it shows works there: a readme without relative links, addresses, and what the other distribution must be."""
    client, service = (metadata(path) for path in wheels)
    for one in (client, service):
        assert one.get_all("Project-URL") and one.get_all("Classifier") and one["License-Expression"] == "Apache-2.0"
        assert one["Requires-Python"] == ">=3.11" and one["Version"] == __version__
        assert one["Description-Content-Type"] == "text/markdown" and len(one.get_payload()) > 1000
        assert [link for link in re.findall(r"\]\(([^)]*)\)", one.get_payload()) if not link.startswith("https://")] == []
        assert {"test", "dev", "bench"}.isdisjoint(one.get_all("Provides-Extra"))
    assert {"kafka", "spark"} == {*service.get_all("Provides-Extra")} and {"spark", "files"} <= {*client.get_all("Provides-Extra")}
    assert f"livejoin-client=={__version__}" in service.get_all("Requires-Dist")


def test_they_say_that_they_are_typed_and_what_the_commands_are(wheels: list[Path]) -> None:
    for wheel, packages in zip(wheels, (("livejoin", "pyspark_livejoin"), ("service", "streaming", "structures")), strict=True):
        names = zipfile.ZipFile(wheel).namelist()
        assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {*packages}
        assert all(f"{package}/py.typed" in names for package in packages)
    entries = [EntryPoints(EntryPoint(*one) for one in of(wheel)) for wheel in wheels]
    assert [(one.name, one.value) for one in entries[0].select(group="console_scripts")] == [("livejoin", "livejoin.cli:main")]
    added = {one.name: one.value for one in entries[1]}
    assert {one.group for one in entries[1]} == {"livejoin.commands"} and added == COMMANDS and added.keys() == SERVICE.keys()


READ = """
import sys
from pyspark.sql import SparkSession
from pyspark_livejoin import live_join, overlap_join
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(live_join.__code__.co_filename, *map(tuple, spark.read.format("livejoin").options(url=sys.argv[1], view="v").load().collect()))
"""


def test_a_service_runs_from_them(wheels: list[Path], tmp_path: Path, quick_java: None) -> None:
    """Nothing of the checkout is used: the packages come from the wheels, with their data. Spark finds the data source by itself."""
    command = install(wheels, tmp_path / "clean")
    where = "import livejoin, service, streaming, structures; print(*(m.__path__[0] for m in (livejoin, service, streaming, structures)))"
    packaged = "from streaming.jars import read_lock; from service.demo.history import history; print(len(read_lock()), len(history()))"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"LIVEJOIN_JIT": "off"}
    python = [str(tmp_path / "clean" / "bin" / "python"), "-c", f"{where}; {packaged}"]
    said = subprocess.run(python, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout.split()
    assert all(Path(path).is_relative_to(tmp_path / "clean") for path in said[:4]) and said[4:] == ["2", "5307"]
    port = free_port()
    with subprocess.Popen([command, "serve", "--data", "data", "--port", str(port)], cwd=tmp_path, env=environment) as process:
        try:
            with client_of(f"http://127.0.0.1:{port}") as client:
                serve_something(client, process)
            reads = [python[0], "-c", READ, f"http://127.0.0.1:{port}"]
            read = subprocess.run(reads, cwd=tmp_path, env=environment | {"PYSPARK_PYTHON": python[0]}, capture_output=True, text=True)
            assert read.returncode == 0, read.stderr
            path, rows = read.stdout.splitlines()[-1].split(" ", 1)
            assert Path(path).is_relative_to(tmp_path / "clean") and rows == "(1, 2)"
            process.terminate()
            assert process.wait(30) == 0
        finally:
            process.kill()


def serve_something(client: httpx.Client, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_LIMIT
    while not is_ready(client):
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.02)
    relation = {"columns": [{"name": "a", "type": "int64"}, {"name": "b", "type": "int64"}], "key": ["a"]}
    relation["intervals"] = {"i": {"start": "a", "end": "b"}}
    assert client.put("/v1/relations/r", json=relation).status_code == 201
    view = {"sql": "SELECT x.a AS a, y.a AS c FROM r x JOIN r y ON x.a < y.a AND overlaps(x.i, y.i)"}
    assert client.put("/v1/views/v", json=view).is_success
    while client.get("/v1/views/v").json()["state"] != "live":
        assert time.monotonic() < until
        time.sleep(0.02)
    rows = [{"relation": "r", "op": "upsert", "row": {"a": a, "b": a + 2}} for a in (1, 2, 9)]
    assert client.post("/v1/changes", json={"changes": rows}).json()["applied"] == 3
    assert client.get("/v1/views/v/count").json()["count"] == 1


def is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False
