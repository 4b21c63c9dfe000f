"""docker-compose.yml keeps the specification and our rules, and the rules notice what breaks them."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest

from deploy.checks.compose import FILE, complaints
from deploy.checks.files import DEPLOY, read_yaml
from service.demo.history import PREFIX, RELATIONS
from streaming.config import read_config
from streaming.jars import read_lock
from tests.server_process import ROOT

Document = dict[str, Any]
WHOLE: Document = read_yaml(FILE)


def test_it_is_good() -> None:
    assert list(complaints(WHOLE)) == []
    assert {"kafka", "livejoin", "stream", "prometheus", "grafana", "demo"} <= WHOLE["services"].keys()
    assert [name for name, service in WHOLE["services"].items() if "profiles" in service] == ["demo"]


def put(service: str, key: str, value: object) -> Callable[[Document], None]:
    return lambda document: document["services"][service].update({key: value})


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (put("kafka", "imagee", "x"), "services.kafka: Unevaluated properties are not allowed ('imagee' was unexpected)"),
        (put("kafka", "image", "apache/kafka"), "kafka: the image apache/kafka has no version"),
        (put("kafka", "image", "host:5000/apache/kafka:latest"), "kafka: the image host:5000/apache/kafka:latest has no version"),
        (put("stream", "image", "livejoin-stream:0.0.9"), "stream: the image livejoin-stream:0.0.9 is not of version 0.1.0"),
        (put("livejoin", "user", "0:0"), "livejoin: runs as root"),
        (lambda document: document["services"]["grafana"].pop("user"), "grafana: runs as root"),
        (put("livejoin", "read_only", False), "livejoin: can write to its root file system"),
        (put("tokens", "cap_drop", ["NET_RAW"]), "tokens: keeps privileges: set cap_drop and security_opt"),
        (put("tokens", "privileged", True), "tokens: keeps privileges: set cap_drop and security_opt"),
        (lambda document: document["services"]["demo"].pop("mem_limit"), "demo: has no mem_limit"),
        (lambda document: document["services"]["demo"].pop("restart"), "demo: has no restart policy"),
        (put("livejoin", "ports", ["8080:8080"]), "livejoin: publishes 8080:8080 to other machines"),
        (put("stream", "volumes", ["./deploy/none.toml:/x:ro"]), "stream: mounts ./deploy/none.toml, which does not exist"),
        (put("livejoin", "environment", {"LIVEJOIN_MAX_BODDY": "1"}), "livejoin: sets LIVEJOIN_MAX_BODDY, which nothing reads"),
        (put("livejoin", "stop_grace_period", "9s"), "livejoin: stop_grace_period 9s is not above the service's own limit of 9.0 s"),
    ],
)
def test_mistakes_are_found(mistake: Callable[[Document], None], complaint: str) -> None:
    document = copy.deepcopy(WHOLE)
    mistake(document)
    assert list(complaints(document)) == [complaint]


def test_the_broker_is_of_the_version_that_is_tested() -> None:
    (version,) = [jar.coordinates.rpartition(":")[2] for jar in read_lock()["broker"] if ":kafka_2.13:" in jar.coordinates]
    assert WHOLE["services"]["kafka"]["image"] == f"apache/kafka:{version}"


@pytest.mark.parametrize("path", ["docker/stream.toml", "kubernetes/base/stream.toml"])
def test_the_job_reads_the_topics_of_the_demo(path: str) -> None:
    config = read_config(DEPLOY / path)
    assert {topic.name: topic.relation for topic in config.topics} == {PREFIX + relation: relation for relation in RELATIONS}
    assert config.service.url == "http://livejoin:8080"


def test_secrets_are_kept_out_of_commits() -> None:
    files = [secret["file"] for secret in WHOLE["secrets"].values()]
    assert all(path.startswith("deploy/docker/secret/") for path in files)
    assert "/deploy/docker/secret/" in (ROOT / ".gitignore").read_text().splitlines()


def test_every_alias_of_a_service_is_a_service() -> None:
    """Prometheus, Grafana and the job reach the others by name."""
    texts = [path.read_text() for path in (DEPLOY / "prometheus" / "prometheus.yml", DEPLOY / "docker" / "stream.toml")]
    texts += [path.read_text() for path in (DEPLOY / "grafana").rglob("*.yml")]
    named = set(re.findall(r"(\w+):(?:8080|9090|9092|9400)\b", "\n".join(texts)))
    assert named == {"livejoin", "stream", "kafka", "prometheus"} and named <= WHOLE["services"].keys()
