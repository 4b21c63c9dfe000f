"""Checkpoint folders: what Spark may have left there, and the file of ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streaming.errors import StreamError
from streaming.pipeline.checkpoint import IDENTITY, UnreadableCheckpoint, read_checkpoint, spark_address
from streaming.pipeline.checkpoint_files import LocalFiles
from streaming.pipeline.identity import Identity, claim, held

TOPICS = {"t": "id-of-t"}
RELATIONS = {"stays": {"columns": [{"name": "id", "type": "int64", "nullable": False}], "key": ["id"], "intervals": {}}}
NOW = Identity("pms", TOPICS, RELATIONS)


def spark_was_here(folder: Path, batch: int | None = None) -> None:
    (folder / "metadata").write_text('{"id": "7"}')
    if batch is not None:
        for part, text in (("offsets", 'v1\n{}\n{"t": {"0": 5}}'), ("commits", "v1\n{}")):
            (folder / part).mkdir()
            (folder / part / str(batch)).write_text(text)


def test_a_start_that_was_killed_leaves_a_new_checkpoint(tmp_path: Path) -> None:
    """Spark names its first file only when it is whole, and makes its folders before."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / ".metadata.1f2e.tmp").write_text('{"i')
    (tmp_path / ".metadata.1f2e.tmp.crc").write_text("")
    (tmp_path / f".{IDENTITY}.draft").write_text("{")
    assert read_checkpoint(tmp_path) is None
    assert claim(LocalFiles(tmp_path), NOW).reached == {}
    assert read_checkpoint(tmp_path) is None
    (tmp_path / "letters").write_text("")
    with pytest.raises(UnreadableCheckpoint, match="no Spark checkpoint"):
        read_checkpoint(tmp_path)


def test_a_plain_path_is_a_folder_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To Spark it would be one of the cluster's file system."""
    monkeypatch.chdir(tmp_path)
    assert spark_address("check points/pms") == f"file:{tmp_path}/check points/pms"
    assert spark_address(str(tmp_path)) == spark_address(f"file://{tmp_path}") == f"file:{tmp_path}"
    assert spark_address("hdfs://there/pms") == "hdfs://there/pms"


def test_what_was_begun_is_compared(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path / "new")
    with held(files):
        claim(files, NOW)
    assert not claim(files, NOW).posted
    with pytest.raises(StreamError, match='belongs to the stream "pms"'):
        claim(files, NOW._replace(stream="other"))
    with pytest.raises(StreamError, match="the topic t was deleted and recreated"):
        claim(files, NOW._replace(topics={"t": "another"}))
    with pytest.raises(StreamError, match="the relation stays was registered again with a different definition"):
        columns = [{"name": "id", "type": "string", "nullable": False}]
        claim(files, NOW._replace(relations={"stays": {**RELATIONS["stays"], "columns": columns}}))
    claim(files, NOW._replace(topics={**TOPICS, "u": "id-of-u"}, relations={**RELATIONS, "more": {}}))
    with pytest.raises(StreamError, match="reads the topic u"):
        claim(files, NOW)


def test_that_something_was_posted_is_remembered(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    claim(files, NOW).note_posted("7")
    claimed = claim(files, NOW._replace(topics={**TOPICS, "u": "id-of-u"}))
    assert claimed.posted
    (tmp_path / IDENTITY).unlink()
    assert not claim(files, NOW).posted
    (tmp_path / IDENTITY).unlink()
    spark_was_here(tmp_path, batch=3)
    claimed = claim(files, NOW)
    assert claimed.posted and claimed.reached == {("t", 0): 5}


@pytest.mark.parametrize("damage", ["", "{", "[]", json.dumps({"stream": "pms"}), json.dumps({**NOW._asdict(), "topics": 5})])
def test_a_damaged_file_of_ours_is_named(tmp_path: Path, damage: str) -> None:
    spark_was_here(tmp_path, batch=3)
    (tmp_path / IDENTITY).write_text(damage)
    with pytest.raises(StreamError, match=f"{tmp_path}/{IDENTITY} is damaged .*: delete it to continue"):
        claim(LocalFiles(tmp_path), NOW)
    (tmp_path / IDENTITY).unlink()
    assert claim(LocalFiles(tmp_path), NOW).reached == {("t", 0): 5}
