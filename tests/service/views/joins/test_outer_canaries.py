"""Planted bugs of views with parts: each has to be found by what the tests compare."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.errors import Problem
from service.planning.plans import outer
from service.tables.changes import AliasChanges, DividedRun
from service.views import collecting
from service.views.joins import flips, two_inputs
from structures.event_tree.matching import LONELY
from tests.service.views.joins.test_outer_identities import (
    test_identities_and_duckdb as identities,
)
from tests.service.views.joins.test_outer_identities import (
    test_nulls_by_a_match_tree as matched_nulls,
)
from tests.service.views.joins.test_outer_identities import (
    test_nulls_have_no_partner_and_stay as nulls,
)
from tests.service.views.joins.test_outer_identities import (
    test_one_interval_over_all_rows_on_and_off as hostile,
)
from tests.service.views.joins.test_outer_join import test_random_views as random_views
from tests.service.views.joins.test_tree_parts import (
    test_a_part_that_comes_and_goes_flips_all_rows_of_its_key as flipped,
)


def _as_emitted(emitted: Any, moves: Any) -> Any:
    return np.flatnonzero(~emitted.is_inserted), np.flatnonzero(emitted.is_inserted), np.empty((2, 0), np.int64)


def _missing_is_first(made: Any) -> Any:
    return lambda versions, is_inserted, columns: made(versions, is_inserted, np.maximum(columns, 0))


def _filtered(made: Any) -> Any:
    """The filters that follow from a part's conditions, on the preserved rows too."""

    def kept(query: Any, parts: Any, matched: Any, tests: Any) -> Any:
        one = made(query, parts, matched, tests)
        more = {condition for part in parts for condition in part.join.filters if condition.column.alias in dict(one.query.aliases)}
        return replace(one, query=replace(one.query, filters=tuple({*one.query.filters, *more})))

    return kept


def _stays(self: flips.Counts, events: flips.Arrays, run: Any) -> None:
    np.add.at(self._reach(self.table.used), *events[::2])


def _able(made: Any) -> Any:
    def entries(self: Any, slots: Any, codes: Any) -> Any:
        found, which = made(self, slots, codes)
        able = found.key != LONELY
        return found.take(able), which[able]

    return entries


def _moves(input: Any, run: Any, followed: bool) -> DividedRun:
    both = (run.old >= 0) & (run.new >= 0)
    chosen = ((run.old >= 0) & ~both, (run.new >= 0) & ~both, both)
    return DividedRun(*(AliasChanges(run.offsets[some], run.old[some], run.new[some]) for some in chosen))


BUGS = {
    "a missing alias counts as the row at slot 0": (collecting, "NetRows", _missing_is_first, lambda path: random_views(path, 2)),
    "not_null on the preserved side": (outer, "_kept", _filtered, nulls),
    "counts stay at the old slot": (flips.Counts, "follow", lambda made: _stays, lambda path: identities(path, 0, "by counts")),
    "partners are not counted": (
        flips.Counts, "follow", lambda made: lambda self, events, run: None, lambda path: hostile(path, "interval-tree"),
    ),
    "rows that can have no partner are left out": (two_inputs.InputRows, "entries", _able, matched_nulls),
    "what one batch brings and ends is told": (collecting, "netted", lambda made: _as_emitted, flipped),
    "a row moves though it changes": (two_inputs, "parted", lambda made: _moves, lambda path: identities(path, 0, "by a match tree")),
}


@pytest.mark.parametrize("bug", BUGS)
def test_each_is_found(tmp_path: Path, bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, planted, run = BUGS[bug]
    monkeypatch.setattr(where, name, planted(getattr(where, name)))
    with pytest.raises((AssertionError, Problem)):
        run(tmp_path)
