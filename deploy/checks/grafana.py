"""Grafana's boards: their form, and the metrics and labels that they ask for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from deploy.checks.files import DEPLOY

FOLDER = DEPLOY / "grafana" / "dashboards"
_COLUMNS = 24
_SELECTED = re.compile(r"\b((?:livejoin|process)_\w+)(?:\{([^}]*)\})?")
_SCRAPED = {"job", "instance", "le"}  # labels that Prometheus, or the histogram, adds


def board(name: str = "livejoin.json") -> dict[str, Any]:
    read: dict[str, Any] = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    return read


def complaints(board: Mapping[str, Any], known: Mapping[str, set[str]]) -> Iterator[str]:
    """known: the labels of each series of the service, by its name."""
    panels = board["panels"]
    if len({panel["id"] for panel in panels}) < len(panels):
        yield "two panels have one id"
    yield from _places(panels)
    variables = {variable["name"] for variable in board["templating"]["list"]} | {"__rate_interval"}
    for panel in panels:
        if panel["type"] == "row":
            continue
        name = panel["title"]
        if not panel.get("description") or not panel["fieldConfig"]["defaults"].get("unit"):
            yield f"{name}: no description, or no unit"
        if not panel["targets"]:
            yield f"{name}: asks for nothing"
        for target in panel["targets"]:
            yield from (f"{name}: {complaint}" for complaint in _query_complaints(target["expr"], known, variables))
            if target["datasource"]["uid"] != "${datasource}":
                yield f"{name}: asks another data source"
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield from (f"${variable['name']}: {one}" for one in _query_complaints(variable["definition"], known, variables))


def _places(panels: list[Mapping[str, Any]]) -> Iterator[str]:
    taken: dict[tuple[int, int], str] = {}
    for panel in panels:
        place = panel["gridPos"]
        if place["x"] + place["w"] > _COLUMNS:
            yield f"{panel['title']}: is wider than the board"
        for cell in ((place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])):
            if cell in taken:
                yield f"{panel['title']}: lies over {taken[cell]}"
                break
            taken[cell] = panel["title"]


def _query_complaints(query: str, known: Mapping[str, set[str]], variables: set[str]) -> Iterator[str]:
    if any(query.count(opened) != query.count(closed) for opened, closed in ("()", "[]", "{}")):
        yield f"brackets do not match in {query}"
    for name in re.findall(r"\$(\w+)", query):
        if name not in variables:
            yield f"there is no variable ${name}"
    found = set()
    for name, selector in _SELECTED.findall(query):
        if name not in known:
            yield f"the service has no {name}"
            continue
        found |= known[name]
        for label in re.findall(r"(\w+)\s*=~?", selector):
            if label not in known[name] | _SCRAPED:
                yield f"{name} has no label {label}"
    for grouped in re.findall(r"\bby \(([^)]*)\)", query):
        for label in re.split(r",\s*", grouped):
            if label not in found | _SCRAPED:
                yield f"nothing in it has the label {label}"
