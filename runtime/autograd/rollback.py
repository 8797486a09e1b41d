"""Undoing the effects of a program that raises, since Python then runs its frame again.

If the exception comes after an input was written (out of memory, an internal error), it is raised
as `Begun`, and Python does not run the frame again. Native programs detect that themselves, by the
step that failed; `telling(program, positions)` adds it to other programs. `again(program, graph)`
also restores the random generators. `unwriting(program, positions)` is for programs that run the
recorded calls: it restores values and version counters of inputs. Fused programs defer their writes
instead (`ir.passes.defer_writes`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...ir.graph.nodes import Graph
from .. import _native
from ..errors import Begun
from . import rng_state

Program = Callable[..., Any]


def again(program: Program, graph: Graph, raises: bool) -> Program:
    """The program in a form that Python may run again. `raises`: an operator in it may raise
    because of its data."""
    if graph.random and raises:
        program = _drawing_anew(program, graph)
    return marking_begun(program, graph.written) if graph.mutates else program


def _drawing_anew(program: Program, graph: Graph) -> Program:
    """The program, which restores the random generators if it raises."""
    devices = rng_state.drawn_from(graph)

    def run(*inputs: Any) -> Any:
        before = rng_state.states(devices)
        try:
            return program(*inputs)
        except Begun:
            raise
        except BaseException:
            rng_state.put_back(before)
            raise

    return run


def begins(program: Program) -> Program:
    """The program, whose exceptions are all `Begun`: it may have changed its inputs."""

    def run(*inputs: Any) -> Any:
        try:
            return program(*inputs)
        except Exception as error:
            raise Begun(error) from None

    return run


def unless_marked(program: Program) -> Program:
    """`begins(program)`, or the program itself if it raises `Begun` where it has to."""
    return program if getattr(program, "tells_begun", False) else begins(program)


def marking_begun(program: Any, written: Sequence[int]) -> Program:
    """The program, whose exceptions after the first write are `Begun`."""
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
    """The version counters of these inputs. Inference tensors have none, and may be written to only
    in inference mode."""
    with torch._C.DisableTorchFunction():
        try:
            return [inputs[at]._version for at in positions]
        except RuntimeError:
            return None if torch.is_inference_mode_enabled() else object()


def unwriting(program: Program, positions: Sequence[int]) -> Program:
    """The program, which restores the inputs at these positions if it raises."""

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
                        torch._C._autograd._unsafe_set_version_counter(  # type: ignore[attr-defined]
                            (one,), (version,)
                        )
            raise

    return run
