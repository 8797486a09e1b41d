"""Generators that are closed where nobody holds them any more: at a break of the loop, at the end of a name.

What a `finally` of theirs does happens at its place among the effects of the frame, also when the frame breaks while they
are suspended.
"""

# ruff: noqa: F841

from __future__ import annotations

import pytest

from ..harness import logs_agree


def make(log, n=4):
    try:
        for i in range(n):
            log.append(("y", i))
            yield i
    except ValueError as e:
        log.append(("thrown", str(e)))
        yield 99
    finally:
        log.append("closed")


def loop_break(x, log):
    for i in make(log):
        print(i)
        x = x + i
        if i == 2:
            break
    log.append("after loop")
    return x * 2


def loop_full(x, log):
    for i in make(log):
        x = x + i
        print(i)
    log.append("after loop")
    return x * 2


def held(x, log):
    g = make(log)
    x = x + next(g)
    print("p")
    x = x + next(g)
    log.append("before")
    g = None
    log.append("after")
    return x * 2


def deleted(x, log):
    g = make(log)
    x = x + next(g)
    print("p")
    del g
    log.append("after")
    print("q")
    return x * 2


def leaves(x, log):
    g = make(log)
    x = x + next(g)
    print("p")
    return x * 2


def closed(x, log):
    g = make(log)
    x = x + next(g)
    print("p")
    g.close()
    log.append("after")
    return x * 2


def thrown(x, log):
    g = make(log)
    x = x + next(g)
    print("p")
    x = x + g.throw(ValueError("t"))
    log.append("after")
    return x * 2


def exc_in_loop(x, log):
    try:
        for i in make(log):
            x = x + i
            print(i)
            if i == 1:
                raise KeyError("k")
    except KeyError as e:
        log.append("caught")
    x = x + 1
    log.append("after")
    return x


def return_in_loop(x, log):
    for i in make(log):
        print(i)
        x = x + i
        if i == 1:
            return x


def unpack(x, log):
    a, b, *c = make(log)
    print(a)
    return x + b, c


def brk(log):
    try:
        print("in gen")
        yield 1
        print("again")
        yield 2
    finally:
        log.append("brk closed")


def inner_break(x, log):
    for i in brk(log):
        x = x + i
        log.append(i)
        if i == 1:
            break
    log.append("after")
    return x * 3


def nested(x, log):
    for i in make(log, 2):
        for j in make(log, 3):
            x = x + i * j
            if j == 1:
                break
            print(i, j)
        log.append("inner over")
    return x


def nobreak(x, log):
    for i in make(log):
        x = x + i
        if i == 2:
            break
    log.append("after")
    return x


def passed(x, log):
    def use(g, x):
        x = x + next(g)
        print("use")
        return x + next(g)

    x = use(make(log), x)
    log.append("after use")
    return x * 2


def zipped(x, log):
    for a, b in zip(make(log), range(2)):
        x = x + a * b
        print(a)
    log.append("after")
    return x * 2


def delegating(x, log):
    def outer():
        try:
            yield from make(log)
        finally:
            log.append("outer closed")

    for i in outer():
        x = x + i
        print(i)
        if i == 1:
            break
    log.append("after")
    return x * 2


PROGRAMS = [
    loop_break,
    loop_full,
    held,
    deleted,
    leaves,
    closed,
    thrown,
    exc_in_loop,
    return_in_loop,
    unpack,
    inner_break,
    nested,
    nobreak,
    passed,
    zipped,
    delegating,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.__name__)
def test_generators_are_closed_at_their_place(program, capsys):
    report = logs_agree(program, capsys)
    assert "PL203" not in {row.code for row in report.notes}
