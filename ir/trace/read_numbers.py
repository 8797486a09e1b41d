"""Numbers that a graph reads from tensors: `x.max().item()`.

`read_number(tracer, ghost)` records the read, and gives a symbol that stands for the number: it is
known when the graph runs. The tensor that is read is a value of the graph in memory of its own, so
that no later write changes the number; if something needs the number, it is an output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..location import Location
from ..symbolic.expr import Symbol, symbols_of
from .ghost import Ghost

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
    if kind == "int":
        least, most = torch.iinfo(ghost.dtype).min, torch.iinfo(ghost.dtype).max
    symbol = tracer.facts.symbol(kind, HINTS[kind], ("data", held), least, most)
    tracer.bind(symbol, held, where)
    return held, symbol


def numbers_read(tracer: Tracer) -> list[Ghost]:
    """The tensors of the numbers that nodes or required relations mention."""
    facts = tracer.facts
    if not any(origin[0] == "data" for origin in facts.symbols.values()):
        return []
    _, nodes = tracer.values()
    told = [(node.meta, node.args, node.kwargs) for node in nodes]
    used = symbols_of([told, [(one.left, one.right) for one in facts.required]])
    return [of[1] for symbol, of in facts.symbols.items() if of[0] == "data" and symbol in used]
