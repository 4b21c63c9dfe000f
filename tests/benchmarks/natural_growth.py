"""How the cost of natural joins grows with n: steps of an update, of the whole view and of its rows, and the largest delay."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tests.benchmarks.figures import Figure, Scale
from tests.benchmarks.growth import figures_of, plot_of
from tests.benchmarks.measured_natural import Data, count, single_changes
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.natural_star import Live, star, two_levels
from tests.benchmarks.natural_triangle import Triangle, graph

TITLE = "Natural joins: how cost grows, n from 10^3 to 10^6"
KINDS = {
    "update": "steps of a change and its delta",
    "whole": "steps of the whole view",
    "row": "steps per row",
    "delay": "largest gap between two rows",
}
FITTED = ("update", "whole", "delay")


class Cost(NamedTuple):
    """In steps. `update`: of a single change with its rows, without the descent to an entry; `delay`: the maximum between two rows of the
    whole view, before the first, or after the last."""

    n: int
    update: float
    whole: float
    row: float
    delay: int
    rate: float


def triangle(kind: str) -> Callable[[int, Scale], Cost]:
    """The costs in a graph of this kind."""

    def measure(n: int, scale: Scale) -> Cost:
        edges = graph(kind, n)
        view = Triangle()
        view.load(edges)
        cursor = view.rows()
        rows = count(cursor)
        some = edges[np.random.default_rng(13).permutation(len(edges))[: scale.size(2_000, 200)]]
        rate, steps = view.singles(some)
        return Cost(len(edges), steps, cursor.steps, cursor.steps / max(rows, 1), cursor.largest_gap, rate)

    return measure


def view_tree(data: Callable[[int], Data]) -> Callable[[int, Scale], Cost]:
    """The costs for these relations."""

    def measure(n: int, scale: Scale) -> Cost:
        of = data(n)
        live = Live(of)
        cursor = live.rows()
        rows = count(cursor)
        rng = np.random.default_rng(13)
        some = [one.take(rng.permutation(len(one.slot))[: scale.size(2_000, 30)]) for one in of.entries]
        rate, _ = single_changes(live, some, rng)
        update = live.view.update_steps / (2 * sum(len(one.slot) for one in some))
        return Cost(of.n, update, cursor.steps, cursor.steps / max(rows, 1), cursor.largest_gap, rate)

    return measure


SHAPES: dict[str, Callable[[int, Scale], Cost]] = {
    "star": view_tree(lambda n: star(n, 2)),
    "two levels": view_tree(two_levels),
    "triangle, at random": triangle("random"),
    "triangle, a hub": triangle("hub"),
    "triangle, complete": triangle("complete"),
}


def run(scale: Scale, note: Note) -> list[Figure]:
    sizes = [300, 1_000, 3_000] if scale.quick else [1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000]
    figures = []
    for name, measure in SHAPES.items():
        costs = [measure(n, scale) for n in sizes]
        note(f"{name}: whole {[one.whole for one in costs]}, updates {[round(one.update) for one in costs]}")
        figures += figures_of(name, costs, KINDS, FITTED, "tuples")
    return figures


def plot(figures: list[Figure]) -> str:
    """Plot steps of updates, whole views and delays against n, as SVG."""
    return plot_of("Natural joins: how cost grows", figures, FITTED, "tuples")
