"""`infinity` and `-infinity`, as PostgreSQL writes times and dates without end: null, where null means the same."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

LATE, EARLY = "infinity", "-infinity"


def open_words(kind: str, nullable: bool, starts: bool, ends: bool) -> frozenset[str]:
    """The words that are null in a column: none where it cannot be null, nor the one that would become the opposite, because null as the
    start of an interval is `-infinity`, and as its end `infinity`."""
    if not nullable or kind not in ("timestamp", "date"):
        return frozenset()
    return frozenset([*([] if starts else [LATE]), *([] if ends else [EARLY])])


def refusal_of_word(value: object, nullable: bool) -> str | None:
    """The reason against one of the words that is not null in its column; None for other values."""
    if value not in (LATE, EARLY):
        return None
    if not nullable:
        return f"got {value}, which is null, but the column is not nullable"
    return f"got {value}: an interval cannot {'start' if value == LATE else 'end'} there"


def without_words(texts: pa.Array, words: frozenset[str]) -> pa.Array:
    """With null in place of the words."""
    return pc.if_else(pc.is_in(texts, pa.array(sorted(words), pa.utf8())), None, texts)
