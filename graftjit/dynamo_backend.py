"""The backend of `torch.compile(model, backend="graftjit")`.

Dynamo captures and guards the program, and calls `backend` with each graph. The function of the
graph is jitted like one of the user: it has the same kernels, the same backward and the same store
of kernels. Dynamo finds this file by the package's entry point `torch_dynamo_backends`; nothing
else imports it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx._lazy_graph_module import _LazyGraphModule

from .dynamic import mark_dynamic
from .dynamo_lines import with_users_lines
from .jit import jit
from .runtime.guards.dynamic_sizes import MARK

# position of a tensor among the inputs -> its dimensions whose sizes vary
Varying = Mapping[int, Sequence[int]]


def backend(
    graph: torch.fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a graph of Dynamo.

    graph          its nodes call functions of torch, ATen's operators or modules
    inputs         an example of its inputs: tensors and numbers
    mode, options  those of `torch.compile`: see `graftjit.torch_keywords`

    Returns a function of the graph's inputs that gives its outputs, with gradients. It compiles at
    its first call. Raises OptionError (a ValueError) for a mode or options without a meaning here.
    """
    # Its function exists from then on.
    _LazyGraphModule.force_recompile(graph)
    run = jit(with_users_lines(graph), mode=mode, options=options)
    # fake tensors; a size that Dynamo has made symbolic is a SymInt
    seen = [node.meta.get("example_value") for node in graph.graph.find_nodes(op="placeholder")]
    varying = {at: dims for at, one in enumerate(seen) if (dims := _symbolic(one))}
    return _with_marks(run, varying) if varying else run


def _symbolic(value: Any) -> list[int]:
    """The dimensions of a tensor that have symbolic sizes."""
    shape = value.shape if isinstance(value, torch.Tensor) else ()
    return [dim for dim, size in enumerate(shape) if isinstance(size, torch.SymInt)]


def _with_marks(run: Callable[..., Any], varying: Varying) -> Callable[..., Any]:
    """The function, whose first call compiles it for sizes that vary."""
    met = False

    def call(*inputs: Any) -> Any:
        nonlocal met
        if met:
            return run(*inputs)
        met = True
        with _marked(inputs, varying):
            return run(*inputs)

    return call


@contextlib.contextmanager
def _marked(inputs: Sequence[Any], varying: Varying) -> Iterator[None]:
    """Mark sizes of these tensors, which are the program's, as varying for a while."""
    before = [(inputs[at], inputs[at].__dict__.get(MARK)) for at in varying]
    for at, dims in varying.items():
        mark_dynamic(inputs[at], dims)
    try:
        yield
    finally:
        for tensor, mark in before:
            if mark is None:
                tensor.__dict__.pop(MARK, None)
            else:
                setattr(tensor, MARK, mark)
