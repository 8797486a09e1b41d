"""Registry of fixed kernels: calls of ATen that a graftjit kernel replaces, each by one launch.

Such a kernel is written once, in C++ (`matmul_f32.h`, `convolution.h` and others), and all programs
share it. It is compiled with the package (`libraries`), or built once per machine as a
library of its own. A module of `KERNELS` decides which calls its kernel `takes`, and gives the
arguments to `launch` it. `schedule` plans with `replaced`, the backend loads with `load`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from ...ir.graph.nodes import Node
from . import convolution, depthwise, libraries, matmul_bf16, matmul_f32
from .libraries import Loaded


class Kernel(Protocol):
    """What a module declares of its kernel: its name, its text, the calls that it takes, the
    tensors that it reads and its numbers, and the columns of a result that is given to an epilogue
    in tiles (0: no epilogue).
    """

    SYMBOL: str
    FILE: str

    def takes(self, node: Node) -> bool: ...
    def launch(self, node: Node) -> tuple[list[Node], tuple[Any, ...]]: ...
    def columns(self, node: Node) -> Any: ...


KERNELS: tuple[Kernel, ...] = (matmul_f32, matmul_bf16, convolution, depthwise)


def replaced(nodes: Iterable[Node]) -> dict[Node, Kernel]:
    """The calls among these that a kernel takes, with that kernel."""
    found = {}
    for node in nodes:
        for kernel in KERNELS:
            if kernel.takes(node):
                found[node] = kernel
    return found


def pairs(kernels: Iterable[Kernel]) -> list[tuple[str, str]]:
    """The (symbol, file) of each of these, once."""
    among = set(kernels)
    return [(one.SYMBOL, one.FILE) for one in KERNELS if one in among]


def load(kernels: Iterable[Kernel], covers: Sequence[str] = (), stored: bool = False) -> Loaded:
    """The libraries of these kernels; raises as `build.cxx.load` does."""
    return libraries.load(pairs(kernels), covers, stored)
