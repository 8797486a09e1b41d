"""Symbolic numbers for torch: `torch.SymInt`, `SymFloat` and `SymBool` over a Python object.

Ghosts of symbolic size carry SymInts, so that torch's own C++ computes with them; its comparisons
ask the facts of the trace (`ir.symbolic.shape_env`). `to_torch` and `from_torch` convert
expressions to torch's numbers and back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .expr import Expr, apply, greatest, is_handy, is_symbolic, kind_of, made
from .shape_env import Facts


class SymNode:
    """One number (`value`: an expression) or truth value (`value`: an op and two expressions)."""

    __slots__ = ("facts", "kind", "value")

    def __init__(self, value: Any, facts: Facts, kind: str | None = None) -> None:
        self.value, self.facts = value, facts
        self.kind = kind or kind_of(value)

    # -- what it is
    def is_int(self) -> bool:
        return self.kind == "int"

    def is_float(self) -> bool:
        return self.kind == "float"

    def is_bool(self) -> bool:
        return self.kind == "bool"

    def is_symbolic(self) -> bool:
        return is_symbolic(self.value)

    def is_constant(self) -> bool:
        return not self.is_symbolic()

    def is_nested_int(self) -> bool:
        return False

    def has_hint(self) -> bool:
        return True

    def nested_int(self) -> None:
        return None

    def _plain(self, kind: str) -> Any:
        return self.value if self.kind == kind and not self.is_symbolic() else None

    def maybe_as_int(self) -> int | None:
        return self._plain("int")

    def maybe_as_float(self) -> float | None:
        return self._plain("float")

    def maybe_as_bool(self) -> bool | None:
        return self.bool_() if self.kind == "bool" and not self.is_symbolic() else None

    constant_int, constant_bool = maybe_as_int, maybe_as_bool

    def clone(self) -> SymNode:
        return self

    def str(self) -> str:
        return f"{self.value}"

    _graph_repr = __repr__ = str

    # -- conversion of plain operands
    def _wrap(self, value: Any) -> SymNode:
        return SymNode(value if is_handy(value) else self.facts.pin(value), self.facts)

    wrap_int = wrap_float = _wrap

    def wrap_bool(self, value: bool) -> SymNode:
        return SymNode(("==", int(value), 1), self.facts, "bool")

    # -- comparisons and plain values
    def _pin(self, *_: Any) -> Any:
        if self.kind == "bool":
            return self.bool_()
        return self.facts.pin(self.value)

    int_ = guard_int = guard_float = _pin

    def bool_(self, *_: Any) -> bool:
        op: str
        left: Any
        right: Any
        op, left, right = self.value if self.kind == "bool" else ("!=", self.value, 0)
        if op in ("and", "or"):
            return left.bool_() and right.bool_() if op == "and" else left.bool_() or right.bool_()
        return self.facts.ask(op, left, right)

    def statically_known_true(self, *_: Any) -> bool:
        """Whether it is true without a guard."""
        if self.kind != "bool" or self.value[0] in ("and", "or"):
            return False
        return self.facts.known(*self.value) is True

    def _without_asking(self) -> bool | None:
        """The truth value; None for one of numbers from tensor data that is not known."""
        if self.kind != "bool":
            return self.bool_()
        op, left, right = self.value
        if op in ("and", "or"):
            answers = left._without_asking(), right._without_asking()
            ends = op == "or"
            return ends if ends in answers else None if None in answers else not ends
        if not self.facts.from_data((left, right)):
            return self.bool_()
        return self.facts.known(op, left, right)

    def guard_or_false(self, *_: Any) -> bool:
        """Torch asks this where either answer is right."""
        return self._without_asking() is True

    def guard_or_true(self, *_: Any) -> bool:
        """As `guard_or_false`."""
        return self._without_asking() is not False

    guard_bool = guard_size_oblivious = bool_
    expect_true = expect_size = bool_

    def sym_not(self) -> SymNode:
        return self.wrap_bool(not self.bool_())

    def and_(self, other: SymNode) -> SymNode:
        return SymNode(("and", self, other), self.facts, "bool")

    def or_(self, other: SymNode) -> SymNode:
        return SymNode(("or", self, other), self.facts, "bool")

    sym_and, sym_or = and_, or_

    # -- unary operators
    def neg(self) -> SymNode:
        return self._wrap(made("neg", self.value))

    def pos(self) -> SymNode:
        return self

    def abs(self) -> SymNode:
        return self._wrap(abs(self.value))

    def sym_float(self) -> SymNode:
        return self._wrap(apply("float", self.value))

    def sym_int(self) -> SymNode:
        return self._wrap(apply("int", self.value))

    trunc = sym_int

    def floor(self) -> SymNode:
        return self._wrap(apply("floor", self.value))

    def ceil(self) -> SymNode:
        return self._wrap(apply("ceil", self.value))

    # -- memory formats
    def is_contiguous(self, sizes: list[SymNode], strides: list[SymNode]) -> SymNode:
        return self._in_order(sizes, strides, range(len(sizes) - 1, -1, -1))

    def is_channels_last_contiguous_2d(
        self, sizes: list[SymNode], strides: list[SymNode]
    ) -> SymNode:
        return self._in_order(sizes, strides, (1, 3, 2, 0))

    def is_channels_last_contiguous_3d(
        self, sizes: list[SymNode], strides: list[SymNode]
    ) -> SymNode:
        return self._in_order(sizes, strides, (1, 4, 3, 2, 0))

    def is_channels_last_strides_2d(self, sizes: list[SymNode], strides: list[SymNode]) -> SymNode:
        return self._last(sizes, strides, (1, 3, 2, 0))

    def is_channels_last_strides_3d(self, sizes: list[SymNode], strides: list[SymNode]) -> SymNode:
        return self._last(sizes, strides, (1, 4, 3, 2, 0))

    def is_non_overlapping_and_dense(self, sizes: list[SymNode], strides: list[SymNode]) -> SymNode:
        order = sorted(range(len(sizes)), key=lambda d: _hint(strides[d]))
        return self._in_order(sizes, strides, [d for d in order if _hint(sizes[d]) != 1])

    def _in_order(self, sizes: list[SymNode], strides: list[SymNode], order: Any) -> SymNode:
        """Whether the elements fill their memory, with the first dimension of `order` innermost."""
        ask, expected, dense = self.facts.ask, 1, True
        order = list(order)
        if len(order) > len(sizes):
            return self.wrap_bool(False)
        for d in order:
            alike = self.facts.known("==", strides[d].value, expected)
            if alike and self.facts.from_data(sizes[d].value):  # whether it is 1 or not
                expected = expected * greatest(sizes[d].value, 1)
                continue
            if ask("==", sizes[d].value, 1):
                continue
            if not ask("==", strides[d].value, expected):
                dense = False
                break
            expected = expected * sizes[d].value
        return self.wrap_bool(dense or any(ask("==", size.value, 0) for size in sizes))

    def _last(self, sizes: list[SymNode], strides: list[SymNode], order: Any) -> SymNode:
        """c10's is_channels_last_strides: channels innermost, strides grow in this order."""
        ask, least = self.facts.ask, 0
        if len(order) != len(sizes) or ask("==", strides[1].value, 0):
            return self.wrap_bool(False)
        for d in order:
            size, stride = sizes[d].value, strides[d].value
            if ask("==", size, 0) or ask("<", stride, least):
                return self.wrap_bool(False)
            if d == 0 and ask("==", least, strides[1].value):
                return self.wrap_bool(False)
            least = stride
            if ask(">", size, 1):
                least = least * size
        return self.wrap_bool(True)


def _hint(node: SymNode) -> Any:
    return node.value.hint if isinstance(node.value, Expr) else node.value


def _computes(op: str) -> Callable[[SymNode, SymNode], SymNode]:
    return lambda a, b: SymNode(made(op, a.value, b.value), a.facts)


def _compares(op: str) -> Callable[[SymNode, SymNode], SymNode]:
    def compare(a: SymNode, b: SymNode) -> SymNode:
        left, right = (n.value if n.kind != "bool" else int(n.bool_()) for n in (a, b))
        return SymNode((op, left, right), a.facts, "bool")

    return compare


# torch's names for the operations of expressions
for _names, _op in {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv float_truediv int_truediv": "truediv",
    "floordiv int_floordiv": "floordiv",
    "mod": "mod",
    "pow float_pow pow_by_natural": "pow",
    "sym_min": "min",
    "sym_max": "max",
}.items():
    for _name in _names.split():
        setattr(SymNode, _name, _computes(_op))
for _name, _op in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
    setattr(SymNode, _name, _compares(_op))


def to_torch(value: Any, facts: Facts) -> Any:
    """torch's number for an expression; plain numbers stay as they are."""
    if not isinstance(value, Expr):
        return value
    node = SymNode(value, facts)
    return torch.SymInt(node) if value.kind == "int" else torch.SymFloat(node)


def from_torch(value: Any) -> Any:
    """The expression of one of torch's numbers; for a SymBool the answer of the trace."""
    node = value.node
    if not isinstance(node, SymNode):
        raise TypeError(f"a symbolic number of another trace: {value}")
    return node.bool_() if node.kind == "bool" else node.facts.form(node.value)


SYMBOLIC = frozenset({torch.SymInt, torch.SymFloat, torch.SymBool})
