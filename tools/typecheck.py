"""Runs mypy over the library through a tree of links.

The packages of this repository (`capture/`, `ir/`, ...) install as `graftjit.capture`, `graftjit.ir`, ... by
setuptools' `package-dir` mapping, which type checkers do not follow. This makes `.typecheck/graftjit` with one
link a file and a package, and gives mypy that. Called by `make lint` and pre-commit; arguments go on to mypy.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREE = ROOT / ".typecheck"
# The extension's functions and types are checked by tests, not by annotations.
NATIVE_STUB = "from typing import Any\ndef __getattr__(name: str) -> Any: ...\n"


def make_tree(tree: Path = TREE) -> None:
    """`graftjit` as an installation would look, made of links, in the folder `tree`, which is made anew."""
    with open(ROOT / "pyproject.toml", "rb") as stream:
        package_dir = tomllib.load(stream)["tool"]["setuptools"]["package-dir"]
    shutil.rmtree(tree, ignore_errors=True)
    for package, folder in package_dir.items():
        for init in sorted((ROOT / folder).rglob("__init__.py")):
            inside = init.parent.relative_to(ROOT / folder)
            target = tree.joinpath(*package.split("."), inside)
            target.mkdir(parents=True)
            for path in init.parent.iterdir():
                if path.suffix in (".py", ".pyi", ".typed"):
                    (target / path.name).symlink_to(path)
    (tree / "graftjit" / "runtime" / "_native.pyi").write_text(NATIVE_STUB)


def main() -> int:
    make_tree()
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    arguments = sys.argv[1:] or ["-p", "graftjit"]
    return subprocess.run([*command, *arguments], cwd=TREE, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
