"""The names of output columns that are not given with AS: the same rule for views and ad hoc queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, count

UNNAMED = "column"  # an expression that is neither a column nor a call


def told_apart(named: Sequence[tuple[str, bool]]) -> list[str]:
    """Return the names, of which a repeated one gets `_1`, `_2` … in this order; a name given with AS (the bool) stays."""
    taken = {name for name, given in named if given}
    found, left = dict[str, None](), dict[str, Iterator[str]]()
    for name, given in named:
        if not given or name in found:
            name = next(one for one in left.setdefault(name, _numbered(name)) if one not in taken)
            taken.add(name)
        found[name] = None
    return list(found)


def _numbered(name: str) -> Iterator[str]:
    return chain([name], (f"{name}_{number}" for number in count(1)))
