"""Symbolic numbers: sizes, and Python ints and floats from outside that may vary between calls.

In: numbers read at Sources, sizes of ghosts, and operations on them. Out: `SymbolicNumber`
values, which have an expression (`ir.symbolic.expr`) in addition to the number at capture. Moves,
arithmetic and comparisons use the expression; a read of `.value`, as of any constant, binds the entry to the
number (a guard). A number that nothing depends on is not guarded; if it leaves the frame, the
replacement code computes it. A number from outside may enter the graph or decide a comparison as a
symbol once it was seen to vary (`runtime.guards.dynamic_sizes`); before that, these uses bind it as
well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from ...ir.graph.nodes import Graph
from ...ir.symbolic.expr import (
    OPS,
    SIGNS,
    Expr,
    Symbol,
    bounds_of,
    fold,
    is_handy,
    kind_of,
    made,
    symbols_of,
)
from ...ir.symbolic.symnode import SYMBOLIC, from_torch
from ...runtime.guards.dynamic_sizes import LIMIT
from ...runtime.guards.relations import compiled as row_of
from ...runtime.guards.relations import row_name
from ...runtime.guards.rows import Row
from ...runtime.guards.sources import Source
from .. import helpers
from ..breaks import Break, Restart
from .value import Const, Sequence, Tensor, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_COMPUTED = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod"}
_SPECIAL = {"**": "pow", "<<": "mul", ">>": "floordiv", "&": "and", "|": "or", "^": "xor"}
_NUMBERS = (int, float)
_KEYS = 32  # the most keys that a number is compared with one by one
DRAWN = "a comparison of a random number decides"
WHOLE = 1 << 63  # guards and programs use ints of 64 bits


class SymbolicNumber(Const):
    """A number with its expression.

    `looked`: the entry is bound to its value; `real`: the value at capture.
    """

    __slots__ = ("_machine", "expr", "looked", "real")

    def __init__(self, m: Machine, real: Any, expr: Any, source: Source | None = None) -> None:
        self._machine, self.real, self.expr, self.source = m, real, expr, source
        self.looked = False

    @property
    def value(self) -> Any:  # type: ignore[override]
        if not self.looked:
            _refuse_data(self._machine, self.expr)
            self.looked = True
            _bind(self._machine, self)
        return self.real

    def may_vary(self) -> bool:
        """Whether a comparison of it may be a guard that leaves the number open."""
        return is_number(self) and _may_vary(self._machine, self)

    def is_among(self, keys: list[Value]) -> bool | None:
        """Whether it equals one of these plain numbers; guards hold the answers.

        None if that needs a plain number.
        """
        plain = all(type(one) is Const and type(one.value) in _NUMBERS for one in keys)
        if not plain or len(keys) > _KEYS:
            return None
        answers = [compared(self._machine, "==", self, one) for one in keys]
        known = [one.value for one in answers if isinstance(one, Const)]
        return any(known) if len(known) == len(keys) else None


class _Numbers:
    """A machine's symbolic numbers: `held` by source; `varying`: symbols that may stay symbolic."""

    def __init__(self) -> None:
        self.held: dict[Source, SymbolicNumber] = {}
        # for each number that the graph reads from a tensor, the tensor
        self.read: dict[Symbol, Tensor] = {}
        # the number of each place in memory that it reads and nothing has written to
        self.places: dict[Any, Symbol] = {}
        # the positions, by dimension, of the elements that such a mask selects
        self.masks: dict[Any, tuple[Any, ...]] = {}
        # how many elements of such a tensor are not zero
        self.counts: dict[Any, Any] = {}
        # for each truth value among them, the reason of the break where it decides
        self.truths: dict[Symbol, str] = {}
        # (machine, comparison, side, side) of numbers that the graph reads -> its truth, as another
        # such number, or None
        self.compare: Callable[[Machine, str, Any, Any], Value | None] = lambda *_: None
        # for each size of `nonzero(mask)`, the mask
        self.counted: dict[Symbol, Any] = {}
        # (machine, the tensor that holds a truth value) -> its truth before the graph, or None
        self.answer: Callable[[Machine, Any], bool | None] = lambda *_: None
        # results of functions that replacement code calls (see `operations.called_numbers`)
        self.called: dict[Symbol, SymbolicNumber] = {}
        # those of them that are random numbers, which are drawn before the program
        self.drawn: set[Symbol] = set()
        # adds these tensors to the outputs of the graph
        self.give: Callable[[Machine, list[Tensor]], None] = lambda m, outputs: None
        self.varying: set[Symbol] = set()
        self.sealed = False

    def is_drawn(self, symbol: Symbol) -> bool:
        """Whether this is a random number of Python."""
        return symbol in self.drawn


def rows(m: Machine) -> list[Row]:
    """All guard rows, with those on numbers in their final form."""
    facts, held = m.facts, m.numbers.held
    for value in held.values():
        if not value.looked and value.expr is not None and facts.settled(value.expr):
            where = facts.pinned.get(value.expr) or m.where
            m.guards.rows[("held", value.source, None)] = Row(
                "equals", value.source, value.real, where
            )
    values = [row for row in m.guards.rows.values() if row.kind == "value"]  # last: they cost most
    made = [row for row in m.guards.rows.values() if row.kind != "value"]
    for relation in facts.relations:
        symbols = symbols_of((relation.left, relation.right))
        if all(facts.symbols[s][0] == "number" and facts.settled(s) for s in symbols):
            # The numbers' own rows cover it.
            continue
        made.append(
            Row("relation", None, row_of(relation, lambda s: _place(facts, s)), relation.where)
        )
    return made + values


def _place(facts: Any, symbol: Symbol) -> tuple[str, Source, int]:
    origin = facts.symbols[symbol]
    return (origin[0], origin[1], origin[2] if len(origin) > 2 else 0)


def descriptions(m: Machine, graph: Graph) -> list[tuple[str, str]]:
    """(size or number, reason) for each symbol of a graph from outside, for the report."""
    found = []
    for symbol in graph.symbols:
        if symbol in m.numbers.read or symbol in m.numbers.called:
            continue
        what, source, dim = _place(m.facts, symbol)
        found.append((row_name(source, what, dim), m.varied.why(what, source, dim)))
    for symbol, name in m.facts.needed.items():
        known = symbol in m.facts.symbols and symbol not in m.numbers.read | m.numbers.called
        if symbol not in graph.symbols and known:
            what, source, dim = _place(m.facts, symbol)
            why = f"constant, because {name} takes no symbolic number"
            found.append((row_name(source, what, dim), why))
    return found


def hold(m: Machine, value: Any, source: Source) -> SymbolicNumber:
    """The Value of an int or float at a source; so far only its type is guarded."""
    known = m.numbers.held.get(source)
    if known is None:
        known = m.numbers.held[source] = SymbolicNumber(m, value, None, source)
        m.guards.rows[("held", source, None)] = Row("type", source, type(value), m.where)
    return known


# The most symbols of a capture, for example of a list that is summed; further numbers are bound.
_MANY = 256


def _expr(m: Machine, value: SymbolicNumber) -> Any:
    """The expression of a number; for one from outside it is made at the first computation."""
    if value.expr is None:
        source, real, kind = value.source, value.real, type(value.real).__name__
        assert source is not None
        if kind == "int" and not -WHOLE <= real < WHOLE:
            return value.value
        low = high = None
        varies = m.varied.number(source, real)
        if not varies and len(m.facts.symbols) >= _MANY:
            return value.value
        if varies and kind == "int":
            low, high = (2, LIMIT) if real >= 2 else (-LIMIT, -1)
        value.expr = m.facts.symbol(kind, real, ("number", source), low, high)
        if varies:
            m.numbers.varying.add(value.expr)
        m.guards.rows[("held", source, None)] = Row(
            "number", source, (type(real), low, high), m.where
        )
    return m.facts.form(value.expr)


def _refuse_data(m: Machine, expr: Any) -> None:
    """Break where a plain number is needed of one that is known only when the frame runs."""
    for symbol in symbols_of(expr):
        if symbol in m.numbers.read:
            if m.numbers.truths.get(symbol) == DRAWN:
                leave_drawn(m)
            raise Break("GB104", "a number from tensor data decides")
        if symbol in m.numbers.called:
            refuse(f"{m.facts.called[symbol]} decides")


def leave_drawn(m: Machine) -> NoReturn:
    """Begin again with comparisons of random numbers left to Python, which is faster where they
    decide more than a part of the graph."""
    m.not_skipped.add(DRAWN)
    m.forget_steps()
    raise Restart


def refuse(what: str) -> None:
    """Break where a number is needed that is known only when the frame runs: see `Facts.refuse`."""
    if "random" in what or "clock" in what:
        raise Break("GB119" if "random" in what else "GB103", what)
    raise Break("GB104" if what.startswith("a number") else "GB105", what)


def _bind(m: Machine, value: SymbolicNumber) -> None:
    """Bind the entry to this number."""
    assert not m.numbers.sealed, "a number is looked at after the guards were made"
    if value.source is not None:
        m.guards.rows[("held", value.source, None)] = Row(
            "equals", value.source, value.real, m.where
        )
        if value.expr is not None:
            m.facts.settle(value.expr)
        return
    for symbol in symbols_of(m.facts.form(value.expr)):
        origin = m.facts.symbols[symbol]
        if origin[0] == "number":
            m.numbers.held[origin[1]].value  # noqa: B018  # the read of .value binds
    with_where(m).pin(value.expr)


def with_where(m: Machine) -> Any:
    m.facts.where = m.where
    return m.facts


def is_number(value: Value) -> bool:
    """Whether this is a number that the entry is not bound to."""
    return isinstance(value, SymbolicNumber) and not value.looked and type(value.real) in _NUMBERS


def is_whole(value: Value) -> bool:
    """Whether this is an int that the entry is not bound to."""
    return is_number(value) and type(value.real) is int  # type: ignore[attr-defined]


def operand(m: Machine, value: Value) -> Any:
    """The expression or plain number of a constant; None if it is no number."""
    if is_number(value):
        return _expr(m, value)  # type: ignore[arg-type]
    if isinstance(value, Const):
        plain = value.value
        return (
            int(plain)
            if plain is True or plain is False
            else plain
            if type(plain) in _NUMBERS
            else None
        )
    return None


def type_of(value: Const) -> type:
    """The type of a constant, without binding a number."""
    return type(value.real if isinstance(value, SymbolicNumber) else value.value)


def is_of(value: Value, kinds: type | tuple[type, ...]) -> bool:
    """Whether this is a constant of one of these types, without binding a number."""
    return isinstance(value, Const) and issubclass(type_of(value), kinds)


def is_truth(value: Value) -> bool:
    """Whether this is a truth value that the graph reads from a tensor, of an int as expression."""
    return isinstance(value, SymbolicNumber) and not value.looked and type(value.real) is bool


def like_number(value: Value) -> bool:
    """Whether this is an int or a float, bound or not."""
    return isinstance(value, Const) and type_of(value) in _NUMBERS


def like_whole(value: Value) -> bool:
    """Whether this is an int, bound or not."""
    return is_whole(value) or (type(value) is Const and type(value.value) is int)


def number(m: Machine, expr: Any) -> Const:
    """The Value of an expression."""
    expr = m.facts.form(expr)
    if not isinstance(expr, Expr):
        return Const(expr)
    held = SymbolicNumber(m, expr.hint, expr)
    return held if is_handy(expr) else Const(held.value)


def varies(m: Machine, *exprs: Any) -> bool:
    """Whether all symbols of these may be inputs of the graph."""
    symbols = symbols_of(list(exprs))
    return all(s in m.numbers.varying or m.facts.symbols[s][0] != "number" for s in symbols)


def computed(m: Machine, symbol: str, left: Value, right: Value) -> Value | None:
    """left <symbol> right of numbers, at least one unbound; None if it needs plain numbers."""
    if symbol not in ("&", "|", "^") or not (is_truth(left) and is_truth(right)):
        left, right = _as_int(m, left), _as_int(m, right)
    if not (is_number(left) or is_number(right)) or symbol not in _COMPUTED | _SPECIAL:
        return None
    a, b = operand(m, left), operand(m, right)
    if a is None or b is None:
        return None
    if symbol in ("/", "//", "%", "**"):
        a, b = without_the_rest(m, a, b)
    if symbol in ("/", "//", "%") and not _never_zero(m, b):
        return None
    try:
        expr = _special(m, symbol, a, b) if symbol in _SPECIAL else made(_COMPUTED[symbol], a, b)
    except (ArithmeticError, ValueError):
        return None
    return None if expr is None else number(m, expr)


# Operators over symbolic numbers by symbol, registered by `data_model.symbolic_math`: they give
# None where they need plain numbers.
REGISTERED: dict[str, Callable[[Machine, Any, Any], Any]] = {}


def _special(m: Machine, symbol: str, a: Any, b: Any) -> Any:
    """Powers, shifts and bits; None if that needs plain numbers."""
    if symbol in REGISTERED:
        return REGISTERED[symbol](m, a, b)
    if kind_of(a) != "int" or kind_of(b) != "int":
        return None
    if symbol in ("<<", ">>"):
        if type(b) is not int or not 0 <= b < 32:
            return None
        return made("mul" if symbol == "<<" else "floordiv", a, 1 << b)
    for other, mask in ((a, b), (b, a)):
        if symbol == "&" and type(mask) is int and mask > 0 and mask & (mask + 1) == 0:
            return made("mod", other, mask + 1)
    return made(_SPECIAL[symbol], a, b)


def _never_zero(m: Machine, divisor: Any) -> bool:
    if kind_of(divisor) == "int":
        low, high = bounds_of(divisor)
        if low > 0 or high < 0:
            return True
    elif not isinstance(divisor, Expr):
        return bool(divisor != 0)
    return varies(m, divisor) and bool(with_where(m).require("!=", divisor, 0))


def _as_int(m: Machine, value: Value) -> Value:
    """The int that a truth value from tensor data is in arithmetic, or the value itself."""
    return number(m, value.expr) if is_truth(value) else value  # type: ignore[attr-defined]


def negated(m: Machine, symbol: str, value: Value) -> Value | None:
    """-value, ~value or +value of an unbound number."""
    value = _as_int(m, value)
    if not is_number(value) or (symbol == "~" and not is_whole(value)):
        return None
    expr = _expr(m, value)  # type: ignore[arg-type]
    return number(m, expr if symbol == "+" else made("neg", expr) - (symbol == "~"))


def compared(m: Machine, symbol: str, left: Value, right: Value) -> Value | None:
    """A comparison of numbers that vary; a guard holds its result."""
    left, right = _as_int(m, left), _as_int(m, right)
    if not (is_number(left) or is_number(right)):
        return None
    a, b = operand(m, left), operand(m, right)
    if a is None or b is None:
        return None
    a, b = without_the_rest(m, a, b)
    if not varies(m, a, b):
        return None
    if m.facts.from_data((a, b)) and m.facts.known(symbol, a, b) is None:
        found = m.numbers.compare(m, symbol, a, b)
        if found is not None:
            return found
    return Const(with_where(m).ask(symbol, a, b))


def truth(m: Machine, value: Const) -> bool:
    """bool(number)"""
    if is_truth(value):
        what = m.numbers.truths[value.expr]  # type: ignore[attr-defined]
        if what == DRAWN:
            leave_drawn(m)
        found = m.numbers.answer(m, m.numbers.read[value.expr].ghost)  # type: ignore[attr-defined]
        if found is not None:
            return found
        refuse(what)
    if is_number(value):
        (expr,) = without_the_rest(m, _expr(m, value))  # type: ignore[arg-type]
        if varies(m, expr):
            counted = isinstance(expr, Symbol) and expr in m.numbers.counted
            if counted and m.facts.known("!=", expr, 0) is None:
                asked = m.numbers.compare(m, "!=", expr, 0)
                if asked is not None:
                    return truth(m, asked)  # type: ignore[arg-type]
            return bool(with_where(m).ask("!=", expr, 0))
    if value.value is NotImplemented:
        raise Break("GB103", "a warning: NotImplemented in a boolean context")
    return bool(value.value)


def argument(m: Machine, value: SymbolicNumber) -> Any:
    """A number for the tracer: an expression if it varies."""
    if is_number(value) and all(one.custom for one in m.inner) and _may_vary(m, value):
        (expr,) = without_the_rest(m, _expr(m, value))
        if varies(m, expr) and not any(m.facts.symbols[s][0] == "late" for s in symbols_of(expr)):
            return expr
    return value.value


def without_the_rest(m: Machine, *exprs: Any) -> list[Any]:
    """The expressions with constant numbers bound if others of them vary: a counter modulo a
    period, a rate times a decay."""
    symbols = symbols_of(list(exprs))
    if any(varies(m, s) for s in symbols):
        for symbol in symbols:
            if not varies(m, symbol):
                # the read of .value binds
                m.numbers.held[m.facts.symbols[symbol][1]].value  # noqa: B018
    return [m.facts.form(expr) for expr in exprs]


def _may_vary(m: Machine, value: SymbolicNumber) -> bool:
    """Whether it may vary; without this check, a number to be bound at once would get a symbol."""
    return value.expr is not None or bool(
        value.source and m.varied.number(value.source, value.real)
    )


def from_torch_number(m: Machine, value: Any) -> Any:
    """The Value of one or several sizes from torch; None for anything else."""
    if type(value) in SYMBOLIC:
        return number(m, from_torch(value))
    if type(value) in (torch.Size, tuple) and any(type(item) in SYMBOLIC for item in value):
        items: list[Value] = [from_torch_number(m, item) or Const(item) for item in value]
        return Sequence(items, type(value))
    return None


def function_of(m: Machine, value: SymbolicNumber) -> tuple[Any, list[Source | Value]]:
    """(a function that computes the number, the sources of its arguments: of a number that the
    graph reads, the tensor; of one that replacement code calls for, that number)"""
    expr = m.facts.form(value.expr)
    sources: list[Source | Value] = []

    scope = {**OPS, "size": helpers.size_of, "stride": helpers.stride_of, "item": helpers.item_of}

    def constant(value: Any) -> str:
        """A constant by name: text cannot express nan or infinity."""
        name = f"c{len(scope)}"
        scope[name] = value
        return name

    def symbol(one: Symbol) -> str:
        what, source, dim = _place(m.facts, one)
        given: Any = m.numbers.read.get(one) or m.numbers.called.get(one, source)
        if given not in sources:
            sources.append(given)
        name = f"a{sources.index(given)}"
        if what == "data":
            sized = len(m.facts.symbols[one]) > 2
            return f"size({name}, {dim})" if sized else f"item({name})"
        return name if what in ("number", "late") else f"{what}({name}, {dim})"

    def call(op: str, _kind: str, *parts: str) -> str:
        sign = SIGNS.get(op)
        return f"({f' {sign} '.join(parts)})" if sign else f"{op}({', '.join(parts)})"

    text = fold(expr, constant, symbol, call)
    text = f"{text} != 0" if type(value.real) is bool else text
    names = ", ".join(f"a{i}" for i in range(len(sources)))
    return eval(f"lambda {names}: {text}", scope), sources  # the text is generated here


def as_sequence(value: Value) -> Value:
    """A constant torch.Size as a sequence of numbers, to compare it with a symbolic one."""
    if (
        isinstance(value, Const)
        and not isinstance(value, SymbolicNumber)
        and type(value.value) in (torch.Size, tuple)
    ):
        return Sequence([Const(item) for item in value.value], type(value.value))
    return value


def has_numbers(value: Value) -> bool:
    """Whether this is a sequence with an unbound number in it."""
    return isinstance(value, Sequence) and any(is_number(item) for item in value.items)
