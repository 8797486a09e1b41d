"""What a change does to kernels: all that the tests compile, at two commits.

    .venv/bin/python tools/compare_kernels.py main HEAD
    .venv/bin/python tools/compare_kernels.py HEAD~3 HEAD --diff 5 -- tests/codegen -k softmax

Each commit is checked out aside, its native part is built, and the tests (those after `--`; all of tests/codegen else)
run there with the plugin `dumped_kernels`. Told are the kernels that came, went or changed, the lines of text in all, and the first
differences. Exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import difflib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("capture", "codegen", "ir", "runtime")


def checked_out(commit: str, folder: Path) -> Path:
    """A tree of the commit with a package that can be imported: the packages are folders of graftjit there."""
    tree = folder / "tree"
    tree.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit], check=True, capture_output=True
    )
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=tree, check=True
    )
    package = folder / "site" / "graftjit"
    package.mkdir(parents=True)
    for path in (tree / "graftjit").iterdir():
        (package / path.name).symlink_to(path)
    for name in FOLDERS:
        (package / name).symlink_to(tree / name)
    return tree


def kernels(commit: str, folder: Path, tests: list[str]) -> dict[str, str]:
    """Name of a dumped text -> the text. Tests that fail there are no matter: what they compiled counts."""
    tree, dump = checked_out(commit, folder), folder / "kernels"
    dump.mkdir()
    paths = [str(folder / "site"), str(tree), str(ROOT / "tools")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "GRAFTJIT_CHECK": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "dumped_kernels",
    ]
    done = subprocess.run(
        [*command, f"--dump-kernels={dump}", *tests],
        cwd=tree, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = done.stdout.strip().splitlines()
    print(f"{commit}: {lines[-1] if lines else done.stderr.strip()}")
    return {path.name: path.read_text() for path in sorted(dump.iterdir())}


def compare(old: dict[str, str], new: dict[str, str], shown: int) -> bool:
    """Print what is different; whether anything is."""
    changed = [name for name in old if name in new and old[name] != new[name]]
    for title, names in (
        ("gone", [name for name in old if name not in new]),
        ("new", [name for name in new if name not in old]),
        ("changed", changed),
    ):
        print(f"{len(names)} {title}")
        for name in names[:20]:
            print(f"    {name}")
    sizes = [sum(text.count("\n") for text in texts.values()) for texts in (old, new)]
    print(f"{len(old)} texts of {sizes[0]} lines, now {len(new)} of {sizes[1]}")
    for name in changed[:shown]:
        before, after = old[name].splitlines(), new[name].splitlines()
        print("\n".join(difflib.unified_diff(before, after, name, name, lineterm="")))
    return old != new


def main() -> int:
    arguments, tests = sys.argv[1:], ["tests/codegen"]
    if "--" in arguments:
        at = arguments.index("--")
        arguments, tests = arguments[:at], arguments[at + 1 :]
    read = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    read.add_argument("old")
    read.add_argument("new")
    read.add_argument("--diff", type=int, default=3, help="texts whose differences are shown")
    chosen = read.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        found = [
            kernels(commit, Path(folder, side), tests)
            for commit, side in ((chosen.old, "old"), (chosen.new, "new"))
        ]
    return int(compare(*found, chosen.diff))


if __name__ == "__main__":
    sys.exit(main())
