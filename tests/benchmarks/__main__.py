"""`python -m tests.benchmarks` runs subjects, stores their figures and generates the page of results."""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from structures.core import kernel
from tests.benchmarks import LARGE, SUBJECTS
from tests.benchmarks.figures import Figure, Scale, Unfinished
from tests.benchmarks.machine import machine, revision, versions
from tests.benchmarks.table import read_results, render

HERE = Path(__file__).resolve().parent


def run_subject(name: str, scale: Scale) -> tuple[dict[str, Any], bool]:
    """Run one subject, with progress on standard error. Return its result in the stored form, and whether it is complete."""
    started = time.perf_counter()

    def note(line: str) -> None:
        print(f"[{name} {time.perf_counter() - started:6.1f} s] {line}", file=sys.stderr, flush=True)

    subject = import_module(f"tests.benchmarks.{name}")
    for one in list(kernel._listed):
        kernel.load(*one)
    note(subject.TITLE)
    about = machine()
    whole = True
    try:
        figures = subject.run(scale, note)
    except Unfinished as error:
        figures, whole = error.figures, False
        note(str(error))
    return {
        "subject": name,
        "title": subject.TITLE,
        "quick": scale.quick,
        "date": datetime.now(UTC).date().isoformat(),
        "revision": revision(),
        "machine": about,
        "versions": versions(),
        "seconds": round(time.perf_counter() - started, 1),
        "plot": f"{name}.svg" if hasattr(subject, "plot") else None,
        "figures": [figure.to_json() for figure in figures],
    }, whole


def put_on_page(name: str, result: dict[str, Any]) -> None:
    """Update the table of figures on the subject's page, if it has one."""
    subject = import_module(f"tests.benchmarks.{name}")
    if hasattr(subject, "page"):
        path = HERE.parents[1] / subject.PAGE
        path.write_text(subject.page([Figure.from_json(figure) for figure in result["figures"]], path.read_text()))


def chosen(names: list[str], large: bool) -> list[str]:
    """Return the subjects whose names begin with one of `names`; without names, all except the large ones, unless `large`. Raises
    ValueError."""
    if not names:
        return [subject for subject in SUBJECTS if large or subject not in LARGE]
    for name in names:
        if not any(subject.startswith(name) for subject in SUBJECTS):
            raise ValueError(f"no subject begins with {name!r}; there are {', '.join(SUBJECTS)}")
    return [subject for subject in SUBJECTS if any(subject.startswith(name) for name in names)]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="livejoin bench", description="Measures livejoin and its rivals.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"subjects, or prefixes of their names: {', '.join(SUBJECTS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that everything runs; stores nothing without --results")
    parser.add_argument("--large", action="store_true", help="also run subjects that take minutes: " + ", ".join(LARGE))
    parser.add_argument("--results", type=Path, help="the folder for the data; RESULTS.md is written beside it")
    given = parser.parse_args(arguments)
    scale = Scale(given.quick, given.large)
    try:
        names = chosen(given.names, given.large or given.quick)
    except ValueError as error:
        print(f"livejoin bench: {error}", file=sys.stderr)
        return 2
    folder = given.results or (None if given.quick else HERE / "results")
    status = 0
    for name in names:
        result, whole = run_subject(name, scale)
        print(render([result]).partition("\n## ")[2], flush=True)
        status = status if whole else 1
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            if result["plot"] is not None:
                plot = import_module(f"tests.benchmarks.{name}").plot
                (folder / result["plot"]).write_text(plot([Figure.from_json(figure) for figure in result["figures"]]))
            (folder / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
            (folder.parent / "RESULTS.md").write_text(render(read_results(folder)))
            if given.results is None:
                put_on_page(name, result)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
