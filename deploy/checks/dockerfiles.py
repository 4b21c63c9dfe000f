"""The Dockerfiles: rules on their instructions; and the locks that they install from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from deploy.checks.files import DEPLOY, ROOT, is_pinned

FILES = sorted((DEPLOY / "docker").glob("*.Dockerfile"))
LOCKS = sorted((DEPLOY / "docker").glob("*.lock"))


class Instruction(NamedTuple):
    """One instruction, its continued lines joined."""

    word: str
    rest: str


def instructions(text: str) -> list[Instruction]:
    lines = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    found = []
    for line in re.sub(r"\\\n\s*", "", lines).splitlines():
        word, _, rest = line.strip().partition(" ")
        if word:
            found.append(Instruction(word.upper(), " ".join(rest.split())))
    return found


def stages(found: list[Instruction]) -> list[list[Instruction]]:
    """The instructions by stage, each beginning with its FROM."""
    parts: list[list[Instruction]] = []
    for one in found:
        if one.word == "FROM":
            parts.append([])
        if parts:
            parts[-1].append(one)
    return parts


def complaints(text: str) -> Iterator[str]:
    found = instructions(text)
    parts = stages(found)
    named: set[str] = set()
    for part in parts:
        image, _, name = part[0].rest.partition(" AS ")
        if image.replace("${TARGETARCH}", "amd64") not in named and not is_pinned(image):
            yield f"FROM {image}: neither a stage nor an image with a version"
        named.add(name)
        variables = " ".join(one.rest for one in part if one.word == "ENV")
        if ("NUMBA_CPU_NAME=" in variables) != ("NUMBA_CPU_FEATURES=" in variables):
            yield f"FROM {part[0].rest}: the cache of kernels depends on both NUMBA_CPU_NAME and NUMBA_CPU_FEATURES"
    for one in found:
        yield from (f"{one.word} {one.rest[:60]}: {complaint}" for complaint in _judge(one))
    yield from _last(parts[-1])


def _judge(one: Instruction) -> Iterator[str]:
    if one.word == "ADD":
        yield "use COPY"
    if one.word in ("ENV", "ARG") and re.search(r"TOKEN|PASSWORD|SECRET", one.rest):
        yield "a secret would stay in the image"
    if one.word == "RUN":
        yield from _run(one.rest)
    if one.word == "COPY" and not one.rest.startswith("--from"):
        *sources, _ = one.rest.split()
        yield from (f"{source} does not exist" for source in sources if not (ROOT / source).exists())


def _run(command: str) -> Iterator[str]:
    if "apt-get install" in command and ("--no-install-recommends" not in command or "rm -rf /var/lib/apt/lists" not in command):
        yield "install with --no-install-recommends, and remove the lists of apt"
    if re.search(r"\b(curl|wget|git) ", command):
        yield "nothing vouches for what is fetched"
    for part in command.split("&&"):
        if "pip install" in part and "--require-hashes" not in part and "--no-build-isolation /src/" not in part:
            yield "packages come from a lock with hashes, or from /src"


def _last(stage: list[Instruction]) -> Iterator[str]:
    """The stage that becomes the image."""
    users = [one.rest for one in stage if one.word == "USER"]
    if not users or not re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1]):
        yield "the image has no USER by number, which Kubernetes needs to know that it is not root"
    entry = [one.rest for one in stage if one.word == "ENTRYPOINT"]
    if not entry or not isinstance(_json(entry[-1]), list):
        yield "ENTRYPOINT must be a JSON list, or a shell keeps the signals"


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def pins(text: str) -> dict[str, set[str]]:
    """Hashes by pinned requirement."""
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if line and not line[0].isspace() and line[0] != "#":
            current = found.setdefault(line.removesuffix("\\").strip(), set())
        elif "--hash=" in line:
            current.add(line.strip().removesuffix("\\").strip())
    return found


def strange_pins(lock: str, whole: str) -> Iterator[str]:
    """What a lock of an image has that requirements.lock does not have."""
    known = {pin.partition(" ;")[0]: hashes for pin, hashes in pins(whole).items()}
    for pin, hashes in pins(lock).items():
        pin = pin.partition(" ;")[0]
        if not hashes or hashes != known.get(pin):
            yield f"{pin} is not as in requirements.lock: run `make lock`"
