"""PySpark 4.0, the oldest that the data source supports, in a folder of the virtual environment: no environment has two versions.

`python -m tests.streaming.datasource.oldest_spark` installs it, 430 MB, in a minute the first time; a test that finds none does so itself.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
import tempfile
from pathlib import Path

LOCK = Path(__file__).with_name("pyspark-4.0.lock")
VERSION = next(line.split()[0].partition("==")[2] for line in LOCK.read_text().splitlines() if line.startswith("pyspark=="))
HOME = Path(sys.prefix) / ".cache" / "livejoin" / f"pyspark-{VERSION}"


class NoSpark(Exception):
    """It could not be fetched. The message says what to do."""


def installed() -> Path:
    """The folder with its packages. Several processes may come at once: one installs. Raises NoSpark."""
    HOME.parent.mkdir(parents=True, exist_ok=True)
    with HOME.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not HOME.exists():
            with tempfile.TemporaryDirectory(dir=HOME.parent) as temporary:
                _install(Path(temporary) / "made")
                (Path(temporary) / "made").rename(HOME)
    return HOME


def _install(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--require-hashes", "--no-deps", "--no-build-isolation"]
    done = subprocess.run([*command, "--target", str(folder), "-r", str(LOCK)], capture_output=True, text=True)
    if done.returncode:
        advice = f"where there is a network, run python -m {__spec__.name}, or put the packages of {LOCK} into {HOME}"
        raise NoSpark(f"pip cannot install PySpark {VERSION}: {done.stderr.strip()}\n{advice}")


if __name__ == "__main__":
    try:
        print(f"spark: {installed()}")
    except NoSpark as error:
        sys.exit(f"livejoin: {error}")
