"""`livejoin load` tells which rows of its files a later one replaces, and refuses files in which a column appears twice."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

import livejoin
from livejoin import files
from livejoin.commands.inference import infer
from livejoin.commands.judging import Rejections, Repeats, validate_file
from livejoin.files import open_file
from livejoin.terminal import Failure
from livejoin.wire.kinds import SENT_TYPES
from livejoin.wire.schema import parse_relation
from service.cli import main
from tests.server_process import ServerProcess
from tests.service.commands.tables import write

KINDS = ["csv", "csv.gz", "jsonl", "jsonl.gz", "parquet", "arrow", "arrows"]
FIRST = {"csv": 2, "jsonl": 1}  # the line of the first row; other rows are counted from 1


def test_rows_that_are_not_kept_are_told(shared_server: ServerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rooms = pa.table({"id": range(6), "room_id": [101, 102, 102, 102, 103, 103]})
    with livejoin.connect(shared_server.url) as client:
        for kind in KINDS:
            write(path := tmp_path / f"rooms.{kind}", rooms)
            unit, first = ("line", FIRST[kind[:-3] if kind.endswith(".gz") else kind]) if kind[:3] in ("csv", "jso") else ("row", 1)
            name = "rooms_" + kind.replace(".", "_")
            load = ["load", name, str(path), "--url", shared_server.url]
            assert main([*load, "--key", "room_id"]) == 0
            lost = ", ".join(str(first + at) for at in (1, 2, 4))
            emitted = f"{name}: 6 rows read, 3 kept: 3 replaced by later rows with the same key ({unit}s {lost}), version "
            assert capfd.readouterr().out.startswith(emitted)
            for more in ([], ["--on-error", "skip"], ["--replace"]):
                assert main([*load, *more]) == 0 and capfd.readouterr().out.startswith(emitted)
            assert sorted(row["id"] for row in client.relation(name).rows()) == [0, 3, 5]
            assert main([*load[:3], str(path), *load[3:]]) == 0
            assert "12 rows read, 3 kept: 9 replaced by later rows with the same key (rooms." in capfd.readouterr().out


TYPES: dict[str, Any] = {
    "int64": lambda chance: chance.choice([-2, -1, 0, 1, 2**61 - 1, -(2**63)]),
    "float64": lambda chance: chance.choice([0.0, 1.5, -1.5, 1.0]),
    "string": lambda chance: chance.choice(["", "a", "two\nlines", "é"]),
    "bool": lambda chance: chance.random() < 0.5,
    "date": lambda chance: f"2026-01-0{chance.randint(1, 4)}",
    "timestamp": lambda chance: f"9999-12-31T23:59:5{chance.randint(0, 4)}Z",
    "time": lambda chance: f"12:00:0{chance.randint(0, 4)}",
    "bytes": lambda chance: chance.choice(["", "AA==", "AAE="]),
    "uuid": lambda chance: f"00000000-0000-0000-0000-00000000000{chance.randint(0, 4)}",
    "decimal(6,2)": lambda chance: f"{chance.randint(0, 4)}.50",
}


def test_against_brute_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of every type and of several columns, over files, bodies, bad rows and empty lines."""
    monkeypatch.setattr(files, "BODY", 300)
    for seed in range(40):
        chance = random.Random(seed)
        kinds = chance.sample(list(TYPES), chance.randint(1, 3))
        columns = [{"name": f"k{at}", "type": "decimal", "precision": 6, "scale": 2} if "(" in kind else {"name": f"k{at}", "type": kind}
                   for at, kind in enumerate(kinds)]  # fmt: skip
        key = [f"k{at}" for at in range(len(kinds))]
        definition = parse_relation({"columns": [*columns, {"name": "x", "type": "int64"}], "key": key})
        positions: dict[tuple[Any, ...], tuple[int, int]] = {}
        lost, paths = [], []
        for file in range(2):
            lines = []
            for line in range(1, 40):
                row = {name: TYPES[kind](chance) for name, kind in zip(key, kinds, strict=True)} | {"x": chance.choice([1, 1, 1, "bad"])}
                lines.append(b"" if chance.random() < 0.1 else orjson.dumps(row))
                if lines[-1] and row["x"] == 1:
                    if (before := positions.get(identity := tuple(row[name] for name in key))) is not None:
                        lost.append(before)
                    positions[identity] = file, line
            paths.append(tmp_path / f"{file}.jsonl")
            paths[-1].write_bytes(b"\n".join(lines))
        opened = [open_file(path) for path in paths]
        schema = pa.schema([(column.name, SENT_TYPES[column.kind]) for column in definition.columns])
        repeats, found = Repeats("r", definition, schema), Rejections(definition)
        for one in opened:
            validate_file("r", definition, one, schema, found, repeats, lambda done, rows: None)
        parts = []
        for file in range(2):
            own = [str(line) for at, line in sorted(lost)[:20] if at == file]
            parts += [f"{file}.jsonl line{'s' if len(own) > 1 else ''} {', '.join(own)}"] if own else []
        more = f" and {len(lost) - 20} more" if len(lost) > 20 else ""
        assert (seed, *repeats.emitted(opened)) == (seed, len(lost), "; ".join(parts) + more)


def test_the_keys_of_a_log_may_repeat(tmp_path: Path) -> None:
    definition = parse_relation({"columns": [{"name": "k", "type": "int64"}], "key": ["k"]})
    for op, count in (("delete", 0), ("insert", 0), ("truncate", 0), ("upsert", 2)):
        (path := tmp_path / "a.csv").write_text(f"k,_op\n1,\n1,upsert\n1,{op}\n")
        repeats = Repeats("r", definition, pa.schema([("k", pa.int64())]))
        validate_file("r", definition, open_file(path), pa.schema([]), Rejections(definition), repeats, lambda done, rows: None)
        assert repeats.emitted([open_file(path)])[0] == count


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "jsonl" not in kind])
@pytest.mark.parametrize("twice", ["id", "_op", "other", ""])
def test_a_column_that_appears_twice(tmp_path: Path, kind: str, twice: str) -> None:
    """In a new relation and in one that exists, also where the relation lacks the column."""
    path = tmp_path / f"a.{kind}"
    write(path, pa.Table.from_arrays([pa.array([1]), pa.array(["x"]), pa.array(["y"])], names=["id", twice, twice]))
    definition = parse_relation({"columns": [{"name": "id", "type": "int64"}], "key": ["id"]})
    repeats = Repeats("r", definition, pa.schema([]))
    for refused in (
        lambda: infer([open_file(path)], {}, []),
        lambda: validate_file("r", definition, open_file(path), pa.schema([]), Rejections(definition), repeats, lambda done, rows: None),
    ):
        with pytest.raises(Failure, match=f"the column '{twice}' appears twice: rename or remove one of them"):
            refused()
