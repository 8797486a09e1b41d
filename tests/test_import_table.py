"""The import table of the rooms, held by parsing every import statement; nothing is executed.

| room     | may import            |
|----------|-----------------------|
| ir       | nothing of ours       |
| runtime  | ir                    |
| codegen  | ir, runtime           |
| capture  | ir, runtime           |
| graftjit | all (the face)        |
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TABLE: dict[str, set[str]] = {
    "ir": {"ir"},
    "runtime": {"runtime", "ir"},
    "codegen": {"codegen", "ir", "runtime"},
    "capture": {"capture", "ir", "runtime"},
    "graftjit": {"graftjit", "ir", "runtime", "codegen", "capture"},
}
FORBIDDEN = ("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd", "sympy")
ONLY_IN = {"triton": "codegen/triton/compiler.py"}


def files() -> list[Path]:
    return sorted(path for room in TABLE for path in (ROOT / room).rglob("*.py"))


def imports(text: str, package: str) -> Iterator[tuple[int, str]]:
    """(line, absolute dotted name) of everything a file imports, inside functions too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            name = "." * node.level + (node.module or "")
            base = importlib.util.resolve_name(name, package) if node.level else name
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def room_of(name: str) -> str | None:
    """The room that an absolute name of ours lies in; None for foreign names."""
    parts = name.split(".")
    if parts[0] != "graftjit":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in TABLE else "graftjit"


def package_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parent.parts
    return ".".join(parts if parts[0] == "graftjit" else ("graftjit", *parts))


def faults(text: str, path: str, package: str) -> list[str]:
    room = path.split("/")[0]
    found = []
    for line, name in imports(text, package):
        target = room_of(name)
        place = f"{path}:{line}: {name}"
        if target is not None and target not in TABLE[room]:
            found.append(f"{place}: {room} may not import {target}")
        if name.split(".")[0] in set(TABLE) - {"graftjit"}:
            found.append(f"{place}: rooms are imported as graftjit.<room>, relatively")
        if any(name == bad or name.startswith(bad + ".") for bad in FORBIDDEN):
            found.append(f"{place}: never on our import path")
        owner = ONLY_IN.get(name.split(".")[0])
        if owner is not None and path != owner:
            found.append(f"{place}: only in {owner}")
    return found


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_file_keeps_to_the_table(path):
    name = path.relative_to(ROOT).as_posix()
    assert faults(path.read_text(encoding="utf-8"), name, package_of(path)) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("ir/a.py", "from ..runtime import events"),
        ("runtime/a.py", "def f():\n    from ..codegen.backend import compile_graph"),
        ("capture/a.py", "from .. import codegen"),
        ("capture/a.py", "import graftjit.codegen"),
        ("codegen/a.py", "from ..capture.frame import x"),
        ("runtime/a.py", "from ..jit import jit"),
        ("capture/a.py", "import ir"),
        ("capture/a.py", "import torch._dynamo as d"),
        ("capture/a.py", "from torch import _inductor"),
        ("graftjit/a.py", "from sympy import Symbol"),
        ("runtime/a.py", "import triton.language as tl"),
    ],
)
def test_the_test_sees_a_fault(path, text):
    package = "graftjit" if path.startswith("graftjit/") else f"graftjit.{path.split('/')[0]}"
    assert len(faults(text, path, package)) == 1


def test_every_room_has_files():
    assert {path.relative_to(ROOT).parts[0] for path in files()} == set(TABLE)


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_files_start_with_a_docstring(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


# -- inside a room: leaves first, then sub-packages from the ground up, then roofs --------------------
STACKS: dict[str, tuple[str, ...]] = {
    "ir": (
        "dataclass", "location", "errors",
        "symbolic", "graph", "ops", "trace", "passes", "autograd",
    ),
    "runtime": (
        "errors", "version", "codes", "safe_access", "directives", "native_sources", "own_files", "weak_callbacks",
        "events", "process", "store", "program", "cuda", "executor", "autograd", "guards", "report",
        "doctor",
    ),
    "codegen": (
        "loops", "analysis", "build", "cpp", "programs", "kernels", "lower", "fusion", "triton", "plan_cache",
        "schedule", "tuning",
        "pipeline", "training", "cuda_graphs", "backend",
    ),
    "capture": (
        "breaks", "exact_type", "helpers", "walk_warnings",
        "bytecode", "values", "data_model", "types", "torch_models", "operations", "models", "interpreter", "emit",
        "decompile",
        "alias_guards", "finalizers", "capture",
    ),
}  # fmt: skip
# Imports that still point up. None may be added; what is turned round leaves this table.
UPWARD = {
    "runtime": {("process", "store")},  # SESSION opens the kernel store when it is first asked for
}  # fmt: skip


def inner_imports(room: str) -> Iterator[tuple[str, str, str]]:
    """(importing part, imported part, place) of each import inside a room; those for type checkers are free."""
    for path in sorted((ROOT / room).rglob("*.py")):
        inside = path.relative_to(ROOT / room)
        if str(inside) == "__init__.py":
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        free = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or not node.level or id(node) in free:
                continue
            base = importlib.util.resolve_name(
                "." * node.level + (node.module or ""), package_of(path)
            )
            for alias in node.names:
                parts = f"{base}.{alias.name}".split(".")
                if parts[1] == room and len(parts) > 2 and not parts[2].startswith("_"):
                    own = inside.parts[0].removesuffix(".py")
                    yield own, parts[2], f"{room}/{inside}:{node.lineno} {alias.name}"


@pytest.mark.parametrize("room", STACKS)
def test_imports_inside_a_room_point_down(room: str) -> None:
    stack, upward = STACKS[room], {}
    for own, other, place in inner_imports(room):
        if stack.index(other) > stack.index(own):
            upward.setdefault((own, other), []).append(place)
    assert set(upward) == UPWARD.get(room, set()), upward


@pytest.mark.parametrize("room", STACKS)
def test_every_part_of_a_room_is_in_its_stack(room: str) -> None:
    parts = {
        path.relative_to(ROOT / room).parts[0].removesuffix(".py")
        for path in (ROOT / room).rglob("*.py")
    }
    assert parts - {"__init__"} == set(STACKS[room])


@pytest.mark.parametrize(
    "path", [path for room in STACKS for path in sorted((ROOT / room).rglob("__init__.py")) if path.parent.parent != ROOT],
    ids=lambda p: str(p.relative_to(ROOT)),
)  # fmt: skip
def test_a_sub_package_says_what_to_open_first(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    first = re.search(r"^Open first: `(.+)`\.$", text, re.MULTILINE)
    assert "\nIn: " in text and " Out: " in text.replace("\n", " ") and first
    assert (path.parent / first[1]).is_file()
