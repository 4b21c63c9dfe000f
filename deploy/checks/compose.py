"""docker-compose.yml: the schema of the Compose specification, and rules of our own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import jsonschema_rs

from deploy.checks.files import ROOT, is_pinned
from livejoin import __version__
from service.server import DEADLINE
from service.settings import settings

FILE = ROOT / "docker-compose.yml"
LIMITS = ("mem_limit", "cpus", "pids_limit")
OURS = ("livejoin", "livejoin-stream")
# Variables that are not settings of `livejoin serve`.
OTHERS = {"LIVEJOIN_ADMIN_TOKEN_FILE", "LIVEJOIN_TOKEN", "LIVEJOIN_URL"}


def complaints(document: Mapping[str, Any]) -> Iterator[str]:
    for error in _specification().iter_errors(document):
        yield f"{'.'.join(map(str, error.instance_path))}: {error.message}"
    for name, service in document["services"].items():
        for complaint in (*_image(service), *_confinement(service), *_environment(service)):
            yield f"{name}: {complaint}"
    grace = document["services"]["livejoin"].get("stop_grace_period", "10s")
    if not int(grace.removesuffix("s")) > DEADLINE:
        yield f"livejoin: stop_grace_period {grace} is not above the service's own limit of {DEADLINE} s"


@cache
def _specification() -> Any:
    text = files("check_jsonschema").joinpath("builtin_schemas/vendor/compose-spec.json").read_text()
    return jsonschema_rs.validator_for(json.loads(text))


def _image(service: Mapping[str, Any]) -> Iterator[str]:
    image = service["image"]
    if not is_pinned(image):
        yield f"the image {image} has no version"
    name, _, tag = image.partition(":")
    if name in OURS and tag != __version__:
        yield f"the image {image} is not of version {__version__}"


def _confinement(service: Mapping[str, Any]) -> Iterator[str]:
    if str(service.get("user", "0")).partition(":")[0] in ("0", "root"):
        yield "runs as root"
    if service.get("read_only") is not True:
        yield "can write to its root file system"
    if service.get("cap_drop") != ["ALL"] or service.get("security_opt") != ["no-new-privileges:true"] or service.get("privileged"):
        yield "keeps privileges: set cap_drop and security_opt"
    yield from (f"has no {limit}" for limit in LIMITS if limit not in service)
    if "restart" not in service:
        yield "has no restart policy"


def _environment(service: Mapping[str, Any]) -> Iterator[str]:
    """What a service has of the world outside its container: ports, volumes, variables."""
    for port in service.get("ports", []):
        if not str(port).startswith("127.0.0.1:"):
            yield f"publishes {port} to other machines"
    for volume in service.get("volumes", []):
        source = volume.removeprefix("${LIVEJOIN_STREAM_FILE:-").replace("}:", ":").partition(":")[0]
        if source.startswith(".") and not (ROOT / source).exists():
            yield f"mounts {source}, which does not exist"
    known = {one.variable for one in settings()} | OTHERS
    for variable in service.get("environment", {}):
        if variable.startswith("LIVEJOIN_") and variable not in known:
            yield f"sets {variable}, which nothing reads"
