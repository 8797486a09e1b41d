"""Facts about the machine: C++ compiler, processor, OpenMP runtime, GPU.

In: the file system, /proc, torch. Out: small frozen records. Each is found once per process,
without running another program, since the first call needs them (only `compiler_version` runs one,
for `doctor`). Codegen chooses flags by them, the kernel store names kernels by them, `doctor`
prints them.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
from pathlib import Path

import torch

from ...ir.dataclass import dataclass
from .session import SESSION

COMPILER_NAMES = ("g++", "clang++", "c++")


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler: the start of its command line, its real path, and "gcc" or "clang".

    `identity` (path, size and time of the file) changes when the compiler is replaced.
    """

    command: tuple[str, ...]
    path: str
    kind: str
    identity: str


def find_compiler() -> Compiler | None:
    """The compiler of CXX if it exists, else the first of g++, clang++, c++ on PATH, else None."""
    return _find_compiler(SESSION.options.cxx, os.environ.get("PATH", os.defpath))


@functools.lru_cache(maxsize=8)
def _find_compiler(cxx: str | None, path: str) -> Compiler | None:
    candidates: list[tuple[str, ...]] = [(name,) for name in COMPILER_NAMES]
    if cxx:
        candidates.insert(0, tuple(shlex.split(cxx)))
    for command in candidates:
        found = shutil.which(command[0], path=path)
        if found is not None:
            return _describe((found, *command[1:]))
    return None


def _describe(command: tuple[str, ...]) -> Compiler:
    real = os.path.realpath(command[0])
    facts = os.stat(real)
    kind = "clang" if "clang" in os.path.basename(real) else "gcc"
    identity = f"{' '.join(command)}|{real}|{facts.st_size}|{facts.st_mtime_ns}"
    return Compiler(command, real, kind, identity)


# Environment variables that compilers read.
_READ_BY_COMPILERS = (
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH",
    "COMPILER_PATH",
    "GCC_EXEC_PREFIX",
)


def compiler_environment() -> tuple[str, ...]:
    """The set variables that change the output of a compiler."""
    return tuple(f"{name}={os.environ[name]}" for name in _READ_BY_COMPILERS if name in os.environ)


def compiler_version(compiler: Compiler) -> str:
    """The first line of `--version`. Runs the compiler; for `doctor` only."""
    done = subprocess.run(
        [*compiler.command, "--version"], capture_output=True, text=True, timeout=30, check=False
    )
    lines = (done.stdout or done.stderr).splitlines()
    return lines[0] if lines else f"{compiler.path} (prints nothing, exit status {done.returncode})"


# instruction sets that the fixed kernels are written for, see codegen/kernels
VECTORS = ("avx512", "avx2")


@dataclass(frozen=True, slots=True)
class Cpu:
    """The processor. `isa` is the widest vector instruction set for kernels, `vector_bits` its
    width."""

    machine: str
    model: str
    features: frozenset[str]
    isa: str
    vector_bits: int

    @property
    def identity(self) -> str:
        """Equal for processors that can run each other's `-march=native` kernels."""
        text = " ".join([self.machine, self.model, *sorted(self.features)])
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


# (features that are all required, name, bits), widest first.
_ISAS: tuple[tuple[frozenset[str], str, int], ...] = (
    (frozenset(("avx512f", "avx512bw", "avx512dq", "avx512vl")), "avx512", 512),
    (frozenset(("avx2", "fma", "f16c")), "avx2", 256),
    (frozenset(("sve2",)), "sve2", 128),
    (frozenset(("asimd",)), "neon", 128),
    (frozenset(("sse2",)), "sse2", 128),
)


@functools.lru_cache(maxsize=1)
def cpu() -> Cpu:
    """The first processor in /proc/cpuinfo; without that file, by the name of the machine."""
    facts = _first_processor()
    words = facts.get("flags") or facts.get("Features") or ""
    features = frozenset(words.split())
    machine = platform.machine()
    if not features:
        features = frozenset(
            {"arm64": ["asimd"], "aarch64": ["asimd"], "x86_64": ["sse2"]}.get(machine, [])
        )
    model = facts.get("model name") or facts.get("CPU part") or platform.processor() or machine
    for needed, name, bits in _ISAS:
        if needed <= features:
            return Cpu(machine, model, features, name, bits)
    return Cpu(machine, model, features, "scalar", 64)


@functools.lru_cache(maxsize=1)
def slow_mkl() -> bool:
    """Whether torch's MKL multiplies float32 matrices more slowly than graftjit's kernel does: on
    other processors than Intel's, MKL uses no AVX-512, and fetches a weight that is not in a cache
    too late.
    """
    vendor = _first_processor().get("vendor_id", "GenuineIntel")
    other = cpu().isa in VECTORS and vendor != "GenuineIntel"
    return other and bool(torch.backends.mkl.is_available())


def _first_processor() -> dict[str, str]:
    facts: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if not line.strip() and facts:
                    break
                name, _colon, value = line.partition(":")
                facts[name.strip()] = value.strip()
    except OSError:  # not Linux
        return {}
    return facts


def openmp_runtimes() -> tuple[str, ...]:
    """The OpenMP runtimes loaded into this process; more than one means two thread pools."""
    try:
        text = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    paths = {line.split(None, 5)[5] for line in text.splitlines() if len(line.split(None, 5)) == 6}
    names = ("libgomp", "libiomp", "libomp")
    return tuple(sorted(p for p in paths if os.path.basename(p).startswith(names)))


@dataclass(frozen=True, slots=True)
class Gpu:
    """A CUDA device: name, compute capability, memory in bytes, number of multiprocessors."""

    name: str
    capability: tuple[int, int]
    memory: int
    multiprocessors: int = 0


def gpus() -> tuple[Gpu, ...]:
    """The CUDA devices that torch can use. Initialises CUDA if it is available."""
    if not torch.cuda.is_available():
        return ()
    return tuple(gpu(torch.device("cuda", i)) for i in range(torch.cuda.device_count()))


def gpu(one: torch.device) -> Gpu:
    """The facts of a CUDA device."""
    facts = torch.cuda.get_device_properties(one)
    capability = facts.major, facts.minor
    return Gpu(facts.name, capability, facts.total_memory, facts.multi_processor_count)


OLDEST_TRITON = (3, 6)
LEAST_CAPABILITY = (8, 0)  # supports bfloat16 in registers, and triton is tested on it


@functools.lru_cache(maxsize=1)
def triton_version() -> str:
    """The version of the installed triton, or "". Does not import it."""
    from importlib import metadata

    for name in ("triton", "pytorch-triton"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ""
