"""`python -m graftjit bench`: placeholder."""

from __future__ import annotations

import argparse

NAME = "bench"
HELP = "time what a script's jitted functions do beside plain Python"
NEEDS_ALL = True
EXAMPLES = "examples: python -m graftjit bench\nexit status: 0"


def add(parser: argparse.ArgumentParser) -> None:
    pass


def run(parsed: argparse.Namespace) -> int:
    return 2
