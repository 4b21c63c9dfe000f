"""The manifests of the kustomize base: Kubernetes' schemas, and rules of our own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

from deploy.checks.files import DEPLOY, read_yaml
from livejoin import __version__
from service.server import DEADLINE

BASE = DEPLOY / "kubernetes" / "base"
RELEASE = "1.30"  # its schemas; the manifests use nothing newer
WITHOUT_SCHEMA = ("ServiceMonitor",)  # of the Prometheus operator
BY_HAND = {"livejoin-stream", "livejoin-prometheus"}  # secrets that deploy/README.md says how to make
Manifest = Mapping[str, Any]


def manifests(base: Path = BASE) -> list[Manifest]:
    return [one for name in read_yaml(base / "kustomization.yaml")["resources"] for one in yaml.safe_load_all((base / name).read_text())]


def complaints(base: Path = BASE) -> Iterator[str]:
    """Where the base in this folder breaks our rules."""
    kustomization = read_yaml(base / "kustomization.yaml")
    unlisted = {path.name for path in base.glob("*.yaml")} - {*kustomization["resources"], "kustomization.yaml"}
    yield from (f"{name} is not among the resources" for name in sorted(unlisted))
    images = {one["name"]: str(one["newTag"]) for one in kustomization["images"]}
    yield from (f"the image {name} is not of version {__version__}" for name, tag in images.items() if tag != __version__)
    made = {one["name"] for key in ("configMapGenerator", "secretGenerator") for one in kustomization[key]} | BY_HAND
    found = manifests(base)
    made |= {one["metadata"]["name"] for one in found if one["kind"] == "PersistentVolumeClaim"}
    for one in found:
        where = f"{one['kind']} {one['metadata']['name']}"
        yield from (f"{where}: {complaint}" for complaint in _rules(one, images, made))
    yield from _selections(found)


def schema_complaints(base: Path = BASE) -> Iterator[str]:
    """Where its manifests break the schemas. Cost: seconds."""
    for one in manifests(base):
        if one["kind"] not in WITHOUT_SCHEMA:
            try:
                kubernetes_validate.validate(one, RELEASE, strict=True)
            except kubernetes_validate.ValidationError as error:
                yield f"{one['kind']} {one['metadata']['name']}: {'.'.join(map(str, error.path))}: {error.message}"


def _rules(one: Manifest, images: Mapping[str, str], made: set[str]) -> Iterator[str]:
    if "template" not in one.get("spec", {}):
        return
    if one["spec"]["replicas"] != 1:
        yield "replicas must be 1"
    pod = one["spec"]["template"]["spec"]
    if one["kind"] == "StatefulSet" and not pod.get("terminationGracePeriodSeconds", 0) > DEADLINE:
        yield f"terminationGracePeriodSeconds is not above the service's own limit of {DEADLINE} s"
    if one["kind"] == "Deployment" and one["spec"].get("strategy") != {"type": "Recreate"}:
        yield "an update would run two replicas at once: set the strategy Recreate"
    security = pod.get("securityContext", {})
    user = security.get("runAsNonRoot") is True and security.get("runAsUser")
    if not user or security.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "the pod is not confined: runAsNonRoot, runAsUser, seccompProfile"
    yield from (f"nothing creates {name}" for name in sorted(_needed(pod) - made))
    for container in pod["containers"]:
        yield from _container(container, images)


def _container(container: Mapping[str, Any], images: Mapping[str, str]) -> Iterator[str]:
    if container["image"] not in images:
        yield f"kustomization.yaml gives the image {container['image']} no version"
    security = container.get("securityContext", {})
    if security != {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}:
        yield "the container is not confined: allowPrivilegeEscalation, readOnlyRootFilesystem, capabilities"
    if "memory" not in container.get("resources", {}).get("limits", {}):
        yield "the container has no limit of memory"
    if "livenessProbe" not in container:
        yield "the container has no livenessProbe"


def _needed(pod: Mapping[str, Any]) -> set[str]:
    """The names of config maps, secrets and claims that a pod cannot start without."""
    sources = [one["valueFrom"]["secretKeyRef"]["name"] for each in pod["containers"] for one in each.get("env", []) if "valueFrom" in one]
    for volume in pod.get("volumes", []):
        sources += [volume[kind][key] for kind, key in _VOLUMES.items() if kind in volume]
    return set(sources)


_VOLUMES = {"secret": "secretName", "configMap": "name", "persistentVolumeClaim": "claimName"}


def _selections(found: Sequence[Manifest]) -> Iterator[str]:
    """Whatever selects pods by a label selects some."""
    labels = [one["spec"]["template"]["metadata"]["labels"] for one in found if "template" in one.get("spec", {})]
    for one in found:
        spec = one.get("spec", {})
        if one["kind"] in ("Service", "PodDisruptionBudget", "NetworkPolicy", "StatefulSet", "Deployment"):
            chosen = spec.get("selector") or spec["podSelector"]
            wanted = chosen.get("matchLabels", chosen)
            if not any(wanted.items() <= each.items() for each in labels):
                yield f"{one['kind']} {one['metadata']['name']}: no pod has the labels {wanted}"
