"""The builder of a nest's values, and `At`, the view that a lowering rule has of its node.

A rule is a function of an `At` (one node at one position of the iteration). It returns a `Scalar`,
or a tuple of them for an operator with several results: `Rule.results` casts each to the dtype of
its result. The other files of this package fill `RULES`. `fuse` uses `rule_for` to find out whether
a node can be part of a kernel.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...ir.dataclass import dataclass
from ...ir.graph.effects import reads
from ...ir.graph.nodes import Meta, Node
from ...ir.symbolic.expr import Expr, hint_of, is_symbolic, kind_of
from ..loops import affine
from ..loops.affine import Map
from ..loops.extents import surely
from ..loops.loop_nest import Index, Value, reached
from ..loops.operators import OPS
from ..loops.values import Values

Element = Callable[[Node, Map], int]
Fetch = Callable[[Node, Map, tuple[int, ...]], int]

aten = torch.ops.aten
# operators whose result is the same number everywhere
CONSTANTS = frozenset({
    aten.full.default, aten.full_like.default, aten.new_full.default, aten.scalar_tensor.default,
    aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default, aten.ones.default,
    aten.ones_like.default, aten.new_ones.default,
})  # fmt: skip


class Builder(Values):
    """The values of a nest that is made from nodes of a graph."""

    def __init__(self, axes: tuple[int, ...], n_outer: int, element: Element, fetch: Fetch) -> None:
        super().__init__()
        self.axes, self.n_outer, self.fetch = axes, n_outer, fetch
        self._element = element

    def element(self, node: Node, where: Map) -> int:
        """The value of a tensor's element; `fuse` decides whether it is computed here or loaded."""
        return self._element(node, affine.clean(where, node.meta.shape, self.axes))

    def index(self, form: Index, dtype: torch.dtype = torch.int64) -> int:
        """The value of a form: an int64; for a form without terms an int32, if the caller knows
        that it fits.
        """
        plain = Index(form.strides, form.offset)
        if not form.terms:
            return self.add(Value("index", (), dtype, plain))
        found = self.offset(form.terms)
        still = not any(plain.strides) and plain.offset == 0
        return found if still else self.apply("add", found, self.index(plain))

    def offset(self, terms: Sequence[tuple[int, int]]) -> int:
        """The sum of the terms of a form."""
        parts = [self.cast(part, torch.int64) for part in self.offsets(terms)]
        return functools.reduce(lambda a, b: self.apply("add", a, b), parts)

    def offsets(self, terms: Sequence[tuple[int, int]]) -> tuple[int, ...]:
        """The terms of a form, one value each: int64, or int32 if the rule gave an int32."""
        return tuple(
            number
            if factor == 1
            else self.apply("mul", number, self.const(factor, self.dtype(number)))
            for number, factor in terms
        )

    def inside(self, *bounds: tuple[Index, Any, Any]) -> int:
        """A bool for `load_if`: whether each form is in its [low, high)."""
        plain = tuple(bound for bound in bounds if not bound[0].terms)
        others: list[int] = []
        for form, low, high in bounds:
            if form.terms:
                place = self.index(form)
                others.append(self.apply("ge", place, self.const(low, torch.int64)))
                others.append(self.apply("lt", place, self.const(high, torch.int64)))
        return self.add(Value("inside", tuple(others), torch.bool, plain))

    def both(self, outer: int | None, inner: int) -> int:
        """The mask `inner`, where the mask `outer` holds too."""
        if outer is None or outer == inner:
            return inner
        one, other = self.values[outer], self.values[inner]
        if one.op == other.op == "inside":
            args, bounds = (
                tuple(dict.fromkeys((*a, *b)))
                for a, b in ((one.args, other.args), (one.attr, other.attr))
            )
            return self.add(Value("inside", args, torch.bool, bounds))
        return self.apply("and", outer, inner)

    def checked(self, number: int, low: Any, high: Any) -> int:
        """An int64 value that must be in [low, high); the kernel reports an error if it is not."""
        least, greatest = self.bounds(number)
        if surely(">=", least, low) and surely("<", greatest, high):
            return number
        return self.add(Value("checked", (number,), torch.int64, (low, high)))

    def with_checks(self, number: int, where: Map) -> int:
        """This value, which needs the checks of the positions in `where` too. A broadcast dimension
        or a constant is the same everywhere, so the value itself may not depend on them.
        """
        positions = [position for form in where for position, _factor in form.terms]
        if not positions:
            return number
        known = frozenset(reached(self.values, [number]))
        for check in reached(self.values, positions, known):
            if self.values[check].op == "checked":
                low = self.const(self.values[check].attr[0], torch.int64)
                number = self.apply("where", self.apply("ge", check, low), number, number)
        return number

    def bounds(self, number: int) -> tuple[Any, Any]:
        """Bounds of an integer value, both included; infinities if they are unknown."""
        value = self.values[number]
        if value.op == "const":
            return value.attr, value.attr
        if value.op == "index" and all(surely(">=", s, 0) for s in value.attr.strides):
            reach = sum(s * (n - 1) for s, n in zip(value.attr.strides, self.axes, strict=True))
            return value.attr.offset, value.attr.offset + reach
        if value.op == "cast" and not self.dtype(value.args[0]).is_floating_point:
            return self.bounds(value.args[0])
        if value.op == "load" and value.dtype == torch.uint8:
            return 0, 255
        return -math.inf, math.inf


def opmath(dtype: torch.dtype) -> torch.dtype:
    """The type that eager computes in for operands of this type."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


def _operator(op: str) -> Callable[[Scalar, Any], Scalar]:
    def apply(left: Scalar, right: Any) -> Scalar:
        builder, number = left.builder, left.number
        other = right.number if isinstance(right, Scalar) else builder.const(right, left.dtype)
        return Scalar(builder, builder.apply(op, number, other))

    return apply


def _reflected(op: str) -> Callable[[Scalar, Any], Scalar]:
    return lambda right, left: right.const(left).apply(op, right)


class Scalar:
    """A value of a nest while it is made: `x * y + 1.0` adds a product, a constant and a sum.

    The operators of `loops.operators.OPS` are methods (`x.exp()`, `a.maximum(b)`, `a.fma(b, c)`);
    those of arithmetic, comparison and bits are Python's, too. A number beside a value becomes a
    constant of the value's dtype. Operands are added before their operator, from left to right.
    """

    __slots__ = ("builder", "number")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, builder: Builder, number: int) -> None:
        self.builder, self.number = builder, number

    @property
    def dtype(self) -> torch.dtype:
        return self.builder.values[self.number].dtype

    def const(self, number: Any) -> Scalar:
        """A constant of this value's dtype."""
        return Scalar(self.builder, self.builder.const(number, self.dtype))

    def apply(self, op: str, *others: Any) -> Scalar:
        builder = self.builder
        numbers = [
            o.number if isinstance(o, Scalar) else builder.const(o, self.dtype) for o in others
        ]
        return Scalar(builder, builder.apply(op, self.number, *numbers))

    def __getattr__(self, op: str) -> Callable[..., Scalar]:
        if op not in OPS:
            raise AttributeError(op)
        return functools.partial(self.apply, op)

    def __bool__(self) -> bool:
        raise TypeError("a value is known only when the kernel runs")

    __add__, __radd__ = _operator("add"), _reflected("add")
    __sub__, __rsub__ = _operator("sub"), _reflected("sub")
    __mul__, __rmul__ = _operator("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _operator("div"), _reflected("div")
    __and__, __or__ = _operator("and"), _operator("or")
    __lt__, __le__, __gt__, __ge__ = map(_operator, ("lt", "le", "gt", "ge"))
    __eq__, __ne__ = map(_operator, ("eq", "ne"))  # type: ignore[assignment]

    def __neg__(self) -> Scalar:
        return self.apply("neg")

    def __abs__(self) -> Scalar:
        return self.apply("abs")

    def __invert__(self) -> Scalar:
        return self.apply("not")

    def where(self, value: Any, other: Any) -> Scalar:
        """`value` where this bool holds, elsewhere `other`. At most one of them is a number."""
        if not isinstance(value, Scalar):
            value = other.const(value)
        elif not isinstance(other, Scalar):
            other = value.const(other)
        return self.apply("where", value, other)

    def to(self, dtype: torch.dtype) -> Scalar:
        number = self.builder.cast(self.number, dtype)
        return self if number == self.number else Scalar(self.builder, number)

    def reduce(self, kind: str, dtype: torch.dtype | None = None) -> Scalar:
        return Scalar(self.builder, self.builder.reduce(kind, self.number, dtype))

    def scan(self, kind: str) -> Scalar:
        return Scalar(self.builder, self.builder.scan(kind, self.number))

    def checked(self, low: Any, high: Any) -> Scalar:
        """This int64, which must be in [low, high): see `Builder.checked`."""
        return Scalar(self.builder, self.builder.checked(self.number, low, high))


def argument(node: Node, position: int, name: str = "", default: Any = None) -> Any:
    """An argument by position or keyword."""
    return node.args[position] if position < len(node.args) else node.kwargs.get(name, default)


def first_meta(node: Node) -> Meta:
    """The metadata of the (first) result."""
    return node.meta if isinstance(node.meta, Meta) else node.meta[0]


@dataclass(slots=True)
class At:
    """One node at one position: `where` is the map of its (first) result."""

    builder: Builder
    node: Node
    where: Map

    @property
    def meta(self) -> Meta:
        return first_meta(self.node)

    @property
    def dtype(self) -> torch.dtype:
        return self.meta.dtype

    @property
    def math(self) -> torch.dtype:
        return opmath(self.dtype)

    def arg(self, position: int, name: str = "", default: Any = None) -> Any:
        """An argument by position or keyword."""
        return argument(self.node, position, name, default)

    def get(self, operand: Any, dtype: torch.dtype, through: torch.dtype | None = None) -> Scalar:
        """An operand's element (or a number) as `dtype`, first rounded to `through`."""
        builder = self.builder
        if isinstance(operand, Node):
            where = affine.broadcast(self.where, self.meta.shape, operand.meta.shape)
            number = builder.element(operand, where)
            if through is not None:
                number = builder.cast(number, through)
        else:
            number = builder.const(operand, through or dtype)
        return Scalar(builder, builder.cast(number, dtype))

    def operands(
        self, count: int, dtype: torch.dtype | None = None, through: torch.dtype | None = None
    ) -> list[Scalar]:
        """The first operands, see `get`; without a dtype in the type of the computation."""
        return [self.get(self.arg(i), dtype or self.math, through) for i in range(count)]

    def full(self, operand: Node, where: Map) -> Scalar:
        """An operand's element at the given map."""
        return Scalar(self.builder, self.builder.element(operand, where))

    def fetch(self, operand: Node, where: Map, *guard: Scalar) -> Scalar:
        """The element of a `Rule.far` operand at the given map. `guard`: (bool value, value where
        that is false).
        """
        numbers = tuple(value.number for value in guard)
        found = self.builder.fetch(operand, where, numbers)
        return Scalar(self.builder, self.builder.with_checks(found, where))

    def place(self, index: Scalar) -> Index:
        """The form that equals an int64 value."""
        return affine.at_value(index.number, len(self.builder.axes))

    def index(self, form: Index, dtype: torch.dtype = torch.int64) -> Scalar:
        """The value of a form: see `Builder.index`."""
        return Scalar(self.builder, self.builder.index(form, dtype))

    def inside(self, *bounds: tuple[Index, Any, Any]) -> Scalar:
        """A bool: whether each form is in its [low, high)."""
        return Scalar(self.builder, self.builder.inside(*bounds))

    def const(self, number: Any, dtype: torch.dtype | None = None) -> Scalar:
        return Scalar(self.builder, self.builder.const(number, dtype or self.math))


def over(expression: Callable[..., Scalar]) -> Callable[[At], Scalar]:
    """A rule from a function of the operator's own arguments: tensors are values in the type of
    the computation, other arguments are as they are.
    """

    def build(at: At) -> Scalar:
        kind = at.math
        args = [at.get(a, kind) if isinstance(a, Node) else a for a in at.node.args]
        return expression(*args, **at.node.kwargs)

    return build


def promoted(expression: Callable[..., Scalar]) -> Callable[[At], Scalar]:
    """A rule from a function of the operands, each first rounded to the result's dtype."""

    def build(at: At) -> Scalar:
        return expression(*(at.get(a, at.math, through=at.dtype) for a in at.node.args))

    return build


Dims = Callable[[Node], tuple[Node, tuple[int, ...], bool] | None]


def always(node: Node) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Rule:
    """How an operator is lowered.

    kind      "pointwise";
              "fold": a reduction, whose result is one value per row;
              "normalize": it reduces, and its (first) result is one value per element;
              "product": it reduces an iteration that is not that of an operand;
              "create": it needs no tensor data, and its result is never stored for others;
              "scatter": it stores at data-dependent positions, over a copy of its first operand
              (`far`) or of a constant; `build` returns (value, map of its position, how to merge)
    folds     for "fold" and "normalize": (operand, reduced dimensions, keepdim) of a node
    space     for "product" and "scatter": (sizes of the iteration, reduced dimensions) of a node
    when      a further condition
    rows      for an operator with several results: the indices of those that are one value per
              row
    every     a "pointwise" rule returns each result of the operator (else only the first one)
    far       operands that are read at positions which are not affine in the result's: they
              must be in memory
    near      the maps of the other operands, given the result's (None: they are broadcast to it)
    moves     it computes nothing: its readers may read its operands instead
    alone     whether a kernel of only this operator is better than ATen's (for this node)
    symbolic  which arguments may be expressions: "sizes" (all), "shape" (those in lists),
              "numbers" (operands), or none
    """

    build: Callable[[At], Any]
    kind: str = "pointwise"
    folds: Dims | None = None
    when: Callable[[Node], bool] = always
    rows: tuple[int, ...] = ()
    symbolic: str = ""
    far: Callable[[Node], tuple[Node, ...]] | None = None
    near: Callable[[Node, Map], list[tuple[Node, Map]]] | None = None
    alone: bool | Callable[[Node], bool] = True
    space: Callable[[Node], tuple[tuple[Any, ...], tuple[int, ...]]] | None = None
    every: bool = False
    moves: bool = False

    def results(self, at: At) -> tuple[int, ...]:
        """The numbers of the values of the results, each in the dtype of its result."""
        return self.cast(at, self.build(at))

    def cast(self, at: At, made: Scalar | tuple[Scalar, ...]) -> tuple[int, ...]:
        """The numbers of what `build` has made, each in the dtype of its result."""
        meta = at.node.meta
        values = made if isinstance(made, tuple) else (made,)
        metas = meta if isinstance(meta, tuple) else (meta,)
        cast = at.builder.cast
        return tuple([cast(v.number, m.dtype) for v, m in zip(values, metas, strict=False)])

    def is_better_alone(self, node: Node) -> bool:
        return self.alone if isinstance(self.alone, bool) else self.alone(node)


def first_operand(node: Node) -> tuple[Node, ...]:
    """`Rule.far` of an operator whose first operand is in memory."""
    return (node.args[0],)


def no_near(node: Node, where: Map) -> list[tuple[Node, Map]]:
    """`Rule.near` of an operator whose other operands are no tensors."""
    return []


RULES: dict[Any, Rule] = {}


def fill(when: Callable[[Node], bool], table: Mapping[Any, Any], **properties: Any) -> None:
    """Add rules that share a condition and other properties; a key is an operator or a tuple."""
    for key, build in table.items():
        for op in key if isinstance(key, tuple) else (key,):
            RULES[op] = Rule(build, when=when, **properties)


def scatters(node: Node) -> bool:
    """Whether a node of a kernel stores at data-dependent positions."""
    rule = RULES.get(node.target) if node.op == "call" else None
    return rule is not None and rule.kind == "scatter"


SUPPORTED = frozenset({
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.bool, torch.uint8,
    torch.int8, torch.int16, torch.int32, torch.int64,
})  # fmt: skip


def rule_for(node: Node) -> Rule | None:
    """The rule for a node, or None if it stays an ATen step."""
    if node.op != "call":
        return None
    rule = RULES.get(node.target)
    if rule is None or node.alias is not None:
        return None
    metas = [node.meta] if isinstance(node.meta, Meta) else list(node.meta or ())
    if not metas or not isinstance(metas[0], Meta):
        return None
    first = metas[0]
    for operand in reads(node):
        if not isinstance(operand.meta, Meta):
            return None
        metas.append(operand.meta)
    if not all(_fits(meta, first) for meta in metas if meta is not None):
        return None
    if is_symbolic((node.args, node.kwargs)) and not _takes_symbols(rule, node):
        return None
    return rule if rule.when(node) else None


def _takes_symbols(rule: Rule, node: Node) -> bool:
    """Whether the rule's arithmetic is correct for the expressions among the node's arguments.

    Numbers must have the value that eager gives them in a float or an int64; in narrower integers
    eager may refuse them.
    """
    if rule.symbolic == "sizes":
        return True
    if rule.symbolic == "shape":
        return not any(isinstance(value, Expr) for value in (*node.args, *node.kwargs.values()))
    others = {name: value for name, value in node.kwargs.items() if name != "alpha"}
    if rule.symbolic != "numbers" or is_symbolic((node.args[2:], others)):
        return False
    given = (*node.args, node.kwargs.get("alpha"))
    numbers = [value for value in given if isinstance(value, Expr)]
    operand = next(value for value in node.args if isinstance(value, Node))
    computed = result_type(operand, numbers[0])
    if any(kind_of(number) == "float" for number in numbers):
        return computed.is_floating_point
    return computed.is_floating_point or computed == torch.int64


def _fits(meta: Meta, first: Meta) -> bool:
    same = meta.device == first.device or (
        not meta.shape and meta.device.type == "cpu" == first.device.type
    )
    return meta.dtype in SUPPORTED and same


@functools.cache
def _sample(dtype: torch.dtype, zero_dim: bool) -> torch.Tensor:
    return torch.empty(() if zero_dim else (1,), dtype=dtype)


def result_type(*values: Any) -> torch.dtype:
    """torch's type promotion over operands (nodes and numbers)."""
    samples = [
        _sample(v.meta.dtype, not v.meta.shape) if isinstance(v, Node) else hint_of(v)
        for v in values
    ]
    return torch.result_type(*samples) if len(samples) == 2 else samples[0].dtype
