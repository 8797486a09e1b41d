"""The row type of the op table, and the table itself, empty: the modules of `ir.ops` fill it.

A row gives the result of an ATen operator: its result rule computes shape, dtype, strides and
offset exactly as eager does on that device. `rule(op, *args, **kwargs)` gets the OpOverload and the
operator's arguments, with a `Meta` in place of each tensor. It returns a Meta, or a tuple of them
(None: no tensor) for many results. For a bad call it raises the type of exception that torch would
raise (plain Python then raises the real one); for a case that it does not cover it raises `NoRule`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..dataclass import dataclass

Rule = Callable[..., Any]

KINDS = {
    "pointwise": "each element from the elements at the same place, with broadcasting",
    "view": "same memory, other sizes and strides",
    "create": "a new tensor from no tensor data",
    "copy": "same elements in another place, order or type",
    "reduction": "fewer elements: some dimensions folded",
    "scan": "same shape: each element from those before it along a dimension",
    "normalize": "softmax and the norms: a reduction and its pointwise use",
    "matmul": "products of matrices",
    "window": "convolutions and pools",
    "attention": "scaled dot product attention kernels",
    "index": "gathers and scatters",
    "join": "several tensors into one",
    "sort": "orders along a dimension",
    "loss": "losses",
    "random": "reads the random state",
    "check": "no result: raises, or does nothing",
}


@dataclass(frozen=True, slots=True)
class OpDef:
    """One operator.

    `mutates` is for arguments that the operator writes although its schema does not say so: a
    function (args, kwargs) -> positions of those arguments.
    """

    name: str
    kind: str
    rule: Rule
    mutates: Callable[[tuple[Any, ...], dict[str, Any]], tuple[int, ...]] | None = None


OPS: dict[str, OpDef] = {}


def rule(kind: str, names: str, mutates: Any = None) -> Callable[[Rule], Rule]:
    """Register a result rule for the named aten operators ("add.Tensor relu.default")."""

    def register(function: Rule) -> Rule:
        add_rows(kind, names, function, mutates)
        return function

    return register


def add_rows(kind: str, names: str, function: Rule, mutates: Any = None) -> None:
    """`rule` without a decorator, for families of operators that share one function."""
    if kind not in KINDS:
        raise ValueError(f"no such kind of operator: {kind}")
    for short in names.split():
        name = f"aten.{short}" if "." in short else f"aten.{short}.default"
        if name in OPS:
            raise ValueError(f"two rows for {name}")
        OPS[name] = OpDef(name, kind, function, mutates)
