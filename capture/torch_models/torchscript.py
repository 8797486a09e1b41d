"""Functions compiled by TorchScript: recorded by running their graph over ghosts.

In: a `torch.jit.ScriptFunction`, by its type. Out: a callable for the tracer, or a break.
TorchScript's interpreter runs a graph through torch's own dispatcher, so ghosts show its operators;
its optimizer, which would fuse them, is off meanwhile. A graph that prints, warns, calls Python, or
writes to a tensor runs in Python: the interpreter makes tensors of numbers without the dispatcher,
and such a tensor must keep its value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from ...ir.errors import Unsupported
from ...ir.trace.ghost import Ghost
from ..breaks import Break
from ..exact_type import is_kind
from ..values.value import Sequence, Tensor, Value
from .calls import SCRIPTED, call_torch

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_STRUCTURE = frozenset(
    f"prim::{name}"
    for name in (
        "Constant", "ListConstruct", "ListUnpack", "TupleConstruct", "TupleUnpack", "TupleIndex",
        "If", "Loop", "unchecked_cast", "Uninitialized", "RaiseException", "dtype", "device",
        "layout", "NumToTensor", "min", "max", "isinstance", "unchecked_unwrap_optional",
    )
)  # fmt: skip
_ACTS = frozenset(
    f"aten::{name}"
    for name in (
        "warn", "manual_seed", "seed", "initial_seed", "wait", "save", "get_num_threads",
        "autocast_to_full_precision", "autocast_to_reduced_precision", "is_autocast_enabled",
        "is_autocast_cpu_enabled", "get_autocast_dtype",
    )
)  # fmt: skip


def is_scripted(real: Any) -> bool:
    return is_kind(real, torch._C.ScriptFunction)


def call(m: Machine, real: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Record real(*args, **kwargs)."""
    what = f"call of a scripted function {real.name}"
    if m.modes:
        raise Break("GB110", f"{what} under a torch function mode")
    for value in _tensors([*args, *kwargs.values()]):
        # A function that has run before keeps its fused form.
        if value.ghost.device.type != "cpu":
            raise Break("GB102", f"{what} on {value.ghost.device.type}")
    for kind in _kinds(real.inlined_graph):
        if not _is_operator(kind) and kind not in _STRUCTURE:
            raise Break("GB102", f"{what}, which has {kind}")
    return call_torch(m, _over_ghosts(real), args, kwargs)


def _tensors(values: list[Value]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, Sequence):
            yield from _tensors(value.items)


def _kinds(block: Any) -> Iterator[str]:
    """The kinds of a block's nodes, including nested blocks."""
    for node in block.nodes():
        yield node.kind()
        for inner in node.blocks():
            yield from _kinds(inner)


def _is_operator(kind: str) -> bool:
    """Whether this is an operator that computes something and has no effect."""
    space, _, name = kind.partition("::")
    if space != "aten" or kind in _ACTS:
        return False
    if name.startswith("__") and name.endswith("__"):
        return name not in _IN_PLACE
    return not name.endswith("_")


_IN_PLACE = frozenset({"__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__"})


def _over_ghosts(real: Any) -> Callable[..., Any]:
    """The function itself; TorchScript's optimizer is off while it is traced."""

    def scripted(*args: Any, **kwargs: Any) -> Any:
        if not _has_ghost([*args, *kwargs.values()]):
            return real(*args, **kwargs)
        before = torch._C._get_graph_executor_optimize()
        torch._C._set_graph_executor_optimize(False)
        try:
            return _fresh(real(*args, **kwargs))
        except RuntimeError as error:  # the interpreter gives no details of its exceptions
            raise Unsupported("scripted", "it raises, or tensor data decides in it") from error
        finally:
            torch._C._set_graph_executor_optimize(before)

    scripted.__name__, scripted.__module__ = f"scripted_{real.name}", SCRIPTED
    return scripted


def _fresh(result: Any) -> Any:
    """The result; tensors that the interpreter made of numbers become tensors of the trace."""
    if type(result) is tuple or type(result) is list:
        return type(result)(_fresh(item) for item in result)
    made = isinstance(result, torch.Tensor) and type(result) is not Ghost
    return result.clone() if made else result


def _has_ghost(values: Any) -> bool:
    return any(
        type(value) is Ghost or (isinstance(value, (list, tuple)) and _has_ghost(value))
        for value in values
    )
