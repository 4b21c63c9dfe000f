"""Replacements and deletes by condition, while others write between what is found beside the writer and its turn."""

from __future__ import annotations

import random
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from livejoin.wire.batch import Batch
from service.engine.outcomes import Receipt
from service.engine.rewrites import HeldRelation
from service.errors import Problem
from service.instance import Instance
from service.query.conditions import ColumnRef, Filter
from service.reading.cursors import open_relation_rows, open_rows
from service.tables.relations import Relation
from service.tables.rewriting import Deletion, Replacement, Rewrite
from tests.service.running import batch, check, keep_house, parts, rows_of, running

Model = dict[int, str | None]


def there(engine: Instance, relation: str = "a") -> Model:
    with closing(open_relation_rows(engine.readers, relation)) as reader:
        rows = reader.read(100_000)
    return {} if rows is None else dict(zip(rows["id"].to_pylist(), rows["tag"].to_pylist(), strict=True))


def of(model: Model) -> pa.RecordBatch:
    schema = rows_of(0, 1).schema
    columns = [list(model), list(model), [key + 3 for key in model], list(model.values())]
    return pa.RecordBatch.from_arrays([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema)


def submit(engine: Instance, rewrite: Rewrite, sent: int) -> Receipt:
    answer: Future[Receipt | Problem] = Future()
    parts(engine).writer.submit(Batch([rewrite], sent, 0, [], 0), answer.set_result)
    result = answer.result(60)
    assert isinstance(result, Receipt), result
    return result


def scramble(rng: random.Random, engine: Instance, model: Model) -> None:
    """Other batches, which change rows, delete some, and bring new ones; slots are used again between them."""
    for _ in range(rng.randrange(4)):
        for key in rng.sample(range(40), 6):
            if rng.random() < 0.4:
                engine.apply(batch(("delete", "a", of({key: None}))))
                model.pop(key, None)
            else:
                model[key] = rng.choice(["x", "y", None])
                engine.apply(batch(("upsert", "a", of({key: model[key]}))))
        if rng.random() < 0.5:
            keep_house(engine)


def pairs(engine: Instance) -> list[tuple[int, int]]:
    with closing(open_rows(engine.readers, "v")) as reader:
        rows = reader.read(100_000)
    return [] if rows is None else sorted(zip(rows["i"].to_pylist(), rows["j"].to_pylist(), strict=True))


@pytest.mark.parametrize("how", ["delete", "replace"])
def test_the_relation_is_created_again_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """With the same definition. Seen: the batch was applied to the former table; the writer failed on rows that the new one does not have,
    or the answer said that rows were replaced that nobody could read."""
    with closing(running(tmp_path, {})) as engine:
        engine.apply(batch(("upsert", "a", rows_of(0, 9))))

        def again(relation: Relation) -> list[Any]:
            engine.drop_relation("a")
            engine.put_relation("a", relation.definition)
            engine.put_view("v", {"sql": "SELECT a.id AS id FROM a"})
            engine.apply(batch(("upsert", "a", rows_of(5, 3))))
            return []

        def late(relation: Relation, *given: Any) -> Replacement:
            again(relation)
            return Replacement(relation, *given)

        monkeypatch.setattr("service.engine.rewrites.Replacement", late)
        with pytest.raises(Problem) as raised:
            if how == "delete":
                engine.delete("a", Batch([], 0, 0, [], 0), again)
            else:
                engine.replace("a", batch(("upsert", "a", rows_of(3, 9))))
        assert raised.value.type == "not-found"
        assert sorted(there(engine)) == [5, 6, 7]
        check(engine)


@pytest.mark.parametrize("seed", range(40))
def test_others_write_between(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    engine = running(tmp_path, synchronous="normal")
    engine.apply(batch(("upsert", "b", rows_of(0, 40))))
    model: Model = {key: rng.choice(["x", "y", None]) for key in rng.sample(range(40), 25)}
    engine.apply(batch(("upsert", "a", of(model))))
    for _ in range(4):
        with parts(engine).rewrites.held("a") as held:
            new: Model = {key: rng.choice([model.get(key), "x", "z"]) for key in rng.sample(range(40), rng.randrange(40))}
            if rng.random() < 0.7:
                replacement(rng, engine, held, model, new)
            else:
                deletion(rng, engine, held, model)
        assert there(engine) == model
        assert pairs(engine) == sorted((i, j) for i in model for j in range(40))
        check(engine)
        keep_house(engine)
    before, shown = there(engine), pairs(engine)
    engine.close()
    again = running(tmp_path, view={})
    assert there(again) == before and pairs(again) == shown
    again.close()


def replacement(rng: random.Random, engine: Instance, held: HeldRelation, model: Model, new: Model) -> None:
    kept = rng.sample(range(40), 5)
    twice = of(dict.fromkeys(rng.sample(list(new), len(new) // 3), "former"))
    rows = [twice, of(new)] if rng.random() < 0.5 else [of(new)]
    keeps_all = rng.random() < 0.3
    rewrite = Replacement(*held, rows, None if keeps_all else [of(dict.fromkeys(kept)).select(["id"])])
    scramble(rng, engine, model)
    before = there(engine)
    submit(engine, rewrite, len(new))
    stays = before if keeps_all else {key: before[key] for key in kept if key in before}
    model.clear()
    model.update(stays | new)


def deletion(rng: random.Random, engine: Instance, held: HeldRelation, model: Model) -> None:
    rewrite = Deletion(*held, [Filter(ColumnRef("a", "tag"), "=", "x")])
    scramble(rng, engine, model)
    deleted = [key for key, tag in model.items() if tag == "x"]
    assert submit(engine, rewrite, 0).applied == len(deleted)
    for key in deleted:
        del model[key]


def test_two_commits_of_a_stage_at_once(tmp_path: Path) -> None:
    """Of one source and epoch: one of them is told that it is the second, with the answer to the first. Without a source there is none."""
    engine = running(tmp_path, {}, synchronous="normal")
    with ThreadPoolExecutor(2) as pool:
        for epoch, source in ((1, "s"), (2, "s"), (3, None)):
            engine.stage("a", "night", None, batch(("upsert", "a", rows_of(epoch, 5))))
            owner: dict[str, Any] = {"source": source, "epoch": epoch} if source is not None else {}
            with parts(engine).rewrites.held("a"):
                commits = [pool.submit(engine.commit_stage, "a", "night", Batch([], 0, 0, [], 0, **owner)) for _ in range(2)]
                assert not wait(commits, 0.3, "FIRST_COMPLETED").done, "both wait for whoever rewrites the relation"
            results = [commit.exception() or commit.result() for commit in commits]
            assert sorted(there(engine)) == list(range(epoch, epoch + 5))
            done, other = sorted(results, key=lambda one: not isinstance(one, Receipt) or one.duplicate)
            assert isinstance(done, Receipt) and not done.duplicate and done.applied == 5
            if source is not None:
                assert isinstance(other, Receipt) and other.duplicate and other.first is not None and other.version == done.version
                with parts(engine).rewrites.held("a"):
                    again = pool.submit(engine.commit_stage, "a", "night", Batch([], 0, 0, [], 0, **owner)).result(60)
                assert again.duplicate and again.version == done.version, "a repetition waits for nobody"
            else:
                assert isinstance(other, Problem) and other.type == "not-found"
    engine.close()
