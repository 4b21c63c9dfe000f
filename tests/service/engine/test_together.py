"""Single changes that wait together: which runs they become where they are no run all together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from livejoin.wire.batch import Batch, Changes, RowBlock
from livejoin.wire.json import decode_json
from service.engine.outcomes import Receipt
from service.errors import Problem
from service.instance import Instance
from tests.service.running import DEFINITION, ORDER, HeldWriter, check, of_ops, parts, running


def as_arrow(relation: str, op: str, id_: int) -> Batch:
    return of_ops(relation, (op, id_))


def as_values(relation: str, op: str, id_: int) -> Batch:
    row = (id_, None, None, None) if op == "delete" else (id_, 0, 1, None)
    block = RowBlock.few([row], of_ops(relation, (op, id_)).changes[0].rows.arrow.to_struct_array().type)
    return Batch([Changes(relation, DEFINITION, np.array([ORDER[op]], np.uint8), block, np.arange(1))], 1, 0, [], 0)


@pytest.fixture(params=[as_arrow, as_values])
def single(request: pytest.FixtureRequest) -> Callable[[str, str, int], Batch]:
    made: Callable[[str, str, int], Batch] = request.param
    return made


def applied(engine: Instance, batches: list[Batch]) -> tuple[list[int], list[Receipt | Problem]]:
    """The lengths of the runs, and the answers."""
    runs: list[int] = []
    apply = parts(engine).state.apply
    held = HeldWriter(engine)
    parts(engine).state.apply = lambda validated: (runs.append(len(validated.batches)), apply(validated))[1]  # type: ignore[method-assign]
    for one in batches:
        held.submit(one)
    held.release()
    engine.at_rest(lambda: None)
    parts(engine).state.apply = apply  # type: ignore[method-assign]
    check(engine)
    return runs, held.answers


def versions(answers: list[Receipt | Problem]) -> list[int | str]:
    return [answer.type if isinstance(answer, Problem) else answer.version for answer in answers]


def test_a_run_ends_where_a_row_comes_again(tmp_path: Path, single: Callable[[str, str, int], Batch]) -> None:
    """64 clients that write 100,000 rows meet at one of them every fiftieth time, and clients that write few rows always."""
    engine = running(tmp_path)
    ids = [*range(10), 5, *range(10, 20), 5, 3]
    runs, answers = applied(engine, [single("a", "upsert", id_) for id_ in ids])
    assert runs == [10, 11, 2] and versions(answers) == [*range(1, 24)]
    runs, _ = applied(engine, [single(name, "upsert", 1) for name in "abab"])
    assert runs == [2, 2], "of another relation it is another row"
    runs, _ = applied(engine, [single("a", "upsert", 1)] * 3)
    assert runs == [1, 1, 1]
    assert (engine.rows_of("a"), engine.rows_of("b")) == (20, 1)
    engine.close()


def test_what_is_wrong_with_one_parts_a_run_in_halves(tmp_path: Path, single: Callable[[str, str, int], Batch]) -> None:
    engine = running(tmp_path)
    engine.apply(single("a", "upsert", 100))
    batches = [single("a", "insert", 100 if number == 5 else number) for number in range(16)]
    runs, answers = applied(engine, batches)
    assert runs == [4, 1, 2, 8]
    assert versions(answers) == [2, 3, 4, 5, 6, "bad-rows", *range(7, 17)]
    runs, answers = applied(engine, [single("a", "delete", number) for number in (1, 77, 2, 3)])
    assert runs == [1, 1, 2] and [answer.ignored for answer in answers if isinstance(answer, Receipt)] == [0, 1, 0, 0]
    assert engine.rows_of("a") == 13
    engine.close()


def test_rows_of_texts_meet_by_their_key(tmp_path: Path) -> None:
    engine = running(tmp_path)
    bodies = [b'{"changes":[{"relation":"a","op":"upsert","row":{"id":%d,"s":1,"e":2,"tag":"x"}}]}' % id_ for id_ in (1, 2, 1)]
    runs, _ = applied(engine, [decode_json(body, lambda name: DEFINITION) for body in bodies])
    assert runs == [2, 1]
    engine.close()
