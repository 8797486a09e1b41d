"""Numbers that a graph reads from tensors: `x.max().item()`, and sizes that data decide: `x[mask]`.

`read_number(tracer, ghost)` records the read, and gives a symbol that stands for the number: it is
known when the graph runs. The tensor that is read is a value of the graph in memory of its own, so
that no later write changes the number; if something needs the number, it is an output.
`read_size` does the same for an operator whose result has a size that data decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..errors import DataDependent
from ..graph.nodes import meta_args
from ..graph.schema import plan_of
from ..location import Location
from ..ops.data_sizes import SIZED
from ..symbolic.expr import Symbol, symbols_of
from .ghost import Ghost, Store
from .recorder import SPECIAL, Recorder

if TYPE_CHECKING:
    from .tracer import Tracer

# Estimates at capture.
HINTS = {"int": 61, "float": 0.7}


def number_apart(tensor: torch.Tensor) -> torch.Tensor:
    """The one element of a tensor, on the CPU and in the dtype of Python's numbers."""
    dtype = torch.float64 if tensor.is_floating_point() else torch.int64
    return tensor.detach().reshape(()).to("cpu", dtype, copy=True)


def read_number(
    tracer: Tracer, ghost: Ghost, where: Location | None = None
) -> tuple[Ghost, Symbol]:
    """(the tensor that holds the number of a tensor of one element, the number's symbol)"""
    held: Ghost = tracer.run(number_apart, (ghost,), where=where)
    kind = "float" if held.dtype.is_floating_point else "int"
    least = most = None
    hint: Any = HINTS[kind]
    if ghost.dtype is torch.bool:
        hint, least, most = 1, 0, 1
    elif kind == "int":
        least, most = torch.iinfo(ghost.dtype).min, torch.iinfo(ghost.dtype).max
    symbol = tracer.facts.symbol(kind, hint, ("data", held), least, most)
    tracer.bind(symbol, held, where)
    return held, symbol


def read_size(
    tracer: Tracer,
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
    where: Location | None = None,
) -> Any:
    """fn(*args) with results of sizes that data decide: symbols that the graph reads."""
    made: list[Symbol] = []
    tracer.sized = made
    try:
        result = tracer.run(fn, args, kwargs, where)
    finally:
        tracer.sized = None
    parts = result if isinstance(result, (tuple, list)) else (result,)
    shapes = [(one, one._node.meta.shape) for one in parts if type(one) is Ghost]
    for symbol in made:
        held, dim = next((one, s.index(symbol)) for one, s in shapes if symbol in s)
        held._store.sized = True
        tracer.facts.symbols[symbol] = ("data", held, dim)
        tracer.bind(symbol, held, where, dim)
    return result


def _sized(recorder: Recorder, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record an operator whose result has a size that data decide."""
    tracer, plan = recorder._tracer(), plan_of(op)
    assert tracer is not None
    if tracer.sized is None:
        raise DataDependent(plan.name, f"{plan.name} depends on tensor data", True)
    operands = tuple([recorder.operand(arg) for arg in args])
    named = {name: recorder.operand(value) for name, value in kwargs.items()}
    given = {name: meta_args(value) for name, value in named.items()}
    meta, symbol = SIZED[plan.name](tracer.facts, *meta_args(operands), **given)
    tracer.sized.append(symbol)
    node = recorder.node(plan.op, operands, named, meta)
    return recorder._wrap(node, meta, lambda: Store(fresh=True), None, plan.list_result)


SPECIAL.update(dict.fromkeys(SIZED, _sized))


def numbers_read(tracer: Tracer) -> list[Ghost]:
    """The tensors of the numbers that nodes or required relations mention."""
    facts = tracer.facts
    if not any(origin[0] == "data" for origin in facts.symbols.values()):
        return []
    _, nodes = tracer.values()
    told = [(node.meta, node.args, node.kwargs) for node in nodes]
    used = symbols_of([told, [(one.left, one.right) for one in facts.required]])
    return [of[1] for symbol, of in facts.symbols.items() if of[0] == "data" and symbol in used]
