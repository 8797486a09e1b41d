"""`python -m graftjit demo`."""

from __future__ import annotations

import argparse

NAME = "demo"
HELP = "handwritten digits: eager, @jit and compile side by side"
NEEDS_ALL = True
EXAMPLES = """\
examples:
  python -m graftjit demo
  python -m graftjit demo --width 80

exit status: 0 all three agree; 1 they do not
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--width", type=int, default=None, help="columns of the output (default: the terminal's)"
    )


def run(parsed: argparse.Namespace) -> int:
    from .demo import run as show

    return show(parsed.width)
