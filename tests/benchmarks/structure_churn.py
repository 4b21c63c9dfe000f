"""A compressed day of churn: as many changes as entries, while pins are taken and released; the memory that remains in use once they are
released, compared with a fresh load."""

from __future__ import annotations

import json
from functools import partial

from tests.benchmarks.figures import Figure, Scale
from tests.benchmarks.measured_tree import Note
from tests.forked import finished
from tests.structures.core.churn import Churned, Held, emit
from tests.structures.core.churned import SUBJECTS

TITLE = "The structures after a day of churn: 1,000,000 changes to 1,000,000 entries, while pins are taken and released"
STORE_MOST, RESIDENT_MOST = 1.3, 1.5
NOTES = {
    "groups": "written in place, so pins hold nothing",
}


def run(scale: Scale, note: Note) -> list[Figure]:
    figures = []
    for name in SUBJECTS:
        n = scale.size(1_000_000, 20_000)
        status, emitted = finished(partial(emit, name, n), timeout=600)
        assert status == 0, emitted
        held = Churned(*(Held(*one) for one in json.loads(emitted)))
        figures += figures_of(name, n, held)
        note(f"{name}: {held}")
    return figures


def figures_of(name: str, n: int, held: Churned) -> list[Figure]:
    fresh, most, last = held
    what = name.replace("_", " ")
    return [
        Figure(
            f"{what}: bytes held, of those after a load", last.store / fresh.store, "x", STORE_MOST, True,
            parameters={"entries": n, "fresh": fresh.store, "most": most.store, "last": last.store}, note=NOTES.get(name, ""),
        ),
        Figure(
            f"{what}: resident memory, of that after a load", last.resident / fresh.resident, "x", RESIDENT_MOST, True,
            parameters={"entries": n, "fresh": fresh.resident, "most": most.resident, "last": last.resident},
        ),
    ]  # fmt: skip
