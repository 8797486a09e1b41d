"""Numbers read from tensors that are not known before the graph runs: `loss.item()`, `bool(bad)`.

In: a tensor of one element. Out: an unbound number (`values.symbolic_numbers`) that the graph reads
when it runs; None where the frame has to break. Python's number is built from the tensor that the
graph returns for it. A comparison of such numbers is computed by the graph, too: what it decides is
known at a branch (`raising_checks`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...ir.graph.schema import plan_of
from ...ir.symbolic.expr import Symbol, bounds_of, kind_of, symbols_of
from ...ir.symbolic.operators import OUTCOMES
from ...ir.symbolic.shape_env import COMPARED
from ...ir.trace.read_numbers import numbers_read, read_number
from ..values import symbolic_numbers
from ..values.symbolic_sizes import has_one_element
from ..values.value import Const, Sequence, Tensor, Value
from . import conditional, symbolic_math, value_questions

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_MOST_ITEMS = 16  # of a list
_WHOLE = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8})
_REAL = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})
_READ = _WHOLE | _REAL | {torch.bool}
_EXACT = 1 << 53  # ints up to this are floats


def number(m: Machine, value: Tensor, name: str) -> Value | None:
    """tensor.name(), for a name of `value_questions.NUMBERS`."""
    if name == "tolist":
        return _list(m, value)
    ghost = value.ghost
    if not may_read(m, value) or not has_one_element(m, ghost):
        return None
    if name in ("__bool__", "is_nonzero"):
        return truth(m, ghost)
    if ghost.dtype is torch.bool:
        return truth(m, ghost) if name == "item" else None
    if name == "item":
        return _read(m, ghost)
    if ghost.requires_grad:  # torch warns
        return None
    if name == "__int__":
        return symbolic_math.called(m, int, [_read(m, ghost)])
    if name == "__float__":
        return symbolic_math.called(m, float, [_read(m, ghost)])
    if name == "__index__" and ghost.dim() == 0 and ghost.dtype in _WHOLE:
        return _read(m, ghost)
    return None


def _list(m: Machine, value: Tensor) -> Value | None:
    """tensor.tolist() of a short tensor."""
    shape = value.ghost._node.meta.shape
    if not may_read(m, value):
        return None
    if any(type(size) is not int for size in shape):
        return conditional.listed(m, value) if m.rows_of else None
    if torch.Size(shape).numel() > _MOST_ITEMS or 0 in shape:
        return None
    return _listed(m, value.ghost)


def _listed(m: Machine, ghost: Any) -> Value:
    if ghost.dim() == 0:
        known = value_questions.constant(m, ghost)
        if known is not None:
            return Const(known)
        return truth(m, ghost) if ghost.dtype is torch.bool else _read(m, ghost)
    parts = m.tracer.run(torch.Tensor.unbind, (ghost,), where=m.users_line)
    return Sequence([_listed(m, part) for part in parts], list)


def may_read(m: Machine, value: Tensor) -> bool:
    """Whether the graph may read numbers of a tensor of one of these dtypes."""
    if m.inner or m.modes or m.varied.plain or not m.tracer.owns(value.ghost):
        return False
    if m.tracer.regions is not None or m.differentiating:
        return False
    return value.ghost.dtype in _READ and value.ghost.device.type in ("cpu", "cuda")


def _read(m: Machine, ghost: Any) -> Const:
    return symbolic_numbers.number(m, _symbol(m, ghost))


def _symbol(m: Machine, ghost: Any) -> Symbol:
    m.activity += 1
    m.numbers.give, m.numbers.compare = give_numbers, compared
    place = place_of(ghost)
    symbol = m.numbers.places.get(place)
    if symbol is None:
        held, symbol = read_number(m.tracer, ghost, m.users_line)
        m.numbers.read[symbol] = m.heap.tensor(held)
        if place is not None:
            m.numbers.places[place] = symbol
    return symbol


def truth(m: Machine, ghost: Any, what: str = "the truth of a tensor decides") -> Value:
    """bool(tensor)"""
    if ghost.dtype is not torch.bool:
        ghost = m.tracer.run(is_not_zero, (ghost,), where=m.users_line)
    symbol = _symbol(m, ghost)
    m.numbers.truths[symbol] = what
    return symbolic_numbers.SymbolicNumber(m, True, symbol)


def is_not_zero(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach() != 0


def _is_plain_trace(m: Machine) -> bool:
    """Whether numbers may be read here: in no trace of its own, which has other values."""
    return m.tracer is m.root_tracer and m.tracer.regions is None and not m.differentiating


def inverted(m: Machine, value: Any) -> Value:
    """`not value` of a truth value that the graph reads."""
    if not _is_plain_trace(m):
        symbolic_numbers.refuse("the truth of a tensor decides")
    return truth(m, m.tracer.run(torch.logical_not, (held_by(m, value).ghost,), where=m.users_line))


def as_tensor(m: Machine, value: Value) -> Value:
    """A truth value that the graph reads as the tensor that promotes like it."""
    if not _is_plain_trace(m):
        return value
    made = m.tracer.run(is_not_zero, (held_by(m, value).ghost,), where=m.users_line)
    return m.heap.tensor(made)


def held_by(m: Machine, value: Value) -> Any:
    """The tensor with the number, if this is a number that the graph reads as it is; else None."""
    if not isinstance(value, symbolic_numbers.SymbolicNumber) or value.looked:
        return None
    return _held(m, m.facts.form(value.expr))


def _held(m: Machine, expr: Any) -> Any:
    if not isinstance(expr, Symbol) or expr not in m.numbers.read:
        return None
    sized = len(m.facts.symbols[expr]) > 2
    return None if sized else m.numbers.read[expr]


def _computed(m: Machine, expr: Any) -> Any:
    """The tensor with a number, which the graph makes if the number is one that it has computed."""
    held = _held(m, expr)
    if held is not None or not _is_plain_trace(m):
        return held
    symbols = symbols_of(expr)
    if kind_of(expr) == "float":
        # Random numbers of Python are arguments of the program.
        if not isinstance(expr, Symbol) or not all(map(m.numbers.is_drawn, symbols)):
            return None
        return Tensor(m.tracer.run(_float_tensor, (expr,), where=m.users_line), torch.Tensor)
    for symbol in symbols:
        if m.facts.symbols[symbol][0] == "data" and symbol not in m.numbers.read:
            return None
        if symbol in m.numbers.called and not m.numbers.is_drawn(symbol):
            return None
    return Tensor(m.tracer.run(_number_tensor, (expr,), where=m.users_line), torch.Tensor)


def _number_tensor(number: Any) -> torch.Tensor:
    return torch.ops.aten.scalar_tensor.default(number, dtype=torch.int64)


def _float_tensor(number: Any) -> torch.Tensor:
    return torch.ops.aten.scalar_tensor.default(number, dtype=torch.float64)


def compared(m: Machine, symbol: str, left: Any, right: Any) -> Value | None:
    """A comparison of numbers, of which the graph reads one, as a truth value; None if torch would
    compare them otherwise than Python."""
    if symbolic_numbers.DRAWN in m.not_skipped and any(
        map(m.numbers.is_drawn, symbols_of((left, right)))
    ):
        return None
    sides = [one if type(one) in (int, float) else _computed(m, one) for one in (left, right)]
    kinds = {kind_of(left), kind_of(right)}
    if any(one is None for one in sides) or not _is_plain_trace(m):
        return None
    most = _EXACT if "float" in kinds else symbolic_numbers.WHOLE
    for one in (left, right):
        low, high = bounds_of(one) if kind_of(one) == "int" else (0, 0)
        if low < -most or high >= most:
            return None
    given = [one.ghost if isinstance(one, Tensor) else one for one in sides]
    if "float" in kinds:
        given = [float(one) if type(one) is int else one for one in given]
    made = m.tracer.run(_compared, (symbol, *given), where=m.users_line)
    certain = value_questions.certain(m, Tensor(made, torch.Tensor))
    if certain is not None:
        return Const(certain)
    drawn = any(map(m.numbers.is_drawn, symbols_of((left, right))))
    return truth(m, made, symbolic_numbers.DRAWN if drawn else COMPARED)


def _compared(symbol: str, left: Any, right: Any) -> torch.Tensor:
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        left, right = (
            one.to(torch.promote_types(left.dtype, right.dtype)) for one in (left, right)
        )
    elif isinstance(left, torch.Tensor):
        left = left.to(torch.float64) if type(right) is float else left
    else:
        right = right.to(torch.float64) if type(left) is float else right
    return OUTCOMES[symbol](left, right)  # type: ignore[return-value]


def place_of(ghost: Any) -> tuple[Any, ...] | None:
    """The same for views of the same elements: `t[0]` twice is one number of the graph. None for
    memory that the graph writes to."""
    if ghost._store.written:
        return None
    node, steps = ghost._node, list[Any]()
    while isinstance(node.target, torch._ops.OpOverload) and plan_of(node.target).kind == "view":
        base, *rest = node.args
        if node.kwargs or any(type(part) is not int for part in rest):
            break
        steps += (node.target, *rest)
        node = base
    return (node, *steps)


def give_numbers(m: Machine, outputs: list[Tensor]) -> None:
    """Add the tensors of numbers that the graph reads, and needs itself, to its outputs."""
    for ghost in numbers_read(m.tracer):
        value = next(value for value in m.numbers.read.values() if value.ghost is ghost)
        if value not in outputs:
            outputs.append(value)
