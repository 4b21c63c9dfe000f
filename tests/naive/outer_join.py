"""EXISTS, NOT EXISTS, LEFT and FULL JOIN by nested loops, with null rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

Row = Mapping[str, Any]
Named = Mapping[str, Row | None]  # by alias; None: the row is missing


class NaivePart(NamedTuple):
    """`test` takes rows by alias, including those of `own`."""

    kind: str  # exists, absent, optional, full
    on: str
    own: Sequence[tuple[str, str]]
    test: Callable[[Named], bool]


def outer_join(core: Sequence[Named], parts: Sequence[NaivePart], relations: Mapping[str, Sequence[Row]]) -> list[Named]:
    """Return the rows; `core` has those of the inner join. Parts are applied in their order."""
    rows = list(core)
    for part in parts:
        aliases = [alias for alias, _ in part.own]
        partners = [dict(zip(aliases, some, strict=True)) for some in product(*(relations[name] for _, name in part.own))]
        found, met = list[Named](), set[int]()
        for row in rows:
            mine = [at for at, some in enumerate(partners) if row[part.on] is not None and part.test({**row, **some})]
            met.update(mine)
            if part.kind in ("exists", "absent"):
                found += [row] * (bool(mine) == (part.kind == "exists"))
            elif mine:
                found += [{**row, **partners[at]} for at in mine]
            else:
                found.append({**row, **dict.fromkeys((alias for alias, _ in part.own), None)})
        if part.kind == "full":
            found += [{part.on: None, **some} for at, some in enumerate(partners) if at not in met]
        rows = found
    return rows
