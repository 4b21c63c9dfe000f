"""The rows of groups: their table, and the view's rows made from it. The columns of a group are stored with its code, in the domain."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from livejoin.wire.kinds import KEPT_TYPES, SENT_TYPES, digits_of, sent
from service.query.conditions import ColumnRef, Filter, columns_of
from service.query.model import AGGREGATE, GROUP, VARIANCES, Aggregate, Query
from service.query.terms import growth, is_nullable
from service.tables.arrow import is_text
from service.tables.inputs import Input
from service.tables.masks import group_mask
from service.tables.resolution import NO_SLOTS, Slots
from service.tables.store import Numbers, Table
from service.tables.values.terms import evaluated
from service.views.deltas import Combination, look_alike
from service.views.shown import Definitions
from service.views.stages import wide
from service.views.stages.aggregates import LISTED, kind_of, never_null
from service.views.stages.columns import Columns, kind_of_sent
from service.views.stages.listing import ListedTexts, bytes_at, most_of, texts_at
from structures.aggregate import layout
from structures.aggregate.groups import Groups, Step
from structures.core.reserve import reserve
from structures.grouped.filled import Filled, FilledGroups, JoinedText, TextEnd, Variance
from structures.grouped.following import OPERATORS
from structures.grouped.joining import Joining
from structures.grouped.texts import Texts
from structures.rows.ending import end_others
from structures.rows.key_table import NULLS_A_CELL
from structures.rows.succession import Succession, SuccessionRows, VersionSlots

_CODE = "code"


class GroupTable:
    """See the module docstring; as `Shown`, any thread. `open` is called before anything but `schema`."""

    def __init__(self, query: Query, inputs: Sequence[Input], definitions: Definitions) -> None:
        assert query.groups is not None
        self._groups = query.groups
        self.columns = Columns(query, inputs, definitions)
        self.steps, self.results = Step(), list[tuple[int, int, int, int, int]]()
        self._fields = [pa.field(_CODE, pa.int64(), False)]
        self._ends, self._variances = list[TextEnd](), list[Variance]()
        self._operands: dict[int, int] = {}  # of the aggregates whose codes are in a group's row
        self._lists: dict[int, int] = {}  # likewise the cells of those that list values
        self._listed: dict[int, ListedTexts] = {}
        for index, one in enumerate(self._groups.aggregates):
            self._fields += self._fields_of(index)
            self.results.append((layout.OF_ROWS, 0, 0, 0, 1) if one.of is None else self._result(index))
        self._names = [f"group.{column.name}" for column in self._groups.columns]
        self.schema = self._schema()
        nullable = any(field.nullable for field in self._fields)
        self.width = len(self._fields) + (-(-len(self._fields) // NULLS_A_CELL) if nullable else 0)
        self._shown_bits = self._bits_shown()
        self._table: Table | None = None
        self.positions = NO_SLOTS  # int32[codes]: 1 + the slot of the group's row at the newest version; 0: none
        self.changed = 0  # the newest version that may have inserted or deleted rows

    def _fields_of(self, index: int) -> list[pa.Field]:
        """Return the columns of an aggregate, named by its index: one, or for a sum of decimals two, the high word and the low one."""
        one = self._groups.aggregates[index]
        nullable = self._may_be_null(one, self.columns.schema)
        names = [str(index), f"{index} low"] if _is_wide(one) else [str(index)]
        return [pa.field(name, pa.int64() if self._is_coded(one) else KEPT_TYPES[one.type], nullable) for name in names]

    def _is_coded(self, one: Aggregate) -> bool:
        """Return whether a group's row has the code of the aggregate, a text."""
        if one.function not in ("min", "max"):
            return one.listing is not None
        return is_text(SENT_TYPES[one.type]) or wide.is_wide(SENT_TYPES[one.type])

    def _may_be_null(self, one: Aggregate, read: pa.Schema) -> bool:
        of_null = one.of is not None and read.field(one.of).nullable
        return not never_null(one, of_null, bool(self._groups.columns))

    def _result(self, index: int) -> tuple[int, int, int, int, int]:
        """Return what stores and reports an aggregate of values."""
        one = self._groups.aggregates[index]
        assert one.of is not None
        field = self.columns.schema.field(one.of)
        kind = kind_of(one.function, kind_of_sent(field.type))
        sums, count = list[int](), layout.ROWS
        for step, form in kind.kept:
            if step != layout.COUNT or field.nullable or len(kind.kept) == 1:
                word = self.steps.of(step, self.columns.operand(index if form == LISTED else one.of, form))
                count = word if step in (layout.COUNT, layout.VALUES) else count
                sums.append(word)
        form, cell = kind.kept[0][1], len(self._fields) - 1
        operand = self.columns.operand(index if form == LISTED else one.of, form)
        if form == LISTED:
            self._lists[index], self._operands[index] = cell, operand
        elif self._is_coded(one):
            self._ends.append(TextEnd(cell, operand, one.function == "max"))
            self._operands[index] = operand
        elif one.function in VARIANCES:
            floats, root = kind.kept[0][0] == layout.FLOAT_SUM, one.function.startswith("stddev")
            squares = sums[1], sums[2]
            self._variances.append(Variance(cell, sums[0], squares, count, floats, one.function.endswith("samp"), root, kind.scale))
        tree = self.steps.tree(operand) if kind.kept[0][0] == layout.VALUES else sums[1] if len(sums) > 1 else 0
        return kind.emitted, sums[0], count, tree, kind.scale

    def groups_of(self, most_codes: int) -> Groups:
        """Return groups without rows. OSError: there is no room."""
        if not self.is_filled:
            return Groups(self.steps, self.results, self.width, most_codes)
        self._listed = {index: ListedTexts(self._groups.aggregates[index], most_codes) for index in self._lists}
        joined = [self._joined(index, cell) for index, cell in self._lists.items()]
        columns = [*(one.column for one in self._ends), *(one.column for one in joined)]
        texts = {column: Texts(self.columns.stored_texts(column), most_codes) for column in columns}
        filled = Filled(self._ends, self._variances, joined)
        return FilledGroups(self.steps, self.results, self.width, most_codes, len(self._fields), filled, texts)

    def _joined(self, index: int, cell: int) -> JoinedText:
        one = self._groups.aggregates[index]
        assert one.listing is not None
        return JoinedText(cell, self._operands[index], Joining(one.listing.separator.encode(), most_of(one)), self._listed[index].code)

    @property
    def is_filled(self) -> bool:
        """Whether some aggregates are not computed by the kernels alone."""
        return bool(self._ends or self._variances or self._lists)

    def _schema(self) -> pa.Schema:
        fields = []
        for output in self._groups.outputs:
            if output.kind == AGGREGATE:
                one = self._groups.aggregates[output.position]
                fields.append(pa.field(output.name, SENT_TYPES[one.type], self._may_be_null(one, self.columns.now)))
            elif output.term is not None:
                fields.append(pa.field(output.name, SENT_TYPES[output.term.kind], is_nullable(output.term, self._is_nullable)))
            else:
                column = self._groups.columns[output.position]
                fields.append(self.columns.now.field(column.of).with_name(output.name))
        return pa.schema(fields)

    def _is_nullable(self, ref: ColumnRef) -> bool:
        """Return whether a column of an expression over groups may be null now."""
        index = int(ref.column)
        if ref.alias == AGGREGATE:
            return self._may_be_null(self._groups.aggregates[index], self.columns.now)
        return bool(self.columns.now.field(self._groups.columns[index].of).nullable)

    def follow(self, definitions: Definitions) -> None:
        """Adopt the present definitions of the relations."""
        self.columns.follow(definitions)
        self.schema = self._schema()

    def open(self) -> None:
        """Reserve address space. OSError, MemoryError: there is no room."""
        if self._table is None:
            self.columns.open()
            self._table = Table(pa.schema(self._fields), [])

    def make_positions(self, codes: int) -> None:
        """Make places for this many codes. OSError: there is no room."""
        self.positions = reserve(4 * codes, np.int32)

    @property
    def succession(self) -> Succession:
        return Succession(self.positions, self._shown_bits)

    def _bits_shown(self) -> npt.NDArray[np.int64]:
        """int64[width]: the bits of a stored row that its readers see, without aggregates that only HAVING reads."""
        shown = {field.name for index in self._read(AGGREGATE) for field in self._fields_of(index)}
        bits = np.zeros(self.width, np.int64)
        for at, field in enumerate(self._fields):
            if field.name in shown:
                bits[at] = -1
                if self.width > len(self._fields):
                    bits[len(self._fields) + at // NULLS_A_CELL] |= 1 << at % NULLS_A_CELL
        return bits

    @property
    def table(self) -> Table:
        assert self._table is not None, "there is no room yet"
        return self._table

    # the writer

    @property
    def cells(self) -> npt.NDArray[np.int64]:
        """int64[slots, width]: the rows as they are stored."""
        cells: npt.NDArray[np.int64] = self.table.store.cells
        return cells

    def begin(self, version: int) -> None:
        """Texts that groups lose from now on end at this version."""
        for one in self._listed.values():
            one.version = version

    def clear_texts(self, version: int) -> None:
        """Drop the texts of all groups; those that have rows are then reported again."""
        for one in self._listed.values():
            one.clear(version, self.columns.codes)

    @property
    def texts_too_long(self) -> int:
        return sum(one.too_long for one in self._listed.values())

    def change(self, version: int, emitted: SuccessionRows) -> VersionSlots:
        """Replace the rows of groups by the reported ones. MemoryError."""
        self.changed = version  # set before a group loses its place
        return self.table.succeed(version, emitted, self.succession)

    def end_others(self, version: int, stays: npt.NDArray[np.bool_]) -> VersionSlots:
        """Delete the rows of all groups but those that stay (bool[codes]). O(codes), as fast as memory is read."""
        self.changed = version  # as above
        slots = end_others(self.table.store, version, stays, self.succession, self.rows_now)
        self.table.succeeded(len(slots), 0)
        count = np.array([len(slots)])
        return VersionSlots(np.zeros(min(1, len(slots)), np.int64), np.append(0, count), count, slots)

    def seen(self, found: VersionSlots) -> VersionSlots:
        """Return the changes that readers see: not those of groups whose expressions have the same values as before."""
        if not any(output.term is not None for output in self._groups.outputs):
            return found
        versions = np.repeat(np.arange(len(found.versions)), np.diff(found.starts))
        deleted = np.arange(len(found.slots)) - found.starts[versions] < found.deletes[versions]
        both = (versions << 32) | self.cells[found.slots, 0]
        gone, come = np.flatnonzero(deleted), np.flatnonzero(~deleted)
        _, before, after = np.intersect1d(both[gone], both[come], assume_unique=True, return_indices=True)
        before, after = gone[before], come[after]
        same = look_alike((found.slots[before],), (found.slots[after],), self.rows, self.text_bytes)
        left = np.ones(len(found.slots), np.bool_)
        left[before[same]] = left[after[same]] = False
        counts = np.bincount(versions[left], minlength=len(found.versions))
        some = counts > 0
        deletes = np.bincount(versions[left & deleted], minlength=len(found.versions))
        return VersionSlots(found.versions[some], np.append(0, np.cumsum(counts[some])), deletes[some], found.slots[left])

    def meets(self, codes: Slots, cells: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """bool[n]: whether the groups with these reported rows meet HAVING."""
        rows = self.table.of_cells(cells)
        keys = cache(lambda: self.columns.keys(codes, [str(at) for at in range(len(self._groups.columns))]))

        def column(ref: ColumnRef) -> pa.Array:
            index = int(ref.column)
            return self._shown(rows, index) if ref.alias == AGGREGATE else keys().column(index)

        return group_mask(self._groups.having, column, rows.num_rows)

    def plain_conditions(self) -> list[tuple[int, int, int]] | None:
        """HAVING as conditions on the cells of a row, each as in `structures.grouped`; None if some cannot be expressed so."""
        names, found = [field.name for field in self._fields], list[tuple[int, int, int]]()
        for one in self._groups.having:
            if not isinstance(one, Filter) or one.column.alias != AGGREGATE or one.op not in OPERATORS or type(one.value) is not int:
                return None
            if self._groups.aggregates[int(one.column.column)].type != "int64" or not -(1 << 63) <= one.value < 1 << 63:
                return None
            found.append((OPERATORS.index(one.op), names.index(one.column.column), one.value))
        return found

    def _shown(self, taken: pa.RecordBatch, index: int) -> pa.Array:
        """Return an aggregate as it is sent, from its columns."""
        one = self._groups.aggregates[index]
        high, wanted = taken.column(str(index)), SENT_TYPES[one.type]
        if index in self._listed:
            return texts_at(self._listed[index].domain, wanted, high)
        if index in self._operands:
            found = self.columns.texts_at(self._operands[index], high)
            return wide.decoded(found, wanted) if wide.is_wide(wanted) else found
        if not _is_wide(one):
            return sent(high, wanted)
        words = [np.asarray(column.fill_null(0), np.int64) for column in (taken.column(f"{index} low"), high)]
        valid = None
        if high.null_count:
            valid = pa.py_buffer(np.packbits(np.asarray(high.is_valid()), bitorder="little"))
        data = pa.py_buffer(np.ascontiguousarray(np.stack(words, axis=1)))
        return pa.Array.from_buffers(wanted, len(high), [valid, data], high.null_count)

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        """As `Table.reclaim`, for the rows and the groups' columns."""
        listed = [one.domain.reclaim(oldest_needed, pins) for one in self._listed.values()]
        return any([self.table.reclaim(oldest_needed, pins), self.columns.reclaim(oldest_needed, pins), *listed])

    # as `Shown`

    def rows(self, slots: Combination) -> pa.RecordBatch:
        """Return the view's rows. Cost: a gather per column."""
        return self._rows(self._taken(slots[0]), self._keys(slots[0]) if self._read(GROUP) else None)

    def only(self, columns: Sequence[str]) -> GroupTable:
        outputs = {output.name: output for output in self._groups.outputs}
        other = copy.copy(self)
        other._groups = self._groups._replace(outputs=tuple(outputs[name] for name in columns))
        other.schema = other._schema()
        return other

    def with_keys(self, slots: Combination) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return the identities (columns named group.column) and the rows."""
        if self._table is None:  # only for names and types
            keys = self.columns.keys(NO_SLOTS, self._names) if self._names else None
            rows = pa.RecordBatch.from_arrays([pa.array([], type_) for type_ in self.schema.types], schema=self.schema)
        else:
            keys = self._keys(slots[0])
            rows = self._rows(self._taken(slots[0]), keys)
        if keys is None:  # a batch without columns would have no rows
            keys = pa.RecordBatch.from_arrays([pa.nulls(len(slots[0]))], [GROUP])
        return keys, rows

    @property
    def has_texts(self) -> bool:
        return self.columns.has_texts or any(index in self._operands for index in self._read(AGGREGATE))

    def text_bytes(self, slots: Combination) -> npt.NDArray[np.int64]:
        """int64[n]: the bytes of text that `with_keys` copies per row."""
        total = self.columns.text_bytes(self._codes(slots[0]))
        for index in self._read(AGGREGATE):
            if index in self._operands:
                (words,), (null,) = self.table.numbers([str(index)], slots[0])
                codes = words if null is None else np.where(null, -1, words)
                codes, listed = codes.astype(np.int32), self._listed.get(index)
                own = self.columns.operand_bytes(self._operands[index], codes) if listed is None else bytes_at(listed.domain, codes)
                total = total + own
        grown = [growth(output.term) for output in self._groups.outputs if output.term is not None]
        return total * (1 + sum(times for times, _ in grown)) + sum(more for _, more in grown)

    def _codes(self, slots: Slots) -> Slots:
        words, _ = self.table.numbers([_CODE], slots)
        codes: Slots = words[0].astype(np.int32)
        return codes

    def _keys(self, slots: Slots) -> pa.RecordBatch | None:
        return self.columns.keys(self._codes(slots), self._names) if self._names else None

    def _read(self, kind: str) -> list[int]:
        """Return the positions of the columns of this kind, GROUP or AGGREGATE, that the view's rows read."""
        found = dict[int, None]()
        for output in self._groups.outputs:
            if output.term is not None:
                found |= {int(ref.column): None for ref in columns_of(output.term) if ref.alias == kind}
            elif output.kind == kind:
                found[output.position] = None
        return list(found)

    def _taken(self, slots: Slots) -> pa.RecordBatch:
        names = [field.name for index in self._read(AGGREGATE) for field in self._fields_of(index)]
        return self.table.take(names or [_CODE], slots)

    def _rows(self, taken: pa.RecordBatch, keys: pa.RecordBatch | None) -> pa.RecordBatch:
        def column(ref: ColumnRef) -> pa.Array:
            if ref.alias == AGGREGATE:
                return self._shown(taken, int(ref.column))
            assert keys is not None
            return keys.column(int(ref.column))

        columns = []
        for output in self._groups.outputs:
            if output.term is not None:
                columns.append(evaluated(output.term, column, len(taken)))
            else:
                columns.append(column(ColumnRef(output.kind, str(output.position))))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    # lookups

    def find(self, version: int, values: Sequence[pa.Array]) -> tuple[int, Slots | None]:
        """Return the code of the group with these values, -1 if there is none, and the slot of its row that a pinned version sees, as
        `Table.find_at`."""
        code = self.columns.look_up(values)
        if code < 0:
            return code, NO_SLOTS
        slot = int(self.positions[code]) - 1
        if slot >= 0 and self.table.sees(version, slot):
            return code, np.array([slot], np.int32)
        return code, NO_SLOTS if self.changed <= version else None  # read after the place, which may be of a later version

    def search(self, version: int, code: int) -> Slots:
        """Return the slot of the group's row at an older version, [] if there was none. O(groups)."""
        every = (slots[self._codes(slots) == code] for slots in self.table.scanned(version))
        return next((mine for mine in every if len(mine)), NO_SLOTS)

    @property
    def bytes(self) -> int:
        return self.table.bytes + self.columns.bytes + sum(one.bytes for one in self._listed.values())

    @property
    def retired_bytes(self) -> int:
        return self.table.retired_bytes

    @property
    def rows_now(self) -> int:
        """Number of rows at the newest version."""
        return self.table.rows

    def check(self) -> None:
        self.table.check()
        self.columns.check()
        for one in self._listed.values():
            one.check(self.columns.codes)


def _is_wide(one: Aggregate) -> bool:
    """Whether it takes two words."""
    return one.function == "sum" and digits_of(one.type) is not None
