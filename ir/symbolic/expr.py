"""Symbolic numbers: sizes and Python numbers that may differ from call to call.

An expression is a plain Python number or an immutable `Expr` of one of three classes:

- `Symbol(name, kind, hint, low, high)`: a number that is read at each call. `kind` is "int" (sizes,
  strides, Python ints; within low..high, ends included, None: unbounded) or "float" (Python
  floats);
- `Sum(terms)`: an integer polynomial in canonical form. `terms` is a sorted tuple of `(coefficient,
  factors)`; coefficient is a Python int (never 0), factors is a sorted tuple of Symbols and Applys
  of kind "int", a factor repeated for each power; the constant term has no factors;
- `Apply(op, args, kind)`: `op` over expressions; the ops are the keys of `operators.OPS`, with
  Python's meaning (floor division and modulo take the divisor's sign). Integer sums and products
  are never an Apply; float ones always are, in the program's order.

Each has `.kind`, `.hint` (its value at capture), `evaluate(values)` (values: symbol name ->
number), and a text (`str`). Equal numbers have equal canonical forms where a Sum can show it:
`s0*4//4` is `s0`. A backend walks an expression with `fold(expr, number, symbol, apply)`, which
spells sums out with "add" and "mul".

Expressions occur in `Meta.shape`, `Meta.stride` and `Meta.offset`, in args and kwargs of nodes, and
in args of torch-level calls. `Graph.symbols` gives the origin of each symbol: Symbol -> ("size",
input position, dim), ("stride", input position, dim) or ("number", position), where position counts
the program's arguments: its tensors in the order of `Graph.inputs`, then the Python numbers in the
order of `Graph.numbers`; or ("data", position of an output), for a number that the graph reads.

While a trace runs, its facts (`ir.symbolic.shape_env`) are active: they answer a comparison of
expressions from what is known; else the hints answer it, and a guard holds the answer for later
calls. `int(expr)` pins a number to its value at capture. Outside a trace, equality and hash go by
form, and an order that the ranges do not decide is a TypeError.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from .operators import KINDS, OPS, OUTCOMES, SIGNS

# Ends of a range; infinite where the range is unbounded.
Bounds = tuple[float, float]


class _Active(threading.local):
    """Per thread: the facts of the running trace (`ir.symbolic.shape_env.Facts`), or None."""

    facts: Any = None


ACTIVE = _Active()


class Undecided(TypeError):
    """A comparison of symbolic numbers outside a trace that their ranges do not decide."""


class Expr:
    """A symbolic number, see the module's docstring.

    `key` is the canonical form as nested tuples, `extent` the (depth, size) of the tree.
    """

    __slots__ = ("_hash", "_known", "extent", "key", "kind")
    key: tuple[Any, ...]
    kind: str
    # (`changes` then, hint)
    _known: tuple[int, Any]
    # How often an estimate has changed.
    changes: ClassVar[int] = 0
    extent: tuple[int, int]
    _hash: int

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """The number, given its symbols' values by name."""
        raise NotImplementedError

    @property
    def hint(self) -> Any:
        """The value at capture, or its estimate, which may change while the trace goes on."""
        if self._known[0] != Expr.changes:
            self._known = Expr.changes, self._estimate()
        return self._known[1]

    def _estimate(self) -> Any:
        raise NotImplementedError

    def bounds(self) -> Bounds:
        """A range that certainly contains the number."""
        return (-math.inf, math.inf)

    # -- as numbers
    def __add__(self, other: Any) -> Any:
        return add(self, other)

    def __radd__(self, other: Any) -> Any:
        return add(other, self)

    def __sub__(self, other: Any) -> Any:
        return sub(self, other)

    def __rsub__(self, other: Any) -> Any:
        return sub(other, self)

    def __mul__(self, other: Any) -> Any:
        return mul(self, other)

    def __rmul__(self, other: Any) -> Any:
        return mul(other, self)

    def __floordiv__(self, other: Any) -> Any:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return floordiv(other, self)

    def __mod__(self, other: Any) -> Any:
        return mod(self, other)

    def __rmod__(self, other: Any) -> Any:
        return mod(other, self)

    def __truediv__(self, other: Any) -> Any:
        return apply("truediv", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return apply("truediv", other, self)

    def __pow__(self, other: Any) -> Any:
        return power(self, other)

    def __rpow__(self, other: Any) -> Any:
        return power(other, self)

    def __neg__(self) -> Any:
        return neg(self)

    def __pos__(self) -> Expr:
        return self

    def __abs__(self) -> Any:
        low, high = self.bounds()
        return self if low >= 0 else neg(self) if high <= 0 else apply("abs", self)

    # -- comparisons
    def __eq__(self, other: object) -> bool:
        if isinstance(other, Expr) and self.key == other.key and self.kind == "int":
            return True
        if not isinstance(other, (Expr, int, float)):
            return NotImplemented
        if ACTIVE.facts is None and self.kind == "float":
            return isinstance(other, Expr) and self.key == other.key
        return _asked("==", self, other, False)

    def __ne__(self, other: object) -> bool:
        found = self.__eq__(other)
        return found if found is NotImplemented else not found

    def __lt__(self, other: Any) -> bool:
        return _asked("<", self, other)

    def __le__(self, other: Any) -> bool:
        return _asked("<=", self, other)

    def __gt__(self, other: Any) -> bool:
        return _asked(">", self, other)

    def __ge__(self, other: Any) -> bool:
        return _asked(">=", self, other)

    def __bool__(self) -> bool:
        return not self.__eq__(0)

    def __index__(self) -> int:
        return int(pinned(self))

    def __int__(self) -> int:
        return int(pinned(self))

    def __float__(self) -> float:
        return float(pinned(self))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> Any:
        raise TypeError("a symbolic number belongs to one graph")

    def __repr__(self) -> str:
        return str(self)


def _asked(op: str, left: Any, right: Any, otherwise: bool | None = None) -> bool:
    """The answer to a comparison: from the running trace, or from form and ranges alone."""
    if ACTIVE.facts is not None:
        return bool(ACTIVE.facts.ask(op, left, right))
    found = decided(op, left, right)
    if found is None:
        if otherwise is None:
            raise Undecided(f"{left} {op} {right} is asked outside of a trace")
        return otherwise
    return found


def pinned(value: Any) -> Any:
    """A plain number for an expression: binds the running trace to its value at capture."""
    if not isinstance(value, Expr):
        return value
    if ACTIVE.facts is None:
        raise Undecided(f"{value} is no plain number")
    return ACTIVE.facts.pin(value)


class Symbol(Expr):
    """A number that is read at each call."""

    __slots__ = ("high", "low", "name")

    def __init__(
        self,
        name: str,
        kind: str,
        hint: Any,
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        self.name, self.kind, self._known = name, kind, (0, hint)
        self.low, self.high = low, high
        self.extent = 1, 1
        self.key = ("symbol", name)
        self._hash = hash(self.key)

    @property
    def hint(self) -> Any:
        return self._known[1]

    def estimate(self, value: int) -> None:
        """Change the estimate of a number that has no value at capture."""
        self._known = (0, value)
        Expr.changes += 1

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        return values[self.name]

    def bounds(self) -> Bounds:
        low = -math.inf if self.low is None else self.low
        return (low, math.inf if self.high is None else self.high)

    def __str__(self) -> str:
        return self.name


class Sum(Expr):
    """An integer polynomial. The functions below make it, or a plainer form where one exists."""

    __slots__ = ("terms",)

    def __init__(self, terms: tuple[tuple[int, tuple[Expr, ...]], ...]) -> None:
        self.terms, self.kind = terms, "int"
        self._known = (Expr.changes, self._estimate())
        self.extent = _around([f for _, factors in terms for f in factors])
        self.key = ("sum", tuple((c, tuple(f.key for f in factors)) for c, factors in terms))
        self._hash = hash(self.key)

    def _estimate(self) -> Any:
        return sum(c * math.prod(f.hint for f in factors) for c, factors in self.terms)

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        return sum(c * math.prod(f.evaluate(values) for f in factors) for c, factors in self.terms)

    def bounds(self) -> Bounds:
        low = high = 0.0
        for coefficient, factors in self.terms:
            ends = (float(coefficient), float(coefficient))
            for factor in factors:
                ends = _times(ends, factor.bounds())
            low, high = low + ends[0], high + ends[1]
        return (low, high)

    def __str__(self) -> str:
        text = ""
        for coefficient, factors in self.terms:
            size = abs(coefficient)
            parts = [str(size)] if size != 1 or not factors else []
            term = "*".join(parts + [_operand(f) for f in factors])
            sign = "-" if coefficient < 0 else "+"
            text += f" {sign} {term}" if text else term if coefficient > 0 else f"-{term}"
        return text


class Apply(Expr):
    """An operation that does not simplify."""

    __slots__ = ("args", "op")

    def __init__(self, op: str, args: tuple[Any, ...], kind: str) -> None:
        self.op, self.args, self.kind = op, args, kind
        self._known = (Expr.changes, self._estimate())
        self.extent = _around(args)
        self.key = (
            "apply",
            op,
            *(a.key if isinstance(a, Expr) else (type(a), repr(a)) for a in args),
        )
        self._hash = hash(self.key)

    def _estimate(self) -> Any:
        return OPS[self.op](*(hint_of(a) for a in self.args))

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        return OPS[self.op](*(a.evaluate(values) if isinstance(a, Expr) else a for a in self.args))

    def bounds(self) -> Bounds:
        if self.kind != "int":
            return (-math.inf, math.inf)
        ends = [bounds_of(a) for a in self.args]
        if self.op == "min":
            return (min(e[0] for e in ends), min(e[1] for e in ends))
        if self.op == "max":
            return (max(e[0] for e in ends), max(e[1] for e in ends))
        if self.op == "abs":
            return (0, max(abs(ends[0][0]), abs(ends[0][1])))
        if self.op in ("and", "or", "xor") and min(ends[0][0], ends[1][0]) >= 0:
            most = max if self.op != "and" else min
            top = most(ends[0][1], ends[1][1])
            return (0, top if self.op == "and" else 2 * top)
        if self.op == "mod" and ends[1][0] > 0:
            return (0, min(ends[1][1] - 1, ends[0][1]) if ends[0][0] >= 0 else ends[1][1] - 1)
        if self.op == "floordiv" and ends[1][0] > 0 and ends[0][0] >= 0:
            low = ends[0][0] // ends[1][1] if math.isfinite(ends[1][1]) else 0
            return (low, ends[0][1] // ends[1][0] if math.isfinite(ends[0][1]) else math.inf)
        return (-math.inf, math.inf)

    def __str__(self) -> str:
        sign = SIGNS.get(self.op)
        if sign is not None:
            return f" {sign} ".join(_operand(a) for a in self.args)
        return f"{self.op}({', '.join(map(str, self.args))})"


# Limits on trees (depth, size): a larger expression, which many steps of a loop made, is pinned to
# its value.
_DEEPEST, _LARGEST = 24, 60


def _around(parts: Iterable[Any]) -> tuple[int, int]:
    inner = [part.extent for part in parts if isinstance(part, Expr)]
    return 1 + max((deep for deep, _ in inner), default=0), 1 + sum(large for _, large in inner)


def is_handy(value: Any) -> bool:
    """Whether an expression is small enough to compute with it symbolically."""
    if not isinstance(value, Expr):
        return True
    deep, large = value.extent
    return deep <= _DEEPEST and large <= _LARGEST


def _operand(value: Any) -> str:
    plain = not isinstance(value, (Sum, Apply)) or (
        isinstance(value, Apply) and value.op not in SIGNS
    )
    return str(value) if plain else f"({value})"


def _times(a: Bounds, b: Bounds) -> Bounds:
    ends = [0.0 if x == 0 or y == 0 else x * y for x in a for y in b]
    return (min(ends), max(ends))


# --- functions of any number, symbolic or plain
# ----------------------------------------------------


def hint_of(value: Any) -> Any:
    """The value at capture."""
    return value.hint if isinstance(value, Expr) else value


def kind_of(value: Any) -> str:
    """ "int" or "float"."""
    return value.kind if isinstance(value, Expr) else "float" if isinstance(value, float) else "int"


def is_int(value: Any) -> bool:
    """Whether this is an int, symbolic or plain, and no bool."""
    return type(value) is int or (isinstance(value, Expr) and value.kind == "int")


def bounds_of(value: Any) -> Bounds:
    """A range that certainly contains the number."""
    return value.bounds() if isinstance(value, Expr) else (value, value)


def is_symbolic(value: Any) -> bool:
    """Whether nested tuples, lists, dicts and slices contain an expression."""
    kind = type(value)
    if kind is tuple or kind is list:
        return any(map(is_symbolic, value))
    if kind is dict:
        return any(is_symbolic(item) for item in value.values())
    if kind is slice:
        return is_symbolic((value.start, value.stop, value.step))
    return isinstance(value, Expr)


_ATOMS = frozenset((type(None), bool, int, float, complex, str))


def plain(value: Any) -> bool:
    """Whether nested tuples and lists contain nothing but Python's own numbers and texts."""
    kind = type(value)
    return all(map(plain, value)) if kind is tuple or kind is list else kind in _ATOMS


def hints(value: Any) -> Any:
    """The same nested value with the hint of each expression."""
    return mapped(value, hint_of)


def evaluate(value: Any, values: Mapping[str, Any]) -> Any:
    """The same nested value with each expression's number."""
    return mapped(value, lambda e: e.evaluate(values) if isinstance(e, Expr) else e)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same nested tuples, lists, dicts and slices, with `change` applied to their items."""
    kind = type(value)
    if kind is tuple or kind is list:
        return kind([mapped(item, change) for item in value])
    if kind is dict:
        return {key: mapped(item, change) for key, item in value.items()}
    if kind is slice:
        return slice(*(mapped(v, change) for v in (value.start, value.stop, value.step)))
    sized = getattr(kind, "with_sizes", None)  # a Meta
    return change(value) if sized is None else sized(value, lambda part: mapped(part, change))


def symbols_of(value: Any) -> set[Symbol]:
    """The symbols in a nested value."""
    found: set[Symbol] = set()

    def note(item: Any) -> Any:
        if isinstance(item, Symbol):
            found.add(item)
        elif isinstance(item, Sum):
            for _, factors in item.terms:
                mapped(factors, note)
        elif isinstance(item, Apply):
            mapped(item.args, note)
        return item

    mapped(value, note)
    return found


def fold(
    value: Any,
    number: Callable[[Any], Any],
    symbol: Callable[[Symbol], Any],
    call: Callable[..., Any],
) -> Any:
    """Walk an expression from its leaves: number(n), symbol(s), call(op, kind, *operands)."""

    def walk(item: Any) -> Any:
        if isinstance(item, Symbol):
            return symbol(item)
        if isinstance(item, Apply):
            return call(item.op, item.kind, *(walk(a) for a in item.args))
        if not isinstance(item, Sum):
            return number(item)
        total = None
        for coefficient, factors in item.terms:
            term = None if coefficient == 1 and factors else number(coefficient)
            for factor in factors:
                made = walk(factor)
                term = made if term is None else call("mul", "int", term, made)
            total = term if total is None else call("add", "int", total, term)
        return total

    return walk(value)


def substituted(value: Any, by: Mapping[Symbol, Any]) -> Any:
    """The same nested value with symbols replaced, in canonical form again."""
    if not by or plain(value):
        return value

    def change(item: Any) -> Any:
        if not isinstance(item, Expr):
            return item
        return fold(item, lambda n: n, lambda s: by.get(s, s), lambda op, _kind, *a: _FORMS[op](*a))

    return mapped(value, change)


def decided(op: str, left: Any, right: Any) -> bool | None:
    """Whether left <op> right for every value of the symbols; None: unknown."""
    if not is_symbolic((left, right)):
        return bool(OUTCOMES[op](left, right))
    if kind_of(left) == "float" or kind_of(right) == "float":
        return None
    low, high = bounds_of(sub(left, right))
    return decided_by(op, low, high)


def decided_by(op: str, low: float, high: float) -> bool | None:
    """Whether d <op> 0 for each d in low..high."""
    if op in ("==", "!="):
        if low == high == 0:
            return op == "=="
        return op == "!=" if low > 0 or high < 0 else None
    if op in (">", ">="):
        return decided_by("<" if op == ">" else "<=", -high, -low)
    limit = OUTCOMES[op]
    return True if limit(high, 0) else None if limit(low, 0) else False


# --- making canonical forms -----------------------------------------------------------------------

Terms = dict[tuple[Expr, ...], int]


def _terms(value: Any) -> Terms:
    if isinstance(value, Sum):
        return {factors: coefficient for coefficient, factors in value.terms}
    return {(value,): 1} if isinstance(value, Expr) else {(): int(value)} if value else {}


def _form(terms: Terms) -> Any:
    kept = {factors: c for factors, c in terms.items() if c}
    if not kept:
        return 0
    if len(kept) == 1:
        ((factors, coefficient),) = kept.items()
        if not factors:
            return coefficient
        if coefficient == 1 and len(factors) == 1:
            return factors[0]
    order = sorted(kept.items(), key=lambda t: (not t[0], -len(t[0]), [str(f) for f in t[0]]))
    return Sum(tuple((c, factors) for factors, c in order))


def add(left: Any, right: Any) -> Any:
    """left + right"""
    if kind_of(left) == "float" or kind_of(right) == "float":
        return apply("add", left, right)
    terms = dict(_terms(left))
    for factors, coefficient in _terms(right).items():
        terms[factors] = terms.get(factors, 0) + coefficient
    return _form(terms)


def neg(value: Any) -> Any:
    """-value"""
    return apply("neg", value) if kind_of(value) == "float" else mul(value, -1)


def sub(left: Any, right: Any) -> Any:
    """left - right"""
    if kind_of(left) == "float" or kind_of(right) == "float":
        return apply("sub", left, right)
    return add(left, mul(right, -1))


def mul(left: Any, right: Any) -> Any:
    """left * right"""
    if kind_of(left) == "float" or kind_of(right) == "float":
        return apply("mul", left, right)
    terms: Terms = {}
    for f, c in _terms(left).items():
        for g, d in _terms(right).items():
            factors = tuple(sorted((*f, *g), key=str))
            terms[factors] = terms.get(factors, 0) + c * d
    return _form(terms)


def _quotient(terms: Terms, divisor: Terms) -> tuple[Terms, Terms] | None:
    """(quotient, rest) with terms == quotient * divisor + rest; the divisor has one nonzero term.

    The quotient takes the terms that the divisor divides. None: the divisor has several terms, or
    may be 0.
    """
    if len(divisor) != 1:
        return None
    ((by, count),) = divisor.items()
    if any(f.bounds()[0] <= 0 <= f.bounds()[1] for f in by):
        return None
    whole: Terms = {}
    rest: Terms = {}
    for factors, coefficient in terms.items():
        left = _without(factors, by)
        if left is not None and coefficient % count == 0:
            whole[left] = coefficient // count
        else:
            rest[factors] = coefficient
    return whole, rest


def _without(factors: tuple[Expr, ...], by: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
    """`factors` without those of `by`; None if `factors` lacks one of them."""
    left = {place: one.key for place, one in enumerate(factors)}  # == of expressions asks the trace
    for factor in by:
        left.pop(next((place for place, key in left.items() if key == factor.key), -1), None)
    return tuple(factors[i] for i in left) if len(left) == len(factors) - len(by) else None


def floordiv(left: Any, right: Any) -> Any:
    """left // right"""
    if not is_symbolic((left, right)) or "float" in (kind_of(left), kind_of(right)):
        return apply("floordiv", left, right)
    if not isinstance(right, Expr) and right == 0:
        raise ZeroDivisionError("integer division or modulo by zero")
    split = _quotient(_terms(left), _terms(right))
    if split is None or not split[0]:
        return _small("floordiv", left, right)
    whole, rest = _form(split[0]), _form(split[1])
    return add(whole, floordiv(rest, right)) if rest != 0 else whole


def mod(left: Any, right: Any) -> Any:
    """left % right"""
    if not is_symbolic((left, right)) or "float" in (kind_of(left), kind_of(right)):
        return apply("mod", left, right)
    if not isinstance(right, Expr) and right == 0:
        raise ZeroDivisionError("integer modulo by zero")
    split = _quotient(_terms(left), _terms(right))
    rest = left if split is None else _form(split[1])
    return _small("mod", rest, right)


def _small(op: str, left: Any, right: Any) -> Any:
    """left // right or left % right: simplified if 0 <= left < right is certain."""
    if not is_symbolic((left, right)):
        return OPS[op](left, right)
    if bounds_of(left)[0] >= 0 and bounds_of(sub(right, left))[0] > 0:
        return 0 if op == "floordiv" else left
    return Apply(op, (left, right), "int")


def least(left: Any, right: Any) -> Any:
    """min(left, right), of ints"""
    return _one_of("min", "<=", left, right)


def greatest(left: Any, right: Any) -> Any:
    """max(left, right), of ints"""
    return _one_of("max", ">=", left, right)


def _one_of(op: str, better: str, left: Any, right: Any) -> Any:
    found = decided(better, left, right)
    if found is not None:
        return left if found else right
    return Apply(op, tuple(sorted((left, right), key=str)), "int")


def power(left: Any, right: Any) -> Any:
    """left ** right; a whole power of an int is a product"""
    if kind_of(left) == "int" and type(right) is int and 0 <= right <= 8:
        made: Any = 1
        for _ in range(right):
            made = mul(made, left)
        return made
    if kind_of(left) == kind_of(right) == "int":
        return pinned(left) ** pinned(right)
    return apply("pow", left, right)


def apply(op: str, *args: Any) -> Any:
    """op over numbers: computed at once where all are plain."""
    if not is_symbolic(args):
        return OPS[op](*args)
    kinds = {kind_of(a) for a in args}
    if kinds == {"int"} and op in ("int", "floor", "ceil", "round"):
        return args[0]
    if op == "float" and kinds == {"float"}:
        return args[0]
    return Apply(op, args, KINDS.get(op) or ("float" if "float" in kinds else "int"))


# op -> the function that makes its canonical form
_FORMS: dict[str, Callable[..., Any]] = {
    **{op: (lambda *args, _op=op: apply(_op, *args)) for op in OPS},
    "add": add,
    "sub": sub,
    "mul": mul,
    "neg": neg,
    "floordiv": floordiv,
    "mod": mod,
    "pow": power,
    "min": lambda a, b: apply("min", a, b) if "float" in (kind_of(a), kind_of(b)) else least(a, b),
    "max": lambda a, b: (
        apply("max", a, b) if "float" in (kind_of(a), kind_of(b)) else greatest(a, b)
    ),
}


def made(op: str, *args: Any) -> Any:
    """The canonical form of op over numbers."""
    return _FORMS[op](*args)


def product(values: Iterable[Any]) -> Any:
    """The product of ints, symbolic or plain."""
    total: Any = 1
    for value in values:
        total = total * value
    return total
