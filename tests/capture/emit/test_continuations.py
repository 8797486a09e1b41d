"""Breaks inside inlined functions: the function goes on there, and so do its callers."""

from __future__ import annotations

import contextlib
import functools
import warnings
import weakref

import torch
from torch import nn

from graftjit import graft_break

from ..harness import agrees, logs_agree, t


def _inner(x, scale=2, *more, key=1):
    y = x * scale
    graft_break("inside")
    return y + key + sum(more)


def _outer(x, flag=True):
    a = x + 1
    b = _inner(a, 3, 4, key=5)
    return a - b if flag else b


@agrees(breaks=1, graphs=3)
def test_a_break_in_a_callee():
    return lambda x: _inner(x + 1).relu(), (t(3),)


@agrees(breaks=1, graphs=4)
def test_a_break_two_calls_deep():
    return lambda x: _outer(x * 2) * 2, (t(3),)


@agrees(breaks=1)
def test_arguments_of_all_kinds():
    def f(x, *rest, **named):
        return _inner(*(x, 2, *rest), **named) + _outer(x, flag=False)

    return functools.partial(f, key=3), (t(3), 1, 2)


@agrees(breaks=1)
def test_a_break_under_values_on_the_stacks_of_all_callers():
    def f(x):
        return [x + 1, (x * 2, _outer(x)), {"a": x.sum(), "b": _inner(x)}]

    return f, (t(3),)


@agrees(breaks=1)
def test_cells_of_inlined_functions():
    def f(x):
        count = 0

        def bump(y):
            nonlocal count
            count += 1
            z = y + count

            def later():
                return z * count

            graft_break("with cells")
            count += 10
            return later()

        return bump(x), bump(x), count

    return f, (t(3),)


def _kept_cells(x):
    total = x.sum()

    def add(y):
        nonlocal total
        total = total + y
        return total

    add(x[0])
    _inner(x)
    return add, add(x[1]), total


@agrees(breaks=1)
def test_a_function_with_cells_between():
    def f(x):
        add, one, two = _kept_cells(x)
        return one, two, add(x[2])

    return f, (t(3),)


@agrees()
def test_handlers_of_callers():
    def raising(x):
        y = x * 2
        graft_break("before it raises")
        raise ValueError(y.sum().item())

    def middle(x, log):
        try:
            return raising(x + 1)
        except KeyError:
            return x
        finally:
            log.append("left")

    def f(x, log):
        try:
            return middle(x, log), 1
        except ValueError as error:
            return x * 3, error.args

    return f, (t(3), [])


@agrees()
def test_contexts_that_are_open_at_a_break():
    def inner(x, w):
        with torch.no_grad():
            y = x * w
            graft_break("without gradients")
            z = y * 2
        return (y.requires_grad, z.requires_grad), z * w

    def middle(x, w):
        with torch.autocast("cpu", enabled=False), contextlib.suppress(KeyError):
            return inner(x, w)

    def f(x, w):
        flags, z = middle(x, w)
        return flags, z, z.requires_grad, torch.is_grad_enabled()

    return f, (t(3), t(3).requires_grad_())


class _Base:
    scale = 2

    def run(self, x):
        y = x * self.scale
        graft_break("in a method")
        return y + self.scale


class _Derived(_Base):
    def run(self, x):
        self.scale = 3
        z = super().run(x + 1)
        self.scale = 4
        return z * self.scale

    def __call__(self, x):
        return self.run(x)

    @property
    def doubled(self):
        graft_break("in a property")
        return self.scale * 2


@agrees(breaks=1)
def test_methods_and_super():
    def f(o, x):
        return o(x) + o.scale, o

    return f, (_Derived(), t(3))


@agrees()
def test_results_that_an_instruction_works_on_are_not_passed():
    class Truth:
        def __bool__(self):
            graft_break("a truth")
            return True

        def __add__(self, other):
            graft_break("a sum")
            return NotImplemented

        def __radd__(self, other):
            return other + 7

    def f(o, x):
        y = x + o.doubled
        made = Truth()
        z = y if made else x
        return (x.sum().detach() + made) + z

    return f, (_Derived(), t(3))


class _Layer(nn.Module):
    def __init__(self, breaks):
        super().__init__()
        torch.manual_seed(breaks)
        self.linear, self.breaks = nn.Linear(3, 3), breaks

    def forward(self, x, shift=0.0):
        x = self.linear(x).relu()
        if self.breaks:
            graft_break("in one layer")
        return x + shift


class _Layers(nn.Module):
    def __init__(self, *breaks):
        super().__init__()
        self.layers = nn.ModuleList(_Layer(one) for one in breaks)

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            x = layer(x, shift=float(number))
        return x.sum()


@agrees(breaks=1, graphs=3, backward=True)
def test_one_layer_of_a_loop_breaks():
    return _Layers(0, 1, 0, 0), (t(2, 3),)


@agrees(breaks=1)
def test_effects_come_in_order():
    def inner(x, log):
        log.append("inner")
        y = x + len(log)
        graft_break("between")
        log.append("after")
        return y

    def f(x, log):
        log.append("first")
        y = inner(x, log) * 2
        log.append("last")
        return y, list(log)

    return f, (t(3), [])


@agrees()
def test_a_comprehension_that_breaks():
    def f(x):
        return [_inner(x, n) for n in (1, 2)], {n: _outer(x * n) for n in (1, 2)}

    return f, (t(3),)


@agrees()
def test_recursion_with_a_break_at_its_end():
    def fold(x, n):
        if n == 0:
            graft_break("at the end")
            return x
        return fold(x + n, n - 1) * 2

    return lambda x: fold(x, 4), (t(3),)


@agrees()
def test_warnings_name_the_callers_line():
    def inner(x):
        warnings.warn("old", stacklevel=2)
        return x + 1

    def middle(x):
        return inner(x * 2) - 1

    def f(x):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            y = middle(x)
        return y, [(str(one.message), one.lineno) for one in seen]

    return f, (t(3),)


def test_objects_of_inlined_functions_end_where_they_do_in_python(capsys) -> None:
    class Ending:
        def __init__(self, log):
            self.log = log
            weakref.finalize(self, log.append, "ended")

    def inner(x, held, log):
        y = x + 1
        graft_break("here")
        del held
        log.append("dropped")
        return y * 2

    def program(x, log):
        y = inner(x, Ending(log), log)
        log.append("back")
        return y

    logs_agree(program, capsys)


@agrees(calls=6)
def test_calls_that_break_on_one_path_only():
    def inner(x, n):
        y = x * 2
        if n % 2:
            graft_break("odd")
        return y + n

    def f(x, state):
        state["n"] += 1
        return inner(x, state["n"]) * 3

    return f, (t(3), {"n": 0})
