"""The commands: name, help and arguments of each. The file of the same name does its work.

Out: `COMMANDS`, from which `main` makes the parser. It imports the file of a command only to run
it: help and mistakes are answered before torch is imported.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any, NamedTuple

Argument = tuple[tuple[str, ...], dict[str, Any]]


class Group(NamedTuple):
    """Arguments under a title of their own in the help; without a title at most one of them may be
    given."""

    title: str
    arguments: tuple[Argument, ...]


class Command(NamedTuple):
    """A command. `epilog` follows its arguments in its help. `needs_all`: it runs after all of
    graftjit is imported, else before torch is."""

    name: str
    help: str
    epilog: str
    arguments: tuple[Argument | Group, ...]
    needs_all: bool = True

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Declare its arguments."""
        for one in self.arguments:
            if not isinstance(one, Group):
                _declare(parser, [one])
            elif one.title:
                _declare(parser.add_argument_group(one.title), one.arguments)
            else:
                _declare(parser.add_mutually_exclusive_group(), one.arguments)


def _declare(parser: argparse._ActionsContainer, arguments: Iterable[Argument]) -> None:
    for names, options in arguments:
        parser.add_argument(*names, **options)


def _argument(*names: str, **options: Any) -> Argument:
    return names, options


def _flag(*names: str, help: str) -> Argument:
    return names, {"action": "store_true", "help": help}


def whole_number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a whole number is expected, not {text!r}")
    return int(text)


def _verbosity(help: str) -> Argument:
    return _argument("-v", "--verbosity", type=whole_number, default=1, metavar="N", help=help)


_JSON = _flag("--json", help="print JSON")
_PROGRAM = (
    _argument("script", nargs="?", metavar="SCRIPT", help="a Python program"),
    _argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE",
        help="in place of SCRIPT: a module, followed by its arguments",
    ),
    _argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the script"
    ),
)  # fmt: skip
_SAVE = _argument(
    "--save", metavar="FILE", action="append", default=[],
    help="write to FILE too; the suffix gives the form: .txt, .html, .json, .trace.json; may be"
    " repeated",
)  # fmt: skip

_DEMO = Command(
    "demo",
    "handwritten digits: eager, @jit and compile side by side",
    """\
examples:
  python -m graftjit demo
  python -m graftjit demo --width 80

exit status: 0 all three agree; 1 they do not
""",
    (
        _argument(
            "--width", type=int, default=None,
            help="columns of the output (default: the terminal's)",
        ),
    ),
)  # fmt: skip

_EXPLAIN = Command(
    "explain",
    "run a script and report what was compiled, what was not, and why",
    """\
Arguments after SCRIPT (or after -m MODULE) go to the script.

examples:
  python -m graftjit explain train.py --epochs 1
  python -m graftjit explain -m package.train --epochs 1
  python -m graftjit explain --html report.html --json report.json train.py
  python -m graftjit explain --all model.py             a program that does not use graftjit
  python -m graftjit explain --max-breaks 0 train.py    in CI: status 1 if there is a graph break
  python -m graftjit explain --diff before.json train.py
  python -m graftjit explain --stderr train.py > its_output.txt

exit status: that of the script; 1 if a limit is exceeded; 2 if the arguments are wrong
""",
    (
        Group("what to run", _PROGRAM),
        Group("what to compile besides what the script jits", (
            _flag("--all", help="every nn.Module that is called from outside another module"),
            _flag("--graph-mode", help="every nn.Cell, as after set_context(mode=GRAPH_MODE)"),
        )),
        Group("where to write the report", (
            _verbosity(
                "0: the verdict; 1: one screen (the default); 2: everything, guards too;"
                " 3: graphs and kernels too"
            ),
            _argument("--html", metavar="FILE", help="write one HTML page to FILE too"),
            _argument("--json", metavar="FILE", help="write JSON to FILE too"),
            _SAVE,
            _flag(
                "--stderr", help="print to stderr, so that stdout has only the script's output"
            ),
            _flag("-q", "--quiet", help="print no report; only write files and check limits"),
        )),
        Group("what to compare the report with", (
            _argument(
                "--diff", metavar="OLD.json",
                help="also print what has changed since a saved report",
            ),
            *(
                _argument(
                    f"--max-{name}", type=whole_number, metavar="N",
                    help=f"status 1 if there are more {name}",
                )
                for name in ("breaks", "recompiles")
            ),
        )),
    ),
)  # fmt: skip

_BENCH = Command(
    "bench",
    "run a script, then time the calls of its jitted functions beside plain Python",
    """\
Arguments after SCRIPT (or after -m MODULE) go to the script. Each call runs several times in turn:
plain, jitted, and with --peer by torch.compile; the table shows medians. If results need gradients,
only the forward is timed.

examples:
  python -m graftjit bench train.py --epochs 1
  python -m graftjit bench --all model.py               every nn.Module called from outside another
  python -m graftjit bench --peer -m package.predict    beside torch.compile
  python -m graftjit bench --json times.json train.py

exit status: that of the script if it fails; 1 if results differ or nothing was jitted; 0 otherwise
""",
    (
        *_PROGRAM,
        _flag("--all", help="compile every nn.Module called from outside another"),
        _flag("--peer", help="time torch.compile too"),
        _argument("--json", metavar="FILE", help="write the times to FILE as JSON too"),
    ),
)

_TRACE = Command(
    "trace",
    "the report of a run that GRAFTJIT_TRACE=DIR has written to a file",
    """\
examples:
  GRAFTJIT_TRACE=traces python train.py
  python -m graftjit trace traces/graftjit-4711.jsonl
  python -m graftjit trace --save report.html traces/graftjit-4711.jsonl

exit status: 0 read; 2 there is no such file, or it is not a trace
""",
    (
        _argument("file", metavar="FILE", help="the trace of one process, graftjit-PID.jsonl"),
        _verbosity("0 to 3, as for explain"),
        _SAVE,
    ),
)

# it must work even if the rest of graftjit cannot be imported
_DOCTOR = Command(
    "doctor",
    "versions, compiler, processor, GPU, kernel store; what is missing and how to fix it",
    """\
examples:
  python -m graftjit doctor
  python -m graftjit doctor --json | python -m json.tool

exit status: 0 all is well; 1 something needs a fix (the rows marked FIX, each with what to do)
""",
    (_JSON,),
    needs_all=False,
)

_CACHE = Command(
    "cache",
    "the kernel store on disk: where it is, how much it holds; clear it, save it, load it",
    """\
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
""",
    (
        _argument(
            "action", nargs="?", choices=("info", "clear", "save", "load"), default="info",
            metavar="ACTION", help="info, clear, save or load",
        ),
        _argument(
            "file", nargs="?", metavar="FILE", help="the bundle that save writes and load reads"
        ),
        _argument(
            "--digest", default="", help="load: refuse a bundle whose digest is another one"
        ),
        _flag("--yes", help="clear: do not ask"),
        _JSON,
    ),
    needs_all=False,
)  # fmt: skip

_CODES = Command(
    "codes",
    "explain the codes in reports, errors and warnings: cause, cost, cure (what to do), example",
    """\
examples:
  python -m graftjit codes GB104               one code, with an example before and after its cure
  python -m graftjit codes RC                  a family: GB breaks, PL plain frames, FB fallbacks,
                                               RC recompiles, ER errors, WN warnings
  python -m graftjit codes numpy               the codes whose texts have this word
  python -m graftjit codes --json GB           as JSON
  python -m graftjit codes --markdown          the whole table, as in docs/codes.md

exit status: 0 found; 2 there is no such code or word
""",
    (
        _argument(
            "code", nargs="*", metavar="CODE",
            help="a code, the two letters of a family, or a word",
        ),
        Group("", (
            _JSON,
            _flag("--markdown", help="print the whole table, as in docs/codes.md"),
        )),
    ),
    needs_all=False,
)  # fmt: skip

COMMANDS = (_DEMO, _EXPLAIN, _BENCH, _TRACE, _DOCTOR, _CACHE, _CODES)
