"""Cubins: the kernels of GPUs, compiled and loaded, from this process, from the kernel store, or by
worker processes.

In: kernels as `codegen.triton.renderer` writes them, and an architecture. Out: for each, by its
name, a function handle of the driver and the facts that a launch needs. Equal kernels are compiled
and loaded once. A file of the store is one kernel: a line of JSON with its facts, then the cubin.
Its name has the architecture as its machine and triton as its compiler, so that a bundle's kernels
need no triton. Stored kernels are loaded without triton and without a process. Tests can replace
`COMPILER` and the driver's `load`.
"""

from __future__ import annotations

import json
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.dataclass import dataclass, field
from ...runtime.cuda import driver
from ...runtime.errors import BuildError
from ...runtime.events.events import KernelBuilt
from ...runtime.process.session import SESSION
from ...runtime.store import kernel_file
from ...runtime.store.kernel_file import Name
from ..build import cxx
from . import compile_client
from .compiler import Fault, options_of
from .devices import NotCompiled, error_of

# kernels that stay loaded without a program, for functions that are compiled again and again
KEPT = 256
WARP = 32  # threads of a warp
_FORM = "cubin 1"  # part of each key: raise it when the meaning of the facts changes
_KIB = 1024

# Shared memory of a block, at most: CUDA C++ Programming Guide, technical specifications per
# compute capability.
SHARED_LIMITS = {
    70: 96 * _KIB,
    72: 96 * _KIB,
    75: 64 * _KIB,
    80: 163 * _KIB,
    86: 99 * _KIB,
    87: 163 * _KIB,
    89: 99 * _KIB,
    90: 227 * _KIB,
    100: 227 * _KIB,
    103: 227 * _KIB,
    110: 227 * _KIB,
    120: 99 * _KIB,
    121: 99 * _KIB,
}

# jobs -> the result of each: the fields of a `compiler.Binary`, or a Fault. May raise Fault.
Compiler = Callable[[Sequence[Mapping[str, Any]]], Sequence[Any]]
COMPILER: Compiler = compile_client.WORKERS.compile


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Loaded:
    """A kernel in the driver.

    function   its handle, valid while `keep` lives
    threads    of a block
    shared     bytes of its dynamic shared memory
    hidden     null pointers that follow its parameters
    cached     it was not compiled now
    bytes      of the cubin
    registers  of a thread; -1 if unknown
    stack      bytes per thread; -1 if unknown
    """

    function: int
    threads: int
    shared: int
    hidden: int
    cached: bool
    keep: Any = field(repr=False)
    bytes: int
    registers: int = -1
    stack: int = -1


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that the store keeps beside a cubin. `symbol`: its name in the cubin."""

    symbol: str
    shared: int
    warps: int
    hidden: int
    registers: int
    stack: int


class _Process:
    """The kernels that this process has loaded, by key."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._alive: weakref.WeakValueDictionary[str, Loaded] = weakref.WeakValueDictionary()
        self._recent: OrderedDict[str, Loaded] = OrderedDict()

    def get(self, key: str) -> Loaded | None:
        with self.lock:
            found = self._alive.get(key)
            if found is not None:
                self._recent[key] = found
                self._recent.move_to_end(key)
            return found

    def put(self, key: str, make: Callable[[], Loaded]) -> Loaded:
        """Load once for all threads that need the kernel."""
        with self.lock:
            found = self.get(key)
            if found is None:
                self._alive[key] = self._recent[key] = found = make()
                while len(self._recent) > KEPT:
                    self._recent.popitem(last=False)
            return found

    def clear(self) -> None:
        """Forget the kernels that no program holds."""
        with self.lock:
            self._recent.clear()


PROCESS = _Process()


def expect() -> None:
    """Start the process that compiles kernels, because a caller will need it soon."""
    if compile_client.WORKERS.compile == COMPILER:  # unless a test has replaced it
        compile_client.WORKERS.prepare()


def load(
    kernels: Sequence[Any],
    capability: int,
    name: str = "kernels",
    covers: Sequence[str] = (),
    stored: bool = False,
) -> dict[str, Loaded]:
    """The kernels on GPUs of an architecture (90: sm_90), by their names.

    Raises NotBuilt if one would have to be compiled and `stored` forbids it; NotCompiled (a
    BuildError) with Triton's own message; BuildError if there is no triton, no process or no
    driver.
    """
    start = time.perf_counter()
    compiler = kernel_file.mark(compile_client.identity() or "none")
    wanted = {kernel.name: wanted_file(kernel, capability, compiler) for kernel in kernels}
    of = {wanted[kernel.name].key: kernel for kernel in kernels}
    names = {file.key: file for file in wanted.values()}
    held = {str(file): PROCESS.get(_memory(file)) for file in names.values()}
    if all(held.values()):
        return {one: held[str(file)] for one, file in wanted.items()}  # type: ignore[misc]
    made: dict[str, Loaded] = {}
    for key, file in names.items():
        found = held[str(file)] or _stored(file, of[key].name)
        if found is not None:
            made[key] = found
    missing = [key for key in names if key not in made]
    if missing and stored:
        raise cxx.NotBuilt
    if missing:
        made |= _compiled({key: of[key] for key in missing}, names, capability)
    SESSION.emit(
        KernelBuilt(
            name=name,
            bytes=sum(one.bytes for one in made.values()),
            seconds=time.perf_counter() - start,
            cached=not missing,
            covers=tuple(covers),
        )
    )
    return {one: made[file.key] for one, file in wanted.items()}


def wanted_file(kernel: Any, capability: int, compiler: str) -> Name:
    """The name of a kernel's file except for its content: it includes everything that determines
    the cubin. `compiler`: triton's mark.
    """
    facts = [
        kernel.name, kernel.arguments, sorted(kernel.constants.items()), kernel.aligned,
        sorted(options_of(kernel).items()),
    ]  # fmt: skip
    key = kernel_file.key_of(kernel.source, (_FORM, repr(facts)))
    return Name(key, kernel_file.mark(f"sm_{capability}"), compiler, "", "cubin")


def _memory(file: Name) -> str:
    return f"{file.key}.{file.machine}.{file.compiler}"


# --- the store ---


def _stored(file: Name, title: str) -> Loaded | None:
    """The kernel from the store, if it is there. An error of the driver does not mean that the file
    is damaged.
    """
    found = SESSION.store.find(file, title, _unpacked)
    if found is None:
        return None
    _path, _size, (facts, cubin) = found
    return _in_driver(file, facts, cubin, cached=True)


def _packed(facts: Facts, cubin: bytes) -> bytes:
    row = [getattr(facts, name) for name in Facts.__slots__]
    return json.dumps(row).encode() + b"\n" + cubin


def _unpacked(data: bytes) -> tuple[Facts, bytes]:
    head, _newline, cubin = data.partition(b"\n")
    try:
        symbol, *numbers = json.loads(head)
        if type(symbol) is str and all(type(n) is int for n in numbers) and cubin[:4] == b"\x7fELF":
            return Facts(symbol, *numbers), cubin
    except (ValueError, TypeError):
        pass
    raise BuildError("a stored kernel of a GPU cannot be read")


def _in_driver(file: Name, facts: Facts, cubin: bytes, cached: bool) -> Loaded:
    def make() -> Loaded:
        function, keep = driver.load(cubin, facts.symbol, facts.shared)
        return Loaded(
            function, facts.warps * WARP, facts.shared, facts.hidden, cached, keep, len(cubin),
            facts.registers, facts.stack,
        )  # fmt: skip

    return PROCESS.put(_memory(file), make)


# --- compiling ---


def _compiled(
    kernels: Mapping[str, Any], files: Mapping[str, Name], capability: int
) -> dict[str, Loaded]:
    jobs = [job_of(kernel, capability) for kernel in kernels.values()]
    try:
        answers = COMPILER(jobs)
    except Fault as fault:
        raise error_of(fault) from fault
    made: dict[str, Loaded] = {}
    failed: dict[str, BuildError] = {}
    for (key, kernel), answer in zip(kernels.items(), answers, strict=True):
        try:
            made[key] = _finished(files[key], kernel.name, answer, capability)
        except BuildError as fault:
            failed[kernel.name] = fault
    if not failed:
        return made
    first, *others = failed.values()
    more = f" (and {len(others)} other kernels)" if others else ""
    error = NotCompiled(
        first.what + more, expected=first.expected, found=first.found, todo=first.todo, code="FB306"
    )
    error.failed = {name: str(one) for name, one in failed.items()}
    raise error from first


def job_of(kernel: Any, capability: int) -> dict[str, Any]:
    """A kernel's job for a worker process: plain values."""
    names = ("name", "source", "arguments", "aligned", "warps", "stages", "fp_fusion", "debug",
             "registers")  # fmt: skip
    facts = {name: getattr(kernel, name) for name in names}
    return {**facts, "constants": dict(kernel.constants), "capability": capability}


def _finished(file: Name, name: str, answer: Any, capability: int) -> Loaded:
    """Check the answer, put the cubin into the store, load it."""
    if isinstance(answer, Fault):
        raise error_of(answer)
    symbol, cubin, _ptx, shared, warps, hidden, scratch, registers, stack = answer
    limit = SHARED_LIMITS.get(capability)
    if limit is not None and shared > limit:
        raise BuildError(
            f"the kernel {name} needs more shared memory than the GPU has",
            expected=f"at most {limit} bytes on sm_{capability}",
            found=f"{shared} bytes",
            todo="nothing: its operators run one by one by ATen; please report it",
        )
    if scratch:
        raise BuildError(
            f"the kernel {name} needs scratch memory, which a launch does not provide",
            found=f"{scratch} bytes",
            todo="nothing: its operators run one by one by ATen; please report it",
        )
    facts = Facts(symbol, shared, warps, hidden, registers, stack)
    data = _packed(facts, cubin)
    digest = kernel_file.digest_of(data)
    SESSION.store.publish(Name(file.key, file.machine, file.compiler, digest, file.kind), data)
    return _in_driver(file, facts, cubin, cached=False)
