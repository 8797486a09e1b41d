"""The shape environment: what a trace knows of its symbolic numbers, and its guards on them.

`Facts.ask(op, left, right)` answers a comparison from canonical forms, ranges and earlier answers
where those suffice. Else the hints answer it, and the answer becomes a `Relation`, which capture
turns into a guard. `Facts.pin(expr)` binds an expression to its value at capture. Where a symbol
turns out to equal a number or an expression of other symbols, `form` replaces it.

A number that the graph reads from a tensor (origin "data") has no value at capture, nor has the
result of a function that replacement code calls (`called`). A question about it that ranges do not
answer, and a pin of it, are refused: the graph ends there. What eager
mode raises for unless it holds is a requirement (`require`), which the program checks when it has
read the number.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..dataclass import dataclass
from ..location import Location
from .expr import (
    ACTIVE,
    Expr,
    Sum,
    Symbol,
    decided,
    decided_by,
    hint_of,
    is_symbolic,
    kind_of,
    mapped,
    mul,
    plain,
    sub,
    substituted,
    symbols_of,
)
from .operators import OUTCOMES


@dataclass(frozen=True, slots=True)
class Relation:
    """The truth value of `left <op> right` is `holds`.

    op is a comparison, or "is" for a float with exactly these bits. `usual`: eager mode does not
    raise without it.
    """

    op: str
    left: Any
    right: Any
    holds: bool
    where: Location | None = None
    usual: bool = False

    def __str__(self) -> str:
        text = f"{self.left} {self.op} {self.right}"
        return text if self.holds else f"not {text}"


class Facts:
    """The symbols of one trace and their relations, in the order in which they were needed."""

    def __init__(self) -> None:
        # -> where each comes from, in capture's terms
        self.symbols: dict[Symbol, tuple[Any, ...]] = {}
        self.relations: list[Relation] = []
        # Relations of numbers from tensor data, which the program checks.
        self.required: list[Relation] = []
        self._reads = False  # there are such numbers
        # Results of Python's functions, known when the frame runs -> what they are.
        self.called: dict[Symbol, str] = {}
        # Whether the program can still check one, which Python's second run must not notice.
        self.may_require: Callable[[], bool] = lambda: True
        # Raises outside of a traced call where a number from tensor data is needed.
        self.refuse: Callable[[str], None] = lambda _what: None
        # The exception of a call for which it is needed, of the function's name and the reason.
        self.error: Callable[[str, str], Exception] = TypeError
        self.where: Location | None = None
        self.calling: Any = None  # the torch function being traced
        # Whether a guard can state a relation between these numbers; the others are pinned.
        self.can_hold: Callable[..., bool] = lambda *_sides: True
        # -> name of the operator that needs the symbol as a plain number
        self.needed: dict[Symbol, str] = {}
        # Symbols bound to one number, and the line that bound them.
        self.pinned: dict[Symbol, Location | None] = {}
        self._by: dict[Symbol, Any] = {}
        # The symbols of `_by` that became expressions, not numbers.
        self._open: dict[Symbol, None] = {}
        # Keyed by `Expr.key`: a look-up by the expression itself may compare, which asks the trace
        # again.
        self._ranges: dict[Any, tuple[float, float]] = {}
        self._excluded: dict[Any, set[int]] = {}
        self._single: dict[Any, int] = {}  # expressions with one possible value
        self._answers: dict[Any, bool] = {}

    def forget_origins(self) -> None:
        """Drop origins after a capture: they name objects that a graph must not hold."""
        self.symbols = {symbol: origin[:1] for symbol, origin in self.symbols.items()}

    def symbol(
        self,
        kind: str,
        hint: Any,
        origin: Any,
        low: float | None = None,
        high: float | None = None,
        called: str = "",
    ) -> Symbol:
        """A new symbol for the number at `origin`; `called`: see there."""
        letter = {"size": "s", "stride": "t"}.get(origin[0], "n" if kind == "int" else "f")
        made = Symbol(f"{letter}{len(self.symbols)}", kind, hint, low, high)
        self.symbols[made] = origin
        self._reads |= origin[0] == "data" or bool(called)
        if called:
            self.called[made] = called
        return made

    @contextmanager
    def active(self) -> Iterator[None]:
        """In this context, comparisons of expressions ask this trace."""
        before, ACTIVE.facts = ACTIVE.facts, self
        try:
            yield
        finally:
            ACTIVE.facts = before

    def form(self, value: Any) -> Any:
        """A nested value with equal expressions written alike, as a number if only one fits."""
        if plain(value):
            return value
        found = substituted(value, self._by)
        return mapped(found, self._only) if self._single else found

    def _only(self, value: Any) -> Any:
        if not isinstance(value, Expr) or value.kind != "int":
            return value
        rest, sign, constant = _split(value)
        only = self._single.get(rest.key)
        return value if only is None else sign * only + constant

    # -- comparisons
    def ask(self, op: str, left: Any, right: Any) -> bool:
        """Whether left <op> right."""
        left, right = self.form(left), self.form(right)
        if self.from_data((left, right)):
            return self._ask_data(op, left, right)
        if is_symbolic((left, right)) and not self.can_hold(left, right):
            for symbol in symbols_of((left, right)):
                self.pin(symbol)
            left, right = self.form(left), self.form(right)
        if not is_symbolic((left, right)):
            return bool(OUTCOMES[op](left, right))
        if kind_of(left) == "float" or kind_of(right) == "float":
            return self._ask_floats(op, left, right)
        found = self.known(op, left, right)
        if found is None:
            found = bool(OUTCOMES[op](hint_of(left), hint_of(right)))
            relation = Relation(op, left, right, found, self.where)
            self.relations.append(relation)
            self._learn(relation)
        return found

    def from_data(self, value: Any) -> bool:
        """Whether a symbol of a nested value is known only when the frame runs."""
        return self._reads and any(
            self.symbols[s][0] == "data" or s in self.called for s in symbols_of(value)
        )

    def _ask_data(self, op: str, left: Any, right: Any) -> bool:
        found = self.known(op, left, right)
        if found is None:
            found = self._answers.get(_float_key(op, left, right))
        if found is None and self.calling is not None:
            found = self._assumed(op, left, right)
        if found is None:
            self._refuse_data("a comparison of {} decides", (left, right))
        return bool(found)

    def _assumed(self, op: str, left: Any, right: Any) -> bool | None:
        """The answer for a number that torch takes as a size: it is not negative, a slice that it
        bounds is not longer than the tensor, and parts are together as long as the tensor. The
        program checks that."""
        calling = getattr(self.calling, "__name__", "")
        if calling in _PARTS and op in ("==", "!="):
            self.require("==", left, right)
            return op == "=="
        if not self.from_data(left):
            op, left, right = _MIRRORED[op], right, left
        if kind_of(left) != "int" or kind_of(right) != "int":
            return None
        if not isinstance(right, Expr) and right <= 0:
            if (op, right) not in _OF_SIZES and not (op in ("==", "!=") and right < 0):
                return None
            self.require(">=", left, 0)
            return self.known(op, left, right)
        if calling not in _SLICES or op in ("==", "!="):
            return None
        self.require("<=" if op in ("<=", ">") else "<", left, right)
        return self.known(op, left, right)

    def usually(self, op: str, left: Any, right: Any) -> bool:
        """The answer if each size that data decide is at least 2; asked if that does not say."""
        several = {
            s: Symbol(s.name, "int", s.hint, max(2, s.low or 2), s.high)
            for s in symbols_of((left, right))
            if s.kind == "int" and self.from_data(s) and (s.high is None or s.high > 1)
        }
        found = self.known(op, *substituted(self.form((left, right)), several))
        return self.ask(op, left, right) if found is None else found

    def _refuse_data(self, what: str, value: Any) -> None:
        kinds = [self.called[s] for s in symbols_of(value) if s in self.called]
        what = what.format(kinds[0] if kinds else "a number from tensor data")
        if self.calling is None:
            self.refuse(what)
        raise self.error("" if self.calling is None else name_of(self.calling), what)

    def require(self, op: str, left: Any, right: Any, usual: bool = False) -> bool:
        """Like `ask` for a relation without which eager mode raises, or which usually holds: of
        numbers from tensor data it is assumed, and the program checks it."""
        left, right = self.form(left), self.form(right)
        if not self.from_data((left, right)):
            return self.ask(op, left, right)
        found = self.known(op, left, right)
        if found is None:
            found = self._answers.get(key := _float_key(op, left, right))
        if found is not None:
            return found
        late = any(self.symbols[s][0] == "late" for s in symbols_of((left, right)))
        if late or not self.may_require():
            self._refuse_data("a comparison of {} decides", (left, right))
        relation = Relation(op, left, right, True, self.where, usual)
        self.required.append(relation)
        if "float" in (kind_of(left), kind_of(right)):
            self._answers[key] = True
            return True
        if isinstance(left, Symbol) and op in _KEPT and type(right) is int:
            _narrow(left, op, right)
        self._learn(relation)
        self._estimate()
        return True

    def _estimate(self) -> None:
        """Change the estimates of numbers from tensor data, for which required relations shall
        hold, too."""
        for _ in range(_MOST_ROUNDS):
            wrong = [one for one in self.required if not _holds_for_estimates(one)]
            if not any(self._estimate_for(one) for one in wrong):
                return

    def _estimate_for(self, relation: Relation) -> bool:
        """Change the estimate of the newest number for which one relation holds."""
        symbols = [s for s in symbols_of((relation.left, relation.right)) if self.from_data(s)]
        for symbol in sorted(symbols, key=_age):
            before = symbol.hint
            low, high = _fitting(relation, symbol)
            if low <= high:
                symbol.estimate(_within(low, high, before))
                if _holds_for_estimates(relation):
                    return True
                symbol.estimate(before)
        return False

    def known(self, op: str, left: Any, right: Any) -> bool | None:
        """The answer to a comparison that needs no guard; None: unknown."""
        left, right = self.form(left), self.form(right)
        found = decided(op, left, right)
        if found is None and "float" not in (kind_of(left), kind_of(right)):
            found = self._known(op, sub(left, right))
        return found

    def _ask_floats(self, op: str, left: Any, right: Any) -> bool:
        key = _float_key(op, left, right)
        found = self._answers.get(key)
        if found is None:
            found = self._answers[key] = bool(OUTCOMES[op](hint_of(left), hint_of(right)))
            self.relations.append(Relation(op, left, right, found, self.where))
        return found

    def need(self, values: Any, name: str) -> None:
        """Note that the operator of this name does not take symbolic numbers."""
        for symbol in symbols_of(values):
            self.needed.setdefault(symbol, name)

    def pin(self, value: Any) -> Any:
        """The value at capture of a number; a guard holds later calls to it."""
        value = self.form(value)
        if not isinstance(value, Expr):
            return value
        if self.from_data(value):
            self._refuse_data("{} decides", value)
        hint = value.hint
        if self.calling is not None:
            self.need(value, name_of(self.calling))
        if not self.can_hold(value):
            for symbol in symbols_of(value):
                self.pin(symbol)
            return hint
        for symbol in symbols_of(value):
            self.pinned.setdefault(symbol, self.where)
        if value.kind == "int":
            self.ask("==", value, hint)
            return hint
        key = ("is", value.key, struct.pack("d", hint))
        if key not in self._answers:
            self._answers[key] = True
            self.relations.append(Relation("is", value, hint, True, self.where))
            if isinstance(value, Symbol):
                self._replace(value, hint)
        return hint

    def settle(self, symbol: Symbol) -> None:
        """Bind a symbol to its value at capture, which another guard already checks."""
        if symbol not in self._by:
            self.pinned.setdefault(symbol, self.where)
            self._replace(symbol, symbol.hint)

    def settled(self, symbol: Symbol) -> bool:
        """Whether a symbol is bound to one number."""
        return not isinstance(self._by.get(symbol, symbol), Expr)

    # -- what is known
    def _known(self, op: str, difference: Any) -> bool | None:
        rest, sign, constant = _split(difference)
        low, high = self._range(rest)
        ends = (low + constant, high + constant) if sign > 0 else (constant - high, constant - low)
        found = decided_by(op, *ends)
        if (
            found is None
            and op in ("==", "!=")
            and -constant * sign in self._excluded.get(rest.key, ())
        ):
            return op == "!="
        return found

    def _range(self, rest: Expr) -> tuple[float, float]:
        low, high = rest.bounds()
        known = self._ranges.get(rest.key, (-math.inf, math.inf))
        return max(low, known[0]), min(high, known[1])

    def _learn(self, relation: Relation) -> None:
        """Note a relation of ints that did not follow from earlier ones."""
        op = relation.op if relation.holds else _NEGATED[relation.op]
        rest, sign, constant = _split(sub(relation.left, relation.right))
        low, high = self._range(rest)
        at = -constant * sign  # where the difference is 0
        if sign < 0:
            op = _MIRRORED[op]
        if op == "!=":
            self._excluded.setdefault(rest.key, set()).add(at)
            low, high = low + (at == low), high - (at == high)
        else:
            least, most = _KEPT[op]
            low, high = max(low, at + least), min(high, at + most)
        self._ranges[rest.key] = (low, high)
        if low == high:
            self._single[rest.key] = int(low)
            self._equate(rest, int(low))

    def _equate(self, rest: Expr, value: int) -> None:
        """rest == value: replace the newest symbol that the equation solves for."""
        terms = rest.terms if isinstance(rest, Sum) else ((1, (rest,)),)
        for symbol in sorted(symbols_of(rest), key=_age):
            own = [(c, f) for c, f in terms if symbol in symbols_of(f)]
            coefficient, factors = own[0]
            # By identity: == of expressions would ask about this very relation.
            if len(own) == len(factors) == abs(coefficient) == 1 and factors[0] is symbol:
                others = sub(mul(symbol, coefficient), rest)  # without the symbol
                self._replace(symbol, mul(others + value, coefficient))
                return

    def _replace(self, symbol: Symbol, by: Any) -> None:
        one = {symbol: by}
        for other in list(self._open):
            self._set(other, substituted(self._by[other], one))
        self._set(symbol, by)

    def _set(self, symbol: Symbol, by: Any) -> None:
        self._by[symbol] = by
        if isinstance(by, Expr):
            self._open[symbol] = None
        else:
            self._open.pop(symbol, None)


def _narrow(symbol: Symbol, op: str, other: int) -> None:
    """Note what the program checks in the range of a number from tensor data."""
    least, most = _KEPT[op]
    low, high = symbol.bounds()
    low, high = max(low, other + least), min(high, other + most)
    symbol.low = None if low == -math.inf else int(low)
    symbol.high = None if high == math.inf else int(high)


def _age(symbol: Symbol) -> int:
    return -int(symbol.name[1:])


def _holds_for_estimates(relation: Relation) -> bool:
    holds = OUTCOMES[relation.op](hint_of(relation.left), hint_of(relation.right))
    return bool(holds) or "float" in (kind_of(relation.left), kind_of(relation.right))


def _fitting(relation: Relation, symbol: Symbol) -> tuple[float, float]:
    """The range of a number in which a relation holds that is linear in it, given the estimates of
    the others."""
    difference = sub(relation.left, relation.right)
    terms = difference.terms if isinstance(difference, Sum) else ((1, (difference,)),)
    # By identity: == of expressions would ask about this very relation.
    own = [c for c, factors in terms if len(factors) == 1 and factors[0] is symbol]
    if relation.op not in _KEPT or [abs(c) for c in own] != [1]:
        return (math.inf, -math.inf)
    op = relation.op if own[0] > 0 else _MIRRORED[relation.op]
    at = symbol.hint - own[0] * hint_of(difference)
    low, high = symbol.bounds()
    return max(low, at + _KEPT[op][0]), min(high, at + _KEPT[op][1])


def _within(low: float, high: float, before: int) -> int:
    """The estimate of a number of this range, if it was `before`: not the largest, so that others
    beside it have a share."""
    if before > high:
        return int(low + high + 1) // 2 if low >= 0 else int(high)
    return int(max(before, low))


def _float_key(op: str, left: Any, right: Any) -> Any:
    sides = ((e.key if isinstance(e, Expr) else (type(e), repr(e))) for e in (left, right))
    return (op, *sides)


def name_of(function: Any) -> str:
    """The name of a torch function as a program writes it."""
    name = getattr(function, "__name__", "")
    if str(getattr(function, "__qualname__", "")).startswith(("TensorBase.", "Tensor.")):
        return f"torch.Tensor.{name}"
    module = getattr(function, "__module__", None) or ""
    # one of our functions, in place of several of torch's
    if module.startswith("graftjit"):
        return "what this line computes"
    if module.startswith("torch.nn.functional") or module == "torch._C._nn":
        return f"torch.nn.functional.{name}"
    part, _, rest = name.partition("_")
    if part in ("linalg", "fft", "special") and rest:
        name = f"{part}.{rest}"
    return f"torch.{name}" if name else str(function)


_MOST_ROUNDS = 16  # of changes to estimates
COMPARED = "a comparison of a number from tensor data decides"
# Comparisons with 0 that an int decides which is not negative.
_OF_SIZES = frozenset({("<", 0), (">=", 0)})
# The functions that slice by a number which is usually within the tensor.
_SLICES = frozenset({"getitem", "setitem", "__getitem__", "__setitem__", "narrow", "topk", "split"})
# The functions that compare sums of such numbers with the length of the tensor.
_PARTS = frozenset({"split", "split_with_sizes"})
_NEGATED = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
# op -> how far below and above the point of equality an int may be
_KEPT: dict[str, tuple[float, float]] = {
    "==": (0, 0),
    "<": (-math.inf, -1),
    "<=": (-math.inf, 0),
    ">": (1, math.inf),
    ">=": (0, math.inf),
}


def _split(difference: Any) -> tuple[Expr, int, int]:
    """difference as (rest, sign, constant) with difference == sign * rest + constant.

    A form and its negation have the same rest.
    """
    if not isinstance(difference, Sum):
        return difference, 1, 0
    constant = sum(c for c, factors in difference.terms if not factors)
    rest = sub(difference, constant)
    leading = rest.terms[0][0] if isinstance(rest, Sum) else 1
    return (rest, 1, constant) if leading > 0 else (mul(rest, -1), -1, constant)
