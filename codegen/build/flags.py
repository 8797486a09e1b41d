"""Compiler flags of every kernel.

`codegen.build.cxx` imports it, and `setup.py` runs it on its own before there is a package: this
file imports nothing of graftjit.
"""

import platform
import zlib
from pathlib import Path
from typing import NamedTuple

# -ffp-contract=off: a product and a sum are rounded twice, as in eager; math.h calls fma by name.
# Never -ffast-math: it flushes denormals for the whole process and removes nan checks.
FLAGS = (
    "-O3", "-std=c++20", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-fwrapv",
    "-fno-exceptions", "-fno-rtti", "-fno-stack-protector", "-fno-asynchronous-unwind-tables",
    "-fno-semantic-interposition", "-fvisibility=default", "-shared", "-fPIC",
    "-w", "-Wno-psabi", "-x", "c++",
)  # fmt: skip

AVX2 = frozenset(("avx2", "fma", "f16c", "bmi1", "bmi2", "movbe", "abm", "popcnt"))
AVX512 = frozenset(("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"))


class Ready(NamedTuple):
    """A library of kernels, compiled with the package, for processors with all of `needs`."""

    name: str
    flags: tuple[str, ...]
    needs: frozenset[str]
    kernels: tuple[str, ...]


# the first one whose needs a processor meets is the one that it uses
READY = (
    Ready(
        "_ready", (*FLAGS, "-fopenmp", "-march=x86-64-v4"), AVX2 | AVX512,
        ("matmul_f32", "matmul_bf16", "convolution", "depthwise"),
    ),
    Ready("_ready_avx2", (*FLAGS, "-fopenmp", "-march=x86-64-v3"), AVX2,
          ("matmul_f32", "convolution", "depthwise")),
)  # fmt: skip


def ready_here() -> bool:
    """Whether the package has compiled kernels for this kind of machine."""
    return platform.system() == "Linux" and platform.machine() in ("x86_64", "AMD64")


def text_of(file: str) -> str:
    """The text of a fixed kernel, after the text that such kernels share."""
    folder = Path(__file__).parent.parent / "kernels"
    files = ("common.h", "lanes.h", file)
    return "".join((folder / name).read_text(encoding="utf-8") for name in files)


def mark(text: str, ready: Ready) -> int:
    """A checksum of the text and the flags of a kernel that is compiled with the package."""
    return zlib.crc32("\n".join((text, *ready.flags)).encode())
