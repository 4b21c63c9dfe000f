"""Figures as Markdown: aim, measured, rivals."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.benchmarks import SUBJECTS
from tests.benchmarks.figures import Figure

_HEAD = """# Benchmarks

Made by `make bench` from `results/*.json`, which also hold every sample and all versions. A figure is the median of its samples; the
rivals were measured in the same run, on the same data. Where a rival is better, it says so.
"""
_COLUMNS = "| figure | aim | measured | | rivals |\n|---|---|---|---|---|\n"


def number(value: float) -> str:
    """Three digits, with thousands as k, M, G."""
    for limit, divisor, letter in ((1e9, 1e9, " G"), (1e6, 1e6, " M"), (1e4, 1e3, " k")):
        if abs(value) >= limit:
            return f"{value / divisor:.3g}{letter}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def render(results: list[dict[str, Any]]) -> str:
    """The page of these results (as kept in the files)."""
    parts = [_HEAD]
    for result in results:
        machine, versions = result["machine"], result["versions"]
        quick = "Quick: small sizes, to which the aims do not apply. " if result["quick"] else ""
        about = [
            f"`{result['subject']}`, {result['date']}, commit {result['revision']}",
            f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB, load before {machine['load_before']}",
            f"Python {versions['python']}, NumPy {versions['numpy']}, Numba {versions['numba']}",
        ]
        parts.append(f"\n## {result['title']}\n\n{quick}{'; '.join(about)}\n\n{table(map(Figure.from_json, result['figures']))}")
        if result.get("plot") is not None:
            parts.append(f"\n![{result['title']}](results/{result['plot']})\n")
    return "".join(parts)


def table(figures: Iterable[Figure]) -> str:
    return _COLUMNS + "".join(map(_line, figures))


def _line(figure: Figure) -> str:
    sign = "≤" if figure.less else "≥"
    aim = "" if figure.aim is None else f"{sign} {number(figure.aim)}"
    verdict = {None: "", True: "met", False: "**missed**"}[figure.met]
    rivals = "; ".join(f"{rival.name} {number(rival.value)}" + (f" ({rival.note})" if rival.note else "") for rival in figure.rivals)
    note = f" ({figure.note})" if figure.note else ""
    return f"| {figure.name}{note} | {aim} | {number(figure.value)} {figure.unit} | {verdict} | {rivals} |\n"


def read_results(folder: Path) -> list[dict[str, Any]]:
    """What is kept, in the order of the subjects."""
    return [json.loads(path.read_text()) for name in SUBJECTS if (path := folder / f"{name}.json").is_file()]
