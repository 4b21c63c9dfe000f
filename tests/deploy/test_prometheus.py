"""The alert rules name metrics that there are, and each has a test; `make soak` has promtool run those tests."""

from __future__ import annotations

import copy
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deploy.checks.files import read_yaml
from deploy.checks.prometheus import FOLDER, complaints
from streaming.metrics import BatchReport, Metrics
from tests.server_process import ServerProcess

RULES, TESTS = read_yaml(FOLDER / "rules.yml"), read_yaml(FOLDER / "rules_test.yml")


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of all series of a service with a live view, and of the job."""
    with ServerProcess(tmp_path_factory.mktemp("prometheus") / "data") as server:
        client = server.client()
        relation = {"columns": [{"name": "a", "type": "int64"}, {"name": "b", "type": "int64"}], "key": ["a"]}
        relation["intervals"] = {"i": {"start": "a", "end": "b"}}
        assert client.put("/v1/relations/r", json=relation).status_code == 201
        assert client.put("/v1/views/v", json={"sql": "SELECT x.a AS a FROM r x JOIN r y ON overlaps(x.i, y.i)"}).is_success
        while client.get("/v1/views/v").json()["state"] == "building":
            time.sleep(0.05)
        text = client.get("/metrics").text
    names = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    metrics = Metrics()
    metrics.batch_done(BatchReport(dead_letters={"t": 1}))  # type: ignore[arg-type]
    metrics.behind({("t", 0): 1})
    return names | {sample.name for family in metrics.registry.collect() for sample in family.samples}


def test_they_are_good(known: set[str]) -> None:
    assert list(complaints(RULES, TESTS, known)) == []


def test_mistakes_are_found(known: set[str]) -> None:
    rules = copy.deepcopy(RULES)
    first, second, third, fourth, *_ = rules["groups"][0]["rules"]
    first["alert"], second["expr"] = "Untested", "livejoin_redy == 0"
    del third["labels"]["severity"], fourth["annotations"]["description"]
    assert list(complaints(rules, TESTS, known)) == [
        "Untested: no test in which it fires",
        f"{second['alert']}: neither the service nor the job has livejoin_redy",
        f"{third['alert']}: severity is neither critical nor warning",
        f"{fourth['alert']}: it does not say what is wrong and what to do",
    ]


def test_what_is_scraped_is_what_the_rules_expect() -> None:
    jobs = [one["job_name"] for one in read_yaml(FOLDER / "prometheus.yml")["scrape_configs"]]
    assert jobs == ["livejoin", "livejoin-stream"]
    assert Path(FOLDER, *read_yaml(FOLDER / "prometheus.yml")["rule_files"]) == FOLDER / "rules.yml"
