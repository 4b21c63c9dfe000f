"""Finds Java, which Kafka's broker and Spark need, but nothing else in livejoin."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from streaming.errors import StreamError

OLDEST = 17


class NoJava(StreamError):
    """There is no Java that is new enough."""


def find_java() -> Path:
    """The `java` of JAVA_HOME or else of PATH, whichever is at least OLDEST; else NoJava. About 50 ms."""
    seen: list[str] = []
    for path in _candidates():
        version = _major_version(path)
        if version >= OLDEST:
            return path
        seen.append(f"{path} is {f'Java {version}' if version else 'not a working Java'}")
    found = f" ({'; '.join(seen)})" if seen else ""
    raise NoJava(
        f"Kafka and Spark need Java {OLDEST} or newer{found}: install it (Debian and Ubuntu: "
        f"apt install openjdk-{OLDEST}-jre-headless; macOS: brew install openjdk) and add it to PATH or set JAVA_HOME"
    )


def _candidates() -> list[Path]:
    home = os.environ.get("JAVA_HOME")
    in_path = shutil.which("java")
    paths = [Path(home, "bin", "java")] if home else []
    return paths + ([Path(in_path)] if in_path else [])


def _major_version(java: Path) -> int:
    """17 for `openjdk version "17.0.15"`, 8 for `"1.8.0_292"`, 0 when it cannot be run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else 0


if __name__ == "__main__":
    try:
        find_java()
    except NoJava as error:
        sys.exit(f"livejoin: {error}")
