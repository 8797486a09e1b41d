"""CPython's own tests, plain and jitted: what differs.

    python -m tests.cpython [MODULE ...] [--modes jit,frame] [--text]

Runs each module of modules.txt (or those that are named) three times, in a process each: plain; with each test method
jitted; with each method called by a jitted frame that computes with a tensor, in which nothing is left alone. Prints a line
for each test that differs, with --text why, and ends with status 1 if there is one. left_out.txt names what is not compared.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from . import running

MODULES = Path(__file__).with_name("modules.txt")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cpython", description=__doc__)
    parser.add_argument("modules", nargs="*", help="names of modules of CPython's `test` package")
    parser.add_argument("--modes", default="jit,frame")
    parser.add_argument("--text", action="store_true", help="what each test that differs says")
    seen = parser.parse_args()
    os.environ.setdefault("GRAFTJIT_CHECK", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    found, count, began = [], 0, time.monotonic()
    for module in seen.modules or modules():
        passed, differences = running.compare(module, tuple(seen.modes.split(",")))
        count += passed
        found += differences
        print(f"{module}: {passed} tests, {len(differences)} differ", file=sys.stderr, flush=True)
        for difference in differences:
            print(difference, flush=True)
            if seen.text:
                print("    " + difference.text.rstrip().replace("\n", "\n    "), flush=True)
    seconds = time.monotonic() - began
    print(f"{count} tests, {len(found)} differ, in {seconds:.0f} s", file=sys.stderr)
    return 1 if found else 0


def modules() -> list[str]:
    """The modules of modules.txt that this version of Python has."""
    import test

    folder = Path(test.__file__).parent
    names = [line.split("#")[0].strip() for line in MODULES.read_text().splitlines()]
    return [name for name in names if name and _is_there(folder, name)]


def _is_there(folder: Path, name: str) -> bool:
    path = folder / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists()


if __name__ == "__main__":
    sys.exit(main())
