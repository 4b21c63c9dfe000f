"""The board of Grafana asks for metrics and labels that a service has, and its panels can be read."""

from __future__ import annotations

import copy
import re
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deploy.checks.files import DEPLOY, read_yaml
from deploy.checks.grafana import board, complaints
from tests.server_process import ServerProcess

BOARD = board()


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The labels of all series of a service with a live view and a snapshot, by name."""
    with ServerProcess(tmp_path_factory.mktemp("grafana") / "data") as server:
        for life in range(2):  # the stop writes a snapshot
            client = server.client()
            relation = {"columns": [{"name": "a", "type": "int64"}, {"name": "b", "type": "int64"}], "key": ["a"]}
            relation["intervals"] = {"i": {"start": "a", "end": "b"}}
            assert client.put("/v1/relations/r", json=relation).is_success
            assert client.put("/v1/views/v", json={"sql": "SELECT x.a AS a FROM r x JOIN r y ON overlaps(x.i, y.i)"}).is_success
            assert client.post("/v1/changes", json={"changes": [{"relation": "r", "row": {"a": life, "b": life + 1}}]}).is_success
            while client.get("/v1/views/v").json()["state"] == "building":
                time.sleep(0.05)
            if not life:
                assert server.stop() == 0
                server.start()
        families = list(text_string_to_metric_families(client.get("/metrics").text))
    found: dict[str, set[str]] = {}
    for sample in (sample for family in families for sample in family.samples):
        found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_it_is_good(known: dict[str, set[str]]) -> None:
    assert list(complaints(BOARD, known)) == []
    titles = [panel["title"] for panel in BOARD["panels"]]
    assert len(titles) == len(set(titles)) > 25


def test_it_shows_what_the_alerts_are_about() -> None:
    """Who is called by an alert finds its metric on the board."""
    rules = [rule["expr"] for group in read_yaml(DEPLOY / "prometheus" / "rules.yml")["groups"] for rule in group["rules"]]
    alerted = {re.sub("_(bucket|count|sum)$", "", name) for rule in rules for name in re.findall(r"\blivejoin_(?!stream)\w+", rule)}
    shown = "".join(target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", ()))
    assert alerted and [name for name in sorted(alerted) if name not in shown] == []


def test_mistakes_are_found(known: dict[str, set[str]]) -> None:
    wrong = copy.deepcopy(BOARD)
    panels = [panel for panel in wrong["panels"] if panel["type"] != "row"]
    panels[0]["targets"][0]["expr"] = "livejoin_redy"
    panels[1]["targets"][0]["expr"] = 'sum by (view) (livejoin_version{state="x"}'
    panels[2]["gridPos"] = panels[3]["gridPos"]
    del panels[4]["description"]
    panels[5]["targets"][0]["expr"] = 'livejoin_version{job="$jobs"}'
    panels[6]["targets"][0]["datasource"] = {"type": "prometheus", "uid": "mine"}
    panels[7]["id"] = panels[8]["id"]
    emitted = list(complaints(wrong, known))
    assert emitted == [
        "two panels have one id",
        f"{panels[3]['title']}: lies over {panels[2]['title']}",
        f"{panels[0]['title']}: the service has no livejoin_redy",
        f"{panels[1]['title']}: brackets do not match in {panels[1]['targets'][0]['expr']}",
        f"{panels[1]['title']}: livejoin_version has no label state",
        f"{panels[1]['title']}: nothing in it has the label view",
        f"{panels[4]['title']}: no description, or no unit",
        f"{panels[5]['title']}: there is no variable $jobs",
        f"{panels[6]['title']}: asks another data source",
    ]


def test_it_uses_the_data_source_that_is_provisioned() -> None:
    (source,) = read_yaml(DEPLOY / "grafana" / "provisioning" / "datasources" / "prometheus.yml")["datasources"]
    (variable,) = (one for one in BOARD["templating"]["list"] if one["type"] == "datasource")
    assert (variable["query"], variable["current"]["value"]) == (source["type"], source["uid"])
