"""Table and Domain against naive twins that keep every life as a record."""

import datetime
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from livejoin.wire.batch import RowBlock
from service.tables.domains import Domain
from service.tables.store import Table
from structures.core.kernel import JIT
from structures.rows.key_table import ALL_BITS

UTC = datetime.UTC
SCHEMA = pa.schema(
    [
        pa.field("note", pa.utf8()),
        pa.field("k", pa.int64(), False),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("t", pa.utf8(), False),
        pa.field("day", pa.date32()),
        pa.field("yes", pa.bool_()),
        pa.field("x", pa.float64()),
    ]
)
KEY = ["t", "k"]
TEXT = st.sampled_from(["", "a", "b", "ab", "ä", "a longer text of several words"])
KEYS = st.tuples(TEXT, st.sampled_from([0, 1, -1, 2**62, -(2**63)]))
VALUES = st.tuples(
    st.none() | TEXT,
    st.none() | st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1), timezones=st.just(UTC)),
    st.none() | st.dates(),
    st.none() | st.booleans(),
    st.none() | st.floats(allow_nan=False),
)
NEVER = 2**63 - 1
PIECE = 3  # slots


def batch(rows: list[dict], schema: pa.Schema, before: int) -> pa.RecordBatch:
    """As a slice, so that offsets are not 0."""
    pad = (rows[:1] * before) if rows else []
    return pa.RecordBatch.from_pylist(pad + rows, schema=schema).slice(len(pad))


@dataclass
class Life:
    row: dict
    slot: int
    born: int
    died: int = NEVER


class TableMachine(RuleBasedStateMachine):
    hash_mask = ALL_BITS

    def __init__(self):
        super().__init__()
        self.table = Table(SCHEMA, KEY, self.hash_mask)
        self.version = 0
        self.lives: list[Life] = []  # all that the store must still keep apart
        self.pins: list[int] = []

    def living(self) -> dict:
        return {(life.row["t"], life.row["k"]): life for life in self.lives if life.died == NEVER}

    def end(self, keys: list) -> None:
        living = self.living()
        self.table.delete(self.version, np.array([living[key].slot for key in keys], np.int32))
        for key in keys:
            living[key].died = self.version

    @rule(
        inserts=st.dictionaries(KEYS, VALUES, max_size=8),
        chosen=st.sets(st.integers(0, 40), max_size=8),
        again=st.sets(st.integers(0, 40), max_size=2),
        before=st.integers(0, 9),
    )
    def change(self, inserts, chosen, again, before):
        """Deletes, inserts (also of keys just deleted), and deletes of what was just inserted."""
        self.version += 1
        keys = list(self.living())
        self.end([key for i, key in enumerate(keys) if i in chosen or key in inserts])
        rows = [
            {"note": note, "k": k, "at": at, "t": t, "day": day, "yes": yes, "x": x} for (t, k), (note, at, day, yes, x) in inserts.items()
        ]
        slots = self.table.insert(self.version, RowBlock(batch(rows, SCHEMA, before))).tolist()
        taken = {life.slot for life in self.lives}
        assert len(set(slots)) == len(rows) and not taken & set(slots)
        self.lives += [Life(row, slot, self.version) for row, slot in zip(rows, slots, strict=True)]
        self.end([key for i, key in enumerate(inserts) if i in again])

    @rule()
    def pin(self):
        self.pins = sorted([*self.pins, self.version])

    @precondition(lambda self: self.pins)
    @rule(which=st.integers(0, 99))
    def unpin(self, which):
        self.pins.pop(which % len(self.pins))

    @rule()
    def reclaim(self):
        while self.reclaim_some():
            pass
        self.lives = [life for life in self.lives if life.died == NEVER or any(life.born <= pin < life.died for pin in self.pins)]
        kept = self.table._rows.used - self.table._rows._free_count
        assert kept == len(self.lives), "reclaimed too much or too little"

    @rule()
    def reclaim_a_piece(self):
        self.reclaim_some()
        freed = [life for life in self.lives if self.table._rows.born[life.slot] == NEVER]
        for life in freed:
            assert life.died != NEVER and not any(life.born <= pin < life.died for pin in self.pins), "a slot that can be seen"
        self.lives = [life for life in self.lives if life not in freed]

    def reclaim_some(self) -> bool:
        before = self.table._rows.kept
        more = self.table.reclaim(self.version, np.unique(np.array(self.pins, np.int64)))
        assert before - self.table._rows.kept <= PIECE, "more than a piece"
        return more

    @rule(which=st.integers(0, 99), limit=st.integers(1, 5), names=st.permutations(SCHEMA.names), width=st.integers(1, 7))
    def read(self, which, limit, names, width):
        versions = [*self.pins, self.version]
        version = versions[which % len(versions)]
        names = names[:width]
        start, seen = 0, {}
        while start >= 0:
            slots, start = self.table.scan(version, start, limit)
            rows = self.table.take(names, slots)
            rows.validate(full=True)
            assert rows.schema == pa.schema([SCHEMA.field(name) for name in names])
            seen |= dict(zip(slots.tolist(), rows.to_pylist(), strict=True))
        expected = {life.slot: {n: life.row[n] for n in names} for life in self.lives if life.born <= version < life.died}
        assert seen == expected

    @rule(keys=st.lists(KEYS, max_size=12), before=st.integers(0, 9))
    def find(self, keys, before):
        schema = pa.schema([SCHEMA.field(name) for name in KEY])
        living = self.living()
        found = self.table.find(RowBlock(batch([{"t": t, "k": k} for t, k in keys], schema, before)))
        assert found.dtype == np.int32
        assert found.tolist() == [living[key].slot if key in living else -1 for key in keys]

    @invariant()
    def sound(self):
        self.table.check()
        assert self.table.rows == len(self.living())
        held = dict(self.table.held)
        free, garbage = held.pop("free slots"), held.pop("garbage of texts")
        assert min(free, garbage, *held.values()) >= 0
        assert sum(held.values()) <= self.table.bytes <= sum(held.values()) + 8 * len(self.lives)
        assert held["columns"] == len(self.lives) * len(SCHEMA) * 8


class CollidingTableMachine(TableMachine):
    hash_mask = 1


DOMAIN_KEYS = st.tuples(
    st.sampled_from([None, "", "a", "ab", "long enough to be hashed by fours"]), st.sampled_from([0.0, -0.0, 1.5, None])
)
DOMAIN_SCHEMA = pa.schema([("t", pa.utf8()), ("x", pa.float64())])


class DomainMachine(RuleBasedStateMachine):
    hash_mask = ALL_BITS

    @initialize()
    def start(self):
        self.domain = Domain([field.type for field in DOMAIN_SCHEMA], self.hash_mask)
        self.version = 0
        self.emitted = self.peak = 0
        self.codes: dict = {}  # key -> [code, count, born, died]
        self.pins: list[tuple[int, dict]] = []  # with the codes in use at that version

    def columns(self, keys, before):
        return batch([{"t": t, "x": x} for t, x in keys], DOMAIN_SCHEMA, before)

    @rule(keys=st.lists(DOMAIN_KEYS, max_size=12), before=st.integers(0, 9), released=st.lists(st.integers(0, 99), max_size=12))
    def change(self, keys, before, released):
        self.version += 1
        codes = self.domain.acquire(self.columns(keys, before)).tolist()
        for key, code in zip(keys, codes, strict=True):
            if None in key:
                assert code == -1
                continue
            if key not in self.codes:
                assert code not in [known[0] for known in self.codes.values()], "a code of another key"
                self.codes[key] = [code, 0, self.emitted, NEVER]
            known = self.codes[key]
            assert known[0] == code
            known[1] += 1
            known[3] = NEVER
        self.peak = max(self.peak, len(self.codes))
        assert self.domain._rows.used == self.peak, "codes are dense"
        deleted = []
        for pick in released:
            counted = [known for known in self.codes.values() if known[1]]
            if counted:
                known = counted[pick % len(counted)]
                known[1] -= 1
                deleted.append(known[0])
                if not known[1]:
                    known[3] = self.version
        self.domain.release(np.array([*deleted, -1], np.int32), self.version)
        self.emitted = self.version

    @rule(left=st.sampled_from([0, 1, 2]))
    def release_all(self, left):
        """All but up to so many references of each code."""
        self.version += 1
        kept = np.zeros(self.domain.codes, np.int64)
        for known in self.codes.values():
            kept[known[0]] = known[1] = min(left, known[1])
        self.domain.release_all(self.version, kept)
        self.emitted = self.version

    @rule()
    def pin(self):
        self.pins.append((self.version, {key: known[0] for key, known in self.codes.items() if known[1]}))

    @precondition(lambda self: self.pins)
    @rule(which=st.integers(0, 99))
    def unpin(self, which):
        self.pins.pop(which % len(self.pins))

    @rule()
    def reclaim(self):
        while self.reclaim_some():
            pass
        pins = [version for version, _ in self.pins]
        self.codes = {key: known for key, known in self.codes.items() if known[1] or any(known[2] <= pin < known[3] for pin in pins)}

    @rule()
    def reclaim_a_piece(self):
        self.reclaim_some()
        for key, (code, count, born, died) in list(self.codes.items()):
            if self.domain._rows.born[code] == NEVER:
                assert not count and not any(born <= pin < died for pin, _ in self.pins), "a code that is known"
                del self.codes[key]

    def reclaim_some(self) -> bool:
        self.emitted = self.version
        for known in self.codes.values():
            if known[0] in self.domain._counts.unswept[:PIECE] and not known[1]:
                known[3] = min(known[3], self.version)
        return self.domain.reclaim(self.version, np.array(sorted({version for version, _ in self.pins}), np.int64))

    @rule(keys=st.lists(DOMAIN_KEYS, max_size=12), before=st.integers(0, 9))
    def look_up(self, keys, before):
        expected = [self.codes[key][0] if key in self.codes else -1 for key in keys]
        assert self.domain.look_up(self.columns(keys, before)).tolist() == expected

    @invariant()
    def pinned_codes_stay(self):
        if not hasattr(self, "domain"):
            return
        self.domain.check()
        assert self.domain.keys == len(self.codes)
        for _, codes in self.pins:
            for key, code in codes.items():
                assert self.codes[key][0] == code


class CollidingDomainMachine(DomainMachine):
    hash_mask = 0


@pytest.mark.parametrize("machine", [TableMachine, CollidingTableMachine, DomainMachine, CollidingDomainMachine])
def test_as_the_twin(machine, monkeypatch):
    smaller = {"_SMALLEST": 2, "_FEW": 3, "_RESERVED": 32}
    for name, value in smaller.items():
        monkeypatch.setattr(f"structures.rows.key_table.{name}", value)
    monkeypatch.setattr("structures.rows.rows.HEAP_WORTH_REWRITING", 32)
    monkeypatch.setattr("structures.rows.rows._REWRITTEN_AT_ONCE", 40)
    for module in ("store", "domains"):
        monkeypatch.setattr(f"service.tables.{module}.LOOKED_AT", PIECE)
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=60 if JIT else 8, stateful_step_count=30, deadline=None, print_blob=True,
                          suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]),
    )  # fmt: skip
