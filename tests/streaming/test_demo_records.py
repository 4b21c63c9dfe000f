"""`livejoin demo --brokers`: the demo's records for a service and a broker that are already running, as in docker-compose.yml."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition

from livejoin.terminal import Failure
from service.commands import demo
from service.demo.history import PREFIX, RELATIONS, VIEWS, history
from streaming.kafka_broker import Broker
from tests.server_process import ServerProcess


def test_the_records_are_produced_once(server: ServerProcess, broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--url", server.url, "--brokers", broker.address, "--pace", "1e6"]
    assert demo.main(arguments) == 0
    assert capsys.readouterr().out.endswith("All records are produced.\n")
    assert demo.main(arguments) == 0
    assert capsys.readouterr().out == "The topics of the demo exist already; nothing is produced.\n"
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "demo"})
    ends = {relation: consumer.get_watermark_offsets(TopicPartition(PREFIX + relation, 0)) for relation in RELATIONS}
    consumer.close()
    changes = history()
    assert ends == {relation: (0, sum(change.relation == relation for change in changes)) for relation in RELATIONS}
    client = server.client()
    assert {one["name"] for one in client.get("/v1/relations").json()["relations"]} >= RELATIONS.keys()
    assert {one["name"] for one in client.get("/v1/views").json()["views"]} >= VIEWS.keys()


def test_a_service_that_is_not_there_is_a_failure(broker: Broker) -> None:
    with pytest.raises(Failure, match="http://127.0.0.1:1"):
        demo.main(["--url", "http://127.0.0.1:1", "--brokers", broker.address])
