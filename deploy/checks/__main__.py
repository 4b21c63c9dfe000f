"""`deploy/check`: a line for each check; status 1 if one found a mistake."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path

from deploy.checks import compose, dockerfiles, images, kubernetes, tools, wheels
from deploy.checks.files import CACHE, ROOT, read_yaml

Check = Callable[[], Iterable[str]]


def _dockerfiles() -> Iterable[str]:
    for path in dockerfiles.FILES:
        yield from (f"{path.name}: {complaint}" for complaint in dockerfiles.complaints(path.read_text()))
    for path in dockerfiles.LOCKS:
        found = dockerfiles.strange_pins(path.read_text(), (ROOT / "requirements.lock").read_text())
        yield from (f"{path.name}: {complaint}" for complaint in found)


def _wheels() -> Iterable[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield from wheels.differences(wheels.build(Path(folder, "one")), wheels.build(Path(folder, "two")))


def _in_folder(check: Callable[[Path], Iterable[str]]) -> Check:
    """With a temporary folder."""

    def run() -> Iterable[str]:
        with tempfile.TemporaryDirectory() as folder:
            yield from check(Path(folder))

    return run


QUICK: dict[str, Check] = {
    "docker-compose.yml: schema, rules": lambda: compose.complaints(read_yaml(compose.FILE)),
    "Kubernetes: schemas, rules": lambda: chain(kubernetes.schema_complaints(), kubernetes.complaints()),
    "Dockerfiles, locks: rules": _dockerfiles,
    "wheels: reproducible": _wheels,
}
SLOW: dict[str, Check] = {
    "docker compose config": tools.compose,
    "kubectl kustomize, kubeconform": _in_folder(tools.kustomize),
    "promtool: configuration, rules, tests of the rules": tools.promtool,
    "systemd-analyze: verify, security": _in_folder(tools.systemd),
    "images: built, started": lambda: images.complaints(CACHE / "images"),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="deploy/check", description="Checks what deploy/ ships.")
    parser.add_argument("--all", action="store_true", help="also ask the tools that are there, and build and start the images: minutes")
    checks = QUICK | (SLOW if parser.parse_args().all else {})
    bad = 0
    for name, check in checks.items():
        try:
            found = list(check())
        except tools.Missing as missing:
            print(f"--   {name}: not checked: {missing}", flush=True)
            continue
        bad += bool(found)
        print(f"{'bad ' if found else 'ok  '} {name}", *found, sep="\n     ", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
