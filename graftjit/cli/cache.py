"""`python -m graftjit cache`: its arguments; `cache_commands` does the work."""

from __future__ import annotations

import argparse

NAME = "cache"
HELP = "the kernel store on disk: where it is, how much it holds; clear it, save it, load it"
NEEDS_ALL = False
EXAMPLES = """\
actions:
  info         where the store is and what it holds (the default)
  clear        remove every kernel; ask first on a terminal. Later runs build the kernels again
  save FILE    write all kernels to one file (a bundle) for machines of the same kind; print its digest
  load FILE    read the kernels of a bundle; the whole file is checked first

examples:
  python -m graftjit cache
  python -m graftjit cache clear --yes
  python -m graftjit cache save kernels.bundle
  python -m graftjit cache load kernels.bundle --digest 3f1c...

exit status: 0 done; 1 not done; 2 the arguments are wrong, or there is no such file
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
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="the bundle that save writes and load reads"
    )
    parser.add_argument(
        "--digest", default="", help="load: refuse a bundle whose digest is another one"
    )
    parser.add_argument("--yes", action="store_true", help="clear: do not ask")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(parsed: argparse.Namespace) -> int:
    from .cache_commands import run as act

    return act(parsed.action, parsed.file, parsed.digest, parsed.json, parsed.yes)
