"""From C++ text to a loaded library: flags, the compiler's run, the kernel store.

Called by `codegen.backend` with the unit of one graph. Identical text (with the same compiler, flags and
processor) is found in the store, in memory or on disk, and nothing is compiled.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from ...runtime.errors import BuildError
from ...runtime.process import hardware as device
from ...runtime.process.session import SESSION
from ...runtime.store import kernel_file
from ...runtime.store.store import BUILD_PREFIX, Library
from ...runtime.version import VERSION
from . import translation_units as units
from .flags import FLAGS


def vector_bytes() -> int:
    """Bytes of a vector register: 64, 32 or 16."""
    return max(device.cpu().vector_bits // 8, 16)


def machine_flags() -> tuple[str, ...]:
    """What makes the compiler use this processor."""
    machine = device.cpu().machine
    if machine in ("x86_64", "AMD64"):
        return ("-march=native",)
    return ("-mcpu=native",) if machine in ("aarch64", "arm64") else ()


def flags_for(source: str) -> tuple[str, ...]:
    """All that the compiler is told of a kernel's text."""
    parallel = ("-fopenmp",) if "#pragma omp" in source else ()
    return (*FLAGS, *parallel, *machine_flags())


def link_flags(compiler: device.Compiler) -> tuple[str, ...]:
    """What spares the linker the start-up files and the libraries that each process has anyway (C++'s, C's): a fifth
    of a small build. libm stays named: its functions have versions, and who names none gets the oldest. Empty where
    these libraries may have other names. Where that fails, all are named: the library does the same."""
    if compiler.kind != "gcc" or not _has_gnu_libc():
        return ()
    return ("-nostdlib", "-l:libm.so.6", "-lgcc")


def _has_gnu_libc() -> bool:
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (AttributeError, ValueError, OSError):  # another system
        return False


class NotBuilt(Exception):
    """The library is in no store, and was not to be built."""


def load(
    source: str,
    symbols: Sequence[str],
    name: str = "kernel",
    covers: Sequence[str] = (),
    stored: bool = False,
) -> Library:
    """The library of this source. Raises BuildError where there is no compiler or it fails, NotBuilt where it would
    have to be built and `stored` says that it shall not."""
    compiler = device.find_compiler()
    flags = flags_for(source)

    def build(text: str, target: Path) -> None:
        if stored:
            raise NotBuilt
        _compile(text, target)

    return SESSION.store.load(
        source, symbols, build,
        identity=(*flags, f"graftjit {VERSION}", f"torch {torch.__version__}",
                  *device.compiler_environment()),
        machine=device.cpu().identity,
        compiler="none" if compiler is None else compiler.identity,
        name=name, covers=tuple(covers),
    )  # fmt: skip


def once(source: str, symbols: Sequence[str]) -> dict[str, int]:
    """The addresses of these symbols in a library that is built now and kept in no store: for a measurement. It
    stays loaded. Raises BuildError or OSError."""
    root = next(SESSION.store.scratch_roots())
    with tempfile.TemporaryDirectory(prefix=BUILD_PREFIX, dir=root) as folder:
        target = Path(folder) / "kernel.so"
        _compile(source, target)
        return kernel_file.open_library(target.read_bytes(), symbols, "measured")[1]


def _compile(text: str, target: Path) -> None:
    compiler = device.find_compiler()
    if compiler is None:
        raise BuildError("no C++ compiler was found", todo="install g++ or clang++", code="FB302")
    flags, link = [*compiler.command, *flags_for(text)], link_flags(compiler)
    parts = units.parts(text, units.processors())
    if len(parts) > 1 and units.compile_parts(parts, flags, link, target):
        return
    command = [*flags, "-o", str(target), "-"]
    done = _run([*command, *link], text, target)
    if done.returncode and link:
        done = _run(command, text, target)
    if done.returncode:
        raise BuildError(
            "the compiler rejected a kernel",
            found=done.stderr.strip()[-2000:],
            todo="please report it, with the kernel's source",
        )


def _run(command: Sequence[str], text: str, target: Path) -> subprocess.CompletedProcess[str]:
    running = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": str(target.parent)}, start_new_session=True,
    )  # fmt: skip
    try:
        out, err = running.communicate(text, timeout=units.TIMEOUT)
    except subprocess.TimeoutExpired:
        raise BuildError(
            f"the compiler was not done after {units.TIMEOUT:.0f} seconds",
            todo="run `python -m graftjit doctor`, or name another compiler by CXX",
        ) from None
    finally:
        units.end(running)
    return subprocess.CompletedProcess(command, running.returncode, out, err)
