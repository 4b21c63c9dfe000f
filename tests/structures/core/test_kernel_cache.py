"""The cache of compiled code: no stale callers, and nothing compiled again without need; all of it warmed."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import structures
from service import warming
from structures.core.kernel import JIT, _listed

ROOT = Path(structures.__file__).parent
ROOMS = {
    "__init__.py": "",
    "ordered/tree.py": """
        from structures.core.kernel import kernel
        FACTOR = 2
        @kernel
        def helped(n: int) -> int:
            return FACTOR * n
    """,
    "box/tree.py": """
        from structures.core.kernel import kernel
        from structures.ordered.tree import helped
        @kernel("int64(int64)")
        def kept(n: int) -> int:
            return helped(n) + 1
    """,
    "qdag/tree.py": """
        from structures.core.kernel import kernel
        @kernel("int64(int64)")
        def kept(n: int) -> int:
            return n + 5
    """,
}
RUN = """
import json
import structures.box.tree, structures.qdag.tree
from structures.core.kernel import _listed, is_cached, load
cached = is_cached()
for one in list(_listed):
    load(*one)
assert is_cached()
rooms = {"box": structures.box.tree.kept, "qdag": structures.qdag.tree.kept}
print(json.dumps({
    "value": {room: kept(10) for room, kept in rooms.items()},
    "cached": cached,
    "compiled": [room for room, kept in rooms.items() if kept.stats.cache_misses],
}))
"""


class Package:
    """Three rooms over the real `structures/core/kernel.py`, with a cache of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "structures"
        for path, text in ROOMS.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text("\n".join(line[8:] for line in text.splitlines()) + "\n")
        (self.root / "core").mkdir()
        for name in ("helpers.py", "kernel.py", "sources.py"):
            shutil.copy(ROOT / "core" / name, self.root / "core")

    def edit(self, path: str, before: str, after: str) -> None:
        text = (self.root / path).read_text()
        assert before in text
        (self.root / path).write_text(text.replace(before, after))

    def run(self, **variables: str) -> dict[str, Any]:
        """In a process of its own: what the kernels give, and which of them were compiled for it."""
        own = {"LIVEJOIN_CACHE": str(self.folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": ""}
        environment = {**os.environ, **own, **variables}
        done = subprocess.run([sys.executable, "-c", RUN], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.mark.skipif(not JIT, reason="nothing is compiled")
def test_an_edit_compiles_what_it_concerns_and_nothing_else(tmp_path: Path):
    package = Package(tmp_path)

    def compiled(*rooms: str, box: int) -> dict[str, Any]:
        return {"value": {"box": box, "qdag": 15}, "cached": not rooms, "compiled": list(rooms)}

    assert package.run() == compiled("box", "qdag", box=21)
    assert package.run() == compiled(box=21)

    package.edit("box/tree.py", "+ 1", "+ 3")
    assert package.run() == compiled("box", box=23)

    package.edit("ordered/tree.py", "FACTOR * n", "FACTOR * n * 10")
    assert package.run() == compiled("box", box=203), "a stale caller of a helper"

    package.edit("ordered/tree.py", "FACTOR = 2", "FACTOR = 4")
    assert package.run() == compiled("box", box=403), "a stale reader of a constant"


@pytest.mark.skipif(not JIT, reason="nothing is compiled")
def test_what_is_gone_from_the_cache_is_not_said_to_be_there(tmp_path: Path):
    """A service that believes it compiles in the middle of a request."""
    package = Package(tmp_path)
    package.run()
    (code,) = package.folder.glob("cache/qdag-*/**/*.nbc")
    code.unlink()
    assert (package.run()["cached"], package.run()["cached"]) == (False, True)


ANY_PROCESSOR = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}


@pytest.mark.skipif(not JIT, reason="nothing is compiled")
def test_a_copy_of_an_environment_loads_what_was_compiled(tmp_path: Path):
    package = Package(tmp_path / "here")
    assert package.run(**ANY_PROCESSOR)["compiled"] == ["box", "qdag"]

    copy = Package(tmp_path / "elsewhere" / "than" / "here")
    shutil.rmtree(copy.folder)
    shutil.copytree(package.folder, copy.folder, copy_function=shutil.copy)  # with times of its own, as an archive may have
    shutil.rmtree(package.folder)
    assert copy.run(**ANY_PROCESSOR) == {"value": {"box": 21, "qdag": 15}, "cached": True, "compiled": []}
    assert copy.run()["compiled"] == ["box", "qdag"], "code for other processors"

    copy.edit("ordered/tree.py", "FACTOR = 2", "FACTOR = 4")
    assert copy.run() == {"value": {"box": 41, "qdag": 15}, "cached": False, "compiled": ["box"]}, "a stale reader of a constant"


@pytest.mark.skipif(not JIT, reason="nothing is listed")
def test_every_kernel_with_a_signature_is_warmed():
    """However deep it lies."""
    warming.import_all()
    listed = {(dispatcher.py_func.__module__, dispatcher.py_func.__name__) for dispatcher, _ in _listed}
    written = set()
    for file in ROOT.rglob("*.py"):
        module = ".".join(file.relative_to(ROOT.parent).with_suffix("").parts)
        for node in ast.walk(ast.parse(file.read_text())):
            for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "kernel" and decorator.args:
                    written.add((module, node.name))
    assert len(written) > 50
    assert written == {one for one in listed if one[0].startswith("structures.")}


def test_warming_imports_every_module():
    environment = {**os.environ, "LIVEJOIN_JIT": "off"}
    code = "import sys; from service import warming; warming.import_all(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT.parent, env=environment, capture_output=True, text=True, check=True)
    modules = {".".join(file.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__") for file in ROOT.rglob("*.py")}
    assert modules <= set(done.stdout.split())
