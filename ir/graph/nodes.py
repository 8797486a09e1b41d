"""Graph and Node: what one captured part of a frame computes.

A graph has two levels, which `ir.trace.tracer.Tracer` records together: `calls` are the torch-level
calls as the program wrote them (they can be replayed one by one, through autograd), and `nodes` are
the ATen operators below them (the compiled level). Nodes are in execution order; a node that
mutates an argument is a barrier for everything that reads or writes the same storage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..dataclass import dataclass, field
from ..location import Location
from ..symbolic.expr import Symbol, plain
from ..symbolic.symnode import SYMBOLIC, from_torch

# An int, or an `ir.symbolic.expr.Expr` where it may differ from call to call.
Size = Any


@dataclass(frozen=True, slots=True)
class Meta:
    """Metadata of a tensor value. Sizes and strides count elements; `device` is torch's."""

    shape: tuple[Size, ...]
    stride: tuple[Size, ...]
    dtype: torch.dtype
    device: torch.device
    offset: Size = 0

    def with_sizes(self, change: Callable[[Any], Any]) -> Meta:
        """The same with `change` applied to sizes, strides and offset, if some are expressions."""
        if plain((self.shape, self.stride, self.offset)):
            return self
        shape, stride, offset = change(self.shape), change(self.stride), change(self.offset)
        return Meta(shape, stride, self.dtype, self.device, offset)

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


def meta_of(tensor: torch.Tensor) -> Meta:
    """The Meta of a real (strided) tensor or a ghost."""
    return Meta(
        tuple([_size(size) for size in tensor.shape]),
        tuple([_size(step) for step in tensor.stride()]),
        tensor.dtype,
        tensor.device,
        _size(tensor.storage_offset()),
    )


def _size(value: Any) -> Any:
    return from_torch(value) if type(value) in SYMBOLIC else value


@dataclass(eq=False, slots=True)
class Node:
    """One operation at ATen level, which produces a value.

    op       "input", "constant", "call" (an ATen operator) or "get" (one result of a call with
    many)
    target   the OpOverload for "call"; the index for "get"; the real tensor for "constant"; the
             input's position for "input"
    args, kwargs   operands: Nodes, numbers (plain or `ir.symbolic.expr.Expr`), dtypes, devices,
             lists and tuples of those. A constant that nothing outside the graph can write has
             args ("own",)
    meta     Meta of the result; a tuple of Meta or None for many results; None without a result
    alias    the node whose storage the result shares (a view, or an in-place result), else None
    """

    op: str
    target: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    meta: Any = None
    name: str = ""
    where: Location | None = None
    alias: Node | None = None

    def __repr__(self) -> str:
        return f"%{self.name}"


@dataclass(eq=False, slots=True)
class Call:
    """One torch-level call as captured: `results = target(*args, **kwargs)`.

    args and kwargs hold `Ref`s in place of the program's tensors; `results` has the structure of
    the call's result, with Refs and plain values in it; the Symbol of a number that the call reads
    from a tensor. `writes`: the values that the call writes,
    and those that share memory with them.
    """

    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: Any
    where: Location | None = None
    writes: tuple[Ref, ...] = ()


@dataclass(frozen=True, slots=True)
class Ref:
    """A value of the torch level by number; the first `len(graph.inputs)` are the inputs."""

    index: int


@dataclass(eq=False, slots=True)
class Graph:
    """Inputs (nodes with op "input"), nodes in order, outputs; and the same at torch level.

    outputs        nodes of the results, in order
    call_outputs   the Refs of the same results at torch level
    constants      Ref index -> real tensor, for tensors that are part of the graph
    values         Ref index -> the node that made the value, to print types at the torch level
    needs_grad     some value requires a gradient: the program runs the torch level, or forward and
                   backward of `joint`
    mutates        the graph writes an input's storage
    random         the graph has a random operator
    sources        origin of each input, as given to `Tracer.input`
    overlaps       groups of input positions whose tensors share memory
    late           Python runs the frame again if the program raises, so the program must not have
                   written an input by then (see `ir.passes.defer_writes`)
    apart          the caller makes sure that no two inputs share memory
    written        positions of the inputs whose memory the graph writes (their overlaps included);
                   eager would have raised their version counters
    slow_ops       operators without a result rule of ours
    grad_where     the first call whose result requires a gradient
    joined         positions of the outputs that get their autograd node from us: such an output
                   must not appear as a view of another tensor
    consumes       the caller hands the inputs over to the program: each may die after its last use
    own            with consumes: positions of the inputs that then die, since nothing else holds
                   them
    joint          with needs_grad: the backward (an `ir.trace.joint.Joint`), or why there is none
    (a
                   `Declined`); None: not built
    spends         the calls contain a backward
    backward_end   the number of calls up to and with the last backward; None: unknown
    forward_end    the number of `nodes` before the first backward; None: unknown
    spent          (position, name of the node) of the outputs whose history this backward used up
    symbols        origin of each symbol of the graph: ("size", input position, dim),
                   ("stride", input position, dim), ("number", argument position), or
                   ("data", output position): read from that output, a tensor of one element, or
                   ("data", output position, dim): its size, which data decide
    required       relations of such numbers that the program checks when it has read them; Python
                   runs the frame again where one does not hold
    numbers        symbols of the Python numbers that follow the tensors among the arguments
    facts          the trace's knowledge of its symbols (an `ir.symbolic.shape_env.Facts`), or None
    """

    name: str
    inputs: list[Node] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    outputs: list[Node] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    call_outputs: list[Ref] = field(default_factory=list)
    constants: dict[int, Any] = field(default_factory=dict)
    needs_grad: bool = False
    mutates: bool = False
    random: bool = False
    sources: list[Any] = field(default_factory=list)
    overlaps: list[tuple[int, ...]] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    slow_ops: list[str] = field(default_factory=list)
    grad_where: Location | None = None
    joined: frozenset[int] = frozenset()
    consumes: bool = False
    own: frozenset[int] = frozenset()
    joint: Any = None
    spends: bool = False
    backward_end: int | None = None
    forward_end: int | None = None
    spent: tuple[tuple[int, str], ...] = ()
    symbols: dict[Symbol, tuple[Any, ...]] = field(default_factory=dict)
    required: list[Any] = field(default_factory=list)
    numbers: list[Symbol] = field(default_factory=list)
    facts: Any = None
    apart: bool = False
    late: bool = False
    values: tuple[Node, ...] = ()

    def text(self) -> str:
        """The ATen level as typed Python."""
        return _printing().graph_text(self)

    def calls_text(self) -> str:
        """The torch level as Python."""
        return _printing().calls_text(self)

    def to_fx(self) -> Any:
        """The ATen level as a torch.fx.GraphModule."""
        return _printing().to_fx(self)


def _printing() -> Any:
    # `printing` imports this file
    from . import printing

    return printing


def meta_args(value: Any) -> Any:
    """Operands with a Meta for each Node."""
    kind = type(value)
    if kind is Node:
        return value.meta
    if kind is tuple:
        return tuple([meta_args(item) for item in value])
    return value
