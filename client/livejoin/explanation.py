"""How the service would keep a view, for people."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

_COUNTERS = {"lookups": "look-ups", "looked_up": "rows looked up", "no_goods": "no-goods"}


class Explanation(dict[str, Any]):
    """The answer to `explain`, as the service gives it: `plan`, `alternatives`; of natural joins `natural`; of live views with this
    definition what was `measured`, and perhaps what a reading cost (`analyzed`). As a text it is a table; in a notebook too."""

    def __str__(self) -> str:
        return "\n".join(f"{what:<10} {text}" for what, text in self.facts())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{escape(what)}</th><td>{escape(text)}</td></tr>" for what, text in self.facts())
        return f"<table>{rows}</table>"

    def facts(self) -> Iterator[tuple[str, str]]:
        """What there is to say, each with its name."""
        yield from plan_facts(self["plan"])
        if others := [f"{other['algorithm']} ({other['guarantee']})" for other in self.get("alternatives", ())]:
            yield "others", f'{", ".join(others)}; to use one, name it as "algorithm" in the definition'
        if "natural" in self:
            yield from _natural_facts(self["natural"])
        for name, statistics in self.get("measured", {}).items():
            yield "measured", f"{name}: {_measured(statistics)}"
        if "analyzed" in self:
            yield "analyzed", _analyzed(self["analyzed"])


def plan_facts(plan: dict[str, Any]) -> list[tuple[str, str]]:
    """A plan, property by property."""
    theorem = f" ({plan['theorem']})" if plan.get("theorem") else ""
    facts = [
        ("class", plan["class"]),
        ("algorithm", plan["algorithm"] + theorem),
        ("guarantee", plan["guarantee"]),
        *plan["bounds"].items(),
        ("order", ", ".join(plan["order"])),
        *(("note", note) for note in plan["notes"]),
    ]
    return [(what, text) for what, text in facts if text]


def _natural_facts(natural: dict[str, Any]) -> list[tuple[str, str]]:
    agm = natural["agm"]
    cover = " ".join(f"|{alias}|^{weight:.4g}" for alias, weight in agm["cover"].items() if weight)
    rows = f" = {agm['rows']:,.0f}" if "rows" in agm else ""
    tree = [f"{' - '.join(edge['aliases'])} by {', '.join(edge['by'])}" for edge in natural["join_tree"] or []]
    facts = [
        ("variables", "; ".join(" = ".join(columns) for columns in natural["variables"].values())),
        ("join tree", "; ".join(tree)),
        ("bound", f"{cover}{rows} rows (AGM; n^{agm['exponent']:.4g} for n rows in each relation)"),
    ]
    return [(what, text) for what, text in facts if text]


def _measured(statistics: dict[str, Any]) -> str:
    """The measurements of a live view; those that were not taken are left out."""
    averages = [
        ("steps_per_row", "steps per row"),
        ("steps_per_update", "steps per changed row"),
        ("flips_per_update", "flips per changed row"),
        ("bytes_per_row", "bytes per row"),
        ("bits_per_tuple", "bits per tuple (compact)"),
    ]
    counts = [("dead_ends", "dead ends"), ("rows_read", "rows read")]
    emitted = [f"{statistics[name]:.4g} {words}" for name, words in averages if statistics[name] is not None]
    emitted += [f"{statistics[name]:,} {words}" for name, words in counts if statistics[name] is not None]
    emitted += [f"{count:,} {_COUNTERS.get(name, name)}" for name, count in statistics["counters"].items()]
    return ", ".join([*emitted, f"at most {statistics['delay_steps']['max']:,} steps between two rows"])


def _analyzed(one: dict[str, Any]) -> str:
    """What reading all rows of a view cost."""
    counts = {"rows": one["row_count"], "steps": one["steps"], "dead ends": one["dead_ends"]}
    counts |= {_COUNTERS.get(name, name): count for name, count in one["counters"].items()}
    emitted = [f"{count:,} {name}" for name, count in counts.items() if count is not None]
    delay = f"delay {one['delay_steps']['mean']:.4g} steps on average, {one['delay_steps']['max']:,} at most"
    return ", ".join([*emitted, delay, f"{one['seconds']:.3g} s"])
