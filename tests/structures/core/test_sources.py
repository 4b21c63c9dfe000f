"""Which rooms a room's compiled code comes from."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import structures
from structures.core.sources import Sources

ROOT = Path(structures.__file__).parent


def package(folder: Path, **rooms: str) -> Sources:
    """A package of these rooms, of one module each."""
    root = folder / "structures"
    for name, text in rooms.items():
        (root / name).mkdir(parents=True)
        (root / name / "__init__.py").touch()
        (root / name / "tree.py").write_text(text)
    return Sources(root)


def test_rooms_are_needed_directly_or_not(tmp_path: Path):
    sources = package(
        tmp_path,
        core="import os",
        ordered="from structures.core.tree import one",
        interval="import structures.ordered.tree\n",
        box="def late():\n    from structures.interval.tree import (\n        one,\n        two,\n    )\n",
        qdag="from structures.core.tree import one",
    )
    assert sources.needed_by("box") == {"box", "interval", "ordered", "core"}
    assert sources.needed_by("qdag") == {"qdag", "core"}
    assert sources.needed_by("core") == {"core"}


@pytest.mark.parametrize(
    "text",
    [
        "from structures import box",
        "from structures import (\n    box,\n)",
        "import structures",
        "import os, structures",
        "import structures.core as core, structures",
        "from .. import box",
        "from ..box import tree",
        "from structures\\\n.box import tree",
        "import \\\n    structures.core as core, structures as s",
        "import importlib\nimportlib.import_module('struc' + 'tures.box')",
        "__import__('struc' + 'tures.box')",
    ],
)
def test_an_import_that_cannot_be_read_counts_as_one_of_all_rooms(tmp_path: Path, text: str):
    sources = package(tmp_path, core="", box="", qdag=text)
    assert sources.needed_by("qdag") == {"core", "box", "qdag"}


def test_circles_end(tmp_path: Path):
    sources = package(tmp_path, box="import structures.qdag.tree", qdag="import structures.box.tree")
    assert sources.needed_by("box") == sources.needed_by("qdag") == {"box", "qdag"}


def test_the_digest_is_of_what_is_needed_wherever_it_lies(tmp_path: Path):
    def digests() -> dict[str | None, bytes]:
        sources = Sources(tmp_path / "structures")
        return {room: sources.digest(room) for room in ("core", "box", "qdag", None)}

    def changed(path: str, text: str) -> set[str | None]:
        file = tmp_path / "structures" / path
        file.parent.mkdir(exist_ok=True)
        before = digests()
        file.write_text(text)
        return {room for room, digest in digests().items() if digest != before[room]}

    package(tmp_path, core="", box="import structures.core.tree", qdag="import structures.core.tree")
    assert changed("box/tree.py", "import structures.core.tree\n") == {"box", None}
    assert changed("core/tree.py", "\n") == {"core", "box", "qdag", None}
    assert changed("qdag/deeper/walk.py", "") == {"qdag", None}
    assert changed("__init__.py", "import structures.box.tree") == {"core", "box", "qdag", None}
    assert changed("box/tree.py", "") == {"core", "box", "qdag", None}, "what the package itself imports, all rooms need"


def test_files_outside_are_in_no_room():
    sources = Sources(ROOT)
    assert sources.room_of(str(ROOT / "box" / "tree.py")) == "box"
    assert sources.room_of(str(ROOT / "box" / "deeper" / "tree.py")) == "box"
    assert sources.room_of(str(ROOT / "__init__.py")) is None
    assert sources.room_of(__file__) is None


def test_our_rooms_need_what_their_import_statements_say():
    """Neither a room less, nor, for the cache's sake, one more."""
    sources = Sources(ROOT)
    imported: dict[str, set[str]] = {room: {room} for room in sources.rooms}
    for file in ROOT.rglob("*/*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            imported[file.relative_to(ROOT).parts[0]] |= {name.split(".")[1] for name in names if name.startswith("structures.")}
    for _ in imported:
        imported = {room: set().union(*(imported[one] for one in needed)) for room, needed in imported.items()}
    assert {room: sources.needed_by(room) for room in sources.rooms} == imported
