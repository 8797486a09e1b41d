"""`python -m graftjit doctor`: the state of the installation, what is missing, what to do."""

from __future__ import annotations

import argparse

from ..codegen.triton import probe
from ..runtime import doctor


def run(parsed: argparse.Namespace) -> int:
    return doctor.main(as_json=parsed.json, more=[probe.kernels])
