"""The tests keep their form: folders like those of the library, none too full, and no test file imports another."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
FILES = sorted(path for path in TESTS.rglob("*.py") if "golden" not in path.parts)
PACKAGES = ("capture", "codegen", "ir", "runtime")
MOST_IN_A_FOLDER = 24
# Whole programs of no single sub-package, and sweeps over torch's operator database.
BESIDE = {"capture/programs", "codegen/op_db"}


def folder(path: Path) -> str:
    return path.parent.relative_to(TESTS).as_posix()


def test_folders_are_those_of_the_library() -> None:
    """tests/codegen/cpp is for codegen/cpp."""
    inner = {folder(path) for path in FILES if folder(path).partition("/")[0] in PACKAGES}
    others = {name for name in inner - set(PACKAGES) if not (TESTS.parent / name).is_dir()}
    assert others == BESIDE


def test_a_folder_can_be_taken_in_at_a_glance() -> None:
    counts = Counter(map(folder, FILES))
    assert {name: n for name, n in counts.items() if n > MOST_IN_A_FOLDER} == {}


def imported(path: Path, node: ast.ImportFrom) -> list[Path]:
    """The files of tests/ that a statement may import."""
    words = node.module.split(".") if node.module else []
    base = path.parents[node.level - 1] if node.level else TESTS.parent
    module = base.joinpath(*words)
    return [
        file
        for file in (
            module.with_suffix(".py"),
            *(module / f"{name.name}.py" for name in node.names),
        )
        if file.is_relative_to(TESTS) and file.is_file()
    ]


def test_no_test_file_imports_another() -> None:
    """What two of them share is in a file of its own, or a fixture."""
    assert imported(TESTS / "ir/a.py", ast.parse("from .. import test_tiers").body[0])
    found = [
        f"{path.relative_to(TESTS)}:{node.lineno}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for file in imported(path, node)
        if file.name.startswith("test_")
    ]
    assert found == []


def test_pytest_looks_into_each_folder(request: pytest.FixtureRequest) -> None:
    """By default it leaves out folders of some names, `build` among them."""
    left_out = request.config.getini("norecursedirs")
    parts = {part for path in FILES for part in path.relative_to(TESTS).parts[:-1]}
    assert parts and not [
        part for part in parts if any(Path(part).match(pattern) for pattern in left_out)
    ]
