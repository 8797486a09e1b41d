"""Extents: sizes that may be expressions, and what code generation decides about them without
guards.

A decision about *meaning* is taken only if it holds for every value (`positive`, `surely`). A
decision about *cost* uses `estimate`, which does not look at the sizes of the first call: the same
program gets the same kernels, whatever sizes it met first.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from typing import Any

import torch

from ...ir.graph.layout import is_dense
from ...ir.graph.nodes import Meta, Node
from ...ir.symbolic.expr import Expr, bounds_of, decided, is_symbolic, product, symbols_of

NOMINAL = 128  # the value assumed for an unknown size

# Values to try in turn where an expression has no value at the one before: the divisor of `600 //
# (n - 128)` is zero at 128.
NOMINALS = (NOMINAL, 8 * NOMINAL + 1, 64 * NOMINAL + 3, 1024 * NOMINAL + 7)


def estimate(value: Any) -> int:
    """A plain number for this size, for cost decisions."""
    if not isinstance(value, Expr):
        return int(value)
    bounds = {symbol.name: symbol.bounds() for symbol in symbols_of(value)}
    for nominal in NOMINALS:
        values = {name: int(min(max(nominal, low), high)) for name, (low, high) in bounds.items()}
        with contextlib.suppress(ArithmeticError, ValueError):  # divmod and roots raise these
            return int(value.evaluate(values))
    return NOMINAL


def estimated(values: Sequence[Any]) -> int:
    """The estimate of a product."""
    total = 1
    for value in values:
        total *= estimate(value)
    return total


def positive(shape: Sequence[Any]) -> bool:
    """Whether there is at least one element for all sizes."""
    return all(bounds_of(size)[0] > 0 for size in shape)


def surely(op: str, left: Any, right: Any) -> bool:
    """Whether `left <op> right` holds for every value of the symbols."""
    return decided(op, left, right) is True


def as_real(value: Any) -> Any:
    """A count as a floating operand: a plain number becomes a float, an expression stays."""
    return value if isinstance(value, Expr) else float(value)


def dense(meta: Meta) -> bool:
    """Whether the elements fill a block of memory without gaps, in some order of the dimensions,
    for all sizes.
    """
    shape, stride = meta.shape, meta.stride
    if not is_symbolic((shape, stride)):
        return is_dense(shape, stride)
    dims = [dim for dim in range(len(shape)) if shape[dim] != 1]
    dims.sort(key=lambda dim: (estimate(stride[dim]), -dim))
    expected: Any = 1
    for dim in dims:
        if stride[dim] != expected:
            return False
        expected = expected * shape[dim]
    return True


__all__ = [
    "as_real",
    "dense",
    "estimate",
    "estimated",
    "is_symbolic",
    "positive",
    "product",
    "surely",
]


# Bytes of a vector of torch's kernels on this processor; WIDEST: of the few with AVX-512.
VECTOR = 32
WIDEST = 64 if "AVX512" in torch.backends.cpu.get_cpu_capability() else VECTOR


def one_by_one(node: Node, vector: int = VECTOR) -> bool:
    """Whether eager's kernels on the CPU take the elements one by one.

    They do if fewer elements are adjacent, in each operand, than two vectors hold. Some operators
    then give other results where a nan or two zeros meet. In larger tensors eager's choice depends
    on the position of the element. If sizes are symbolic, this is not known (False).
    """
    meta, steps = node.meta, [node.meta.stride]
    rank = len(meta.shape)
    for one in (*node.args, *node.kwargs.values()):
        if isinstance(one, Node) and isinstance(one.meta, Meta):
            sizes, strides = one.meta.shape, one.meta.stride
            known = [0 if size == 1 else step for size, step in zip(sizes, strides, strict=True)]
            steps.append((*[0] * (rank - len(sizes)), *known))
    if meta.device.type != "cpu" or is_symbolic((meta.shape, steps)):
        return False
    dims = sorted((d for d in range(rank) if meta.shape[d] != 1), key=lambda d: meta.stride[d])
    if not dims or any(step[dims[0]] not in (0, 1) for step in steps):
        return True
    together = meta.shape[dims[0]]
    for inner, outer in itertools.pairwise(dims):
        if any(step[outer] != step[inner] * meta.shape[inner] for step in steps):
            break
        together *= meta.shape[outer]
    return bool(together < 2 * vector // meta.dtype.itemsize)


def in_vectors(node: Node) -> bool:
    """Whether eager's kernels on the CPU take most of a tensor by vectors."""
    return node.meta.device.type == "cpu" and not one_by_one(node)
