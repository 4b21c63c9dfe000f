"""The structure of the code, checked by reading every file. Imports within functions and for type hints count."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple, TypeGuard

from tests import code_lines
from tests.datasets import ROOT

PACKAGES = ("structures", "service", "streaming", "livejoin")
HOMES = {"livejoin": ROOT / "client"}  # folders of packages that are not at the root
MODULES_A_FOLDER = 20  # besides __init__
LINES_A_FUNCTION = 70
LINES_A_FILE = 500
PARAMETERS = 8
CODE = 73_000  # lines of the packages
PRIVATE = 340  # accesses of tests to what is private
WORDS, WORDS_A_LINE = {"ARCHITECTURE.md": 4500, "CHANGELOG.md": 800}, 60


@cache
def sources(*packages: str) -> dict[str, Path]:
    """Return the path of every module by its dotted name."""
    found = {}
    for package in packages:
        for path in sorted(home(package).rglob("*.py")):
            parts = path.relative_to(home(package).parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


class Function(NamedTuple):
    name: str
    lines: int
    parameters: int  # all of them, including `self`


class Source(NamedTuple):
    """What the tests need of a file. Its syntax tree is not kept: 70,000 statements would slow down every later test of the process."""

    imports: list[ast.Import | ast.ImportFrom]
    functions: list[Function]
    classes: dict[str, set[str]]  # the words of each class, except those in comments
    is_documentation: bool  # the module is nothing but a docstring


@cache
def source(path: Path) -> Source:
    return read(path.read_text())


def read(text: str) -> Source:
    tree = ast.parse(text)
    imports: list[ast.Import | ast.ImportFrom] = []
    functions, classes = [], {}
    lines = [line.partition("#")[0] for line in text.splitlines()]
    for node in statements(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            functions.append(Function(node.name, node.end_lineno - node.lineno + 1, parameters(node.args)))
        elif isinstance(node, ast.ClassDef):
            classes[node.name] = set(re.findall(r"[a-z_]+", "\n".join(lines[node.lineno - 1 : node.end_lineno])))
    return Source(imports, functions, classes, all(isinstance(node, ast.Expr) for node in tree.body))


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Return all statements, however deep; expressions, which are most of a tree, contain none."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += getattr(node, block, ())
        yield node


def parameters(given: ast.arguments) -> int:
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return sum(one is not None for one in every)


def home(module: str) -> Path:
    """Return the folder of the module's package."""
    package = module.partition(".")[0]
    return HOMES.get(package, ROOT) / package


def imported(node: ast.Import | ast.ImportFrom, modules: Mapping[str, Path]) -> set[str]:
    """Return the modules of this project that an import statement names."""
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        named = {f"{node.module}.{one.name}" for one in node.names}
        return {name if name in modules else str(node.module) for name in named} & modules.keys()
    return {one.name for one in node.names} & modules.keys()


def graph(modules: Mapping[str, Path]) -> dict[str, set[str]]:
    return {name: set().union(*(imported(node, modules) for node in source(path).imports)) - {name} for name, path in modules.items()}


def circle(arrows: Mapping[str, set[str]]) -> list[str]:
    """Return one cycle of modules, [] if there is none."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_circle_of_files() -> None:
    arrows = graph(sources(*PACKAGES, "tests"))
    assert len(arrows) > 400 and sum(map(len, arrows.values())) > 1600
    assert circle(arrows) == []


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert sorted(set(circle({"a": {"b"}, "b": {"c"}, "c": {"d", "b"}, "d": set()}))) == ["b", "c"]


def test_imports_are_found_wherever_they_stand() -> None:
    text = (
        "if TYPE_CHECKING:\n    from a.b import C\ndef f():\n    import a.d\n    from a import e as x\n"
        "try:\n    pass\nexcept OSError:\n    import a.g\nmatch 1:\n    case _:\n        with f():\n            import a.h\n"
    )
    modules = dict.fromkeys(("a", "a.b", "a.d", "a.e", "a.f", "a.g", "a.h"), Path())
    assert set().union(*(imported(node, modules) for node in read(text).imports)) == {"a.b", "a.d", "a.e", "a.g", "a.h"}


def test_structures_stand_on_arrays_and_the_compiler_alone() -> None:
    found = set()
    for path in sources("structures").values():
        for node in source(path).imports:
            if isinstance(node, ast.ImportFrom):
                found.add(str(node.module).partition(".")[0])
            else:
                found |= {one.name.partition(".")[0] for one in node.names}
    assert found - sys.stdlib_module_names == {"structures", "numpy", "numba", "llvmlite"}
    assert not found & {"asyncio", "socket", "http", "sqlite3", "datetime", "subprocess", "logging"}


def test_folders_are_small() -> None:
    folders: dict[Path, int] = {}
    for path in sources(*PACKAGES).values():
        folders[path.parent] = folders.get(path.parent, 0) + (path.name != "__init__.py")
    assert {str(folder.relative_to(ROOT)): count for folder, count in folders.items() if count > MODULES_A_FOLDER} == {}


def test_packages_hold_nothing_but_their_docstring() -> None:
    """Importing a module imports the packages that contain it; they are not part of any cycle because they import nothing. The client is an
    exception: it is imported by its public name, and none of its modules imports that."""
    for name, path in sources(*PACKAGES).items():
        if path.name == "__init__.py" and name != "livejoin":
            assert source(path).is_documentation, name


def test_the_packages_and_the_pages_about_them_are_small() -> None:
    assert code_lines.counted(*code_lines.PACKAGES).total() <= CODE
    for page, most in WORDS.items():
        text = (ROOT / page).read_text()
        assert len(text.split()) <= most, page
        assert max(len(cell.split()) for line in text.splitlines() for cell in line.split("|")) <= WORDS_A_LINE, page


def test_tests_use_what_is_public() -> None:
    command = [sys.executable, "-m", "ruff", "check", "--select", "SLF001", "--output-format", "json", "--exit-zero", "tests"]
    found = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)
    assert 100 < len(found) <= PRIVATE


def test_lines_of_code_are_counted() -> None:
    assert code_lines.code_lines('"""A.\n\nB."""\n\n# c\ndef f(\n    a,\n):\n    """D."""\n    return """x\ny"""\n') == 5


def test_every_room_is_on_the_map() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rooms = {path.parent.relative_to(home(name)) for name, path in sources(*PACKAGES).items()}
    assert [str(room) for room in sorted(rooms) if room.parts and f"`{room}/`" not in text and f"`{room.name}/`" not in text] == []


def test_modules_imported_by_name_are_there() -> None:
    """`import_module("…")` and `imported("…")`, which the command line uses for modules that not every installation or command needs."""
    by_name = re.compile(r"(?:import_module|imported)\(\"([\w.]+)\"\)")
    named = [one for path in sources(*PACKAGES).values() for one in by_name.findall(path.read_text())]
    ours = {one for one in named if one.startswith(PACKAGES)}
    assert len(ours) >= 3 and ours <= sources(*PACKAGES).keys()


def test_files_and_functions_are_short() -> None:
    long = []
    for name, path in sources(*PACKAGES, "tests").items():
        lines = len(path.read_text().splitlines())
        if lines > LINES_A_FILE:
            long.append(f"{name}: {lines} lines")
        long += [f"{name}.{one.name}: {one.lines} lines" for one in source(path).functions if one.lines > LINES_A_FUNCTION]
    assert long == []


def test_signatures_are_short() -> None:
    every = [(name, function) for name, path in sources("structures").items() for function in source(path).functions]
    assert len(every) > 400
    assert [f"{name}.{function.name}" for name, function in every if function.parameters > PARAMETERS] == []


def test_arrays_have_words_for_names() -> None:
    """Parameters of kernels are words, except for indices and the arrays of a store, as `Nodes` and `Writing` name them."""
    found = set()
    for name, path in sources("structures").items():
        for one in ast.parse(path.read_text()).body:
            for given in one.args.args if isinstance(one, ast.FunctionDef) and one.decorator_list else ():
                if len(given.arg) == 1 and given.annotation is not None and ast.unparse(given.annotation) != "int":
                    found.add(given.arg if given.arg in "CMW" else f"{name}.{one.name}: {given.arg}")
    assert found == set("CMW")


def test_kernels_that_python_calls_say_what_they_cost() -> None:
    entries = [(name, one) for name, path in sources("structures").items() for one in ast.parse(path.read_text()).body if is_entry(one)]
    assert len(entries) > 100
    assert [f"{name}.{one.name}" for name, one in entries if not says_cost(ast.get_docstring(one) or "")] == []


def says_cost(text: str) -> bool:
    return re.search(r"\bO\(|\b[Cc]osts?\b", text) is not None


def test_a_cost_is_found() -> None:
    assert says_cost("Put it. O(1) a row.") and says_cost("Cost: as `put`.") and not says_cost("Put it, at no more than FOO(1).")


def is_entry(node: ast.stmt) -> TypeGuard[ast.FunctionDef]:
    """Return whether the function is a kernel with a signature."""
    return isinstance(node, ast.FunctionDef) and any(
        isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "kernel" and one.args for one in node.decorator_list
    )


def test_parameters_are_counted() -> None:
    (function,) = read("def f(self, a, /, b, *c, d=1, **e): ...").functions
    assert function.parameters == 6


def cited() -> Iterator[tuple[str, str, str]]:
    """Return the pages of docs/design that the code names, each with a section that follows in italics, "" for the page itself."""
    for name, path in sources(*PACKAGES, "tests").items():
        text = " ".join(path.read_text().split())
        for page, behind in re.findall(r"(docs/design/[a-z-]+\.md)(?:`?,? ?\(?((?:\*[^*]+\*[;, ]*(?:and )?)+))?", text):
            yield name, page, ""
            for section in re.findall(r"\*([^*]+)\*", behind):
                yield name, page, section


def test_the_pages_that_comments_cite_are_there() -> None:
    sections = {f"docs/design/{path.name}": headings(path) for path in (ROOT / "docs" / "design").glob("*.md")}
    every = set(cited())
    assert len(every) > 60
    assert [one for one in sorted(every) if one[1] not in sections] == []
    assert [one for one in sorted(every) if one[2] and not any(one[2] in heading for heading in sections[one[1]])] == []


def headings(page: Path) -> list[str]:
    """Return the headings of a Markdown page, and the bold beginnings of its paragraphs."""
    return [a or b for a, b in re.findall(r"^(?:#+ (.+)|\*\*(.+?)\*\*)", page.read_text(), re.MULTILINE)]


def test_the_map_names_what_is_there() -> None:
    """`room/module.py` in ARCHITECTURE.md and CONTRIBUTING.md exists, relative to the root or to a package."""
    for page in ("ARCHITECTURE.md", "CONTRIBUTING.md"):
        named = re.findall(r"`([a-z_]+(?:/[a-z_]+)+/?(?:\.[a-z]+)?)`", (ROOT / page).read_text())
        assert named
        for name in named:
            found = [base / name for base in (ROOT, *map(home, PACKAGES)) if exists(base / name)]
            assert found, f"{page} names {name}"


def test_the_map_names_classes_and_what_they_have() -> None:
    """`Class.name`, or `Class`, in ARCHITECTURE.md and CONTRIBUTING.md exists in the code."""
    known: dict[str, set[str]] = {}
    for path in sources(*PACKAGES).values():
        for name, words in source(path).classes.items():
            known.setdefault(name, set()).update(words)
    for page in ("ARCHITECTURE.md", "CONTRIBUTING.md"):
        named = re.findall(r"`([A-Z][a-z][A-Za-z]*)\.([a-z_]+)(?:\([a-z, ]*\))?`", (ROOT / page).read_text())
        assert page != "ARCHITECTURE.md" or len(named) > 5
        stale = [f"{class_}.{name}" for class_, name in named if name not in known.get(class_, ())]
        assert stale == [], f"{page} names {stale}"


def exists(path: Path) -> bool:
    return path.exists() or path.with_suffix(".py").exists()


def test_modules_name_modules_that_are_there() -> None:
    """Docstrings and comments name `module.py` in the same folder, `room/module.py` in the same package, or a path from the root."""
    stale = []
    for name, path in sources(*PACKAGES).items():
        for mentioned in re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", path.read_text()):
            if not any((base / mentioned).exists() for base in (path.parent, home(name), ROOT)):
                stale.append(f"{name}: {mentioned}")
    assert stale == []
