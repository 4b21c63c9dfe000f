"""The results of a benchmark as plain data: figures, each with its aim and its rivals, and the run that produced them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple


class Scale(NamedTuple):
    """`quick`: small sizes, to check that everything runs; `large`: also run what takes minutes."""

    quick: bool = False
    large: bool = False

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full


@dataclass
class Rival:
    """What another system achieved for the same work in the same run, in the figure's unit; `note`: what was different."""

    name: str
    value: float
    note: str = ""


@dataclass
class Figure:
    """One measured value; the median of `samples` if there are several. `aim`: the minimum (the maximum if `less`, that is, if less is
    better)."""

    name: str
    value: float
    unit: str
    aim: float | None = None
    less: bool = False
    rivals: list[Rival] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)
    samples: list[float] = field(default_factory=list)
    note: str = ""

    @property
    def met(self) -> bool | None:
        if self.aim is None:
            return None
        return self.value <= self.aim if self.less else self.value >= self.aim

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"met": self.met}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Figure:
        values = {key: value for key, value in data.items() if key != "met"}
        return cls(**values | {"rivals": [Rival(**rival) for rival in data["rivals"]]})


class Unfinished(Exception):
    """Part of a subject failed; the figures of the rest are kept."""

    def __init__(self, figures: list[Figure], failed: list[str]) -> None:
        super().__init__("failed: " + "; ".join(failed))
        self.figures = figures


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def middle(samples: list[float]) -> float:
    return statistics.median(samples)


def sampled(name: str, samples: list[float], unit: str, **about: Any) -> Figure:
    """Return the figure that is the median of its samples. It keeps at most 200 samples, spaced evenly by rank."""
    kept = samples
    if len(samples) > 200:
        ranked = sorted(samples)
        kept = [ranked[rank * (len(samples) - 1) // 199] for rank in range(200)]
    return Figure(name, middle(samples), unit, samples=kept, **about)
