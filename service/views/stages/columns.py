"""What groups read of a join's rows: the codes of their groups, and the values for the aggregates.

A group's code is the code of its columns in a domain. A column that may ever become nullable (`views/nulls.py`) is preceded by a bool, true
for null, which counts as a value here. -0.0 equals 0.0, and all NaNs are equal. If all columns are numbers, the rows of tables are read
directly, without Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from livejoin.wire.kinds import KEPT_TYPES, decimal_kind, digits_of, kept, sent
from livejoin.wire.schema import RelationDefinition
from service.query.conditions import ColumnRef, Term, columns_of
from service.query.model import Output, Query
from service.tables.arrow import data_of, is_text, null_mask, reader
from service.tables.domains import Domain
from service.tables.inputs import Input
from service.tables.projection import Projection
from service.tables.resolution import Slots
from service.tables.store import Table, pieces
from service.tables.truncation import trunc_dates, trunc_timestamps
from service.tables.values.columns import Column as ComputedColumn
from service.tables.values.columns import Values, of_words, to_words
from service.tables.values.numbers import add_steps, is_arithmetic
from service.tables.values.terms import computed
from service.views.deltas import Combination
from service.views.nulls import loosened
from service.views.shown import Definitions, ShownAliases
from service.views.stages import listing, squares, wide
from service.views.stages.aggregates import CODED, HIGH, LISTED, LOW, ORDERED, SORTED
from structures.aggregate.layout import INFINITY_BITS, NAN_BITS, NAN_ORDER
from structures.grouped import following
from structures.grouped.following import Reads
from structures.rows.key_table import SlotRows

Words = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Stored = tuple[Words, Mask | None]
Inserted = tuple[Mask, int]
"""Which rows come, and the version at which the others, which have come before, go."""

_FLOAT, _DATE, _BOOL = pa.float64(), pa.date32(), pa.bool_()
_SIGN = np.int64(-(2**63))
_NO_WORDS, _NONE_GIVEN = np.empty(0, np.int64), np.zeros((0, 2, 0), np.int64)


class StageRows(NamedTuple):
    """n rows. codes: int32[n], of groups. values: int64[k, n] of the operands, nulls: uint8[k, n]. texts: codes for each domain of text
    operands, -1 for null."""

    codes: Slots
    values: Words
    nulls: npt.NDArray[np.uint8]
    texts: Sequence[Slots]


class References:
    """How many references some rows have to each code, for each domain in the order of `Columns.codes_of`."""

    def __init__(self) -> None:
        self._counts: list[Words] = []
        self._codes: list[int] = []  # for each domain: an exclusive upper bound of the codes met

    @property
    def counts(self) -> list[Words]:
        """int64[n] for each domain: the references to the codes from 0 on."""
        return [counts[:codes] for counts, codes in zip(self._counts, self._codes, strict=True)]

    def add(self, codes: Sequence[Slots], each: int = 1) -> None:
        """Add or remove rows with these codes; -1 is none. O(1) a row, amortised."""
        more = len(codes) - len(self._counts)
        self._counts, self._codes = self._counts + [_NO_WORDS] * more, self._codes + [0] * more
        for index, some in enumerate(codes):
            some = some[some >= 0]
            self._codes[index] = most = max(self._codes[index], int(some.max(initial=-1)) + 1)
            before = self._counts[index]
            if most > len(before):
                self._counts[index] = np.zeros(max(most, 2 * len(before)), np.int64)
                self._counts[index][: len(before)] = before
            np.add.at(self._counts[index], some, each)


class _Column(NamedTuple):
    """n values of an output: words, or else the array of texts or wide decimals; null: where they are null (None: nowhere)."""

    words: Words
    null: Mask | None
    text: pa.Array | None = None


class Columns:
    """The columns of one view's groups. Used by one thread at a time, the writer or the view's builder, and meanwhile by the preparation of
    a truncate, for `read` and `release`: the domains have locks."""

    def __init__(self, query: Query, inputs: Sequence[Input], definitions: Definitions) -> None:
        assert query.groups is not None
        self._parts = ShownAliases(query, inputs, loosened(query, definitions))
        self._query, self._inputs = query, inputs
        self.schema = self._parts.schema  # of the columns read, nullable where they may ever become so
        self.follow(definitions)
        self._columns = query.groups.columns
        fields = [self.schema.field(column.of) for column in self._columns]
        self._sent = [field.type for field in fields]
        self._types = [_kept_type(type_) for type_ in self._sent]  # as stored in the domain
        self.nullable = [field.nullable for field in fields]
        by_alias = {alias: definitions[relation] for alias, relation in query.aliases}
        both = zip(self._columns, fields, strict=True)
        self.kinds = [kind_of_output(query.outputs[column.of], by_alias, field.type) for column, field in both]
        self.domain: Domain | None = None
        self.has_texts = any(map(is_text, self._types))  # in the domain
        self.operands: list[tuple[int, int]] = []  # output (of a LISTED one the aggregate), form
        self._texts: dict[int, Domain] = {}  # by index of a CODED, SORTED or LISTED operand
        readable = {input.alias for input in inputs} - set(query.optional)

        def is_number(ref: ColumnRef) -> bool:
            return ref.alias in readable and not is_text(KEPT_TYPES[by_alias[ref.alias].column(ref.column).kind])

        self._plain = {at: one.column for at, one in enumerate(query.outputs) if one.column is not None and is_number(one.column)}
        are_words = [not is_text(type_) and not wide.is_wide(type_) for type_ in self.schema.types]
        terms = {at: one.term for at, one in enumerate(query.outputs) if one.term is not None and are_words[at]}
        self._terms = {at: term for at, term in terms.items() if all(map(is_number, columns_of(term)))}
        self._kinds = {ref: kind for term in self._terms.values() for ref, kind in columns_of(term).items()}
        self._read = self._reads_of([*self._plain.values(), *self._kinds])
        self._others = [at for at in range(len(query.outputs)) if at not in self._plain and at not in self._terms]
        self._arrow = self._parts.only([self.schema.field(at).name for at in self._others])
        self._truncated = [(k, column.trunc) for k, column in enumerate(self._columns) if column.trunc is not None]
        of_truncated = {self._columns[k].of for k, _ in self._truncated}
        self._given = {  # to a kernel, which computes the others
            at: term for at, term in self._terms.items() if at in of_truncated or not is_arithmetic(term)
        }
        refs = [self._plain[at] for at in of_truncated if at in self._plain]
        self._given_of = self._reads_of([*(ref for term in self._given.values() for ref in columns_of(term)), *refs])

    def _reads_of(self, refs: Sequence[ColumnRef]) -> list[tuple[int, list[ColumnRef], list[str]]]:
        """Return for each input its place and which of these columns, of numbers, it has."""
        mine = [(position, [ref for ref in dict.fromkeys(refs) if ref.alias == input.alias]) for position, input in enumerate(self._inputs)]
        return [(position, some, [ref.column for ref in some]) for position, some in mine if some]

    def follow(self, definitions: Definitions) -> None:
        """Adopt the present definitions of the relations."""
        self.now = Projection(self._query, definitions).schema

    @property
    def fields(self) -> list[tuple[str, str, bool]]:
        """For each grouping column its name, its kind (`wire.kinds`), and whether it may be null."""
        now = self.now
        return [(column.name, kind, now.field(column.of).nullable) for column, kind in zip(self._columns, self.kinds, strict=True)]

    @property
    def are_numbers(self) -> bool:
        """Whether only numbers are read, and computed of numbers, and there are grouping columns."""
        return not self._others and len(self._columns) > 0

    def reads(self, table: Table, varying: Sequence[str], having: Sequence[tuple[int, int, int]]) -> Reads:
        """Describe for a kernel how to read the columns if `are_numbers`, from the only relation. varying: columns of it, one of which
        differs; having: as in the kernel."""
        def place(ref: ColumnRef) -> int:
            return int(table.positions_of([ref.column]).item())

        indices = {at: k for k, at in enumerate([*self._given, *(-1 - k for k, _ in self._truncated)])}
        first, steps = len(indices), list[tuple[int, int, int]]()
        for at, term in self._terms.items():
            if at not in indices:
                indices[at] = add_steps(steps, term, first, place)

        def read(form: int, output: int, computed: int) -> tuple[int, int, int]:
            column = self._query.outputs[output].column
            return form, -1 if column is None else place(column), indices.get(computed, -1)

        keys = list[tuple[int, int, int]]()
        for k, (column, type_, null) in enumerate(zip(self._columns, self._types, self.nullable, strict=True)):
            computed = column.of if column.trunc is None else -1 - k
            if null:
                keys.append(read(following.NULL, column.of, computed))
            keys.append(read(following.FLOAT if type_ == _FLOAT else following.WORD, column.of, computed))
        values = [
            read(following.ORDERED if form == ORDERED and self.schema.field(output).type == _FLOAT else following.WORD, output, output)
            for output, form in self.operands
        ]
        return Reads(table.positions_of(varying), *(np.array(some, np.int64).reshape(-1, 3) for some in (keys, values, steps, having)))

    def computed(self, old: Slots, new: Slots) -> Words:
        """int64[2k, 2, n]: what a kernel is given of the rows at these slots, in the order of `reads`: words, and 1 where they are null."""
        if not self._given and not self._truncated:
            return _NONE_GIVEN
        slots = np.maximum(np.concatenate((old, new)), 0)
        read = self._gathered(self._given_of, (slots,))
        columns = self._computed(self._given, read, len(slots)) if self._given else {}
        found: list[Stored] = [column[:2] for column in columns.values()]
        for k, unit in self._truncated:
            of = self._columns[k].of
            words, null = columns[of][:2] if of in columns else read[self._plain[of]]
            found.append((_truncated(unit, self._types[k], words), null))
        given = np.zeros((2 * len(found), len(slots)), np.int64)
        for k, (words, null) in enumerate(found):
            given[2 * k] = words
            if null is not None:
                given[2 * k + 1] = null
        return given.reshape(-1, 2, len(old))

    def operand(self, output: int, form: int) -> int:
        """Return the index of this operand, adding it if needed."""
        if (output, form) not in self.operands:
            self.operands.append((output, form))
        return self.operands.index((output, form))

    def open(self) -> None:
        """Reserve address space; all operands are known by now. OSError, MemoryError: there is no room."""
        types = [part for type_, null in zip(self._types, self.nullable, strict=True) for part in ([_BOOL, type_] if null else [type_])]
        self.domain = Domain(types) if types else None
        self._texts = {
            index: Domain([pa.binary() if form == LISTED else _kept_type(self.schema.field(output).type)])
            for index, (output, form) in enumerate(self.operands)
            if form in (CODED, SORTED, LISTED)
        }

    def read(self, rows: Combination, inserted: Inserted | None) -> StageRows:
        """Read the rows. Codes of inserted rows gain a reference and those of deleted rows lose one; inserted=None: they are only
        looked up. O(n)."""
        n = len(rows[0])
        if not self._others:
            return self._of_columns(n, self._numbers(rows), inserted)
        parts = [
            self._read_some(tuple(slots[part] for slots in rows), None if inserted is None else (inserted[0][part], inserted[1]))
            for part in (pieces(self._arrow.text_bytes(rows)) if n else [slice(0, 0)])
        ]
        if len(parts) == 1:
            return parts[0]
        texts = [np.concatenate(codes) for codes in zip(*(part.texts for part in parts), strict=True)]
        values, nulls = (np.concatenate([part[at] for part in parts], axis=1) for at in (1, 2))
        return StageRows(np.concatenate([part.codes for part in parts]), values, nulls, texts)

    def _read_some(self, rows: Combination, inserted: Inserted | None) -> StageRows:
        others = map(_of_arrow, self._arrow.rows(rows).columns)
        return self._of_columns(len(rows[0]), self._numbers(rows) | dict(zip(self._others, others, strict=True)), inserted)

    def release(self, read: StageRows, those: Mask, version: int) -> None:
        """Drop a reference to the codes of each of these rows."""
        for domain, codes in zip(self._domains, self.codes_of(read), strict=True):
            domain.release(codes[those], version)

    def codes_of(self, read: StageRows) -> list[Slots]:
        """Return the codes of these rows for each domain: of groups, unless there is only one, and of text operands."""
        return [*([] if self.domain is None else [read.codes]), *read.texts]

    def release_all(self, version: int, kept: References) -> None:
        """Drop all references except these: no other row is in a group any more. O(codes)."""
        for index, domain in enumerate(self._domains):
            domain.release_all(version, *kept.counts[index : index + 1])

    def drop(self, given: References, version: int) -> None:
        """Drop these references. O(1) a code and a reference."""
        for domain, counts in zip(self._domains, given.counts, strict=False):
            domain.release(np.repeat(np.arange(len(counts), dtype=np.int32), counts), version)

    @property
    def _domains(self) -> list[Domain]:
        """In the order of `codes_of`."""
        return [*([] if self.domain is None else [self.domain]), *self._texts.values()]

    def look_up(self, values: Sequence[pa.Array]) -> int:
        """Return the code of the group with these values, one per column; -1: there is none."""
        if self.domain is None:
            return 0
        columns = [_canonical(type_, _of_arrow(value)) for type_, value in zip(self._types, values, strict=True)]
        return int(self._coded(columns, None)[0])

    def keys(self, codes: Slots, names: Sequence[str]) -> pa.RecordBatch:
        """Return the columns of these groups, which a readable version has; before there is room, those of no group."""
        if self.domain is None:
            return pa.RecordBatch.from_arrays([pa.array([], type_) for type_ in self._sent], list(names))
        fields = [
            part
            for index, (type_, null) in enumerate(zip(self._types, self.nullable, strict=True))
            for part in ([pa.field(f"null{index}", _BOOL, False)] if null else []) + [pa.field(str(index), type_, False)]
        ]
        taken, columns = iter(self.domain.take(pa.schema(fields), codes).columns), list[pa.Array]()
        for wanted, type_, null in zip(self._sent, self._types, self.nullable, strict=True):
            flags = next(taken) if null else None
            column = next(taken)
            column = column if flags is None else pc.if_else(flags, pa.scalar(None, type_), column)
            columns.append(wide.decoded(column, wanted) if wide.is_wide(wanted) else sent(column, wanted))
        return pa.RecordBatch.from_arrays(columns, list(names))

    def texts_at(self, operand: int, codes: pa.Array) -> pa.Array:
        """Return the texts with these codes, null for null, of an operand of a readable version."""
        return listing.texts_at(self._texts[operand], _kept_type(self.schema.field(self.operands[operand][0]).type), codes)

    def operand_bytes(self, operand: int, codes: Slots) -> Words:
        """int64[n]: bytes of these texts of an operand; 0 for -1."""
        return listing.bytes_at(self._texts[operand], codes)

    def stored_texts(self, operand: int) -> Callable[[], SlotRows]:
        """Return what returns the texts of an operand by code, as they are stored now."""
        return lambda: self._texts[operand].counted[0].stored

    def text_bytes(self, codes: Slots) -> Words:
        """int64[n]: bytes of text of these groups' columns."""
        return self.domain.text_bytes(codes) if self.domain is not None else np.zeros(len(codes), np.int64)

    def reclaim(self, oldest_needed: int, pins: Words) -> bool:
        more = [domain.reclaim(oldest_needed, pins) for domain in self._domains]  # list, not generator: call each
        return any(more)

    @property
    def bytes(self) -> int:
        return sum(domain.bytes for domain in self._domains)

    @property
    def codes(self) -> int:
        """An exclusive upper bound of all codes ever used."""
        return self.domain.codes if self.domain is not None else 1

    def check(self) -> None:
        for domain in self._domains:
            domain.check()

    def _numbers(self, rows: Combination) -> dict[int, _Column]:
        """Read the outputs that are numbers, and computed of numbers, from their tables."""
        found = self._gathered(self._read, rows)
        return {at: _Column(*found[ref]) for at, ref in self._plain.items()} | self._computed(self._terms, found, len(rows[0]))

    def _gathered(self, read: Sequence[tuple[int, list[ColumnRef], list[str]]], rows: Combination) -> dict[ColumnRef, Stored]:
        """Return words, and where they are null."""
        found: dict[ColumnRef, Stored] = {}
        for position, refs, names in read:
            words, nulls = self._inputs[position].relation.table.numbers(names, rows[position])
            found.update(zip(refs, zip(words, nulls, strict=True), strict=True))
        return found

    def _computed(self, terms: Mapping[int, Term], found: Mapping[ColumnRef, Stored], count: int) -> dict[int, _Column]:
        """Compute outputs of these columns."""
        given = {ref: of_words(*stored, self._kinds[ref]) for ref, stored in found.items() if ref in self._kinds}
        return {at: _of_values(computed(term, given.__getitem__, count)) for at, term in terms.items()}

    def _of_columns(self, n: int, columns: Mapping[int, _Column], inserted: Inserted | None) -> StageRows:
        codes = np.zeros(n, np.int32)
        if self.domain is not None:
            codes = self._coded([self._key(index, columns[column.of]) for index, column in enumerate(self._columns)], inserted)
        values, nulls = np.zeros((max(1, len(self.operands)), n), np.int64), np.zeros((max(1, len(self.operands)), n), np.uint8)
        texts: list[Slots] = []
        for index, (output, form) in enumerate(self.operands):
            words, null, text = columns[output] if form != LISTED else self._listed(output, columns)
            if null is not None:
                nulls[index] = null
            if form in (CODED, SORTED, LISTED):
                assert text is not None
                domain, batch = self._texts[index], pa.RecordBatch.from_arrays([wide.encoded(text)], [""])
                texts.append(_codes_of(domain, batch, inserted))
                values[index] = texts[-1]
            elif form in (LOW, HIGH):
                assert text is not None
                values[index] = wide.signed_words(text)[form == HIGH]
            elif text is None:
                is_float = self.schema.field(output).type == _FLOAT
                values[index] = _ordered(words) if form == ORDERED and is_float else squares.of_form(words, form)
        return StageRows(codes, values, nulls, texts)

    def _listed(self, index: int, columns: Mapping[int, _Column]) -> _Column:
        """Return what an aggregate lists."""
        assert self._query.groups is not None
        one = self._query.groups.aggregates[index]
        return _of_arrow(listing.entries(one, lambda at: _sent(self.schema.field(at).type, columns[at])))

    def _key(self, index: int, column: _Column) -> _Column:
        trunc, type_ = self._columns[index].trunc, self._types[index]
        if trunc is not None:
            column = column._replace(words=_truncated(trunc, type_, column.words))
        return _canonical(type_, column)

    def _coded(self, columns: Sequence[_Column], inserted: Inserted | None) -> Slots:
        assert self.domain is not None
        if self.has_texts:
            arrays = [part for index, column in enumerate(columns) for part in self._arrays(index, column)]
            batch = pa.RecordBatch.from_arrays(arrays, [str(i) for i in range(len(arrays))])
            return _codes_of(self.domain, batch, inserted)
        parts = [part for column, null in zip(columns, self.nullable, strict=True) for part in _cells(column, null)]
        cells = np.empty((len(parts[0]), len(parts)), np.int64)
        for at, part in enumerate(parts):
            cells[:, at] = part
        return self.domain.look_up_cells(cells) if inserted is None else self.domain.count_cells(cells, *inserted)

    def _arrays(self, index: int, column: _Column) -> list[pa.Array]:
        type_ = self._types[index]
        if column.text is not None:
            column = column._replace(text=wide.encoded(column.text))
            assert column.text is not None
            value = column.text.fill_null(pa.scalar("", type_)) if column.text.null_count else column.text
        else:
            words = column.words if column.null is None else np.where(column.null, 0, column.words)
            value = _to_arrow(type_, words)
        if not self.nullable[index]:
            return [value]
        return [pa.array(column.null if column.null is not None else np.zeros(len(value), np.bool_)), value]


def _truncated(unit: str, type_: pa.DataType, words: Words) -> Words:
    return (trunc_dates if type_ == _DATE else trunc_timestamps)(unit, words)


def _codes_of(domain: Domain, batch: pa.RecordBatch, inserted: Inserted | None) -> Slots:
    """As in `Columns.read`."""
    if inserted is None:
        return domain.look_up(batch)
    codes: Slots = domain.acquire(batch)
    is_inserted, version = inserted
    if not is_inserted.all():
        domain.release(np.repeat(codes[~is_inserted], 2), version)  # once for the insert, once for the call above
    return codes


def _of_arrow(array: pa.Array) -> _Column:
    if not wide.is_wide(array.type):
        array = kept(array)
    null = null_mask(array)
    read = None if wide.is_wide(array.type) else reader(array.type)
    if read is None:
        return _Column(_NO_WORDS, null, array)
    return _Column(read(array).astype(np.int64) if len(array) else _NO_WORDS, null)


def _sent(type_: pa.DataType, column: _Column) -> pa.Array:
    """Return the values as they are sent."""
    if column.text is not None:
        return column.text
    found = _to_arrow(_kept_type(type_), column.words)
    return sent(found if column.null is None else pc.if_else(pa.array(column.null), pa.scalar(None, found.type), found), type_)


def _of_values(column: ComputedColumn) -> _Column:
    if not isinstance(column, Values):
        return _of_arrow(column)
    return _Column(*to_words(column))


def _kept_type(type_: pa.DataType) -> pa.DataType:
    """Return the stored type of a column that is sent as this type."""
    if wide.is_wide(type_):
        return pa.binary()
    return pa.int64() if pa.types.is_decimal(type_) else type_


def _to_arrow(type_: pa.DataType, words: Words) -> pa.Array:
    """Convert words to an array of the type, without nulls."""
    return pa.Array.from_buffers(type_, len(words), [None, pa.py_buffer(data_of(type_, np.ascontiguousarray(words)))])


def _cells(column: _Column, nullable: bool) -> list[Words]:
    if not nullable:
        return [column.words]
    if column.null is None:
        return [np.zeros(len(column.words), np.int64), column.words]
    return [column.null.astype(np.int64), np.where(column.null, 0, column.words)]


def _canonical(type_: pa.DataType, column: _Column) -> _Column:
    """Map equal values to the same word."""
    if type_ != _FLOAT or column.text is not None:
        return column
    magnitude = column.words & ~_SIGN
    words = np.where(magnitude > INFINITY_BITS, NAN_BITS, np.where(magnitude == 0, 0, column.words))
    return column._replace(words=words)


def _ordered(bits: Words) -> Words:
    """As `layout.ordered_bits`."""
    magnitude = bits & ~_SIGN
    ordered: Words = np.where(magnitude > INFINITY_BITS, NAN_ORDER, np.where(bits >= 0, bits, -magnitude))
    return ordered


def kind_of_output(output: Output, by_alias: Mapping[str, RelationDefinition], type_: pa.DataType) -> str:
    """Return the kind (`wire.kinds`) of an output that is sent as this type."""
    if output.column is not None:
        return by_alias[output.column.alias].column(output.column.column).kind
    return kind_of_sent(type_) if output.term is None else output.term.kind


def kind_of_sent(type_: pa.DataType) -> str:
    """Return the kind of the values of a column that is sent; string for all that are stored as text."""
    if pa.types.is_decimal(type_):
        return decimal_kind(type_.precision, type_.scale)
    return next(name for name, own in KEPT_TYPES.items() if own == type_ and digits_of(name) is None)
