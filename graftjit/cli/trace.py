"""`python -m graftjit trace FILE.jsonl`: the report on a trace that GRAFTJIT_TRACE has written."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..runtime.errors import OptionError
from ..runtime.report.report import Report
from .explain import check_saves
from .parser import near_file


def run(parsed: argparse.Namespace) -> int:
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
