"""Tensors where torch wants a number: `x.add_(y, alpha=rate)`, `x.view(rows, -1)`.

In: such a call; torch would read the number from the tensor, which a graph cannot. Out: the same
sum with the factor as an operand, with torch's rounding (`by_tensor`); the tensors put together
(`of_tensors`); or the arguments with the tensors' numbers, which are known at capture or read by
the graph (`with_numbers`).
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ...ir.graph.effects import operands
from ...ir.symbolic.expr import bounds_of, symbols_of
from ...ir.trace.ghost import Ghost
from ...runtime.guards.sources import Source
from ..breaks import Break
from ..data_model import value_questions
from ..exact_type import is_kind
from ..values import symbolic_numbers
from ..values.registry import NONE, Args, Kwargs
from ..values.symbolic_numbers import SymbolicNumber
from ..values.value import Const, Obj, Tensor, Value, is_none

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

Record = Callable[..., Value]
# Kernels of these dtypes compute in float32, and do not round at the same places as separate steps.
NARROW = (torch.float16, torch.bfloat16)


def _plus(x: Any, other: Any, factor: Any) -> Any:
    """One fused multiply-add, as in the kernel of `add`."""
    return torch.addcmul(x, other, factor.to(x.dtype))


def _minus(x: Any, other: Any, factor: Any) -> Any:
    return _plus(x, other, -factor)


def _plus_product(x: Any, first: Any, second: Any, factor: Any) -> Any:
    return torch.addcmul(x, factor.to(x.dtype) * first, second)


def _plus_quotient(x: Any, above: Any, below: Any, factor: Any) -> Any:
    if x.dtype in NARROW:
        return (x.float() + factor.float() * above.float() / below.float()).to(x.dtype)
    return x + factor.to(x.dtype) * above / below


def _put(function: Any, x: Any, *others: Any) -> Any:
    return x.copy_(function(x, *others))


_WAYS = {
    "add": ("alpha", 2, _plus),
    "sub": ("alpha", 2, _minus),
    "addcmul": ("value", 3, _plus_product),
    "addcdiv": ("value", 3, _plus_quotient),
}


def by_tensor(m: Machine, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """The call's result, if one of its factors is a tensor and a rule exists, else None."""
    keyword, count, way = _WAYS.get(name.removesuffix("_"), ("", 0, None))
    factor = kwargs.get(keyword)
    if not isinstance(factor, Tensor) or len(kwargs) != 1 or len(args) != count:
        return None
    ghosts = [one.ghost for one in args if isinstance(one, Tensor)]
    kinds = {(one.dtype, one.device.type) for one in ghosts}
    if len(ghosts) != count or len(kinds) != 1 or not ghosts[0].is_floating_point():
        return None
    if ghosts[0].dtype in NARROW and way is not _plus_quotient:
        return None
    number = factor.ghost
    if number.dim() or number.requires_grad or number.is_complex() or number.dtype is torch.bool:
        return None
    if name.endswith("_"):
        return m.call(Obj(_put), [Obj(way), *args, factor], {})
    return m.call(Obj(way), [*args, factor], {})


# Functions that make a tensor of numbers.
MAKERS = frozenset({"tensor", "as_tensor"})


def of_tensors(m: Machine, name: str, args: Args, kwargs: Kwargs) -> Value:
    """`torch.tensor([a, 2, b])` with tensors of one element, as their stack.

    A break where the result has another dtype: torch checks whether each number fits.
    """
    kinds = [_dtype_in_a_list(one) for one in args[0].items]  # type: ignore[attr-defined]
    asked, device = kwargs.get("dtype", NONE), kwargs.get("device", Const("cpu"))
    if None not in kinds and len(args) == 1 and kwargs.keys() <= {"dtype", "device"}:
        dtype = functools.reduce(torch.promote_types, kinds)  # type: ignore[arg-type]
        if is_none(asked) or getattr(asked, "value", None) is dtype:
            return m.call(Obj(_stacked), [args[0], Const(dtype), device], {})
    raise Break("GB104", f"{name}: a Python value from tensor data")


def _dtype_in_a_list(value: Value) -> torch.dtype | None:
    """The dtype that an item of a list has for torch; None if it is no number."""
    if isinstance(value, Tensor):
        # torch warns of one that requires a gradient
        plain = not value.ghost.dim() and not value.ghost.requires_grad
        return value.ghost.dtype if plain else None
    if not isinstance(value, Const):
        return None
    dtypes = {bool: torch.bool, int: torch.int64, float: torch.get_default_dtype()}
    return dtypes.get(symbolic_numbers.type_of(value))


def _stacked(items: Any, dtype: Any, device: Any) -> Any:
    parts = [
        one.to(dtype).to(device)
        if isinstance(one, torch.Tensor)
        else torch.tensor(one, dtype=dtype, device=device)
        for one in items
    ]
    return torch.stack(parts)


# Functions that take no tensor but the one that they are methods of.
_OF_NUMBERS = frozenset(
    {
        "view", "reshape", "expand", "repeat", "tile", "as_strided", "unflatten", "narrow", "split",
        "chunk", "select", "unsqueeze", "tril", "triu", "diagonal", "roll", "new_zeros", "new_ones",
        "new_empty", "new_full", "zeros", "ones", "empty", "full", "eye", "rand", "randn",
        "randint", "randperm", "arange", "linspace", "logspace",
    }
)  # fmt: skip


# Operators that take a tensor without dimensions as an index. One of these dtypes is a mask: it
# picks all or nothing, of a dimension that it adds.
_OF_ITEMS = (operator.getitem, operator.setitem)
_MASKS = (torch.bool, torch.uint8)


def once_more(
    m: Machine, record: Record, fn: Any, args: Any, kwargs: Any, may_fail: bool
) -> Value | None:
    """The result, by `calls.record`, of a call that needs to know tensor data.

    By numbers in place of the tensors that torch would read: those are sizes, and arguments of
    functions that take numbers only. Without any, by requiring sizes that are usual. Else None.
    """
    open_numbers = _with_numbers(m, fn, args, kwargs, of_sizes=False)
    if open_numbers is None:
        usual = _are_usual(m, args, kwargs)
        return record(m, fn, args, kwargs, may_fail) if usual else None
    try:
        return record(m, fn, *open_numbers, may_fail)
    except Break:
        bound = _with_numbers(m, fn, args, kwargs, of_sizes=True)
        if bound is None:
            raise
    return record(m, fn, *bound, may_fail)


def _with_numbers(
    m: Machine, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], of_sizes: bool
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Such arguments. `of_sizes`: with the values that follow from sizes alone, as constants."""
    found: list[Const] = []
    asked = 0
    direct = getattr(fn, "__name__", "") in _OF_NUMBERS
    of_items = fn in _OF_ITEMS
    method = int(type(fn) is types.MethodDescriptorType)

    def number(one: Any) -> Any:
        nonlocal asked
        if not is_kind(one, Ghost) or one.dim() != 0:
            return one
        asked += 1
        value = m.heap.tensor(one)
        answer: Value | None = None
        if of_items and one.dtype in _MASKS:
            known = value_questions.number(m, value, "__bool__", asked)
            if type(known) is not Const:
                return one
            found.append(known)
            return known.value
        if one.dtype is torch.bool:  # torch refuses it as a size
            return one
        if of_sizes:
            answer = value_questions.of_sizes(m, value)
        useful = answer is not None or not of_sizes
        if answer is None:
            name = "item" if one.is_floating_point() else "__index__"
            answer = value_questions.number(m, value, name, asked)
        if not isinstance(answer, Const):
            return one
        if useful:
            found.append(answer)
        if isinstance(answer, SymbolicNumber):
            return symbolic_numbers.argument(m, answer)
        return answer.value

    def converted(one: Any, direct: bool) -> Any:
        if type(one) is tuple or (type(one) is list and not of_items):
            return type(one)([number(part) for part in one])
        return number(one) if direct else one

    new_args = tuple([converted(one, direct and at >= method) for at, one in enumerate(args)])
    new_kwargs = {key: converted(one, direct) for key, one in kwargs.items()}
    return (new_args, new_kwargs) if found else None


def data_decide(m: Machine, args: tuple[Any, ...]) -> bool:
    """Whether some size of these tensors is known only when the graph runs."""
    return m.facts.from_data([one._node.meta for one in operands(args, Ghost)])


def _are_usual(m: Machine, args: Any, kwargs: Any) -> bool:
    """Require that no size which data decide is 0 or 1, for which torch has rules of their own;
    False if nothing new is required."""
    if m.inner or m.modes or m.tracer is not m.root_tracer or not m.facts.may_require():
        return False
    if not m.varied.usual():
        return False
    found = False
    shapes = [one._node.meta.shape for one in operands((args, kwargs), Ghost)]
    for symbol in symbols_of(m.facts.form(shapes)):
        origin = m.facts.symbols[symbol]
        if origin[0] == "data" and len(origin) > 2 and bounds_of(symbol)[0] < 2:
            found |= m.facts.require(">=", symbol, 2, usual=True)
    if found:
        m.guard("equals", Source("context", None, m.varied.usual), True)
    return found
