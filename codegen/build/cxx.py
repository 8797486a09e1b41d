"""From C++ text to a loaded library: flags, the compiler's run, the kernel store.

`codegen.backend` calls it with the unit of one graph. The store (in memory or on disk) has the
library of identical text for the same compiler, flags and processor; then nothing is compiled.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from ...runtime.errors import BuildError
from ...runtime.process import hardware
from ...runtime.process.session import SESSION
from ...runtime.store import kernel_file
from ...runtime.store.store import BUILD_PREFIX, Library
from ...runtime.version import VERSION
from . import translation_units
from .flags import FLAGS

# the number of builds of this process so far
_BUILDS = itertools.count()


def vector_bytes() -> int:
    """Bytes of a vector register: 64, 32 or 16."""
    return max(hardware.cpu().vector_bits // 8, 16)


def machine_flags() -> tuple[str, ...]:
    """The flags that make the compiler use this processor."""
    machine = hardware.cpu().machine
    if machine in ("x86_64", "AMD64"):
        # The vectors of a kernel are as wide as registers. GCC prefers 256 bits for many processors
        # that have 512, and then moves lanes of such a vector one by one.
        return ("-march=native", f"-mprefer-vector-width={8 * vector_bytes()}")
    return ("-mcpu=native",) if machine in ("aarch64", "arm64") else ()


def flags_for(source: str) -> tuple[str, ...]:
    """All compiler flags for the text of a kernel."""
    parallel = ("-fopenmp",) if "#pragma omp" in source else ()
    return (*FLAGS, *parallel, *machine_flags())


def link_flags(compiler: hardware.Compiler) -> tuple[str, ...]:
    """Linker flags that leave out the start-up files and the libraries of C and C++, which each
    process has already loaded.

    They save a fifth of the time of a small build. libm is named: its functions have versions, and
    without its name the linker takes the oldest version. Empty on systems where these libraries may
    have other names. If a link with these flags fails, `_compile` links without them; the library
    then does the same.
    """
    if compiler.kind != "gcc" or not _has_gnu_libc():
        return ()
    return ("-nostdlib", "-l:libm.so.6", "-lgcc")


def _has_gnu_libc() -> bool:
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (AttributeError, ValueError, OSError):  # another system
        return False


class NotBuilt(Exception):
    """The library is in no store, and the caller did not allow a build."""


def load(
    source: str,
    symbols: Sequence[str],
    name: str = "kernel",
    covers: Sequence[str] = (),
    stored: bool = False,
) -> Library:
    """The library of this source.

    Raises BuildError if there is no compiler or it fails, NotBuilt if the library would have to be
    built and `stored` forbids it.
    """
    compiler = hardware.find_compiler()
    flags = flags_for(source)

    def build(text: str, target: Path) -> None:
        if stored:
            raise NotBuilt
        _compile(text, target)

    return SESSION.store.load(
        source, symbols, build,
        identity=(*flags, f"graftjit {VERSION}", f"torch {torch.__version__}",
                  *hardware.compiler_environment()),
        machine=hardware.cpu().identity,
        compiler="none" if compiler is None else compiler.identity,
        name=name, covers=tuple(covers),
    )  # fmt: skip


def once(source: str, symbols: Sequence[str]) -> dict[str, int]:
    """The addresses of these symbols in a library that is built now and stays out of the store, for
    a measurement.

    The library stays loaded. Raises BuildError or OSError.
    """
    root = next(SESSION.store.scratch_roots())
    with tempfile.TemporaryDirectory(prefix=BUILD_PREFIX, dir=root) as folder:
        target = Path(folder) / "kernel.so"
        _compile(source, target)
        return kernel_file.open_library(target.read_bytes(), symbols, "measured")[1]


def _compile(text: str, target: Path) -> None:
    compiler = hardware.find_compiler()
    if compiler is None:
        raise BuildError("no C++ compiler was found", todo="install g++ or clang++", code="FB302")
    flags, link = [*compiler.command, *flags_for(text)], link_flags(compiler)
    # Many processes have one small graph: its kernels are compiled and linked in one run.
    alone = next(_BUILDS) == 0 and translation_units.is_small(text)
    if not alone and _linked(text, flags, link, target):
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


def _linked(text: str, flags: list[str], link: Sequence[str], target: Path) -> bool:
    """Whether the library was linked from what is new, in parts, and what is known."""
    # loaded at first use: not every process compiles
    from .known_kernels import KNOWN

    unit = KNOWN.unit(text, flags)
    if not unit.names:  # none of graftjit's kernels
        return False
    parts = translation_units.parts(unit.text, translation_units.processors()) if unit.text else []
    exports = [*link, *unit.exports()]
    made = translation_units.compile_parts(parts, flags, exports, target, unit.objects)
    if made is not None:
        KNOWN.keep(zip(parts, made, strict=True))
    return made is not None


def _run(command: Sequence[str], text: str, target: Path) -> subprocess.CompletedProcess[str]:
    running = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": str(target.parent)}, start_new_session=True,
    )  # fmt: skip
    try:
        out, err = running.communicate(text, timeout=translation_units.TIMEOUT)
    except subprocess.TimeoutExpired:
        raise BuildError(
            f"the compiler did not finish within {translation_units.TIMEOUT:.0f} seconds",
            todo="run `python -m graftjit doctor`, or set CXX to another compiler",
        ) from None
    finally:
        translation_units.end(running)
    return subprocess.CompletedProcess(command, running.returncode, out, err)
