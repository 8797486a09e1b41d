"""`python -m graftjit trace FILE.jsonl`: the report on a trace that GRAFTJIT_TRACE has written."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..runtime.errors import OptionError
from .explain import check_saves, whole_number
from .parser import near_file

NAME = "trace"
HELP = "the report of a run that GRAFTJIT_TRACE=DIR has written to a file"
NEEDS_ALL = True
EXAMPLES = """\
examples:
  GRAFTJIT_TRACE=traces python train.py
  python -m graftjit trace traces/graftjit-4711.jsonl
  python -m graftjit trace --save report.html traces/graftjit-4711.jsonl

exit status: 0 read; 2 there is no such file, or it is not a trace
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the trace of one process, graftjit-PID.jsonl")
    parser.add_argument(
        "-v",
        "--verbosity",
        type=whole_number,
        default=1,
        metavar="N",
        help="0 to 3, as for explain",
    )
    parser.add_argument(
        "--save",
        metavar="FILE",
        action="append",
        default=[],
        help="write to FILE too; the suffix gives the form: .txt, .html, .json,"
        " .trace.json; may be repeated",
    )


def run(parsed: argparse.Namespace) -> int:
    from ..runtime.report.report import Report

    check_saves(parsed.save)
    if not Path(parsed.file).is_file():
        raise OptionError(
            f"there is no file {parsed.file}{near_file(parsed.file)}",
            expected="a file that GRAFTJIT_TRACE=FOLDER has written",
        )
    try:
        report = Report.from_trace(parsed.file)
    except (ValueError, KeyError, TypeError) as error:
        raise OptionError(f"{parsed.file} is not a trace", found=str(error)) from error
    report.show(sys.stdout, parsed.verbosity)
    for name in parsed.save:
        print(f"saved: {report.save(name)}")
    return 0
