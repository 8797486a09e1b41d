"""The row type of THE op table, and the table itself, empty: the `rules_*` files fill it.

A row says what comes out of an ATen operator: its result rule gives shape, dtype, strides and offset exactly
as eager on that device gives them. `rule(op, *args, **kwargs)` gets the OpOverload and the operator's own
arguments with a `Meta` in place of each tensor, and returns a Meta, or a tuple of them (None: no tensor) for
many results. It raises what torch would raise for a bad call (the type is enough: plain Python will raise the
real one), or `NoRule` where it does not know.
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
}


@dataclass(frozen=True, slots=True)
class OpDef:
    """One operator. `mutates` names arguments that it writes although its schema does not say so: a function of
    the call's arguments, as (args, kwargs) -> positions."""

    name: str
    kind: str
    rule: Rule
    mutates: Callable[[tuple[Any, ...], dict[str, Any]], tuple[int, ...]] | None = None


OPS: dict[str, OpDef] = {}


def rule(kind: str, names: str, mutates: Any = None) -> Callable[[Rule], Rule]:
    """Register a result rule for the operators named ("add.Tensor relu.default", all of aten)."""

    def register(function: Rule) -> Rule:
        add_rows(kind, names, function, mutates)
        return function

    return register


def add_rows(kind: str, names: str, function: Rule, mutates: Any = None) -> None:
    """The same without a decorator: several families share one rule."""
    if kind not in KINDS:
        raise ValueError(f"no such kind of operator: {kind}")
    for short in names.split():
        name = f"aten.{short}" if "." in short else f"aten.{short}.default"
        if name in OPS:
            raise ValueError(f"two rows for {name}")
        OPS[name] = OpDef(name, kind, function, mutates)
