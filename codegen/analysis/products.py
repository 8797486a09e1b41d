"""Matrix products: the operators that are products, their factors and sizes, and their
measurements.

In: a node. Out: its factors, its sizes by letter, its name among measured products. Lowering,
fusion, kernels and tuning use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import torch

from ...ir.graph.nodes import Meta, Node

aten = torch.ops.aten

# operator -> (position of the left factor, dimensions of: left factor, right factor, result)
LETTERS: dict[Any, tuple[int, str, str, str]] = {
    aten.mm.default: (0, "mk", "kn", "mn"),
    aten.addmm.default: (1, "mk", "kn", "mn"),
    aten.bmm.default: (0, "bmk", "bkn", "bmn"),
    aten.baddbmm.default: (1, "bmk", "bkn", "bmn"),
    aten.mv.default: (0, "mk", "k", "m"),
    aten.addmv.default: (1, "mk", "k", "m"),
    aten.dot.default: (0, "k", "k", ""),
    aten.vdot.default: (0, "k", "k", ""),
}


def factors(node: Node) -> tuple[Node, Node]:
    """The two tensors that are multiplied."""
    first = LETTERS[node.target][0]
    return node.args[first], node.args[first + 1]


def sizes(node: Node) -> dict[str, Any]:
    """Letter -> size."""
    _first, left, right, _result = LETTERS[node.target]
    a, b = factors(node)
    return dict(zip(left, a.meta.shape, strict=True)) | dict(zip(right, b.meta.shape, strict=True))


# What measurement found, for the duration of one plan: product (`known_as`) -> whether our kernel
# is faster.
MEASURED: ContextVar[Mapping[str, bool] | None] = ContextVar("measured", default=None)


def known_as(node: Node) -> str:
    """All that the time of a product depends on, as text."""
    operands = [arg.meta if isinstance(arg, Node) else arg for arg in node.args]
    shown = [f"{m} {m.stride}" if isinstance(m, Meta) else repr(m) for m in operands]
    return f"{node.target}({', '.join(shown)}, {sorted(node.kwargs.items())})"


def measured(node: Node) -> bool | None:
    """Whether measurement found our kernel to be faster. None: not measured."""
    answers = MEASURED.get()
    return answers.get(known_as(node)) if answers else None


def work(found: Mapping[str, Any]) -> Any:
    """The number of multiplications."""
    return found.get("b", 1) * found.get("m", 1) * found.get("n", 1) * found["k"]
