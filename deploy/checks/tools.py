"""The programs that will read the files, asked whether they accept them. Each yields complaints; Missing says which program is not there.

The three written in Go are installed into `livejoin/tools` in the user's cache folder if `go` is there: of fixed versions, over the module
proxy, which verifies them. What is in PATH goes first.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path

from deploy.checks.files import CACHE, DEPLOY, ROOT
from deploy.checks.kubernetes import BASE, RELEASE, WITHOUT_SCHEMA

GO = {
    "docker-compose": ("github.com/docker/compose/v2", "v2.40.3", "github.com/docker/compose/v2/cmd"),
    "kubeconform": ("github.com/yannh/kubeconform", "v0.7.0", "github.com/yannh/kubeconform/cmd/kubeconform"),
    "promtool": ("github.com/prometheus/prometheus", "v0.305.0", "github.com/prometheus/prometheus/cmd/promtool"),
}


class Missing(Exception):
    """A tool is not there; the text names it and says where it comes from."""


def find(name: str, source: str) -> str:
    """The path of a tool. Raises Missing, with its source."""
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is not installed ({source})")
    return found


def find_go_tool(name: str) -> str:
    """The path of a tool that is written in Go, installed if it is not there: minutes."""
    if in_path := shutil.which(name):
        return in_path
    module, version, package = GO[name]
    path = CACHE / "tools" / f"{name}-{version}"
    if not path.exists():
        go = find("go", f"it would install {name}")
        work = path.with_name(f"{path.name}.build")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        environment = os.environ | {"GOFLAGS": "-buildvcs=false -mod=mod", "CGO_ENABLED": "0"}
        # A module of its own: `go install` refuses modules with replacements.
        for command in (["mod", "init", "tools"], ["get", f"{package}@{version}"], ["build", "-o", str(path), package]):
            done = subprocess.run([go, *command], cwd=work, env=environment, capture_output=True, text=True)
            if done.returncode:
                raise Missing(f"{name} cannot be built from {module} {version}: {done.stderr.strip().splitlines()[-1]}")
        shutil.rmtree(work)
    return str(path)


def _run(command: Sequence[str | Path], folder: Path = ROOT, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], cwd=folder, input=stdin, capture_output=True, text=True)


def _complaints(done: subprocess.CompletedProcess[str]) -> Iterator[str]:
    if done.returncode:
        yield (done.stderr + done.stdout).strip()


def compose() -> Iterator[str]:
    """`docker compose config`: references, profiles, variables."""
    command = [find_go_tool("docker-compose"), "--file", ROOT / "docker-compose.yml", "--profile", "demo", "config", "--quiet"]
    yield from _complaints(_run(command))


def promtool() -> Iterator[str]:
    """`promtool`: the configuration, the alert rules, and the tests of the rules."""
    tool = find_go_tool("promtool")
    folder = DEPLOY / "prometheus"
    yield from _complaints(_run([tool, "check", "config", "--syntax-only", "prometheus.yml"], folder))
    yield from _complaints(_run([tool, "check", "rules", "rules.yml"], folder))
    yield from _complaints(_run([tool, "test", "rules", "rules_test.yml"], folder))


def kustomize(folder: Path) -> Iterator[str]:
    """`kubectl kustomize` of a copy in the folder, with a token; kubeconform on what it gives, with the schemas of kubernetes-validate."""
    kubectl, kubeconform = find("kubectl", "with kustomize"), find_go_tool("kubeconform")
    base = shutil.copytree(BASE, folder / "base", ignore=shutil.ignore_patterns("secret"))
    (base / "secret").mkdir()
    (base / "secret" / "admin_token").write_text("lj_none\n")
    done = _run([kubectl, "kustomize", base])
    yield from _complaints(done)
    schemas = folder / "schemas"
    schemas.mkdir()
    for schema in Path(str(files("kubernetes_validate"))).glob(f"kubernetes-json-schema/v{RELEASE}.0-local/*.json"):
        text = schema.read_text().replace('"/api/_definitions.json', '"_definitions.json')  # references to files, not to addresses
        (schemas / schema.name).write_text(re.sub(r',\s*"\$id": "https:[^"]*"', "", text))
    location = f"{schemas}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    skipped = ",".join(WITHOUT_SCHEMA)
    yield from _complaints(_run([kubeconform, "-strict", "-skip", skipped, "-schema-location", location, "-"], stdin=done.stdout))


def systemd(folder: Path) -> Iterator[str]:
    """`systemd-analyze verify` of a copy whose program exists, and its verdict on the confinement: at most 1.5 of 10."""
    tool = find("systemd-analyze", "Debian: systemd")
    unit = folder / "livejoin.service"
    unit.write_text((DEPLOY / "systemd" / "livejoin.service").read_text().replace("/opt/livejoin/bin/livejoin", "/bin/true"))
    done = _run([tool, "verify", "--man=no", unit])
    yield from _complaints(done)
    if unit.name in done.stderr:
        yield done.stderr.strip()
    yield from _complaints(_run([tool, "security", "--offline=yes", "--threshold=15", unit]))
