"""The only file that imports triton, and only on use: from a kernel's text to a function, a cubin,
a launch.

In: a kernel as `codegen.triton.renderer` describes it, or any object with its attributes (`name`,
`source`, `arguments`, `constants`, `programs`, `aligned`, `warps`, `stages`, `fp_fusion`, `debug`,
`registers`).
`compile_kernel` makes a cubin for a named GPU architecture and needs no GPU. `launch` runs a kernel
through Triton's own launcher, on CUDA tensors, or on CPU tensors if TRITON_INTERPRET=1 was set
before triton was first imported. This file imports neither torch nor graftjit, because worker
processes run it by itself. Errors are a `Fault`; callers in the library turn it into a BuildError.
"""

from __future__ import annotations

import hashlib
import importlib
import linecache
import re
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

ALIGNMENT = 16  # bytes; with it Triton can use the widest loads and stores
OLDEST = (3, 6)  # the oldest supported version of triton


class Fault(Exception):
    """A kernel that cannot be compiled or launched: what went wrong, what was found, what was
    expected, what to do.

    Its arguments are these four texts, so that it can be sent from one process to another.
    """

    def __init__(self, what: str, found: str = "", expected: str = "", todo: str = "") -> None:
        super().__init__(what, found, expected, todo)
        self.what, self.found, self.expected, self.todo = what, found, expected, todo


class Binary(NamedTuple):
    """A compiled kernel. `name`: its symbol in the cubin; `shared`: bytes of dynamic shared memory.

    `hidden`: pointer arguments that Triton appends to those of the text (scratch memory; null if
    `scratch` is 0). `registers`: of a thread; `stack`: bytes of a thread's own memory, for values
    that have no register; -1 if unknown.
    """

    name: str
    cubin: bytes
    ptx: str
    shared: int
    warps: int
    hidden: int
    scratch: int
    registers: int = -1
    stack: int = -1


def available() -> bool:
    """Whether triton can be imported here."""
    try:
        triton()
    except Fault:
        return False
    return True


def interpreting() -> bool:
    """Whether triton runs kernels in its interpreter in this process."""
    return bool(triton().knobs.runtime.interpret)


def triton() -> Any:
    """The module `triton`."""
    try:
        return importlib.import_module("triton")
    except ImportError as error:
        raise Fault(
            "GPU kernels need triton, which cannot be imported",
            found=str(error),
            todo="pip install 'graftjit[gpu]'",
        ) from error


def prepare() -> None:
    """Prepare a process that only compiles: import what a compilation needs, and bypass Triton's
    own cache, whose key reads the whole library (0.7 s).
    """
    module = triton()
    found = str(module.__version__)
    if not new_enough(found):
        raise too_old(found)
    for name in ("triton.compiler", "triton.backends.compiler", "triton.language.extra.libdevice"):
        importlib.import_module(name)
    compiler: Any = importlib.import_module("triton.compiler.compiler")
    # Triton imports it at the first kernel
    importlib.import_module("triton.compiler.code_generator")
    if hasattr(compiler, "get_cache_key"):  # without it all works too, only slower
        compiler.get_cache_key = lambda *_args, **_named: "graftjit keeps its kernels itself"


def write_only_in(folder: str) -> None:
    """Make Triton write only into this folder in this process."""
    module = triton()
    module.knobs.cache.dir = folder
    module.knobs.compilation.always_compile = True


def new_enough(version: str) -> bool:
    """Whether this version of triton is supported."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and (int(found.group(1)), int(found.group(2))) >= OLDEST


def too_old(version: str) -> Fault:
    """The fault for such a version."""
    oldest = ".".join(map(str, OLDEST))
    return Fault(
        "triton is too old for GPU kernels",
        found=version,
        expected=f"{oldest} or newer",
        todo=f"pip install 'triton>={oldest}'",
    )


def load(kernel: Any, **names: Any) -> Any:
    """The `@triton.jit` function of a kernel. `names` replace names of its module (`libdevice`,
    which Triton's interpreter lacks).
    """
    triton()
    digest = hashlib.sha256(kernel.source.encode()).hexdigest()[:12]
    file = f"<triton {kernel.name} {digest}>"
    # Triton reads the source back through `inspect`; an entry without a time stays in the cache.
    lines = kernel.source.splitlines(keepends=True)
    linecache.cache[file] = (len(kernel.source), None, lines, file)
    space: dict[str, Any] = {"__name__": f"graftjit.codegen.kernels.{kernel.name}_{digest}"}
    # The header's import is the only statement that binds these names.
    code = compile(kernel.source, file, "exec")
    exec(code, space)
    space.update(names)
    return space[kernel.name]


def compile_kernel(kernel: Any, capability: int = 90, warp_size: int = 32) -> Binary:
    """Compile for an NVIDIA architecture (90: sm_90). Fault holds Triton's own message."""
    module = triton()
    if interpreting():
        raise Fault(
            "Triton runs its interpreter in this process and cannot compile",
            todo="unset TRITON_INTERPRET before triton is imported",
        )
    compiler = importlib.import_module("triton.compiler")
    backends = importlib.import_module("triton.backends.compiler")
    positions = {name: index for index, (name, _kind) in enumerate(kernel.arguments)}
    source = compiler.ASTSource(
        fn=load(kernel),
        signature=dict(kernel.arguments),
        constexprs={(positions[name],): value for name, value in kernel.constants.items()},
        attrs={(index,): [["tt.divisibility", ALIGNMENT]] for index in kernel.aligned},
    )
    try:
        compiled = module.compile(
            source,
            target=backends.GPUTarget("cuda", capability, warp_size),
            options=options_of(kernel),
        )
    except Exception as error:  # Triton raises classes of several packages, its own and MLIR's
        raise Fault(
            f"Triton could not compile the kernel {kernel.name}",
            found=f"{type(error).__name__}: {error}",
        ) from error
    metadata = compiled.metadata
    ptx = compiled.asm["ptx"]
    given = sum(kind != "constexpr" for _name, kind in kernel.arguments)
    return Binary(
        name=metadata.name,
        cubin=compiled.asm["cubin"],
        ptx=ptx,
        shared=metadata.shared,
        warps=metadata.num_warps,
        hidden=_parameter_count(ptx, metadata.name) - given,
        scratch=metadata.global_scratch_size,
        **resources(compiled.asm["cubin"]),
    )


def options_of(kernel: Any) -> dict[str, Any]:
    """All options explicitly, because Triton's defaults change: denormals are kept, no fusion of a
    product and a sum unless the kernel wants it, no overflow test of integers in kernels that have
    other assertions.
    """
    return {
        "num_warps": kernel.warps,
        "num_stages": kernel.stages,
        "enable_fp_fusion": kernel.fp_fusion,
        "enable_reflect_ftz": False,
        "debug": kernel.debug,
        "sanitize_overflow": False,
        **({"maxnreg": kernel.registers} if kernel.registers else {}),
    }


# In the section .nv.info: attributes that are (symbol, number), as `cuobjdump -res-usage` reads
# them.
_REGISTERS, _FRAME = 0x2F, 0x11
_PAIR = 4  # the form of an attribute that is its size and so many bytes


def resources(cubin: bytes) -> dict[str, int]:
    """`registers` and `stack` of a cubin's kernel; empty if the cubin cannot be parsed."""
    found: dict[str, int] = {}
    try:
        (table,) = struct.unpack_from("<Q", cubin, 0x28)
        size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
        sections = [struct.unpack_from("<IIQQQQ", cubin, table + size * n) for n in range(count)]
        for section in sections:
            start = sections[names][4] + section[0]
            if cubin[start : cubin.index(b"\0", start)] != b".nv.info":
                continue
            at, end = section[4], section[4] + section[5]
            while at < end:
                form, attribute, length = struct.unpack_from("<BBH", cubin, at)
                if form == _PAIR and attribute in (_REGISTERS, _FRAME):
                    _symbol, number = struct.unpack_from("<II", cubin, at + 4)
                    found["registers" if attribute == _REGISTERS else "stack"] = number
                at += 4 + (length if form == _PAIR else 0)
    except (struct.error, IndexError, ValueError):
        return {}
    return found


def _parameter_count(ptx: str, name: str) -> int:
    head = re.search(rf"\.entry\s+{re.escape(name)}\s*\((.*?)\)", ptx, flags=re.DOTALL)
    return head.group(1).count(".param") if head else 0


def launch(kernel: Any, tensors: Sequence[Any], function: Any = None) -> None:
    """Run once through Triton's launcher, with one tensor per buffer of the nest, in order.

    A kernel's numbers and its grid must be plain (`arguments.bound`). `function`: the result of
    `load`, to avoid loading again.
    """
    pointers = sum(kind.startswith("*") for _name, kind in kernel.arguments)
    if len(tensors) != pointers:
        raise Fault(
            f"the kernel {kernel.name} was given a wrong number of tensors",
            expected=str(pointers),
            found=str(len(tensors)),
        )
    if kernel.programs == 0:
        return
    function = function or load(kernel)
    options = {} if interpreting() else options_of(kernel)
    kinds = [kind for _name, kind in kernel.arguments[pointers:]]
    numbers = [_typed(kind, n) for kind, n in zip(kinds, kernel.numbers, strict=False)]
    function[(kernel.programs,)](*tensors, *numbers, **kernel.constants, **options)


# kind of a number -> its type in triton.language and in numpy
_SCALARS = {"i64": "int64", "i32": "int32", "fp64": "float64", "fp32": "float32"}


def _typed(kind: str, number: Any) -> Any:
    """A number as an argument. Without this the interpreter would take its type from its value."""
    if not interpreting():
        return number
    numpy = importlib.import_module("numpy")
    language = importlib.import_module("triton.language")
    interpreter = importlib.import_module("triton.runtime.interpreter")
    scalar = getattr(language, _SCALARS[kind])
    data = numpy.array(number, dtype=_SCALARS[kind])  # a loop takes its end from this array
    return language.tensor(interpreter.TensorHandle(data, scalar), scalar)
