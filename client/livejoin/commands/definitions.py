"""Definitions as files: `relations/NAME.json`, `views/NAME.sql`, and `views/NAME.json` for views in JSON, or in SQL with options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from livejoin.terminal import Failure, say, text_of
from livejoin.wire.errors import BadDefinition
from livejoin.wire.schema import NAME, RelationDefinition, parse_relation

ENDINGS = {"relations": (".json",), "views": (".sql", ".json")}


class Definitions(NamedTuple):
    """The definitions in a folder by name, and the file of each. Relations and views share one namespace."""

    relations: dict[str, RelationDefinition]
    views: dict[str, dict[str, Any]]
    files: dict[str, Path]


def read_folder(folder: Path) -> Definitions:
    """Raises Failure, after a message about each file that is wrong."""
    if not any((folder / kind).is_dir() for kind in ENDINGS):
        raise Failure(f"{folder} has neither a folder relations nor a folder views; `livejoin dump {folder}` makes them from a service", 2)
    found, wrong = Definitions({}, {}, {}), 0
    for kind in ENDINGS:
        for path in sorted((folder / kind).glob("[!.]*")):
            try:
                _read(path, kind, found)
            except Failure as failure:
                say(str(failure))
                wrong += 1
    if wrong:
        raise Failure(f"{wrong} {'file is' if wrong == 1 else 'files are'} wrong; nothing was changed", 2)
    return found


def _read(path: Path, kind: str, found: Definitions) -> None:
    name = path.stem
    if path.suffix not in ENDINGS[kind]:  # a file that is passed over is a view that --prune drops
        raise Failure(f"{path}: the files of {kind} end in {' or '.join(ENDINGS[kind])}")
    if not NAME.fullmatch(name):
        raise Failure(f"{path}: the name {name!r} does not match {NAME.pattern}")
    if (other := found.files.setdefault(name, path)) != path:
        raise Failure(f"{path}: {name} is defined in {other} too, and relations and views share one namespace: remove one of the files")
    text = text_of(path.read_bytes(), str(path))
    if path.suffix == ".sql":
        if not text.strip():
            raise Failure(f"{path} is empty: write a SELECT")
        found.views[name] = {"sql": text.rstrip().removesuffix(";")}  # lines are counted from the first one of the file
        return
    try:
        definition = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Failure(f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from error
    if not isinstance(definition, dict):
        raise Failure(f"{path}: a definition is a JSON object")
    if kind == "views":
        found.views[name] = definition
        return
    try:
        found.relations[name] = parse_relation(definition)
    except BadDefinition as error:
        raise Failure(f"{path}: {error.detail}") from error


def form_of(relation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definition of a relation, of what a service tells of it."""
    return {part: value for part, value in relation.items() if part in RelationDefinition.model_fields}


def stripped(definition: dict[str, Any]) -> dict[str, Any]:
    """Return the definition of a view without what surrounds its SQL: files end with a line break, and perhaps with a semicolon."""
    sql = definition.get("sql")
    return definition if not isinstance(sql, str) else {**definition, "sql": sql.strip().removesuffix(";").rstrip()}
