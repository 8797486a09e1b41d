"""A small kernel for tests of the store: its text, how it is built and called, and the events of a block."""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
from pathlib import Path

from graftjit.runtime.process.hardware import find_compiler
from graftjit.runtime.process.session import SESSION

SOURCE = 'extern "C" int answer() { return 42; }'


def build(source: str, target: Path) -> None:
    compiler = find_compiler()
    assert compiler is not None
    command = [
        *compiler.command,
        "-x",
        "c++",
        "-shared",
        "-fPIC",
        "-nostdlib",
        "-",
        "-o",
        str(target),
    ]
    subprocess.run(command, input=source, text=True, check=True, capture_output=True)


def no_build(source: str, target: Path) -> None:
    raise AssertionError("the kernel should have come from the store")


def call(library, symbol: str = "answer") -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int)(library.addresses[symbol])()


@contextlib.contextmanager
def recorded():
    """The events emitted within the block."""
    key = compile("0", "<key>", "eval")
    found: list = []
    with SESSION.working_for(key, "test"):
        yield found
    found.extend(SESSION.log.of([key]))
