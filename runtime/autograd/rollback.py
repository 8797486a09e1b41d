"""Programs whose frame Python runs again should they raise: what they have done by then is taken back.

An exception that comes when inputs were written already (memory that ran out, a fault of ours) is `Begun`: Python must not do it a
second time. Native programs tell that themselves, by the step that failed; `telling(program, positions)` is for others. `again(program,
graph)` has random numbers drawn anew, too. `unwriting(program, positions)` is for one
that runs the calls as the program wrote them: it gives inputs their values and versions back. Fused programs write late
instead (`ir.passes.defer_writes`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...ir.graph.nodes import Graph
from .. import _native
from ..errors import Begun
from . import rng_state as generators

Program = Callable[..., Any]


def again(program: Program, graph: Graph, raises: bool) -> Program:
    """The program, fit to be run again by Python; `raises`: an operator in it may raise because of its data."""
    if graph.random and raises:
        program = _drawing_anew(program, graph)
    return telling(program, graph.written) if graph.mutates else program


def _drawing_anew(program: Program, graph: Graph) -> Program:
    """The program; if it raises, the generators are as before."""
    devices = generators.drawn_from(graph)

    def run(*inputs: Any) -> Any:
        before = generators.states(devices)
        try:
            return program(*inputs)
        except BaseException:
            generators.put_back(before)
            raise

    return run


def begins(program: Program) -> Program:
    """The program; whatever it raises, it may have changed its inputs by then."""

    def run(*inputs: Any) -> Any:
        try:
            return program(*inputs)
        except Exception as error:
            raise Begun(error) from None

    return run


def telling(program: Any, written: Sequence[int]) -> Program:
    """The program; an exception after the first write is told apart."""
    if isinstance(program, _native.Program):
        program.tells_begun = True
        return program
    if getattr(program, "tells_begun", False):
        return program  # type: ignore[no-any-return]

    def run(*inputs: Any) -> Any:
        before = _versions(inputs, written)
        try:
            return program(*inputs)
        except Exception as error:
            if before != _versions(inputs, written):
                raise Begun(error) from None
            raise

    run.tells_begun = True  # type: ignore[attr-defined]
    return run


def _versions(inputs: Sequence[Any], positions: Sequence[int]) -> Any:
    """How often each has been written to. Tensors of inference mode do not count; nothing else may write to them."""
    with torch._C.DisableTorchFunction():
        try:
            return [inputs[at]._version for at in positions]
        except RuntimeError:
            return None if torch.is_inference_mode_enabled() else object()


def unwriting(program: Program, positions: Sequence[int]) -> Program:
    """The program; if it raises, the inputs at these positions are as before."""

    def run(*inputs: Any) -> Any:
        written = [inputs[at] for at in positions]
        with torch.no_grad(), torch._C.DisableTorchFunction():
            before = [one.detach().clone() for one in written]
            versions = [None if one.is_inference() else one._version for one in written]
        try:
            return program(*inputs)
        except BaseException:
            with torch.no_grad(), torch._C.DisableTorchFunction():
                for one, value, version in zip(written, before, versions, strict=True):
                    one.copy_(value)
                    if version is not None:
                        torch._C._autograd._unsafe_set_version_counter((one,), (version,))  # type: ignore[attr-defined]
            raise

    return run
