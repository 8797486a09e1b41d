"""The map of the packages, drawn from the tree: `python tools/house_map.py [--update]`.

In: the tables below, and the first docstring line of each package's `__init__`. Out: the map, printed; with
`--update`, written into CONTRIBUTING.md between its markers. `tests/test_import_table.py` holds the tables true,
and `tests/test_house.py` the map in CONTRIBUTING.md.
"""

from __future__ import annotations

import argparse
import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- map -->\n", "<!-- end of map -->\n"
WIDTH = 100
INDENT, NAME = 4, 16  # columns before a name, and columns of a name

# Which packages a package may import, in the order of the map.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "graftjit": ("capture", "codegen", "runtime", "ir"),
    "capture": ("runtime", "ir"),
    "codegen": ("runtime", "ir"),
    "runtime": ("ir",),
    "ir": (),
}

# The files and sub-packages of a package, from the ground up: each imports only those before it.
STACKS: dict[str, tuple[str, ...]] = {
    "graftjit": (
        *("dynamic", "context", "gradients", "torch_keywords"),
        *("dispatch", "nn"),
        *("ops", "tensor", "jit", "monitor"),
        *("dynamo_lines", "dynamo_backend", "compiled", "compat"),
        *("lowered", "cli"),
        "__main__",
    ),
    "capture": (
        *("breaks", "exact_type", "helpers", "walk_warnings"),
        *("bytecode", "values", "data_model", "types", "torch_models", "operations", "models"),
        *("operator_models", "interpreter", "emit"),
        *("model_tables", "alias_guards", "finalizers", "earlier_walks", "capture"),
    ),
    "codegen": (
        *("loops", "analysis", "build", "cpp", "programs", "kernels", "lower", "fusion", "triton"),
        *("plan_cache", "schedule", "tuning"),
        *(
            "pipeline",
            "joint_plan",
            "segments",
            "second_order",
            "equal_parts",
            "read_parts",
            "output_views",
            "training",
            "cuda_graphs",
            "backend",
        ),
    ),
    "runtime": (
        *("errors", "version", "codes", "safe_access", "directives", "native_sources"),
        *("own_files", "weak_callbacks"),
        *("events", "process", "store", "program", "cuda", "executor", "autograd", "guards"),
        *("report", "doctor"),
    ),
    "ir": (
        *("dataclass", "location", "errors", "own_hooks"),
        *("symbolic", "graph", "ops", "trace", "passes", "autograd"),
    ),
}

# Folders that are no packages: what is in them.
OTHER_FOLDERS = {
    "graftjit/code_examples": "Each code of a break or recompile: a program before and after its fix",
    "runtime/native": "The extension in C++: calls, guard programs, executor, tensors, CUDA launches",
}


def description(folder: Path) -> str:
    """The first line of the package's docstring, without its full stop."""
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").split("\n")[0].removesuffix(".")


def parts(package: str) -> set[str]:
    """The files and sub-packages of a package, by the names under which they are imported."""
    inside = [path.relative_to(ROOT / package).parts[0] for path in (ROOT / package).rglob("*.py")]
    names = [name for name in inside if f"{package}/{name}" not in OTHER_FOLDERS]
    return {name.removesuffix(".py") for name in names} - {"__init__"}


def drawn() -> str:
    """The map: one line per sub-package, and one or more lines per run of files."""
    return "\n\n".join("\n".join(_package(package)) for package in MAY_IMPORT) + "\n"


def _package(package: str) -> Iterator[str]:
    yield _row(0, f"{package}/", description(ROOT / package))
    yield _row(0, "", f"(imports {', '.join(MAY_IMPORT[package]) or 'no other package'})")
    files: list[str] = []
    for part in reversed(STACKS[package]):
        folder = ROOT / package / part
        if not folder.is_dir():
            files.append(f"{part}.py")
            continue
        yield from _files(files)
        files = []
        yield _row(1, f"{part}/", description(folder))
        for inner in sorted(folder.glob("*/__init__.py")):
            yield _row(2, f"{inner.parent.name}/", description(inner.parent))
    yield from _files(files)
    for name, text in OTHER_FOLDERS.items():
        if name.startswith(f"{package}/"):
            yield _row(1, f"{name.removeprefix(f'{package}/')}/", text)


def _row(depth: int, name: str, text: str) -> str:
    left = " " * (INDENT * depth) + name
    return f"{left:<{INDENT + NAME}}{text}"


def _files(names: list[str]) -> list[str]:
    indent = " " * INDENT
    return textwrap.wrap("  ".join(names), WIDTH, initial_indent=indent, subsequent_indent=indent)


def page(text: str) -> str:
    """The page with the map between its markers."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n```text\n{drawn()}```\n\n{END}{rest.split(END)[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the map of the packages.")
    parser.add_argument("--update", action="store_true", help="write it into CONTRIBUTING.md")
    if parser.parse_args().update:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(drawn(), end="")


if __name__ == "__main__":
    main()
