"""The kustomize base keeps Kubernetes' schemas and our rules, and the rules notice what breaks them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from deploy.checks.kubernetes import BASE, complaints, manifests, schema_complaints


def test_it_is_good() -> None:
    assert list(complaints()) == []
    assert list(schema_complaints()) == []
    kinds = {one["kind"] for one in manifests()}
    assert {"StatefulSet", "Service", "PodDisruptionBudget", "NetworkPolicy", "ServiceMonitor"} <= kinds
    assert {"Deployment", "PersistentVolumeClaim"} <= kinds


@pytest.mark.parametrize(
    ("file", "before", "after", "complaint"),
    [
        ("statefulset.yaml", "  replicas: 1", "  replicas: 2", "StatefulSet livejoin: replicas must be 1"),
        ("statefulset.yaml", "terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds: 9", "is not above the service's"),
        ("statefulset.yaml", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "the container is not confined"),
        ("statefulset.yaml", "runAsNonRoot: true", "runAsNonRoot: false", "the pod is not confined"),
        ("statefulset.yaml", "livenessProbe", "liveness", "the container has no livenessProbe"),
        ("statefulset.yaml", "limits: {memory: 4Gi}", "limits: {}", "the container has no limit of memory"),
        ("statefulset.yaml", "secretName: livejoin-admin", "secretName: livejoin-amin", "nothing creates livejoin-amin"),
        ("statefulset.yaml", "image: livejoin", "image: livejion", "kustomization.yaml gives the image livejion no version"),
        ("stream.yaml", "claimName: livejoin-checkpoint", "claimName: checkpoint", "nothing creates checkpoint"),
        ("stream.yaml", "  strategy: {type: Recreate}\n", "", "Deployment livejoin-stream: an update would run two replicas at once"),
        ("poddisruptionbudget.yaml", "name: livejoin}", "name: livejoins}", "PodDisruptionBudget livejoin: no pod has the labels"),
        ("kustomization.yaml", "newTag: 0.1.0", "newTag: 0.0.9", "the image livejoin is not of version 0.1.0"),
        ("kustomization.yaml", "  - networkpolicy.yaml\n", "", "networkpolicy.yaml is not among the resources"),
    ],
)
def test_mistakes_are_found(file: str, before: str, after: str, complaint: str, tmp_path: Path) -> None:
    base = shutil.copytree(BASE, tmp_path / "base")
    text = (base / file).read_text()
    assert before in text
    (base / file).write_text(text.replace(before, after))
    assert any(complaint in found for found in complaints(base))


def test_what_the_schemas_do_not_know_is_found(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("resources: [pod.yaml]\n")
    (tmp_path / "pod.yaml").write_text((BASE / "poddisruptionbudget.yaml").read_text().replace("maxUnavailable", "maxUnavailables"))
    (complaint,) = schema_complaints(tmp_path)
    assert "Additional properties are not allowed ('maxUnavailables' was unexpected)" in complaint
