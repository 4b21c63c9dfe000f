"""The images, built by buildah from the Dockerfiles, and the service started in its image by podman as docker-compose.yml declares it.

No registry is needed: Debian's Python from debootstrap stands for the official image of Python, under its name, in a storage of our own.
What cannot be seen so is that image itself, and BuildKit.
"""

from __future__ import annotations

import json
import os
import platform
import re
import secrets
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from deploy.checks.compose import FILE
from deploy.checks.dockerfiles import instructions
from deploy.checks.files import DEPLOY, ROOT, read_yaml
from deploy.checks.tools import Missing, find
from livejoin import __version__
from streaming.kafka_broker import free_port

SUITE = "bookworm"
MOST_BYTES = {"livejoin": 850 * 10**6, "livejoin-stream": 1500 * 10**6}
OFFICIAL_BYTES = 130 * 10**6  # of the official image; ours counts as that
READY_SECONDS = 5.0
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


class Store:
    """buildah and podman over a storage in the folder `work`, which is kept between runs: layers that are the same are not built again."""

    def __init__(self, work: Path) -> None:
        if os.geteuid() != 0:
            raise Missing("images are built as root here (a base made by debootstrap needs that)")
        self._programs = {name: find(name, f"Debian: {name}") for name in ("buildah", "podman", "debootstrap")}
        self._work = work
        self._place = ["--root", str(work / "storage"), "--runroot", str(work / "run"), "--storage-driver", "overlay"]
        work.mkdir(parents=True, exist_ok=True)

    def buildah(self, *arguments: str | Path) -> str:
        return self._run([self._programs["buildah"], *self._place, *map(str, arguments)])

    def podman(self, *arguments: str) -> list[str]:
        """The command, for whoever starts it."""
        return [self._programs["podman"], *self._place, "--cgroup-manager", "cgroupfs", *arguments]

    def _run(self, command: Sequence[str]) -> str:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command[:9])} …: {(done.stdout + done.stderr)[-2000:]}")
        return done.stdout

    def make_base(self, image: str) -> None:
        """What the Dockerfiles begin with, unless it is there."""
        if any(image in (one.get("names") or []) for one in json.loads(self.buildah("images", "--json"))):
            return
        root = self._work / "base"
        shutil.rmtree(root, ignore_errors=True)
        wanted = "--include=python3.11,python3.11-venv,python3-pip,ca-certificates"
        self._run([self._programs["debootstrap"], "--variant=minbase", wanted, SUITE, str(root)])
        (root / "usr/local/bin/python").symlink_to("/usr/bin/python3.11")
        container = self.buildah("from", "scratch").strip()
        self.buildah("copy", "--quiet", container, root, "/")
        self.buildah("config", "--env", "PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", container)
        self.buildah("commit", "--quiet", "--rm", container, image)
        shutil.rmtree(root)

    def build(self, dockerfile: Path, tag: str) -> None:
        """With this machine's certificates and pip configuration, which are no part of the image."""
        settings = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True).stdout
        lines = [f"{key} = {value}" for key, value in re.findall(r"^global\.([\w-]+)='(.*)'$", settings, re.MULTILINE)]
        (self._work / "pip.conf").write_text("\n".join(["[global]", *lines]) + "\n")
        mounts = ("--volume", "/etc/ssl/certs:/etc/ssl/certs:O", "--volume", f"{self._work / 'pip.conf'}:/etc/pip.conf:ro")
        options = ("--pull-never", "--layers", "--network", "host", "--build-arg", f"TARGETARCH={ARCHITECTURE}")
        self.buildah("build", *options, *mounts, "--file", dockerfile, "--tag", tag, ".")

    def size(self, image: str) -> int:
        """In bytes, on disk."""
        (one,) = json.loads(subprocess.run(self.podman("image", "inspect", image), capture_output=True, text=True, check=True).stdout)
        return int(one["Size"])


def complaints(work: Path) -> Iterator[str]:
    """Builds both images, about ten minutes of processor time the first time, and starts the service. Prints what it measures."""
    store = Store(work)
    dockerfile = (DEPLOY / "docker" / "service.Dockerfile").read_text()
    base = next(one.rest for one in instructions(dockerfile) if one.word == "FROM").split()[0]
    store.make_base(f"localhost/{base}")
    for name, most in MOST_BYTES.items():
        store.build(DEPLOY / "docker" / f"{'service' if name == 'livejoin' else 'stream'}.Dockerfile", f"{name}:{__version__}")
        size = store.size(f"{name}:{__version__}") - store.size(f"localhost/{base}") + OFFICIAL_BYTES
        print(f"    {name}: {size / 10**6:.0f} MB, of which {OFFICIAL_BYTES / 10**6:.0f} MB are those of {base}", flush=True)
        if size > most:
            yield f"{name} has {size / 10**6:.0f} MB, more than {most / 10**6:.0f}"
    yield from _start(store, work)
    help_text = subprocess.run(_command(store, "stream", {}, [], "--help"), capture_output=True, text=True)
    if "--metrics-host" not in help_text.stdout:
        yield f"livejoin-stream does not start: {help_text.stderr[-500:]}"


def _command(store: Store, service: str, variables: Mapping[str, str], mounts: Sequence[str], *arguments: str) -> list[str]:
    """`podman run` of a service as it is declared, but on this machine's network; `arguments` in place of its command."""
    declared: dict[str, Any] = read_yaml(FILE)["services"][service]
    command = ["run", "--rm", "--name", f"livejoin-check-{os.getpid()}", "--network", "host", "--user", declared["user"]]
    command += ["--read-only", "--read-only-tmpfs=false", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    command += ["--memory", declared["mem_limit"], "--cpus", str(declared["cpus"]), "--pids-limit", str(declared["pids_limit"])]
    command += ["--ulimit", "nofile=16384:16384", "--ulimit", "nproc=4096:4096"]  # podman's own are above what a sandbox allows
    command += [part for one in declared["tmpfs"] for part in ("--tmpfs", one)]
    command += [part for name, value in variables.items() for part in ("--env", f"{name}={value}")]
    command += [part for one in mounts for part in ("--volume", one)]
    return store.podman(*command, declared["image"], *(["stream", *arguments] if service == "stream" else arguments))


def _start(store: Store, work: Path) -> Iterator[str]:
    """Ready in time with the cache of its image, closed to whoever has no token, and ended by SIGTERM with status 0."""
    data, token = work / "data", "lj_" + secrets.token_urlsafe(32)
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir()
    os.chown(data, 10001, 10001)
    (work / "admin_token").write_text(token + "\n")
    port = free_port()
    variables = {"LIVEJOIN_PORT": str(port), "LIVEJOIN_ADMIN_TOKEN_FILE": "/run/secrets/admin_token"}
    mounts = [f"{data}:/var/lib/livejoin", f"{work / 'admin_token'}:/run/secrets/admin_token:ro"]
    began = time.monotonic()
    process = subprocess.Popen(_command(store, "livejoin", variables, mounts), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    url = f"http://127.0.0.1:{port}"
    try:
        while _status(f"{url}/readyz") != 200 and process.poll() is None and time.monotonic() < began + 100:
            time.sleep(0.02)
        seconds = time.monotonic() - began
        print(f"    ready {seconds:.1f} s after podman was called", flush=True)
        if process.poll() is not None or seconds > READY_SECONDS:
            yield f"not ready within {READY_SECONDS:.0f} s"
        seen = _status(f"{url}/v1/status"), _status(f"{url}/v1/status", token), _status(f"{url}/livez")
        if seen != (401, 200, 200):
            yield f"/v1/status without and with the token, and /livez, answer {seen}"
        (container,) = [one for one in process.args if one.startswith("livejoin-check-")]  # type: ignore[union-attr]
        subprocess.run(store.podman("stop", "--time", "20", str(container)), capture_output=True, check=False)
        if process.wait(60) != 0:
            yield f"it ended with status {process.returncode}"
    finally:
        process.kill()
        output = process.communicate()[0]
    if "compiling" in output or "ready after" not in output:
        yield f"its log: {output[-1000:]}"


def _status(url: str, token: str | None = None) -> int | None:
    """The status of an answer; None if there is none."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None
