"""Small programs that between them use every family of instructions a function body can hold.

Each takes a list that it may write to (its visible effects) and returns a value or raises.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

limit = 3
counter = 0


class Point:
    __match_args__ = ("x", "y")
    scale = 2

    def __init__(self, x: Any, y: Any) -> None:
        self.x = x
        self.y = y

    def total(self, *more: Any, factor: Any = 1) -> Any:
        return (self.x + self.y + sum(more)) * factor

    def __enter__(self) -> Point:
        self.x += 1
        return self

    def __exit__(self, *about: Any) -> bool:
        self.y = about[0] and about[0].__name__
        return about[0] is KeyError


class Loud(Point):
    def total(self, *more: Any, factor: Any = 1) -> Any:
        base = super().total(*more, factor=factor)
        return f"{base}!" if super().scale else base

    def late(self, log: list) -> Any:
        log.append("late")
        for turn in range(2):
            log.append(super().total(turn))
        again = super
        log.append(again is super)
        return super().total(1)

    def captured(self, log: list) -> Any:
        found = [self.x + item for item in range(2)]
        number = len(log)
        return (lambda: self.y)(), super().total(number), found


def arithmetic(log: list) -> Any:
    a, b = 7, 2
    c = a + b - a * b / (a // b) ** b % 5
    d = (a << b) | (a >> 1) ^ (a & ~b)
    a += 1
    b *= -a
    log.append((+a, not b))
    return c, d, a, b, a < b <= c, a is not b, a in (a, b), 3 not in [a]


def loops(log: list) -> Any:
    total = 0
    for i in range(4):
        if i == 1:
            continue
        for j in range(i):
            if j == 2:
                break
            total += i * j
        else:
            log.append(("whole", i))
    while total < 20:
        total += 7
        if total == 15:
            break
    else:
        log.append("no break")
    return total, i


def empty_loop(log: list) -> Any:
    for item in ():
        log.append(item)
    else:
        log.append("none")
    return log[:]


def handlers(log: list) -> Any:
    for value in (1, 0, "x", None):
        try:
            log.append(10 / value)
        except ZeroDivisionError as error:
            log.append(str(error))
        except TypeError:
            log.append("type")
            if value is None:
                try:
                    raise KeyError(value) from None
                except LookupError as error:
                    log.append(repr(error))
        else:
            log.append("fine")
        finally:
            log.append("finally")
    return len(log)


def raising(log: list) -> Any:
    try:
        log.append(1)
        {}["missing"]
    finally:
        log.append(2)
    return "never"


def reraised(log: list) -> Any:
    try:
        try:
            int("x")
        except ValueError as error:
            log.append(error.args)
            raise RuntimeError("wrapped") from error
    except RuntimeError as error:
        log.append(type(error.__cause__))
        raise


def return_in_finally(log: list) -> Any:
    for i in range(3):
        try:
            if i == 1:
                return log
            log.append(i)
        finally:
            log.append("out")
            if i == 0:
                continue
    return None


def withs(log: list) -> Any:
    point = Point(1, 2)
    with point as inner, Point(5, 6) as other:
        log.append((inner is point, other.x))
    with point:
        log.append(point.x)
        raise KeyError("swallowed")
    log.append((point.x, point.y))
    with contextlib.suppress(ZeroDivisionError):
        log.append(1 / 0)
    for i in range(2):
        with point:
            if i:
                return point.x, point.y
            continue


def with_raises(log: list) -> Any:
    with Point(1, 2) as point:
        log.append(point.x)
        raise ValueError(point.x)


def comprehensions(log: list) -> Any:
    base = 3
    x = "kept"
    squares = [x * x + base for x in range(4) if x % 2]
    table = {key: [v for v in range(key)] for key in range(3)}
    found = {len(w) for w in ("a", "bb", "cc")}
    nested = [(a, b) for a in range(2) for b in range(a + 1)]
    makers = [lambda: i + base for i in range(2)]
    log.append([make() for make in makers])
    return squares, table, found, nested, sum(y for y in squares), x


def comprehension_raises(log: list) -> Any:
    x = "before"
    try:
        return [10 // x for x in (2, 1, 0)]
    except ZeroDivisionError:
        log.append(x)
    return x


def closures(log: list) -> Any:
    count = 0

    def bump(by: int = 2, *, times: int = 1) -> int:
        nonlocal count
        count += by * times
        return count

    log.append(bump())
    log.append(bump(3, times=2))
    count *= 10
    del by_name(log)[:]
    return bump(), count, bump.__defaults__, bump.__kwdefaults__


def by_name(log: list) -> list:
    return log


def calls(log: list) -> Any:
    point = Point(1, y=2)
    args, kwargs = (3, 4), {"factor": 2}
    log.append(point.total())
    log.append(point.total(1, factor=3))
    log.append(point.total(*args, **kwargs))
    log.append(point.total(*args, 5))
    log.append(Point.total(point, *[1], factor=point.x or 9))
    log.append(max(1, 2, key=lambda v: -v))
    return dict(a=1, **{"b": 2}), print, sorted([3, 1], reverse=True)


def bad_calls(log: list) -> Any:
    point = Point(1, 2)
    for wrong in (lambda: point.total(*3), lambda: point.total(**{"no": 1}), lambda: point()):
        try:
            wrong()
        except TypeError as error:
            log.append(str(error))
    return point.total(*range(3)), point.missing


def supers(log: list) -> Any:
    loud = Loud(1, 2)
    log.append(loud.total(3))
    return loud.late(log), loud.captured(log)


def containers(log: list) -> Any:
    items = [1, *range(2), 3]
    first, *middle, last = items
    a, (b, c) = 1, [2, 3]
    items[1:3] = [a, b, c]
    del items[0]
    table = {"k": 1, **{"z": items[1:2]}, a: b}
    table["k"] += 1
    del table["z"]
    items[::2], other = [0] * len(items[::2]), {*middle, 9}
    log.append((first, middle, last))
    return items, table, other, items[-1], (a, *items)


def strings(log: list) -> Any:
    name, value = "n", 3.14159
    log.append(f"{name!r:>5}|{value:.{limit}f}|{name!s}|{name!a}|{name}")
    return f"{value=}" + "".join(f"{c}" for c in "ab")


def names(log: list) -> Any:
    global counter
    counter += limit
    log.append(counter)
    import math as m
    from os import path as p
    from os import sep

    counter = 0
    local = 1
    del local
    try:
        return local  # noqa: F821
    except UnboundLocalError as error:
        log.append(str(error))
    return m.floor(1.5), p.basename("a/b"), sep


def unbound(log: list) -> Any:
    if log:
        late = 1
    log.append(0)
    return late


def attributes(log: list) -> Any:
    point = Point(1, 2)
    point.x += point.y
    point.extra = point
    point.extra.y = 5
    del point.extra
    log.append(vars(point))
    return point.scale, hasattr(point, "extra")


def walrus(log: list) -> Any:
    if (n := len(log) + 3) > 2 and (m := n * 2):
        log.append((n, m))
    found = [last := i for i in range(3)]
    return n or m, found, last, n and m, (n if m else last), None is n or n is not None


def matching(log: list) -> Any:
    out = []
    for subject in (Point(1, 2), [1, 2, 3], {"a": 1, "b": 2}, "text", 5, (0, 9), None):
        match subject:
            case Point(1, y=second):
                out.append(("point", second))
            case [first, *rest] if first:
                out.append((first, rest))
            case {"a": value, **others}:
                out.append((value, others))
            case str() | None as plain:
                out.append(plain)
            case 0 | 5:
                out.append("number")
            case [_, _]:
                out.append("pair")
    log.append(len(out))
    return out


def nested(log: list) -> Any:
    def outer(a: Any, /, b: Any = 1, *rest: Any, c: Any, **more: Any) -> Any:
        def inner() -> Any:
            return a, b, rest, c, more

        class Local:
            value = a

            def get(self) -> Any:
                return self.value, __class__

        log.append(Local().get()[0])
        return inner()

    return outer(1, 2, 3, c=4, d=5), outer("x", c=0)


def looks_at_locals(log: list) -> Any:
    first = 1
    for second in range(2):
        third = second
    del third
    return sorted(locals()), eval("first + second")


def asserts(log: list) -> Any:
    assert log is not None
    log.append("so far")
    assert not log, f"log has {len(log)}"


def groups(log: list) -> Any:
    try:
        log.append("in")
        raise ExceptionGroup("several", [ValueError(1), TypeError(2), KeyError(3)])
    except* ValueError as error:
        log.append(error.exceptions)
    except* TypeError:
        log.append("type")


def conditions(log: list) -> Any:
    out = []
    for a in (0, 1, None, [], "s"):
        out.append(a or "or")
        out.append(a and "and")
        out.append(1 if a is None else 2)
        if not a and a is not None or a == 1:
            out.append("some")
        while a is None:
            break
    return out


def annotated(log: list) -> Any:
    x: int = 1
    y: list[int]
    y = [x]
    return y


def many_values(log: list) -> Any:
    return [
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, log, 1.0, True, -0.0, 0.0, "a", b"a", 1j, ..., (1, (2.0, None)),
        frozenset({1}), *(str(i) for i in range(300) if i in (1, 290)),
    ]  # fmt: skip


def long_jump(log: list) -> Any:
    total = 0
    for i in range(2):
        if i:
            total += sum(
                [LONG[0], LONG[1], LONG[2], LONG[3], LONG[4], LONG[5], LONG[6], LONG[7], LONG[8]]
            )
            total += sum(
                [LONG[0], LONG[1], LONG[2], LONG[3], LONG[4], LONG[5], LONG[6], LONG[7], LONG[8]]
            )
            total += sum(
                [LONG[0], LONG[1], LONG[2], LONG[3], LONG[4], LONG[5], LONG[6], LONG[7], LONG[8]]
            )
            total += sum(
                [LONG[0], LONG[1], LONG[2], LONG[3], LONG[4], LONG[5], LONG[6], LONG[7], LONG[8]]
            )
        log.append(total)
    return total  # fmt: skip


LONG = list(range(9))

PROGRAMS: list[Callable[[list], Any]] = [
    value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__ and name not in ("by_name",)
    and not isinstance(value, type)
]  # fmt: skip
