"""Lifetimes of exceptions: what is handled ends with its handler, before what comes after it, also across breaks."""

# ruff: noqa: F821, F841

from __future__ import annotations

import pytest

from ..harness import logs_agree


class E(ValueError):
    def __init__(self, log):
        super().__init__("e")
        self.log = log

    def __del__(self):
        self.log.append("E gone")


class O:
    def __init__(self, log):
        self.log = log

    def __del__(self):
        self.log.append("O gone")


def fail(log):
    o = O(log)
    raise E(log)


def named(x, log):
    y = x + 1
    try:
        fail(log)
    except E as e:
        print("in")
        y = y * 2
        log.append("end of handler")
    log.append("after")
    y = y + 1
    print("p")
    log.append("last")
    return y * 2


def unnamed(x, log):
    y = x + 1
    try:
        fail(log)
    except E:
        print("in")
        y = y * 2
        log.append("end of handler")
    log.append("after")
    y = y + 1
    print("p")
    return y * 2


def fin(x, log):
    y = x + 1
    try:
        try:
            fail(log)
        finally:
            print("in")
            y = y * 2
            log.append("end of finally")
    except ValueError:
        y = y + 1
        log.append("handler")
    log.append("after")
    print("p")
    return y * 2


def loop(x, log):
    for i in range(3):
        try:
            x = x + 1
            if i != 1:
                fail(log)
        except E as e:
            print(i)
            x = x * 2
            continue
        log.append(i)
    return x


def kept(x, log):
    k = None
    try:
        fail(log)
    except E as e:
        k = e
        x = x + 1
    print("p")
    log.append("before del")
    k.__traceback__ = None
    del k
    log.append("after del")
    return x * 2


def outer(x, log):
    x = x + 1
    fail(log)


def leaves(x, log):
    try:
        outer(x, log)
    except E as e:
        log.append("caught")
        del e
    print("z")
    log.append("after")
    return x + 1


def args_die(x, log):
    o = O(log)
    y = x + 1
    try:
        print("a")
        del o
        log.append("deleted")
        {}["k"]
    except KeyError:
        print("b")
        log.append("handler")
    return y * 2


PROGRAMS = [named, unnamed, fin, loop, kept, leaves, args_die]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.__name__)
def test_what_is_handled_ends_with_its_handler(program, capsys):
    logs_agree(program, capsys)
