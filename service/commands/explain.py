"""`livejoin explain`: the plan of a view, without registering it."""

from __future__ import annotations

import sys
from typing import Any

import orjson

from service.commands.connection import connect
from service.commands.view import add_definition, read_definition
from service.terminal import Parser, add_url


def main(arguments: list[str]) -> int:
    parser = Parser("explain", "Show the plan and the guarantee of a view without registering it: text on a terminal, JSON in a pipe.")
    add_definition(parser)
    add_url(parser)
    args = parser.parse_args(arguments)
    definition = read_definition(args.sql, args.file)
    with connect(args) as client:
        answer = client.explain(definition=definition)
    if sys.stdout.isatty():
        print("\n".join(plan_lines(answer["plan"])))
        if others := [f"{other['algorithm']} ({other['guarantee']})" for other in answer["alternatives"]]:
            print(f'{"others":<10} {", ".join(others)}; to use one, name it as "algorithm" in the definition')
        if "natural" in answer:
            print("\n".join(natural_lines(answer["natural"])))
        for name, statistics in answer.get("measured", {}).items():
            print(f"{'measured':<10} {name}: {measured_words(statistics)}")
    else:
        print(orjson.dumps(answer).decode())
    return 0


_COUNTERS = {"lookups": "look-ups", "looked_up": "rows looked up", "no_goods": "no-goods"}


def measured_words(statistics: dict[str, Any]) -> str:
    """The measurements of a live view; those that were not taken are left out."""
    averages = [
        ("steps_per_row", "steps per row"),
        ("steps_per_update", "steps per changed row"),
        ("flips_per_update", "flips per changed row"),
        ("bytes_per_row", "bytes per row"),
        ("bits_per_tuple", "bits per tuple (compact)"),
    ]
    counts = [("dead_ends", "dead ends"), ("rows_read", "rows read")]
    told = [f"{statistics[name]:.4g} {words}" for name, words in averages if statistics[name] is not None]
    told += [f"{statistics[name]:,} {words}" for name, words in counts if statistics[name] is not None]
    told += [f"{count:,} {_COUNTERS.get(name, name)}" for name, count in statistics["counters"].items()]
    return ", ".join([*told, f"at most {statistics['delay_steps']['max']:,} steps between two rows"])


def natural_lines(natural: dict[str, Any]) -> list[str]:
    """Properties of a natural join, one per line."""
    agm = natural["agm"]
    cover = " ".join(f"|{alias}|^{weight:.4g}" for alias, weight in agm["cover"].items() if weight)
    rows = f" = {agm['rows']:,.0f}" if "rows" in agm else ""
    tree = [f"{' - '.join(edge['aliases'])} by {', '.join(edge['by'])}" for edge in natural["join_tree"] or []]
    facts = [
        ("variables", "; ".join(" = ".join(columns) for columns in natural["variables"].values())),
        ("join tree", "; ".join(tree)),
        ("bound", f"{cover}{rows} rows (AGM; n^{agm['exponent']:.4g} for n rows in each relation)"),
    ]
    return [f"{what:<10} {text}" for what, text in facts if text]


def plan_lines(plan: dict[str, Any]) -> list[str]:
    """A plan as text, one property per line."""
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
