"""The command line: `python -m graftjit COMMAND`. `commands.COMMANDS` is the table of commands.

In: arguments. Out: text on stdout, and an exit status: 0 success; 1 failure (the demo found a
difference, a limit was exceeded, `doctor` found a problem); 2 invalid arguments. `explain` and
`bench` return the status of the script that they run. Until a command runs, nothing here imports
torch.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from ..runtime.errors import GraftError, OptionError, UserError
from ..runtime.version import VERSION
from .commands import COMMANDS
from .parser import Parser

_EXAMPLES = """\
examples:
  python -m graftjit demo                         handwritten digits: eager, @jit and compile side by side
  python -m graftjit explain train.py             run a script, then report what was compiled and what not
  python -m graftjit explain --html r.html train.py --epochs 1
  python -m graftjit explain --all -m package.train
  python -m graftjit bench train.py               times and errors of its jitted calls beside plain Python
  python -m graftjit doctor                       versions, compiler, processor, GPU; what is missing
  python -m graftjit cache                        the kernel store: where, how much
  python -m graftjit codes GB104                  what a code in a report means, and its cure

'python -m graftjit COMMAND --help' describes one command.
exit status: 0 success; 1 failure; 2 the arguments are wrong; explain and bench: that of the script
"""


def _parser() -> Parser:
    parser = Parser(
        prog="python -m graftjit",
        description="A just-in-time compiler for PyTorch programs.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("--version", action="store_true", help="the version of graftjit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for one in COMMANDS:
        made = commands.add_parser(one.name, help=one.help, description=one.help, epilog=one.epilog)
        made.prog = f"{parser.prog} {one.name}"
        one.add(made)
        made.set_defaults(needs_all=one.needs_all, parser=made)
        parser.below[one.name] = made
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status. Raises SystemExit for invalid arguments and for
    help."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    parsed = parser.parse_args(words)
    if parsed.version:
        print(f"graftjit {VERSION}")
        return 0
    if parsed.command is None:
        parser.error("a COMMAND is required")
    try:
        # The file of the command is imported only now: some of them import torch.
        command = importlib.import_module(f".{parsed.command}", __package__)
        status: int = command.run(parsed)
        sys.stdout.flush()
        return status
    except GraftError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, (UserError, OptionError)) else 1
    except BrokenPipeError:  # `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def before_torch(words: list[str]) -> None:
    """Run the command and end the process, if the command does not need torch."""
    parsed = _parser().parse_args(words)
    if not getattr(parsed, "needs_all", False):
        sys.exit(main(words))
