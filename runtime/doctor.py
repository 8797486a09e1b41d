"""doctor: the state of the installation, what is missing, and what to do.

In: the machine. Out: a list of `Check`s, as text or JSON. Probes are independent: a failing probe
is one row and does not stop the others. `python -m graftjit doctor` calls `main`, whose exit status
is 1 if something needs a fix.
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from ..ir.dataclass import dataclass
from .cuda import driver
from .errors import GraftError
from .process import hardware
from .process.options import VARIABLES, read_environment, unknown_variables
from .process.python_version import require_supported
from .process.session import SESSION

OLDEST_TORCH = "2.11"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. `state`: "ok", "note" (slower or missing, but no fault) or "fix" (needs a fix);
    `todo` for the last two."""

    name: str
    state: str
    found: str
    todo: str = ""


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _python() -> Iterator[Check]:
    found = f"{platform.python_implementation()} {platform.python_version()} ({sys.executable})"
    try:
        require_supported()
    except GraftError as error:
        yield Check("python", "fix", found, error.todo)
        return
    yield Check("python", "ok", found)


def _packages() -> Iterator[Check]:
    yield Check("graftjit", "ok", _version("graftjit") or "not installed as a package")
    version = str(torch.__version__)
    if torch.__version__ >= OLDEST_TORCH:
        yield Check(
            "torch", "ok", f"{version}, cpu capability {torch.backends.cpu.get_cpu_capability()}"
        )
    else:
        yield Check("torch", "fix", version, f"install torch {OLDEST_TORCH} or newer")
    for package in ("bytecode", "numpy"):
        found = _version(package)
        if found is None:
            yield Check(package, "fix", "missing", f"pip install {package}")
        else:
            yield Check(package, "ok", found)
    found = hardware.triton_version()
    oldest = ".".join(map(str, hardware.OLDEST_TRITON))
    if not found:
        yield Check("triton", "note", "missing: no GPU kernels", "pip install 'graftjit[gpu]'")
    elif tuple(map(int, re.findall(r"\d+", found)[:2])) < hardware.OLDEST_TRITON:
        yield Check(
            "triton", "note", f"{found}: too old, no GPU kernels", f"pip install 'triton>={oldest}'"
        )
    else:
        yield Check("triton", "ok", found)


def _native() -> Iterator[Check]:
    try:
        native = importlib.import_module("._native", __package__)
    except ImportError as error:
        yield Check(
            "native part",
            "fix",
            str(error),
            "pip install --force-reinstall graftjit (needs a"
            " C++ compiler), or in a checkout: python setup.py build_ext --inplace",
        )
        return
    yield Check("native part", "ok", Path(native.__file__ or "?").name)
    routes = getattr(native, "tensor_routes", None)
    if routes is None:
        yield Check(
            "tensor routes", "fix", "the native part does not have them", "rebuild the extension"
        )
        return
    for name, route in dict(routes()).items():
        slow = any(word in str(route).lower() for word in ("fallback", "python", "missing", "none"))
        todo = "slower than necessary: please report it with your torch version" if slow else ""
        yield Check(f"route: {name}", "note" if slow else "ok", str(route), todo)


_PROBE = """
extern "C" int probe(int n) {
    int sum = 0;
    #pragma omp parallel for reduction(+ : sum)
    for (int i = 0; i < n; ++i) sum += i;
    return sum;
}
"""


def _compiler() -> Iterator[Check]:
    compiler = hardware.find_compiler()
    if compiler is None:
        yield Check(
            "compiler",
            "fix",
            "none of CXX, " + ", ".join(hardware.COMPILER_NAMES) + " was found;"
            " programs run as ATen steps",
            "install g++ (apt install g++) or clang++, or set CXX",
        )
        return
    yield Check("compiler", "ok", f"{hardware.compiler_version(compiler)} ({compiler.path})")
    with tempfile.TemporaryDirectory(prefix="graftjit-doctor-") as folder:
        target = Path(folder) / "probe.so"
        command = [
            *compiler.command,
            "-x",
            "c++",
            "-O2",
            "-fopenmp",
            "-shared",
            "-fPIC",
            "-",
            "-o",
            target,
        ]
        start = time.perf_counter()
        done = subprocess.run(
            command,  # type: ignore[arg-type]
            input=_PROBE,
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.perf_counter() - start
        if done.returncode != 0:
            yield Check(
                "test kernel",
                "fix",
                (done.stderr.strip().splitlines() or ["failed"])[-1],
                "the compiler must build shared libraries with -fopenmp",
            )
            return
        result = ctypes.CDLL(str(target)).probe(10)
    if result == 45:
        yield Check(
            "test kernel",
            "ok",
            f"built with OpenMP in {seconds * 1e3:.0f} ms, loaded, result right",
        )
    else:
        yield Check(
            "test kernel", "fix", f"computed {result} instead of 45", "try another compiler"
        )


def _processor() -> Iterator[Check]:
    cpu = hardware.cpu()
    yield Check("processor", "ok", f"{cpu.model} ({cpu.machine})")
    state = "ok" if cpu.isa != "scalar" else "note"
    yield Check("vector set", state, f"{cpu.isa}, {cpu.vector_bits} bits")
    runtimes = hardware.openmp_runtimes()
    threads = f"{torch.get_num_threads()} threads"
    if len(runtimes) > 1:
        yield Check(
            "OpenMP",
            "note",
            f"{threads}; two runtimes are loaded: {', '.join(runtimes)}",
            "two thread pools compete: import torch before packages that load another OpenMP runtime",
        )
    elif runtimes:
        yield Check("OpenMP", "ok", f"{threads}, {runtimes[0]}")
    else:
        yield Check("OpenMP", "note", f"{threads}; no runtime seen in this process")


def _gpu() -> Iterator[Check]:
    found = hardware.gpus()
    for gpu in found:
        capability = ".".join(map(str, gpu.capability))
        row = f"{gpu.name}, sm {capability}, {gpu.memory / 2**30:.0f} GiB"
        if gpu.capability >= hardware.LEAST_CAPABILITY:
            yield Check("GPU", "ok", row)
        else:
            yield Check(
                "GPU", "note", f"{row}: too old for kernels, its programs run as ATen steps"
            )
    if found:
        why = driver.available()
        version = driver.DRIVER.version_text()
        if why:
            yield Check("GPU driver", "fix", why, "install a driver of CUDA 12.0 or newer")
        else:
            yield Check("GPU driver", "ok", f"for CUDA {version}")
    else:
        built = torch.version.cuda
        yield Check(
            "GPU", "note", "none" + ("" if built else " (this torch is built without CUDA)")
        )


def _store() -> Iterator[Check]:
    stats = SESSION.store.stats()
    found = (
        f"{stats.folder}: {stats.files} kernel libraries, {stats.cubins} GPU kernels,"
        f" {stats.bytes / 2**20:.1f} MiB of at most {stats.limit / 2**20:.0f} MiB"
    )
    if stats.writable:
        yield Check("kernel store", "ok", found)
    else:
        yield Check(
            "kernel store",
            "fix",
            f"{stats.folder}: {stats.unusable}; kernels are kept for one process only",
            "set GRAFTJIT_CACHE_DIR to a folder of your own that can be written",
        )


def _environment() -> Iterator[Check]:
    try:
        read_environment()
    except GraftError as error:
        yield Check("environment", "fix", f"{error.what}: {error.found}", error.todo)
    shown = [v for v in VARIABLES if os.environ.get(v.name)]
    for variable in shown:
        yield Check(variable.name, "ok", f"{os.environ[variable.name]} ({variable.meaning})")
    if not shown:
        yield Check(
            "environment", "ok", "nothing set; known: " + ", ".join(v.name for v in VARIABLES)
        )
    for name, hint in unknown_variables():
        yield Check(name, "note", "not a variable of graftjit", hint or "unset it")


PROBES: tuple[Callable[[], Iterator[Check]], ...] = (
    _python,
    _packages,
    _native,
    _compiler,
    _processor,
    _gpu,
    _store,
    _environment,
)


def doctor(more: Sequence[Callable[[], Iterator[Check]]] = ()) -> list[Check]:
    """All findings; those of `more` probes come last. A failing probe is a finding, too."""
    checks: list[Check] = []
    for probe in (*PROBES, *more):
        try:
            checks.extend(probe())
        # A failure must not hide the other rows.
        except Exception as error:
            name = probe.__name__.strip("_")
            checks.append(
                Check(
                    name,
                    "fix",
                    f"the check itself failed: {type(error).__name__}: {error}",
                    "please report it",
                )
            )
    return checks


_MARKS = {"ok": "ok  ", "note": "note", "fix": "FIX "}


def render(checks: list[Check], width: int = 100) -> str:
    """One line per check, followed by what to do."""
    lines: list[str] = []
    name_width = min(24, max(len(check.name) for check in checks))
    for check in checks:
        head = f"{_MARKS[check.state]}  {check.name:<{name_width}}  "
        rest = " " * len(head)
        lines += textwrap.wrap(head + check.found, width, subsequent_indent=rest)
        if check.todo:
            lines += textwrap.wrap(
                f"-> {check.todo}", width, initial_indent=rest, subsequent_indent=rest + "   "
            )
    bad = sum(check.state == "fix" for check in checks)
    lines += ["", f"{bad} to fix" if bad else "all is well"]
    return "\n".join(lines)


def main(as_json: bool = False, more: Sequence[Callable[[], Iterator[Check]]] = ()) -> int:
    """Print the findings. Returns 1 if one of them needs a fix, else 0."""
    checks = doctor(more)
    if as_json:
        print(json.dumps([dataclasses.asdict(check) for check in checks], indent=2))
    else:
        print(render(checks))
    return int(any(check.state == "fix" for check in checks))
