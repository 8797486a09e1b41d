"""What the compiler is told of every kernel.

Read by `codegen.build.cxx`, and by `setup.py` on its own, before there is a package: this file imports nothing of ours.
"""

import platform
import zlib
from pathlib import Path

# -ffp-contract=off: a product and a sum stay two roundings, as in eager; the math text calls fma by name.
# Never -ffast-math: it flushes denormals for the whole process and takes nan checks away.
FLAGS = (
    "-O3", "-std=c++20", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-fwrapv",
    "-fno-exceptions", "-fno-rtti", "-fno-stack-protector", "-fno-asynchronous-unwind-tables",
    "-fno-semantic-interposition", "-fvisibility=default", "-shared", "-fPIC",
    "-w", "-Wno-psabi", "-x", "c++",
)  # fmt: skip

# Kernels that are compiled with the package are made for the fourth level of x86-64, and run where a processor has all of it.
READY_FLAGS = (*FLAGS, "-fopenmp", "-march=x86-64-v4")
READY_NEEDS = frozenset((
    "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma", "f16c", "bmi1",
    "bmi2", "movbe", "abm", "popcnt",
))  # fmt: skip


def ready_here() -> bool:
    """Whether this is a kind of machine that kernels are compiled for with the package."""
    return platform.system() == "Linux" and platform.machine() in ("x86_64", "AMD64")


def text_of(file: str) -> str:
    """The text of a kernel that is written once, with what such kernels share before it."""
    folder = Path(__file__).parent.parent / "kernels"
    return "".join((folder / name).read_text(encoding="utf-8") for name in ("common.h", file))


def mark(text: str) -> int:
    """A checksum of a kernel that is compiled with the package, and of how."""
    return zlib.crc32("\n".join((text, *READY_FLAGS)).encode())
