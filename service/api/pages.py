"""HTML pages without external resources, so that they work without a network."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import Any

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "code,pre{font:14px/1.4 ui-monospace,monospace;background:#8882}pre{padding:.6em;overflow-x:auto}"
    "summary{cursor:pointer}td,th{text-align:left;vertical-align:top;padding:.1em 1em .1em 0}section{margin-top:2em}"
)


def page(title: str, body: str) -> str:
    """Return a complete page; `body` is HTML."""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>'
    return f'<!doctype html><html lang="en"><head>{head}<style>{_STYLE}</style></head><body>{body}</body></html>'


def inline(text: str) -> str:
    """Convert text with `code` in backquotes to HTML."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def describe(document: dict[str, Any]) -> str:
    """Return the page of an OpenAPI document: each operation with its parameters, bodies and responses, and their examples."""
    info = document["info"]
    parts = [f"<h1>{html.escape(info['title'])} {html.escape(info['version'])}</h1><p>{inline(info['summary'])}. "]
    parts.append('In machine-readable form: <a href="/openapi.json"><code>/openapi.json</code></a>.</p>')
    for tag in document["tags"]:
        parts.append(f"<section><h2>{html.escape(tag['name'])}</h2><p>{inline(tag['description'])}</p>")
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if tag["name"] in operation["tags"]:
                    parts += _operation(method.upper(), path, operation)
        parts.append("</section>")
    return page(f"{info['title']}: HTTP interface", "".join(parts))


def _operation(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f'<details id="{operation["operationId"]}">'
    yield f"<summary><code>{method} {html.escape(path)}</code> {inline(operation['summary'])}</summary>"
    if "description" in operation:
        yield f"<p>{inline(operation['description'])}</p>"
    if parameters := operation.get("parameters"):
        yield "<table><tr><th>parameter<th>in<th>example<th>"
        for one in parameters:
            example = json.dumps(one["example"], ensure_ascii=False) if "example" in one else ""
            yield f"<tr><td><code>{html.escape(one['name'])}</code><td>{one['in']}<td><code>{html.escape(example)}</code>"
            yield f"<td>{inline(one['description'])}"
        yield "</table>"
    if "requestBody" in operation:
        yield "<h4>body</h4>"
        yield from _content(operation["requestBody"]["content"])
    for status, answer in operation["responses"].items():
        yield f"<h4>{status}: {inline(answer['description'])}</h4>"
        yield from _content(answer.get("content", {}))
    yield "</details>"


def _content(content: dict[str, Any]) -> Iterator[str]:
    for media, one in content.items():
        yield f"<p><code>{html.escape(media)}</code></p>"
        examples = [example["value"] for example in one["examples"].values()] if "examples" in one else [one["example"]]
        for example in examples:
            text = example if isinstance(example, str) else json.dumps(example, indent=2, ensure_ascii=False)
            yield f"<pre>{html.escape(text)}</pre>"
