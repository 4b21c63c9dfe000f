"""The Java archives of Kafka's broker and of Spark's Kafka connector, locked and cached.

`jars.lock` names each file once, by line: group (`broker` or `spark`), Maven coordinates, SHA-256. Files that are missing
from the cache folder (LIVEJOIN_JARS, by default `livejoin/jars` in the user's cache folder) are downloaded by `mvn`
if it is installed, else by the Ivy that comes with pyspark; both use their own configuration of repositories. The cache
is verified on every use and needs no network.

    python -m streaming.jars            downloads what is missing
    python -m streaming.jars --spark    downloads the connector only and prints its files, for spark-submit's --jars
    python -m streaming.jars --lock     writes jars.lock from ROOTS (needs mvn)
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

from streaming.errors import StreamError
from streaming.java import find_java

LOCK = Path(__file__).with_name("jars.lock")
# The broker with all its dependencies, the connector without those that Spark has already.
ROOTS = {
    "broker": ["org.apache.kafka:kafka_2.13:4.3.1", "org.slf4j:slf4j-simple:1.7.36"],
    "spark": [
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
    ],
}
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"


class Jar(NamedTuple):
    """One archive: `coordinates` as group:artifact:version, `sha256` in hexadecimal."""

    coordinates: str
    sha256: str = ""

    @property
    def file(self) -> str:
        _, artifact, version = self.coordinates.split(":")
        return f"{artifact}-{version}.jar"


def jars(group: str) -> list[Path]:
    """The verified files of a group ("broker" or "spark"), downloaded first if the cache lacks them.

    Raises StreamError when they cannot be downloaded or are not the locked ones. About 0.1 s when they are cached.
    """
    folder = cache_folder()
    if missing := lacking(group):
        _fetch(missing, folder)
    return [folder / jar.file for jar in read_lock()[group]]


def lacking(group: str) -> list[Jar]:
    """The archives of a group that the cache does not have in the locked version."""
    folder = cache_folder()
    return [jar for jar in read_lock()[group] if not _is_whole(folder / jar.file, jar)]


def cache_folder() -> Path:
    """The folder of the archives."""
    if own := os.environ.get("LIVEJOIN_JARS"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "livejoin" / "jars"


def read_lock() -> dict[str, list[Jar]]:
    """The locked archives by group."""
    locked: dict[str, list[Jar]] = {group: [] for group in ROOTS}
    for line in LOCK.read_text().splitlines():
        group, coordinates, sha256 = line.split()
        locked[group].append(Jar(coordinates, sha256))
    return locked


def _is_whole(path: Path, jar: Jar) -> bool:
    return path.is_file() and _sha256(path) == jar.sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(missing: Sequence[Jar], folder: Path) -> None:
    """Downloads, verifies, and only then moves each file to its place: the cache never has an incomplete file."""
    java = find_java()
    print(f"livejoin: fetching {len(missing)} Java archives into {folder}", file=sys.stderr, flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder) as temporary:
        work = Path(temporary)
        if shutil.which("mvn"):
            _fetch_by_maven(missing, work)
        else:
            _fetch_by_ivy(missing, work, java)
        for jar in missing:
            got = work / "jars" / jar.file
            if not got.is_file():
                raise StreamError(f"{jar.coordinates} could not be downloaded; check the network connection and try again")
            if _sha256(got) != jar.sha256:
                raise StreamError(f"{jar.coordinates} does not match {LOCK.name} (SHA-256 differs): do not use it")
            got.replace(folder / jar.file)


def _fetch_by_maven(missing: Sequence[Jar], work: Path) -> None:
    _write_pom(missing, work, transitive=False)
    _run(["mvn", "-B", "-q", f"{_PLUGIN}:copy-dependencies", f"-DoutputDirectory={work / 'jars'}"], work)


def _fetch_by_ivy(missing: Sequence[Jar], work: Path, java: Path) -> None:
    import pyspark

    ivy = next(Path(pyspark.__file__).parent.joinpath("jars").glob("ivy-*.jar"))
    dependencies = ""
    for jar in missing:
        organisation, name, revision = (quoteattr(part) for part in jar.coordinates.split(":"))
        dependencies += f'<dependency org={organisation} name={name} rev={revision} transitive="false" conf="all->master"/>'
    (work / "ivy.xml").write_text(
        '<ivy-module version="2.0"><info organisation="livejoin" module="jars"/><configurations><conf name="all"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
    (work / "settings.xml").write_text(
        f'<ivysettings><settings defaultResolver="found"/><caches defaultCacheDir={quoteattr(str(work / "ivy"))}/>'
        '<resolvers><chain name="found"><ibiblio name="central" m2compatible="true" usepoms="true"/></chain></resolvers></ivysettings>'
    )
    command = [str(java), "-jar", str(ivy), "-settings", "settings.xml", "-ivy", "ivy.xml", "-types", "jar", "bundle"]
    _run([*command, "-retrieve", "jars/[artifact]-[revision].[ext]", "-error"], work)


def _write_pom(wanted: Sequence[Jar], work: Path, transitive: bool) -> None:
    exclusions = "" if transitive else "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    dependencies = ""
    for jar in wanted:
        group, artifact, version = jar.coordinates.split(":")
        coordinates = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        dependencies += f"<dependency>{coordinates}{exclusions}</dependency>"
    (work / "pom.xml").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>livejoin</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def _run(command: list[str], work: Path) -> None:
    done = subprocess.run(command, cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        raise StreamError(f"{Path(command[0]).name} could not fetch the Java archives:\n" + "\n".join(lines[-12:]))


def write_lock() -> None:
    """Resolves ROOTS by Maven and writes jars.lock."""
    lines = []
    for group, roots in ROOTS.items():
        with tempfile.TemporaryDirectory() as temporary:
            work = Path(temporary)
            _write_pom([Jar(root) for root in roots], work, transitive=group == "broker")
            scope = "-DincludeScope=runtime"
            _run(["mvn", "-B", "-q", f"{_PLUGIN}:list", "-DoutputFile=list", scope], work)
            _run(["mvn", "-B", "-q", f"{_PLUGIN}:copy-dependencies", f"-DoutputDirectory={work / 'jars'}", scope], work)
            for found in re.finditer(r"^ *([^: ]+):([^: ]+):jar:([^: ]+):\w+", (work / "list").read_text(), re.MULTILINE):
                jar = Jar(":".join(found.groups()))
                lines.append(f"{group} {jar.coordinates} {_sha256(work / 'jars' / jar.file)}\n")
    LOCK.write_text("".join(sorted(lines)))


def main(arguments: list[str]) -> int:
    try:
        if arguments == ["--spark"]:
            print(",".join(map(str, jars("spark"))))
            return 0
        if arguments == ["--lock"]:
            write_lock()
        for group in ROOTS:
            jars(group)
    except StreamError as error:
        print(f"livejoin: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
