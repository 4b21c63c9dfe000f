"""`infinity` and `-infinity`, as PostgreSQL writes unbounded times and dates: read as null, where null means the same."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

LATE, EARLY = "infinity", "-infinity"


def open_words(kind: str, nullable: bool, starts: bool, ends: bool) -> frozenset[str]:
    """Return the words that are read as null in a column: none if it is not nullable, nor the one that would turn into its opposite,
    because null as the start of an interval is `-infinity`, and as its end `infinity`."""
    if not nullable or kind not in ("timestamp", "date"):
        return frozenset()
    return frozenset([*([] if starts else [LATE]), *([] if ends else [EARLY])])


def refusal_of_word(value: object, nullable: bool) -> str | None:
    """Return the reason against one of the words if it is not null in its column; None for other values."""
    if value not in (LATE, EARLY):
        return None
    if not nullable:
        return f"got {value}, which is null, but the column is not nullable"
    return f"got {value}: an interval cannot {'start' if value == LATE else 'end'} there"


def without_words(texts: pa.Array, words: frozenset[str]) -> pa.Array:
    """Return the texts with null instead of the words."""
    return pc.if_else(pc.is_in(texts, pa.array(sorted(words), pa.utf8())), None, texts)
