"""The client's wheel, installed beside nothing but its dependencies."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Iterable
from importlib.metadata import distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import livejoin
from deploy.checks.wheels import build
from livejoin.cli import SERVICE
from tests.datasets import ROOT
from tests.server_process import ServerProcess

PROGRAM = """
import asyncio, importlib.metadata, importlib.util, sys
import livejoin
assert all(importlib.util.find_spec(name) is None for name in ("service", "streaming", "structures", "fastapi"))
assert importlib.metadata.version("livejoin-client") == livejoin.__version__ and "httpx" not in sys.modules
assert set(livejoin.__all__) < set(dir(livejoin))
try:
    with livejoin.connect("http://127.0.0.1:9") as lj:
        lj.view("v").count()
except livejoin.Unreachable as error:
    print(error)
"""


def needed(name: str, extra: str = "") -> set[str]:
    """Return what a distribution of this environment needs, with what that needs."""
    found, left = set[str](), list(named(distribution(name).requires or [], extra))
    while left:
        if (one := left.pop()) not in found:
            found.add(one)
            left += named(distribution(one).requires or [])
    return found


def named(requires: list[str], extra: str = "") -> set[str]:
    """Return the names in the requirements that apply here."""
    wanted = map(Requirement, requires)
    return {one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": extra})}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the client's wheel."""
    return build(tmp_path_factory.mktemp("wheels"))[0]


def installed(wheel: Path, folder: Path, extra: str = "") -> Path:
    """Return the Python of a new environment with the wheel and what it needs, which is linked from where the tests run: there may be no
    network."""
    venv.create(folder)
    python = folder / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--quiet", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(command, check=True, capture_output=True, env={})
    (site,) = folder.glob("lib/python*/site-packages")
    (own,) = distributions(name="livejoin-client", path=[str(site)])
    linked(site, {one for need in named(own.requires or [], extra) for one in {need, *needed(need)}})
    return python


def linked(site: Path, names: Iterable[str]) -> None:
    """Link these distributions of this environment into another one's packages."""
    for name in names:
        for file in distribution(name).files or []:
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (site / top).exists():
                (site / top).symlink_to(Path(str(distribution(name).locate_file(top))))


def said(*command: str | Path, url: str = "http://127.0.0.1:9") -> tuple[int, str]:
    """Return the status of a command and its output, with nothing of this environment but the address of a service."""
    done = subprocess.run(command, env={"LIVEJOIN_URL": url}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def test_the_wheel_needs_only_what_it_names(wheel: Path, tmp_path: Path) -> None:
    python = installed(wheel, tmp_path / "venv")
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    assert (site / "livejoin" / "py.typed").exists() and (site / "livejoin" / "_sync" / "client.py").exists()
    (licence,) = site.glob("livejoin_client-*.dist-info/licenses/LICENSE")
    assert licence.read_text() == (ROOT / "LICENSE").read_text()
    (own,) = distributions(name="livejoin-client", path=[str(site)])
    assert named(own.requires or []) == {"httpx", "orjson", "pyarrow", "rich"}
    status, emitted = said(python, "-I", "-c", PROGRAM)
    assert status == 0 and "no service answers" in emitted, emitted


def test_commands_without_the_service(wheel: Path, tmp_path: Path, server: ServerProcess) -> None:
    """Each works with what the client needs alone; the others say what to install."""
    command = installed(wheel, tmp_path / "venv", "files").with_name("livejoin")
    (tmp_path / "stays.csv").write_text("id,room,s,e\n1,A,1,5\n2,A,3,9\n")
    sql = "SELECT a.id AS x, b.id AS y FROM stays a JOIN stays b ON a.room = b.room AND overlaps(a.stay, b.stay) AND a.id < b.id"
    for arguments, words in (
        (["load", "stays", str(tmp_path / "stays.csv"), "--key", "id", "--interval", "stay=s,e"], "stays: 2 rows loaded"),
        (["explain", "--sql", sql], '"algorithm"'),
        (["view", "clashes", "--sql", sql], "clashes is live"),
        (["rows", "clashes"], '{"x":1,"y":2}'),
        (["query", "SELECT count(*) AS n FROM stays"], '{"n":2}'),
        (["top", "--interval", "0.1"], "clashes"),
        (["backup", str(tmp_path / "backup")], "backup     "),
        (["dump", str(tmp_path / "definitions")], "1 relation, 1 view"),
        (["apply", str(tmp_path / "definitions")], "nothing to do"),
        (["drop", "view", "clashes"], "clashes"),
        (["--version"], f"livejoin {livejoin.__version__}"),
    ):
        status, emitted = said(command, *arguments, url=server.url)
        assert status == 0 and words in emitted, emitted
    for name in SERVICE:
        message = f"livejoin: {name} is a command of the service, which is not installed here: install the package livejoin\n"
        assert name in said(command, "--help")[1] and said(command, name) == (1, message)


def test_load_says_what_it_needs(wheel: Path, tmp_path: Path) -> None:
    python = installed(wheel, tmp_path / "venv")
    assert said(python, "-m", "livejoin", "load", "--help") == (
        1, "livejoin: load needs numpy, which is not installed: install livejoin-client[files]\n",
    )  # fmt: skip
    assert said(python, "-m", "livejoin", "rows", "--help")[0] == 0


LOOKUP = """
from importlib import import_module
from pkgutil import iter_modules
(found,) = [import_module(one.name) for one in iter_modules() if one.name == "pyspark_livejoin"]
assert found.DefaultSource.name() == "livejoin", found
try:
    from pyspark_livejoin import overlap_join
except ImportError as error:
    print(error)
"""
"""As Spark looks for data sources; then a join, which needs the service."""


def test_spark_brings_its_own_pyspark(wheel: Path, tmp_path: Path) -> None:
    """Seen: the extra brought another PySpark, and a folder named like a package of the service hid the data source."""
    python = installed(wheel, tmp_path / "venv", "spark")
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (own,) = distributions(name="livejoin-client", path=[str(site)])
    assert named(own.requires or [], "spark") - named(own.requires or []) == {"pandas"}
    status, emitted = said(python, "-c", "import pyspark_livejoin")
    assert status == 1 and "needs PySpark 4.0 or newer, as the cluster has it: pip install pyspark" in emitted
    linked(site, ("pyspark", "py4j"))
    (tmp_path / "look.py").write_text(LOOKUP)
    needs = "joins on a cluster need the package livejoin[spark], not installed or hidden here: No module named 'streaming"
    for hiding in ("", "pass", "raise ImportError('no library')"):
        if hiding:
            for name in ("service", "streaming", "structures"):
                (tmp_path / name).mkdir(exist_ok=True)
                (tmp_path / name / "__init__.py").write_text(hiding)
        status, emitted = said(python, tmp_path / "look.py")
        assert status == 0 and (needs in emitted if "raise" not in hiding else emitted == "no library\n"), emitted


def test_spark_finds_the_data_source_in_this_environment() -> None:
    """`make setup` puts the client on the path: Spark lists what is there, and sees nothing that an import hook would find."""
    status, emitted = said(sys.executable, "-c", "import pkgutil; print(*(one.name for one in pkgutil.iter_modules()), sep='\\n')")
    assert status == 0 and "pyspark_livejoin" in emitted.split(), "an older installation of the client: run make setup"
