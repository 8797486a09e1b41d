"""The import tables of tools/house_map.py hold for every import statement; nothing is executed.

`MAY_IMPORT` says which package may import which, `STACKS` in which order the files and sub-packages
of a package are. CONTRIBUTING.md shows both as a map (tests/test_house.py).
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.house_map import MAY_IMPORT, STACKS, parts

ROOT = Path(__file__).parents[1]
FORBIDDEN = ("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd", "sympy")
ONLY_IN = {"triton": "codegen/triton/compiler.py"}


def files() -> list[Path]:
    return sorted(path for package in MAY_IMPORT for path in (ROOT / package).rglob("*.py"))


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


def package_of_name(name: str) -> str | None:
    """The package of an absolute name of graftjit's own; None for foreign names."""
    words = name.split(".")
    if words[0] != "graftjit":
        return None
    return words[1] if len(words) > 1 and words[1] in MAY_IMPORT else "graftjit"


def installed_name(path: Path) -> str:
    """The dotted name of the package that a file is in."""
    words = path.relative_to(ROOT).parent.parts
    return ".".join(words if words[0] == "graftjit" else ("graftjit", *words))


def faults(text: str, path: str, package: str) -> list[str]:
    own = path.split("/")[0]
    found = []
    for line, name in imports(text, package):
        target = package_of_name(name)
        place = f"{path}:{line}: {name}"
        if target is not None and target not in (own, *MAY_IMPORT[own]):
            found.append(f"{place}: {own} may not import {target}")
        if name.split(".")[0] in set(MAY_IMPORT) - {"graftjit"}:
            found.append(f"{place}: packages are imported as graftjit.<package>, relatively")
        if any(name == bad or name.startswith(bad + ".") for bad in FORBIDDEN):
            found.append(f"{place}: graftjit never imports it")
        owner = ONLY_IN.get(name.split(".")[0])
        if owner is not None and path != owner:
            found.append(f"{place}: only in {owner}")
    return found


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_file_keeps_to_the_table(path):
    name = path.relative_to(ROOT).as_posix()
    assert faults(path.read_text(encoding="utf-8"), name, installed_name(path)) == []


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


def test_every_package_has_files():
    assert {path.relative_to(ROOT).parts[0] for path in files()} == set(MAY_IMPORT)


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_files_start_with_a_docstring(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


# -- inside a package: the order of STACKS ---------------------------------------------------------

# Imports that point up, all inside functions. None may be added.
UPWARD = {
    # Methods and options that few programs use load their files at first use.
    "graftjit": {("nn", "jit"), ("jit", "compiled"), ("jit", "lowered")},
    # SESSION opens the kernel store at first use.
    "runtime": {("process", "store")},
}


def inner_imports(package: str) -> Iterator[tuple[str, str, str]]:
    """(importing part, imported part, place) of each import inside a package.

    Imports for type checkers only are left out.
    """
    own_name = installed_name(ROOT / package / "a.py")
    for path in sorted((ROOT / package).rglob("*.py")):
        inside = path.relative_to(ROOT / package)
        own = inside.parts[0].removesuffix(".py")
        if own not in STACKS[package]:
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
            name = "." * node.level + (node.module or "")
            base = importlib.util.resolve_name(name, installed_name(path))
            for alias in node.names:
                target = f"{base}.{alias.name}"
                if package_of_name(target) != package:
                    continue
                other = target.removeprefix(f"{own_name}.").split(".")[0]
                if not other.startswith("_"):
                    yield own, other, f"{package}/{inside}:{node.lineno} {alias.name}"


@pytest.mark.parametrize("package", STACKS)
def test_imports_inside_a_package_point_down(package: str) -> None:
    stack = STACKS[package]
    upward: dict[tuple[str, str], list[str]] = {}
    for own, other, place in inner_imports(package):
        if stack.index(other) > stack.index(own):
            upward.setdefault((own, other), []).append(place)
    assert set(upward) == UPWARD.get(package, set()), upward


@pytest.mark.parametrize("package", STACKS)
def test_every_part_of_a_package_is_in_its_stack(package: str) -> None:
    assert parts(package) == set(STACKS[package])


SUB_PACKAGES = [
    path
    for package in MAY_IMPORT
    for path in sorted((ROOT / package).rglob("__init__.py"))
    if path.parent.parent != ROOT
]


@pytest.mark.parametrize("path", SUB_PACKAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_sub_package_says_what_to_open_first(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    if path.parent.name == "nn":
        return  # its docstring is a page of the reference
    first = re.search(r"^Open first: `(.+)`\.$", text, re.MULTILINE)
    assert "\nIn: " in text and " Out: " in text.replace("\n", " ") and first
    assert (path.parent / first[1]).is_file()
