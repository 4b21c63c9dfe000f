"""How cost grows with n: figures at every size, fitted exponents, a plot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from tests.benchmarks.figures import Figure
from tests.benchmarks.log_plot import Series, log_plot


class Cost(Protocol):
    """The measurements at size n, as one number for each kind of cost; `rate`: changes a second."""

    @property
    def n(self) -> int: ...

    @property
    def rate(self) -> float: ...


def slope(x: list[float], y: list[float]) -> float:
    """The slope of log y against log x, by least squares."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def figures_of(name: str, costs: Sequence[Cost], kinds: Mapping[str, str], fitted: Sequence[str], unit: str) -> list[Figure]:
    """Return the steps at every size (n counts `unit`) and the fitted exponents: a power of n would have the same exponent over the upper
    sizes, a power of log n would not."""
    figures = [
        Figure(f"{name}, {one.n:,} {unit}: {kinds[kind]}", getattr(one, kind), "steps", less=True,
               parameters={"series": name, "kind": kind, unit: one.n, "changes a second": one.rate})
        for kind in kinds
        for one in costs
    ]  # fmt: skip
    sizes = [float(one.n) for one in costs]
    half = len(costs) // 2
    for kind in fitted:
        steps = [float(getattr(one, kind)) for one in costs]
        power = slope([math.log(n) for n in sizes], steps)
        late = slope(sizes[half:], steps[half:])
        what = f"as (log n)^{power:.1f}; {late:.2f} over the upper half of the sizes"
        figures.append(Figure(f"{name}: exponent of n in the {kinds[kind]}", slope(sizes, steps), "", less=True, note=what))
    return figures


def plot_of(title: str, figures: list[Figure], fitted: Sequence[str], unit: str) -> str:
    """Plot the fitted costs against n, as SVG."""
    series: dict[str, Series] = {}
    for figure in figures:
        about = figure.parameters
        if about.get("kind") in fitted:
            one = series.setdefault(f"{about['series']}: {about['kind']}", Series(f"{about['series']}: {about['kind']}", [], []))
            one.x.append(about[unit])
            one.y.append(figure.value)
    return log_plot(title, unit, "steps", list(series.values()))
