"""Saved-tensor hooks of the program (`torch.autograd.graph.saved_tensors_hooks`, `save_on_cpu`,
`torch.utils.checkpoint`) around compiled programs.

While such hooks are active, autograd passes each tensor that a node saves to the program's `pack`,
and what `pack` returned to its `unpack` when a backward needs the tensor. The nodes of
`runtime.autograd.joint_program` save their tensors through autograd, so the hooks see these
tensors; `Packed` passes to the hooks what a node keeps by other means. A backward
program reads memory in a fixed layout: `restored` gives that layout to what `unpack` returns.

A hook may raise (checkpoint ends a recomputation so, from within `pack`). In eager mode this
happens between two operators, so what comes after has no effects, and handlers around the operator
run. A frame whose effects can be seen, or with such a handler, runs as written while hooks are
active (`exact`).
"""

from __future__ import annotations

import functools
import traceback
import types
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from ...ir.graph.nodes import Graph
from ..errors import GraftError, ObservedSaving

_top = torch._C._autograd._top_saved_tensors_default_hooks
_hold = torch._C._autograd._saved_tensors_hooks_set_tracing  # type: ignore[attr-defined]
Pair = tuple[Callable[[Any], Any], Callable[[Any], Any]]
# Shape, dtype, device and strides of a tensor.
Layout = tuple[Any, ...]


# (pack, unpack) of the innermost hooks, if hooks are active on this thread.
active: Callable[[], Pair | None] = functools.partial(_top, True)


class Made(Protocol):
    """A captured frame: its graph, the program as it was compiled, and whether Python may run the
    frame if the program raises."""

    graph: Graph | None
    program: Callable[..., Any]
    rerun: bool


def exact(program: Callable[..., Any], made: Made, observed: bool) -> Callable[..., Any]:
    """The program, which raises `ObservedSaving` while hooks are active if they would see effects
    in another order than in eager mode, or would not see what is saved: Python runs the frame.
    `observed`: the frame has effects, or handles what a hook raises."""
    graph = made.graph
    if graph is None or not made.rerun or not (graph.needs_grad or graph.spends):
        return program
    seen = observed or graph.mutates or graph.spends
    if not seen and getattr(made.program, "packs", False):
        return program

    def run(*inputs: Any) -> Any:
        if _top(True) is not None and torch.is_grad_enabled():
            raise ObservedSaving
        return program(*inputs)

    run.tells_begun = getattr(program, "tells_begun", False)  # type: ignore[attr-defined]
    return run


def without(work: Callable[..., Any], *args: Any) -> Any:
    """work(*args) without hooks."""
    before = _hold(True)
    try:
        return work(*args)
    finally:
        _hold(before)


def raised_by(error: BaseException, forward: types.CodeType) -> bool:
    """Whether a call of a node raised this after its forward: autograd called `pack`. `forward`:
    the code of the forward, in which all other exceptions are raised."""
    frames = traceback.walk_tb(error.__traceback__)
    return all(frame.f_code is not forward for frame, _ in frames)


# -- what a node keeps beside the saved tensors


class Packed:
    """A tensor in the form that `pack` returned, with its place in autograd's graph."""

    __slots__ = ("_packed", "_place", "_unpack")

    def __init__(self, tensor: torch.Tensor, hooks: Pair) -> None:
        pack, self._unpack = hooks
        self._place = None
        if tensor.requires_grad:
            with torch.enable_grad():
                self._place = _Place.apply(tensor)
        self._packed = pack(tensor.detach())

    def tensor(self) -> torch.Tensor:
        """The tensor with its history."""
        tensor: torch.Tensor = self._unpack(self._packed)
        if self._place is None:
            return tensor
        with torch.enable_grad():
            return _At.apply(self._place, tensor)  # type: ignore[no-any-return]


class _Place(torch.autograd.Function):
    """A tensor without memory of its own that has the history of the argument."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.new_empty(()).expand(tensor.shape)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class _At(torch.autograd.Function):
    """The second argument's memory with the history of the first."""

    @staticmethod
    def forward(ctx: Any, place: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


# -- what a backward program reads


def layouts(tensors: Sequence[torch.Tensor | None]) -> list[Layout | None]:
    """The layouts of tensors that are saved while hooks are active."""
    return [None if one is None else _layout(one) for one in tensors]


def _layout(tensor: torch.Tensor) -> Layout:
    return tensor.shape, tensor.dtype, tensor.device, tensor.stride()


def restored(tensors: Sequence[Any], before: Sequence[Layout | None]) -> list[Any]:
    """What `unpack` returned, in the layouts in which the tensors were saved. Raises GraftError
    for another shape, dtype or device."""
    return [
        one if one is None or layout is None else _restored(one, layout)
        for one, layout in zip(tensors, before, strict=True)
    ]


def _restored(tensor: torch.Tensor, layout: Layout) -> torch.Tensor:
    shape, dtype, device, stride = layout
    if (tensor.shape, tensor.dtype, tensor.device) != (shape, dtype, device):
        raise GraftError(
            "a tensor that a compiled part had saved came back changed from an unpack hook, or has"
            " changed since",
            expected=f"{dtype} {list(shape)} on {device}",
            found=f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}",
            todo="return a tensor of the same shape, dtype and device from the hook, and leave the"
            " weights that a checkpoint reads as they are until the backward",
        )
    if tensor.stride() == stride:
        return tensor
    return torch.empty_strided(shape, stride, dtype=dtype, device=device).copy_(tensor)
