"""The command line: `python -m graftjit demo | explain SCRIPT | doctor | cache | codes`.

In: arguments. Out: text on stdout, and an exit status: 0 it went well, 1 it did not (the demo found a
difference, the script failed, `doctor` found something to mend), 2 the command was not understood.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from .runtime.errors import GraftError, did_you_mean

_EXAMPLES = """\
examples:
  python -m graftjit demo                          handwritten digits: eager, @jit and compile side by side
  python -m graftjit explain train.py              run a script, then say what was compiled and what not
  python -m graftjit explain --save r.html train.py --epochs 1
  python -m graftjit doctor                        versions, compiler, processor, GPU; what is missing
  python -m graftjit cache                         the kernel store: where, how much
  python -m graftjit cache clear
  python -m graftjit cache save kernels.bundle     for another machine: cache load kernels.bundle
  python -m graftjit codes GB104                   what a code in a report means
"""


class _Parser(argparse.ArgumentParser):
    """argparse, with the nearest word when a command or an option is misspelt."""

    words: tuple[str, ...] = ()

    def error(self, message: str) -> NoReturn:
        wrong = [w for w in sys.argv[1:] if w not in self.words and w.lstrip("-")]
        hints = [did_you_mean(w, self.words) for w in wrong]
        hint = next((h for h in hints if h), "")
        self.exit(2, f"{self.prog}: {message}{hint}\nTry '{self.prog} --help'.\n")


def _add_cache(commands: Any) -> None:
    cache = commands.add_parser(
        "cache", help="the kernel store on disk: info, clear, save FILE, load FILE"
    )
    cache.add_argument(
        "action",
        nargs="?",
        choices=("info", "clear", "save", "load"),
        default="info",
        help="info (default); clear: remove every kernel; save, load: a bundle for other machines",
    )
    cache.add_argument("file", nargs="?", help="of save and load")
    cache.add_argument(
        "--digest", default="", help="load: refuse a bundle that is not the one saved with it"
    )
    cache.add_argument("--json", action="store_true", help="as JSON")


def _parser() -> _Parser:
    parser = _Parser(
        prog="python -m graftjit",
        description="A just-in-time compiler for PyTorch programs.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    demo = commands.add_parser(
        "demo", help="handwritten digits: eager, @jit and compile side by side"
    )
    demo.add_argument(
        "--width", type=int, default=None, help="columns of the output (default: terminal)"
    )

    explain = commands.add_parser("explain", help="run a script and report what was compiled")
    explain.add_argument(
        "--save",
        metavar="FILE",
        action="append",
        default=[],
        help="also write the report: .txt, .html or .json; may be given several times",
    )
    explain.add_argument(
        "--graph-mode",
        action="store_true",
        help="as after set_context(mode=GRAPH_MODE): compile every nn.Cell",
    )
    explain.add_argument("script", help="a Python program")
    explain.add_argument("arguments", nargs=argparse.REMAINDER, help="its own arguments")

    doctor = commands.add_parser("doctor", help="versions, compiler, processor, GPU, routes in use")
    doctor.add_argument("--json", action="store_true", help="as JSON")

    _add_cache(commands)

    codes = commands.add_parser("codes", help="the table of break, recompile and error codes")
    codes.add_argument("code", nargs="*", help="only these")
    codes.add_argument(
        "--markdown", action="store_true", help="the whole table, as in docs/codes.md"
    )
    words = dict.fromkeys(commands.choices)
    for name, command in commands.choices.items():
        command.prog = f"python -m graftjit {name}"
        words.update(dict.fromkeys(command._option_string_actions))
        for action in command._actions:
            words.update(dict.fromkeys(action.choices or ()))
    for known in (parser, *commands.choices.values()):
        known.words = tuple(words)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    parsed = _parser().parse_args(arguments)
    try:
        return _COMMANDS[parsed.command](parsed)
    except GraftError as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:  # `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _demo(parsed: argparse.Namespace) -> int:
    from .demo import run

    return run(parsed.width)


def _explain(parsed: argparse.Namespace) -> int:
    from . import GRAPH_MODE, set_context
    from .jit import everything_counted
    from .runtime.errors import OptionError
    from .runtime.report import report_of
    from .runtime.session import SESSION

    script = Path(parsed.script)
    if not script.is_file():
        print(f"python -m graftjit explain: there is no file {parsed.script}", file=sys.stderr)
        return 2
    for path in parsed.save:  # before the script runs, which may take long
        if Path(path).suffix.lower() not in (".txt", ".html", ".htm", ".json"):
            raise OptionError(
                "a report is saved by the suffix of its file name",
                expected=".txt, .html or .json",
                found=repr(path),
            )
    if parsed.graph_mode:
        set_context(mode=GRAPH_MODE)
    with SESSION.log.keeping():
        status, alive = _run_script(script, parsed.arguments)
        report = report_of(script.name, None, everything_counted())
        del alive
    print(report.text())
    for path in parsed.save:
        print(f"saved: {report.save(path)}")
    return status


def _run_script(script: Path, arguments: list[str]) -> tuple[int, dict[str, Any]]:
    """Run it as `python script arguments` would. 0, or 1 if it failed (with its traceback printed); and its
    globals, which keep what it has compiled."""
    alive: dict[str, Any] = {}
    before = sys.argv[:], sys.path[:]
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        alive = runpy.run_path(str(script), run_name="__main__")
    except SystemExit as stop:
        if stop.code not in (None, 0):
            print(f"the script ended with {stop.code!r}", file=sys.stderr)
            return 1, alive
    except Exception:  # the script's own failure: told as Python would, then the report
        traceback.print_exc()
        return 1, alive
    finally:
        sys.argv[:], sys.path[:] = before
        sys.stdout.flush()
    return 0, alive


def _doctor(parsed: argparse.Namespace) -> int:
    from .codegen import gpu_probe
    from .runtime import doctor

    return doctor.main(as_json=parsed.json, more=[gpu_probe.kernels])


def _cache(parsed: argparse.Namespace) -> int:
    from .cache import run

    return run(parsed.action, parsed.file, parsed.digest, parsed.json)


def _codes(parsed: argparse.Namespace) -> int:
    from .runtime import codes

    if parsed.markdown:
        print(codes.generate_docs(), end="")
        return 0
    wanted = [code.upper() for code in parsed.code]
    known = codes.CODES
    for code in wanted:
        if code not in known:
            print(f"there is no code {code}" + did_you_mean(code, known), file=sys.stderr)
            return 2
    for row in [known[code] for code in wanted or known]:
        print(f"{row.id}  {row.title}\n       why:  {row.why}\n       cure: {row.cure}")
    return 0


_COMMANDS = {
    "demo": _demo,
    "explain": _explain,
    "doctor": _doctor,
    "cache": _cache,
    "codes": _codes,
}
