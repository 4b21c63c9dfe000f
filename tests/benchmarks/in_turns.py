"""`python -m tests.benchmarks.in_turns CHECKOUT [SUBJECT …]`: compares subjects at an older commit with those of this checkout, in turns.

The speed of a host changes within minutes, so single runs at different times cannot be compared. A subject runs in CHECKOUT, then here, and
so on; the ratio of a figure is taken from two consecutive runs, and is above 1 if the later commit is better.
`results/in_turns_COMMIT.json` has every figure of both, of these subjects and of those compared with that commit earlier.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.benchmarks.machine import machine

HERE = Path(__file__).resolve().parent

# Compared unless others are given: batches, runs of single changes, builds, reads and first rows, bytes a row, from Kafka to a view.
SUBJECTS = (
    "service_changes",
    "service_requests",
    "service_builds",
    "service_rows",
    "service_natural",
    "service_outer",
    "service_memory",
    "structure_pairs",
    "structure_keyed",
    "pipeline_latency",
)
BEFORE, AFTER = "before", "after"


def run(folder: Path, checkout: Path, input: str, subject: str, number: int, cache: Path | None) -> None:
    """Run a subject once, with its result in a separate folder."""
    results = folder / f"{input}-{subject}-{number}"
    results.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(checkout / "client"), **({} if cache is None else {"LIVEJOIN_CACHE": str(cache)})}
    command = [sys.executable, "-m", "tests.benchmarks", subject, "--results", str(results)]
    subprocess.run(command, cwd=checkout, env=environment, check=True, stdout=subprocess.DEVNULL)


def read(folder: Path, input: str, subject: str, rounds: Iterable[int]) -> list[dict[str, Any]]:
    """Return the result of each round."""
    return [json.loads((folder / f"{input}-{subject}-{number}" / f"{subject}.json").read_text()) for number in rounds]


def compared(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the figures that both commits have: all values, and the ratio of each round."""
    inputs = [[{figure["name"]: figure for figure in result["figures"]} for result in results] for results in (before, after)]
    found = []
    for name, one in inputs[1][0].items():
        if not all(name in figures for input in inputs for figures in input):
            continue
        old, new = ([figures[name]["value"] for figures in input] for input in inputs)
        if min(*old, *new) <= 0:
            continue
        ratios = [a / b if one["less"] else b / a for a, b in zip(old, new, strict=True)]
        found.append({"name": name, "unit": one["unit"], "less": one["less"], BEFORE: old, AFTER: new, "ratios": ratios})
    return found


def mean(figures: Sequence[dict[str, Any]]) -> float:
    """The geometric mean of the figures' median ratios."""
    return math.exp(statistics.fmean(math.log(statistics.median(one["ratios"])) for one in figures))


def worse(figures: Sequence[dict[str, Any]], by: float = 0.1) -> list[str]:
    """Return the names of the figures that are worse by this fraction in most rounds."""
    return [one["name"] for one in figures if sum(ratio < 1 - by for ratio in one["ratios"]) > len(one["ratios"]) / 2]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.in_turns", description="Compares subjects at two commits.")
    parser.add_argument("checkout", type=Path, help="a checkout of the older commit")
    parser.add_argument("subjects", nargs="*", metavar="subject", default=SUBJECTS, help="default: ten subjects")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cache", type=Path, help="where the older commit keeps its compiled kernels")
    parser.add_argument("--runs", type=Path, required=True, help="the folder of the results; existing ones are not measured again")
    given = parser.parse_args(arguments)
    given.checkout, given.runs = given.checkout.resolve(), given.runs.resolve()  # the older commit runs in another folder
    given.cache = None if given.cache is None else given.cache.resolve()
    rounds = range(1, given.rounds + 1)
    for number in rounds:
        for subject in given.subjects:
            for input, checkout, cache in ((BEFORE, given.checkout, given.cache), (AFTER, HERE.parents[1], None)):
                if not (given.runs / f"{input}-{subject}-{number}" / f"{subject}.json").exists():
                    run(given.runs, checkout, input, subject, number, cache)
    results = {input: {one: read(given.runs, input, one, rounds) for one in given.subjects} for input in (BEFORE, AFTER)}
    figures = {subject: compared(results[BEFORE][subject], results[AFTER][subject]) for subject in given.subjects}
    revisions = {input: next(iter(results[input].values()))[0]["revision"] for input in (BEFORE, AFTER)}
    about = {"date": datetime.now(UTC).date().isoformat(), AFTER: revisions[AFTER], "machine": machine()}
    path = HERE / "results" / f"in_turns_{revisions[BEFORE]}.json"
    kept = json.loads(path.read_text()) if path.exists() else {BEFORE: revisions[BEFORE], "subjects": {}}
    kept["subjects"] |= {subject: about | {"figures": found} for subject, found in figures.items()}
    path.write_text(json.dumps(kept, indent=1) + "\n")
    for subject, found in figures.items():
        if not found:
            print(f"{subject}: no figure is common to both commits")
            continue
        said = "".join(f"\n    worse by 10 %: {name}" for name in worse(found))
        print(f"{subject}: {mean(found):.3f} times as good, {len(found)} figures{said}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
