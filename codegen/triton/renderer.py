"""The Triton renderer: from a loop nest to the readable source of one `@triton.jit` function.

`render` returns a `TritonKernel`: text, argument signature, constants, grid. It needs no triton.
`codegen.triton.compiler` does; this file offers its functions with BuildErrors: `compile_kernel`
makes a cubin, `launch` runs a kernel through Triton's own launcher.
"""

from __future__ import annotations

import functools
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...ir.dataclass import dataclass
from ...ir.symbolic.expr import Expr
from ...runtime.errors import BuildError
from ..loops.loop_nest import Buffer, LoopNest
from . import alignment, compiler
from .arguments import Numbers
from .body import Writer
from .devices import error_of
from .dialect import HELPERS, TYPES, helpers_of
from .tiling import Plan, Tiling, choices, plan_of

# names that bodies use
_TAKEN = (
    r"[a-z]\d*|(acc|at)\d*|tl|pid|start|outside|row|member|team|ahead|words|left|right|tile|first"
    r"|beside|triton|libdevice|.+_(mask|pid|at|shift|group|near|whole|edge)|_.*"
)

_HEADER = """\
import triton
import triton.language as tl
from triton.language.extra import libdevice
"""


@dataclass(frozen=True, slots=True)
class TritonKernel:
    """One kernel as text and the description of its launch.

    name       of the function in `source`, a whole module
    arguments  (name, type) in order: pointers first ("*fp32", "*i1"), one per buffer of the
               nest, then the numbers of a launch ("i64", "i32", "fp64", "fp32"), then the
               "constexpr" ones
    constants  the values of the constexpr arguments
    programs   the one-dimensional grid; with 0 programs there is no launch
    aligned    positions of pointers whose address is a multiple of 16 bytes (the caller
               guarantees it), and of numbers that are multiples of 16
    warps      of a program
    fp_fusion  whether a product and a sum may become one fused multiply-add; eager's chains of
               operators never do that
    numbers    the expressions of the numbers, in order
    stages     of a pipelined loop: how many loads are under way
    debug      whether its assertions are compiled in
    registers  the most of a thread; 0: the compiler decides
    """

    name: str
    source: str
    arguments: tuple[tuple[str, str], ...]
    constants: Mapping[str, int]
    programs: int | Expr
    aligned: tuple[int, ...] = ()
    warps: int = 4
    fp_fusion: bool = False
    numbers: tuple[Expr, ...] = ()
    stages: int = 3
    debug: bool = False
    registers: int = 0

    @property
    def pointers(self) -> int:
        """The number of tensors that a launch takes."""
        return sum(kind.startswith("*") for _name, kind in self.arguments)


def render(
    nest: LoopNest,
    *,
    aligned: Sequence[int] = (),
    fp_fusion: bool = False,
    tiling: Tiling = Tiling(),  # noqa: B008 - frozen
    programs: int = 0,
) -> TritonKernel:
    """The kernel of a nest. `aligned`: buffers that start at a multiple of 16 bytes.

    `tiling`: the tile, if it is not that of the rules. `programs`: see `column_folds.split`. Sizes,
    strides and offsets that are expressions are numbers of the launch; one text serves them all. A
    nest that scatters must have been split (`scatter`). KeyError: an operator or dtype that Triton
    text lacks. BuildError: a nest that Triton text cannot express; the caller then runs the
    operators one by one.
    """
    if nest.tiled is not None:
        raise BuildError("Triton kernels are called only by the program", found=nest.name)
    parameters = names(nest.buffers)
    plan: Plan = alignment.shifted(plan_of(nest, tiling, programs), aligned)
    numbers = Numbers()
    body = Writer(plan, parameters, numbers).write()
    arguments = [
        (parameter, "*" + TYPES[buffer.dtype][1])
        for parameter, buffer in zip(parameters, nest.buffers, strict=True)
    ]
    arguments += numbers.arguments
    made = assemble(nest.name, nest.covers, arguments, plan.constants, body.lines, plan.programs)
    return replace(
        made,
        aligned=(*sorted(aligned), *(len(parameters) + at for at in numbers.aligned)),
        warps=plan.warps,
        fp_fusion=fp_fusion,
        numbers=tuple(numbers.names),
        debug=nest.may_fail,
        registers=plan.registers,
    )


def variants(nest: LoopNest, **options: Any) -> list[TritonKernel]:
    """The kernel of the rules, and others that measurement may find faster."""
    found = [render(nest, tiling=tiling, **options) for tiling in choices(nest)]
    seen: dict[Any, TritonKernel] = {}
    for kernel in found:
        seen.setdefault((kernel.source, tuple(kernel.constants.items()), kernel.warps), kernel)
    return list(seen.values())


def assemble(
    name: str,
    covers: Sequence[str],
    arguments: Sequence[tuple[str, str]],
    constants: Mapping[str, int],
    lines: Sequence[str],
    programs: int | Expr,
) -> TritonKernel:
    """A kernel with these lines as its body; `arguments`: those that are not constants."""
    name = _identifier(name, "kernel")
    every = (*arguments, *((constant, "constexpr") for constant in constants))
    head = ", ".join(
        f"{argument}: tl.constexpr" if kind == "constexpr" else argument for argument, kind in every
    )
    function = "\n".join(
        [
            *(f"# {line}" for line in covers),
            "@triton.jit",
            f"def {name}({head}):",
            *(f"    {line}" for line in lines),
        ]
    )
    return TritonKernel(name, _module(function), every, constants, programs)


def _module(function: str) -> str:
    parts = [_HEADER]
    parts += [f"\n\n@triton.jit{HELPERS[name].rstrip()}\n" for name in helpers_of(function)]
    return "".join([*parts, "\n\n", function, "\n"])


def names(buffers: Sequence[Buffer]) -> list[str]:
    """One valid, unique name per buffer, different from the names that the body uses."""
    taken: set[str] = set()
    found: list[str] = []
    for buffer in buffers:
        name = _identifier(buffer.name, "buffer")
        if re.fullmatch(_TAKEN, name):
            name = f"p_{name}"
        while name in taken:
            name += "_"
        taken.add(name)
        found.append(name)
    return found


def _identifier(name: str, default: str) -> str:
    text = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_") or default
    return f"{default}_{text}" if text[0].isdigit() or keyword.iskeyword(text) else text


def _with_build_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its faults raised as BuildErrors."""

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except compiler.Fault as fault:
            raise error_of(fault) from fault.__cause__

    return call


available = compiler.available
interpreting = _with_build_errors(compiler.interpreting)
load = _with_build_errors(compiler.load)
compile_kernel = _with_build_errors(compiler.compile_kernel)
launch = _with_build_errors(compiler.launch)
