"""docs/kafka.md is true: its scripts and its file run against a broker, the service and Spark, after the relations of the README's tour."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from streaming.kafka_broker import Broker
from tests.end_to_end import talk
from tests.server_process import ROOT, ServerProcess
from tests.streaming.stream_job import Jobs, Topics

PAGE = (ROOT / "docs" / "kafka.md").read_text()
ENDS = [{"name": "starts", "type": "timestamp"}, {"name": "ends", "type": "timestamp", "nullable": True}]
CLASHES = """
    SELECT b.guest AS guest, b.room AS room, m.work AS work, intersection(b.stay, m.slot) AS clash
    FROM bookings b JOIN maintenance m ON b.room = m.room AND overlaps(b.stay, m.slot)"""


def relation(text: str, interval: str) -> dict[str, object]:
    columns = [{"name": "id", "type": "int64"}, {"name": "room", "type": "int64"}, {"name": text, "type": "string"}, *ENDS]
    return {"columns": columns, "key": ["id"], "intervals": {interval: {"start": "starts", "end": "ends"}}}


def test_the_tutorial(server: ServerProcess, broker: Broker, job_of: Jobs, tmp_path: Path) -> None:
    client = server.client()
    talk.define(client, "bookings", relation("guest", "stay"))
    talk.define(client, "maintenance", relation("work", "slot"))
    painting = {"id": 8, "room": 102, "work": "painting", "starts": "2026-03-10T08:00:00Z", "ends": None}
    talk.ok(talk.send(client, [{"relation": "maintenance", "op": "upsert", "row": painting}]))
    talk.view(client, "clashes", CLASHES)

    scripts = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (file,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    topics, read = (script.replace("127.0.0.1:9092", broker.address) for script in scripts)
    subprocess.run([sys.executable, "-c", topics], check=True, timeout=120)
    file = file.replace("127.0.0.1:9092", broker.address).replace("http://127.0.0.1:8080", server.url)
    job = job_of(server.url)
    job.path.write_text(file.replace("checkpoints/pms", str(tmp_path / "checkpoint")))
    with job:
        Topics(broker).read("clashes", 1)  # Spark takes as long as it takes; the page's reader gives up after 30 s
        reader = subprocess.Popen([sys.executable, "-c", read], stdout=subprocess.PIPE, text=True)
        assert reader.stdout is not None
        try:
            record = json.loads(reader.stdout.readline())
        finally:
            reader.kill()
            reader.wait()
            reader.stdout.close()
        assert job.stop() == 0
    start, end = "2026-03-13T14:00:00Z", "2026-03-15T10:00:00Z"
    assert record["op"] in ("c", "r") and record["before"] is None  # "r" if it was in the view before the job looked
    assert record["after"] == {"guest": "Barbara", "room": 102, "work": "painting", "clash_start": start, "clash_end": end}
