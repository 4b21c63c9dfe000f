"""For mkdocs: pages keep their places in the repository, so that links are the same there and on the site; the reference of REST and of
problems is made from what the service says of itself, and what was measured comes from the benchmarks' results."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from service.api.app import ROUTES
from service.api.openapi import document
from service.errors import CATALOGUE, Kind
from tests.benchmarks.figures import Figure
from tests.benchmarks.table import table

ROOT = Path(__file__).resolve().parent.parent
SOURCES = (  # each by its kind: folders of deploy may hold secrets
    "*.md", "LICENSE", "docker-compose.yml", "deploy/check", "client/README.md", "docs/**/*.md", "docs/**/*.ipynb", "docs/pictures/**/*",
    "deploy/*.md", "deploy/*.toml", "deploy/docker/*.Dockerfile", "deploy/docker/*.toml",
    "deploy/kubernetes/base/*.yaml", "deploy/systemd/*.service", "deploy/prometheus/*.yml",
    "deploy/grafana/dashboards/README.md", "tests/benchmarks/RESULTS.md", "tests/benchmarks/results/*.svg",
    "tests/data/README.md", "service/data/congress/README.md",
)  # fmt: skip
ENDPOINTS_HEAD = """# Endpoints

Made from the OpenAPI document, which a running service has at `/openapi.json` and shows at `/docs`. The specification is
[rest.md](rest.md).

"""
PROBLEMS = """# Problems

A refusal is `application/problem+json` (RFC 9457), whose `type` is the address of a page of the service like the entries here.

"""
RESULTS = ROOT / "tests" / "benchmarks" / "results"
MEASURED = re.compile(r"<!-- measured: (\w+): (.*?) ?-->")
METHODS = ("get", "head", "put", "post", "patch", "delete")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Those of the theme stay."""
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    for path in sorted({path for pattern in SOURCES for path in ROOT.glob(pattern) if path.is_file()}):
        files.append(File.generated(config, str(path.relative_to(ROOT)), abs_src_path=str(path)))
    files.append(File.generated(config, "docs/reference/endpoints.md", content=endpoints()))
    files.append(File.generated(config, "docs/reference/problems.md", content=problems()))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    return MEASURED.sub(lambda found: measured(found[1], found[2]), markdown)


def measured(subject: str, beginning: str) -> str:
    """The figures of a benchmark whose names begin like this. Raises ValueError if it has none."""
    path = RESULTS / f"{subject}.json"
    if not path.exists():
        return f"No run of `{subject}` is kept yet: `make bench ARGS={subject}`.\n"
    result = json.loads(path.read_text())
    figures = [figure for figure in map(Figure.from_json, result["figures"]) if figure.name.startswith(beginning)]
    if not figures:
        raise ValueError(f"{subject} has no figure that begins with {beginning!r}")
    told = [replace(figure, name=figure.name.removeprefix(beginning).lstrip(",: ")) for figure in figures]
    return f"{beginning.rstrip(':') or result['title']}, measured on {result['date']}:\n\n{table(told)}\n"


def endpoints() -> str:
    """Every operation of the OpenAPI document, by its tag."""
    made = document(ROUTES)
    by_tag: dict[str, list[str]] = {tag["name"]: [] for tag in made["tags"]}
    for path, operations in made["paths"].items():
        for method in METHODS:
            if method in operations:
                told = operations[method]
                by_tag[told["tags"][0]].append(_operation(method, path, told))
    parts = [f"## {tag.capitalize()}\n\n" + "\n".join(operations) for tag, operations in by_tag.items()]
    return ENDPOINTS_HEAD + "\n".join(parts)


def _operation(method: str, path: str, told: dict[str, Any]) -> str:
    lines = [f"### {method.upper()} {path}\n", f"{told['summary']}.\n"]
    if "description" in told:
        lines.append(f"{told['description']}\n")
    if parameters := told.get("parameters"):
        lines += ["| parameter | in | |", "|---|---|---|"]
        lines += [f"| `{one['name']}` | {one['in']} | {_cell(one.get('description', ''))} |" for one in parameters if "name" in one]
        lines.append("")
    if bodies := told.get("requestBody", {}).get("content"):
        lines.append("Bodies: " + ", ".join(f"`{kind}`" for kind in bodies) + ".\n")
        if example := _example(bodies.get("application/json", {})):
            lines.append(f"```json\n{json.dumps(example, indent=2)}\n```\n")
    lines += ["| status | |", "|---|---|"]
    lines += [f"| {status} | {_cell(answer.get('description', ''))} |" for status, answer in told["responses"].items()]
    return "\n".join(lines) + "\n"


def _example(content: dict[str, Any]) -> Any:
    examples = content.get("examples") or {}
    return content.get("example") or next((one.get("value") for one in examples.values()), None)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def problems() -> str:
    """Every type of problem: what it means, and what to do."""
    return PROBLEMS + "\n".join(map(_problem, CATALOGUE.values()))


def _problem(kind: Kind) -> str:
    return f"## {kind.type}\n\n`{kind.status}` · {kind.title}\n\n{kind.meaning}\n\n*What to do:* {kind.remedy}\n"
