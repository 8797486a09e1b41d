"""Numbers of Python's functions that replacement code calls: `random.uniform(a, b)`, `time.time()`.

In: a call of a generator of random numbers or of a clock. Out: a number without a value at capture
(`SymbolicNumber`), and an effect that makes the call. Random numbers are drawn before the frame's
program, in the program's order, so they can be its arguments; if the program raises, the generators
get their states back before Python runs the frame again. A clock is read before the program if no
operator was recorded before it, else after the program; between operators it is a break.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...ir.graph.certain import FRACTION
from ...runtime.guards.sources import Source
from .. import helpers
from ..breaks import Break
from ..data_model import value_questions
from ..values import symbolic_numbers
from ..values.containers import NotConstant, as_constants, sequence_items
from ..values.effects import Called, can_be_made
from ..values.registry import BUILTINS, NONE, Args, Kwargs, models
from ..values.symbolic_numbers import WHOLE, SymbolicNumber
from ..values.value import Const, Obj, Sequence, Value

if TYPE_CHECKING:
    from ..interpreter.machine import Machine

_MOST_CHOICES = 4096
RANDOM = "a random number"
_CLOCK = "a clock"


# -- the numbers -----------------------------------------------------------------------------------
def _called(
    m: Machine,
    what: str,
    like: float,
    bounds: tuple[float | None, float | None],
    step: Any,
    items: tuple[Value, ...],
    named: Kwargs,
    state: Value | None = None,
) -> Value:
    """The Value of step(*items, **named), a number of the type of `like`, and its effect."""
    refuse_inside(m, what)
    early = what == RANDOM or not m.tracer.recorded
    kind = type(like).__name__
    number = len(m.numbers.called)
    at = Source("called", None, number)
    origin = ("number" if early else "late", at)
    symbol = m.facts.symbol(kind, like, origin, *bounds, called=what)
    value = SymbolicNumber(m, like, symbol)
    m.numbers.called[symbol] = value
    if what == RANDOM:
        m.numbers.drawn.add(symbol)
        m.numbers.compare = _compared
    m.numbers.varying.add(symbol)
    m.numbers.held[at] = value
    given = (Const(kind), Const(bounds), Obj(step), *items)
    happens(
        m, what, Called(helpers.number_from, given, tuple(named.items()), (), value, early, state)
    )
    return value


def _compared(m: Machine, symbol: str, left: Any, right: Any) -> Value | None:
    return value_questions.data_numbers().compared(m, symbol, left, right)  # type: ignore[no-any-return]


def happens(m: Machine, what: str, effect: Called) -> None:
    """Note the call of `effect`, which gives what its text says."""
    if effect.early and not all(map(_is_calm, m.journal.effects)):
        raise Break(_code(what), f"{what} after a call that may use the same generator")
    m.activity += 1
    m.journal.effects.append(effect)
    if what == _CLOCK and not effect.early:
        m.journal.clocks.append((m.root_index, m.tracer.recorded))


def _is_calm(effect: Any) -> bool:
    return not isinstance(effect, Called) or effect.early or effect.calm


def _code(what: str) -> str:
    return "GB119" if what == RANDOM else "GB103"


def refuse_inside(m: Machine, what: str) -> None:
    """Break where replacement code cannot make the call."""
    if not can_be_made(m):
        raise Break(_code(what), f"{what} inside of a transform, a mode or a checkpoint")


def _plain_items(m: Machine, values: Args) -> bool:
    """Whether replacement code knows these numbers before the program runs."""
    for value in values:
        if symbolic_numbers.is_number(value):
            expr = symbolic_numbers.operand(m, value)
            for symbol in symbolic_numbers.symbols_of(expr):
                if symbol in m.numbers.read or m.facts.symbols[symbol][0] == "late":
                    return False
        elif not isinstance(value, Const):
            return False
    return True


# -- clocks ----------------------------------------------------------------------------------------
def _clock(real: Any) -> Callable[..., Value]:
    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        if args or kwargs:
            raise Break("GB103", f"{real.__name__}() with arguments")
        like = real()
        bounds = (0, WHOLE - 1) if type(like) is int else (None, None)
        return _called(m, _CLOCK, like, bounds, real, (), {})

    return model


for _name in ("time", "perf_counter", "monotonic", "process_time"):
    for _real in (getattr(time, _name), getattr(time, f"{_name}_ns")):
        BUILTINS[_real] = _clock(_real)


# -- random ----------------------------------------------------------------------------------------
# Functions of random and of numpy that give numbers of [0, 1), without arguments or from 0 to 1.
_UNIT = ("random", "random_sample", "rand", "uniform")
# Functions of any numbers that give a float.
_ANY = ("random", "uniform", "gauss", "normalvariate")
_FLOATS = (
    *_ANY,
    *("lognormvariate", "expovariate", "betavariate", "gammavariate", "vonmisesvariate"),
    *("paretovariate", "weibullvariate", "triangular"),
)


def _generator(value: Value) -> random.Random:
    """The generator of a call; the library's own methods answer."""
    real = value.value if isinstance(value, Obj) else None
    if type(real) is not random.Random or not vars(real).keys() <= {"gauss_next"}:
        raise Break("GB119", "a generator of random numbers of the program's own kind")
    return real


def _receiver(m: Machine, args: Args) -> Obj:
    _generator(args[0])
    receiver = args[0]
    assert isinstance(receiver, Obj)
    m.same_object(receiver)
    return receiver


def _fixed(m: Machine, args: Args, kwargs: Kwargs, name: str) -> tuple[list[Any], dict[str, Any]]:
    try:
        return as_constants(m, args, kwargs)
    except NotConstant:
        raise Break("GB119", f"{name}() of what is not constant") from None


def _tried(name: str, scratch: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The result of another generator: its type, and whether these arguments are right."""
    try:
        return getattr(scratch, name)(*args, **kwargs)
    except Exception as error:
        raise Break("GB119", f"{name}() with these arguments: {error}") from None


def _random_float(name: str) -> Callable[..., Value]:
    step = getattr(random.Random, name)

    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        receiver, rest = _receiver(m, args), args[1:]
        given = [*rest, *kwargs.values()]
        numbers = all(symbolic_numbers.like_number(one) for one in given)
        if name in _ANY and numbers and _plain_items(m, given):
            like = _tried(name, random.Random(0), [0.5, 1.0, 1.0][: len(rest)], _like(kwargs))
        else:
            like = _tried(name, random.Random(0), *_fixed(m, rest, kwargs, name))
        if type(like) is not float:
            raise Break("GB119", f"{name}() that gives a {type(like).__name__}")
        items = (receiver, *rest)
        bounds = _float_bounds(name, rest, kwargs)
        return _called(m, RANDOM, like, bounds, step, items, kwargs, receiver)

    return model


def _float_bounds(
    name: str, given: Args, kwargs: Kwargs
) -> tuple[float, float] | tuple[None, None]:
    """The least and the greatest number of a call with these arguments, as far as is known."""
    plain = [one.value for one in given if type(one) is Const]
    of_unit = not given or (name == "uniform" and plain == [0, 1])
    return FRACTION if name in _UNIT and of_unit and not kwargs else (None, None)


def _like(kwargs: Kwargs) -> dict[str, Any]:
    return dict.fromkeys(kwargs, 0.5)


for _name in _FLOATS:
    BUILTINS[getattr(random.Random, _name)] = _random_float(_name)


@models(random.random)
def _random(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    generator = Obj(random.random.__self__)  # type: ignore[attr-defined]
    return BUILTINS[random.Random.random](m, [generator, *args], kwargs)


def _whole(name: str, last: int) -> Callable[..., Value]:
    """The model of randint(low, high) (last=0) or randrange(low, high) (last=1)."""
    step = getattr(random.Random, name)

    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        receiver, rest = _receiver(m, args), args[1:]
        if kwargs or not 1 + (not last) <= len(rest) <= 2:
            plain = _fixed(m, rest, kwargs, name)
            return _of_constants(m, receiver, name, step, plain, rest, kwargs)
        low, high = ([Const(0)] if len(rest) == 1 else []) + rest
        bounds = whole_bounds(m, low, high, last)
        items = (receiver, *rest)
        return _called(m, RANDOM, bounds[0], bounds, step, items, {}, receiver)

    return model


def whole_bounds(m: Machine, low: Value, high: Value, last: int) -> tuple[int, int]:
    """The least and the greatest int that low <= n <= high - last may be; a guard or a range says
    that there is one."""
    if not all(map(symbolic_numbers.like_whole, (low, high))) or not _plain_items(m, [low, high]):
        raise Break("GB119", "a random int between what is not known before the program")
    a, b = (_open(m, one) for one in (low, high))
    if not symbolic_numbers.with_where(m).ask("<=", a + last, b):
        raise Break("GB119", "a random int of an empty range")
    least, most = _bound(a)[0], _bound(b)[1] - last
    if not -WHOLE <= least <= most < WHOLE:
        raise Break("GB119", "a random int of more than 64 bits")
    return int(least), int(most)


def _open(m: Machine, value: Value) -> Any:
    """The expression of an int that varies, or a plain int."""
    expr = symbolic_numbers.operand(m, value)
    varies = symbolic_numbers.varies(m, expr)
    return expr if varies else value.value  # type: ignore[attr-defined]


def _bound(value: Any) -> tuple[float, float]:
    return symbolic_numbers.bounds_of(value) if not isinstance(value, int) else (value, value)


def _of_constants(
    m: Machine, receiver: Obj, name: str, step: Any, plain: Any, rest: Args, kwargs: Kwargs
) -> Value:
    like = _tried(name, random.Random(0), *plain)
    if name == "getrandbits" and plain[0][0] < 63:
        bounds = 0, (1 << plain[0][0]) - 1
    elif name == "randrange" and not kwargs:
        among = range(*plain[0])
        bounds = min(among[0], among[-1]), max(among[0], among[-1])
    else:
        raise Break("GB119", f"{name}() with these arguments")
    if type(like) is not int or not -WHOLE <= bounds[0] <= bounds[1] < WHOLE:
        raise Break("GB119", f"{name}() with these arguments")
    return _called(m, RANDOM, like, bounds, step, (receiver, *rest), kwargs, receiver)


BUILTINS[random.Random.randint] = _whole("randint", 0)
BUILTINS[random.Random.randrange] = _whole("randrange", 1)


@models(random.Random.getrandbits, random.getrandbits)
def _bits(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1:
        args = [Obj(random.getrandbits.__self__), *args]  # type: ignore[attr-defined]
    receiver, step = _receiver(m, args), random.Random.getrandbits
    plain = _fixed(m, args[1:], kwargs, "getrandbits")
    return _of_constants(m, receiver, "getrandbits", step, plain, args[1:], kwargs)


@models(random.Random.choice)
def _choice(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    receiver = _receiver(m, args)
    among = [*args[1:], *kwargs.values()]
    value = among[0] if len(among) == 1 else NONE
    if not isinstance(value, (Sequence, Const)) or getattr(value, "changed", False):
        raise Break("GB119", "choice() of this sequence")
    _listed(m, [value])
    plain = _fixed(m, [value], {}, "choice")[0][0]
    like, bounds = _population("choice", plain)
    step = random.Random.choice
    return _called(m, RANDOM, like, bounds, step, (receiver, value), {}, receiver)


def _population(name: str, plain: Any) -> tuple[float, tuple[int | None, int | None]]:
    """One of the numbers among which is drawn, and the least and the greatest of ints."""
    kinds: set[type] = set()
    ends = plain
    if type(plain) is range and plain:
        kinds, ends = {int}, (plain[0], plain[-1])
    elif type(plain) in (list, tuple) and len(plain) <= _MOST_CHOICES:
        kinds = {type(one) for one in plain}
    if len(kinds) != 1 or not kinds <= {int, float}:
        raise Break("GB119", f"{name}() of what is not numbers of one type")
    if kinds == {float}:
        return plain[0], (None, None)
    if not -WHOLE <= min(ends) <= max(ends) < WHOLE:
        raise Break("GB119", f"{name}() of ints of more than 64 bits")
    return ends[0], (min(ends), max(ends))


# -- several numbers of one call -------------------------------------------------------------------
_MOST_DRAWN = 64


def _several(m: Machine, name: str, count: int, population: Any, call: Any) -> list[Value]:
    """The numbers that step(*items, **named) gives in a list, for call = (step, items, named). The
    first number's effect makes the call; each other one takes the next number of the list."""
    step, (receiver, *items), named = call
    like, bounds = _population(name, population)
    if not 0 < count <= _MOST_DRAWN:
        raise Break("GB119", f"{name}() of {count} numbers")
    given = (Obj(step), receiver, *items)
    first = _called(m, RANDOM, like, bounds, helpers.first_drawn, given, named, receiver)
    more = range(count - 1)
    return [first, *(_called(m, RANDOM, like, bounds, helpers.next_drawn, (), {}) for _ in more)]


def _listed(m: Machine, values: Args) -> None:
    for value in values:
        if isinstance(value, Sequence):
            sequence_items(m, value)


def _list_of(name: str) -> Callable[..., Value]:
    """The model of sample() or choices() among numbers."""
    step = getattr(random.Random, name)

    def model(m: Machine, args: Args, kwargs: Kwargs) -> Value:
        receiver, rest = _receiver(m, args), args[1:]
        given = [*rest, *kwargs.values()]
        if any(getattr(one, "changed", False) and one.source is not None for one in given):
            raise Break("GB119", f"{name}() of a list that the frame has changed")
        _listed(m, given)
        plain, named = _fixed(m, rest, kwargs, name)
        like = _tried(name, random.Random(0), plain, named)
        among = plain[0] if plain else named["population"]
        drawn = _several(m, name, len(like), among, (step, (receiver, *rest), kwargs))
        return Sequence(drawn, list)

    return model


for _name in ("sample", "choices"):
    BUILTINS[getattr(random.Random, _name)] = _list_of(_name)


@models(random.Random.shuffle)
def _shuffle(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    receiver, rest = _receiver(m, args), [*args[1:], *kwargs.values()]
    target = rest[0] if len(rest) == 1 else NONE
    # The numbers of a list from outside differ in the next call.
    if not isinstance(target, Sequence) or target.cls is not list or target.source is not None:
        raise Break("GB119", "shuffle() of what is not a list made in the frame")
    plain = _fixed(m, [Sequence(list(target.items), list)], {}, "shuffle")[0][0]
    if len(plain) > 1:
        given = receiver, Sequence(list(target.items), list)
        drawn = _several(m, "shuffle", len(plain), plain, (helpers.shuffled, given, {}))
        target.items[:] = drawn
    return NONE


@models(random.Random.seed)
def _seed(m: Machine, args: Args, kwargs: Kwargs) -> Value:
    receiver = _receiver(m, args)
    plain, named = _fixed(m, args[1:], kwargs, "seed")
    if not plain or type(plain[0]) not in (int, str, bytes, float) or named:
        raise Break("GB119", "seed() with these arguments")
    refuse_inside(m, RANDOM)
    happens(
        m, RANDOM, Called(random.Random.seed, (receiver, *args[1:]), early=True, state=receiver)
    )
    return NONE


# -- numpy.random ----------------------------------------------------------------------------------
_NUMPY_FLOATS = frozenset(
    {"rand", "random", "random_sample", "randn", "standard_normal", "uniform", "normal", "beta"}
    | {"gamma", "exponential", "lognormal", "laplace", "standard_gamma", "chisquare", "weibull"}
    | {"triangular", "standard_exponential", "gumbel", "logistic", "power", "rayleigh"}
)


def numpy_call(m: Machine, real: Any, args: Args, kwargs: Kwargs) -> Value | None:
    """A call of a method of numpy's RandomState, or of `numpy.random.seed`; None for others."""
    module: Any = sys.modules.get("numpy.random.mtrand")
    if module is None:
        return None
    name = getattr(real, "__name__", "")
    if real is module.seed:
        args, name = [Obj(module._rand), *args], "seed"
    receiver = args[0] if args else NONE
    if not isinstance(receiver, Obj) or type(receiver.value) is not module.RandomState:
        return None
    if vars(module.RandomState).get(name) is not real and real is not module.seed:
        return None
    rest = args[1:]
    if name not in _NUMPY_FLOATS and name not in ("randint", "seed"):
        return None
    if receiver.value is not module._rand:
        # It has no weak references: an entry would keep it alive.
        return None
    if receiver.source is not None and receiver.source.kind != "const":
        m.guard("same", receiver.source, Source("const", None, module._rand))
    step = getattr(module.RandomState, name)
    if name == "seed":
        plain, named = _fixed(m, rest, kwargs, name)
        if len(plain) != 1 or type(plain[0]) is not int or named or not 0 <= plain[0] < 1 << 32:
            return None
        refuse_inside(m, RANDOM)
        items = (receiver, *rest)
        happens(m, RANDOM, Called(step, items, early=True, state=receiver))
        return NONE
    if name == "randint" and not kwargs and 1 <= len(rest) <= 2:
        low, high = ([Const(0)] if len(rest) == 1 else []) + rest
        if all(map(symbolic_numbers.like_whole, (low, high))):
            bounds = whole_bounds(m, low, high, 1)
            items = (receiver, *rest)
            return _called(m, RANDOM, bounds[0], bounds, step, items, {}, receiver)
    if name == "randint":
        return None
    try:
        plain, named = as_constants(m, rest, kwargs)
    except NotConstant:
        return None
    like = _tried(name, module.RandomState(0), plain, named)
    if type(like) is not float:
        return None
    of_floats = _float_bounds(name, rest, kwargs)
    return _called(m, RANDOM, like, of_floats, step, (receiver, *rest), kwargs, receiver)
