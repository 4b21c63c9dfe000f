"""`livejoin explain`: the plan of a view, without registering it."""

from __future__ import annotations

import sys
from typing import Any

import orjson

from service.commands.view import add_definition, read_definition
from service.terminal import Parser, add_url, connect


def main(arguments: list[str]) -> int:
    parser = Parser("explain", "Show how a view would be kept and what is promised: text on a terminal, JSON in a pipe.")
    add_definition(parser)
    add_url(parser)
    args = parser.parse_args(arguments)
    definition = read_definition(args.sql, args.file)
    with connect(args) as client:
        answer = client.explain(definition)
    if sys.stdout.isatty():
        print("\n".join(plan_lines(answer["plan"])))
        if others := [f"{other['algorithm']} ({other['guarantee']})" for other in answer["alternatives"]]:
            print(f"{'instead':<10} {' or '.join(others)}, if the definition asks for it")
        if "natural" in answer:
            print("\n".join(natural_lines(answer["natural"])))
        for name, statistics in answer.get("measured", {}).items():
            print(f"{'measured':<10} {name}: {measured_words(statistics)}")
    else:
        print(orjson.dumps(answer).decode())
    return 0


def measured_words(statistics: dict[str, Any]) -> str:
    """What was measured on a live view; what was not is left out."""
    averages = [
        ("steps_per_row", "steps a row"),
        ("steps_per_update", "steps a changed row"),
        ("flips_per_update", "flips a changed row"),
        ("bytes_per_row", "bytes a row"),
        ("bits_per_tuple", "bits a tuple (compact)"),
    ]
    counts = [("dead_ends", "dead ends"), ("rows_read", "rows read")]
    told = [f"{statistics[name]:.4g} {words}" for name, words in averages if statistics[name] is not None]
    told += [f"{statistics[name]:,} {words}" for name, words in counts if statistics[name] is not None]
    told += [f"{count:,} {name.replace('_', ' ')}" for name, count in statistics["counters"].items()]
    return ", ".join([*told, f"at most {statistics['delay_steps']['max']:,} steps between two rows"])


def natural_lines(natural: dict[str, Any]) -> list[str]:
    """What is known of a natural join, a fact a line."""
    agm = natural["agm"]
    cover = " ".join(f"|{alias}|^{weight:.4g}" for alias, weight in agm["cover"].items() if weight)
    rows = f" = {agm['rows']:,.0f}" if "rows" in agm else ""
    tree = [f"{' - '.join(edge['aliases'])} by {', '.join(edge['by'])}" for edge in natural["join_tree"] or []]
    facts = [
        ("variables", "; ".join(" = ".join(columns) for columns in natural["variables"].values())),
        ("join tree", "; ".join(tree)),
        ("at most", f"{cover}{rows} rows (AGM; n^{agm['exponent']:.4g} of n rows each)"),
    ]
    return [f"{what:<10} {text}" for what, text in facts if text]


def plan_lines(plan: dict[str, Any]) -> list[str]:
    """A plan for people, a fact a line."""
    theorem = f" ({plan['theorem']})" if plan.get("theorem") else ""
    facts = [
        ("class", plan["class"]),
        ("algorithm", plan["algorithm"] + theorem),
        ("guarantee", plan["guarantee"]),
        *plan["bounds"].items(),
        ("order", ", ".join(plan["order"])),
        *(("note", note) for note in plan["notes"]),
    ]
    return [f"{what:<10} {text}" for what, text in facts if text]
