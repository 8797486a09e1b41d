"""The Triton renderer: a loop nest becomes the readable source of one `@triton.jit` function.

`render` gives a `TritonKernel`: text, argument signature, constants, grid. It needs no triton. `compile_kernel`
makes a cubin for a named GPU architecture (no GPU needed), `launch` runs a kernel through Triton's own launcher
on CUDA tensors, or on CPU tensors where TRITON_INTERPRET=1 was set before triton was first imported. Called by
the GPU backend and by tests. This is the only module of the library that imports triton, and only on use.
"""

from __future__ import annotations

import hashlib
import importlib
import keyword
import linecache
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.dataclass import dataclass
from ..ir.symbols import is_symbolic
from ..runtime.errors import BuildError
from .loops import LoopNest, indices
from .triton_dialect import TYPES, helpers_of
from .triton_nest import Body, body_of
from .triton_tiles import Plan, plan_of

ALIGNMENT = 16  # bytes; what lets Triton use the widest loads and stores

_HEADER = """\
import triton
import triton.language as tl
from triton.language.extra import libdevice
"""


@dataclass(frozen=True, slots=True)
class TritonKernel:
    """One kernel as text and the description of its launch.

    name        of the function in `source`, a whole module
    arguments   (name, type) in order: pointers first ("*fp32", "*i1"), one for each buffer of the nest, then
                the "constexpr" ones
    constants   the values of the constexpr arguments
    programs    the grid: a launch is one-dimensional
    aligned     positions of pointers whose address the caller promises to be a multiple of 16 bytes
    warps       of a program
    fp_fusion   may a product and a sum become one fused multiply-add? Eager's chains of operators never do
    """

    name: str
    source: str
    arguments: tuple[tuple[str, str], ...]
    constants: Mapping[str, int]
    programs: int
    aligned: tuple[int, ...] = ()
    warps: int = 4
    fp_fusion: bool = False

    @property
    def pointers(self) -> int:
        """How many tensors a launch takes."""
        return sum(kind != "constexpr" for _name, kind in self.arguments)


@dataclass(frozen=True, slots=True)
class Binary:
    """A compiled kernel. `name`: its symbol in the cubin; `shared`: bytes of dynamic shared memory.

    `hidden`: pointer arguments that Triton appends to ours (scratch memory; null where `scratch` is 0).
    """

    name: str
    cubin: bytes
    ptx: str
    shared: int
    warps: int
    hidden: int
    scratch: int


def render(
    nest: LoopNest,
    *,
    aligned: Sequence[int] = (),
    fp_fusion: bool = False,
    persistent_limit: int = 1024,
) -> TritonKernel:
    """The kernel of a nest. `aligned`: buffers known to start at a multiple of 16 bytes.

    Rows of up to `persistent_limit` elements that lie side by side are kept in registers as a whole; longer ones
    are walked in blocks, once for each phase. KeyError: an operator or dtype that Triton text lacks. BuildError:
    sizes that are expressions; there the caller runs the operators one by one.
    """
    sizes = [nest.outer, nest.inner, *((index.strides, index.offset) for index in indices(nest))]
    if is_symbolic(sizes) or any(value.op == "number" for value in nest.values):
        raise BuildError("Triton kernels are made for sizes that are known", found=nest.name)
    if any(value.op == "scan" for value in nest.values):
        raise BuildError("Triton kernels fold whole rows", found=nest.name)
    unknown = {"load_if", "inside", "checked"}
    if any(value.op in unknown or (value.op == "load" and value.args) for value in nest.values):
        raise BuildError("Triton kernels load at places that are known", found=nest.name)
    if nest.tiled is not None:
        raise BuildError("Triton kernels are called by nobody but the program", found=nest.name)
    if nest.scatters:
        raise BuildError("Triton kernels store at places that are known", found=nest.name)
    name = _identifier(nest.name, "kernel")
    parameters = _parameters(nest)
    plan: Plan = plan_of(nest, persistent_limit)
    body: Body = body_of(plan, parameters)
    arguments = [
        (parameter, "*" + TYPES[buffer.dtype][1])
        for parameter, buffer in zip(parameters, nest.buffers, strict=True)
    ]
    arguments += [(constant, "constexpr") for constant in plan.constants]
    head = ", ".join(
        f"{argument}: tl.constexpr" if kind == "constexpr" else argument
        for argument, kind in arguments
    )
    covers = [f"# {line}" for line in nest.covers]
    function = "\n".join(
        [*covers, "@triton.jit", f"def {name}({head}):", *(f"    {line}" for line in body.lines)]
    )
    return TritonKernel(
        name=name,
        source=_module(function),
        arguments=tuple(arguments),
        constants=plan.constants,
        programs=plan.programs,
        aligned=tuple(sorted(aligned)),
        warps=plan.warps,
        fp_fusion=fp_fusion,
    )


def _module(function: str) -> str:
    from .triton_dialect import HELPERS

    parts = [_HEADER]
    parts += [f"\n\n@triton.jit{HELPERS[name].rstrip()}\n" for name in helpers_of(function)]
    return "".join([*parts, "\n\n", function, "\n"])


def _parameters(nest: LoopNest) -> list[str]:
    """One valid, unique name a buffer, apart from the names that the body uses."""
    taken: set[str] = set()
    found: list[str] = []
    for buffer in nest.buffers:
        name = _identifier(buffer.name, "buffer")
        if re.fullmatch(r"[a-z]\d*|acc\d+|tl|pid|start|triton|libdevice|.+_mask|_.*", name):
            name = f"p_{name}"
        while name in taken:
            name += "_"
        taken.add(name)
        found.append(name)
    return found


def _identifier(name: str, default: str) -> str:
    text = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_") or default
    return f"{default}_{text}" if text[0].isdigit() or keyword.iskeyword(text) else text


def available() -> bool:
    """Can triton be imported here?"""
    try:
        _triton()
    except BuildError:
        return False
    return True


def interpreting() -> bool:
    """Does triton run kernels in its interpreter in this process?"""
    return bool(_triton().knobs.runtime.interpret)


def _triton() -> Any:
    try:
        return importlib.import_module("triton")
    except ImportError as error:
        raise BuildError(
            "GPU kernels need triton, which cannot be imported",
            found=str(error),
            todo="pip install 'graftjit[gpu]'",
        ) from error


def load(kernel: TritonKernel, **names: Any) -> Any:
    """The `@triton.jit` function of a kernel. `names` stand in for names of its module (`libdevice`, which
    Triton's interpreter lacks)."""
    _triton()
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


def compile_kernel(kernel: TritonKernel, capability: int = 90, warp_size: int = 32) -> Binary:
    """Compile for an NVIDIA architecture (90: sm_90). BuildError holds Triton's own message."""
    triton = _triton()
    if interpreting():
        raise BuildError(
            "Triton runs its interpreter in this process and cannot compile",
            todo="unset TRITON_INTERPRET before triton is imported",
        )
    compiler = importlib.import_module("triton.compiler")
    backends = importlib.import_module("triton.backends.compiler")
    function = load(kernel)
    positions = {name: index for index, (name, _kind) in enumerate(kernel.arguments)}
    source = compiler.ASTSource(
        fn=function,
        signature=dict(kernel.arguments),
        constexprs={(positions[name],): value for name, value in kernel.constants.items()},
        attrs={(index,): [["tt.divisibility", ALIGNMENT]] for index in kernel.aligned},
    )
    try:
        compiled = triton.compile(
            source,
            target=backends.GPUTarget("cuda", capability, warp_size),
            options=_options(kernel),
        )
    except Exception as error:  # Triton raises classes of several packages, its own and MLIR's
        raise BuildError(
            f"Triton could not compile the kernel {kernel.name}",
            found=f"{type(error).__name__}: {error}",
        ) from error
    metadata = compiled.metadata
    ptx = compiled.asm["ptx"]
    return Binary(
        name=metadata.name,
        cubin=compiled.asm["cubin"],
        ptx=ptx,
        shared=metadata.shared,
        warps=metadata.num_warps,
        hidden=_parameter_count(ptx, metadata.name) - kernel.pointers,
        scratch=metadata.global_scratch_size,
    )


def _options(kernel: TritonKernel) -> dict[str, Any]:
    """Said in full, for Triton's defaults change: no flush of denormals, no fusion unless asked for."""
    return {
        "num_warps": kernel.warps,
        "enable_fp_fusion": kernel.fp_fusion,
        "enable_reflect_ftz": False,
    }


def _parameter_count(ptx: str, name: str) -> int:
    head = re.search(rf"\.entry\s+{re.escape(name)}\s*\((.*?)\)", ptx, flags=re.DOTALL)
    return head.group(1).count(".param") if head else 0


def launch(kernel: TritonKernel, tensors: Sequence[Any], function: Any = None) -> None:
    """Run once through Triton's launcher: one tensor a buffer of the nest, in order.

    `function`: what `load` gave, to save loading again.
    """
    if len(tensors) != kernel.pointers:
        raise BuildError(
            f"the kernel {kernel.name} was given a wrong number of tensors",
            expected=str(kernel.pointers),
            found=str(len(tensors)),
        )
    function = function or load(kernel)
    options = {} if interpreting() else _options(kernel)
    function[(kernel.programs,)](*tensors, **kernel.constants, **options)
