"""The commands: name, help and arguments of each. The file of the same name does its work.

Out: `COMMANDS`, from which `main` makes the parser. It imports the file of a command only to run
it: help and mistakes are answered before torch is imported.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple


class Command(NamedTuple):
    """A command. `add` declares its arguments; `epilog` follows them in its help. `needs_all`: it
    runs after all of graftjit is imported, else before torch is."""

    name: str
    help: str
    add: Callable[[argparse.ArgumentParser], None]
    needs_all: bool
    epilog: str


def whole_number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a whole number is expected, not {text!r}")
    return int(text)


def _program(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("script", nargs="?", metavar="SCRIPT", help="a Python program")
    parser.add_argument(
        "-m",
        dest="module",
        nargs=argparse.REMAINDER,
        metavar="MODULE",
        help="in place of SCRIPT: a module, followed by its arguments",
    )
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the script"
    )


def _save(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--save",
        metavar="FILE",
        action="append",
        default=[],
        help="write to FILE too; the suffix gives the form: .txt, .html, .json,"
        " .trace.json; may be repeated",
    )


# -- demo ------------------------------------------------------------------------------------------
_DEMO = """\
examples:
  python -m graftjit demo
  python -m graftjit demo --width 80

exit status: 0 all three agree; 1 they do not
"""


def _demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--width", type=int, default=None, help="columns of the output (default: the terminal's)"
    )


# -- explain ---------------------------------------------------------------------------------------
_EXPLAIN = """\
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
"""


def _explain(parser: argparse.ArgumentParser) -> None:
    _program(parser.add_argument_group("what to run"))
    more = parser.add_argument_group("what to compile besides what the script jits")
    more.add_argument(
        "--all",
        action="store_true",
        help="every nn.Module that is called from outside another module",
    )
    more.add_argument(
        "--graph-mode",
        action="store_true",
        help="every nn.Cell, as after set_context(mode=GRAPH_MODE)",
    )
    _explain_outputs(parser)
    limits = parser.add_argument_group("what to compare the report with")
    limits.add_argument(
        "--diff", metavar="OLD.json", help="also print what has changed since a saved report"
    )
    for name in ("breaks", "recompiles"):
        limits.add_argument(
            f"--max-{name}",
            type=whole_number,
            metavar="N",
            help=f"status 1 if there are more {name}",
        )


def _explain_outputs(parser: argparse.ArgumentParser) -> None:
    out = parser.add_argument_group("where to write the report")
    out.add_argument(
        "-v",
        "--verbosity",
        type=whole_number,
        default=1,
        metavar="N",
        help="0: the verdict; 1: one screen (the default); 2: everything, guards too;"
        " 3: graphs and kernels too",
    )
    out.add_argument("--html", metavar="FILE", help="write one HTML page to FILE too")
    out.add_argument("--json", metavar="FILE", help="write JSON to FILE too")
    _save(out)
    out.add_argument(
        "--stderr",
        action="store_true",
        help="print to stderr, so that stdout has only the script's output",
    )
    out.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="print no report; only write files and check limits",
    )


# -- bench -----------------------------------------------------------------------------------------
_BENCH = """\
Arguments after SCRIPT (or after -m MODULE) go to the script. Each call runs several times in turn:
plain, jitted, and with --peer by torch.compile; the table shows medians. If results need gradients,
only the forward is timed.

examples:
  python -m graftjit bench train.py --epochs 1
  python -m graftjit bench --all model.py               every nn.Module called from outside another
  python -m graftjit bench --peer -m package.predict    beside torch.compile
  python -m graftjit bench --json times.json train.py

exit status: that of the script if it fails; 1 if results differ or nothing was jitted; 0 otherwise
"""


def _bench(parser: argparse.ArgumentParser) -> None:
    _program(parser)
    parser.add_argument(
        "--all", action="store_true", help="compile every nn.Module called from outside another"
    )
    parser.add_argument("--peer", action="store_true", help="time torch.compile too")
    parser.add_argument("--json", metavar="FILE", help="write the times to FILE as JSON too")


# -- trace -----------------------------------------------------------------------------------------
_TRACE = """\
examples:
  GRAFTJIT_TRACE=traces python train.py
  python -m graftjit trace traces/graftjit-4711.jsonl
  python -m graftjit trace --save report.html traces/graftjit-4711.jsonl

exit status: 0 read; 2 there is no such file, or it is not a trace
"""


def _trace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the trace of one process, graftjit-PID.jsonl")
    parser.add_argument(
        "-v",
        "--verbosity",
        type=whole_number,
        default=1,
        metavar="N",
        help="0 to 3, as for explain",
    )
    _save(parser)


# -- doctor ----------------------------------------------------------------------------------------
_DOCTOR = """\
examples:
  python -m graftjit doctor
  python -m graftjit doctor --json | python -m json.tool

exit status: 0 all is well; 1 something needs a fix (the rows marked FIX, each with what to do)
"""


def _doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


# -- cache -----------------------------------------------------------------------------------------
_CACHE = """\
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


def _cache(parser: argparse.ArgumentParser) -> None:
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


# -- codes -----------------------------------------------------------------------------------------
_CODES = """\
examples:
  python -m graftjit codes GB104               one code, with an example before and after its cure
  python -m graftjit codes RC                  a family: GB breaks, PL plain frames, FB fallbacks,
                                               RC recompiles, ER errors, WN warnings
  python -m graftjit codes numpy               the codes whose texts have this word
  python -m graftjit codes --json GB           as JSON
  python -m graftjit codes --markdown          the whole table, as in docs/codes.md

exit status: 0 found; 2 there is no such code or word
"""


def _codes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "code", nargs="*", metavar="CODE", help="a code, the two letters of a family, or a word"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument(
        "--markdown", action="store_true", help="print the whole table, as in docs/codes.md"
    )


COMMANDS = (
    Command(
        "demo",
        "handwritten digits: eager, @jit and compile side by side",
        _demo,
        True,
        _DEMO,
    ),
    Command(
        "explain",
        "run a script and report what was compiled, what was not, and why",
        _explain,
        True,
        _EXPLAIN,
    ),
    Command(
        "bench",
        "run a script, then time the calls of its jitted functions beside plain Python",
        _bench,
        True,
        _BENCH,
    ),
    Command(
        "trace",
        "the report of a run that GRAFTJIT_TRACE=DIR has written to a file",
        _trace,
        True,
        _TRACE,
    ),
    # it must work even if the rest of graftjit cannot be imported
    Command(
        "doctor",
        "versions, compiler, processor, GPU, kernel store; what is missing and how to fix it",
        _doctor,
        False,
        _DOCTOR,
    ),
    Command(
        "cache",
        "the kernel store on disk: where it is, how much it holds; clear it, save it, load it",
        _cache,
        False,
        _CACHE,
    ),
    Command(
        "codes",
        "explain the codes in reports, errors and warnings: cause, cost, cure (what to do),"
        " example",
        _codes,
        False,
        _CODES,
    ),
)
