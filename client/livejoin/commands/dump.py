"""`livejoin dump`: writes the definitions of a service to the files that `livejoin apply` reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import livejoin
from livejoin.commands.connection import connect
from livejoin.commands.definitions import ENDINGS, form_of, stripped
from livejoin.terminal import Parser, add_url, say
from livejoin.wire.schema import NAME

_DESCRIPTION = """Write the definitions of all relations and views to FOLDER: relations/NAME.json, and views/NAME.sql, or views/NAME.json
for views that are defined in JSON or have options. Files of these names are replaced; others are kept, and reported. `livejoin apply`
reads the folder."""


def main(arguments: list[str]) -> int:
    parser = Parser("dump", _DESCRIPTION)
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="the folder; it is created if it does not exist")
    add_url(parser)
    args = parser.parse_args(arguments)
    with connect(args) as client:
        relations, views = client.relations(), client.views()
        if not all(NAME.fullmatch(one["name"]) for one in (*relations, *views)):  # they become the names of files
            raise livejoin.NotLivejoin(client.url)
    texts = dict[Path, str]()
    for relation in relations:
        texts[args.folder / "relations" / f"{relation['name']}.json"] = _formatted(form_of(relation))
    for view in views:
        definition = stripped(view["definition"])
        is_sql = definition.keys() == {"sql"}
        path = args.folder / "views" / f"{view['name']}{'.sql' if is_sql else '.json'}"
        texts[path] = definition["sql"] if is_sql else _formatted(definition)
    for kind in ENDINGS:
        (args.folder / kind).mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        path.write_text(f"{text}\n", encoding="utf-8", newline="\n")
    for kind, endings in ENDINGS.items():
        for path in sorted((args.folder / kind).glob("[!.]*")):
            if path in texts or path.suffix not in endings:
                continue
            if any(path.with_suffix(ending) in texts for ending in endings):
                path.unlink()  # the former form of a view
            else:
                say(f"{path} was kept: the service has no {kind[:-1]} of this name")
    print(f"{args.folder}: {len(relations)} relation{'s' * (len(relations) != 1)}, {len(views)} view{'s' * (len(views) != 1)}")
    return 0


def _formatted(value: Any, margin: str = "") -> str:
    """Return JSON in which what has no parts is on one line, so that each column of a relation is."""
    parts = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    if not any(isinstance(part, dict | list) for part in parts):
        return json.dumps(value, ensure_ascii=False)
    inner = margin + "  "
    names = [f"{json.dumps(name, ensure_ascii=False)}: " for name in value] if isinstance(value, dict) else [""] * len(parts)
    lines = [f"{inner}{name}{_formatted(part, inner)}" for name, part in zip(names, parts, strict=True)]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return "\n".join([opening, ",\n".join(lines), margin + closing])
