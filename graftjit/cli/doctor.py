"""`python -m graftjit doctor`: the state of the installation, what is missing, what to do."""

from __future__ import annotations

import argparse

NAME = "doctor"
HELP = "versions, compiler, processor, GPU, kernel store; what is missing and how to fix it"
# The command must work even if the rest of graftjit cannot be imported.
NEEDS_ALL = False
EXAMPLES = """\
examples:
  python -m graftjit doctor
  python -m graftjit doctor --json | python -m json.tool

exit status: 0 all is well; 1 something needs a fix (the rows marked FIX, each with what to do)
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(parsed: argparse.Namespace) -> int:
    from ..codegen.triton import probe
    from ..runtime import doctor

    return doctor.main(as_json=parsed.json, more=[probe.kernels])
