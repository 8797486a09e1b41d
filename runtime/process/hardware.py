"""Facts about the machine: C++ compiler, processor, OpenMP runtime, GPU.

In: the file system, /proc, torch. Out: small frozen records, each found once a process and without running
another program, so that they may be asked on the way to a first call (`compiler_version` alone runs one, for
`doctor`). Codegen chooses flags by them, the kernel store names kernels by them, `doctor` prints them.
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

COMPILER_NAMES = ("g++", "clang++", "c++")


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler: the words that start its command line, its real file, and "gcc" or "clang".

    `identity` changes when the compiler is replaced: path, size and time of the file.
    """

    command: tuple[str, ...]
    path: str
    kind: str
    identity: str


def find_compiler() -> Compiler | None:
    """CXX if it is set and found, else the first of g++, clang++, c++ on PATH; None if there is none."""
    from .session import SESSION

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


# What a compiler reads beside its command line.
_READ_BY_COMPILERS = (
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH",
    "COMPILER_PATH",
    "GCC_EXEC_PREFIX",
)


def compiler_environment() -> tuple[str, ...]:
    """The variables that change what a compiler makes, as far as they are set."""
    return tuple(f"{name}={os.environ[name]}" for name in _READ_BY_COMPILERS if name in os.environ)


def compiler_version(compiler: Compiler) -> str:
    """The first line of `--version`. Runs the compiler; for `doctor` only."""
    done = subprocess.run(
        [*compiler.command, "--version"], capture_output=True, text=True, timeout=30, check=False
    )
    lines = (done.stdout or done.stderr).splitlines()
    return lines[0] if lines else f"{compiler.path} (says nothing, exit status {done.returncode})"


@dataclass(frozen=True, slots=True)
class Cpu:
    """The processor. `isa` is the widest vector set that kernels may use, `vector_bits` its width."""

    machine: str
    model: str
    features: frozenset[str]
    isa: str
    vector_bits: int

    @property
    def identity(self) -> str:
        """Equal for processors that run each other's `-march=native` kernels."""
        text = " ".join([self.machine, self.model, *sorted(self.features)])
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


# (features that must all be there, name, bits), widest first.
_ISAS: tuple[tuple[frozenset[str], str, int], ...] = (
    (frozenset(("avx512f", "avx512bw", "avx512dq", "avx512vl")), "avx512", 512),
    (frozenset(("avx2", "fma", "f16c")), "avx2", 256),
    (frozenset(("sve2",)), "sve2", 128),
    (frozenset(("asimd",)), "neon", 128),
    (frozenset(("sse2",)), "sse2", 128),
)


@functools.lru_cache(maxsize=1)
def cpu() -> Cpu:
    """Facts of the first processor in /proc/cpuinfo; where there is none, by the machine's name."""
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
def narrow_mkl() -> bool:
    """Whether torch's MKL leaves half of this processor's vectors unused: it takes AVX-512 on Intel's only."""
    vendor = _first_processor().get("vendor_id", "GenuineIntel")
    wide = cpu().isa == "avx512" and vendor != "GenuineIntel"
    return wide and bool(torch.backends.mkl.is_available())


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
    """The OpenMP runtimes mapped into this process; more than one means two thread pools."""
    try:
        text = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    paths = {line.split(None, 5)[5] for line in text.splitlines() if len(line.split(None, 5)) == 6}
    names = ("libgomp", "libiomp", "libomp")
    return tuple(sorted(p for p in paths if os.path.basename(p).startswith(names)))


@dataclass(frozen=True, slots=True)
class Gpu:
    """A CUDA device: name, compute capability, bytes of memory, how many multiprocessors."""

    name: str
    capability: tuple[int, int]
    memory: int
    multiprocessors: int = 0


def gpus() -> tuple[Gpu, ...]:
    """The CUDA devices that torch can use; initialises CUDA if it is there."""
    if not torch.cuda.is_available():
        return ()
    return tuple(gpu(torch.device("cuda", i)) for i in range(torch.cuda.device_count()))


def gpu(one: torch.device) -> Gpu:
    """The facts of a CUDA device."""
    facts = torch.cuda.get_device_properties(one)
    capability = facts.major, facts.minor
    return Gpu(facts.name, capability, facts.total_memory, facts.multi_processor_count)


OLDEST_TRITON = (3, 6)
LEAST_CAPABILITY = (8, 0)  # bfloat16 in registers, and what triton is tested on


@functools.lru_cache(maxsize=1)
def triton_version() -> str:
    """Of the triton that is installed; "" where there is none. Does not import it."""
    from importlib import metadata

    for name in ("triton", "pytorch-triton"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ""
