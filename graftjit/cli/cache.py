"""`python -m graftjit cache`: its arguments; `cache_commands` does the work."""

from __future__ import annotations

import argparse

NAME = "cache"
HELP = "the kernel store on disk: where it is, how much it holds; clear it, save it, load it"
NEEDS_ALL = False
EXAMPLES = """\
actions:
  info         where the store is and what it holds (the default)
  clear        remove every kernel; asks first on a terminal. Nothing is lost but the time to build them again
  save FILE    all kernels in one file, for other machines of the same kind; tells its digest
  load FILE    take the kernels of such a file, which is checked as a whole first

examples:
  python -m graftjit cache
  python -m graftjit cache clear --yes
  python -m graftjit cache save kernels.bundle
  python -m graftjit cache load kernels.bundle --digest 3f1c...

exit status: 0 done; 1 not done; 2 not understood, or no such file
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=("info", "clear", "save", "load"),
        default="info",
        metavar="ACTION",
        help="info, clear, save or load",
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="of save and load")
    parser.add_argument(
        "--digest", default="", help="load: refuse a bundle that is not the one saved with it"
    )
    parser.add_argument("--yes", action="store_true", help="clear: do not ask")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(parsed: argparse.Namespace) -> int:
    from .cache_commands import run as act

    return act(parsed.action, parsed.file, parsed.digest, parsed.json, parsed.yes)
