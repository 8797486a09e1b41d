"""What an operator of another library promises of its results, and what its kernel returns.

The kernels around such an operator are made for the sizes, strides and types that its fake rule
gives. `of(metas)` is made when a program is written; `keeper(op)` compares it at each run. If they
differ, it raises `Untrue`: Python runs the frame again, without a graph around the operator, and
says so once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...ir.graph.nodes import Meta
from ...ir.ops.python_kernels import note_untrue
from ...ir.symbolic.expr import Symbol, mapped, symbols_of
from ..errors import Untrue
from ..process.session import SESSION


def of(metas: Sequence[Any], symbols: dict[Symbol, Any]) -> tuple[Any, ...]:
    """The promise for each result: (shape, strides, offset, dtype, device) of a tensor, or a value.

    `symbols`: the origins of a graph's symbols. A size that data decide is left open, as None.
    """
    return tuple([_of_one(one, symbols) for one in metas])


def _of_one(meta: Any, symbols: dict[Symbol, Any]) -> Any:
    def known(value: Any) -> Any:
        used = symbols_of((value,))
        told = all(symbols.get(one, ("data",))[0] != "data" for one in used)
        return value if told else None

    if type(meta) is not Meta:
        return mapped(meta, known)
    layout = mapped((meta.shape, meta.stride, meta.offset), known)
    return (*layout, meta.dtype, meta.device)


def keeper(op: Any) -> Callable[[Any, tuple[Any, ...], list[Any]], Any]:
    """A function of the operator's result, the promises and the operands: the result."""

    def kept(found: Any, promised: tuple[Any, ...], operands: list[Any]) -> Any:
        parts = found if isinstance(found, (tuple, list)) else (found,)
        if len(promised) != (0 if found is None else len(parts)):
            _refuse(op, f"{len(promised)} results", f"{len(parts)}")
        memory = {_memory(one) for one in operands}
        for part, promise in zip(parts, promised, strict=False):
            if isinstance(part, torch.Tensor):
                _compare(op, part, promise)
                if not op._schema.is_mutable and _memory(part) in memory:
                    _refuse(op, "a new tensor", "memory of an argument")
            elif promise is not None and part != promise:
                _refuse(op, repr(promise), repr(part))
        return found

    return kept


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _compare(op: Any, found: torch.Tensor, promise: Any) -> None:
    if not isinstance(promise, tuple):
        _refuse(op, repr(promise), "a tensor")
    shape, strides, offset, dtype, device = promise
    if (found.dtype, found.device) == (dtype, device) and len(found.shape) == len(shape):
        layout = (*found.shape, *found.stride(), found.storage_offset())
        if layout == (*shape, *strides, offset) or _fits(found, shape, strides, offset):
            return
    _refuse(
        op,
        f"{dtype} of sizes {list(shape)} and strides {list(strides)} on {device}",
        f"{found.dtype} of sizes {list(found.shape)} and strides {list(found.stride())}"
        f" on {found.device}",
    )


def _fits(found: torch.Tensor, shape: Any, strides: Any, offset: Any) -> bool:
    """As equality, where None is any number, and the stride of one element does not count."""
    sizes = all(one in (None, size) for one, size in zip(shape, found.shape, strict=True))
    steps = all(
        one in (None, step) or size == 1
        for one, step, size in zip(strides, found.stride(), found.shape, strict=True)
    )
    return sizes and (steps or not found.numel()) and offset in (None, found.storage_offset())


def _refuse(op: Any, promised: str, found: str) -> None:
    how = f"the fake rule of {op} promises {promised}; its kernel has returned {found}"
    note_untrue(op, how)
    SESSION.warn_once(
        "WN609",
        f"{how}. The operator is no step of a graph until its rule is true: see"
        " torch.library.register_fake.",
    )
    raise Untrue(how)
