"""Context variables: what a call reads, sets and resets is what plain Python reads, sets and resets."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar, copy_context

import torch

from graftjit import graft_break, jit

from ..harness import agrees


def t(*shape):
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape)


PLAIN: ContextVar = ContextVar("plain")
DEFAULT: ContextVar = ContextVar("default", default=None)
SCALE: ContextVar = ContextVar("scale", default=2)


@agrees(breaks=0, graphs=1)
def test_set_and_reset_leave_no_trace():
    class Wrapper:
        """As transformers has one."""

        def __init__(self):
            self.variable = ContextVar("inner", default=None)

        def set(self, value):
            return self.variable.set(value)

        def reset(self, token):
            self.variable.reset(token)

    collector = Wrapper()

    def inner(x):
        seen = collector.variable.get()
        seen["h"].append(x * 2)
        return x + 1

    def f(x):
        collected = {"h": []}
        token = collector.set(collected)
        try:
            y = inner(inner(x))
        finally:
            collector.reset(token)
        return y, tuple(collected["h"]), collector.variable.get()

    return f, (t(3),)


@agrees(breaks=0, calls=4)
def test_what_is_set_stays_set():
    def f(x):
        scale = SCALE.get()
        SCALE.set(scale + 1)
        SCALE.set(scale + 2)
        return x * scale, SCALE.get(), SCALE.name

    def begin():
        SCALE.set(2)

    begin()
    return f, (t(3),), [None, begin, None, begin]


@agrees(breaks=0)
def test_tokens_that_leave():
    def f(x):
        first = SCALE.set(x * 2)
        second = SCALE.set(x.sum())
        return first, second, SCALE

    def undo(result):
        first, second, variable = result.value if hasattr(result, "value") else result
        seen = [second.old_value, second.var is variable, first.var is variable]
        variable.reset(second)
        seen.append(variable.get())
        variable.reset(first)
        return (torch.stack([torch.as_tensor(one, dtype=torch.float32).sum() for one in seen]),)

    return f, (t(3),), [undo, undo]


@agrees()
def test_a_break_between_set_and_reset():
    def f(x):
        token = DEFAULT.set([x])
        try:
            graft_break("between")
            y = DEFAULT.get()[0] * 2
        finally:
            DEFAULT.reset(token)
        return y, DEFAULT.get()

    return f, (t(3),)


@agrees()
def test_errors():
    def f(x, case):
        y = x + 1
        try:
            if case == 0:
                PLAIN.get()
            elif case == 1:
                token = PLAIN.set(1)
                PLAIN.reset(token)
                PLAIN.reset(token)
            elif case == 2:
                DEFAULT.reset(PLAIN.set(3))
            elif case == 3:
                PLAIN.set()
            elif case == 4:
                one, two = SCALE.set(5), SCALE.set(6)
                SCALE.reset(one)
                y = y * SCALE.get()
                SCALE.reset(two)
                y = y * SCALE.get()
                SCALE.set(2)
            elif case == 5:
                return y, PLAIN.get(4), PLAIN.get(None)
        except (LookupError, RuntimeError, ValueError, TypeError) as error:
            return y, type(error)
        finally:
            with contextlib.suppress(LookupError):
                PLAIN.get()
        return y

    return f, (t(3), 0), [lambda n=n: (t(3), n) for n in (1, 2, 3, 4, 5, 0)]


def test_the_context_of_the_call_counts() -> None:
    @jit
    def f(x):
        return x * SCALE.get()

    x = torch.ones(2)
    contexts = [copy_context() for _ in range(4)]
    for number, context in enumerate(contexts):
        context.run(SCALE.set, number)
    for _ in range(3):
        assert [context.run(f, x)[0].item() for context in contexts] == [0, 1, 2, 3]
    assert contexts[3].run(f, x)[0].item() == 3
    assert not f.report().breaks


def test_a_tensor_in_a_context_variable_is_an_input() -> None:
    held: ContextVar = ContextVar("held")

    @jit
    def f(x):
        return x * held.get()[0]["w"]

    x = torch.ones(2)
    for value in range(6):
        held.set([{"w": torch.full((2,), float(value))}])
        assert f(x)[0].item() == value
    held.get()[0]["w"] = torch.full((2,), 9.0)
    assert f(x)[0].item() == 9
    assert f.report().graph_count == 1
