"""`python -m graftjit explain SCRIPT`: runs a program and reports what was compiled and what was
not.

In: a script or module with its own arguments. Out: the report on stdout or elsewhere, and the exit
status of the script; 1 if the script succeeded but exceeded a limit on breaks or recompiles.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..context import GRAPH_MODE, set_context
from ..jit import everything_counted
from ..runtime.errors import NotClean, OptionError
from ..runtime.process.session import SESSION
from ..runtime.report.report import Report, report_of
from . import run_script
from .jit_modules import every_module
from .parser import near_file

_SUFFIXES = (".txt", ".html", ".htm", ".json")


def program_of(parsed: argparse.Namespace) -> run_script.Program:
    """The program of `SCRIPT ...` or `-m MODULE ...`. Exits with status 2 if there is none."""
    if parsed.module:
        if parsed.script is not None:
            parsed.parser.error("either SCRIPT or -m MODULE")
        return run_script.module(parsed.module[0], parsed.module[1:])
    if parsed.script is None:
        parsed.parser.error("a SCRIPT, or -m MODULE, is required")
    return run_script.script(parsed.script, parsed.arguments)


def run(parsed: argparse.Namespace) -> int:
    program = program_of(parsed)
    files = [name for name in (parsed.html, parsed.json, *parsed.save) if name is not None]
    _check_files(parsed)  # before the script, which may run for a long time
    old = None if parsed.diff is None else _old_report(parsed.diff)
    status, report, about = _observed_run(parsed, program)
    out = sys.stderr if parsed.stderr else sys.stdout
    if not parsed.quiet:
        for line in about:
            print(line, file=out)
        report.show(out, parsed.verbosity)
        if old is not None:
            print(f"\nsince {parsed.diff}:\n{report.diff(old).text()}", file=out)
    for name in files:
        path = report.save(name)
        if not parsed.quiet:
            print(f"saved: {path}", file=out)
    return status or _beyond_limits(parsed, report)


def _observed_run(
    parsed: argparse.Namespace, program: run_script.Program
) -> tuple[int, Report, list[str]]:
    """Run the program. Returns (status, report, lines on compiled modules)."""
    if parsed.graph_mode:
        set_context(mode=GRAPH_MODE)
    with SESSION.log.keeping(), all_modules(parsed.all) as modules:
        status, alive = run_script.run(program)
        report = report_of(program.name, None, everything_counted())
        del alive
    return status, report, [] if modules is None else _about(modules)


@contextlib.contextmanager
def all_modules(wanted: bool) -> Iterator[Any]:
    """Compile every outermost module within the block, if `wanted`."""
    if not wanted:
        yield None
        return
    with every_module() as found:
        yield found


def _about(modules: Any) -> list[str]:
    """The modules that `--all` has compiled."""
    names = [name + (f" ({n} of them)" if n > 1 else "") for name, n in modules.named.items()]
    listed = ", ".join(names) if names else "none was called"
    return [f"modules called from outside another one: {listed}"]


def _check_files(parsed: argparse.Namespace) -> None:
    """Check that the files have valid suffixes and existing folders."""
    for name, allowed in ((parsed.html, (".html", ".htm")), (parsed.json, (".json",))):
        check_saves([] if name is None else [name], allowed)
    check_saves(parsed.save)


def check_saves(names: list[str], allowed: tuple[str, ...] = _SUFFIXES) -> None:
    """Raise OptionError for a file that a report cannot be saved to."""
    for name in names:
        if not name.lower().endswith(allowed):
            raise OptionError(
                "the suffix of the file name must give the form of the report",
                expected=" or ".join(allowed),
                found=repr(name),
            )
        if not Path(name).absolute().parent.is_dir():
            raise OptionError("the folder of this file does not exist", found=repr(name))


def _old_report(name: str) -> Report:
    if not Path(name).is_file():
        raise OptionError(
            f"there is no file {name}{near_file(name)}", expected="a saved report, as JSON"
        )
    try:
        return Report.from_json(Path(name).read_text(encoding="utf-8"))
    except (ValueError, KeyError, TypeError) as error:
        raise OptionError(
            f"{name} is not a saved report",
            expected="a file that explain --json wrote",
            found=str(error),
        ) from error


def _beyond_limits(parsed: argparse.Namespace, report: Report) -> int:
    """1 if there are more breaks or recompiles than allowed, else 0. Without an option there is no
    limit."""
    if parsed.max_breaks is None and parsed.max_recompiles is None:
        return 0
    most = [sys.maxsize if n is None else n for n in (parsed.max_breaks, parsed.max_recompiles)]
    try:
        report.assert_clean(max_breaks=most[0], max_recompiles=most[1])
    except NotClean as error:
        print(f"graftjit: {str(error).partition(chr(10))[0]}", file=sys.stderr)
        return 1
    return 0
