"""The library keeps its form: short functions, short files, and a true map in CONTRIBUTING.md."""

from __future__ import annotations

import ast
import importlib.util
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import house_map

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("capture", "codegen", "graftjit", "ir", "runtime")
LONGEST_FUNCTION = 60
LONGEST_FILE = 620
MOST_IN_A_FOLDER = 24
LARGEST_CIRCLE = 4
IMPORTS_INSIDE = 40  # inside functions: for what is loaded at first use, and for circles
COLUMNS, OVER_COLUMNS = 100, 60  # so many lines may be longer: those with a pragma, and macros
# Files that are longer, and how long they may be: each waits for the idea by which to part it.
LONGER = {"ir/symbolic/expr.py": 710}

FILES = sorted(
    str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")
)


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


@pytest.mark.parametrize("name", FILES)
def test_functions_and_files_are_short(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    long = {
        function.name: lines
        for function in _functions(ast.parse(text))
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > LONGEST_FUNCTION
    }
    assert not long, f"functions over {LONGEST_FUNCTION} lines"
    assert len(text.splitlines()) <= LONGER.get(name, LONGEST_FILE)


def test_what_is_allowed_to_be_longer_is_there() -> None:
    assert set(LONGER) <= set(FILES)


def test_a_folder_can_be_taken_in_at_a_glance() -> None:
    folders = Counter(str(Path(name).parent) for name in FILES)
    assert {folder: n for folder, n in folders.items() if n > MOST_IN_A_FOLDER} == {}


def test_lines_are_short() -> None:
    sources = [
        path
        for folder in FOLDERS
        for kind in ("*.py", "*.cpp", "*.h")
        for path in (ROOT / folder).rglob(kind)
    ]
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > COLUMNS
    ]
    assert len(long) <= OVER_COLUMNS, long


def _own_imports(tree: ast.AST, late: bool = False) -> Iterator[tuple[ast.ImportFrom, bool]]:
    """The imports of files of graftjit, but those for type checkers, and whether each is inside a function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.level:
            yield node, late
        function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        yield from _own_imports(node, late or function)


def _imported(name: str) -> set[str]:
    """The files of the same top-level folder that a file imports, in functions too, but not for type checkers."""
    path, folder = ROOT / name, name.split("/")[0]
    found = set()
    for node, _late in _own_imports(ast.parse(path.read_text(encoding="utf-8"))):
        package = ".".join(("root", *Path(name).parent.parts))
        try:
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
        except ImportError:  # above the folder: another one
            continue
        for alias in node.names:
            for dotted in (f"{base}.{alias.name}", base):
                file = "/".join(dotted.split(".")[1:]) + ".py"
                if file in KNOWN and file.split("/")[0] == folder:
                    found.add(file)
                    break
    return found - {name}


KNOWN = frozenset(FILES)


def _circles(edges: dict[str, set[str]]) -> list[set[str]]:
    """Files that import each other in a circle: what reaches each other."""
    reached = {}
    for name in edges:
        seen: set[str] = set()
        pending = list(edges[name])
        while pending:
            other = pending.pop()
            if other not in seen:
                seen.add(other)
                pending += edges[other]
        reached[name] = seen
    circles = {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in edges
        if name in reached[name]
    }
    return [set(circle) for circle in circles]


@pytest.mark.parametrize("folder", FOLDERS)
def test_circles_of_imports_are_small(folder: str) -> None:
    edges = {name: _imported(name) for name in FILES if name.startswith(folder + "/")}
    assert any(edges.values())
    assert [circle for circle in _circles(edges) if len(circle) > LARGEST_CIRCLE] == []


def test_imports_inside_functions_are_few_and_say_why() -> None:
    """The other imports stand at the top, where `import` itself shows a circle."""
    found, silent = [], []
    for name in FILES:
        text = (ROOT / name).read_text(encoding="utf-8")
        for node, late in _own_imports(ast.parse(text)):
            if not late:
                continue
            found.append(f"{name}:{node.lineno}")
            if not text.splitlines()[node.lineno - 2].strip().startswith("#"):
                silent.append(found[-1])
    assert len(found) <= IMPORTS_INSIDE, found
    assert silent == [], "a comment above gives the reason"


def test_no_text_has_the_marks_of_a_merge() -> None:
    texts = [path for kind in ("*.md", "docs/*.md", "tests/**/*.txt") for path in ROOT.glob(kind)]
    marked = [
        str(path.relative_to(ROOT)) for path in texts
        if any(line.startswith(("<<<<<<< ", ">>>>>>> ")) for line in path.read_text(encoding="utf-8").splitlines())
    ]  # fmt: skip
    assert texts and not marked


def test_the_map_in_contributing_is_that_of_the_tree() -> None:
    """Where this fails, run `python tools/house_map.py --update`."""
    page = house_map.PAGE.read_text(encoding="utf-8")
    assert page == house_map.page(page), "run python tools/house_map.py --update"


def test_the_map_fits_a_page() -> None:
    lines = house_map.drawn().splitlines()
    assert len(lines) <= 80 and max(map(len, lines)) <= house_map.WIDTH
