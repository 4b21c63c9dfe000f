"""The notebooks run, cell by cell, and find what brute force finds."""

from __future__ import annotations

import ast
import json
from typing import Any

import pandas
import polars
import pytest

from tests.server_process import ROOT, ServerProcess

NOTEBOOKS = ROOT / "docs" / "notebooks"


def run(name: str) -> dict[str, Any]:
    """The names that its cells have given, and `shown`: what it shows below each, as Jupyter would."""
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for cell in json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == [] and cell["execution_count"] is None, "kept without outputs, so that they cannot be wrong"
        body = ast.parse("".join(cell["source"])).body
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), name, "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), name, "eval"), names)
            shown.append(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))
    return names | {"shown": shown}


@pytest.fixture(autouse=True)
def service(shared_server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVEJOIN_URL", shared_server.url)
    monkeypatch.delenv("LIVEJOIN_TOKEN", raising=False)


def clashes(stays: pandas.DataFrame, work: pandas.DataFrame) -> set[tuple[int, int]]:
    both = stays.merge(work, on="room", suffixes=("", "_m"))
    meets = (both["starts"] < both["ends_m"]) & (both["ends"].isna() | (both["starts_m"] < both["ends"]))
    return set(zip(both["id"][meets], both["id_m"][meets], strict=True))


def test_bookings_with_pandas(capsys: pytest.CaptureFixture[str]) -> None:
    found = run("bookings_with_pandas")
    before = clashes(found["stays"], found["work"])
    pairs = [set(zip(found[name]["booking"], found[name]["job"], strict=True)) for name in ("frame", "after", "by_address", "one", "week")]
    assert pairs[0] == before and len(before) > 300
    stays = pandas.concat([found["stays"][found["stays"]["id"] != found["moved"]["id"].iloc[0]], found["moved"]])
    assert pairs[1] == pairs[2] == clashes(stays, found["work"][found["work"]["id"] != found["frame"]["job"].iloc[-1]])
    assert pairs[3] == {pair for pair in before if pair[0] == found["frame"]["booking"].iloc[0]} and pairs[4] < before
    signs = {"insert": 1, "delete": -1}
    assert len(before) + sum(signs[change.op] for change in found["changes"]) == len(pairs[1]) < len(before)
    assert "guarantee  strict" in capsys.readouterr().out and any("5,000 rows" in shown or "<table" in shown for shown in found["shown"])


def test_genome_features_with_polars(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(NOTEBOOKS)
    found = run("genome_features_with_polars")
    views = json.loads((ROOT / "tests" / "data" / "genome_chr1" / "queries.json").read_text())["views"]
    rows = {view["name"]: view["rows"] for view in views}
    assert found["found"].height == found["pairs"].count() == rows["exon_conserved"]
    assert found["cliques"].count() == rows["three_clique"]
    inside = found["found"].filter(polars.col("both_start") <= 2_000_000, polars.col("both_end") > 1_000_000)
    assert 0 < inside.height <= found["window"].height < found["found"].height
    assert found["changes"] and found["most"].height == 5 and found["most"]["bases"].is_sorted(descending=True)
    assert "algorithm" in capsys.readouterr().out
