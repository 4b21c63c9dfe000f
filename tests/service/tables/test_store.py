"""Table and Domain: types, shapes of Arrow input, misuse, readers beside the writer."""

import datetime
import threading

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from livejoin.wire.batch import RowBlock
from service.tables.domains import Domain
from service.tables.endpoints import equal_rows
from service.tables.store import Table
from structures.core.kernel import JIT, _listed
from structures.rows import rows

NO_PINS = np.empty(0, np.int64)
SCHEMA = pa.schema([pa.field("k", pa.int64(), False), pa.field("t", pa.utf8(), False), pa.field("n", pa.int64())])


def make(keys, text="text {}"):
    return pa.RecordBatch.from_pylist([{"k": int(k), "t": text.format(k), "n": int(k) if k % 2 else None} for k in keys], SCHEMA)


def keys(*values):
    return pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], names=["k"])


EDGES = [
    (pa.int64(), [-(2**63), 2**63 - 1, 0, None]),
    (pa.float64(), [float("inf"), -float("inf"), 5e-324, None]),
    (pa.timestamp("us", "UTC"), [datetime.datetime(1, 1, 1, tzinfo=datetime.UTC), None]),
    (pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None]),
    (pa.bool_(), [True, False, None, True, True, False, True, None, False, True]),
    (pa.utf8(), ["", None, "ä", "x" * 70_000, "\0"]),
]


@pytest.mark.parametrize("type,values", EDGES, ids=[str(type) for type, _ in EDGES])
@pytest.mark.parametrize("offset", [0, 1, 7, 8, 9])
def test_values_come_back(type, values, offset):
    schema = pa.schema([pa.field("k", pa.int64(), False), pa.field("v", type)])
    table = Table(schema, ["k"])
    padded = pa.array([values[0]] * offset + values, type)
    whole = pa.RecordBatch.from_arrays([pa.array(range(len(padded))), padded], schema=schema)
    given = whole.slice(offset)
    slots = table.insert(1, RowBlock(given))
    taken = table.take(["k", "v"], slots)
    taken.validate(full=True)
    assert taken.equals(given) and taken.schema == schema
    assert table.take(["v"], slots[::-1]).column(0).to_pylist() == values[::-1]
    table.check()


@pytest.mark.parametrize("type,values", EDGES, ids=[str(type) for type, _ in EDGES])
def test_every_type_as_a_key(type, values):
    present = [value for value in values if value is not None]
    present = list(dict.fromkeys(present))
    schema = pa.schema([pa.field("v", type, False)])
    table = Table(schema, ["v"])
    given = pa.RecordBatch.from_arrays([pa.array(present, type)], schema=schema)
    slots = table.insert(1, RowBlock(given))
    assert table.find(RowBlock(given)).tolist() == slots.tolist() == list(range(len(present)))
    domain = Domain([type])
    columns = pa.RecordBatch.from_arrays([pa.array(values, type)], names=["v"])
    codes = domain.acquire(columns).tolist()
    assert codes == [-1 if value is None else present.index(value) for value in values]
    assert domain.look_up(columns).tolist() == codes


def few(rows):
    """The same rows as physical values."""
    numbers = {pa.timestamp("us", "UTC"): pa.int64(), pa.date32(): pa.int32()}
    columns = [column.cast(numbers.get(column.type, column.type)).to_pylist() for column in rows.columns]
    return RowBlock.few(list(zip(*columns, strict=True)), pa.struct(rows.schema))


def test_few_rows_are_what_arrow_makes_of_them():
    types = [type for type, _ in EDGES] * 6
    schema = pa.schema([pa.field(f"c{i}", type) for i, type in enumerate(types)])  # more than a cell of null bits
    rng = np.random.default_rng(5)
    for count in (1, 1, 1, 3, 8):
        columns = [[values[rng.integers(len(values))] for _ in range(count)] for _, values in EDGES * 6]
        arrow = pa.RecordBatch.from_arrays([pa.array(values, type) for values, type in zip(columns, types, strict=True)], schema=schema)
        table = Table(schema, ["c0", "c5"])
        for x, y in zip(table.given(RowBlock(arrow)), table.given(few(arrow)), strict=True):
            assert np.array_equal(x, y) and x.dtype == y.dtype
        assert few(arrow).arrow.equals(arrow) and few(arrow).bytes >= arrow.nbytes / 8
    with pytest.raises(ValueError):
        Table(pa.schema([pa.field("v", pa.int64(), False)]), ["v"]).given(RowBlock.few([(None,)], pa.struct(schema)))


def test_codes_of_rows_in_a_table_are_those_of_their_columns():
    """With and without texts, nulls among them, one row and many; -0.0 is 0.0, and every NaN one value."""
    types = [type for type, _ in EDGES]
    schema = pa.schema([pa.field("k", pa.int64(), False)] + [pa.field(f"c{i}", type) for i, type in enumerate(types)])
    rng = np.random.default_rng(9)
    table = Table(schema, ["k"])
    others = {pa.float64(): [0.0, -0.0, float("nan"), -float("nan"), None], pa.utf8(): ["", "ä", "aa", None]}
    given = [others.get(type, values) for type, values in EDGES]
    drawn = [[values[rng.integers(len(values))] for _ in range(200)] for values in given]
    columns = [pa.array(range(200)), *(pa.array(values, type) for values, type in zip(drawn, types, strict=True))]
    slots = table.insert(1, RowBlock(pa.RecordBatch.from_arrays(columns, schema=schema)))
    for chosen in ([0], [1], [2, 3], [4, 1], list(range(len(types)))):
        names = [f"c{i}" for i in chosen]
        one, other = (Domain([types[i] for i in chosen]) for _ in range(2))
        for some in (slots, slots[:1], slots[7:9], slots[:0]):
            taken = table.take(names, some)
            codes = one.acquire_of(table, names, some)
            assert codes.tolist() == other.acquire(taken).tolist() == other.look_up_of(table, names, some).tolist()
            assert one.look_up(taken).tolist() == codes.tolist()
            assert (codes < 0).tolist() == [any(value is None for value in row.values()) for row in taken.to_pylist()]


def test_more_columns_than_null_bits_in_a_cell():
    names = [f"c{i}" for i in range(70)]
    schema = pa.schema([pa.field("k", pa.int64(), False)] + [pa.field(name, pa.int64()) for name in names])
    table = Table(schema, ["k"])
    given = pa.RecordBatch.from_pylist([{"k": r} | {n: None if (i * r) % 3 else i for i, n in enumerate(names)} for r in range(5)], schema)
    assert table.take(schema.names, table.insert(1, RowBlock(given))).equals(given)


def test_nothing_in_nothing_out():
    table, domain = Table(SCHEMA, ["k"]), Domain([pa.int64()])
    assert table.insert(1, RowBlock(make([]))).tolist() == table.find(RowBlock(keys())).tolist() == []
    table.delete(1, np.empty(0, np.int32))
    table.reclaim(1, NO_PINS)
    assert table.scan(1, 0, 10)[1] == -1
    taken = table.take(["t", "n"], np.empty(0, np.int32))
    taken.validate(full=True)
    assert len(taken) == 0 and taken.schema.names == ["t", "n"]
    assert domain.acquire(keys()).tolist() == domain.look_up(keys(None)).tolist()[:0] == []
    domain.release(np.empty(0, np.int32), 1)
    table.check()
    domain.check()


def test_texts_without_bytes_or_under_a_null():
    """Arrow may keep bytes under a null."""
    table = Table(SCHEMA, ["k"])
    empty = pa.Array.from_buffers(pa.utf8(), 2, [None, pa.py_buffer(np.zeros(3, np.int32)), pa.py_buffer(b"")])
    table.insert(1, RowBlock(pa.RecordBatch.from_arrays([pa.array([1, 2]), empty, pa.nulls(2, pa.int64())], schema=SCHEMA)))
    schema = pa.schema([pa.field("k", pa.int64(), False), pa.field("v", pa.utf8())])
    hidden = pa.Array.from_buffers(
        pa.utf8(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(np.array([0, 3, 5], np.int32)), pa.py_buffer(b"secok")]
    )
    other = Table(schema, ["k"])
    slots = other.insert(1, RowBlock(pa.RecordBatch.from_arrays([pa.array([1, 2]), hidden], schema=schema)))
    taken = other.take(["v"], slots).column(0)
    assert taken.to_pylist() == [None, "ok"] and taken.buffers()[2].size == 2
    for checked in (table, other):
        checked.check()


def test_misuse_is_noticed():
    table, domain = Table(SCHEMA, ["k"]), Domain([pa.int64()])
    slots = table.insert(1, RowBlock(make([1, 2])))
    with pytest.raises(AssertionError):
        table.insert(2, RowBlock(make([2])))
    table.delete(2, slots[:1])
    with pytest.raises(AssertionError):
        table.delete(2, slots[:1])
    codes = domain.acquire(keys(7))
    domain.release(codes, 2)
    with pytest.raises(AssertionError):
        domain.release(codes, 2)
    strict = Table(pa.schema([pa.field("k", pa.int64(), False)]), ["k"])
    with pytest.raises(ValueError):
        strict.insert(1, RowBlock(keys(None)))
    with pytest.raises(KeyError):
        Table(pa.schema([pa.field("k", pa.int32(), False)]), ["k"])


def test_reclaimed_slots_come_first_and_old_pins_stay_right():
    table = Table(SCHEMA, ["k"])
    slots = table.insert(1, RowBlock(make(range(4))))
    table.delete(2, slots[:2])
    table.reclaim(2, np.array([1]))
    assert table.insert(3, RowBlock(make([10]))).tolist() == [4]
    table.reclaim(3, NO_PINS)
    assert sorted(table.insert(4, RowBlock(make([11, 12, 13]))).tolist()) == [0, 1, 5]
    assert [table.scan(v, 0, 100)[0].tolist() for v in (2, 3, 4)] == [[2, 3], [2, 3, 4], [0, 1, 2, 3, 4, 5]]


def test_a_key_deleted_and_inserted_in_one_version():
    table = Table(SCHEMA, ["k"])
    slots = table.insert(1, RowBlock(make([1])))
    table.delete(2, slots)
    again = table.insert(2, RowBlock(make([1], "new {}")))
    assert again.tolist() == [1] and table.rows == 1
    assert [table.take(["t"], table.scan(v, 0, 9)[0]).to_pydict()["t"] for v in (1, 2)] == [["text 1"], ["new 1"]]
    table.check()


def test_bytes_go_down_again():
    table = Table(SCHEMA, ["k"])
    table.insert(1, RowBlock(make([1000])))
    before = table.bytes
    slots = table.insert(2, RowBlock(make(range(40))))
    assert table.bytes > before
    table.delete(3, slots)
    table.reclaim(3, NO_PINS)
    assert table.bytes == before


def test_a_code_waits_for_the_pins_that_know_it():
    domain = Domain([pa.int64()])
    domain.reclaim(4, NO_PINS)
    assert domain.acquire(keys(5, 5, None, 6)).tolist() == [0, 0, -1, 1]
    domain.release(np.array([0, 0, -1], np.int32), 6)
    domain.reclaim(5, NO_PINS)
    domain.reclaim(6, np.array([5]))
    assert domain.look_up(keys(5)).tolist() == [0] and domain.acquire(keys(7)).tolist() == [2]
    assert domain.acquire(keys(5)).tolist() == [0], "alive again"
    domain.release(np.array([0], np.int32), 8)
    domain.reclaim(8, np.array([3, 9]))
    assert domain.look_up(keys(5)).tolist() == [-1] and domain.acquire(keys(8)).tolist() == [0]
    domain.check()


def test_readers_beside_the_writer(monkeypatch):
    """Readers of pinned versions see the same rows while slots are reused and the heap is rewritten."""
    monkeypatch.setattr(rows, "HEAP_WORTH_REWRITING", 1000)
    seed = 7
    random = np.random.default_rng(seed)
    table = Table(SCHEMA, ["k"])
    n, batches = (2000, 150) if JIT else (60, 25)
    published = {1: make(range(n))}
    table.insert(1, RowBlock(published[1]))
    pins = {1: 0}
    lock, done, wrong, longest = threading.Lock(), threading.Event(), [], 0

    def read():
        while not done.is_set():
            with lock:
                version = max(published)
                pins[version] = pins.get(version, 0) + 1
                expected = published[version]
            for _ in range(3):
                slots, _ = table.scan(version, 0, 10**6)
                got = table.take(["k", "t", "n"], slots)
                if not got.take(pc.sort_indices(got.column(0))).equals(expected):
                    wrong.append(version)
            with lock:
                pins[version] -= 1

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for version in range(2, batches):
            chosen = np.unique(random.integers(0, n, n // 3))
            table.delete(version, table.find(RowBlock(keys(*chosen.tolist()))))
            fresh = make(chosen, f"{'v' * (version % 40)}{version} {{}}")
            table.insert(version, RowBlock(fresh))
            text = published[version - 1].column(1).to_pylist()
            for key, value in zip(chosen, fresh.column(1).to_pylist(), strict=True):
                text[key] = value
            with lock:
                published[version] = pa.RecordBatch.from_arrays(
                    [published[1].column(0), pa.array(text), published[1].column(2)], schema=SCHEMA
                )
                pinned = np.array(sorted(v for v, count in pins.items() if count), np.int64)
            longest = max(longest, version - min(pinned, default=version))
            table.reclaim(version, pinned)
            table.check()
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert not wrong, (seed, wrong)
    assert table._rows.used < n * (2 + longest / 3), "each version held by a pin, and the newest two, keep the third that it replaced"


@pytest.mark.parametrize("seed", range(4))
def test_same_and_numbers_agree_with_arrow(seed: int):
    rng = np.random.default_rng(seed)
    n = 200
    types = [pa.int64(), pa.utf8(), pa.float64(), pa.bool_(), pa.date32(), pa.utf8(), pa.timestamp("us", "UTC")]
    floats = [0.0, -0.0, float("nan"), 1.5, None]
    choices = [[0, 1, None], ["", "a", "b", None], floats, [True, False, None], [0, 1, None], ["", "b"], [0, 7, None]]
    columns = [pa.array([some[i] for i in rng.integers(0, len(some), n)], t) for some, t in zip(choices, types, strict=True)]
    schema = pa.schema([pa.field("id", pa.int64(), False), *(pa.field(f"c{i}", t) for i, t in enumerate(types))])
    table = Table(schema, ["id"])
    table.insert(1, RowBlock(pa.RecordBatch.from_arrays([pa.array(np.arange(n)), *columns], schema=schema)))
    for _ in range(40):
        names = [name for name in schema.names[1:] if rng.integers(2)]
        slots, others = rng.integers(0, n, (2, int(rng.integers(1, 60)))).astype(np.int32)
        expected = equal_rows(table.take(names, slots), table.take(names, others)) if names else np.ones(len(slots), bool)
        assert np.array_equal(table.same(names, slots, others), expected), (seed, names)
        fixed = [name for name in names if schema.field(name).type != pa.utf8()]
        rows = table.take(fixed, slots)
        for column, values, nulls in zip(rows.columns, *table.numbers(fixed, slots), strict=True):
            assert np.array_equal(np.zeros(len(slots), bool) if nulls is None else nulls, np.asarray(column.is_null())), seed
            is_float = column.type == pa.float64()
            physical = column.cast(pa.int32()) if column.type == pa.date32() else column
            known = np.asarray(physical.is_valid())
            expected = physical.drop_null().cast(pa.float64() if is_float else pa.int64()).to_numpy()
            seen = values.view(np.float64) if is_float else values
            assert np.array_equal(seen[known], expected, equal_nan=is_float), seed


def test_kernels_are_compiled_for_one_signature_whatever_arrow_hands_in():
    """Buffers from files are read-only, those of computations are not; slots and pins may be either."""
    if not JIT:
        return
    schema = pa.schema([SCHEMA.field(0), SCHEMA.field(1), pa.field("u", pa.utf8(), False), SCHEMA.field(2)])
    sink = pa.BufferOutputStream()
    made = pa.RecordBatch.from_arrays(
        [pa.array([1, 2]), pc.binary_join_element_wise(pa.array(["a", "b"]), "c", "-"), pa.array(["x", "y"]), pa.array([None, 1])],
        schema=schema,
    )
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(made)
    loaded = pa.ipc.open_stream(sink.getvalue().to_pybytes()).read_next_batch()
    for given in (made, loaded):
        table = Table(schema, ["t", "k"])
        slots = table.insert(1, RowBlock(given))
        assert table.find(RowBlock(given.select(["t", "k"]))).tolist() == [0, 1]
        assert table.find(few(given.select(["t", "k"]))).tolist() == [0, 1]
        assert Table(schema, ["t", "k"]).insert(1, few(given)).tolist() == [0, 1]
        frozen = slots.astype(np.int64)
        frozen.flags.writeable = False
        assert table.take(schema.names, frozen).equals(given)
        assert table.same(schema.names, frozen, slots[::-1]).tolist() == [False, False]
        table.delete(2, frozen)
        pins = np.array([1])
        pins.flags.writeable = False
        table.reclaim(2, pins)
        domain = Domain([pa.utf8()])
        domain.release(domain.acquire(given.select(["t"])), 1)
        domain.reclaim(1, pins)
    modules = [f"structures.rows.{name}" for name in ("rows", "reading", "key_table", "retired", "key_counts")]
    entry_points = [kernel for kernel, _ in _listed if kernel.py_func.__module__ in modules]
    assert {k.py_func.__module__ for k in entry_points} == set(modules)
    assert {k.py_func.__name__: k.signatures for k in entry_points if len(k.signatures) > 1} == {}
