"""Compiler flags of every kernel.

`codegen.build.cxx` imports it, and `setup.py` runs it on its own before there is a package: this
file imports nothing of graftjit.
"""

import platform
import zlib
from pathlib import Path

# -ffp-contract=off: a product and a sum are rounded twice, as in eager; math.h calls fma by name.
# Never -ffast-math: it flushes denormals for the whole process and removes nan checks.
FLAGS = (
    "-O3", "-std=c++20", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-fwrapv",
    "-fno-exceptions", "-fno-rtti", "-fno-stack-protector", "-fno-asynchronous-unwind-tables",
    "-fno-semantic-interposition", "-fvisibility=default", "-shared", "-fPIC",
    "-w", "-Wno-psabi", "-x", "c++",
)  # fmt: skip

# Kernels that are compiled with the package need x86-64-v4; they run on processors with all its
# features.
READY_FLAGS = (*FLAGS, "-fopenmp", "-march=x86-64-v4")
READY_NEEDS = frozenset((
    "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma", "f16c", "bmi1",
    "bmi2", "movbe", "abm", "popcnt",
))  # fmt: skip


def ready_here() -> bool:
    """Whether the package has compiled kernels for this kind of machine."""
    return platform.system() == "Linux" and platform.machine() in ("x86_64", "AMD64")


def text_of(file: str) -> str:
    """The text of a fixed kernel, after the text that such kernels share."""
    folder = Path(__file__).parent.parent / "kernels"
    return "".join((folder / name).read_text(encoding="utf-8") for name in ("common.h", file))


def mark(text: str) -> int:
    """A checksum of the text and the flags of a kernel that is compiled with the package."""
    return zlib.crc32("\n".join((text, *READY_FLAGS)).encode())
