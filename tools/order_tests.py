"""The test files in the order in which the last changes may have broken them; prints their paths.

    python tools/order_tests.py [--since REVISION]

A file comes first if few imports lie between it and a file that was changed since REVISION (by default the newest
commit that is twelve hours older than HEAD); files at one distance are shuffled, in another way for each commit, so that
a run that has time for a part of them takes another part each time. `.ci/run` hands the list to `make test-rest`.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import subprocess
from collections import defaultdict, deque
from collections.abc import Iterator
from hashlib import sha1
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("graftjit", "capture", "codegen", "ir", "runtime")
FAR = 99
# What is no Python module, and the module that stands for it.
NATIVE = {"runtime/native/": "runtime/native_sources.py", "codegen/": "codegen/backend.py"}


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def module_name(path: str) -> str:
    """The dotted name under which a file of this checkout is imported."""
    parts = list(Path(path).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    inside = parts and parts[0] in PACKAGES and parts[0] != "graftjit"
    return ".".join(["graftjit", *parts] if inside else parts)


def imported(path: str) -> Iterator[str]:
    """Dotted names of all that a file imports, also inside functions."""
    package = module_name(path)
    if not path.endswith("__init__.py"):
        package = package.rpartition(".")[0]
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            name = "." * node.level + (node.module or "")
            base = importlib.util.resolve_name(name, package) if node.level else name
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def importers(files: list[str]) -> dict[str, set[str]]:
    """Of each file, the files that import it."""
    paths = {module_name(path): path for path in files}
    found: dict[str, set[str]] = defaultdict(set)
    for path in files:
        for name in imported(path):
            if name in paths:
                found[paths[name]].add(path)
    return found


def distances(changed: list[str], found: dict[str, set[str]]) -> dict[str, int]:
    """Imports between each file and the nearest changed one."""
    away = dict.fromkeys(changed, 0)
    queue = deque(changed)
    while queue:
        path = queue.popleft()
        for user in found.get(path, ()):
            if user not in away:
                away[user] = away[path] + 1
                queue.append(user)
    return away


def changed_since(revision: str) -> list[str]:
    """Changed files; a source of the extension stands for the module that loads it."""
    names = git("diff", "--name-only", f"{revision}..HEAD").split()
    native = {
        module for folder, module in NATIVE.items() for name in names
        if name.startswith(folder) and name.endswith((".cpp", ".h"))
    }  # fmt: skip
    return [*names, *native]


def half_a_day_ago() -> str:
    """The newest commit that is twelve hours older than HEAD; the first one if there is none."""
    before = int(git("log", "-1", "--format=%ct")) - 12 * 3600
    return git("rev-list", "-1", f"--before={before}", "HEAD") or git(
        "rev-list", "--max-parents=0", "HEAD"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--since", metavar="REVISION")
    revision = parser.parse_args().since or half_a_day_ago()
    files = git("ls-files", "*.py").split()
    away = distances(changed_since(revision), importers(files))
    head = git("rev-parse", "HEAD")
    tests = [path for path in files if Path(path).name.startswith("test_") and path.startswith("tests/")]  # fmt: skip
    tests.sort(key=lambda path: (away.get(path, FAR), sha1((head + path).encode()).digest()))
    print("\n".join(tests))


if __name__ == "__main__":
    main()
